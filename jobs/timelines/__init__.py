"""Derive leader, ISR, assignment and states of each partition over time, in plain Python.

evidence = ClusterEvidence.of(events)           mergeable; of all events of one cluster
facts = ClusterFacts.of(evidence, keeps)        what its partitions share
folded = fold(facts.key_of(event), state, events of that partition, facts)
"""

from jobs.timelines.clocks import zone_error
from jobs.timelines.cluster_evidence import (
    CONTROLLER_LOG,
    LEADING,
    SERVER_LOG,
    STATE_CHANGE_LOG,
    ClusterEvidence,
    is_cluster_event,
)
from jobs.timelines.controller_gaps import ControllerGap, controller_gaps
from jobs.timelines.controllers import controllers, quorum_terms
from jobs.timelines.deletions import is_about_deletion, kraft_topic_deletions, topic_deletions
from jobs.timelines.discontinuities import Break, discontinuities, wiped
from jobs.timelines.event import (
    CHECKPOINT,
    EVENT_COLUMNS,
    EVIDENCE_COLUMNS,
    PARTITION_COLUMNS,
    Event,
    PartitionKey,
    moment_of,
)
from jobs.timelines.facts import Affected, ClusterFacts, affected
from jobs.timelines.outages import outages
from jobs.timelines.partition import SEMANTICS_VERSION, Folded, fold
from jobs.timelines.settings import Setting

__all__ = [
    "CHECKPOINT",
    "CONTROLLER_LOG",
    "EVENT_COLUMNS",
    "EVIDENCE_COLUMNS",
    "LEADING",
    "PARTITION_COLUMNS",
    "SEMANTICS_VERSION",
    "SERVER_LOG",
    "STATE_CHANGE_LOG",
    "Affected",
    "Break",
    "ClusterEvidence",
    "ClusterFacts",
    "ControllerGap",
    "Event",
    "Folded",
    "PartitionKey",
    "Setting",
    "affected",
    "controller_gaps",
    "controllers",
    "discontinuities",
    "fold",
    "is_about_deletion",
    "is_cluster_event",
    "kraft_topic_deletions",
    "moment_of",
    "outages",
    "quorum_terms",
    "topic_deletions",
    "wiped",
    "zone_error",
]
