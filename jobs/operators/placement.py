"""Where Kafka puts replicas: its two algorithms, their inverse, and what an assignment spreads. Pure.

Up to 3.9 in ZooKeeper mode `AdminUtils.assignReplicasToBrokers` (kafka.admin, the same since 0.10.0): a start index and a shift are drawn
at random, the rest follows. In KRaft `StripedReplicaPlacer` (org.apache.kafka.metadata.placement): lists of brokers are shuffled, so only
what every outcome has in common can be found again.
"""

from collections import Counter
from collections.abc import Collection, Hashable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

Assignment = Mapping[int, Sequence[int]]


class PlacementError(ValueError):
    """Kafka would refuse it: no partition, no replica, more replicas than brokers, a broker without a rack among others with one."""


@dataclass(frozen=True)
class Found:
    """The parameters that give an assignment.

    start_index, shift: of `assignReplicasToBrokers`; shift is the smallest one that fits, null where no replica depends on it.
    rack_aware: whether racks decided; brokers: the list that the indexes are of.
    """

    start_index: int | None
    shift: int | None
    rack_aware: bool
    brokers: tuple[int, ...]


def rack_alternated(racks: Mapping[int, str]) -> list[int]:
    """Broker ids, one of each rack in turn; racks by name, brokers of a rack by id (AdminUtils.getRackAlternatedBrokerList)."""
    members = {name: sorted(broker for broker in racks if racks[broker] == name) for name in sorted(set(racks.values()))}
    longest = max(map(len, members.values()), default=0)
    return [brokers[at] for at in range(longest) for brokers in members.values() if at < len(brokers)]


def replica_index(first: int, shift: int, replica: int, brokers: int) -> int:
    """Place in the broker list of the replica that follows the first one as number `replica`, from 0 (AdminUtils.replicaIndex)."""
    return (first + 1 + (shift + replica) % (brokers - 1)) % brokers


def assign(
    brokers: Sequence[int],
    partitions: int,
    replication_factor: int,
    start_index: int,
    shift: int,
    *,
    start_partition: int = 0,
    racks: Mapping[int, str] | None = None,
) -> dict[int, list[int]]:
    """Partition -> replicas, as `assignReplicasToBrokers` gives them from this start and shift.

    brokers: in the order that Kafka has them; racks: broker -> rack, of all of them or of none. Raises PlacementError.
    """
    if partitions <= 0:
        raise PlacementError("The number of partitions must be larger than 0")
    if replication_factor <= 0:
        raise PlacementError("The replication factor must be larger than 0")
    if replication_factor > len(brokers):
        raise PlacementError(f"Replication factor {replication_factor} is larger than the number of brokers, {len(brokers)}")
    known = {broker: racks[broker] for broker in brokers if broker in racks} if racks else {}
    if known and len(known) < len(brokers):
        raise PlacementError("Not all brokers have a rack")
    listed = rack_alternated(known) if known else list(brokers)
    given = {}
    for partition in range(start_partition, start_partition + partitions):
        if partition > 0 and partition % len(listed) == 0:
            shift += 1
        first = (partition + start_index) % len(listed)
        if known:
            given[partition] = _across_racks(listed, known, first, shift, replication_factor)
        else:
            others = (replica_index(first, shift, j, len(listed)) for j in range(replication_factor - 1))
            given[partition] = [listed[first], *(listed[at] for at in others)]
    return given


def _across_racks(listed: list[int], racks: Mapping[int, str], first: int, shift: int, replication_factor: int) -> list[int]:
    """A broker is passed over while its rack has a replica and another rack has none, or while it has one itself."""
    count = len(set(racks.values()))
    replicas = [listed[first]]
    step = 0
    while len(replicas) < replication_factor:
        broker = listed[replica_index(first, shift * count, step, len(listed))]
        step += 1
        used = {racks[replica] for replica in replicas}
        if (racks[broker] not in used or len(used) == count) and broker not in replicas:
            replicas.append(broker)
    return replicas


