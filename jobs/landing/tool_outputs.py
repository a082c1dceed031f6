"""Read, store and compare outputs of Kafka's tools, from --checkpoint or among the logs.

As events they start a timeline where the logs show nothing (`jobs.timelines`). They are marked as not printed
by a log.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from datetime import datetime, timedelta
from hashlib import blake2b
from pathlib import Path
from typing import TYPE_CHECKING, Any

import schemas
from jobs import analysis
from jobs.errors import UsageError
from jobs.files import checkpoints
from jobs.files.checkpoints import NEAR, Checkpoint, Term
from jobs.progress import warn
from jobs.timelines.controllers import terms as controller_terms
from jobs.timelines.event import CHECKPOINT, EPOCH, moment_of
from jobs.timelines.incarnations import incarnation
from parsers.events import ID_BYTES
from parsers.explanation import counted, visible
from schemas.moments import moment

if TYPE_CHECKING:
    from jobs.engine.rows import Dicts, Frame
    from jobs.files.ingest import LogFile
    from jobs.timelines import ClusterFacts

MAX_BYTES = 256 * 1024 * 1024
# most characters of a line that are stored in `events.raw`
LONGEST_KEPT = 2_000
QUORUM = "quorum"
# most unreadable lines of a file that are reported, and most characters of each
NAMED_LINES, LONGEST_NAMED = 5, 200
# field of a Checkpoint -> column of `checkpoints`, where they differ
COLUMNS = {"adding": "adding_replicas", "removing": "removing_replicas"}


@dataclass(frozen=True)
class ToolOutput:
    """One output of a tool. is_given: with --checkpoint.

    lines: number -> text of the lines about a partition.
    """

    path: Path
    cluster: str
    at: datetime
    partitions: tuple[Checkpoint, ...]
    is_given: bool = False
    lines: Mapping[int, str] = field(default_factory=dict, repr=False)

    @property
    def topics(self) -> set[str]:
        """Return the topics that it names, without the metadata log, which every cluster has."""
        return {one.topic for one in self.partitions if one.source != QUORUM}

    @property
    def cluster_ids(self) -> set[str]:
        """Return the cluster ids that it names."""
        return {one.cluster_id for one in self.partitions if one.cluster_id}


def given(paths: Iterable[Path], at: datetime | None, clusters: Sequence[str]) -> list[ToolOutput]:
    """Read the files of --checkpoint.

    Raises UsageError where one is no output of a tool, or its moment or cluster is unknown.
    """
    found = []
    for path in paths:
        if len(clusters) != 1:
            raise UsageError(
                f"--checkpoint {path} is of one of {len(clusters)} clusters; put it among the logs of its cluster"
            )
        try:
            moment, partitions, lines = _read(path)
        except OSError as error:
            raise UsageError(f"--checkpoint {path}: {error.strerror}") from None
        except checkpoints.CheckpointError as error:
            raise UsageError(f"--checkpoint {path} {error}") from None
        moment = at or moment
        if not partitions:
            warn(f"--checkpoint {path} lists no partition; nothing is compared with it")
        if moment is None:
            raise UsageError(
                f"--checkpoint {path} has no time at which the tool was run; give it with --at TIME"
            )
        found.append(ToolOutput(path, clusters[0], moment, partitions, True, lines))
    return found


def among(files: Iterable["LogFile"]) -> list[ToolOutput]:
    """Read the outputs among the logs. Those without a time are reported and left out."""
    found, undated = [], []
    for file in files:
        if file.kind == "checkpoint":
            try:
                with file.open() as stream:
                    moment, partitions, lines = _parsed(
                        stream.read(MAX_BYTES + 1), file.name, file.place.name
                    )
            except (OSError, checkpoints.CheckpointError):
                continue  # the file has changed since it was examined
            if moment is not None:
                found.append(ToolOutput(Path(file.name), file.cluster, moment, partitions, False, lines))
            elif partitions:
                undated.append(file.name)
    if undated:
        warn(
            f"{counted(len(undated), 'output')} of tools without a time, {visible(undated[0])}{' for one' if len(undated) > 1 else ''}: not compared. "
            "Name the file by its time (describe-20260301T040000Z.txt), or give --checkpoint FILE --at TIME"
        )
    return found


def _read(path: Path) -> tuple[datetime | None, tuple[Checkpoint, ...], dict[int, str]]:
    with path.open("rb") as stream:
        return _parsed(stream.read(MAX_BYTES + 1), str(path), path.name)


def _parsed(
    content: bytes, path: str, name: str
) -> tuple[datetime | None, tuple[Checkpoint, ...], dict[int, str]]:
    if len(content) > MAX_BYTES:
        raise checkpoints.CheckpointError(
            f"is larger than {MAX_BYTES // 1024 // 1024} MB; a tool's output is not"
        )
    text = content.decode("utf-8", "replace")
    output, whole = checkpoints.read(text), text.splitlines()
    partitions = output.partitions
    for number, line in list(output.unread.items())[:NAMED_LINES]:
        warn(
            f"{visible(path)}, line {number}: it looks like a partition and cannot be read: {visible(line.strip())[:LONGEST_NAMED]}"
        )
    if len(output.unread) > NAMED_LINES:
        warn(
            f"{visible(path)}: {len(output.unread) - NAMED_LINES:,} more lines that look like a partition cannot be read"
        )
    if not partitions and not output.unread and (tool := checkpoints.tool_of(text)):
        warn(f"{visible(path)} is output of {tool}, and lists no partition")
    lines = {number: whole[number - 1][:LONGEST_KEPT] for number in {one.line for one in partitions}}
    return checkpoints.moment_of(text, name), partitions, lines


# -- as events -----------------------------------------------------------------------------------------------


def event_rows(output: ToolOutput) -> Iterator[dict[str, Any]]:
    """Return rows of `events`, with incarnation 1 like new records.

    The same output and moment give the same rows.
    """
    items: dict[int, int] = {}
    for one in output.partitions:
        if one.source == QUORUM:
            continue  # controller terms are derived from the logs alone
        item = items[one.line] = items.get(one.line, -1) + 1
        raw = output.lines[one.line]
        place = f"{output.cluster}\x01{one.source}\x01{output.at.isoformat()}\x01{one.line}\x01{raw}"
        yield {
            "record_id": blake2b(place.encode("utf-8", "replace"), digest_size=ID_BYTES).hexdigest(),
            "item": item,
            "cluster": output.cluster,
            "incarnation": 1,
            "file": str(output.path),
            "record_no": one.line,
            "ts": output.at,
            "logger": one.source,
            "layout": CHECKPOINT,
            "event_type": CHECKPOINT,
            "says": "is",
            "drifted": False,
            "topic": one.topic,
            "partition": one.partition,
            "leader": one.leader,
            "isr": _list(one.isr),
            "replicas": _list(one.replicas),
            "adding_replicas": _list(one.adding),
            "removing_replicas": _list(one.removing),
            "leader_epoch": one.leader_epoch,
            "partition_epoch": one.partition_epoch,
            "raw": None if item else raw,
        }


def _list(ids: Sequence[int] | None) -> list[int] | None:
    return None if ids is None else list(ids)


def land(store: Any, outputs: Sequence[ToolOutput]) -> list[ToolOutput]:
    """Append new outputs to `events`. Return the outputs of clusters whose logs know one of their topics.

    Raises UsageError, before anything is written, where a given output is of another cluster.
    """
    from jobs.engine.rows import at_or_after, at_or_before, computed, is_empty, lacking, one_of, where

    clusters = sorted({output.cluster for output in outputs})
    seen = store.looked_at("events")
    events = store.read("events", clusters)
    found = _of_known_topics(events, store.read("partition_states", clusters), outputs)
    rows = {(row["record_id"], row["item"]): row for output in found for row in event_rows(output)}
    if rows:
        columns = [name for name in schemas.columns("events") if name in next(iter(rows.values()))]
        new = store.table_of("events", rows.values()).select(columns)
        # reads only events of these moments, so that Delta skips other files
        moments = [row["ts"] for row in rows.values()]
        of_then = at_or_after("ts", min(moments)) & at_or_before("ts", max(moments))
        new = computed(
            lacking(new, where(events, of_then & one_of("event_type", [CHECKPOINT])), ["record_id"])
        )
        if not is_empty(new):
            store.append("events", new, seen)
    return found


# -- the table -----------------------------------------------------------------------------------------------


def write(store: Any, outputs: Sequence[ToolOutput], facts: Mapping[str, "ClusterFacts"]) -> None:
    """Add new outputs to `checkpoints` and compare all of them with the timelines again."""
    from jobs.engine.rows import (
        at_or_after,
        at_or_before,
        by_cluster,
        distinct,
        having,
        is_empty,
        is_null,
        lacking,
        map_groups,
        one_of,
        select,
        to_dicts,
        together,
    )
    from jobs.nightly.by_topic import KEY

    names, schema = sorted(facts), store.schema("checkpoints")
    rows = [row for output in outputs for row in _rows(output, facts[output.cluster])]
    taken = store.read("checkpoints", names)
    if rows:
        new = store.table_of("checkpoints", rows)
        taken = together(lacking(taken, new, ["cluster", "taken_at", "file"]), new)
    elif is_empty(taken):
        return
    moments_of: dict[str, list[datetime]] = {}
    for row in to_dicts(distinct(select(taken, "cluster", "taken_at"))):
        moments_of.setdefault(row["cluster"], []).append(row["taken_at"])
    near = by_cluster(
        {
            name: (is_null("valid_from") | at_or_before("valid_from", max(some) + NEAR))
            & (is_null("valid_to") | at_or_after("valid_to", min(some) - NEAR))
            for name, some in moments_of.items()
        }
    )
    of_logs = one_of("source", ("logs", "metadata_log"))
    timelines = having(
        store.read("partition_timeline", names, of_logs & near, [*KEY, *TIMELINE_COLUMNS]), taken, KEY
    )
    newest = {name: moment_of(one.evidence.newest) for name, one in facts.items()}

    terms = {name: quorum_terms(one) for name, one in facts.items()}

    def fold(key: tuple[Any, ...], checkpoint_rows: "Dicts", history: "Dicts") -> Iterable[dict[str, Any]]:
        if key[2] == checkpoints.METADATA_TOPIC:
            return _compared_quorum(checkpoint_rows, terms[key[0]].get(key[1], []), newest[key[0]])
        moments = {row["taken_at"] for row in checkpoint_rows}
        some = [{**row, "topic": key[2]} for row in history if any(_is_near(row, at) for at in moments)]
        return _compared(checkpoint_rows, some, newest[key[0]])

    store.replace("checkpoints", names, map_groups(taken, timelines, KEY, fold, schema))


def _is_near(row: Mapping[str, Any], at: datetime) -> bool:
    """Return whether an interval covers a moment, with the precision of a tool's moments."""
    begin, end = row["valid_from"], row["valid_to"]
    return (begin is None or begin <= at + NEAR) and (end is None or end >= at - NEAR)


