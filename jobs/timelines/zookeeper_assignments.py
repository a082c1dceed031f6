"""ZooKeeper mode: which assignment (RS, AR, RR) held, from what the controller wrote and from what its requests carry.

The controller prints an assignment when it has written it (`Successfully updated assignment`, controller.log). Requests carry what it has
in memory. Within one leader epoch that does not change: whatever changes an assignment raises the leader epoch after it. It is what
ZooKeeper holds, but while a reassignment completes: the new leader epoch is sent with the target, each replica that goes is removed from
the ISR, and only then the target is written (KafkaController.onPartitionReassignment, all versions).
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from jobs.timelines.events import Event, Ids
from jobs.timelines.facts import IncarnationFacts
from jobs.timelines.rows import Assigned
from jobs.timelines.zookeeper_versions import Version


class Requested(NamedTuple):
    """What the first requests of one leader epoch carry: later ones may run ahead. adding, removing: null where no request carries them."""

    replicas: Ids | None
    adding: Ids | None
    removing: Ids | None


NOT_KNOWN = Requested(None, None, None)


def add_request(requested: dict[int, Requested], e: Event) -> None:
    """Adds what a request carries. UpdateMetadata requests, and all requests up to 2.3, do not carry AR and RR."""
    if e.leader_epoch is None or e.replicas is None:
        return
    held = requested.setdefault(e.leader_epoch, Requested(e.replicas, e.adding_replicas, e.removing_replicas))
    if held.adding is None and e.adding_replicas is not None and list(held.replicas or ()) == list(e.replicas):
        requested[e.leader_epoch] = Requested(e.replicas, e.adding_replicas, e.removing_replicas)


def assignments(
    written: Sequence[Assigned],
    requested: Mapping[int, Requested],
    versions: Iterable[Version],
    facts: IncarnationFacts,
    leader_epoch: int,
) -> list[Assigned]:
    """The assignments, one after the other. written: as the controller printed them. requested: by leader epoch. leader_epoch: up to which
    they are known.

    Where the controller.log of the controller in charge is here, what it wrote stands until it writes again, and requests tell what was
    before. Else an assignment is not known in a leader epoch whose requests are not here; and not when exactly the target was written.
    """
    found: list[Assigned] = []
    left = list(written)
    completing: Completion | None = None
    # what is held was known to hold then
    known_at: int | None = None
    for v in sorted(versions, key=lambda v: (v.pos, -1 if v.epoch is None else v.epoch)):
        while left and left[0].pos <= v.pos:
            found.append(left.pop(0))
            completing, known_at = None, found[-1].ts
        held = found[-1] if found else None
        if v.leader_epoch is None:
            continue
        if v.leader_epoch > leader_epoch:
            leader_epoch = v.leader_epoch
            sent = requested.get(leader_epoch, NOT_KNOWN)
            now = Assigned(v.pos, v.ts, v.record_id, *sent)
            if held is None or held.replicas is None:
                if sent.replicas is not None and is_possible(v, sent.replicas):
                    # a target that is written next ran ahead
                    is_early = bool(left) and _same_order(left[0], now) and not left[0].is_moving
                    found.append(now._replace(inferred=is_early or (held is not None and not now.is_moving)))
            elif held.inferred and list(sent.replicas or ()) == list(held.replicas):
                found.append(now)
            elif not facts.hears_controller(known_at, v.ts) and not (leader_epoch == 0 and sent.replicas is None):
                completing = _next(found, now, completing)
        if completing and not completing.is_told and is_possible(v, completing.target.replicas):
            found.append(completing.target._replace(pos=v.pos, ts=v.ts, record_id=v.record_id, inferred=True))
            completing = completing._replace(is_told=True)
        elif completing and not completing.is_told and found[-1].replicas is not None and not found[-1].is_moving:
            # what is to go was written first, and nobody who wrote it is heard
            found.append(Assigned(v.pos, v.ts, v.record_id, *NOT_KNOWN))
        known_at = v.ts
    return [*found, *left]


class Completion(NamedTuple):
    """A reassignment that completes: requests carry its target. is_told: no replica that goes is in the ISR any more."""

    target: Assigned
    is_told: bool = False


def _next(found: list[Assigned], now: Assigned, completing: Completion | None) -> Completion | None:
    """Adds the assignment of a new leader epoch, of whose changes only requests tell. Returns what completes, if anything does."""
    held = found[-1]
    is_same, is_target_again = _same_order(now, held), completing is not None and _same_order(now, completing.target)
    if completing and is_target_again and not completing.is_told:
        return completing
    if is_same and not is_target_again and (now.adding is None or now.values() == held.values()):
        return None
    # a reassignment begins with what was assigned and what is added, and that is written first
    begins = now.is_moving or (now.adding is None and now.replicas is not None and set(now.replicas) > set(held.replicas or ()))
    if now.replicas is not None and not begins and not is_target_again and not (is_same and not held.is_moving):
        return Completion(now)
    # where a target was told before, the controller has written it since: it does one thing after the other
    found.append(now)
    return None


def _same_order(one: Assigned, other: Assigned) -> bool:
    return one.replicas is not None and list(one.replicas) == list(other.replicas or ())


def is_possible(v: Version, replicas: Ids | None) -> bool:
    """Whether replicas may be those of a version: its ISR is a part of them. Not so where its ISR is not known."""
    return v.isr is not None and replicas is not None and set(v.isr) <= set(replicas)
