"""The timelines of every recording, and of parts of it, by the truth that was recorded beside it."""

from __future__ import annotations

from pathlib import Path

import pytest
import truth
from logs import recorded, recordings
from timelines import verdict

pytestmark = pytest.mark.shared
# Kafka before 2.4 has no AR and RR: a row that says them may begin before the write of the replicas that goes with them
MIXED = {"0.10.2.2-default/reassign": 3}


def name_of(recording: Path) -> str:
    return "/".join(recording.parts[-2:])


@pytest.mark.parametrize("recording", recordings(), ids=lambda one: "/".join(one.parts[-3:]))
def test_nothing_is_wrong(recording: Path) -> None:
    found = verdict(recording, recorded(recording))
    assert found.precise, truth.details(found)
    assert found.mixed_rows == MIXED.get(name_of(recording), 0), truth.details(found)
