"""Timelines of about ten log lines each, with their rows: tests/timeline_cases/*.txt.

A case begins with what it shows; `== node-1/controller.log` heads lines of a file; what follows `== rows` is
compared, and written by `pytest --rewrite`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest
from logs import events_of, moment
from runs import Runs
from timelines import Timelines, facts_of, timelines_of

from jobs.timelines import CHECKPOINT, Event, controllers

CASES = sorted((Path(__file__).parents[1] / "timeline_cases").glob("*.txt"))
ROWS = "== rows\n"


def read(case: Path) -> tuple[str, list[Event], str]:
    """Return (the text before the rows, the events of its lines, the rows)."""
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
    """Return `10:00:01.000`; `..` for None."""
    at = moment(ts)
    return "..".ljust(12) if at is None else f"{at:%H:%M:%S}.{at.microsecond // 1000:03d}"


def ids(some: Iterable[int] | None) -> str:
    """Return `1,2,3`; `-` for no ids; `?` for unknown ids."""
    return "?" if some is None else ",".join(map(str, some)) or "-"


def value(one: Any) -> str:
    """Return a value as text; `?` for an unknown value."""
    return "?" if one is None else str(one)


class Rendering:
    """Rows as text; records by their file and line."""

    def __init__(self, events: Iterable[Event]) -> None:
        self.lines = {e.record_id: f"{e.file.removeprefix('node-')}:{e.record_no}" for e in events}

    def of(self, timelines: Timelines) -> Iterator[str]:
        """Yield the lines of all tables that have rows."""
        for key, folded in sorted(timelines.folded.items()):
            first = f"{key.topic}-{key.partition}" + (
                f" incarnation {key.incarnation}" if key.incarnation > 1 else ""
            )
            yield first
            yield from map(self.partition, folded.partitions)
            yield from map(self.replica, sorted(folded.replicas))
            yield from map(self.reassignment, folded.reassignments)
        yield from map(self.controller, controllers(timelines.facts))
        yield from map(self.deletion, sorted(timelines.deletions, key=repr))
        yield from map(self.discontinuity, timelines.discontinuities)

    def partition(self, row: tuple[Any, ...]) -> str:
        (
            step,
            since,
            until,
            leader,
            leader_epoch,
            isr,
            epoch,
            *assigned,
            state,
            phase,
            inferred,
            record,
            source,
            _,
        ) = row
        values = f"leader {value(leader)} epoch {value(leader_epoch)} isr {ids(isr)} partition epoch {value(epoch)}"
        moved = " ".join(
            f"{name} {ids(some)}" for name, some in zip(("RS", "AR", "RR"), assigned, strict=True)
        )
        marks = " ".join(
            filter(None, (phase, "inferred" if inferred else "", source if source != "logs" else ""))
        )
        return (
            f"  {step} {time(since)} {time(until)} {values} {moved} {value(state)} {marks}".rstrip()
            + f" <{self.lines[record]}>"
        )

    def replica(self, row: tuple[Any, ...]) -> str:
        replica, step, since, until, state, in_isr, inferred, record, _ = row
        marks = {True: " in ISR", False: " not in ISR", None: ""}[in_isr] + (" inferred" if inferred else "")
        return (
            f"  replica {replica}: {step} {time(since)} {time(until)} {state}{marks} <{self.lines[record]}>"
        )

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
        _, topic, partition, replica, at, node, epoch, left, left_since, found, cause, record, left_record = (
            row
        )
        what = f"{topic}-{partition}" + ("" if replica is None else f" replica {replica}")
        where = f"{time(at)} node {value(node)} epoch {value(epoch)} {left} since {time(left_since)} found {found}"
        return f"discontinuity of {what} {where}: {cause} <{self.lines[record]}> after <{self.lines[left_record]}>"


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.stem)
def test_rows(case: Path, request: pytest.FixtureRequest) -> None:
    before, events, expected = read(case)
    found = "".join(line + "\n" for line in Rendering(events).of(timelines_of(events)))
    if request.config.getoption("--rewrite"):
        case.write_text(before + ROWS + found, "utf-8")
    else:
        assert found == expected


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.stem)
def test_a_run_for_every_line(case: Path) -> None:
    """One run over all lines gives the same rows as a run for each line, in order and in reverse order."""
    _, events, _ = read(case)
    at_once, one_by_one, backwards = Runs(), Runs(), Runs()
    at_once.run(events)
    order = facts_of(events).order
    by_record: dict[str, list[Event]] = {}
    for e in sorted(
        events,
        key=lambda e: (e.ts or 0, 0, -1, e.record_no, e.item) if e.event_type == CHECKPOINT else order(e),
    ):
        by_record.setdefault(e.record_id, []).append(e)
    for some in by_record.values():
        one_by_one.run(some)
    for some in reversed(by_record.values()):
        backwards.run(some)
    assert one_by_one.rows() == at_once.rows()
    assert backwards.rows() == at_once.rows()


def test_no_case_is_lost(request: pytest.FixtureRequest) -> None:
    """The list names each case, so that an accidental deletion or renaming fails."""
    listed = Path(__file__).parents[1] / "timeline_cases" / "cases.list"
    found = "".join(f"{case.stem}\n" for case in CASES)
    if request.config.getoption("--rewrite"):
        listed.write_text(found, "utf-8")
    assert found == listed.read_text("utf-8"), "if that is right, run `pytest --rewrite` and review the diff"


def test_a_late_checkpoint_affects_only_its_partitions() -> None:
    """Only they are folded again.

    A repeated checkpoint is nothing new, and times that the logs show do not change.
    """
    _, events, _ = read(Path(__file__).parents[1] / "timeline_cases" / "checkpoint-begins.txt")
    lines = [e for e in events if e.event_type != CHECKPOINT]
    others = [
        e._replace(record_id=f"{e.record_id}-{n}", topic=f"other-{n}")
        for e in lines
        if e.partition is not None
        for n in range(5)
    ]
    late, at_once = Runs(), Runs()
    late.run([*lines, *others])
    assert (late.counts["folds"], late.counts["from the beginning"]) == (6, 0)
    checkpoints = [e for e in events if e.event_type == CHECKPOINT]
    late.run(checkpoints)
    # lines about t-0 are later, there is none about t-1
    assert (late.counts["folds"], late.counts["from the beginning"], late.counts["whole"]) == (8, 0, 0)
    at_once.run([*lines, *others, *checkpoints])
    assert late.rows() == at_once.rows()
    assert {
        key.topic for key, (rows, _, _) in late.rows().items() if any(row[-1] == "describe" for row in rows)
    } == {"t"}
