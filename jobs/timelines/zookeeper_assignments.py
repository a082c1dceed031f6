"""ZooKeeper mode: find the assignment (RS, AR, RR) over time, from writes and requests.

The controller prints an assignment when it has written it (`Successfully updated assignment`,
controller.log). Requests have the assignment in its memory. That does not change within one leader epoch:
each change of an assignment raises the leader epoch after it. It is the assignment in ZooKeeper, except while
a reassignment completes: the new leader epoch is sent with the target, each leaving replica is removed from
the ISR, and only then the target is written (KafkaController.onPartitionReassignment, all versions).
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from jobs.timelines.event import Event, Ids
from jobs.timelines.facts import IncarnationFacts
from jobs.timelines.timeline_rows import Assigned
from jobs.timelines.zookeeper_versions import ZnodeVersion


class Requested(NamedTuple):
    """The assignment in the first requests of one leader epoch; later ones may run ahead.

    adding, removing: None: in no request.
    """

    replicas: Ids | None
    adding: Ids | None
    removing: Ids | None


NOT_KNOWN = Requested(None, None, None)


def add_request(requested: dict[int, Requested], e: Event) -> None:
    """Add the assignment of a request.

    UpdateMetadata requests, and all requests up to 2.3, have no AR and RR.
    """
    if e.leader_epoch is None or e.replicas is None:
        return
    current = requested.setdefault(
        e.leader_epoch, Requested(e.replicas, e.adding_replicas, e.removing_replicas)
    )
    if (
        current.adding is None
        and e.adding_replicas is not None
        and list(current.replicas or ()) == list(e.replicas)
    ):
        requested[e.leader_epoch] = Requested(e.replicas, e.adding_replicas, e.removing_replicas)


def assignments(
    written: Sequence[Assigned],
    requested: Mapping[int, Requested],
    versions: Iterable[ZnodeVersion],
    facts: IncarnationFacts,
    leader_epoch: int,
) -> list[Assigned]:
    """Return the assignments, one after the other.

    written: as the controller printed them. requested: by leader epoch. leader_epoch: assignments are known
    up to it. With a controller.log of the active controller, an assignment is valid until the next write, and
    requests show the one before the first write. Without it, an assignment is unknown in a leader epoch
    without requests, and so is the time at which the target was written.
    """
    found: list[Assigned] = []
    left = list(written)
    completing: Completion | None = None
    # the last time at which the current assignment was known
    known_at: int | None = None
    for v in sorted(versions, key=lambda v: (v.pos, -1 if v.epoch is None else v.epoch)):
        while left and left[0].pos <= v.pos:
            found.append(left.pop(0))
            completing, known_at = None, found[-1].ts
        current = found[-1] if found else None
        if v.leader_epoch is None:
            continue
        if v.leader_epoch > leader_epoch:
            leader_epoch = v.leader_epoch
            sent = requested.get(leader_epoch, NOT_KNOWN)
            now = Assigned(v.pos, v.ts, v.record_id, *sent)
            if current is None or current.replicas is None:
                if sent.replicas is not None and is_possible(v, sent.replicas):
                    # the target of the next write ran ahead in the request
                    is_early = bool(left) and _same_order(left[0], now) and not left[0].is_moving
                    found.append(
                        now._replace(inferred=is_early or (current is not None and not now.is_moving))
                    )
            elif current.inferred and list(sent.replicas or ()) == list(current.replicas):
                found.append(now)
            elif not facts.hears_controller(known_at, v.ts) and not (
                leader_epoch == 0 and sent.replicas is None
            ):
                completing = _next(found, now, completing)
        if completing and not completing.is_reached and is_possible(v, completing.target.replicas):
            found.append(completing.target._replace(pos=v.pos, ts=v.ts, record_id=v.record_id, inferred=True))
            completing = completing._replace(is_reached=True)
        elif (
            completing
            and not completing.is_reached
            and found[-1].replicas is not None
            and not found[-1].is_moving
        ):
            # the leaving replicas were written first, and there is no log of that
            found.append(Assigned(v.pos, v.ts, v.record_id, *NOT_KNOWN))
        known_at = v.ts
    return [*found, *left]


class Completion(NamedTuple):
    """A reassignment that completes: requests have its target.

    is_reached: no leaving replica is in the ISR any more.
    """

    target: Assigned
    is_reached: bool = False


def _next(found: list[Assigned], now: Assigned, completing: Completion | None) -> Completion | None:
    """Add the assignment of a new leader epoch, known from requests only.

    Return the reassignment that completes, if any.
    """
    current = found[-1]
    is_same = _same_order(now, current)
    is_target_again = completing is not None and _same_order(now, completing.target)
    if completing and is_target_again and not completing.is_reached:
        return completing
    if is_same and not is_target_again and (now.adding is None or now.values() == current.values()):
        return None
    # a reassignment begins with the replicas and the added ones, which is written first
    begins = now.is_moving or (
        now.adding is None and now.replicas is not None and set(now.replicas) > set(current.replicas or ())
    )
    if (
        now.replicas is not None
        and not begins
        and not is_target_again
        and not (is_same and not current.is_moving)
    ):
        return Completion(now)
    # if a target was requested before, the controller has written it since: it does one thing after the other
    found.append(now)
    return None


def _same_order(one: Assigned, other: Assigned) -> bool:
    return one.replicas is not None and list(one.replicas) == list(other.replicas or ())


def is_possible(v: ZnodeVersion, replicas: Ids | None) -> bool:
    """Return whether replicas may be those of a version: they include its ISR.

    False if the ISR is unknown.
    """
    return v.isr is not None and replicas is not None and set(v.isr) <= set(replicas)
