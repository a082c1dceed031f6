"""Fold new events of one partition.

They are of ZooKeeper controllers, then of KRaft controllers, or from a metadata log.
"""

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from jobs.timelines import kraft, metadata_log, state, zookeeper
from jobs.timelines.cluster_evidence import PARTITION_RECORDS
from jobs.timelines.discontinuities import Break, Lines
from jobs.timelines.event import CHECKPOINT, Event, PartitionKey
from jobs.timelines.facts import ClusterFacts, IncarnationFacts
from jobs.timelines.timeline_rows import Final, PartitionRows, ReplicaRow, Row

# raise it when the rows of the fold or the form of its state change: then every timeline is rebuilt once.
# tests/timelines/test_semantics_version.py fails when a golden case changes and this does not. 1 replaces the
# hashes of source text before it
SEMANTICS_VERSION = 5
LOGS, METADATA_LOG = "logs", "metadata_log"


@dataclass
class Folded:
    """The result of `fold`: the rows that were not final before. Times are microseconds.

    is_stale: the state cannot take these events: all events of the partition have to be folded again, and no
    other field counts.
    state: the state for the next fold, as JSON. partitions: columns of `partition_timeline` from step on.
    replicas: of `replica_timeline` from replica on. reassignments: of `reassignments` from started_at on. The
    last value of each row is `settled`: whether the row is final.
    breaks: all breaks in the logged states, for `discontinuities`.
    """

    is_stale: bool = False
    state: str = ""
    partitions: list[tuple[Any, ...]] = field(default_factory=list)
    replicas: list[tuple[Any, ...]] = field(default_factory=list)
    reassignments: list[tuple[Any, ...]] = field(default_factory=list)
    breaks: list[Break] = field(default_factory=list)


@dataclass
class StoredState:
    """The state of a partition between folds.

    by_zookeeper, of_text, of_log: the history of each mode that has rows of the partition; text logs are
    those of KRaft. newest: time of the last event. checkpoints: source and row of each checkpoint that shows
    something new. checked: time of the last checkpoint.
    """

    newest: int = -1
    by_zookeeper: zookeeper.ZooKeeperHistory | None = None
    of_text: kraft.KRaftHistory | None = None
    of_log: metadata_log.MetadataLogHistory | None = None
    lines: Lines = field(default_factory=Lines)
    checkpoints: list[tuple[str, Row]] = field(default_factory=list)
    checked: int = -1

    @property
    def is_stale(self) -> bool:
        """Return whether one of the modes has to be rebuilt."""
        return any(one.is_stale for one in (self.by_zookeeper, self.of_text, self.of_log) if one)

    def final_rows(self) -> tuple[Final, int | None]:
        """Return what is final, and up to when reassignments are final (microseconds)."""
        of_kraft = self.of_text or self.of_log
        if of_kraft and of_kraft.final.last is not None and not of_kraft.final.is_foreign:
            return of_kraft.final, of_kraft.final.last.ts
        if of_kraft:
            return of_kraft.final, self.by_zookeeper.newest if self.by_zookeeper else None
        return (self.by_zookeeper.final, self.by_zookeeper.since_ts) if self.by_zookeeper else (Final(), None)

    def to_json(self) -> str:
        """Return the state as JSON, for `read`."""
        return state.dump(
            [
                SEMANTICS_VERSION,
                self.newest,
                self.by_zookeeper and state.of_zookeeper(self.by_zookeeper),
                self.of_text and state.of_kraft(self.of_text),
                self.of_log and state.of_metadata_log(self.of_log),
                state.of_lines(self.lines),
                self.checkpoints,
                self.checked,
            ]
        )


def read(text: str | None) -> StoredState | None:
    """Return the state from the output of `StoredState.to_json`: empty for None.

    None for another version.
    """
    if not text:
        return StoredState()
    version, *values = json.loads(text)
    if version != SEMANTICS_VERSION:
        return None
    newest, of_zookeeper, of_text, of_log, lines, checkpoints, checked = values
    return StoredState(
        newest,
        of_zookeeper and state.zookeeper_of(of_zookeeper),
        of_text and state.kraft_of(of_text),
        of_log and state.metadata_log_of(of_log),
        state.lines_of(lines),
        [(source, Row(*row)) for source, row in checkpoints],
        checked,
    )


