"""The command `durability` and its table: seconds at full ISR, below min ISR, and leaderless."""

import argparse
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, time
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jobs import analysis, errors, terminal
from jobs.arguments import add_command, parsed_days
from jobs.config import Config, Slo, load
from jobs.engine import Tables
from jobs.engine.literals import one_of
from jobs.errors import UsageError
from jobs.globs import matches
from jobs.nightly import min_isr
from jobs.operators.topic_assignments import cluster as cluster_of
from jobs.operators.topic_assignments import shared_events
from jobs.operators.topic_durability import (
    EPISODES,
    EVENT_COLUMNS,
    OPEN_COLUMNS,
    SECONDS,
    TIMELINE_COLUMNS,
    Shared,
    Span,
    availability,
    continued,
    fenced_spans,
    nines,
    silent_spans,
    summed,
    tally,
    tally_since,
    tally_unchanged,
    topic_rows,
    with_stored_losses,
)
from jobs.timelines import ClusterFacts
from jobs.timelines.event import moment_of
from jobs.timelines.losses import LINES, RECOVERING, Around
from parsers.explanation import counted, visible

if TYPE_CHECKING:
    from jobs.engine.rows import Dicts, Where

EXAMPLES = """\
examples:
  kafka-audit durability --tables /data/audit
  kafka-audit durability orders --tables /data/audit --by-day
  kafka-audit durability --tables /data/audit --days 2026-03-01..2026-03-07 --json
  kafka-audit durability orders --tables /data/audit --partitions
  kafka-audit durability --tables /data/audit --config audit.toml      # against its [[slo]]; exit code 1 where one is missed

Seconds are summed over partitions. covered = full_isr + under_replicated + leaderless; time that the logs do not cover is `unknown`.
"""


def add_arguments(commands: Any) -> None:
    """Add `durability` to the command line."""
    command = add_command(
        commands,
        "durability",
        run,
        "topic --tables --cluster --json",
        summary="time at full ISR, below min ISR, without a leader; availability in nines",
        examples=EXAMPLES,
    )
    command.add_argument("--days", metavar="D..E", help="only these days, both included (default: all)")
    command.add_argument(
        "--config", type=Path, metavar="audit.toml", help="with [[slo]]: exit with 1 where one is missed"
    )
    form = command.add_mutually_exclusive_group()
    form.add_argument("--by-day", action="store_true", help="one row a day (default: the whole span)")
    form.add_argument(
        "--partitions", action="store_true", help="one row a partition of TOPIC, for the whole span"
    )


# -- the table -----------------------------------------------------------------------------------------------


