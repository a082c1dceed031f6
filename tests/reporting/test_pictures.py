"""Pictures of the report have a text for those who cannot see them, whatever the logs contain."""

from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from typing import Any
from xml.etree import ElementTree

import pytest
from frames import frame
from markupsafe import Markup

from jobs.engine.database import Database
from jobs.engine.queries import InSpark
from jobs.engine.rows import to_table
from jobs.reporting.pictures import (
    BINS,
    DAYS,
    SLIVER,
    TOPICS,
    DrawnInterval,
    Durability,
    RecentHours,
    Span,
    Strip,
    TopicDay,
    durability_bars,
    heat_map,
    partition_strip,
    read,
    recent_strip,
)

BEGIN = datetime(2026, 11, 20, 10, 0, tzinfo=UTC)
NASTY = "<script>alert('x')</script>\u202egnp\x1b&\"" + "x" * 249


def at(minutes: float) -> datetime:
    """Return BEGIN plus some minutes."""
    return BEGIN + timedelta(minutes=minutes)


def recent_hours() -> RecentHours:
    """One hour of three brokers of which one was killed."""
    return RecentHours(
        span=Span(at(0), at(60)),
        terms=[(at(0), 1), (at(30), 2)],
        outages={3: [Span(at(20), at(25), "crashed")]},
        brokers=3,
        counts={"ISR shrinks": [0] * 40 + [4] + [0] * (BINS - 41)},
        out_of_sync={3: {at(0): 4, at(120): 1}},
    )


def svg(picture: Markup) -> ElementTree.Element:
    """The figure, which must be well formed."""
    return ElementTree.fromstring(str(picture))


def texts(picture: Markup, kind: str) -> list[str]:
    """Return the texts of its elements of a kind."""
    return [element.text or "" for element in svg(picture).iter(f"{{http://www.w3.org/2000/svg}}{kind}")]


def test_recent_hours() -> None:
    findings = [
        {"anchor": "abc", "severity": "error", "title": "Broker down: broker 3", "first_seen": at(20)}
    ]
    picture = recent_strip("n", "payments", recent_hours(), findings)
    titles = texts(picture, "title")
    assert "What happened in payments, 2026-11-20 10:00:00 UTC to 11:00:00 UTC" in titles
    assert "broker 3 process ended, 11-20 10:20:00 to 11-20 10:25:00" in titles
    assert texts(picture, "desc") == ["2 controller terms, 1 outage of 1 of 3 brokers, 1 finding."]
    assert "2 more brokers" in texts(picture, "text")
    assert 'href="#abc"' in picture
    assert "<td>process ended</td>" in picture


def test_a_term_ends_when_its_controller_resigns() -> None:
    """The strip does not show a controller while there is none."""
    resigned = replace(recent_hours(), terms=[(at(0), 1), (at(50), 1)], ends=[(at(10), 1), (at(15), 3)])
    titles = texts(recent_strip("n", "payments", resigned, []), "title")
    assert "controller 1, 11-20 10:00:00 to 11-20 10:10:00" in titles
    assert "controller 1, 11-20 10:50:00 to 11-20 11:00:00" in titles


def test_a_partition() -> None:
    steps = [
        DrawnInterval(Span(at(0), at(20)), 3, None, (3, 1), (3, 1)),
        DrawnInterval(Span(at(20), at(25)), -1, None, (3,), (3, 1)),
        DrawnInterval(Span(at(25), at(40)), 3, "A", (3,), (3, 1, 2), (2,), (1,)),
    ]
    picture = partition_strip(
        "p", Strip("orders", 0, steps, {1: [Span(at(20), at(30), "OfflineReplica")]}, [at(20)])
    )
    titles = texts(picture, "title")
    assert "no leader, 11-20 10:20:00 to 11-20 10:25:00" in titles
    assert "replica 1 not in the ISR, 11-20 10:20:00 to 11-20 10:25:00" in titles
    assert "OfflineReplica, 11-20 10:20:00 to 11-20 10:30:00" in titles
    assert "being added, 11-20 10:25:00 to 11-20 10:40:00" in titles
    assert "phase A, 11-20 10:25:00 to 11-20 10:40:00" in titles
    assert "a record that proves it, 11-20 10:20:00" in titles
    assert texts(picture, "desc") == ["3 intervals of replicas 1, 2, 3; 300 s without a leader."]


def test_a_heat_map_has_hours_without_any() -> None:
    picture = heat_map("h", recent_hours())
    assert picture is not None
    assert [title for title in texts(picture, "title") if title.startswith("broker")] == [
        "broker 3, 11-20 10:00: 4 partitions",
        "broker 3, 11-20 11:00: 0 partitions",
        "broker 3, 11-20 12:00: 1 partition",
    ]
    assert heat_map("h", RecentHours(Span(at(0), at(60)))) is None


