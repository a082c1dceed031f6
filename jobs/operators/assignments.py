"""The command `assignments` and its tables: who placed the replicas of a topic, and their spread."""

import argparse
import json
from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, Any

from jobs import analysis, errors, terminal
from jobs.arguments import add_command, parsed_moment
from jobs.engine import Tables
from jobs.engine.literals import quoted
from jobs.errors import UsageError
from jobs.operators.topic_assignments import (
    CREATED,
    EFFECTS,
    EVENT_COLUMNS,
    LAG,
    ClusterBrokers,
    Effect,
    batches,
    broker_loads,
    cluster,
    shared_events,
    topic_rows,
    what_if,
)
from jobs.timelines import ClusterFacts
from parsers.explanation import visible
from schemas.moments import moment

if TYPE_CHECKING:
    from jobs.engine.rows import Dicts

EXAMPLES = """\
examples:
  kafka-audit assignments --tables /data/audit
  kafka-audit assignments orders --tables /data/audit --json
  kafka-audit assignments --tables /data/audit --at 2026-03-01T04:00:00Z
  kafka-audit assignments --tables /data/audit --what-if broker=3:down --what-if broker=5:down --at 2026-03-01T04:00:00Z
"""
TIMELINE_COLUMNS = (
    "partition",
    "step",
    "valid_from",
    "valid_to",
    "replicas",
    "adding_replicas",
    "removing_replicas",
    "state",
    "reassignment_phase",
    "record_id",
)
EFFECT_WORDS = {"offline": "no leader", "below_min_isr": "below min ISR", "loses_leader": "another leader"}


def add_arguments(commands: Any) -> None:
    """Add `assignments` to the command line."""
    command = add_command(
        commands,
        "assignments",
        run,
        "topic --tables --cluster --json",
        summary="whose placement is each topic's assignment; spread, racks, skew",
        examples=EXAMPLES,
    )
    command.add_argument(
        "--at",
        metavar="TIME",
        help="only the assignments of that moment (default: all); with --what-if, the state of that moment",
    )
    command.add_argument(
        "--what-if",
        action="append",
        metavar="broker=N:down",
        help="which partitions suffer when the broker goes down; may be repeated",
    )


# -- the tables ----------------------------------------------------------------------------------------------


def write(store: Any, updated: Any, rebuilt: Iterable[str], racks: Mapping[str, Mapping[int, str]]) -> None:
    """Update `topic_assignments` and `broker_load`.

    updated: `updates.Updated`. rebuilt: clusters whose topics are all judged again. Of other clusters, only
    topics with new records are, and topics whose assignment is as recent as the new records. racks: cluster
    -> broker -> rack, of audit.toml.
    """
    from jobs.engine.rows import (
        at_or_after,
        by_cluster,
        distinct,
        is_known,
        mapped,
        one_of,
        select,
        to_dicts,
        together,
        where,
    )
    from jobs.nightly.by_topic import KEY, TOPIC, RebuiltTopics
    from jobs.nightly.updates import topic_named

    facts, whole = updated.facts, set(rebuilt)
    shared = {name: _shared(one, racks.get(name)) for name, one in facts.items()}
    whole |= {
        name
        for name in facts.keys() - whole
        if _racks(_shared(updated.resumed[name].before, racks.get(name))) != _racks(shared[name])
    }
    others = facts.keys() - whole
    recent = by_cluster(
        {name: at_or_after("valid_from", updated.resumed[name].since - LAG) for name in others}
    )
    as_new = to_dicts(distinct(store.read("topic_assignments", others, recent, TOPIC))) if others else []
    topics = RebuiltTopics.of_any(whole, updated.topics, [(row["cluster"], row["topic"]) for row in as_new])
    created = topic_named(
        store.read("events", facts, one_of("event_type", CREATED), ["cluster", *EVENT_COLUMNS]), facts
    )
    columns = [name for name in EVENT_COLUMNS if name != "topic"]
    created = select(where(created, is_known("key_topic")), "cluster", *columns, topic="key_topic")
    timelines = topics.read(store, "partition_timeline", facts, [*KEY, *TIMELINE_COLUMNS])
    schema = store.schema("topic_assignments")
    judged = store.map_groups(timelines, topics.of(created), KEY, partial(_judged, shared), schema)
    load = mapped(judged, broker_loads, store.schema("broker_load"))
    for table, rows in (("topic_assignments", judged), ("broker_load", load)):
        store.replace(
            table, facts, together(rows, topics.not_of(store.read(table, others))) if others else rows
        )


