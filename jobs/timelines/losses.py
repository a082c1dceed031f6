"""Find records that a partition lost or may have lost, and for which acks. Times are microseconds.

Only this module decides it: `findings` (unclean_election, data_at_risk), the table `durability`, the report
and alerts read its result.
"""

import re
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from jobs.timelines.event import with_next
from parsers.meanings import event_types

UNCLEAN = "unclean"  # a replica that was not in sync became leader
TAIL = "tail"  # a leader that had crashed truncated records that it had not replicated
KINDS = (UNCLEAN, TAIL)
# lines of an unclean election: a difference that a KRaft controller prints, a decision of a ZooKeeper
# controller up to 1.0
_DIFFERENCE, _SELECTED = "unclean_leader_elected", "unclean_leader_selected"
# the line of the elected broker itself (Partition.makeLeader, 3.2 and later)
_RECOVERS = "leader_recovering"
_RECOVERING = frozenset({"RECOVERING", "1"})
_CUT = event_types("truncates_log")
_HIGH_WATERMARK = event_types("lowers_high_watermark")
_STARTED = event_types("starts_leader_epoch")
# events that `losses` reads, besides those with a leader recovery state
LINES = event_types("shows_loss", "truncates_log", "lowers_high_watermark", "starts_leader_epoch")
# the line of a leader that is back and truncates its log
_TRUNCATED = "log_truncated"
# without one of them, a line with a leader recovery state, or a row without a leader, a partition has lost
# nothing
DECIDING = event_types("shows_loss") | {_TRUNCATED}
SECOND = 1_000_000
# lines of several nodes about one election are at most this far apart
TOGETHER = 120 * SECOND
# the term of a leader ends at most this long before or after its outage is noticed
NOTICED = 30 * SECOND
# leader_recovery_state after an unclean election, as lines and requests print it
RECOVERING = ("RECOVERING", "1")
# a broker that is back truncates its logs within this time
CUT_SOON = 600 * SECOND
_PREVIOUS = re.compile(r"(?:elr|lastKnownElr): \[([\d, ]*)\] ->", re.ASCII)
_NUMBER = re.compile(r"-?\d+", re.ASCII)
MOST_RECORDS = 20


class Interval(NamedTuple):
    """A row of `partition_timeline`, in the order of its steps."""

    valid_from: int | None
    valid_to: int | None
    leader: int | None
    leader_epoch: int | None
    partition_epoch: int | None
    isr: Sequence[int] | None
    replicas: Sequence[int] | None
    reassignment_phase: str | None
    inferred: bool | None
    record_id: str | None


class LossLine(NamedTuple):
    """An event about the partition."""

    ts: int
    event_type: str | None
    node: int | None
    says: str | None
    to_state: str | None
    leader: int | None
    leader_epoch: int | None
    leader_recovery_state: str | None
    brokers: Sequence[int] | None
    replicas: Sequence[int] | None
    start_offset: int | None
    end_offset: int | None
    high_watermark: int | None
    text: str | None
    record_id: str | None


class Crash(NamedTuple):
    """A time in which a broker was down after its process had ended without a request to stop."""

    broker: int
    since: int
    until: int | None


class Around(NamedTuple):
    """Facts besides rows and lines.

    min_isr: min.insync.replicas; None: unknown. crashes: of all brokers.
    may_be_last_leader: whether a recovering leader may be the last leader, who lacks no record (KIP-966:
    KRaft from 3.7 on).
    """

    min_isr: int | None = None
    may_be_last_leader: bool = True
    crashes: Sequence[Crash] = ()


class Loss(NamedTuple):
    """Records that were lost, or may have been.

    kind: UNCLEAN or TAIL. at: the election, or when the crashed leader truncated its log. leader: the leader
    that lacked records. node: the broker that truncated them; None: not logged. is_certain: False: lines do
    not show whether the election was clean. records: at least this number was truncated; None: not logged.
    cut_from, cut_to: offsets. acks: settings with which lost records were acknowledged; None: unknown for
    `all`.
    largest_isr: the largest ISR without the elected replica since it left: acks=all lost nothing that needed
    more. died_at: only for TAIL.
    """

    kind: str
    at: int
    leader: int
    node: int | None
    leader_epoch: int | None
    is_certain: bool
    records: int | None
    cut_from: int | None
    cut_to: int | None
    acks: list[str] | None
    largest_isr: int | None
    died_at: int | None
    evidence: list[str]