def durable(*days: TopicDay, topics: int = 0) -> Durability:
    """Of these topics, or of more."""
    return Durability(list(days), topics or len({one.topic for one in days}))


def widths(picture: Markup, kind: str) -> list[float]:
    """Of the bars of a kind, in per cent; those of the key are in pixels."""
    boxes = svg(picture).iter("{http://www.w3.org/2000/svg}rect")
    shares = [box.attrib["width"] for box in boxes if box.attrib["class"] == f"durable {kind}"]
    return [float(share.removesuffix("%")) for share in shares if share.endswith("%")]


def test_durability() -> None:
    day, before = date(2026, 11, 20), date(2026, 11, 19)
    picture = durability_bars(
        "d",
        durable(
            TopicDay("orders", before, 3, 900.0, 0.0, 0.0, 100.0, 0.0),
            TopicDay("orders", day, 3, 500.0, 300.0, 200.0, 0.0, 250.0),
            TopicDay("payments", day, 1, 99999.999, 0.0, 0.001, 0.0, 0.0),
        ),
    )
    assert texts(picture, "desc") == [
        "2 topics, those first that were longest without a leader or below min ISR."
    ]
    across = 100 / 2 * 0.96
    # full ISR: of three bars, the widest gives what a sliver takes
    assert widths(picture, "full_isr") == pytest.approx(
        [across * 0.9, across * 0.5, across - SLIVER], abs=0.1
    )
    assert widths(picture, "under_replicated") == pytest.approx([across * 0.3], abs=0.1)
    assert widths(picture, "leaderless") == pytest.approx([across * 0.2, SLIVER], abs=0.1)
    assert widths(picture, "unknown") == pytest.approx([across * 0.1], abs=0.1)
    assert widths(picture, "below_min_isr") == pytest.approx([across * 0.25], abs=0.1)
    titles = set(texts(picture, "title"))
    assert (
        "orders, 2026-11-20: 50.0 % full ISR, 30.0 % under-replicated, 20.0 % no leader; below min ISR 250.000 s"
        in titles
    )
    assert "payments, 2026-11-20: 99.9 % full ISR, < 0.1 % no leader" in titles
    assert [text for text in texts(picture, "text") if text.startswith("11-")] == ["11-19", "11-20"]
    assert "<td>99,999.999</td>" in picture
    assert "more topics" not in picture


def test_many_topics_are_drawn_in_part() -> None:
    days = [
        TopicDay(f"t{n}", date(2026, 11, d), 1, 1.0, 1.0, 1.0, 1.0, 1.0)
        for n in range(TOPICS)
        for d in range(14, 14 + DAYS)
    ]
    picture = durability_bars("d", durable(*days, topics=5000))
    assert len(picture) < 200_000
    said = "4,988 more topics, which were better off: kafka-audit durability --tables DIR"
    assert said in picture
    assert texts(picture, "desc")[0].startswith("12 of 5,000 topics, those first")


def test_names_are_escaped() -> None:
    steps = [DrawnInterval(Span(at(0), at(20)), 3, None, (3,), (3,))]
    for picture in (
        recent_strip(
            "n",
            NASTY,
            recent_hours(),
            [{"anchor": "a", "severity": "error", "title": NASTY, "first_seen": at(1)}],
        ),
        partition_strip("p", Strip(NASTY, 0, steps, {3: [Span(at(0), at(1), NASTY)]}, [])),
        durability_bars("d", durable(TopicDay(NASTY, date(2026, 11, 20), 1, 1.0, 1.0, 1.0, 1.0, 1.0))),
    ):
        assert "<script" not in picture
        assert "\u202e" not in picture
        assert "\x1b" not in picture
        assert max(map(len, [*texts(picture, "title"), *texts(picture, "text")])) <= 250
        svg(picture)


def test_hundreds_of_brokers_are_drawn_in_part() -> None:
    many = {broker: [Span(at(1), at(2), "session_lost")] for broker in range(1000)}
    picture = recent_strip("n", "c", RecentHours(Span(at(0), at(60)), outages=many, brokers=1000), [])
    assert len(picture) < 70_000
    assert "960 more brokers" in texts(picture, "text")


