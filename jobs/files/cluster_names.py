"""Name a cluster after a folder of its logs, where no name is given."""

import re
from pathlib import Path, PurePosixPath

from jobs.location import SCHEME

STANDARD_INPUT = "-"
UNNAMED = "cluster"
_GLOB = re.compile(r"[*?\[{]")
# names of folders of one node, of logs, of a day, or of a partition column's value (`dt=2026-03-01`)
_PART_OF_A_CLUSTER = re.compile(
    r"(broker|node|controller|server|host)s?[-_.]?\d*|kafka[-_.]?\d+|\d+|(kafka[-_.]?)?(log[-_.]?files?|logs?)|\d{4}([-_.]\d\d){1,2}|\w+=[^=]*",
    re.I,
)
# names of folders above those of a cluster
_OF_A_MACHINE = re.compile(r"kafka|data|var|opt|mnt|srv|tmp|home|root|usr|private|volumes|users", re.I)


def of_logs(given: str) -> str:
    """Return the innermost folder of a path, glob or URI that is not of a node, of logs or of a day.

    `/data/payments/broker-*/`, `/data/payments/logs` and `/data/payments/broker-1/server.log` are `payments`;
    `/var/log/kafka` is `kafka`.
    """
    if given == STANDARD_INPUT:
        return UNNAMED
    names = [name for name in reversed(_folders(given)) if not _PART_OF_A_CLUSTER.fullmatch(name)]
    best = next((at for at, name in enumerate(names) if not _OF_A_MACHINE.fullmatch(name)), 0)
    is_given = bool(names) and names[0] == _folders(given)[-1]
    return names[0 if is_given else best] if names else UNNAMED


def _folders(given: str) -> list[str]:
    """Return the names of the folders that a path is in, up to its first glob."""
    if SCHEME.match(given):
        parts = list(PurePosixPath(given.split("://", 1)[1]).parts)
        # a URI does not show whether it is a folder; a name with a dot counts as a file
        return _before_glob(parts[:-1] if len(parts) > 1 and "." in parts[-1] else parts)
    path = Path(given)
    if path.is_dir():
        return list(path.resolve().parts[1:])
    whole = list((path.resolve() if path.exists() else path.absolute()).parts[1:])
    kept = whole if path.exists() else _before_glob(whole)
    # an existing path is a file; a missing one without a glob is reported later
    return kept[:-1] if kept == whole else kept


def _before_glob(parts: list[str]) -> list[str]:
    return parts[: next((at for at, part in enumerate(parts) if _GLOB.search(part)), len(parts))]
