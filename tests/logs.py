"""Read log lines as events of timelines, without a JVM; the events of recordings are cached on disk."""

from __future__ import annotations

import hashlib
import json
import pickle
import re
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from functools import cache
from pathlib import Path
from typing import Any

from jobs.files.checkpoints import moment_of, parse
from jobs.landing.tool_outputs import ToolOutput, event_rows
from jobs.timelines import EVENT_COLUMNS, Event
from parsers.events import Parser
from parsers.rules import built_in

RECORDINGS = Path(__file__).parents[2] / "shared" / "recordings"
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
# glob of the logs of a recording
LOGS = "*/*.log*"
NODE_FOLDER = re.compile(r"(?:broker|node|kafka)-(\d+)$")
# the first letters of a line with which no record begins
CONTINUED = ("\t", " ", "java.", "kafka.", "org.", "Caused", "scala.")
PARSER = Parser()


def keeps() -> dict[str, tuple[str, ...]]:
    """Return event type -> fields that keep their value, by the rules."""
    return {rule.name: tuple(rule.keeps) for rule in built_in().rules if rule.keeps}


def microseconds(text: str) -> int:
    """Return a time stamp without a zone, which is UTC, as microseconds."""
    moment = datetime.fromisoformat(text.replace(",", ".").removesuffix("Z")).replace(tzinfo=UTC)
    return (moment - EPOCH) // timedelta(microseconds=1)


def moment(ts: int | None) -> datetime | None:
    """Return microseconds as a moment."""
    return None if ts is None else EPOCH + timedelta(microseconds=ts)


def records(lines: Iterable[str]) -> Iterator[tuple[int, str]]:
    """Yield (number of its first line from 1, text) of each record."""
    begun: tuple[int, list[str]] | None = None
    for number, line in enumerate(lines, 1):
        if begun and (not line or line.startswith(CONTINUED)):
            begun[1].append(line)
            continue
        if begun:
            yield begun[0], "\n".join(begun[1])
        begun = (number, [line]) if line else None
    if begun:
        yield begun[0], "\n".join(begun[1])


def write_early(recording: Path, folder: Path, until: str) -> None:
    """Write the logs of a recording up to a moment. until: in the format of time stamps."""
    for log in recording.glob("broker-*/*.log"):
        kept, keep = [], True
        for line in log.read_text("utf-8").splitlines(keepends=True):
            if line.startswith("[20"):
                keep = line[1:24] < until
            if keep:
                kept.append(line)
        target = folder / log.parent.name / log.name
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text("".join(kept), "utf-8")


def configuration(path: Path, clusters: Mapping[str, Path | str | Sequence[Path]]) -> Path:
    """Write an audit.toml with clusters and the paths of their logs; return its path."""
    blocks = []
    for name, logs in clusters.items():
        listed = [str(one) for one in ([logs] if isinstance(logs, Path | str) else logs)]
        blocks.append(f"[[cluster]]\nname = {json.dumps(name)}\nlogs = {json.dumps(listed)}\n")
    path.write_text("\n".join(blocks), "utf-8")
    return path


def broker_is_back(recording: Path) -> str:
    """Return when the killed broker of a recording is started again, in the format of time stamps."""
    steps = [json.loads(line) for line in (recording / "steps.jsonl").read_text("utf-8").splitlines()]
    killed = next(step["time"] for step in steps if step["step"].startswith("signal"))
    back = next(step["time"] for step in steps if step["step"] == "start broker" and step["time"] > killed)
    return back[:23].replace("T", " ").replace(".", ",")


def events_of_file(file: str, text: str, node: int | None) -> Iterator[Event]:
    """Yield the events of a file's records, in order. node: named by its folder."""
    for number, record in records(text.splitlines()):
        found = PARSER.record(record)
        if found is None or not PARSER.in_scope(found):
            continue
        for event in PARSER.events(found):
            if event["event_type"] is None:
                continue
            of_cluster = found.logger == "__cluster_metadata"
            of_record: dict[str, Any] = {
                "record_id": hashlib.md5(f"{file}|{number}".encode()).hexdigest()[:12],
                "node": None if of_cluster else event.get("node", node),
                "file": file,
                "record_no": number,
                "ts": None if found.ts is None else microseconds(found.ts),
                "level": found.level,
                "logger": found.logger,
            }
            yield Event(
                **{name: value for name, value in {**event, **of_record}.items() if name in EVENT_COLUMNS}
            )


def events_of_output(file: str, text: str, at: datetime | None = None) -> list[Event]:
    """Return the output of a tool as events. at: by default the time in the file's name."""
    at, lines = at or moment_of(text, file), dict(enumerate(text.splitlines(), 1))
    assert at is not None
    rows = [
        {**row, "ts": (row["ts"] - EPOCH) // timedelta(microseconds=1)}
        for row in event_rows(ToolOutput(Path(file), "c", at, tuple(parse(text)), False, lines))
    ]
    return [Event(**{name: row.get(name) for name in EVENT_COLUMNS}) for row in rows]


def events_of(files: Mapping[str, str]) -> list[Event]:
    """Return the events of files. files: path, whose folder may name the node -> text."""
    found: list[Event] = []
    for file, text in files.items():
        if moment_of("", file):
            found += events_of_output(file, text)
            continue
        named = [match for part in Path(file).parts[:-1] if (match := NODE_FOLDER.search(part))]
        found += events_of_file(file, text, int(named[-1][1]) if named else None)
    return found


@cache
def _version() -> str:
    """Return a hash of the code and rules that the events depend on."""
    root = Path(__file__).parents[1]
    sources = [
        *sorted((root / "parsers").rglob("*.py")),
        *sorted((root / "parsers").rglob("*.toml")),
        Path(__file__),
    ]
    return hashlib.sha256(b"".join(path.read_bytes() for path in sources)).hexdigest()[:16]


def recordings() -> list[Path]:
    """Return the folders of all recordings."""
    return sorted(folder for folder in RECORDINGS.glob("*/*/*") if folder.is_dir())


@cache
def recorded(folder: Path, pattern: str = LOGS) -> tuple[Event, ...]:
    """Return the events of a recording's files."""
    name = f"{'_'.join(folder.parts[-3:])}_{re.sub('[^a-z]', '', pattern)}.pickle"
    cached = Path(tempfile.gettempdir()) / f"kafka-audit-events-{_version()}" / name
    if not cached.exists():
        files = {
            str(path.relative_to(folder.parent)): path.read_text("utf-8", "replace")
            for path in sorted(folder.glob(pattern))
        }
        cached.parent.mkdir(parents=True, exist_ok=True)
        part = cached.with_suffix(".part")
        part.write_bytes(pickle.dumps([tuple(e) for e in events_of(files)]))
        part.replace(cached)
    return tuple(Event(*values) for values in pickle.loads(cached.read_bytes()))
