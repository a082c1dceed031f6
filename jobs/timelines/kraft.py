"""Fold the events of one partition of a KRaft cluster, from text logs.

`add_event` keeps one version for each epoch and the changes of the assignment in order, by topic id.
`build_rows` finds the changes that each version includes (`kraft_assignments`) and builds rows. Source:
PartitionRegistration, ReplicationControlManager, kafka.server.ReplicaManager, 3.3 to 4.2.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from zlib import crc32

from jobs.timelines.event import Event, Ids, with_next, without
from jobs.timelines.facts import IncarnationFacts
from jobs.timelines.generation_evidence import STARTED, Start
from jobs.timelines.kraft_assignments import Change, EpochVersion, assign, lay_along, place
from jobs.timelines.kraft_facts import FENCED, LEAVING, NEAR, ONLINE, UNREGISTERED, KRaftFacts, Standing
from jobs.timelines.timeline_rows import (
    Assigned,
    Final,
    PartitionRows,
    Reassignment,
    Row,
    is_target,
    less_repeated,
    phase,
    reassignment,
)
from parsers.meanings import event_types

REMOVED = "KRaftRemoved"
STATES = (ONLINE, FENCED, LEAVING, UNREGISTERED, REMOVED)
# lines of controllers about partitions; a starting controller prints them again
CONTROLLER_LINES = event_types("changes_kraft_partition")
# lines that print only what differs from the epoch before
DIFFERENCES = event_types("prints_difference")
# lines of brokers, without a partition epoch up to 3.2
BROKER_LINES = event_types("by_replica")
# above this number of known versions the older ones become final, but never those younger than FINAL_AFTER
# (microseconds)
KEPT, FINAL_AFTER = 12, 60_000_000


@dataclass
class KRaftGeneration:
    """The lines about a partition under one topic id, since its creation or its last final version.

    next_change: node -> number of the change that it prints next. base: epoch of the first whole version.
    past: digests of the changes up to then. gaps: epochs before base that are not whole. is_final: the rows
    up to base are final.
    """

    versions: dict[int, EpochVersion] = field(default_factory=dict)
    loose: list[EpochVersion] = field(default_factory=list)
    changes: list[Change] = field(default_factory=list)
    next_change: dict[int | None, int] = field(default_factory=dict)
    base: int = 0
    past: list[int] = field(default_factory=list)
    gaps: set[int] = field(default_factory=set)
    is_final: bool = False


@dataclass
class KRaftHistory:
    """The state of the fold.

    newest: time of the last event. count: number of events. generations: by topic id. closed: topic id ->
    epochs that are not whole, for final generations. ids: the known topic ids. named: node (None: any broker)
    -> the topic id that it named last. shared: digest of the facts about its topic and brokers up to
    `newest`. taken_over: ZooKeeper's last partition epoch when KRaft controllers took over.
    started: broker -> the topic id under which it last began to lead or to follow. over: topic ids that
    brokers showed to be replaced.
    is_unsure: whether lines were left out because they may be about any of the ids, or were assigned to an id
    that is named later.
    """

    newest: int = -1
    count: int = 0
    generations: dict[str, KRaftGeneration] = field(default_factory=dict)
    closed: dict[str, set[int]] = field(default_factory=dict)
    ids: list[str] = field(default_factory=list)
    named: dict[int | None, str] = field(default_factory=dict)
    final: Final = field(default_factory=Final)
    shared: int = 0
    taken_over: int = 0
    started: dict[int | None, tuple[str, Start]] = field(default_factory=dict)
    over: set[str] = field(default_factory=set)
    is_unsure: bool = False
    is_stale: bool = False

    def has_lines_before(self, topic_id: str, ts: int) -> bool:
        """Return whether lines were assigned to a topic id before its creation."""
        generation = self.generations.get(topic_id, KRaftGeneration())
        return any((v.ts or 0) < ts - NEAR for v in (*generation.versions.values(), *generation.loose))

    def is_taken_over(self, topic_id: str, facts: IncarnationFacts) -> bool:
        """Return whether the generation of a topic id continues ZooKeeper's partition epochs."""
        return self.ids[:1] == [topic_id] and facts.kraft.named_since[topic_id] < (facts.kraft_since or 0)


