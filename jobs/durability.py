"""The command `durability`, and the table it reads: seconds at full ISR, below min ISR, without a leader, by topic and day."""

import argparse
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jobs import analysis, errors, min_isr
from jobs.audit import parsed_days
from jobs.config import Config, Slo, load, matches
from jobs.errors import UsageError
from jobs.timelines import ClusterFacts
from jobs.topic_assignments import cluster as cluster_of
from jobs.topic_durability import (
    EVENT_COLUMNS,
    SECONDS,
    SPELLS,
    TIMELINE_COLUMNS,
    TRUNCATED,
    Shared,
    Span,
    availability,
    continued,
    fenced_spans,
    nines,
    silent_spans,
    summed,
    tally,
    topic_rows,
)  # fmt: skip
from parsers.explanation import visible

if TYPE_CHECKING:
    from jobs.by_topic import Rows

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
    """Adds `durability` to the command line."""
    command = commands.add_parser(
        "durability",
        help="time at full ISR, below min ISR, without a leader; availability in nines",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    command.add_argument("topic", nargs="?", metavar="TOPIC", help="only this topic")
    command.add_argument("--tables", required=True, type=Path, metavar="DIR")
    command.add_argument("--cluster", metavar="NAME")
    command.add_argument("--days", metavar="D..E", help="only these days, both included (default: all)")
    command.add_argument("--config", type=Path, metavar="audit.toml", help="with [[slo]]: exit with 1 where one is missed")
    form = command.add_mutually_exclusive_group()
    form.add_argument("--by-day", action="store_true", help="one row a day (default: the whole span)")
    form.add_argument("--partitions", action="store_true", help="one row a partition of TOPIC, for the whole span")
    command.add_argument("--json", action="store_true", help="JSON Lines")
    command.set_defaults(run=run)


# -- the table -------------------------------------------------------------------------------------------------


def write(store: Any, made: Any, anew: Iterable[str], config: Config) -> None:
    """Brings `durability` up to date: every night counts once, late logs correct it.

    made: `nights.Made`. anew: clusters all of whose topics are told anew. Of the others, those about which there is something new are; of the rest
    only the days are that time has gone on in.
    """
    from pyspark.sql import functions as F

    from jobs.by_topic import KEY, ToldAnew, fold_topics
    from jobs.store import computed_once, in_clusters, quoted, run_concurrently

    facts, whole = made.facts, set(anew)
    reset = []
    for name in facts.keys() - whole:
        is_default, some = _set_otherwise(made.continued[name].before, facts[name])
        whole |= {name} if is_default else set()
        reset += [(name, topic) for topic in some]
    going_on = {name: made.continued[name] for name in facts if name not in whole}
    shared = _shared(facts, store.rows_of("topic_deletions", facts), store.rows_of("coverage", facts), config)
    topics = ToldAnew.of_any(store.spark, whole, made.topics, reset)
    schema = store.table("durability").schema
    timeline = store.rows_of("partition_timeline", facts).select(*KEY, *TIMELINE_COLUMNS)
    telling = (
        (F.col("leader_recovery_state").isin("RECOVERING", "1"))
        | (F.col("event_type") == TRUNCATED)
        | F.col("end_offset").isNotNull()
    )
    about = store.rows_of("events", facts).filter(telling & F.col("topic").isNotNull() & F.col("partition").isNotNull())
    about = about.select(*KEY[:2], *EVENT_COLUMNS)

    since = {name: one.since.date() for name, one in going_on.items()}

    def told(key: tuple[Any, ...], history: "Rows", said: "Rows") -> Iterable[Mapping[str, Any]]:
        topic, known = key[2], shared.get(key[:2])
        return topic_rows(tally(history, said, topic, known), topic, known) if known else ()

    def gone_on(key: tuple[Any, ...], history: "Rows", held: "Rows") -> Iterable[Mapping[str, Any]]:
        topic, known = key[2], shared.get(key[:2])
        return continued(topic_rows(tally(history, (), topic, known, since[key[0]]), topic, known), held) if known else ()

    def fold_anew() -> Any:
        return computed_once(fold_topics(topics.of(timeline), topics.of(about), told, schema))

    if not going_on:
        store.replace("durability", facts, fold_anew())
        return
    days = [f"cluster = {quoted(name)} AND day >= DATE '{first}'" for name, first in since.items()]
    replaced = " OR ".join([*days, *([in_clusters(whole)] if whole else [])])
    ends = " OR ".join(
        f"cluster = {quoted(name)} AND (valid_to IS NULL OR to_date(valid_to) >= DATE '{first}')" for name, first in since.items()
    )
    held = store.rows_of("durability", going_on)
    new_days = held.filter(replaced)

    def fold_on() -> Any:
        return computed_once(fold_topics(topics.not_of(timeline.filter(ends)), topics.not_of(new_days), gone_on, schema))

    anew_rows, later = run_concurrently(fold_anew, fold_on)
    older, held_older = anew_rows.filter(f"NOT ({replaced})"), topics.of(held.filter(f"NOT ({replaced})")).select(*schema.names)
    keys = [*KEY, "day"]
    other = (
        older.exceptAll(held_older)
        .select(*keys)
        .unionByName(held_older.exceptAll(older).select(*keys))
        .distinct()
        .localCheckpoint()
    )
    if not other.isEmpty():
        # a line that came late, or one that tells what an earlier one meant
        store.delete_matching("durability", "true", other)
    rows = anew_rows.filter(replaced).unionByName(older.join(F.broadcast(other), keys, "left_semi")).unionByName(later)
    store.replace_where("durability", replaced, rows)


def _settings(facts: ClusterFacts, configured: Iterable[tuple[str, int]] = ()) -> dict[int, min_isr.MinIsr]:
    """Incarnation -> min.insync.replicas."""
    from jobs.by_topic import shared_events

    given = list(configured)
    return {number: min_isr.from_events(some, given) for number, some in shared_events(facts).items()}


def _set_otherwise(before: ClusterFacts, now: ClusterFacts) -> tuple[bool, set[str]]:
    """Whether lines now tell another default of min.insync.replicas than before, and the topics for which they tell another value."""
    then, since = _settings(before), _settings(now)
    pairs = [(then.get(number, min_isr.MinIsr()), since.get(number, min_isr.MinIsr())) for number in then.keys() | since.keys()]
    topics = {
        t for one, other in pairs for t in one.topics.keys() | other.topics.keys() if one.topics.get(t) != other.topics.get(t)
    }
    return any(one.default != other.default for one, other in pairs), topics


def _shared(facts: Mapping[str, ClusterFacts], deletions: Any, coverage: Any, config: Config) -> dict[tuple[str, int], Shared]:
    """(cluster, incarnation) -> what its topics share; incarnations without a time stamp are left out."""
    from jobs.by_topic import moment, shared_events

    pending: dict[tuple[str, int], list[Any]] = {}
    for row in deletions.filter("requested_at IS NOT NULL").collect():
        pending.setdefault((row.cluster, row.incarnation), []).append(row)
    hours: dict[str, list[datetime]] = {}
    for row in coverage.filter("records > 0 AND hour IS NOT NULL").select("cluster", "hour").distinct().collect():
        hours.setdefault(row.cluster, []).append(_in_utc(row.hour))
    found = {}
    for name, one in facts.items():
        configured = [(t.name, t.min_insync_replicas) for t in config.topics if matches([t.cluster], name)]
        settings, events = _settings(one, configured), shared_events(one)
        for number, newest in one.newest_by_number.items():
            now = moment(newest)
            deleted: dict[str, tuple[Span, ...]] = {}
            for row in pending.get((name, number), []):
                span = _in_utc(row.requested_at), _in_utc(row.completed_at) if row.completed_at else now
                deleted[row.topic] = (*deleted.get(row.topic, ()), span)
            brokers = cluster_of(events.get(number, [])).brokers
            fenced = fenced_spans([(b.since, b.fenced) for b in brokers if b.kraft], now)
            least = settings.get(number, min_isr.MinIsr(configured=tuple(configured)))
            found[name, number] = Shared(now, least, silent_spans(hours.get(name, [])), deleted, fenced)
    return found


def _in_utc(at: datetime) -> datetime:
    """A moment as Spark hands it over, without a zone."""
    return at.replace(tzinfo=UTC)


# -- the command -----------------------------------------------------------------------------------------------


def run(options: argparse.Namespace) -> int:
    """Prints seconds; exit code 1 where an [[slo]] of --config is missed. Raises UsageError."""
    if options.partitions and not options.topic:
        raise UsageError("--partitions is about one topic; name it")
    if options.partitions and options.days:
        raise UsageError("--partitions is about the whole span; leave out --days")
    days = parsed_days(options.days, "--days") if options.days else None
    config = load(options.config) if options.config else Config()
    if "durability" not in analysis.present(options.tables):
        raise UsageError(f"--tables {options.tables} holds no durability; run `kafka-audit audit` on it first")
    spark = analysis.opened(options.tables)
    within = f"day BETWEEN DATE '{days[0]}' AND DATE '{days[1]}'" if days else "true"
    rows = analysis.rows_of(spark, "durability", options.cluster, options.topic, within)
    rows.sort(key=lambda r: (r["cluster"], r["topic"], r["day"], r["incarnation"]))
    shown = _of_partitions(spark, options, config) if options.partitions else _spans(rows, options.by_day)
    missed = [row for row in _spans(rows, False) if any(share < wanted for _, share, wanted in _goals(row, config.slos))]
    for line in _json(shown) if options.json else _text(shown, config.slos):
        print(line)
    return errors.FINDINGS if missed else errors.CLEAN


def _spans(rows: Sequence[Mapping[str, Any]], by_day: bool) -> list[dict[str, Any]]:
    """One row a topic (day null), or a topic and day; incarnations of a cluster together."""
    groups: dict[tuple[Any, ...], list[Mapping[str, Any]]] = {}
    for row in rows:
        groups.setdefault((row["cluster"], row["topic"], row["day"] if by_day else None), []).append(row)
    return [{"cluster": c, "topic": t, "day": day, **summed(some)} for (c, t, day), some in groups.items()]


def _of_partitions(spark: Any, options: argparse.Namespace, config: Config) -> list[dict[str, Any]]:
    from jobs.store import in_clusters

    names = {row["cluster"] for row in analysis.rows_of(spark, "durability", options.cluster, options.topic)}
    known, deletions, coverage = (
        spark.table(name).filter(in_clusters(sorted(names))) for name in ("cluster_facts", "topic_deletions", "coverage")
    )
    facts = {row.cluster: ClusterFacts.from_json(row.facts) for row in known.collect()}
    shared = _shared(facts, deletions, coverage, config)
    found = []
    groups: dict[tuple[str, int], list[analysis.Row]] = {}
    for row in analysis.rows_of(spark, "partition_timeline", options.cluster, options.topic):
        groups.setdefault((row["cluster"], row["partition"]), []).append(row)
    for (name, partition), some in sorted(groups.items()):
        rows = []
        for number in {row["incarnation"] for row in some}:
            if known := shared.get((name, number)):
                mine = [row for row in some if row["incarnation"] == number]
                rows += topic_rows(tally(mine, [], options.topic, known), options.topic, known)
        if rows:
            found.append({"cluster": name, "topic": options.topic, "partition": partition, "day": None, **summed(rows)})
    return found


def _goals(row: Mapping[str, Any], slos: Iterable[Slo]) -> list[tuple[Slo, float, float]]:
    """(goal, share reached, share wanted) of the goals that are about a topic."""
    found = []
    for slo in slos:
        share = availability(row, slo.acks)
        if share is not None and matches([slo.topic], row["topic"]) and matches([slo.cluster], row["cluster"]):
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
            "topic", "day", "parts", "covered", "full ISR", "under-rep.", "at min", "below min", "ISR 1", "leaderless", "unknown", "unclean",
            "lost", "acks=all", "acks=1",
        )  # fmt: skip
        yield from analysis.text_table(heads, [_cells(row) for row in mine])
        yield ""
        for row in mine:
            yield from _words(row, slos)
        yield ""


