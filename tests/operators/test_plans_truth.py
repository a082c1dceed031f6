"""Plans that were executed on real clusters: the outcome by the logs is that of the truth beside the
recording, at any moment.
"""

from __future__ import annotations

import itertools
import json
import re
from datetime import datetime, timedelta
from functools import cache
from pathlib import Path

import pytest
import truth
from logs import recorded, recordings
from timelines import recorded_timelines, truth_of

from jobs.operators import plans

pytestmark = pytest.mark.shared
MOMENTS = 10
# a line follows its write, and a busy broker logs late: the truth of up to 3 s before counts, too
LATE = timedelta(seconds=3)

# plan -> partitions whose outcome, or a later change, the logs do not show
UNSEEN = {
    "3.7.2-default/reassign/reassign-overlap.json": {("Billing.events", 0)},
    "3.7.2-default/reassign/reassign-shrink-reorder.json": {("Billing.events", 0)},
}


def plan_files(recording: Path) -> list[Path]:
    return sorted(file for file in recording.glob("reassign*.json") if "topics-to-move" not in file.name)


CASES = [(folder, file.name) for folder in recordings() for file in plan_files(folder)]


def offset_from_utc(recording: Path) -> timedelta:
    """Log time minus UTC, of a recording in another time zone."""
    described = recording / "recording.json"
    zone = json.loads(described.read_text()).get("java_time_zone") if described.is_file() else None
    found = re.fullmatch(r"GMT([+-])(\d+):(\d+)", zone or "")
    if not found:
        return timedelta()
    shift = timedelta(hours=int(found[2]), minutes=int(found[3]))
    return shift if found[1] == "+" else -shift


@cache
def rows_of(recording: Path) -> dict[tuple[str, int], list[dict]]:
    """Rows of partition_timeline by partition, in UTC."""
    found: dict[tuple[str, int], list[dict]] = {}
    by = offset_from_utc(recording)
    for row in recorded_timelines(recording).rows():
        for name in ("valid_from", "valid_to"):
            row[name] = row[name] and row[name] - by
        found.setdefault((row["topic"], row["partition"]), []).append(row)
    return found


@cache
def is_old(recording: Path) -> bool:
    """Return whether reassignments are requested in ZooKeeper."""
    return any(event.event_type == "reassignment_requested" for event in recorded(recording))


def past(recording: Path, move: plans.PlannedMove, at: datetime | None = None) -> plans.PartitionHistory:
    return plans.history(rows_of(recording)[move.topic, move.partition], at, ordered=not is_old(recording))


def judged(
    recording: Path, moves: list[plans.PlannedMove], at: datetime | None = None
) -> list[plans.Verdict]:
    return [plans.judge(move, past(recording, move, at)) for move in moves]


@cache
def generations_of(recording: Path) -> dict[tuple[str, int], truth.PartitionGeneration]:
    return {
        (generation.topic, generation.partition): generation for generation in truth_of(recording).generations
    }


def expected(generation: truth.PartitionGeneration, target: tuple[int, ...], at: datetime) -> str:
    """Return the status of a move by the written assignments of a partition."""
    written = [a for a in generation.assignments if a.begun <= at]
    if not written:
        return "not_requested"
    now = written[-1]

    def is_running(a: truth.TrueAssignment) -> bool:
        remaining = tuple(b for b in a.replicas if b not in a.removing)
        return bool(a.adding or a.removing) and (
            remaining == target if a.ordered else set(remaining) == set(target)
        )

    if is_running(now):
        return "running"
    before = [
        a for a in written if is_running(a) or (not (a.adding or a.removing) and a.has_replicas(target))
    ]
    if not (now.adding or now.removing) and now.has_replicas(target):
        return "completed" if any(not a.has_replicas(target) for a in written) else "already_there"
    if not before:
        return "not_requested"
    after = written[written.index(before[-1]) + 1]
    return "cancelled" if is_running(before[-1]) and not (after.adding or after.removing) else "replaced"


