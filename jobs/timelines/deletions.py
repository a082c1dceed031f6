"""`topic_deletions`: find deletions of topics, and the replicas that block them."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from jobs.timelines.cluster_evidence import TOPIC_REMOVED
from jobs.timelines.event import Event
from jobs.timelines.facts import ClusterFacts
from parsers.meanings import event_types

# a controller prints these about a topic whose deletion is requested, running, waiting or found pending at
# its start
REPORTS = event_types("reports_deletion")
BLOCKING = event_types("blocks_deletion")
# number of records that one deletion names as evidence
MOST_EVIDENCE = 50


def is_about_deletion(e: Event) -> bool:
    """Return whether an event is about the deletion of its topic."""
    return e.topic is not None and (
        _shows_deletion(e) or e.event_type == "deletion_completed" or _is_blocking(e)
    )


def _shows_deletion(e: Event) -> bool:
    return e.event_type in REPORTS and e.says != "failed"


def _is_blocking(e: Event) -> bool:
    """Return whether an event shows a replica that cannot be deleted.

    The TopicDeletionManager calls it dead or failed, it moves to ReplicaDeletionIneligible, or the controller
    may not move it there (up to 2.2) or to ReplicaDeletionStarted (KAFKA-6650). Replicas that a starting
    controller merely finds on a dead broker do not count.
    """
    is_ineligible = e.to_state == "ReplicaDeletionIneligible" and e.says in ("happened", "failed")
    is_refused = e.to_state == "ReplicaDeletionStarted" and e.says == "failed"
    return e.replica is not None and (e.event_type in BLOCKING or is_ineligible or is_refused)


@dataclass
class Deletion:
    """One deletion of a topic, as far as it is logged."""

    first: Event | None = None
    completed: Event | None = None
    blocking: list[Event] = field(default_factory=list)

    def row(self) -> tuple[Any, ...]:
        """Return requested_at, completed_at, blocked_by, blocked_since, outcome, record_id, evidence.

        Times are microseconds.
        """
        begun = self.first or self.completed
        assert begun is not None
        blocked_by = sorted(
            {(e.partition, e.replica) for e in self.blocking}, key=lambda one: (one[0] or 0, one[1])
        )
        records = list(dict.fromkeys(e.record_id for e in self.blocking))
        if self.completed:
            records.append(self.completed.record_id)
        return (
            self.first and self.first.ts,
            self.completed and self.completed.ts,
            blocked_by,
            min((e.ts for e in self.blocking if e.ts is not None), default=None),
            "completed" if self.completed else "blocked" if blocked_by else "pending",
            begun.record_id,
            records[:MOST_EVIDENCE],
        )


def topic_deletions(events: Iterable[Event], facts: ClusterFacts) -> list[tuple[Any, ...]]:
    """Return rows of `topic_deletions`: incarnation, topic, and the columns of `Deletion.row`.

    events: all events of ZooKeeper controllers about the deletion of one topic. A deletion ends with
    `Deletion of topic .. successfully completed`; later events belong to the next one.
    """
    rows = []
    now: dict[tuple[int, str], Deletion] = {}
    for e in sorted(events, key=facts.order):
        number = facts.incarnation_of(e)
        if e.topic is None or facts[number].is_deposed(e):
            continue
        deletion = now.setdefault((number, e.topic), Deletion())
        if _shows_deletion(e) and deletion.first is None:
            deletion.first = e
        if _is_blocking(e):
            deletion.blocking.append(e)
        if e.event_type == "deletion_completed":
            deletion.completed = e
            rows.append((number, e.topic, *now.pop((number, e.topic)).row()))
    rows += [(*key, *deletion.row()) for key, deletion in now.items() if deletion.first]
    return rows


def kraft_topic_deletions(facts: ClusterFacts) -> list[tuple[Any, ...]]:
    """Return rows of `topic_deletions` under KRaft controllers.

    One record removes a topic, and nothing blocks that in the metadata.
    The record does not name its topic. From 4.0 on the active controller prints its answer to the request.
    """
    by_id: dict[tuple[int, str, str], list[Event]] = {}
    for e in facts.ordered_events:
        is_answer = e.event_type == "topic_deletion_answered" and e.error_code == "SUCCESS"
        if e.topic_id and (is_answer or e.event_type in TOPIC_REMOVED):
            number = facts.incarnation_of(e)
            topic = facts[number].kraft.names.get(e.topic_id)
            if topic is not None:
                by_id.setdefault((number, topic, e.topic_id), []).append(e)
    return [
        (number, topic, *row) for (number, topic, _), events in by_id.items() if (row := _removal(events))
    ]


def _removal(events: Sequence[Event]) -> tuple[Any, ...] | None:
    removed = [e for e in events if e.event_type in TOPIC_REMOVED]
    if not removed:
        return None
    first, removal = (
        min(some, key=lambda e: (e.ts is not None, e.ts or 0, e.record_id)) for some in (events, removed)
    )
    return first.ts, removal.ts, [], None, "completed", first.record_id, [removal.record_id]