def write(store: Any, updated: Any, rebuilt: Iterable[str], config: Config) -> None:
    """Update `durability`; late records correct the days that they belong to.

    updated: `updates.Updated`. rebuilt: clusters whose topics are all rebuilt. Of other clusters, the topics
    with new records are rebuilt; the remaining topics get only the days since the last run.
    """
    from jobs.engine.rows import (
        EVERY,
        above,
        any_of,
        computed,
        differing,
        distinct,
        having,
        is_empty,
        is_known,
        is_null,
        lacking,
        of_clusters,
        run_concurrently,
        select,
        to_dicts,
        together,
        where,
    )
    from jobs.nightly.by_topic import KEY, RebuiltTopics
    from jobs.nightly.partition_losses import ABOUT_LOSSES

    facts, schema = updated.facts, store.schema("durability")
    whole, reset = _with_changed_settings(updated, frozenset(rebuilt))
    since = {name: updated.resumed[name].since.date() for name in facts if name not in whole}
    starts = {name: _Start.of(updated.resumed[name]) for name in since}
    topics = RebuiltTopics.of_any(whole, updated.topics, reset)
    deletions = to_dicts(where(store.read("topic_deletions", facts), is_known("requested_at")))
    hours = to_dicts(
        distinct(
            select(
                where(store.read("coverage", facts), above("records", 0) & is_known("hour")),
                "cluster",
                "hour",
            )
        )
    )
    shared = _shared(facts, deletions, hours, config)
    events = store.read("events", facts, ABOUT_LOSSES, ["cluster", "incarnation", *EVENT_COLUMNS])
    columns = [*KEY, *TIMELINE_COLUMNS]

    def rebuild() -> Any:
        timeline = topics.read(store, "partition_timeline", facts, columns)
        return store.map_groups(timeline, topics.of(events), KEY, partial(_all_days, shared), schema)

    if not since:
        store.replace("durability", facts, rebuild())
        return
    stored = store.read("durability", since)
    newest = _from_days(since, "day")
    is_recent = is_null("valid_to") | _from_days(since, "valid_to")

    def extend() -> Any:
        known = topics.not_of(where(stored, newest))
        latest = topics.not_of(store.read("partition_timeline", since, _lasting(starts), columns))
        changed = computed(distinct(select(where(latest, _changed(starts, shared)), *KEY)))
        unchanged = store.map_groups(
            select(lacking(latest, changed, KEY), *KEY, *OPEN_COLUMNS),
            lacking(known, changed, KEY),
            KEY,
            partial(_later_days, shared, starts),
            schema,
        )
        timeline = topics.not_of(store.read("partition_timeline", since, is_recent, columns))
        counted = store.map_groups(
            having(timeline, changed, KEY),
            having(known, changed, KEY),
            KEY,
            partial(_new_days, shared, since),
            schema,
        )
        return together(unchanged, counted)

    rows, later = run_concurrently(rebuild, extend)
    replaced = any_of([newest, of_clusters(whole)])
    older = where(rows, ~replaced)
    known = select(topics.of(where(stored, ~newest)), *schema.names)
    other = differing(older, known, [*KEY, "day"])
    if not is_empty(other):
        # a late record, or one that explains an earlier one
        store.delete_matching("durability", EVERY, other)
    corrected = having(older, other, [*KEY, "day"])
    store.replace_where("durability", facts, replaced, together(where(rows, replaced), corrected, later))


def _all_days(
    shared: Mapping[tuple[str, int], Shared], key: tuple[Any, ...], history: "Dicts", events: "Dicts"
) -> Iterable[Mapping[str, Any]]:
    """Return the rows of all days of a topic, from its intervals and the events that show losses."""
    topic, known = key[2], shared.get(key[:2])
    return topic_rows(tally(history, events, topic, known), topic, known) if known else ()


def _new_days(
    shared: Mapping[tuple[str, int], Shared],
    since: Mapping[str, date],
    key: tuple[Any, ...],
    history: "Dicts",
    stored: "Dicts",
) -> Iterable[Mapping[str, Any]]:
    """Return the rows of a topic's last days, from their intervals and the stored rows of these days."""
    topic, known = key[2], shared.get(key[:2])
    if not known:
        return ()
    return with_stored_losses(
        topic_rows(tally_since(history, topic, known, since[key[0]]), topic, known), stored
    )


@dataclass(frozen=True)
class _Start:
    """From when on a run counts the topics of a cluster that have not changed.

    counted: incarnation -> up to when the last run has counted; then stored rows are continued. Where late
    records may have changed these rows, it is empty, and the whole day is counted.
    """

    at: datetime
    counted: Mapping[int, datetime]

    @classmethod
    def of(cls, resumed: Any) -> "_Start":
        """resumed: `updates.Resumed`."""
        newest = {number: moment_of(at) for number, at in resumed.before.newest_by_number.items()}
        if resumed.is_late or not newest:
            return cls(datetime.combine(resumed.since.date(), time(), UTC), {})
        return cls(max(newest.values()), newest)


def _lasting(starts: Mapping[str, _Start]) -> "Where":
    """Return the condition that an interval lasts until the start of its cluster or longer."""
    from jobs.engine.rows import at_or_after, by_cluster, is_null

    return by_cluster(
        {name: is_null("valid_to") | at_or_after("valid_to", one.at) for name, one in starts.items()}
    )


