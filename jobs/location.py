"""Where the tables are: a folder of this machine, or any URI that delta-rs or Spark can write to."""

import os
import re
from pathlib import Path
from urllib.parse import unquote, urlsplit

from jobs.errors import UsageError

SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+:/")
# in a path; others delta-rs takes as parts of a URL, or panics
PLAIN = re.compile(r"[A-Za-z0-9._/ +=@,~-]+")
# schemes of object stores that delta-rs reaches, and what it calls them
OBJECT_STORES = {"s3": "s3", "s3a": "s3", "s3n": "s3", "gs": "gs", "abfs": "abfs", "abfss": "abfss", "az": "az"}


def spark_uri(uri: str) -> str:
    """A URI as Spark takes it: Hadoop's client of S3 knows `s3a` only."""
    scheme, _, rest = uri.partition(":")
    return f"s3a:{rest}" if OBJECT_STORES.get(scheme) == "s3" else uri


def root_of(given: str | Path) -> str:
    """What --tables names, as Spark takes it: a URI, or a path in full."""
    text = str(given)
    return spark_uri(text.rstrip("/")) if SCHEME.match(text) else str(Path(text).resolve())


def local_folder(root: str) -> Path | None:
    """The folder that a root is on this machine; None where it is elsewhere."""
    if not SCHEME.match(root):
        return Path(root)
    parts = urlsplit(root)
    return Path(unquote(parts.path)) if parts.scheme == "file" else None


def delta_rs_uri(root: str) -> str | None:
    """A root as delta-rs takes it; None where it does not reach it."""
    if (folder := local_folder(root)) is not None:
        return str(folder) if PLAIN.fullmatch(str(folder)) else None
    scheme, _, rest = root.partition(":")
    return f"{OBJECT_STORES[scheme]}:{rest}" if scheme in OBJECT_STORES else None


def writable(root: str) -> None:
    """Creates a local folder where it is missing. Raises UsageError where nothing can be written there."""
    folder = local_folder(root)
    if folder is None:
        return
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(f"--tables {folder}: {error.strerror}; give a folder that can be written") from None
    if not os.access(folder, os.W_OK):
        raise UsageError(f"--tables {folder} cannot be written; give another folder")
