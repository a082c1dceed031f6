"""Tables that cannot be read: which of them, and why.

Delta's log and the files are looked at without any engine.

Only tables in a folder of this machine are looked at: elsewhere each look is a request.
"""

import json
import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.parquet as pq

import schemas
from jobs.engine.upgrade import VERSION
from jobs.errors import AuditError, UsageError
from jobs.location import local_folder, root_of

LOG = "_delta_log"
COMMIT = re.compile(r"(\d{20})\.json")
CHECKPOINT = re.compile(r"(\d{20})\.checkpoint(?:\.[0-9a-f.-]+)?\.parquet")
# tables that a run creates again where they were deleted
REMADE = ("cluster_facts", "partition_states")
# what reading a damaged file raises
UNREADABLE = (OSError, pa.ArrowException, ValueError, KeyError, TypeError, AttributeError)
# number of problems that are shown of each table
SHOWN = 2


class DamageError(AuditError):
    """Tables cannot be read."""

    exit_code = UsageError.exit_code


@dataclass
class Log:
    """The content of a table's log, as far as it can be read.

    files: path -> (bytes, rows; None: not known) of the files with its rows. removed: paths that it has
    removed. version: of the last commit; -1: none. problems: what cannot be read of it. properties: of the
    table.
    """

    files: dict[str, tuple[int | None, int | None]] = field(default_factory=dict)
    removed: set[str] = field(default_factory=set)
    version: int = -1
    problems: list[str] = field(default_factory=list)
    properties: Mapping[str, str] = field(default_factory=dict)

    def apply(self, action: Mapping[str, Any]) -> None:
        """Apply one action of a commit or a checkpoint."""
        if add := action.get("add"):
            path = unquote(add["path"])
            stats = json.loads(add.get("stats") or "{}")
            self.files[path] = (add.get("size"), stats.get("numRecords"))
            self.removed.discard(path)
        elif remove := action.get("remove"):
            path = unquote(remove["path"])
            self.files.pop(path, None)
            self.removed.add(path)
        elif metadata := action.get("metaData"):
            self.properties = dict(metadata.get("configuration") or {})


def read_log(table: Path) -> Log:
    """Return the log of a table, as far as it can be read."""
    log, folder = Log(), table / LOG
    names = sorted(path.name for path in folder.iterdir()) if folder.is_dir() else []
    commits = {int(found[1]): name for name in names if (found := COMMIT.fullmatch(name))}
    checkpoints: dict[int, list[str]] = {}
    for name in names:
        if found := CHECKPOINT.fullmatch(name):
            checkpoints.setdefault(int(found[1]), []).append(name)
    if not commits and not checkpoints:
        log.problems.append("its log is missing")
        return log
    first = 0
    for number in sorted(checkpoints, reverse=True):
        try:
            actions = [row for name in checkpoints[number] for row in _checkpointed(folder / name)]
            for action in actions:
                log.apply(action)
            log.version, first = number, number + 1
            break
        except UNREADABLE:
            log = Log()
    log.version = max([log.version, *commits])
    for number in range(first, log.version + 1):
        if number not in commits:
            log.problems.append(f"commit {number} of its log is missing")
            continue
        try:
            lines = (folder / commits[number]).read_text("utf-8").splitlines()
            actions = [json.loads(line) for line in lines if line.strip()]
            if not actions:
                raise ValueError("empty")
            for action in actions:
                log.apply(action)
        except UNREADABLE:
            log.problems.append(f"commit {number} of its log cannot be read")
    return log


def _checkpointed(path: Path) -> Iterable[Mapping[str, Any]]:
    file = pq.ParquetFile(path)
    wanted = [name for name in ("add", "remove", "metaData") if name in file.schema_arrow.names]
    rows: list[Mapping[str, Any]] = file.read(columns=wanted).to_pylist(maps_as_pydicts="lossy")
    return rows


def problems(table: Path, *, at_least: int = -1, thorough: bool = False) -> list[str]:
    """Return what is wrong with a table.

    at_least: the commit that its log has to reach. thorough: read each file to its end, too.
    """
    log = read_log(table)
    found = list(log.problems)
    if not found and log.version < at_least:
        found.append(f"its log ends with commit {log.version}, an earlier run has written commit {at_least}")
    for name, (size, _) in log.files.items():
        path = table / name
        try:
            there = path.stat().st_size
        except OSError:
            found.append(f"file {name} is missing")
            continue
        if size is not None and there != size:
            found.append(f"file {name} has {there:,} bytes instead of {size:,}")
        elif thorough and not is_readable(path):
            found.append(f"file {name} cannot be read")
    return found


def is_readable(path: Path) -> bool:
    """Return whether a Parquet file can be read to its end."""
    try:
        file = pq.ParquetFile(path)
        for _ in file.iter_batches():
            pass
    except UNREADABLE:
        return False
    return True


def examined(
    root: str,
    names: Collection[str] | None = None,
    *,
    versions: Mapping[str, int] | None = None,
    thorough: bool = False,
) -> dict[str, list[str]]:
    """Table -> what is wrong with it.

    names: None: all tables. versions: table -> the commit that its log has to reach.
    """
    folder = local_folder(root)
    if folder is None or not folder.is_dir():
        return {}
    wanted = [one.name for one in schemas.statements("tables") if names is None or one.name in names]
    there = [name for name in wanted if (folder / name).is_dir() and any((folder / name).iterdir())]
    found = {
        name: problems(folder / name, at_least=(versions or {}).get(name, -1), thorough=thorough)
        for name in there
    }
    if names is None:
        found |= {name: ["it is missing"] for name in _lost(folder, there) if name not in REMADE}
    return {name: some for name, some in found.items() if some}


def _lost(folder: Path, there: Collection[str]) -> list[str]:
    """Return the tables that were deleted, where the others are of this version and were written to."""
    missing = [one.name for one in schemas.statements("tables") if one.name not in there]
    if not there or not missing:
        return []
    logs = [log for name in there if not (log := read_log(folder / name)).problems]
    of_now = all(log.properties.get(VERSION) == str(schemas.TABLES_VERSION) for log in logs)
    return missing if of_now and any(log.version > 0 for log in logs) else []


def refuse(
    root: str | Path | None,
    names: Collection[str] | None = None,
    *,
    versions: Mapping[str, int] | None = None,
    thorough: bool = False,
) -> None:
    """Raise DamageError, which names the tables that cannot be read and what to do."""
    if root is None:
        return
    place = root_of(root)
    if found := examined(place, names, versions=versions, thorough=thorough):
        raise DamageError(
            f"{described(found)}. Run `kafka-audit repair --tables {root}`: it rebuilds what can be rebuilt, and says what was lost"
        )


def described(found: Mapping[str, Collection[str]]) -> str:
    """Damages, for people."""
    one_by_one = []
    for name, some in sorted(found.items()):
        more = f" and {len(some) - SHOWN} more" if len(some) > SHOWN else ""
        one_by_one.append(f"table {name} is damaged ({'; '.join(list(some)[:SHOWN])}{more})")
    return ", ".join(one_by_one)
