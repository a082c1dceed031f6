"""Check before a run that the files which it writes at its end can be written."""

import os
from contextlib import suppress
from pathlib import Path

from jobs.errors import UsageError


def prepare(path: Path, option: str, *, makes_folder: bool) -> None:
    """Check that a file can be written. makes_folder: create its folder.

    Raises UsageError, which names the option.
    """
    if os.path.exists(path) and not os.path.isfile(path):
        raise UsageError(f"{option} {path} is no file; give the name of a file")
    try:
        folder = path.resolve().parent
        if makes_folder:
            folder.mkdir(parents=True, exist_ok=True)
        elif not folder.is_dir():
            raise UsageError(f"{option} {path}: no such folder {folder}; create it, or give another path")
    except (OSError, RuntimeError) as error:
        raise UsageError(
            f"{option} {path}: cannot create the folder {path.parent}: {_reason(error)}; give another path"
        ) from None
    try:
        with suppress(FileNotFoundError):
            path.lstat()  # refuses a name that is too long
        part = partial(path)
        part.touch()
        part.unlink()
    except OSError as error:
        raise UsageError(f"{option} {path} cannot be written: {_reason(error)}; give another path") from None


def partial(path: Path) -> Path:
    """Return the temporary file, so that an old file stays until the new one is complete."""
    target = path.resolve()
    return target.with_name(f".{target.name[:60]}.{os.getpid()}.part")


def _reason(error: Exception) -> str:
    return (error.strerror if isinstance(error, OSError) else None) or "its links lead in a circle"
