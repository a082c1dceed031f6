"""min.insync.replicas in each kind of line."""

from __future__ import annotations

import pytest
from test_outages import logged

from jobs.timelines import ClusterEvidence, ClusterFacts, Event
from jobs.timelines.settings import MIN_ISR, Setting, setting_of


@pytest.mark.parametrize(
    ("event", "setting"),
    [
        (logged(1, "config_set", config=MIN_ISR, config_value="2", topic="a"), Setting(1_000_000, "a", 2)),
        (logged(1, "config_set", config=MIN_ISR, config_value="2"), Setting(1_000_000, None, 2)),
        (logged(1, "config_set", config=MIN_ISR, topic="a"), Setting(1_000_000, "a", None)),
        (logged(1, "config_set", config=MIN_ISR, config_value="2", broker=1), None),
        (logged(1, "config_set", config="retention.ms", config_value="2", topic="a"), None),
        (
            logged(1, "config_updated", text="min.insync.replicas -> 3,x -> 1", topic="a"),
            Setting(1_000_000, "a", 3),
        ),
        (
            logged(1, "config_override_read", text="HashMap(min.insync.replicas -> 3)", topic="a"),
            Setting(1_000_000, "a", 3),
        ),
        (logged(1, "config_override_read", text="{min.insync.replicas=3}"), Setting(1_000_000, None, 3)),
        (logged(1, "config_override_read", text="Map(min.insync.replicas -> 3)", broker=1), None),
        (
            logged(1, "log_created", text="a=1, min.insync.replicas=3", topic="a", partition=0),
            Setting(1_000_000, "a", 3),
        ),
        (logged(1, "log_created", text="a=1", topic="a", partition=0), None),
        (logged(1, "broker_configured", broker=1, config_value="2"), Setting(1_000_000, None, 2, True)),
        (logged(1, "broker_configured", broker=1), None),
        # a forged line
        (
            logged(1, "config_set", config=MIN_ISR, config_value="9" * 30, topic="a"),
            Setting(1_000_000, "a", None),
        ),
    ],
)
def test_lines(event: Event, setting: Setting | None) -> None:
    assert setting_of(event) == setting


def test_the_setting_of_a_created_log_is_stored_once_for_each_place() -> None:
    created = [
        logged(at, "log_created", node, text=f"min.insync.replicas={value}", topic="a", partition=at)
        for at, node, value in ((5, 1, 2), (3, 1, 2), (4, 2, 2), (9, 1, 1))
    ]
    halves = ClusterEvidence.of(created[:2]) + ClusterEvidence.of(created[2:])
    assert halves == ClusterEvidence.of(created) == ClusterEvidence.from_json(halves.to_json())
    facts = ClusterFacts.of(halves)
    assert [(one.ts // 1_000_000, one.value) for one in facts.settings_by_number[1]] == [
        (3, 2),
        (4, 2),
        (9, 1),
    ]
    assert not halves.cluster_events
