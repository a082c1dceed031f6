"""Kafka's two placement algorithms, their inverse, and how evenly an assignment is spread. Pure.

ZooKeeper mode, up to 3.9: `AdminUtils.assignReplicasToBrokers` (kafka.admin, unchanged since 0.10.0). It
draws a start index and a shift at random; the rest follows from them. KRaft: `StripedReplicaPlacer`
(org.apache.kafka.metadata.placement). It shuffles lists of brokers, so only what every outcome has in common
can be checked.
"""

from collections import Counter
from collections.abc import Collection, Hashable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

Assignment = Mapping[int, Sequence[int]]


class PlacementError(ValueError):
    """Kafka would refuse the request.

    There is no partition or replica, or more replicas than brokers, or only some brokers have racks.
    """


@dataclass(frozen=True)
class PlacementParameters:
    """The parameters that lead to an assignment.

    start_index, shift: of `assignReplicasToBrokers`. shift is the smallest one that fits; null if no replica
    depends on it.
    rack_aware: whether racks were used. brokers: the list that the indexes refer to.
    """

    start_index: int | None
    shift: int | None
    rack_aware: bool
    brokers: tuple[int, ...]


def rack_alternated(racks: Mapping[int, str]) -> list[int]:
    """Return broker ids, one of each rack in turn; racks by name, brokers of a rack by id.

    Source: AdminUtils.getRackAlternatedBrokerList.
    """
    members = {
        name: sorted(broker for broker in racks if racks[broker] == name)
        for name in sorted(set(racks.values()))
    }
    longest = max(map(len, members.values()), default=0)
    return [brokers[at] for at in range(longest) for brokers in members.values() if at < len(brokers)]


def replica_index(first: int, shift: int, replica: int, brokers: int) -> int:
    """Return the index in the broker list of a replica after the first one.

    replica: its number, from 0. Source: AdminUtils.replicaIndex.
    """
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
    """Return partition -> replicas, as `assignReplicasToBrokers` places them from this start and shift.

    brokers: in Kafka's order. racks: broker -> rack, of all brokers or of none. Raises PlacementError.
    """
    if partitions <= 0:
        raise PlacementError("The number of partitions must be larger than 0")
    if replication_factor <= 0:
        raise PlacementError("The replication factor must be larger than 0")
    if replication_factor > len(brokers):
        raise PlacementError(
            f"Replication factor {replication_factor} is larger than the number of brokers, {len(brokers)}"
        )
    known = {broker: racks[broker] for broker in brokers if broker in racks} if racks else {}
    if known and len(known) < len(brokers):
        raise PlacementError("Not all brokers have a rack")
    listed = rack_alternated(known) if known else list(brokers)
    assigned = {}
    for partition in range(start_partition, start_partition + partitions):
        if partition > 0 and partition % len(listed) == 0:
            shift += 1
        first = (partition + start_index) % len(listed)
        if known:
            assigned[partition] = _across_racks(listed, known, first, shift, replication_factor)
        else:
            others = (replica_index(first, shift, j, len(listed)) for j in range(replication_factor - 1))
            assigned[partition] = [listed[first], *(listed[at] for at in others)]
    return assigned


def _across_racks(
    listed: list[int], racks: Mapping[int, str], first: int, shift: int, replication_factor: int
) -> list[int]:
    """Return the replicas of one partition.

    A broker is skipped if it has a replica, or if its rack has one and another rack has none.
    """
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


def find(
    assignment: Assignment, brokers: Collection[int], racks: Mapping[int, str] | None = None
) -> PlacementParameters | None:
    """Return start index and shift of an assignment of consecutive partitions; null if there are none.

    brokers: those that were alive. Three orders are tried: by rack if all brokers have one, by id, and the
    order of the partitions' first replicas, because CreateTopics up to 3.9 takes the brokers in the order of
    its metadata cache.
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
                list(
                    assign(
                        order, len(rows), factor, start, shift, start_partition=start_partition, racks=by_rack
                    ).values()
                )
                == rows
            ):
                free = factor == 1 or len(listed) <= 2
                return PlacementParameters(start, None if free else shift, by_rack is not None, tuple(listed))
    return None


def _order_of_firsts(rows: list[list[int]], brokers: int) -> list[int] | None:
    firsts = [row[0] for row in rows[:brokers]]
    if len(firsts) < brokers or len(set(firsts)) < brokers:
        return None
    least = firsts.index(min(firsts))
    return firsts[least:] + firsts[:least]


def find_added(
    added: Assignment,
    partition_0: Sequence[int],
    brokers: Collection[int],
    racks: Mapping[int, str] | None = None,
) -> PlacementParameters | None:
    """Return the same for added partitions.

    Start and shift are both the index of partition 0's first replica among all brokers. Source:
    AdminZkClient.addPartitions and its predecessors. They take the first broker, by id, that is not below
    that replica; else the first broker.
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
        if (
            list(
                assign(
                    everyone, len(rows), factor, start, start, start_partition=min(added), racks=by_rack
                ).values()
            )
            == rows
        ):
            listed = rack_alternated(by_rack) if by_rack else everyone
            return PlacementParameters(start, start, by_rack is not None, tuple(listed))
    return None


