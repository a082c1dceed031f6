"""The state of a partition as one line of JSON: positional, so that it is small and quick to read."""

import json
from typing import Any

from jobs.timelines import kraft, metadata_log, zookeeper
from jobs.timelines.discontinuities import Break, Lines, StateLine
from jobs.timelines.generation_evidence import GenerationEvidence, Start
from jobs.timelines.kraft_assignments import Change, Version
from jobs.timelines.kraft_facts import Standing
from jobs.timelines.replica_states import ReplicaState
from jobs.timelines.rows import Assigned, Final, Row
from jobs.timelines.zookeeper_assignments import Requested
from jobs.timelines.zookeeper_versions import ProposedIsr
from jobs.timelines.zookeeper_versions import Version as ZookeeperVersion

Plain = list[Any]


def dump(value: Any) -> str:
    """What the functions below give, as text."""
    return json.dumps(value, separators=(",", ":"))


def _slots(one: Any) -> Plain:
    return [getattr(one, name) for name in one.__slots__]


def of_final(final: Final) -> Plain:
    """As `final_of` takes it."""
    return [final.steps, final.last, final.isr, list(final.standing.items()), final.is_foreign]


def final_of(held: Plain) -> Final:
    """Of what `of_final` gives."""
    steps, last, isr, standing, is_foreign = held
    return Final(
        steps, last and Row(*last), isr, {replica: (step, Standing(*one)) for replica, (step, one) in standing}, is_foreign
    )


def of_zookeeper(h: zookeeper.History) -> Plain:
    """As `zookeeper_of` takes it."""
    life = h.life
    versions = [_slots(v) for v in (*life.versions.values(), *life.loose)]
    more = [
        list(life.requested.items()),
        life.is_written,
        life.target,
        life.created_with,
        life.at_rest,
        list(life.printed_values),
        sorted(life.gaps),
        life.leader_epoch,
        life.signs.to_plain(),
    ]
    asserted = [versions, life.proposed, life.assigned, life.marks, life.replica_states, more]
    return [h.newest, h.count, h.is_first, h.since, asserted, of_final(h.final), sorted(h.brokers), h.shared, h.since_ts]


def zookeeper_of(held: Plain) -> zookeeper.History:
    """Of what `of_zookeeper` gives."""
    newest, count, is_first, since, asserted, final, brokers, shared, since_ts = held
    (
        versions,
        proposed,
        assigned,
        marks,
        replica_states,
        (requested, is_written, target, created_with, at_rest, values, gaps, leader_epoch, signs),
    ) = asserted
    made = [ZookeeperVersion(*v) for v in versions]
    for version in made:
        version.keeps = tuple(version.keeps)
    life = zookeeper.Life(
        {v.epoch: v for v in made if v.epoch is not None},
        [v for v in made if v.epoch is None],
        [ProposedIsr(*one) for one in proposed],
        [Assigned(*one) for one in assigned],
        {epoch: Requested(*one) for epoch, one in requested},
        [zookeeper.Mark(*one) for one in marks],
        [ReplicaState(*one) for one in replica_states],
        is_written,
        target,
        created_with,
        at_rest,
        {(leader, epoch, tuple(isr)) for leader, epoch, isr in values},
        set(gaps),
        leader_epoch,
        GenerationEvidence.of_plain(signs),
    )
    return zookeeper.History(newest, count, is_first, since, life, final_of(final), set(brokers), shared, since_ts)


def of_kraft(h: kraft.History) -> Plain:
    """As `kraft_of` takes it."""
    lives = [
        [which, [_slots(v) for v in (*one.versions.values(), *one.loose)], one.changes, list(one.next_change.items()),
         one.base, one.past, sorted(one.gaps), one.is_settled]
        for which, one in h.lives.items()
    ]  # fmt: skip
    closed = [(which, sorted(gaps)) for which, gaps in h.closed.items()]
    return [h.newest, h.count, lives, closed, h.ids, list(h.named.items()), of_final(h.final), h.shared, h.taken_over,
            [(node, which, *start) for node, (which, start) in h.started.items()], sorted(h.over), h.is_unsure]  # fmt: skip


def kraft_of(held: Plain) -> kraft.History:
    """Of what `of_kraft` gives."""
    newest, count, lives, closed, ids, named, final, shared, taken_over, started, over, is_unsure = held
    made = {}
    for which, versions, changes, next_change, base, past, gaps, is_settled in lives:
        all_of = [Version(*v) for v in versions]
        known = {v.epoch: v for v in all_of if v.epoch is not None}
        loose = [v for v in all_of if v.epoch is None]
        printed = [Change(*one) for one in changes]
        made[which] = kraft.Life(known, loose, printed, dict(next_change), base, past, set(gaps), is_settled)
    of_closed = {which: set(gaps) for which, gaps in closed}
    begun = {node: (which, Start(*start)) for node, which, *start in started}
    return kraft.History(
        newest, count, made, of_closed, ids, dict(named), final_of(final), shared, taken_over, begun, set(over), is_unsure
    )


def of_metadata_log(h: metadata_log.History) -> Plain:
    """As `metadata_log_of` takes it."""
    registration = h.held and [_slots(h.held.version), *h.held[1:]]
    builder = [h.builder.latest, h.builder.state, h.builder.leader_epoch, h.builder.assignment, h.builder.epoch_at_start]
    return [h.at, h.count, h.covered, h.topic_id, registration, builder, of_final(h.final), h.tail, h.ids, h.shared]


def metadata_log_of(held: Plain) -> metadata_log.History:
    """Of what `of_metadata_log` gives."""
    at, count, covered, topic_id, registration, builder_state, final, tail, ids, shared = held
    latest, state, leader_epoch, assignment, epoch_at_start = builder_state
    lists = None if assignment is None else tuple(None if one is None else tuple(one) for one in assignment)
    builder = kraft.RowBuilder(latest, state, leader_epoch, lists, epoch_at_start)
    merged = registration and metadata_log.Registration(Version(*registration[0]), *registration[1:])
    return metadata_log.History(
        at, count, covered, topic_id, merged, builder, final_of(final), [Row(*row) for row in tail], ids, shared
    )


def of_lines(lines: Lines) -> Plain:
    """As `lines_of` takes it."""
    return [lines.count, list(lines.last.items()), lines.deleted, lines.known_epoch, lines.breaks]


def lines_of(held: Plain) -> Lines:
    """Of what `of_lines` gives."""
    count, last, deleted, known_epoch, breaks = held
    read = [Break(*one)._replace(held=StateLine(*one[7])) for one in breaks]
    return Lines(count, {replica: StateLine(*line) for replica, line in last}, deleted, known_epoch, read)
