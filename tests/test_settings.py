"""min.insync.replicas, as each line tells it."""

from __future__ import annotations

import pytest
from test_outages import told

from jobs.timelines import ClusterEvidence, ClusterFacts, Event
from jobs.timelines.settings import MIN_ISR, Setting, setting_of


@pytest.mark.parametrize(
    ("event", "setting"),
    [
        (told(1, "config_set", config=MIN_ISR, config_value="2", topic="a"), Setting(1_000_000, "a", 2)),
        (told(1, "config_set", config=MIN_ISR, config_value="2"), Setting(1_000_000, None, 2)),
        (told(1, "config_set", config=MIN_ISR, topic="a"), Setting(1_000_000, "a", None)),
        (told(1, "config_set", config=MIN_ISR, config_value="2", broker=1), None),
        (told(1, "config_set", config="retention.ms", config_value="2", topic="a"), None),
        (told(1, "config_updated", text="min.insync.replicas -> 3,x -> 1", topic="a"), Setting(1_000_000, "a", 3)),
        (told(1, "config_override_read", text="HashMap(min.insync.replicas -> 3)", topic="a"), Setting(1_000_000, "a", 3)),
        (told(1, "config_override_read", text="{min.insync.replicas=3}"), Setting(1_000_000, None, 3)),
        (told(1, "config_override_read", text="Map(min.insync.replicas -> 3)", broker=1), None),
        (told(1, "log_created", text="a=1, min.insync.replicas=3", topic="a", partition=0), Setting(1_000_000, "a", 3)),
        (told(1, "log_created", text="a=1", topic="a", partition=0), None),
        (told(1, "broker_configured", broker=1, config_value="2"), Setting(1_000_000, None, 2, True)),
        (told(1, "broker_configured", broker=1), None),
        # a forged line
        (told(1, "config_set", config=MIN_ISR, config_value="9" * 30, topic="a"), Setting(1_000_000, "a", None)),
    ],
)
def test_lines(event: Event, setting: Setting | None) -> None:
    assert setting_of(event) == setting


def test_folders_are_remembered_by_what_they_were_created_with() -> None:
    created = [
        told(at, "log_created", node, text=f"min.insync.replicas={value}", topic="a", partition=at)
        for at, node, value in ((5, 1, 2), (3, 1, 2), (4, 2, 2), (9, 1, 1))
    ]
    halves = ClusterEvidence.of(created[:2]) + ClusterEvidence.of(created[2:])
    assert halves == ClusterEvidence.of(created) == ClusterEvidence.from_json(halves.to_json())
    facts = ClusterFacts.of(halves)
    assert [(one.ts // 1_000_000, one.value) for one in facts.settings_by_number[1]] == [(3, 2), (4, 2), (9, 1)]
    assert not halves.cluster_events