def find(assignment: Assignment, brokers: Collection[int], racks: Mapping[int, str] | None = None) -> Found | None:
    """The start index and shift from which Kafka gives this assignment, whose partitions are consecutive; null: there are none.

    brokers: those that lived then. Tried in this order: racks where all brokers have one, brokers by id, and, as CreateTopics up to 3.9
    takes the brokers in the order of its metadata cache, the order in which the partitions' first replicas go round.
    """
    rows = [list(assignment[partition]) for partition in sorted(assignment)]
    start_partition = min(assignment)
    factor = len(rows[0])
    everyone = sorted(brokers)
    if (
        any(len(row) != factor for row in rows)
        or not 0 < factor <= len(everyone)
        or not {b for row in rows for b in row} <= set(everyone)
    ):
        return None
    known = {broker: racks[broker] for broker in everyone if broker in racks} if racks else {}
    orders: list[tuple[list[int], Mapping[int, str] | None]] = []
    if known and len(known) == len(everyone):
        orders.append((everyone, known))
    orders.append((everyone, None))
    if around := _order_of_firsts(rows, len(everyone)):
        orders.append((around, None))
    for order, by_rack in orders:
        listed = rack_alternated(by_rack) if by_rack else order
        start = (listed.index(rows[0][0]) - start_partition) % len(listed)
        for shift in range(max(1, len(listed) - 1)):
            if (
                list(assign(order, len(rows), factor, start, shift, start_partition=start_partition, racks=by_rack).values())
                == rows
            ):
                free = factor == 1 or len(listed) <= 2
                return Found(start, None if free else shift, by_rack is not None, tuple(listed))
    return None


def _order_of_firsts(rows: list[list[int]], brokers: int) -> list[int] | None:
    firsts = [row[0] for row in rows[:brokers]]
    if len(firsts) < brokers or len(set(firsts)) < brokers:
        return None
    least = firsts.index(min(firsts))
    return firsts[least:] + firsts[:least]


def find_added(
    added: Assignment, partition_0: Sequence[int], brokers: Collection[int], racks: Mapping[int, str] | None = None
) -> Found | None:
    """The same for partitions that were added: both start and shift are where the first replica of partition 0 stands among all brokers.

    From AdminZkClient.addPartitions and its predecessors: the first broker, by id, that is not below that replica; else the first one.
    """
    everyone = sorted(brokers)
    rows = [list(added[partition]) for partition in sorted(added)]
    factor = len(partition_0)
    if not 0 < factor <= len(everyone):
        return None
    start = next((at for at, broker in enumerate(everyone) if broker >= partition_0[0]), 0)
    known = {broker: racks[broker] for broker in everyone if broker in racks} if racks else {}
    choices: list[Mapping[int, str] | None] = [known] if known and len(known) == len(everyone) else []
    for by_rack in [*choices, None]:
        if list(assign(everyone, len(rows), factor, start, start, start_partition=min(added), racks=by_rack).values()) == rows:
            listed = rack_alternated(by_rack) if by_rack else everyone
            return Found(start, start, by_rack is not None, tuple(listed))
    return None


# -- StripedReplicaPlacer --------------------------------------------------------------------------------------


def not_striped(
    rows: Sequence[Sequence[int]], brokers: Collection[int], racks: Mapping[int, str] | None = None, fenced: Collection[int] = ()
) -> str | None:
    """Why StripedReplicaPlacer cannot have placed these partitions, of one request and in their order; null: it can.

    brokers: registered then, fenced ones included; racks: broker -> rack, brokers without one count as one rack.
    The placer goes round the racks, each partition beginning one rack further; within a rack it goes round the brokers of a list that is
    shuffled again after as many partitions as there are unfenced brokers.
    """
    everyone, resting = set(brokers), set(fenced) & set(brokers)
    rack_of = {broker: (racks or {}).get(broker, "") for broker in everyone}
    for number, row in enumerate(rows):
        if len(set(row)) < len(row):
            return f"a broker is twice in {_listed(row)}"
        if not set(row) <= everyone:
            return f"broker {min(set(row) - everyone)} was not registered then"
        if row[0] in resting and everyone - resting:
            return f"its first replica {row[0]} was fenced"
        wanted = min(len(row), len(set(rack_of.values())))
        if len({rack_of[broker] for broker in row}) < wanted:
            return f"the replicas {_listed(row)} are in fewer than {wanted} racks"
        if len(row) != len(rows[0]):
            return f"partition number {number} has another number of replicas than the first"
    if resting:
        return None  # where fenced brokers go depends on lists of which too little is left to be seen
    for begin in range(0, len(rows), max(1, len(everyone))):
        if why := _not_one_round(rows[begin : begin + len(everyone)], rack_of, begin):
            return why
    return None