def _changed(starts: Mapping[str, _Start], shared: Mapping[tuple[str, int], Shared]) -> "Where":
    """Return the condition that an interval begins or ends at the start of its cluster or later, or is an
    episode at the start, whose length depends on earlier intervals.
    """
    from jobs.engine.rows import at_or_after, below, by_cluster, has_fewer, is_known

    return by_cluster(
        {
            name: is_known("valid_to")
            | at_or_after("valid_from", one.at)
            | below("leader", 0)
            | has_fewer(
                "isr",
                max((known.min_isr.largest() for key, known in shared.items() if key[0] == name), default=0),
            )
            for name, one in starts.items()
        }
    )


def _later_days(
    shared: Mapping[tuple[str, int], Shared],
    starts: Mapping[str, _Start],
    key: tuple[Any, ...],
    history: "Dicts",
    stored: "Dicts",
) -> Iterable[Mapping[str, Any]]:
    """Return the rows of the last days of a topic that has not changed since the start of its cluster."""
    topic, known, start = key[2], shared.get(key[:2]), starts[key[0]]
    if not known:
        return ()
    since = start.counted.get(key[1], start.at)
    rows = topic_rows(tally_unchanged(history, topic, known, since), topic, known)
    return continued(rows, stored) if start.counted else with_stored_losses(rows, stored)


def _from_days(days: Mapping[str, date], column: str) -> "Where":
    """Return the condition that a day or moment is on the given day of its cluster, or later."""
    from jobs.engine.rows import by_cluster, from_day

    return by_cluster({name: from_day(column, day) for name, day in days.items()})


def _settings(facts: ClusterFacts) -> dict[int, min_isr.MinIsr]:
    """Return incarnation -> min.insync.replicas, as log lines set it."""
    return {number: min_isr.from_lines(settings) for number, settings in facts.settings_by_number.items()}


def _with_changed_settings(
    updated: Any, rebuilt: frozenset[str]
) -> tuple[frozenset[str], list[tuple[str, str]]]:
    """Return what to rebuild because new records change min.insync.replicas.

    The result is (clusters, cluster and topic of topics in other clusters). A cluster whose default has
    changed is rebuilt whole. rebuilt: clusters that are rebuilt in any case; they are in the result.
    """
    whole, topics = set(rebuilt), []
    for name in updated.facts.keys() - rebuilt:
        then, now = _settings(updated.resumed[name].before), _settings(updated.facts[name])
        for number in then.keys() | now.keys():
            one, other = then.get(number, min_isr.MinIsr()), now.get(number, min_isr.MinIsr())
            whole |= {name} if (one.default, one.of_brokers) != (other.default, other.of_brokers) else set()
            named = one.topics.keys() | other.topics.keys()
            topics += [(name, topic) for topic in named if one.topics.get(topic) != other.topics.get(topic)]
    return frozenset(whole), topics


def _shared(
    facts: Mapping[str, ClusterFacts],
    deletions: Iterable[Mapping[str, Any]],
    dated: Iterable[Mapping[str, Any]],
    config: Config,
) -> dict[tuple[str, int], Shared]:
    """Return (cluster, incarnation) -> what its topics share.

    Incarnations without a time stamp are left out.
    deletions: rows of `topic_deletions` with requested_at. dated: cluster and hour of `coverage`, of hours
    with records.
    """
    pending: dict[tuple[str, int], list[Any]] = {}
    for row in deletions:
        pending.setdefault((row["cluster"], row["incarnation"]), []).append(row)
    hours: dict[str, list[datetime]] = {}
    for row in dated:
        hours.setdefault(row["cluster"], []).append(row["hour"])
    found = {}
    for name, one in facts.items():
        configured = [(t.name, t.min_insync_replicas) for t in config.topics if matches([t.cluster], name)]
        events = shared_events(one)
        for number, newest in one.newest_by_number.items():
            now = moment_of(newest)
            deleted: dict[str, tuple[Span, ...]] = {}
            for row in pending.get((name, number), []):
                span = row["requested_at"], row["completed_at"] or now
                deleted[row["topic"]] = (*deleted.get(row["topic"], ()), span)
            brokers = cluster_of(events.get(number, [])).brokers
            fenced = fenced_spans([(b.since, b.fenced) for b in brokers if b.kraft], now)
            least = min_isr.from_lines(one.settings_by_number.get(number, ()), configured)
            around = Around(may_be_last_leader=one.may_elect_last_leader(number))
            found[name, number] = Shared(
                now, least, silent_spans(hours.get(name, [])), deleted, fenced, around
            )
    return found