def fold(key: PartitionKey, stored: str | None, events: Iterable[Event], facts: ClusterFacts) -> Folded:
    """Fold new events of a partition.

    stored: the state of the last fold; None: there is none. events: those with this `key_of`, in any order,
    each once.
    """
    of_all, before = facts[key.incarnation], read(stored)
    if before is None:
        return Folded(is_stale=True)
    events = list(events)
    records = [e for e in events if e.event_type in PARTITION_RECORDS]
    lines = [e for e in events if e.event_type not in PARTITION_RECORDS and e.event_type != CHECKPOINT]
    checkpoints = [e for e in events if e.event_type == CHECKPOINT and facts.hears_of(e)]
    if not add_checkpoints(before, sorted(checkpoints, key=lambda e: (e.ts, e.record_id)), of_all):
        return Folded(is_stale=True)
    of_zookeeper_time, of_kraft_time = rows_of_checkpoints(before, key.topic, of_all)
    if any((e.ts or 0) <= before.newest for e in lines) or (records and before.of_text):
        return Folded(is_stale=True)
    _find_breaks(before, key.topic, lines, of_all)
    of_zookeeper = [e for e in lines if not of_all.is_of_kraft(e)]
    parts: list[tuple[str, PartitionRows]] = []
    if before.of_text or before.of_log:
        _check_closed(before, key.topic, of_zookeeper, of_all)
    elif of_zookeeper or before.by_zookeeper or of_zookeeper_time:
        before.by_zookeeper = before.by_zookeeper or zookeeper.ZooKeeperHistory()
        before.by_zookeeper.final.before = of_zookeeper_time
        parts.append((LOGS, zookeeper.fold(before.by_zookeeper, key.topic, of_zookeeper, of_all)))
    if records or before.of_log:
        before.of_log = before.of_log or metadata_log.MetadataLogHistory(final=_after(parts))
        parts.append((METADATA_LOG, metadata_log.fold(before.of_log, key.topic, records, of_all)))
    elif before.of_text or len(of_zookeeper) < len(lines) or of_kraft_time:
        of_kraft = [e for e in lines if of_all.is_of_kraft(e)]
        before.of_text = before.of_text or kraft.KRaftHistory(
            final=_after(parts), taken_over=_taken_over(before.by_zookeeper)
        )
        before.of_text.final.before = of_kraft_time
        parts.append((LOGS, kraft.fold(before.of_text, key.topic, of_kraft, of_all)))
    before.newest = max([before.newest, *(e.ts or 0 for e in lines)])
    if before.is_stale:
        return Folded(is_stale=True)
    return _folded(before, parts)


def add_checkpoints(stored: StoredState, checkpoints: Sequence[Event], facts: IncarnationFacts) -> bool:
    """Add checkpoints, in order.

    Return False if the partition has to be rebuilt: a checkpoint may be before final rows.
    """
    final, _ = stored.final_rows()
    last, checked = final.last, stored.checked
    for e in checkpoints:
        assert e.ts is not None
        if last is not None and (last.ts or 0) <= e.ts:
            continue  # the logs show this time
        is_over = not facts.is_of_kraft(e) and (stored.of_text or stored.of_log)
        if last is not None or e.ts <= checked or is_over:
            return False
        stored.checked = e.ts
        state = None if e.leader is None else "OfflinePartition" if e.leader == -1 else "OnlinePartition"
        assigned = e.replicas, e.adding_replicas, e.removing_replicas
        row = Row(
            0,
            e.ts,
            e.leader,
            e.leader_epoch,
            e.isr,
            e.partition_epoch,
            *assigned,
            state,
            None,
            False,
            e.record_id,
        )
        if not stored.checkpoints or stored.checkpoints[-1][1].values() != row.values():
            stored.checkpoints.append((e.logger or "", row))
    return True