def moments(recording: Path, moves: list[plans.PlannedMove]) -> list[datetime]:
    """Return moments from before the first change to the end, half of them between the last changes."""
    begun = sorted(
        {a.begun for move in moves for a in generations_of(recording)[move.topic, move.partition].assignments}
    )
    first, last = begun[0], begun[-1] + timedelta(seconds=5)
    between = [
        after + (before - after) / 2
        for before, after in list(zip(begun[1:], begun, strict=False))[-MOMENTS // 2 :]
    ]
    parts = MOMENTS - len(between)
    return [first + (last - first) * number / parts for number in range(1, parts + 1)] + between


def test_every_recording_with_a_reassignment_has_a_plan() -> None:
    moved = {folder for folder in recordings() if truth.reassignments(truth_of(folder))}
    assert moved
    assert moved == {folder for folder, _ in CASES}


@pytest.mark.parametrize(
    ("recording", "plan"),
    CASES,
    ids=lambda value: value if isinstance(value, str) else "/".join(value.parts[-2:]),
)
def test_the_outcome_of_a_plan_is_that_of_the_truth(recording: Path, plan: str) -> None:
    moves = plans.parse((recording / plan).read_text())
    times = moments(recording, moves)
    unseen = set()
    assert len(set(times)) == MOMENTS
    for at in [*times, None]:
        for move in moves:
            assert move.replicas is not None
            key = move.topic, move.partition
            verdict = plans.judge(move, past(recording, move, at))
            found = verdict.status
            moment = at or max(times) + timedelta(days=1)
            right = {
                expected(generations_of(recording)[key], move.replicas, moment - LATE * late / 10)
                for late in range(11)
            }
            # the verdict says so: KRaft does not log an assignment that only removes or reorders replicas
            if verdict.replicas_unknown and found not in right:
                unseen.add(key)
                continue
            assert found in right, (str(at), key, found)
            if found == "completed" and verdict.completed_at is not None:
                # within 3 s of a write that ended it
                ended = [
                    a.begun
                    for a in generations_of(recording)[key].assignments
                    if not (a.adding or a.removing) and a.has_replicas(move.replicas)
                ]
                assert any(end - LATE <= verdict.completed_at <= end + LATE for end in ended), (
                    str(at),
                    key,
                    verdict.completed_at,
                    ended,
                )
    assert unseen == UNSEEN.get(f"{'/'.join(recording.parts[-2:])}/{plan}", set())


def test_a_move_that_the_logs_do_not_show_is_not_known() -> None:
    """The recording shrinks a partition, which no line shows."""
    (recording,) = (folder for folder, plan in CASES if plan == "reassign-shrink-reorder.json")
    moves = plans.parse((recording / "reassign-shrink-reorder.json").read_text())
    (shrunk,) = (move for move in moves if move.topic == "Billing.events")
    found = plans.judge(shrunk, past(recording, shrunk))
    assert (found.status, found.done, found.replicas_unknown) == ("not_known", False, True)
    assert found.reason.endswith("the logs do not show its replicas; its last known replicas are 12,13,24")
    before = past(recording, shrunk, min(moments(recording, moves)))
    assert before.lost is None
    assert plans.judge(shrunk, before).status == "not_requested"
    at_info = plans.judge(shrunk, before, prints_all=False)
    assert at_info.status == "not_known"
    assert at_info.reason.startswith(
        "KRaft controllers at INFO do not log a reassignment that only removes or reorders replicas; "
    )


VERIFIED = [
    (folder, output.name)
    for folder in recordings()
    for output in sorted([*folder.glob("reassign-*verify*.out"), *folder.glob("reassign-*verify*.txt")])
]


@pytest.mark.parametrize(
    ("recording", "output"),
    VERIFIED,
    ids=lambda value: value if isinstance(value, str) else "/".join(value.parts[-2:]),
)
def test_the_verify_texts_are_those_of_the_tool(recording: Path, output: str) -> None:
    """At one moment between start and end of the tool's run the command prints what the tool printed, byte
    for byte.
    """
    text = (recording / output).read_text()
    lines = [
        line
        for line in text.splitlines()
        if re.match(r"Status of|Reassignment of partition|There is no active|ERROR: Assigned", line)
    ]
    plan, begin, end = executed(recording, output)
    moves = plans.parse((recording / plan).read_text())
    old = lines[0].endswith(" ")
    if any(verdict.replicas_unknown for verdict in judged(recording, moves, end)):
        assert f"{'/'.join(recording.parts[-2:])}/{plan}" in UNSEEN
        return
    printed = set()
    for number in range(21):
        at = begin + (end - begin) * number / 20
        verdicts = judged(recording, moves, at)
        word = "complete" if any(line.endswith("is complete.") for line in lines) else "completed"
        printed.add(plans.verify_old_text(verdicts) if old else plans.verify_text(verdicts, word))
    # up to 0.11 a partition is [orders,0]; 2.5 prints partitions that are not running first
    expected_lines = [re.sub(r"\[([\w.-]+),(\d+)\]", r"\1-\2", line) for line in lines]
    if old:
        assert sorted(expected_lines) in [sorted(one.splitlines()) for one in printed]
    else:
        assert "\n".join(expected_lines) + "\n" in printed


def executed(recording: Path, output: str) -> tuple[str, datetime, datetime]:
    """Return plan file, begin and end of the tool's run that printed an output."""
    steps = [json.loads(line) for line in (recording / "steps.jsonl").read_text().splitlines()]
    runs = []
    for step, following in itertools.pairwise(steps):
        named = " ".join(map(str, step.get("args", [])))
        if step.get("step") == "tool" and "--verify" in named:
            runs.append((re.search(r"(\S+\.json)", named)[1], step["time"], following["time"]))
        elif step.get("action") == "reassign --verify":
            runs.append((step["file"], step["ts"], following["ts"]))
    names = sorted(
        [*recording.glob("reassign-*verify*.out"), *recording.glob("reassign-*verify*.txt")], key=_order(runs)
    )
    plan, begin, end = runs[[file.name for file in names].index(output)]
    return plan, truth.moment_of(begin) - LATE, truth.moment_of(end)


def _order(runs: list[tuple[str, str, str]]):
    """Return the sort key of outputs in the order of their runs: by number, or by plan and `during`, `after`,
    `final`.
    """
    plan_order = [plan.removesuffix(".json") for plan, _, _ in runs]

    def key(file: Path):
        number = re.match(r"reassign-(\d+)-", file.name)
        if number:
            return (int(number[1]), 0)
        stem = re.sub(r"-verify.*", "", file.stem)
        return (plan_order.index(stem), ["during", "after", "final"].index(file.stem.rsplit("-", 1)[1]))

    return key


def test_a_rollback_is_what_execute_printed() -> None:
    compared = 0
    for recording, plan in CASES:
        for output in [*recording.glob("reassign*execute*")]:
            text = output.read_text()
            # some executions printed only `There is an existing assignment running.`
            if f"{Path(plan).stem.removeprefix('reassign-')}-execute" not in output.name or "{" not in text:
                continue
            moves = plans.parse((recording / plan).read_text())
            verdicts = judged(recording, moves)
            mine = {(m.topic, m.partition): m.replicas for m in plans.parse(plans.rollback(verdicts))}
            printed = {
                (m.topic, m.partition): m.original
                for m in plans.parse(text)
                if (m.topic, m.partition) in mine
            }
            if any(len(replicas or ()) > len(mine[key] or ()) for key, replicas in printed.items()):
                continue  # executed again while it ran: it prints old and new replicas together
            assert mine == printed, (recording, plan)
            compared += 1
    assert compared >= 20