TIMELINE_COLUMNS = ("partition", "valid_from", "valid_to", "state", *checkpoints.COMPARED, "record_id")


def _of_known_topics(events: "Frame", states: "Frame", outputs: Sequence[ToolOutput]) -> list[ToolOutput]:
    """Return the outputs of clusters that know their topics.

    Raises UsageError where a given one is of another cluster.
    states: partition_states, a small table with most topics. Only other topics are searched in all events.
    """
    from jobs.engine.rows import where
    from jobs.engine.run_tables import OF_LOGS

    known_topics = _known(states, "topic", {topic for output in outputs for topic in output.topics})
    strange = [
        output.topics for output in outputs if not output.topics & known_topics.get(output.cluster, set())
    ]
    for name, topics in _known(where(events, OF_LOGS), "topic", set().union(*strange)).items():
        known_topics.setdefault(name, set()).update(topics)
    known_ids = _known(events, "cluster_id", None) if any(output.cluster_ids for output in outputs) else {}
    found = []
    for output in outputs:
        ids = known_ids.get(output.cluster, set())
        if output.topics:
            is_known = bool(output.topics & known_topics.get(output.cluster, set()))
            named = output.topics
            what = "a topic"
        else:
            is_known = not (ids and output.cluster_ids) or bool(ids & output.cluster_ids)
            named = output.cluster_ids
            what = "the cluster id"
        if is_known and output.partitions:
            found.append(output)
        elif named:
            message = f"No log knows {what} of {output.path} ({', '.join(map(visible, sorted(named)[:3]))}); is it of another cluster?"
            if output.is_given:
                raise UsageError(message)
            warn(f"{message} It is skipped")
    return found


