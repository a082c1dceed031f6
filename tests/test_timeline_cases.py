"""Timelines of some ten log lines each, beside the rows that they give: tests/timeline_cases/*.txt.

A case begins with what it shows; `== node-1/controller.log` heads lines of a file; what follows `== rows` is compared, and written by
`pytest --rewrite`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest
from logs import events_of, moment
from nights import Nights
from timelines import Told, facts_of, tell

from jobs.timelines import CHECKPOINT, Event, controllers

CASES = sorted((Path(__file__).parent / "timeline_cases").glob("*.txt"))
ROWS = "== rows\n"


def read(case: Path) -> tuple[str, list[Event], str]:
    """(what stands before the rows, the events of its lines, the rows)"""
    text, _, rows = case.read_text("utf-8").partition(ROWS)
    files: dict[str, str] = {}
    name = ""
    for line in text.splitlines():
        if line.startswith("== "):
            name = line.removeprefix("== ")
            files[name] = ""
        elif name and line:
            files[name] += line + "\n"
    return text, events_of(files), rows


def time(ts: int | None) -> str:
    """`10:00:01.000`; `..` where there is none."""
    at = moment(ts)
    return "..".ljust(12) if at is None else f"{at:%H:%M:%S}.{at.microsecond // 1000:03d}"


def ids(some: Iterable[int] | None) -> str:
    """`1,2,3`; `-` of none; `?` where they are not known."""
    return "?" if some is None else ",".join(map(str, some)) or "-"


def value(one: Any) -> str:
    """`?` where it is not known."""
    return "?" if one is None else str(one)


class Rendering:
    """Rows as text; records by their file and line."""

    def __init__(self, events: Iterable[Event]) -> None:
        self.lines = {e.record_id: f"{e.file.removeprefix('node-')}:{e.record_no}" for e in events}

    def of(self, told: Told) -> Iterator[str]:
        """All tables that have rows."""
        for key, folded in sorted(told.folded.items()):
            first = f"{key.topic}-{key.partition}" + (f" incarnation {key.incarnation}" if key.incarnation > 1 else "")
            yield first
            yield from map(self.partition, folded.partitions)
            yield from map(self.replica, sorted(folded.replicas))
            yield from map(self.reassignment, folded.reassignments)
        yield from map(self.controller, controllers(told.facts))
        yield from map(self.deletion, sorted(told.deletions, key=repr))
        yield from map(self.discontinuity, told.discontinuities)

    def partition(self, row: tuple[Any, ...]) -> str:
        step, since, until, leader, leader_epoch, isr, epoch, *assigned, state, phase, inferred, record, source, _ = row
        told = f"leader {value(leader)} epoch {value(leader_epoch)} isr {ids(isr)} partition epoch {value(epoch)}"
        moved = " ".join(f"{name} {ids(some)}" for name, some in zip(("RS", "AR", "RR"), assigned, strict=True))
        marks = " ".join(filter(None, (phase, "inferred" if inferred else "", source if source != "logs" else "")))
        return f"  {step} {time(since)} {time(until)} {told} {moved} {value(state)} {marks}".rstrip() + f" <{self.lines[record]}>"

    def replica(self, row: tuple[Any, ...]) -> str:
        replica, step, since, until, state, in_isr, inferred, record, _ = row
        marks = {True: " in ISR", False: " not in ISR", None: ""}[in_isr] + (" inferred" if inferred else "")
        return f"  replica {replica}: {step} {time(since)} {time(until)} {state}{marks} <{self.lines[record]}>"

    def reassignment(self, row: tuple[Any, ...]) -> str:
        started, caught_up, completed, original, target, adding, removing, outcome, record, _ = row
        moved = f"{ids(original)} to {ids(target)} AR {ids(adding)} RR {ids(removing)}"
        return f"  reassignment {moved} {time(started)} {time(caught_up)} {time(completed)} {outcome} <{self.lines[record]}>"

    def controller(self, row: tuple[Any, ...]) -> str:
        number, node, epoch, elected, resigned, inferred, record, overruled = row
        marks = (" inferred" if inferred else "") + (f" overruled {overruled}" if overruled else "")
        of = f" incarnation {number}" if number > 1 else ""
        return f"controller {node} epoch {epoch}{of} {time(elected)} {time(resigned)}{marks} <{self.lines[record]}>"

    def deletion(self, row: tuple[Any, ...]) -> str:
        _, topic, requested, completed, blocked_by, blocked_since, outcome, record, evidence = row
        blocking = " ".join(f"{partition}/{replica}" for partition, replica in blocked_by)
        blocked = f" blocked by {blocking} since {time(blocked_since)}" if blocking else ""
        proof = " ".join(self.lines[one] for one in evidence)
        return f"deletion of {topic} {time(requested)} {time(completed)} {outcome}{blocked} <{self.lines[record]}> [{proof}]"

    def discontinuity(self, row: tuple[Any, ...]) -> str:
        _, topic, partition, replica, at, node, epoch, held, held_since, found, cause, record, held_record = row
        what = f"{topic}-{partition}" + ("" if replica is None else f" replica {replica}")
        told = f"{time(at)} node {value(node)} epoch {value(epoch)} {held} since {time(held_since)} found {found}"
        return f"discontinuity of {what} {told}: {cause} <{self.lines[record]}> after <{self.lines[held_record]}>"


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.stem)
def test_rows(case: Path, request: pytest.FixtureRequest) -> None:
    before, events, expected = read(case)
    found = "".join(line + "\n" for line in Rendering(events).of(tell(events)))
    if request.config.getoption("--rewrite"):
        case.write_text(before + ROWS + found, "utf-8")
    else:
        assert found == expected


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.stem)
def test_a_night_for_every_line(case: Path) -> None:
    """What one night knows of all lines, many nights know of one each; and of one each that come the last first."""
    _, events, _ = read(case)
    at_once, one_by_one, backwards = Nights(), Nights(), Nights()
    at_once.night(events)
    order = facts_of(events).order
    by_record: dict[str, list[Event]] = {}
    for e in sorted(events, key=lambda e: (e.ts or 0, 0, -1, e.record_no, e.item) if e.event_type == CHECKPOINT else order(e)):
        by_record.setdefault(e.record_id, []).append(e)
    for some in by_record.values():
        one_by_one.night(some)
    for some in reversed(by_record.values()):
        backwards.night(some)
    assert one_by_one.rows() == at_once.rows()
    assert backwards.rows() == at_once.rows()


def test_no_case_is_lost(request: pytest.FixtureRequest) -> None:
    """The list names each case, so that one which is deleted or renamed by accident is missed."""
    listed = Path(__file__).parent / "timeline_cases" / "cases.list"
    found = "".join(f"{case.stem}\n" for case in CASES)
    if request.config.getoption("--rewrite"):
        listed.write_text(found, "utf-8")
    assert found == listed.read_text("utf-8"), "if that is right, run `pytest --rewrite` and review the diff"


def test_a_late_checkpoint_concerns_its_partitions_alone() -> None:
    """They are folded again, no other is; the same once more is nothing new, and one that the logs have told of stays as it is."""
    _, events, _ = read(Path(__file__).parent / "timeline_cases" / "checkpoint-begins.txt")
    lines = [e for e in events if e.event_type != CHECKPOINT]
    others = [
        e._replace(record_id=f"{e.record_id}-{n}", topic=f"other-{n}") for e in lines if e.partition is not None for n in range(5)
    ]
    late, at_once = Nights(), Nights()
    late.night([*lines, *others])
    assert (late.counts["folds"], late.counts["from the beginning"]) == (6, 0)
    told = [e for e in events if e.event_type == CHECKPOINT]
    late.night(told)
    # t-0 has been told of later, t-1 never
    assert (late.counts["folds"], late.counts["from the beginning"], late.counts["whole"]) == (8, 0, 0)
    at_once.night([*lines, *others, *told])
    assert late.rows() == at_once.rows()
    assert {key.topic for key, (rows, _, _) in late.rows().items() if any(row[-1] == "describe" for row in rows)} == {"t"}