class _Election(NamedTuple):
    at: int
    leader: int
    leader_epoch: int | None
    is_certain: bool
    # its number in the rows; None: it is in none
    step: int | None
    records: list[str]


ALL, SOME = ["0", "1", "all"], ["0", "1"]


def losses(history: Sequence[Interval], lines: Iterable[LossLine], around: Around) -> list[Loss]:
    """Return the losses of one partition of one incarnation, in order of time.

    lines: about the partition, in any order.
    """
    ordered = sorted(lines, key=lambda line: (line.ts, line.record_id or ""))
    rows = [row for row in history if row.leader is not None or row.isr is not None]
    elections = [one for one in _elections(rows, ordered, around) if not _has_one_replica(rows, ordered, one)]
    found = [_of_election(rows, ordered, one, after, around) for one, after in with_next(elections)]
    found += _tails(rows, ordered, elections, around)
    return sorted(found, key=lambda loss: (loss.at, loss.kind, loss.node or -1))


# -- elections -----------------------------------------------------------------------------------------------


def _elections(rows: Sequence[Interval], lines: Sequence[LossLine], around: Around) -> list[_Election]:
    """Return the elections that were or may have been unclean, each once."""
    groups: list[list[LossLine]] = []
    for line in lines:
        if _says_unclean(line) and _elected(line) is not None:
            same = next((some for some in groups if _is_same(some[0], line, rows)), None)
            if same is None:
                groups.append([line])
            else:
                same.append(line)
    found, clean = [], set()
    for some in groups:
        step = next((step for line in some if (step := _step_of(rows, line)) is not None), None)
        verdicts = [_is_clean(rows, step, line, around) for line in some]
        epoch = _epoch(some[0], rows)
        leader = _elected(some[0])
        if leader is None:
            continue
        if True in verdicts:
            clean.add((leader, epoch))
        else:
            records = [record for line in some for record in _ids(line)]
            found.append(_Election(some[0].ts, leader, epoch, False in verdicts, step, records))
    for step, row in enumerate(rows):
        if row.leader is None or row.valid_from is None or not _shows_unclean(rows, step):
            continue
        is_logged = any(
            one.step == step or (one.leader == row.leader and abs(one.at - row.valid_from) <= TOGETHER)
            for one in found
        )
        if not is_logged and (row.leader, row.leader_epoch) not in clean:
            records = [] if row.record_id is None else [row.record_id]
            found.append(_Election(row.valid_from, row.leader, row.leader_epoch, True, step, records))
    return sorted(found, key=lambda one: (one.at, one.leader))


def _elected(line: LossLine) -> int | None:
    """Return the elected broker; the line of a recovering leader names itself."""
    leader = line.node if line.event_type == _RECOVERS else line.leader
    return None if leader is None or leader < 0 else leader


def _epoch(line: LossLine, rows: Sequence[Interval]) -> int | None:
    """Return the leader epoch of the election that a line is about."""
    if line.leader_epoch is not None:
        return line.leader_epoch
    step = _step_of(rows, line)
    return None if step is None else rows[step].leader_epoch


def _says_unclean(line: LossLine) -> bool:
    """Return whether a line shows the election of a replica that was not in sync, or its recovery."""
    return line.event_type == _SELECTED or line.leader_recovery_state in _RECOVERING


def _is_same(one: LossLine, other: LossLine, rows: Sequence[Interval]) -> bool:
    """Return whether two lines are about one election."""
    if _elected(one) != _elected(other):
        return False
    epochs = _epoch(one, rows), _epoch(other, rows)
    return epochs[0] == epochs[1] if None not in epochs else abs(one.ts - other.ts) <= TOGETHER


def _ids(line: LossLine) -> list[str]:
    return [] if line.record_id is None else [line.record_id]