# -- the command ---------------------------------------------------------------------------------------------


def run(options: argparse.Namespace) -> int:
    """Print the seconds; return exit code 1 if an [[slo]] of --config is missed. Raises UsageError."""
    if options.partitions and not options.topic:
        raise UsageError("--partitions is about one topic; name it")
    if options.partitions and options.days:
        raise UsageError("--partitions is about the whole span; leave out --days")
    days = parsed_days(options.days, "--days") if options.days else None
    config = load(options.config) if options.config else Config()
    if "durability" not in analysis.present(options.tables):
        raise UsageError(f"--tables {options.tables} has no durability; run `kafka-audit audit` on it first")
    of_partitions = (
        ("cluster_facts", "topic_deletions", "coverage", "partition_timeline", "events")
        if options.partitions
        else ()
    )
    tables = analysis.opened(options.tables, ("durability", *of_partitions))
    within = f"day BETWEEN DATE '{days[0]}' AND DATE '{days[1]}'" if days else "true"
    rows = analysis.rows_of(tables, "durability", options.cluster, options.topic, within)
    rows.sort(key=lambda r: (r["cluster"], r["topic"], r["day"], r["incarnation"]))
    shown = _of_partitions(tables, options, config) if options.partitions else _spans(rows, options.by_day)
    missed = [
        row for row in _spans(rows, False) if any(share < goal for _, share, goal in _goals(row, config.slos))
    ]
    terminal.show(_json(shown) if options.json else _text(shown, config.slos), styled=False)
    return errors.FINDINGS if missed else errors.CLEAN


def _spans(rows: Sequence[Mapping[str, Any]], by_day: bool) -> list[dict[str, Any]]:
    """Return one row per topic (day null) or per topic and day; incarnations are summed."""
    groups: dict[tuple[Any, ...], list[Mapping[str, Any]]] = {}
    for row in rows:
        groups.setdefault((row["cluster"], row["topic"], row["day"] if by_day else None), []).append(row)
    return [{"cluster": c, "topic": t, "day": day, **summed(some)} for (c, t, day), some in groups.items()]


def _of_partitions(tables: Tables, options: argparse.Namespace, config: Config) -> list[dict[str, Any]]:
    of_clusters = one_of(
        "cluster",
        sorted(
            {row["cluster"] for row in analysis.rows_of(tables, "durability", options.cluster, options.topic)}
        ),
    )
    known_facts = analysis.rows_where(tables, "cluster_facts", of_clusters, ("cluster", "facts"))
    facts = {row["cluster"]: ClusterFacts.from_json(row["facts"]) for row in known_facts}
    deletions = analysis.rows_where(tables, "topic_deletions", f"{of_clusters} AND requested_at IS NOT NULL")
    hours = tables.query(
        f"SELECT DISTINCT cluster, hour FROM coverage WHERE {of_clusters} AND records > 0 AND hour IS NOT NULL"
    ).rows()
    shared = _shared(facts, deletions, hours, config)
    found = []
    groups: dict[tuple[str, int], list[analysis.Row]] = {}
    for row in analysis.rows_of(tables, "partition_timeline", options.cluster, options.topic):
        groups.setdefault((row["cluster"], row["partition"]), []).append(row)
    events: dict[tuple[str, int, int], list[analysis.Row]] = {}
    about_losses = f"({one_of('leader_recovery_state', RECOVERING)} OR {one_of('event_type', sorted(LINES))})"
    condition = (
        f"{about_losses} AND {of_clusters} AND {one_of('topic', [options.topic])} AND partition IS NOT NULL"
    )
    for event in analysis.rows_where(tables, "events", condition, ["cluster", "incarnation", *EVENT_COLUMNS]):
        events.setdefault((event["cluster"], event["incarnation"], event["partition"]), []).append(event)
    for (name, partition), some in sorted(groups.items()):
        rows = []
        for number in {row["incarnation"] for row in some}:
            if known := shared.get((name, number)):
                mine = [row for row in some if row["incarnation"] == number]
                of_partition = events.get((name, number, partition), [])
                rows += topic_rows(tally(mine, of_partition, options.topic, known), options.topic, known)
        if rows:
            found.append(
                {"cluster": name, "topic": options.topic, "partition": partition, "day": None, **summed(rows)}
            )
    return found


