"""Where the tables lie: a folder of this machine, or any URI that Spark can write to. One writer at a time where that can be seen to."""

import fcntl
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import unquote, urlsplit

from jobs.errors import UsageError

SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+:/")


def root_of(given: str | Path) -> str:
    """What --tables names, as Spark takes it: a URI as it stands, a path in full."""
    text = str(given)
    return text.rstrip("/") if SCHEME.match(text) else str(Path(text).resolve())


def local_folder(root: str) -> Path | None:
    """The folder that a root is on this machine; None where it is elsewhere."""
    if not SCHEME.match(root):
        return Path(root)
    parts = urlsplit(root)
    return Path(unquote(parts.path)) if parts.scheme == "file" else None


@contextmanager
def sole_writer(root: str) -> Iterator[None]:
    """Holds the lock of the tables under a local folder. Raises UsageError if another run has it, or nothing can be written there.

    Elsewhere there is no lock to hold: where two runs write to one table, Delta lets the first commit stand and the other fail.
    """
    folder = local_folder(root)
    if folder is None:
        yield
        return
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(f"--tables {folder}: {error.strerror}; give a folder that can be written") from None
    if not os.access(folder, os.W_OK):
        raise UsageError(f"--tables {folder} cannot be written; give another folder")
    with (folder / "_lock").open("a") as handle:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise UsageError(f"Another run is writing to {folder}; wait for it, or give --tables another folder") from None
        yield