TABLES = {
    "audited_events": {"cluster": "STRING", "ts": "TIMESTAMP", "event_type": "STRING", "controller": "INT", "node": "INT", "item": "INT", "record_id": "STRING"},
    "audited_controllers": {"cluster": "STRING", "node": "INT", "resigned_at": "TIMESTAMP"},
    "audited_broker_outages": {"cluster": "STRING", "broker": "INT", "since": "TIMESTAMP", "until": "TIMESTAMP", "how": "STRING"},
    "audited_partition_timeline": {
        "cluster": "STRING", "incarnation": "INT", "topic": "STRING", "partition": "INT", "step": "INT", "valid_from": "TIMESTAMP", "valid_to": "TIMESTAMP",
        "leader": "INT", "isr": "ARRAY<INT>", "replicas": "ARRAY<INT>", "adding_replicas": "ARRAY<INT>", "removing_replicas": "ARRAY<INT>", "reassignment_phase": "STRING",
    },
    "audited_partitions_now": {"cluster": "STRING", "replicas": "ARRAY<INT>"},
    "audited_replica_timeline": {
        "cluster": "STRING", "incarnation": "INT", "topic": "STRING", "partition": "INT", "replica": "INT", "step": "INT", "state": "STRING", "valid_from": "TIMESTAMP",
        "valid_to": "TIMESTAMP",
    },
    "audited_reassignments": {"cluster": "STRING", "started_at": "TIMESTAMP", "completed_at": "TIMESTAMP", "outcome": "STRING"},
    "partition_episodes": {
        "cluster": "STRING", "kind": "STRING", "topic": "STRING", "partition": "INT", "replica": "INT", "since": "TIMESTAMP", "until": "TIMESTAMP",
    },
    "audited_durability": {"cluster": "STRING", "topic": "STRING", "day": "DATE"} | dict.fromkeys(TopicDay._fields[2:], "DOUBLE"),
}  # fmt: skip


@pytest.mark.spark
@pytest.mark.parametrize("engine", ["Spark", "DuckDB"])
def test_pictures_are_read_from_tables(spark: Any, engine: str) -> None:
    """A day and an hour of one cluster, of which the newest day is shown.

    Another cluster without a time stamp.
    """
    one = {"cluster": "payments", "topic": "orders", "partition": 0, "incarnation": 1}
    day = BEGIN + timedelta(days=1)
    rows: dict[str, list[dict[str, Any]]] = {name: [] for name in TABLES}
    rows["audited_events"] = [
        {
            "cluster": "payments",
            "ts": str(BEGIN - timedelta(hours=1)),
            "event_type": "controller_elected",
            "controller": 1,
        },
        {"cluster": "payments", "ts": str(day), "record_id": "e1", "item": 0},
        {"cluster": "bare"},
    ]
    rows["audited_broker_outages"] = [
        {"cluster": "payments", "broker": 3, "since": str(at(60)), "how": "crashed"},
        {
            "cluster": "payments",
            "broker": 2,
            "since": str(at(-50)),
            "until": str(at(-40)),
            "how": "shut_down",
        },
    ]
    steps = [(1, at(-60), at(60), 3, [3, 1]), (2, at(60), at(120), 1, [1]), (3, at(120), None, 1, [1, 3])]
    rows["audited_partition_timeline"] = [
        one
        | {
            "step": n,
            "valid_from": str(since),
            "valid_to": until and str(until),
            "leader": leader,
            "isr": isr,
            "replicas": [3, 1],
        }
        for n, since, until, leader, isr in steps
    ]
    rows["audited_partitions_now"] = [{"cluster": "payments", "replicas": [3, 1]}]
    rows["audited_reassignments"] = [
        {"cluster": "payments", "started_at": str(at(0)), "completed_at": str(at(15)), "outcome": "completed"}
    ]
    spell = {"kind": "out_of_sync", "cluster": "payments", "topic": "orders", "partition": 0, "replica": 3}
    rows["partition_episodes"] = [spell | {"since": str(at(60)), "until": str(at(120))}]
    queries = InSpark(spark) if engine == "Spark" else Database()
    for name, types in TABLES.items():
        queries.view(
            name,
            frame(spark, types, rows[name])
            if engine == "Spark"
            else to_table(frame(spark, types, rows[name])),
        )
    found = {
        "cluster": "payments",
        "incarnation": 1,
        "fingerprint": "f",
        "subject": ("orders", 0),
        "evidence": ["e1"],
    }
    pictures = read(queries, ["payments", "bare"], [found | {"first_seen": at(60), "last_seen": at(120)}])
    assert set(pictures.recent) == {"payments"}
    recent = pictures.recent["payments"]
    assert recent.span == Span(BEGIN, day)
    assert recent.terms == [(at(-60), 1)]
    assert recent.outages == {3: [Span(at(60), day, "crashed")]}
    assert recent.brokers == 3
    quarters = {
        what: [n for n, count in enumerate(counts) if count] for what, counts in recent.counts.items()
    }
    assert quarters == {"ISR shrinks": [4], "ISR expansions": [8], "Elections": [4], "Reassignments": [0, 1]}
    assert recent.out_of_sync == {3: {at(60): 1, at(120): 1}}
    strip = pictures.strips["f"]
    assert [(step.leader, step.isr) for step in strip.steps] == [(3, (3, 1)), (1, (1,)), (1, (1, 3))]
    assert strip.steps[0].span.since == at(45)