def _known(events: "Frame", column: str, values: set[str] | None) -> dict[str, set[str]]:
    """Return cluster -> values of a column of its events. values: only these; None: all."""
    from jobs.engine.rows import distinct, is_known, one_of, select, to_dicts, where

    if values is not None and not values:
        return {}
    rows = where(events, is_known(column) if values is None else one_of(column, values))
    found: dict[str, set[str]] = {}
    for row in to_dicts(distinct(select(rows, "cluster", column))):
        found.setdefault(row["cluster"], set()).add(row[column])
    return found


def _rows(output: ToolOutput, facts: "ClusterFacts") -> Iterable[dict[str, Any]]:
    number = incarnation(
        facts.of_name, str(output.path), None, (output.at - EPOCH) // timedelta(microseconds=1)
    )
    of = {"cluster": output.cluster, "incarnation": number, "taken_at": output.at, "file": str(output.path)}
    for one in output.partitions:
        values = {COLUMNS.get(name, name): value for name, value in asdict(one).items()}
        yield {**of, **values, "differs": [], "logged": None, "record_id": None}


def _compared(rows: "Dicts", history: "Dicts", newest: datetime) -> Iterable[dict[str, Any]]:
    """Return rows of `checkpoints` of a topic, compared with its timelines.

    newest: last time stamp of the logs.
    """
    for row in rows:
        is_covered = row["taken_at"] <= newest + NEAR
        (found,) = (is_covered and checkpoints.compare([_checkpoint(row)], history, row["taken_at"])) or (
            None,
        )
        interval = found.row if found else None
        logged = (
            ", ".join(f"{name} {analysis.cell(interval[name])}" for name in found.columns)
            if found and interval
            else None
        )
        differs = list(found.columns or ("partition",)) if found else []
        yield {
            **row,
            "differs": differs,
            "logged": logged,
            "record_id": interval["record_id"] if interval else None,
        }