def fold(
    history: KRaftHistory, topic: str, events: Iterable[Event], facts: IncarnationFacts
) -> PartitionRows:
    """Continue a history in place and return its rows.

    events: of this partition. If it `is_stale` then, it has to be rebuilt.
    """
    newest, ids = history.newest, list(facts.kraft.topic_ids.get(topic, ()))
    # lines without a topic id may be about another one than was known before
    history.is_stale |= ids[: len(history.ids)] != history.ids or (
        bool(ids) and "" in {*history.generations, *history.closed}
    )
    history.is_stale |= history.count > 0 and any(
        facts.kraft.is_read_at(facts.kraft.named_since[new]) for new in ids[len(history.ids) :]
    )
    history.is_stale |= history.is_unsure and len(ids) > len(history.ids)
    history.ids = ids
    history.is_stale |= history.count > 0 and history.shared != shared_by(
        history.final, newest, topic, facts.kraft
    )
    in_order = sorted(events, key=facts.sort_key)
    created = _created(in_order, facts.kraft)
    history.is_stale |= any(history.has_lines_before(which, ts) for which, ts in created.items())
    for e in in_order:
        history.is_stale |= (e.ts or 0) <= newest
        history.newest, history.count = max(history.newest, e.ts or 0), history.count + 1
        if e.event_type == "partition_registered" and e.topic_id in created:
            # any older topic of that name was removed
            history.named = {None: e.topic_id}
        which = _topic_id(history, topic, e, facts.kraft, created)
        history.is_unsure |= which is None or facts.kraft.named_since.get(which, -1) > (e.ts or 0)
        is_past = e.partition_epoch is not None and e.partition_epoch < history.taken_over
        is_taken_back = e.event_type in CONTROLLER_LINES and facts.kraft.is_deposed(e)
        if which is None or is_taken_back or (is_past and history.is_taken_over(which, facts)):
            continue
        if which in history.closed:
            # a starting controller reads it again
            history.is_stale |= (
                e.event_type not in CONTROLLER_LINES or e.partition_epoch in history.closed[which]
            )
        elif e.is_present and (
            e.partition_epoch is not None or e.event_type in ("assignment_changed", *BROKER_LINES)
        ):
            add_event(history, history.generations.setdefault(which, KRaftGeneration()), e, facts.kraft)
    rows = build_rows(history, topic, facts)
    history.shared = shared_by(history.final, history.newest, topic, facts.kraft)
    return rows


def shared_by(final: Final, newest: int, topic: str, facts: KRaftFacts) -> int:
    """Return a digest of the facts that final rows depend on."""
    every = facts.topic_ids.get(topic, ())
    ids = [which for which in every if facts.removed_at(which) <= newest]
    named = [facts.named_since[which] for which in every if facts.named_since[which] <= newest]
    until = -1 if final.last is None or final.is_foreign else final.last.ts or 0
    of_brokers = [
        s.record_id
        for broker in sorted(final.standing)
        for s in facts.brokers.get(broker, ())
        if (s.ts or 0) < until
    ]
    return crc32(repr((ids, named, of_brokers)).encode())


def _created(events: Iterable[Event], facts: KRaftFacts) -> dict[str, int]:
    """Return topic id -> creation of the partition.

    Ids that were named long before are left out: they are read again, or migrated.
    """
    found: dict[str, int] = {}
    for e in events:
        if (
            e.event_type == "partition_registered"
            and e.partition_epoch == 0
            and e.topic_id
            and not facts.is_replayed(e)
        ):
            found.setdefault(e.topic_id, e.ts or 0)
    return {which: ts for which, ts in found.items() if facts.named_since.get(which, ts) > ts - NEAR}


def _topic_id(
    history: KRaftHistory, topic: str, e: Event, facts: KRaftFacts, created: Mapping[str, int]
) -> str | None:
    """Return the topic id of an event; None: unknown. created: topic id -> its creation."""
    ids = facts.topic_ids.get(topic) or [""]
    start = Start.by(e) if e.event_type in STARTED else None
    under, before = history.started.get(e.node, ("", None))
    if (
        start
        and before
        and not e.topic_id
        and start.leader_epoch < before.leader_epoch
        and start.is_later_than(before)
    ):
        # the leader epochs of one topic only grow
        history.over.add(under)
    which = _named(history, ids, e, facts, created)
    if start and which is not None and (before is None or under != which or start.is_later_than(before)):
        history.started[e.node] = which, start
    return which


