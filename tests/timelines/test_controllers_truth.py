"""Terms of KRaft controllers begin and end as the metadata log of each recording shows."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import NamedTuple

import pytest
from logs import moment, recorded, recordings
from test_plans_truth import offset_from_utc
from timelines import facts_of

from jobs.timelines import controllers

pytestmark = pytest.mark.shared
# on a busy machine a controller logs a record late; up to 3.8 it logs a record before the record gets its
# time stamp
LATE, EARLY = timedelta(seconds=3), timedelta(milliseconds=60)
CASES = [folder for folder in recordings() if list(folder.glob("metadata-log*.txt"))]


class Term(NamedTuple):
    """A term of the leader of the quorum.

    leader: None up to 4.0: the dump does not name it. begun, last: its first and last record.
    """

    epoch: int
    leader: int | None
    begun: datetime
    last: datetime


def true_terms(recording: Path) -> list[Term]:
    found = []
    for dump in sorted(recording.glob("metadata-log*.txt")):
        terms: dict[int, Term] = {}
        epoch = 0
        for line in dump.read_text("utf-8").splitlines():
            if batch := re.search(r"partitionLeaderEpoch: (\d+)", line):
                epoch = int(batch[1])
            if (time := re.search(r"CreateTime: (\d+)", line)) is None:
                continue
            at = datetime.fromtimestamp(int(time[1]) / 1000, UTC)
            if epoch in terms:
                terms[epoch] = terms[epoch]._replace(last=at)
            if re.search(r"LEADER_CHANGE|LeaderChange", line):
                leader = re.search(r'"leaderId":\s*(\d+)', line)
                terms[epoch] = Term(epoch, int(leader[1]) if leader else None, at, at)
        found += terms.values()
    return found


@pytest.mark.parametrize("recording", CASES, ids=lambda folder: "/".join(folder.parts[-2:]))
def test_terms_begin_and_end_as_the_metadata_log_says(recording: Path) -> None:
    shift = offset_from_utc(recording)
    rows = [
        (node, epoch, begun and moment(begun) - shift, ended and moment(ended) - shift)
        for _, node, epoch, begun, ended, *_ in controllers(facts_of(recorded(recording)))
    ]
    truth = true_terms(recording)
    assert truth
    for term in truth:
        near = [
            row
            for row in rows
            if row[1] == term.epoch and row[2] and term.begun - EARLY <= row[2] <= term.begun + LATE
        ]
        assert len(near) == 1, (term, rows)
        ((node, _, begun, ended),) = near
        assert term.leader in (None, node)
        # a controller that has resigned writes nothing more
        assert ended is None or max(begun, term.last - EARLY) <= ended, (term, ended)


def test_a_killed_controller_did_not_resign() -> None:
    """Controller 102 was killed in epoch 4; its next start prints ResignedState, which is no end of the term."""
    (recording,) = (
        folder for folder in CASES if folder.parts[-2:] == ("3.9.1-default", "controller-failover")
    )
    by_epoch = {row[2]: (row[1], row[4] is not None) for row in controllers(facts_of(recorded(recording)))}
    assert by_epoch == {4: (102, False), 6: (101, False), 8: (102, True), 9: (101, True)}
