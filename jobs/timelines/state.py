"""Convert the state of a partition to JSON and back.

The JSON is positional, so that it is small and fast to read.
"""

import json
from typing import Any

from jobs.timelines import kraft, metadata_log, zookeeper
from jobs.timelines.discontinuities import Break, Lines, StateLine
from jobs.timelines.generation_evidence import GenerationEvidence, Start
from jobs.timelines.kraft_assignments import Change, EpochVersion
from jobs.timelines.kraft_facts import Standing
from jobs.timelines.replica_states import ReplicaState
from jobs.timelines.timeline_rows import Assigned, Final, Row
from jobs.timelines.zookeeper_assignments import Requested
from jobs.timelines.zookeeper_versions import ProposedIsr
from jobs.timelines.zookeeper_versions import ZnodeVersion as ZookeeperVersion

Plain = list[Any]


def dump(value: Any) -> str:
    """Return the output of the functions below as JSON."""
    return json.dumps(value, separators=(",", ":"))


def _slots(one: Any) -> Plain:
    return [getattr(one, name) for name in one.__slots__]


def of_final(final: Final) -> Plain:
    """Return plain values for `final_of`."""
    return [final.steps, final.last, final.isr, list(final.standing.items()), final.is_foreign]


def final_of(plain: Plain) -> Final:
    """Build from the plain values of `of_final`."""
    steps, last, isr, standing, is_foreign = plain
    return Final(
        steps,
        last and Row(*last),
        isr,
        {replica: (step, Standing(*one)) for replica, (step, one) in standing},
        is_foreign,
    )


def of_zookeeper(h: zookeeper.ZooKeeperHistory) -> Plain:
    """Return plain values for `zookeeper_of`."""
    generation = h.generation
    versions = [_slots(v) for v in (*generation.versions.values(), *generation.loose)]
    more = [
        list(generation.requested.items()),
        generation.is_written,
        generation.target,
        generation.created_with,
        generation.at_rest,
        list(generation.printed_values),
        sorted(generation.gaps),
        generation.leader_epoch,
        generation.evidence.to_plain(),
    ]
    asserted = [
        versions,
        generation.proposed,
        generation.assigned,
        generation.marks,
        generation.replica_states,
        more,
    ]
    return [
        h.newest,
        h.count,
        h.is_first,
        h.since,
        asserted,
        of_final(h.final),
        sorted(h.brokers),
        h.shared,
        h.since_ts,
    ]


def zookeeper_of(plain: Plain) -> zookeeper.ZooKeeperHistory:
    """Build from the plain values of `of_zookeeper`."""
    newest, count, is_first, since, asserted, final, brokers, shared, since_ts = plain
    (
        versions,
        proposed,
        assigned,
        marks,
        replica_states,
        (requested, is_written, target, created_with, at_rest, values, gaps, leader_epoch, evidence),
    ) = asserted
    versions_read = [ZookeeperVersion(*v) for v in versions]
    for version in versions_read:
        version.keeps = tuple(version.keeps)
    generation = zookeeper.ZooKeeperGeneration(
        {v.epoch: v for v in versions_read if v.epoch is not None},
        [v for v in versions_read if v.epoch is None],
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
        GenerationEvidence.of_plain(evidence),
    )
    return zookeeper.ZooKeeperHistory(
        newest, count, is_first, since, generation, final_of(final), set(brokers), shared, since_ts
    )


def of_kraft(h: kraft.KRaftHistory) -> Plain:
    """Return plain values for `kraft_of`."""
    generations = [
        [
            which,
            [_slots(v) for v in (*one.versions.values(), *one.loose)],
            one.changes,
            list(one.next_change.items()),
            one.base,
            one.past,
            sorted(one.gaps),
            one.is_final,
        ]
        for which, one in h.generations.items()
    ]
    closed = [(which, sorted(gaps)) for which, gaps in h.closed.items()]
    return [
        h.newest,
        h.count,
        generations,
        closed,
        h.ids,
        list(h.named.items()),
        of_final(h.final),
        h.shared,
        h.taken_over,
        [(node, which, *start) for node, (which, start) in h.started.items()],
        sorted(h.over),
        h.is_unsure,
    ]


def kraft_of(plain: Plain) -> kraft.KRaftHistory:
    """Build from the plain values of `of_kraft`."""
    newest, count, generations, closed, ids, named, final, shared, taken_over, started, over, is_unsure = (
        plain
    )
    generations_read = {}
    for which, versions, changes, next_change, base, past, gaps, is_final in generations:
        all_of = [EpochVersion(*v) for v in versions]
        known = {v.epoch: v for v in all_of if v.epoch is not None}
        loose = [v for v in all_of if v.epoch is None]
        printed = [Change(*one) for one in changes]
        generations_read[which] = kraft.KRaftGeneration(
            known, loose, printed, dict(next_change), base, past, set(gaps), is_final
        )
    of_closed = {which: set(gaps) for which, gaps in closed}
    begun = {node: (which, Start(*start)) for node, which, *start in started}
    return kraft.KRaftHistory(
        newest,
        count,
        generations_read,
        of_closed,
        ids,
        dict(named),
        final_of(final),
        shared,
        taken_over,
        begun,
        set(over),
        is_unsure,
    )


def of_metadata_log(h: metadata_log.MetadataLogHistory) -> Plain:
    """Return plain values for `metadata_log_of`."""
    registration = h.registration and [_slots(h.registration.version), *h.registration[1:]]
    builder = [
        h.builder.latest,
        h.builder.state,
        h.builder.leader_epoch,
        h.builder.assignment,
        h.builder.epoch_at_start,
    ]
    return [
        h.at,
        h.count,
        h.covered,
        h.topic_id,
        registration,
        builder,
        of_final(h.final),
        h.tail,
        h.ids,
        h.shared,
    ]


def metadata_log_of(plain: Plain) -> metadata_log.MetadataLogHistory:
    """Build from the plain values of `of_metadata_log`."""
    at, count, covered, topic_id, registration, builder_state, final, tail, ids, shared = plain
    latest, state, leader_epoch, assignment, epoch_at_start = builder_state
    lists = None if assignment is None else tuple(None if one is None else tuple(one) for one in assignment)
    builder = kraft.RowBuilder(latest, state, leader_epoch, lists, epoch_at_start)
    merged = registration and metadata_log.Registration(EpochVersion(*registration[0]), *registration[1:])
    return metadata_log.MetadataLogHistory(
        at,
        count,
        covered,
        topic_id,
        merged,
        builder,
        final_of(final),
        [Row(*row) for row in tail],
        ids,
        shared,
    )


def of_lines(lines: Lines) -> Plain:
    """Return plain values for `lines_of`."""
    return [lines.count, list(lines.last.items()), lines.deleted, lines.known_epoch, lines.breaks]


def lines_of(plain: Plain) -> Lines:
    """Build from the plain values of `of_lines`."""
    count, last, deleted, known_epoch, breaks = plain
    read = [Break(*one)._replace(previous=StateLine(*one[7])) for one in breaks]
    return Lines(count, {replica: StateLine(*line) for replica, line in last}, deleted, known_epoch, read)