def _named(
    history: KRaftHistory, ids: Sequence[str], e: Event, facts: KRaftFacts, created: Mapping[str, int]
) -> str | None:
    """Return the topic id that a line names or belongs to.

    Follower lines and ISR updates name none: theirs is the id that their broker named last, else any broker,
    else the newest named and not removed id, or the next named one. Controllers, and brokers that find their
    folders, may name old ids. The id is unknown if the topic is created later, or if several ids are named
    later and no line shows that the first was removed.
    """
    ts = e.ts or 0
    if e.topic_id:
        if e.event_type not in CONTROLLER_LINES and facts.removed_at(e.topic_id) >= ts:
            history.named[e.node] = history.named[None] = e.topic_id
        return e.topic_id
    possible = [which for which in ids if which not in history.over and created.get(which, 0) <= ts + NEAR]
    if len(ids) == 1:
        return possible[0] if possible else None
    for named in (history.named.get(e.node), history.named.get(None)):
        if named in possible and facts.removed_at(named) + NEAR >= ts:
            return named
    since = {which: facts.named_since[which] for which in possible if facts.removed_at(which) >= ts}
    if not since and ids[-1] in possible:
        return ids[-1]
    if not since:
        return None
    known = [which for which, at in since.items() if at <= ts]
    following = min(since, key=since.__getitem__)
    if not known and len(since) > 1 and not facts.is_seen_removed(following):
        return None
    return known[-1] if known else following


# ---------------------------------------------------------------------------------------- what lines say


def add_event(history: KRaftHistory, generation: KRaftGeneration, e: Event, facts: KRaftFacts) -> None:
    """Add what an event says."""
    lists = e.isr, e.replicas, e.adding_replicas, e.removing_replicas
    if e.event_type == "assignment_changed" and e.partition_epoch is None:
        change = Change(history.count, e.ts, e.record_id, e.leader, *lists)
        history.is_stale |= not _add_change(generation, change, e.node, is_live=not facts.is_replayed(e))
        return
    leader = e.node if e.leader is None and e.event_type == "leader_started" else e.leader
    is_difference, altered_by = e.event_type in DIFFERENCES, e.node if e.event_type == "isr_updated" else None
    values = leader, e.leader_epoch, *lists, is_difference
    version = EpochVersion(
        history.count, e.ts, e.record_id, e.partition_epoch, *values, altered_by=altered_by
    )
    version.is_read = e.event_type in CONTROLLER_LINES and facts.is_replayed(e)
    if e.partition_epoch is None:
        generation.loose.append(version)
    elif e.partition_epoch < generation.base:
        history.is_stale |= e.partition_epoch in generation.gaps
    elif e.partition_epoch not in generation.versions:
        generation.versions[e.partition_epoch] = version
    else:
        generation.versions[e.partition_epoch].learn(version)
        generation.versions[e.partition_epoch].is_difference |= version.is_difference
        generation.versions[e.partition_epoch].learn(version, ("altered_by",))
        generation.versions[e.partition_epoch].is_read &= version.is_read
    if e.event_type == "partition_registered":
        # the node prints next what was changed since
        lists_of_node = e.replicas, e.adding_replicas, e.removing_replicas
        applied = (
            [n for n, c in enumerate(generation.changes, 1) if c[5:8] == lists_of_node]
            if (e.partition_epoch or 0) > generation.base
            else []
        )
        generation.next_change[e.node] = len(generation.past) + applied[0] if applied else 0


def _add_change(generation: KRaftGeneration, change: Change, node: int | None, *, is_live: bool) -> bool:
    """Add a change of the assignment. Return False if it may be older than final changes.

    All controllers print the same changes in the same order. A change that is none of those that its node has
    yet to print is new: printed live, it is the newest change; read from the log, it is one that no other
    node has printed.
    """
    start, final = generation.next_change.get(node, 0), len(generation.past)
    number = _number_of(generation, change, start, is_live=is_live)
    if number is None:
        number = final + len(generation.changes) if is_live else start
        generation.changes.insert(max(number - final, 0), change)
        generation.next_change = {other: m + (m > number) for other, m in generation.next_change.items()}
        if not is_live and generation.is_final and number <= final:
            return False
    generation.next_change[node] = number + 1
    return True


def _number_of(generation: KRaftGeneration, change: Change, start: int, *, is_live: bool) -> int | None:
    """Return the number of the known change that a node prints; None: it is a new one.

    start: number of those that it has printed.
    """
    final, digest = len(generation.past), crc32(repr(change.content).encode())
    for number in range(start, final):
        if generation.past[number] == digest and not is_live:
            return number
    for number, known in enumerate(generation.changes[max(start - final, 0) :], max(start, final)):
        is_near = abs((known.ts or 0) - (change.ts or 0)) < NEAR
        if known.content == change.content and (is_near or not is_live):
            return number
    return None