def _step_of(rows: Sequence[Interval], line: LossLine) -> int | None:
    """Return the row of a line's election: by its epoch, or the nearest if the line names none."""
    own = [n for n, row in enumerate(rows) if row.leader == _elected(line) and row.valid_from is not None]
    if line.leader_epoch is not None:
        return next((n for n in own if rows[n].leader_epoch == line.leader_epoch), None)
    near = min(own, key=lambda n: abs((rows[n].valid_from or 0) - line.ts), default=None)
    return near if near is not None and abs((rows[near].valid_from or 0) - line.ts) <= TOGETHER else None


def _is_clean(rows: Sequence[Interval], step: int | None, line: LossLine, around: Around) -> bool | None:
    """Return whether an election lost nothing although a line calls it unclean.

    None: the logs do not show it. The last leader and eligible replicas lack no record (KIP-966); the
    controller's own line names them as they were before.
    """
    before = [int(one) for found in _PREVIOUS.findall(line.text or "") for one in _NUMBER.findall(found)]
    if line.event_type == _DIFFERENCE:
        # only changed lists are printed, and an election empties them
        return _elected(line) in before
    if line.event_type == _SELECTED:
        # up to 0.11 the ISR of the only replica is empty while its broker is down
        replicas = line.replicas or _replicas(rows, step) or line.brokers or ()
        return None if len(set(replicas)) <= 1 and not _replicas(rows, step) else False
    if not around.may_be_last_leader:
        return False
    last = _last_leader(rows, step)
    return None if last is None else last == _elected(line)


def _replicas(rows: Sequence[Interval], step: int | None) -> Sequence[int] | None:
    """Return the replicas of the partition around a step."""
    if not rows:
        return None
    near = rows if step is None else [rows[step], *rows[step + 1 :], *reversed(rows[:step])]
    return next((row.replicas for row in near if row.replicas), None)


def _last_leader(rows: Sequence[Interval], step: int | None) -> int | None:
    """Return the leader before a step; None: epochs are missing in between, so others may have led."""
    if step is None:
        return None
    for n in range(step - 1, -1, -1):
        if not _follows(rows[n], rows[n + 1]):
            return None
        leader = rows[n].leader
        if leader is not None and leader >= 0:
            return leader
    return None


def _follows(row: Interval, after: Interval) -> bool:
    """Return whether the epochs show that no row between these two is missing."""
    if (
        None not in (row.leader_epoch, after.leader_epoch)
        and not (row.leader_epoch or 0) <= (after.leader_epoch or 0) <= (row.leader_epoch or 0) + 1
    ):
        return False
    if None in (row.partition_epoch, after.partition_epoch):
        return row.leader_epoch is not None and after.leader_epoch is not None
    return (row.partition_epoch or 0) <= (after.partition_epoch or 0) <= (row.partition_epoch or 0) + 1


def _shows_unclean(rows: Sequence[Interval], step: int) -> bool:
    """Return whether two rows show an unclean election that no line names.

    ZooKeeper controllers of 1.1 to 3.1 print no such line. The partition was offline, and its leader is alone
    in the ISR and was not in the ISR before (OfflinePartitionLeaderElectionStrategy elects from the ISR
    otherwise). Rows show nothing if the ISR before is derived, or may have changed since it was logged.
    """
    row, before = rows[step], rows[step - 1] if step else None
    if (
        before is None
        or row.leader is None
        or row.leader < 0
        or before.leader != -1
        or not before.isr
        or row.isr is None
    ):
        return False
    if (
        list(row.isr) != [row.leader]
        or row.leader in before.isr
        or row.reassignment_phase
        or row.inferred
        or before.inferred
    ):
        return False
    return _is_next_epoch(before, row) and _last_leader(rows, step) in (None, *before.isr)


def _is_next_epoch(before: Interval, row: Interval) -> bool:
    if before.leader_epoch is None or row.leader_epoch is None or row.leader_epoch <= before.leader_epoch:
        # a topic that is created again begins with epoch 0
        return False
    if None not in (before.partition_epoch, row.partition_epoch):
        return (row.partition_epoch or 0) <= (before.partition_epoch or 0) + 1
    return row.leader_epoch <= before.leader_epoch + 1