def _judged(
    shared: Mapping[str, Mapping[int, ClusterBrokers]],
    key: tuple[Any, ...],
    history: "Dicts",
    created: "Dicts",
) -> Iterable[Mapping[str, Any]]:
    """Return the assignments of a topic, from its intervals and the events that created partitions."""
    return topic_rows(history, batches(created).get(key[2], []), shared[key[0]].get(key[1], ClusterBrokers()))


def _shared(facts: ClusterFacts, racks: Mapping[int, str] | None) -> dict[int, ClusterBrokers]:
    """Return incarnation -> what its topics share."""
    return {number: cluster(events, racks) for number, events in shared_events(facts).items()}


def _racks(shared: Mapping[int, ClusterBrokers]) -> dict[int, tuple[Any, ...]]:
    """Return incarnation -> the known racks, which the placement of every topic depends on."""
    return {number: (dict(one.racks), one.rackless) for number, one in shared.items()}


# -- the command ---------------------------------------------------------------------------------------------


def run(options: argparse.Namespace) -> int:
    """Print assignments, or with --what-if the effect on partitions. Raises UsageError."""
    down = [_broker(text) for text in options.what_if or ()]
    at = parsed_moment(options.at, "--at") if options.at else None
    if "topic_assignments" not in analysis.present(options.tables):
        raise UsageError(
            f"--tables {options.tables} has no topic_assignments; run `kafka-audit audit` on it first"
        )
    tables = analysis.opened(
        options.tables, ("partition_timeline", "cluster_facts") if down else ("topic_assignments",)
    )
    if down:
        lines = _effects(tables, options, down, at)
    else:
        rows = analysis.rows_of(tables, "topic_assignments", options.cluster, options.topic)
        if at is not None:
            rows = [row for row in rows if analysis.covers(row, at)]
        rows.sort(
            key=lambda r: (
                r["cluster"],
                r["incarnation"],
                r["topic"],
                r["valid_from"] is not None,
                r["valid_from"],
            )
        )
        lines = _json(rows) if options.json else _text(rows)
    terminal.show(lines, styled=False)
    return errors.CLEAN


def _broker(text: str) -> int:
    name, _, rest = text.partition("=")
    number, _, state = rest.partition(":")
    if name != "broker" or not number.isdecimal() or state != "down":
        raise UsageError(f"--what-if {text}: give it as broker=3:down")
    return int(number)


def _json(rows: Iterable[Mapping[str, Any]]) -> Iterator[str]:
    for row in rows:
        yield json.dumps({name: analysis.plain(value) for name, value in row.items()})


def _text(rows: list[dict[str, Any]]) -> Iterator[str]:
    for name in sorted({row["cluster"] for row in rows}):
        mine = [row for row in rows if row["cluster"] == name]
        yield f"Assignments of {visible(name)}"
        heads = (
            "topic",
            "since",
            "",
            "parts",
            "RF",
            "placement",
            "start",
            "shift",
            "racks",
            "skew",
            "leaders",
        )
        yield from analysis.text_table(heads, [_cells(row) for row in mine], terminal.width())
        yield ""
        for row in mine:
            yield f"{visible(row['topic'])} {_since(row['valid_from'])}: {row['reason']}"
            if row["valid_to"] is None:
                yield from (f"  ! {text}" for text in row["violations"])
        yield ""
        yield "Brokers now"
        yield from analysis.text_table(
            ("broker", "replicas", "first replicas", "topics"), _load(mine), terminal.width()
        )
        yield ""