# ---------------------------------------------------------------------------------------- the rows


def build_rows(history: KRaftHistory, topic: str, facts: IncarnationFacts) -> PartitionRows:
    """Return the rows of all generations that are not final, the oldest first."""
    generations: list[list[Row]] = []
    order = list(facts.kraft.topic_ids.get(topic, ()))
    by_age = sorted(
        history.generations.items(), key=lambda one: order.index(one[0]) if one[0] in order else -1
    )
    versions: list[EpochVersion] = []
    for which, generation in by_age:
        removed = facts.kraft.removed.get(which)
        versions = merged_versions(generation, facts.kraft)
        builder = RowBuilder.after(history.final.last if generation.is_final else None)
        rows = [
            builder.row(v, removed and removed[0])
            for v in versions
            if not (generation.is_final and v.epoch == generation.base)
        ]
        if versions and removed:
            rows.append(builder.end(versions[-1].pos + 1, *removed))
        # lines about an old topic after a new one has its name are about the time before
        begun = rows[0].ts if rows else None
        generations = [
            [row._replace(ts=min(row.ts, begun)) if begun and row.ts else row for row in one]
            for one in generations
        ] + [rows]
    result = rows_of(history.final, generations, facts)
    if by_age and sum(len(generation.versions) for _, generation in by_age) > KEPT:
        _finalise(history, by_age[-1][0], versions, result, facts.kraft)
    return result


def merged_versions(generation: KRaftGeneration, facts: KRaftFacts) -> list[EpochVersion]:
    """Return all known versions of a generation, in order."""
    known = {epoch: generation.versions[epoch].copy() for epoch in sorted(generation.versions)}
    for (before, u), (epoch, v) in pairwise(known.items()):
        if v.is_difference and epoch == before + 1:
            v.learn(u)
        if v.altered_by is not None and v.altered_by == u.leader and epoch == before + 1:
            v.learn(u, ("leader", "leader_epoch"))
    changes, applied = lay_along(list(known.values()), generation.changes, generation.base)
    numbers: dict[int | None, set[int]] = dict(zip(known, applied, strict=True))
    left = place(known, changes, numbers)  # type: ignore[arg-type]
    ordered = [known[epoch] for epoch in sorted(known)]
    # a version began no later than the first line about it or about a later version
    for later, version in pairwise(reversed(ordered)):
        version.begin_by(later.pos, later.ts)
    for u, v in pairwise(ordered):
        if (
            u.epoch is not None
            and v.epoch == u.epoch + 1
            and (fenced := _leader_fenced(u, v, facts)) is not None
        ):
            v.ts = fenced
    for u, v in pairwise(ordered):
        if v.isr is None and v.leader == -1 and u.epoch is not None and v.epoch == u.epoch + 1:
            v.isr = _isr_of_leaderless(u.isr, v.ts, facts)
    assign(ordered, changes, numbers, facts)
    for v in ordered:
        v.applied = (
            sum(c.is_printed for c in changes[1 : max(numbers[v.epoch]) + 1])
            if len(numbers[v.epoch]) == 1
            else None
        )
    for n in left:
        _insert_unplaced(ordered, changes[n], n, numbers)
    for v in generation.loose:
        _insert_loose(ordered, v)
    return ordered


def _leader_fenced(u: EpochVersion, v: EpochVersion, facts: KRaftFacts) -> int | None:
    """Return when the leader of a version was fenced, which began the next version.

    None: it was not fenced. The controller writes both in one batch
    (ReplicationControlManager.handleBrokerFenced). Brokers with a replica print the next version when they
    apply it: brokers that are down, only when they are back.
    """
    if u.leader is None or v.leader is None or u.leader == v.leader:
        return None
    written = (until for since, until in facts.fencings.get(u.leader, ()) if (u.ts or 0) < since)
    return min((ts for ts in written if ts < (v.ts or 0)), default=None)


def _isr_of_leaderless(before: Ids | None, ts: int | None, facts: KRaftFacts) -> Ids | None:
    """Return the ISR of a leaderless partition: its last member, or with KIP-966 nobody.

    Source: PartitionChangeBuilder.electLeader.
    """
    if before is None or len(before) > 1:
        return None
    return (
        before
        if facts.without_elr
        else []
        if facts.elr_since is not None and facts.elr_since <= (ts or 0)
        else None
    )