def _goals(row: Mapping[str, Any], slos: Iterable[Slo]) -> list[tuple[Slo, float, float]]:
    """Return (SLO, share reached, share of the goal) of the SLOs that match a topic."""
    found = []
    for slo in slos:
        share = availability(row, slo.acks)
        if (
            share is not None
            and matches([slo.topic], row["topic"])
            and matches([slo.cluster], row["cluster"])
        ):
            found.append((slo, share, slo.availability / 100))
    return found


def _json(rows: Iterable[Mapping[str, Any]]) -> Iterator[str]:
    for row in rows:
        yield json.dumps({name: analysis.plain(value) for name, value in row.items()})


def _text(rows: list[dict[str, Any]], slos: Sequence[Slo]) -> Iterator[str]:
    for name in sorted({row["cluster"] for row in rows}):
        mine = [row for row in rows if row["cluster"] == name]
        yield f"Durability of {visible(name)}, seconds summed over partitions"
        heads = (
            "topic",
            "day",
            "parts",
            "covered",
            "full ISR",
            "under-rep.",
            "at min",
            "below min",
            "ISR 1",
            "leaderless",
            "unknown",
            "unclean",
            "lost",
            "acks=all",
            "acks=1",
        )
        yield from analysis.text_table(heads, [_cells(row) for row in mine], terminal.width())
        yield ""
        for row in mine:
            yield from _words(row, slos)
        yield ""


def _cells(row: Mapping[str, Any]) -> list[Any]:
    which = row["topic"] if "partition" not in row else f"{row['topic']}-{row['partition']}"
    seconds = [row[n] for n in SECONDS if not n.startswith("refused")]
    shares = [nines(availability(row, acks)) for acks in ("all", "1")]
    return [
        which,
        row["day"],
        row["partitions"],
        *seconds,
        row["unclean_elections"],
        row["records_lost"],
        *shares,
    ]


def _words(row: Mapping[str, Any], slos: Sequence[Slo]) -> Iterator[str]:
    """Return the sentences about a topic: episodes, the effect of each acks setting, and goals."""
    name = (
        visible(row["topic"])
        + (f"-{row['partition']}" if "partition" in row else "")
        + (f" {row['day']}" if row["day"] else "")
    )
    for episode in EPISODES:
        if row[f"{episode}_times"]:
            what = (
                "without a leader"
                if episode == "leaderless"
                else f"below min ISR ({row['min_insync_replicas']})"
            )
            yield f"{name}: {counted(row[f'{episode}_times'], 'time')} {what}, the longest {row[f'{episode}_longest']:g} s"
    if row["refused_min_2"] or row["at_isr_1"]:
        yield (
            f"{name}: acks=all would have been refused for {row['refused_min_1']:g} s with min.insync.replicas=1, "
            f"{row['refused_min_2']:g} s with 2; acks=1: what was acknowledged in {row['at_isr_1']:g} s was on the leader alone"
        )
    for slo, share, goal in _goals(row, slos):
        verdict = "kept" if share >= goal else "MISSED"
        yield f"{name}: {nines(share)} with acks={slo.acks}, the goal is {slo.availability:g} %: {verdict}"
