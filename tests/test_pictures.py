"""Pictures of the report: what they say is there for those who cannot see them, whatever the logs hold."""

from datetime import UTC, date, datetime, timedelta
from xml.etree import ElementTree

import pytest
from markupsafe import Markup

from jobs.pictures import (
    BINS,
    DAYS,
    TOPICS,
    Durability,
    Night,
    Span,
    Step,
    Strip,
    TopicDay,
    durability_bars,
    heat_map,
    night_strip,
    partition_strip,
)

BEGIN = datetime(2026, 11, 20, 10, 0, tzinfo=UTC)
NASTY = "<script>alert('x')</script>\u202egnp\x1b&\"" + "x" * 249


def at(minutes: float) -> datetime:
    """So many minutes after BEGIN."""
    return BEGIN + timedelta(minutes=minutes)


def night() -> Night:
    """One hour of three brokers of which one was killed."""
    return Night(
        span=Span(at(0), at(60)),
        terms=[(at(0), 1), (at(30), 2)],
        outages={3: [Span(at(20), at(25), "crashed")]},
        brokers=3,
        counts={"ISR shrinks": [0] * 40 + [4] + [0] * (BINS - 41)},
        out_of_sync={3: {at(0): 4, at(120): 1}},
    )


def svg(picture: Markup) -> ElementTree.Element:
    """The drawing, which must be well formed."""
    text = str(picture)
    return ElementTree.fromstring(text[text.index("<svg") : text.index("</svg>") + 6])


def texts(picture: Markup, kind: str) -> list[str]:
    """What its elements of a kind hold."""
    return [element.text or "" for element in svg(picture).iter(f"{{http://www.w3.org/2000/svg}}{kind}")]


def test_a_night() -> None:
    findings = [{"anchor": "abc", "severity": "error", "title": "Broker down: broker 3", "first_seen": at(20)}]
    picture = night_strip("n", "payments", night(), findings)
    titles = texts(picture, "title")
    assert "payments: 11-20 10:00:00 to 11-20 11:00:00 UTC" in titles
    assert "broker 3 process ended 11-20 10:20:00 to 11-20 10:25:00" in titles
    assert texts(picture, "desc") == ["2 controller terms, 1 outages of 1 of 3 brokers, 1 findings."]
    assert "2 more brokers" in texts(picture, "text")
    assert 'href="#abc"' in picture
    assert "<td>process ended</td>" in picture


def test_a_partition() -> None:
    steps = [
        Step(at(0), at(20), 3, (3, 1), (3, 1), (), (), None),
        Step(at(20), at(25), -1, (3,), (3, 1), (), (), None),
        Step(at(25), at(40), 3, (3,), (3, 1, 2), (2,), (1,), "A"),
    ]
    picture = partition_strip("p", Strip("orders", 0, steps, {1: [Span(at(20), at(30), "OfflineReplica")]}, [at(20)]))
    titles = texts(picture, "title")
    assert "no leader from 11-20 10:20:00" in titles
    assert "replica 1 not in the ISR from 11-20 10:20:00" in titles
    assert "OfflineReplica from 11-20 10:20:00" in titles
    assert "being added" in titles
    assert "phase A from 11-20 10:25:00" in titles
    assert "a record that proves it, 11-20 10:20:00" in titles
    assert texts(picture, "desc") == ["3 intervals of replicas 1, 2, 3; 300 s without a leader."]


def test_a_heat_map_has_hours_without_any() -> None:
    picture = heat_map("h", night())
    assert picture is not None
    assert [title for title in texts(picture, "title") if "partition(s)" in title] == [
        "broker 3, 11-20 10:00: 4 partition(s)",
        "broker 3, 11-20 11:00: 0 partition(s)",
        "broker 3, 11-20 12:00: 1 partition(s)",
    ]
    assert heat_map("h", Night(Span(at(0), at(60)))) is None


def durable(*days: TopicDay, topics: int = 0) -> Durability:
    """Of these topics, or of more."""
    return Durability(list(days), topics or len({one.topic for one in days}))


def widths(picture: Markup, kind: str) -> list[float]:
    """Of the bars of a kind, without the one in the legend."""
    boxes = svg(picture).iter("{http://www.w3.org/2000/svg}rect")
    return [float(box.attrib["width"]) for box in boxes if box.attrib["class"] == f"durable {kind}"][:-1]


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
    assert texts(picture, "desc") == ["2 topics, those first that were longest without a leader or below min ISR."]
    across = (1000 - 150 - 10) / 2 - 6
    # full ISR: of three bars, the widest gives what a sliver takes
    assert widths(picture, "full_isr") == pytest.approx([across * 0.9, across * 0.5, across - 2], abs=0.1)
    assert widths(picture, "under_replicated") == pytest.approx([across * 0.3], abs=0.1)
    assert widths(picture, "leaderless") == pytest.approx([across * 0.2, 2.0], abs=0.1)
    assert widths(picture, "unknown") == pytest.approx([across * 0.1], abs=0.1)
    assert widths(picture, "below_min_isr") == pytest.approx([across * 0.25], abs=0.1)
    titles = set(texts(picture, "title"))
    assert "orders, 2026-11-20: 50.0 % full ISR, 30.0 % under-replicated, 20.0 % no leader; below min ISR 250.000 s" in titles
    assert "payments, 2026-11-20: 99.9 % full ISR, < 0.1 % no leader" in titles
    assert [text for text in texts(picture, "text") if text.startswith("2026")] == ["2026-11-19", "2026-11-20"]
    assert "<td>99,999.999</td>" in picture
    assert "more topics" not in picture


def test_many_topics_are_a_picture_all_the_same() -> None:
    days = [TopicDay(f"t{n}", date(2026, 11, d), 1, 1.0, 1.0, 1.0, 1.0, 1.0) for n in range(TOPICS) for d in range(14, 14 + DAYS)]
    picture = durability_bars("d", durable(*days, topics=5000))
    assert len(picture) < 200_000
    said = "4,988 more topics, which were better off: kafka-audit durability --tables DIR"
    assert said in texts(picture, "text")
    assert texts(picture, "desc")[0].startswith("12 of 5000 topics, those first")


def test_whatever_names_hold() -> None:
    steps = [Step(at(0), at(20), 3, (3,), (3,), (), (), None)]
    for picture in (
        night_strip("n", NASTY, night(), [{"anchor": "a", "severity": "error", "title": NASTY, "first_seen": at(1)}]),
        partition_strip("p", Strip(NASTY, 0, steps, {3: [Span(at(0), at(1), NASTY)]}, [])),
        durability_bars("d", durable(TopicDay(NASTY, date(2026, 11, 20), 1, 1.0, 1.0, 1.0, 1.0, 1.0))),
    ):
        assert "<script" not in picture
        assert "\u202e" not in picture
        assert "\x1b" not in picture
        assert max(map(len, [*texts(picture, "title"), *texts(picture, "text")])) <= 250
        svg(picture)


def test_hundreds_of_brokers_are_a_page_all_the_same() -> None:
    many = {broker: [Span(at(1), at(2), "session_lost")] for broker in range(1000)}
    picture = night_strip("n", "c", Night(Span(at(0), at(60)), outages=many, brokers=1000), [])
    assert len(picture) < 60_000
    assert "960 more brokers" in texts(picture, "text")