def _has_one_replica(rows: Sequence[Interval], lines: Sequence[LossLine], election: _Election) -> bool:
    """Return whether the partition has no other replica: then nothing is lost."""
    own = [
        set(row.replicas)
        for row in rows
        if row.replicas and (row.valid_from or 0) <= election.at + 5 * SECOND
    ]
    if own:
        return own[-1] == {election.leader}
    return any(line.replicas and set(line.replicas) == {election.leader} for line in lines)


# -- what was lost -------------------------------------------------------------------------------------------


def _of_election(
    rows: Sequence[Interval],
    lines: Sequence[LossLine],
    election: _Election,
    after: _Election | None,
    around: Around,
) -> Loss:
    """Return the loss of an unclean election.

    after: the next election, to which later truncations belong.
    """
    cuts = [
        cut
        for node in sorted({line.node for line in lines if line.node not in (None, election.leader)})
        if node is not None
        and (cut := _cut(lines, node, election.at, None if after is None else after.at)) is not None
    ]
    most = max(cuts, key=lambda cut: cut.records, default=None)
    largest, is_whole = _largest_isr(rows, election)
    evidence = dict.fromkeys([*election.records, *([] if most is None else most.evidence)])
    return Loss(
        kind=UNCLEAN,
        at=election.at,
        leader=election.leader,
        node=None if most is None else most.node,
        leader_epoch=election.leader_epoch,
        is_certain=election.is_certain,
        records=None if most is None else most.records,
        cut_from=None if most is None else most.cut_from,
        cut_to=None if most is None else most.cut_to,
        acks=_acks(largest, is_whole, around.min_isr) if election.is_certain else None,
        largest_isr=largest,
        died_at=None,
        evidence=list(evidence)[:MOST_RECORDS],
    )


def _acks(largest: int | None, is_whole: bool, min_isr: int | None) -> list[str] | None:
    """Return the acks with which lost records of an election were acknowledged; None: unknown.

    acks=all is refused while fewer than min.insync.replicas are in sync (Partition.appendRecordsToLeader);
    else the whole ISR has the record.
    """
    if largest is None or min_isr is None:
        return None
    if largest >= min_isr:
        return ALL
    return SOME if is_whole else None


def _largest_isr(rows: Sequence[Interval], election: _Election) -> tuple[int | None, bool]:
    """Return (largest ISR without the elected replica since it left, whether all rows since are known)."""
    if election.step is None:
        return None, False
    largest: int | None = None
    for n in range(election.step - 1, -1, -1):
        row = rows[n]
        if not _follows(row, rows[n + 1]):
            return largest, False
        if row.isr is None:
            continue
        if election.leader in row.isr:
            return largest, True
        if row.leader is not None and row.leader >= 0:
            largest = max(largest or 0, len(row.isr))
        elif largest is None:
            # the ISR when the leader was lost
            largest = len(row.isr) or None
    return largest, False


class _Cut(NamedTuple):
    node: int
    records: int
    cut_from: int
    cut_to: int
    evidence: list[str]


def _cut(lines: Sequence[LossLine], node: int, since: int, until: int | None) -> _Cut | None:
    """Return what a node truncated after a moment; None: lines do not show it."""
    mine = [line for line in lines if line.node == node]
    later = [line for line in mine if line.ts >= since and (until is None or line.ts < until)]
    first = next((line for line in later if line.event_type in _CUT and line.start_offset is not None), None)
    found: list[_Cut] = []
    if first is not None and first.start_offset is not None:
        had = [
            line
            for line in mine
            if line.end_offset is not None and line.ts <= first.ts and line.end_offset >= first.start_offset
        ]
        if had and had[-1].end_offset is not None:
            cut_to = had[-1].end_offset
            records = [*_ids(had[-1]), *_ids(first)]
            found.append(_Cut(node, cut_to - first.start_offset, first.start_offset, cut_to, records))
    for line in later:
        if (
            line.event_type in _HIGH_WATERMARK
            and line.high_watermark is not None
            and (first is None or line.ts <= first.ts + CUT_SOON)
        ):
            span = _below_high_watermark(line)
            if span is not None and span[1] > span[0]:
                found.append(_Cut(node, span[1] - span[0], *span, _ids(line)))
    if not found:
        return None
    most = max(found, key=lambda cut: cut.records)
    return most._replace(evidence=[record for cut in found for record in cut.evidence])