def rows_of_checkpoints(
    stored: StoredState, topic: str, facts: IncarnationFacts
) -> tuple[list[Row], list[Row]]:
    """Return the rows of checkpoints in the time of ZooKeeper controllers, and of KRaft controllers.

    Checkpoints after the removal of the topic do not count; rows of earlier ones end with it. With a metadata
    log no checkpoint counts.
    """
    removed = (
        facts.kraft.removed[which]
        for which in facts.kraft.topic_ids.get(topic, ())
        if which in facts.kraft.removed
    )
    deleted = ((e.ts, e.record_id) for e in facts.deletions.get(topic, ()))
    removal = min(((ts, record_id) for ts, record_id in (*removed, *deleted) if ts is not None), default=None)
    rows = [row for _, row in stored.checkpoints if removal is None or (row.ts or 0) < removal[0]]
    if rows and removal:
        nothing = (None,) * 7
        rows.append(Row(0, removal[0], *nothing, "NonExistentPartition", None, True, removal[1]))
    return [row for row in rows if not facts.is_kraft_at(row.ts)], [
        row for row in rows if facts.is_kraft_at(row.ts)
    ]


def _find_breaks(before: StoredState, topic: str, lines: Sequence[Event], facts: IncarnationFacts) -> None:
    """Find breaks in the states that lines print."""
    own = [e for e in lines if e.to_state is not None or e.from_state is not None]
    if own or before.lines.last:
        deletions = (e for e in facts.deletions.get(topic, ()) if (e.ts or 0) > before.newest)
        before.lines.add(sorted([*own, *deletions], key=facts.sort_key))


def _check_closed(
    before: StoredState, topic: str, of_zookeeper: Sequence[Event], facts: IncarnationFacts
) -> None:
    """Mark the state stale if events are of ZooKeeper's time although KRaft controllers run the cluster."""
    if of_zookeeper and not before.by_zookeeper:
        before.by_zookeeper = zookeeper.ZooKeeperHistory(is_stale=True)
    elif before.by_zookeeper and zookeeper.in_order_of_events(
        before.by_zookeeper, topic, of_zookeeper, facts
    ):
        before.by_zookeeper.is_stale = True


def _taken_over(by_zookeeper: zookeeper.ZooKeeperHistory | None) -> int:
    """Return the partition epoch that KRaft controllers continued from (KIP-866).

    0: unknown, or the topic was removed.
    """
    generation = by_zookeeper.generation if by_zookeeper else zookeeper.ZooKeeperGeneration()
    return 0 if generation.is_deleted else max(generation.versions, default=0)


def _after(parts: Sequence[tuple[str, PartitionRows]]) -> Final:
    """Return the final rows before those of KRaft's time: those of ZooKeeper's time, if there are any."""
    final = Final()
    for _, rows in parts:
        if rows.partitions:
            step, last, _ = rows.partitions[-1]
            final.last = last._replace(pos=0)
            final.steps, final.is_foreign = step - 1, True
            final.isr = rows.partitions[-2][1].isr if len(rows.partitions) > 1 else None
        final.standing = {row.replica: (row.step, row.begun) for row in rows.replicas}
    return final


def _folded(stored: StoredState, parts: Sequence[tuple[str, PartitionRows]]) -> Folded:
    """Return the rows of all modes, one after the other.

    A later mode repeats the last row of the one before.
    """
    partitions: dict[int, tuple[Any, ...]] = {}
    replicas: dict[tuple[int, int], ReplicaRow] = {}
    final, since = stored.final_rows()
    sources = {row.record_id: name for name, row in stored.checkpoints}
    result = Folded(state=stored.to_json(), breaks=stored.lines.breaks)
    for source, rows in parts:
        for step, row, until in rows.partitions:
            of = partitions[step][-2] if step in partitions else sources.get(row.record_id, source)
            partitions[step] = step, row.ts, until, *row[2:], of, step <= final.steps
        replicas |= {(row.replica, row.step): row for row in rows.replicas}
        result.reassignments += [(*one[1:], _is_up_to(one.started_at, since)) for one in rows.reassignments]
    result.partitions = list(partitions.values())
    for one in replicas.values():
        is_final = one.replica in final.standing and one.step < final.standing[one.replica][0]
        begun = one.begun
        result.replicas.append(
            (
                one.replica,
                one.step,
                begun.ts,
                one.until,
                begun.state,
                one.in_isr,
                begun.inferred,
                begun.record_id,
                is_final,
            )
        )
    return result


def _is_up_to(ts: int | None, since: int | None) -> bool:
    return ts is not None and since is not None and ts <= since