def _not_one_round(rows: Sequence[Sequence[int]], rack_of: Mapping[int, str], begin: int) -> str | None:
    """The same for partitions between two shuffles; begin: how many were placed before them in this request."""
    racks = sorted(set(rack_of.values()))
    # the racks of a partition go round; beyond the first round racks may be used up, and are passed over
    order = _cycle([[rack_of[b] for b in row[: len(racks)]] for row in rows], len(racks), begin)
    if order is None:
        return "its partitions do not go round the racks"
    drawn: dict[str, list[list[int]]] = {rack: [] for rack in racks}
    for row in rows:
        for rack in racks:
            if mine := [broker for broker in row if rack_of[broker] == rack]:
                drawn[rack].append(mine)
    for rack, windows in drawn.items():
        members = sum(name == rack for name in rack_of.values())
        if _cycle(windows, members, 0) is None:
            return "its partitions do not go round the brokers" + (f" of rack {rack}" if rack else "")
    return None


def _cycle(windows: Sequence[Sequence[Hashable]], size: int, begin: int) -> dict[int, Hashable] | None:
    """Place -> member of a circle of `size` in which window number n starts at place begin + n and goes on; null: there is no such."""
    circle: dict[int, Hashable] = {}
    places: dict[Hashable, int] = {}
    for number, window in enumerate(windows):
        for at, member in enumerate(window):
            place = (begin + number + at) % size
            if circle.setdefault(place, member) != member or places.setdefault(member, place) != place:
                return None
    return circle


def _listed(row: Sequence[int]) -> str:
    return ",".join(map(str, row))


# -- what an assignment spreads --------------------------------------------------------------------------------


@dataclass(frozen=True)
class Spread:
    """The goals of Kafka's placement as figures; skew is the largest ÷ the mean over the brokers that live, 1 = even.

    companions_skew: of the other replicas of one broker's partitions over the other brokers, for the broker where it is largest.
    """

    replicas: dict[int, int]
    leaders: dict[int, int]
    replicas_skew: float | None
    leaders_skew: float | None
    companions_skew: float | None
    racks_min: int | None


def skew(counts: Mapping[int, int]) -> float | None:
    """Largest ÷ mean; null where there is nothing to spread."""
    total = sum(counts.values())
    return round(max(counts.values()) * len(counts) / total, 3) if total else None


def spread(assignment: Assignment, brokers: Collection[int], racks: Mapping[int, str] | None = None) -> Spread:
    """Figures of one topic's assignment. brokers: those that live, besides the assigned ones."""
    everyone = sorted(set(brokers) | {b for row in assignment.values() for b in row})
    replicas = Counter(dict.fromkeys(everyone, 0))
    leaders = Counter(dict.fromkeys(everyone, 0))
    companions = {broker: Counter({other: 0 for other in everyone if other != broker}) for broker in everyone}
    for row in assignment.values():
        replicas.update(row)
        leaders.update(row[:1])
        for broker in row:
            companions[broker].update(other for other in row if other != broker)
    apart = [found for counts in companions.values() if counts and (found := skew(counts)) is not None]
    known = racks or {}
    all_known = all(b in known for row in assignment.values() for b in row)
    counted = [len({known[b] for b in row}) for row in assignment.values()] if known and all_known else []
    return Spread(
        dict(replicas), dict(leaders), skew(replicas), skew(leaders), max(apart, default=None), min(counted, default=None)
    )


def violations(assignment: Assignment, brokers: Collection[int], racks: Mapping[int, str] | None = None) -> list[str]:
    """What is against the goals of any placement, named. brokers: those that live; empty: not known."""
    found = []
    live, known = set(brokers), racks or {}
    count = len({known[broker] for broker in live if broker in known})
    for partition, row in sorted(assignment.items()):
        if live and len(row) > len(live):
            found.append(f"partition {partition} has {len(row)} replicas, more than the {len(live)} brokers that live")
        if len(row) <= count and all(b in known for b in row) and (doubled := _doubled(row, known)):
            found.append(
                f"partition {partition} has two replicas in rack {doubled[0]}, though {count} racks suffice for {len(row)}"
            )
    used = {b for row in assignment.values() for b in row}
    if live and sum(map(len, assignment.values())) >= len(live):
        found += [f"broker {broker} has no replica" for broker in sorted(live - used)]
    firsts = {row[0] for row in assignment.values() if row}
    if len(live) > 1 and len(assignment) >= len(live) and len(firsts) == 1:
        found.append(f"broker {min(firsts)} is the first replica of all {len(assignment)} partitions")
    return found


def _doubled(row: Sequence[int], racks: Mapping[int, str]) -> list[str]:
    names = sorted(racks[b] for b in row)
    return [name for name, following in pairwise(names) if name == following]