def _below_high_watermark(line: LossLine) -> tuple[int, int] | None:
    """Return (offset after the truncation, high watermark before), from a broker's warning."""
    if line.event_type == "high_watermark_decreased":
        before = int(line.text) if line.text and _NUMBER.fullmatch(line.text) else None
        return None if before is None or line.high_watermark is None else (line.high_watermark, before)
    return (
        None
        if line.start_offset is None or line.high_watermark is None
        else (line.start_offset, line.high_watermark)
    )


def _tails(
    rows: Sequence[Interval], lines: Sequence[LossLine], elections: Sequence[_Election], around: Around
) -> list[Loss]:
    """Return the losses of crashed leaders that truncated records after their return.

    Acks=all lost none of them.
    """
    found = []
    for crash in around.crashes:
        place = next(
            (n for n, row in enumerate(rows) if row.leader == crash.broker and _ends_with(row, crash)), None
        )
        if place is None:
            continue
        back = None if crash.until is None else crash.until + 60 * SECOND
        loaded = [
            line
            for line in lines
            if line.event_type == "log_load_completed"
            and line.node == crash.broker
            and line.end_offset is not None
            and line.ts >= crash.since
            and (back is None or line.ts <= back)
        ]
        if not loaded:
            continue
        load = max(loaded, key=lambda line: line.ts)
        next_one = next(
            (
                line
                for line in lines
                if line.event_type in _STARTED
                and line.node not in (None, crash.broker)
                and line.start_offset is not None
                and crash.since - 5 * SECOND <= line.ts <= load.ts
            ),
            None,
        )
        cut = next(
            (
                line
                for line in lines
                if line.event_type == _TRUNCATED
                and line.node == crash.broker
                and load.ts <= line.ts <= load.ts + CUT_SOON
                and line.start_offset is not None
                and line.start_offset < (load.end_offset or 0)
            ),
            None,
        )
        if (
            next_one is None
            or cut is None
            or next_one.node is None
            or next_one.start_offset is None
            or load.end_offset is None
        ):
            continue
        if load.end_offset <= next_one.start_offset or any(
            crash.since - NOTICED <= one.at <= load.ts for one in elections
        ):
            # this is a loss of the unclean election
            continue
        if any(
            line.event_type in _HIGH_WATERMARK
            and line.node == crash.broker
            and crash.since <= line.ts <= load.ts + CUT_SOON
            for line in lines
        ):
            # records were committed: the successor was not in sync, although rows say so
            acks = None
        else:
            acks = SOME if _was_in_sync(rows, place, next_one.node) else None
        found.append(
            Loss(
                kind=TAIL,
                at=load.ts,
                leader=next_one.node,
                node=crash.broker,
                leader_epoch=next_one.leader_epoch,
                is_certain=True,
                records=load.end_offset - next_one.start_offset,
                cut_from=next_one.start_offset,
                cut_to=load.end_offset,
                acks=acks,
                largest_isr=None,
                died_at=crash.since,
                evidence=[*_ids(next_one), *_ids(load), *_ids(cut)],
            )
        )
    return found


def _ends_with(row: Interval, crash: Crash) -> bool:
    return row.valid_to is not None and abs(row.valid_to - crash.since) <= NOTICED


def _was_in_sync(rows: Sequence[Interval], place: int, successor: int) -> bool:
    """Return whether the ISR of a crashed leader is known to include its successor up to the election."""
    isr = rows[place].isr
    for n in range(place, len(rows) - 1):
        if not _follows(rows[n], rows[n + 1]):
            return False
        if rows[n + 1].leader == successor:
            return isr is not None and successor in isr
        if rows[n + 1].leader not in (None, -1):
            return False
        isr = rows[n + 1].isr if rows[n + 1].isr is not None else isr
    return False
