"""Pictures of the report: what they say is there for those who cannot see them, whatever the logs hold."""

from datetime import UTC, datetime, timedelta
from xml.etree import ElementTree

from markupsafe import Markup

from jobs.pictures import BINS, Night, Span, Step, Strip, heat_map, night_strip, partition_strip

BEGIN = datetime(2026, 11, 20, 10, 0, tzinfo=UTC)
NASTY = "<script>alert('x')</script>\u202egnp\x1b&\"" + "x" * 249


def at(minutes: float) -> datetime:
    """So many minutes after BEGIN."""
    return BEGIN + timedelta(minutes=minutes)


def night() -> Night:
    """One hour of three brokers of which one crashed."""
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
    assert "broker 3 crashed 11-20 10:20:00 to 11-20 10:25:00" in titles
    assert texts(picture, "desc") == ["2 controller terms, 1 outages of 1 of 3 brokers, 1 findings."]
    assert "2 more brokers" in texts(picture, "text")
    assert 'href="#abc"' in picture
    assert "<td>crashed</td>" in picture


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


def test_whatever_names_hold() -> None:
    steps = [Step(at(0), at(20), 3, (3,), (3,), (), (), None)]
    for picture in (
        night_strip("n", NASTY, night(), [{"anchor": "a", "severity": "error", "title": NASTY, "first_seen": at(1)}]),
        partition_strip("p", Strip(NASTY, 0, steps, {3: [Span(at(0), at(1), NASTY)]}, [])),
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