def _insert_unplaced(
    ordered: list[EpochVersion], change: Change, number: int, applied: Mapping[int | None, set[int]]
) -> None:
    """Insert a change of the assignment without a known epoch, by its time and its number."""
    at = sum(
        v.epoch is None
        or max(applied[v.epoch]) < number
        or (min(applied[v.epoch]) < number and v.pos < change.pos)
        for v in ordered
    )
    one = EpochVersion(*change[:3], None, None, None, None, *change[5:8], inferred=True)
    if at < len(ordered):
        one.begin_by(ordered[at].pos, ordered[at].ts)
    if at:
        one.learn(ordered[at - 1], ("leader", "leader_epoch", "isr"))
    ordered.insert(at, one)


def _insert_loose(ordered: list[EpochVersion], v: EpochVersion) -> None:
    """Insert the version of a line without an epoch, unless another explains it or it is outdated."""
    at = sum(one.pos < v.pos for one in ordered)
    newest = max((one.leader_epoch or 0 for one in ordered[:at]), default=0)
    is_known = any(one.leader == v.leader and one.leader_epoch == v.leader_epoch for one in ordered)
    if (v.leader_epoch or 0) >= newest and not is_known:
        ordered.insert(at, v)


@dataclass
class RowBuilder:
    """Build rows of versions, one after the other.

    latest: time of the last row. assignment: AR and RR in any order.
    """

    latest: int | None = None
    state: str | None = None
    leader_epoch: int | None = None
    assignment: tuple[object, ...] | None = None
    epoch_at_start: int | None = None

    @classmethod
    def after(cls, row: Row | None) -> "RowBuilder":
        """Return a builder that continues after a row."""
        return cls() if row is None else cls(row.ts, row.state, row.leader_epoch, row.assignment())

    def row(self, v: EpochVersion, until: int | None = None) -> Row:
        """Return the row of a version.

        until: when the topic was removed; later lines are about the time before.
        """
        if v.leader is not None:
            self.state = "OfflinePartition" if v.leader == -1 else "OnlinePartition"
        row = Row(
            v.pos,
            None,
            v.leader,
            v.leader_epoch,
            v.isr,
            v.epoch,
            v.replicas,
            v.adding,
            v.removing,
            self.state,
            None,
            v.inferred,
            v.record_id,
        )
        if v.adding is not None and row.assignment() != self.assignment:
            self.assignment, self.epoch_at_start = row.assignment(), self.leader_epoch
        self.leader_epoch = v.leader_epoch
        # the clocks of nodes differ: no row begins before the one before it
        self.latest = max((one for one in (self.latest, v.ts) if one is not None), default=None)
        ts = self.latest if until is None or self.latest is None else min(self.latest, until)
        is_raised = v.leader_epoch is not None and (
            self.epoch_at_start is None or v.leader_epoch > self.epoch_at_start
        )
        return row._replace(ts=ts, phase=phase(v.adding, v.removing, is_raised=is_raised))

    def end(self, pos: int, ts: int | None, record_id: str) -> Row:
        """Return the row of the removal of the topic."""
        self.latest = ts
        return Row(
            pos, ts, None, None, None, None, None, None, None, "NonExistentPartition", None, True, record_id
        )


def rows_of(final: Final, generations: Sequence[Sequence[Row]], facts: IncarnationFacts) -> PartitionRows:
    """Return rows after the final ones. generations: the rows of each topic id."""
    result = PartitionRows(final.steps, final.last.ts if final.last else None)
    result.partitions = final.partitions((row for generation in generations for row in generation), facts.end)
    kept = [row for _, row, _ in result.partitions]
    result.replicas = final.replicas(standings(final, kept, facts.kraft.brokers), kept, facts.end)
    first = [final.last] if final.last and not final.is_foreign else []
    for n, generation in enumerate(generations):
        result.reassignments += reassignments([*([] if n else first), *generation])
    return result


