"""Build small tables of cluster facts for checks, in plain Python."""

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from jobs.nightly import min_isr
from jobs.timelines import (
    CONTROLLER_LOG,
    SERVER_LOG,
    STATE_CHANGE_LOG,
    ClusterFacts,
    controller_gaps,
    moment_of,
    quorum_terms,
)

MOMENT = pa.timestamp("us", "UTC")
# microseconds; FOREVER is later than any moment of a table
END_OF_TIME = 4_102_444_800_000_000


def logs_seen(facts: Mapping[str, ClusterFacts]) -> pa.Table:
    """Return which of Kafka's logs exist for each node, of any age.

    out: cluster, node (null: unknown), kraft, state_change_log, controller_log, server_log; traced: replica
    states are printed there.
    """
    rows = [
        (
            name,
            node,
            one.kraft_since is not None,
            *(bool(logs & log) for log in (STATE_CHANGE_LOG, CONTROLLER_LOG, SERVER_LOG)),
            node in traced,
        )
        for name, one in facts.items()
        for traced in [{node for _, node in one.evidence.tracers}]
        for node, logs in one.evidence.logs_of_nodes().items()
    ]
    kinds = {"cluster": pa.string(), "node": pa.int32()}
    flags = dict.fromkeys(("kraft", "state_change_log", "controller_log", "server_log", "traced"), pa.bool_())
    return _table(rows, kinds | flags)


def brokers_named(facts: Mapping[str, ClusterFacts]) -> pa.Table:
    """Return the brokers that a controller has named as started or alive.

    out: cluster, incarnation, broker, since: the first time.
    """
    first: dict[tuple[str, int, int], int] = {}
    for name, one in facts.items():
        for number, events in one.events_by_number.items():
            for e in events:
                if e.event_type in ("broker_started", "active_brokers") and e.ts is not None:
                    for broker in e.brokers or ([] if e.broker is None else [e.broker]):
                        key = name, number, broker
                        first[key] = min(first.get(key, e.ts), e.ts)
    rows = [(*key, moment_of(ts)) for key, ts in sorted(first.items())]
    return _table(
        rows, {"cluster": pa.string(), "incarnation": pa.int32(), "broker": pa.int32(), "since": MOMENT}
    )


def logged_min_isr(facts: Mapping[str, ClusterFacts]) -> pa.Table:
    """Return the smallest logged min.insync.replicas.

    out: cluster, incarnation, topic (null: every other topic), min_isr.
    """
    rows = [
        (name, number, topic, value)
        for name, one in facts.items()
        for number, settings in one.settings_by_number.items()
        for topic, value in min_isr.from_lines(settings).smallest().items()
    ]
    return _table(
        rows, {"cluster": pa.string(), "incarnation": pa.int32(), "topic": pa.string(), "min_isr": pa.int32()}
    )


def nodes_heard(facts: Mapping[str, ClusterFacts]) -> pa.Table:
    """Return what the logs of a cluster can show.

    Checks need it for their coverage (`jobs.checking.checks.COVERAGE`).
    out: cluster, incarnation, every_node: there are logs of all nodes that lines name; every_controller:
    there is a controller's log of all possible controllers; heard, unheard: nodes that lines name, with and
    without logs; since: the first line of all; controller: spans in which the decisions of controllers are
    logged, with the last line of each.
    """
    rows = []
    for name, one in facts.items():
        begins = [span.first for span in one.evidence.files.values() if span.first is not None]
        for number in one.numbers:
            named = one.named_by_number.get(number, {})
            rows.append(
                {
                    "cluster": name,
                    "incarnation": number,
                    "every_node": one.hears_every_node(number),
                    "every_controller": one.hears_every_controller(number),
                    "heard": sorted(node for node, known in named.items() if known.logs),
                    "unheard": sorted(node for node, known in named.items() if not known.logs),
                    "since": moment_of(min(begins)) if begins else None,
                    "controller": [
                        {
                            "since": moment_of(span.since),
                            "until": moment_of(min(span.quiet_until, END_OF_TIME)),
                            "last_line": moment_of(span.until),
                        }
                        for span in one.controller_heard.get(number, ())
                    ],
                }
            )
    flags = [("every_node", pa.bool_()), ("every_controller", pa.bool_())]
    lists = [("heard", pa.list_(pa.int32())), ("unheard", pa.list_(pa.int32()))]
    spans = pa.list_(pa.struct([("since", MOMENT), ("until", MOMENT), ("last_line", MOMENT)]))
    columns = [
        ("cluster", pa.string()),
        ("incarnation", pa.int32()),
        *flags,
        *lists,
        ("since", MOMENT),
        ("controller", spans),
    ]
    return pa.Table.from_pylist(rows, schema=pa.schema(columns))


def controller_vacancies(facts: Mapping[str, ClusterFacts]) -> pa.Table:
    """Return the intervals without a controller.

    out: cluster, incarnation, node (whose term ended), since, until (null: unknown), is_end_seen: until is
    the election, evidence: records.
    """
    rows = [
        (name, number, node, moment_of(since), None if until is None else moment_of(until), *rest)
        for name, one in facts.items()
        for number, node, since, until, *rest in controller_gaps(one)
    ]
    kinds = {
        "cluster": pa.string(),
        "incarnation": pa.int32(),
        "node": pa.int32(),
        "since": MOMENT,
        "until": MOMENT,
    }
    return _table(rows, kinds | {"is_end_seen": pa.bool_(), "evidence": pa.list_(pa.string())})


def terms_of_quorum(facts: Mapping[str, ClusterFacts]) -> pa.Table:
    """Return the terms in `controllers` whose epoch is one of the KRaft quorum.

    out: cluster, incarnation, node, controller_epoch.
    """
    rows = [
        (name, number, node, epoch)
        for name, one in facts.items()
        for number, epoch, node in quorum_terms(one)
    ]
    kinds = {
        "cluster": pa.string(),
        "incarnation": pa.int32(),
        "node": pa.int32(),
        "controller_epoch": pa.int32(),
    }
    return _table(rows, kinds)


def _table(rows: Sequence[tuple[Any, ...]], kinds: Mapping[str, pa.DataType]) -> pa.Table:
    return pa.Table.from_pylist(
        [dict(zip(kinds, row, strict=True)) for row in rows], schema=pa.schema(list(kinds.items()))
    )


FRAMES = (logs_seen, nodes_heard, brokers_named, logged_min_isr, controller_vacancies, terms_of_quorum)