def quorum_terms(facts: "ClusterFacts") -> dict[int, list[Term]]:
    """Return incarnation -> the terms of its KRaft controllers, whose epochs are those of the quorum."""
    found: dict[int, list[Term]] = {}
    for number, epoch, node, ts, record_id in controller_terms(facts):
        if not facts[number].is_kraft_at(ts):
            continue
        begun = None if ts is None else moment_of(ts)
        found.setdefault(number, []).append(Term(epoch, node, begun, record_id))
    return found


def _compared_quorum(rows: "Dicts", terms: Sequence[Term], newest: datetime) -> Iterable[dict[str, Any]]:
    """Return rows of `checkpoints` about the quorum, compared with the terms of the controllers."""
    for row in rows:
        is_covered = row["taken_at"] <= newest + NEAR
        found = checkpoints.compare_quorum(_checkpoint(row), terms, row["taken_at"]) if is_covered else None
        columns, term = found or ((), None)
        logged = term and f"leader {term.node} in epoch {term.epoch}" + (
            f" since {moment(term.begun)}" if term.begun else ""
        )
        yield {**row, "differs": list(columns), "logged": logged, "record_id": term and term.record_id}


def _checkpoint(row: Mapping[str, Any]) -> Checkpoint:
    values = {field.name: row[COLUMNS.get(field.name, field.name)] for field in fields(Checkpoint)}
    lists: dict[str, Any] = {
        name: tuple(value) if isinstance(value, list) else value for name, value in values.items()
    }
    return Checkpoint(**lists)
