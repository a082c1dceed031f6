"""Convert the place of the tables: a local folder, or a URI that delta-rs or Spark can write to."""

import os
import re
from pathlib import Path
from urllib.parse import unquote, urlsplit

from jobs.errors import UsageError

SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+:/")
# paths that delta-rs accepts; it reads other characters as parts of a URL, or panics
PLAIN = re.compile(r"[A-Za-z0-9._/ +=@,~-]+")
# scheme of an object store -> scheme that delta-rs uses
OBJECT_STORES = {
    "s3": "s3",
    "s3a": "s3",
    "s3n": "s3",
    "gs": "gs",
    "abfs": "abfs",
    "abfss": "abfss",
    "az": "az",
}


def spark_uri(uri: str) -> str:
    """Return a URI as Spark accepts it: Hadoop's client of S3 knows only `s3a`."""
    scheme, _, rest = uri.partition(":")
    return f"s3a:{rest}" if OBJECT_STORES.get(scheme) == "s3" else uri


def root_of(given: str | Path) -> str:
    """Return the root of the tables as Spark accepts it: a URI, or an absolute path."""
    text = str(given)
    return spark_uri(text.rstrip("/")) if SCHEME.match(text) else str(Path(text).resolve())


def local_folder(root: str) -> Path | None:
    """Return the local folder of a root; None where it is not on this machine."""
    if not SCHEME.match(root):
        return Path(root)
    parts = urlsplit(root)
    return Path(unquote(parts.path)) if parts.scheme == "file" else None


def delta_rs_uri(root: str) -> str | None:
    """Return a root as delta-rs accepts it; None where it does not."""
    if (folder := local_folder(root)) is not None:
        return str(folder) if PLAIN.fullmatch(str(folder)) else None
    scheme, _, rest = root.partition(":")
    return f"{OBJECT_STORES[scheme]}:{rest}" if scheme in OBJECT_STORES else None


def writable(root: str) -> None:
    """Create a local root if it is missing. Raises UsageError where it cannot be written."""
    folder = local_folder(root)
    if folder is None:
        return
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(f"--tables {folder}: {error.strerror}; give a folder that can be written") from None
    if not os.access(folder, os.W_OK):
        raise UsageError(f"--tables {folder} cannot be written; give another folder")