def _cells(row: Mapping[str, Any]) -> list[Any]:
    which = row["topic"] if "partition" not in row else f"{row['topic']}-{row['partition']}"
    seconds = [row[n] for n in SECONDS if not n.startswith("refused")]
    shares = [nines(availability(row, acks)) for acks in ("all", "1")]
    return [which, row["day"], row["partitions"], *seconds, row["unclean_elections"], row["records_lost"], *shares]


def _words(row: Mapping[str, Any], slos: Sequence[Slo]) -> Iterator[str]:
    """What went wrong, what each setting would have meant, and which goal is missed."""
    name = (
        visible(row["topic"]) + (f"-{row['partition']}" if "partition" in row else "") + (f" {row['day']}" if row["day"] else "")
    )
    for spell in SPELLS:
        if row[f"{spell}_times"]:
            what = "without a leader" if spell == "leaderless" else f"below min ISR ({row['min_insync_replicas']})"
            yield f"{name}: {row[f'{spell}_times']} times {what}, at most {row[f'{spell}_longest']:g} s"
    if row["refused_min_2"] or row["at_isr_1"]:
        yield (
            f"{name}: acks=all would have been refused for {row['refused_min_1']:g} s with min.insync.replicas=1, "
            f"{row['refused_min_2']:g} s with 2; acks=1: what was acknowledged in {row['at_isr_1']:g} s was on the leader alone"
        )
    for slo, share, wanted in _goals(row, slos):
        verdict = "kept" if share >= wanted else "MISSED"
        yield f"{name}: {nines(share)} with acks={slo.acks}, the goal is {slo.availability:g} %: {verdict}"