def standings(
    final: Final, rows: Iterable[Row], brokers: Mapping[int, Sequence[Standing]]
) -> dict[int, list[Standing]]:
    """Return replica -> its states. rows: from the last final one on.

    In KRaft a replica has no state of its own: it has that of its broker's registration as long as it is one
    of the replicas.
    """
    own = list(rows)[1 if final.is_foreign else 0 :]
    changing = [row for row in own if row.replicas is not None or row.state == "NonExistentPartition"]
    found = {}
    for replica in sorted({*final.standing, *(one for row in changing for one in row.replicas or ())}):
        changes: list[tuple[int, int, int, Row | Standing]] = [
            (row.ts or 0, 0, n, row) for n, row in enumerate(changing)
        ]
        changes += [(one.ts or 0, 1, n, one) for n, one in enumerate(brokers.get(replica, ()))]
        states = [final.standing[replica][1]] if replica in final.standing else []
        is_member, was_member, broker = False, bool(states) and states[0].state in STATES, None
        for ts, kind, _, one in sorted(changes, key=lambda change: change[:3]):
            if isinstance(one, Standing):
                broker = one.state
            else:
                is_member = replica in (one.replicas or ())
                was_member |= is_member
            state = broker if is_member else REMOVED if was_member else None
            is_new = final.last is None or final.is_foreign or (ts, kind) >= (final.last.ts or 0, 0)
            if is_new and state is not None:
                states.append(Standing(one.ts, state, one.record_id))
        found[replica] = less_repeated(states, lambda one: one.state)
    return found


def reassignments(rows: Iterable[Row]) -> Iterator[Reassignment]:
    """Yield reassignments: the assignment that starts one, and the next, which ends it.

    rows: of one generation, in order.
    """
    rows = [row for row in rows if row.adding is not None]
    begins = [n for n, row in enumerate(rows) if not n or row.assignment() != rows[n - 1].assignment()]
    for before, (at, after) in zip([None, *begins], with_next(begins), strict=False):
        one = rows[at]
        if not (one.adding or one.removing) or one.replicas is None:
            continue
        target = set(without(one.replicas, one.removing) or ())
        during = [row for row in rows[at + 1 : None if after is None else after + 1] if row.isr is not None]
        caught = [row.ts for row in during if target <= set(row.isr or ())]
        begun = _assigned(one)
        end = _assigned(rows[after]) if after is not None else None
        previous = None if before is None else rows[before]
        is_reached = is_target(end, begun)
        if after is not None and rows[after].replicas is None:
            # if RS is unknown, an added replica in the ISR shows that the target was reached
            is_reached = bool(set(one.adding or ()) & set(rows[after].isr or ()))
        yield reassignment(
            previous and _assigned(previous),
            begun,
            end,
            caught[0] if caught else None,
            reaches_target=is_reached,
        )


def _assigned(row: Row) -> Assigned:
    return Assigned(row.pos, row.ts, row.record_id, row.replicas, row.adding, row.removing)


# ---------------------------------------------------------------------------------------- rows that become final


def _finalise(
    history: KRaftHistory,
    which: str,
    versions: Sequence[EpochVersion],
    result: PartitionRows,
    facts: KRaftFacts,
) -> None:
    """Make all rows final up to the newest whole version without a running reassignment.

    which: the newest topic id. versions: its `merged_versions`.
    """
    generation = history.generations[which]
    later: EpochVersion | None = None
    for v in reversed(versions):
        at_rest = (
            v.is_whole and not v.adding and not v.removing and v.adding is not None and v.removing is not None
        )
        is_older = later is None or (v.pos < later.pos and (v.ts or 0) < (later.ts or 0))
        if (
            at_rest
            and v.applied is not None
            and (v.epoch or 0) > generation.base
            and is_older
            and (v.ts or 0) <= history.newest - FINAL_AFTER
        ):
            break
        later = v
    else:
        return
    make_final(history.final, result, v.pos, facts.brokers)
    assert v.epoch is not None
    generation.gaps |= set(range(generation.base, v.epoch)) - {
        one.epoch for one in versions if one.is_whole and one.epoch is not None
    }
    generation.base, generation.is_final = v.epoch, True
    generation.past += [crc32(repr(c.content).encode()) for c in generation.changes[: v.applied]]
    del generation.changes[: v.applied]
    generation.versions = {v.epoch: v} | {
        epoch: one for epoch, one in generation.versions.items() if epoch > v.epoch
    }
    generation.loose = [one for one in generation.loose if one.pos > v.pos]
    for other, one in history.generations.items():
        if other != which:
            history.closed[other] = one.gaps | {
                epoch for epoch, version in one.versions.items() if not version.is_whole
            }
    history.generations = {which: generation}


def make_final(
    final: Final, result: PartitionRows, pos: int, brokers: Mapping[int, Sequence[Standing]]
) -> None:
    """Make rows final up to a position. Later rows are later in time, too."""
    kept = [row for _, row, _ in result.partitions if row.pos <= pos]
    until = kept[-1].ts or 0
    earlier = {broker: [one for one in states if (one.ts or 0) < until] for broker, states in brokers.items()}
    final.extend(kept, standings(final, kept, earlier))
