"""Find processes that a test has started by a mark in their environment."""

from pathlib import Path

MARK = "KAFKA_AUDIT_TEST_RUN"


def left(mark: str) -> dict[int, str]:
    """Return process id -> command line of the running processes with a mark."""
    found = {}
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if f"{MARK}={mark}".encode() in (process / "environ").read_bytes().split(b"\0"):
                found[int(process.name)] = (process / "cmdline").read_bytes().replace(b"\0", b" ").decode()
        except OSError:
            continue
    return found