# -- StripedReplicaPlacer ------------------------------------------------------------------------------------


def not_striped(
    rows: Sequence[Sequence[int]],
    brokers: Collection[int],
    racks: Mapping[int, str] | None = None,
    fenced: Collection[int] = (),
) -> str | None:
    """Return why StripedReplicaPlacer cannot have placed these partitions; null if it can.

    rows: replicas of the partitions of one request, in order. brokers: those that were registered, also
    fenced ones. racks: broker -> rack; brokers without one count as one rack. The placer cycles through the
    racks, and each partition begins one rack further. Within a rack it cycles through a list of brokers,
    which it shuffles again after as many partitions as there are unfenced brokers.
    """
    everyone, fenced_now = set(brokers), set(fenced) & set(brokers)
    rack_of = {broker: (racks or {}).get(broker, "") for broker in everyone}
    for number, row in enumerate(rows):
        if len(set(row)) < len(row):
            return f"a broker is twice in {_listed(row)}"
        if not set(row) <= everyone:
            return f"broker {min(set(row) - everyone)} was not registered then"
        if row[0] in fenced_now and everyone - fenced_now:
            return f"its first replica {row[0]} was fenced"
        required = min(len(row), len(set(rack_of.values())))
        if len({rack_of[broker] for broker in row}) < required:
            return f"the replicas {_listed(row)} are in fewer than {required} racks"
        if len(row) != len(rows[0]):
            return f"partition number {number} has another number of replicas than the first"
    if fenced_now:
        return None  # too few places in the shuffled lists are known to check the rest
    for begin in range(0, len(rows), max(1, len(everyone))):
        if why := _not_one_round(rows[begin : begin + len(everyone)], rack_of, begin):
            return why
    return None


def _not_one_round(rows: Sequence[Sequence[int]], rack_of: Mapping[int, str], begin: int) -> str | None:
    """Return the same for partitions between two shuffles.

    begin: number of partitions of this request that were placed before.
    """
    racks = sorted(set(rack_of.values()))
    # the racks of a partition are in a cycle; after one round a rack without brokers left is skipped
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
    """Return place -> member of a circle of `size` in which window n starts at place begin + n.

    The result is null if there is no such circle.
    """
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


# -- how an assignment is spread -----------------------------------------------------------------------------


@dataclass(frozen=True)
class Spread:
    """The goals of Kafka's placement as figures.

    skew: the largest ÷ the mean over the live brokers, 1 = even.
    companions_skew: how the other replicas of one broker's partitions are spread over the other brokers; the
    largest of any broker.
    """

    replicas: dict[int, int]
    leaders: dict[int, int]
    replicas_skew: float | None
    leaders_skew: float | None
    companions_skew: float | None
    racks_min: int | None


def skew(counts: Mapping[int, int]) -> float | None:
    """Return largest ÷ mean; null if all counts are 0."""
    total = sum(counts.values())
    return round(max(counts.values()) * len(counts) / total, 3) if total else None


def spread(
    assignment: Assignment, brokers: Collection[int], racks: Mapping[int, str] | None = None
) -> Spread:
    """Return the figures of one topic's assignment.

    brokers: the live ones; assigned ones count in any case.
    """
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
        dict(replicas),
        dict(leaders),
        skew(replicas),
        skew(leaders),
        max(apart, default=None),
        min(counted, default=None),
    )


def violations(
    assignment: Assignment, brokers: Collection[int], racks: Mapping[int, str] | None = None
) -> list[str]:
    """Return what violates the goals of any placement, as sentences.

    brokers: the live ones; empty: not known.
    """
    found = []
    live, known = set(brokers), racks or {}
    count = len({known[broker] for broker in live if broker in known})
    for partition, row in sorted(assignment.items()):
        if live and len(row) > len(live):
            found.append(
                f"partition {partition} has {len(row)} replicas, more than the {len(live)} live brokers"
            )
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