def _cells(row: Mapping[str, Any]) -> list[Any]:
    aware = {True: "aware", False: "unaware", None: "?"}[row["rack_aware"]]
    return [
        row["topic"],
        _since(row["valid_from"]),
        row["cause"],
        row["partitions"],
        row["replication_factor"],
        row["placement"],
        row["start_index"],
        row["shift"],
        aware,
        row["replicas_skew"],
        row["leaders_skew"],
    ]


def _since(began: datetime | None) -> str:
    return moment(began) if began else "before the logs"


def _load(rows: Iterable[Mapping[str, Any]]) -> list[list[int]]:
    """Return rows of broker, replicas, first replicas and topics, of the latest assignments."""
    replicas: dict[int, int] = {}
    leaders: dict[int, int] = {}
    topics: dict[int, set[tuple[int, str]]] = {}
    for row in rows:
        if row["valid_to"] is None:
            for entry in row["assignment"]:
                for at, broker in enumerate(entry["replicas"]):
                    replicas[broker] = replicas.get(broker, 0) + 1
                    leaders[broker] = leaders.get(broker, 0) + (at == 0)
                    topics.setdefault(broker, set()).add((row["incarnation"], row["topic"]))
    return [[broker, replicas[broker], leaders[broker], len(topics[broker])] for broker in sorted(replicas)]


def _effects(
    tables: Tables, options: argparse.Namespace, down: list[int], at: datetime | None
) -> Iterator[str]:
    """Return the lines of --what-if, for the state at a moment or the last known one."""
    from jobs.nightly import min_isr

    rows = analysis.rows_of(
        tables, "partition_timeline", options.cluster, options.topic, "true" if at else "valid_to IS NULL"
    )
    rows = [row for row in rows if at is None or analysis.covers(row, at)]
    last = {
        name: max(r["incarnation"] for r in rows if r["cluster"] == name)
        for name in {r["cluster"] for r in rows}
    }
    rows = [row for row in rows if row["incarnation"] == last[row["cluster"]]]
    if unknown := set(down) - {broker for row in rows for broker in row["replicas"] or ()}:
        raise UsageError(f"--what-if: no partition has a replica on broker {min(unknown)}")
    for name in sorted(last):
        mine = [row for row in rows if row["cluster"] == name]
        (known,) = analysis.rows_where(tables, "cluster_facts", f"cluster = {quoted(name)}")
        settings = min_isr.from_lines(
            ClusterFacts.from_json(known["facts"]).settings_by_number.get(last[name], ())
        )
        effects = what_if(mine, down, {row["topic"]: settings.of(row["topic"]) for row in mine})
        yield from (
            _json_effects(name, effects) if options.json else _text_effects(name, effects, down, len(mine))
        )


def _json_effects(name: str, effects: Iterable[Effect]) -> Iterator[str]:
    for effect in effects:
        yield json.dumps({"cluster": name} | vars(effect))


def _text_effects(name: str, effects: list[Effect], down: list[int], partitions: int) -> Iterator[str]:
    counts = ", ".join(f"{sum(e.effect == kind for e in effects)} {EFFECT_WORDS[kind]}" for kind in EFFECTS)
    yield f"{visible(name)} without broker {', '.join(map(str, down))}: of {partitions} partitions {counts}"
    if effects:
        cells = [
            [
                f"{e.topic}-{e.partition}",
                EFFECT_WORDS[e.effect],
                e.leader,
                e.new_leader,
                ",".join(map(str, e.isr)) or "none",
                e.min_isr,
            ]
            for e in effects
        ]
        yield from analysis.text_table(
            ("partition", "effect", "leader", "then", "ISR left", "min ISR"), cells, terminal.width()
        )
    yield ""
