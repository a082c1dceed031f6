"""Which life of a cluster a record belongs to: clusters that were wiped and set up anew, and several that log under one name."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

# clocks of two brokers may differ by this much (microseconds) before an epoch that falls back counts as a wiped cluster
CLOCK_SKEW = 60_000_000
# a controller is elected within this time from its start, where there is none (microseconds)
ELECTED_AT_START = 2 * CLOCK_SKEW
# an epoch that goes so far beyond the one before goes on with what another cluster had reached, where that fits better
FAR = 4
# an election in epoch 1 is a first one: copies of its line lie no further apart (microseconds)
FIRST_ELECTION_SKEW = CLOCK_SKEW // 12


class Marker(NamedTuple):
    """A record that tells which life a cluster is in: an election with its controller epoch, a node that names the cluster id, or the
    first record of a metadata log; or (heard) the first line of a controller's term, which may be long after its election; or (goes_on) the
    first one that it prints on a day; or (started) the start of a process; or (registered) a broker and its broker epoch; or (kraft) what only
    happens once KRaft controllers know a broker. ts: microseconds.
    """

    ts: int
    controller_epoch: int | None = None
    cluster_id: str | None = None
    begins_log: bool = False
    folder: str = ""
    node: int | None = None
    heard: bool = False
    goes_on: bool = False
    started: bool = False
    registered: tuple[int, int] | None = None
    kraft: bool = False

    @property
    def place(self) -> "Place":
        """What the logs of one broker have in common."""
        return self.folder, self.node


Place = tuple[str, int | None]


def folder_of(file: str) -> str:
    """The folder of a file, the file itself where it has none."""
    return file.rpartition("/")[0] if "/" in file else file


@dataclass(frozen=True)
class Lineage:
    """One of the clusters that logged under one name: when its second, third, .. incarnation began, and the numbers of all.

    Where it is the only one nothing need tell its records from others. places: of its brokers; folders and nodes: those that no other
    one has.
    """

    starts: tuple[int, ...]
    numbers: tuple[int, ...]
    places: frozenset[Place] = frozenset()
    folders: frozenset[str] = frozenset()
    nodes: frozenset[int] = frozenset()

    def number_at(self, ts: int | None) -> int:
        """The incarnation at a moment; the first where there is none."""
        return self.numbers[0 if ts is None else sum(start <= ts for start in self.starts)]


def incarnation_starts(markers: Iterable[Marker]) -> list[int]:
    """When the second, third, .. incarnation of a cluster began.

    A cluster that is set up anew has a cluster id that was never seen before, and its metadata log (KRaft) begins with offset 0 once
    more; of the two counts what tells more lives. Where no line names the id, its controller epochs start again: /controller_epoch in
    ZooKeeper only grows, so an election in an epoch that was reached before, later than clocks can differ, is one of another life; but a
    controller that could not write its epoch tries the same one again. Its first election need not be logged: that life goes back to the
    first line of a term that was never heard of and is older than what had been reached, and to the start of the process that is elected. A
    broker epoch is the transaction of ZooKeeper that made the broker's node (KIP-380), so one that falls is of another ZooKeeper, too, and so
    is a new one that is older than what any broker had by then; a controller reads them right after its election
    (KafkaController.onControllerFailover, 2.2 to 3.9). Two clusters that write to one place take turns: where the epochs of the one before
    go on, so does it, as a life of its own. Once they are known to take turns, the very next epoch of the one before is its turn again,
    elected or heard: each election adds one (KafkaZkClient.registerControllerAndIncrementControllerEpoch), and in the other one several
    would be in no log.

    No way leads from KRaft back to an empty ZooKeeper: a cluster that is migrated (KIP-866) has elected ZooKeeper controllers before its
    brokers register with the KRaft ones (3.4 to 3.9: KafkaServer.startup starts KafkaController, then BrokerLifecycleManager), and if it is
    taken back its epochs go on. So a first election in epoch 1 after that is of another life.
    """
    starts: list[int] = []
    ids: set[str] = set()
    unnamed_start: int | None = None
    reached, reached_at, reached_by = 0, None, None
    older: list[tuple[int, int]] = []
    started: dict[Place, int] = {}
    elected: dict[Place, int] = {}
    newest: dict[int, tuple[int, int]] = {}
    reached_before, take_turns = 0, False
    kraft_at: int | None = None

    def begun_by(marker: Marker, not_before: int) -> int:
        """When the process started that is elected, or registers; of a controller that reads who is registered, when it was elected, too."""
        own = [one[marker.place] for one in (started, elected) if marker.place in one]
        return min([at for at in own if max(marker.ts - ELECTED_AT_START, not_before) < at], default=marker.ts)

    markers = list(markers)
    logs = {marker.ts for marker in markers if marker.begins_log}
    by_log = len(logs) > len({marker.cluster_id for marker in markers} - {None})
    for marker in sorted(markers, key=lambda m: (m.ts, m.controller_epoch or 0)):
        life = (str(marker.ts) if marker.begins_log else None) if by_log else marker.cluster_id
        if life is not None:
            if ids and life not in ids and unnamed_start is None:
                starts.append(marker.ts)
                reached, reached_at, take_turns, kraft_at = 0, None, False, None
            unnamed_start = None
            ids.add(life)
        epoch = marker.controller_epoch
        if marker.kraft:
            kraft_at = kraft_at or marker.ts
        if marker.started:
            started[marker.place] = marker.ts
        if epoch is not None and not (marker.heard or marker.goes_on):
            elected[marker.place] = marker.ts
        if marker.registered is not None:
            broker, broker_epoch = marker.registered
            known, known_at = newest.get(broker, (-1, marker.ts))
            # registered anew, it would have the newest transaction
            past = [one for one, at in newest.values() if broker_epoch > known and (at == known_at or at + CLOCK_SKEW < known_at)]
            if broker_epoch < max(known, *past, -1) and marker.ts > known_at + CLOCK_SKEW:
                # what is elected in this life may have been logged before it
                if not starts or starts[-1] < known_at:
                    starts.append(begun_by(marker, known_at))
                    reached_before, reached, reached_at = reached, 0, None
                    take_turns, kraft_at = False, None
                    unnamed_start = marker.ts
                newest.clear()
            if broker_epoch >= known or not newest:
                newest[broker] = broker_epoch, marker.ts
            continue
        if epoch is None:
            continue
        is_told, is_later = marker.heard or marker.goes_on, reached_at is not None and marker.ts > reached_at + CLOCK_SKEW
        if marker.heard and epoch < reached and is_later:
            older.append((marker.ts, epoch))
        # a controller that was elected in a later epoch does not speak in an earlier one
        is_of_other = epoch > reached + 1 or (is_told and epoch < reached and marker.node == reached_by)
        goes_on = epoch - reached_before == 1 or (is_told and epoch == reached_before)
        is_turn = take_turns and reached_at is not None and is_of_other and goes_on
        if is_told and not (is_turn and is_later):
            continue
        if reached_at is None and epoch == 1 and kraft_at is not None and marker.ts > kraft_at + CLOCK_SKEW:
            starts.append(begun_by(marker, kraft_at))
            unnamed_start = marker.ts
        is_tried_again = epoch == reached > 1 and marker.node == reached_by is not None
        if reached_at is not None and (is_turn or epoch - reached > FAR > epoch - reached_before > 0):
            starts.append(begun_by(marker, reached_at))
            unnamed_start = marker.ts
            reached_before, reached, take_turns = reached, 0, True
        elif reached_at is not None and epoch <= reached and not is_tried_again:
            later = marker.ts - reached_at
            if later > CLOCK_SKEW or (epoch == 1 and later > FIRST_ELECTION_SKEW):
                starts.append(min([begun_by(marker, reached_at), *(ts for ts, term in older if term < epoch)]))
                unnamed_start = marker.ts
                take_turns = take_turns and epoch > reached_before
                reached_before, reached, reached_at = reached, 0, None
        if epoch > reached:
            older.clear()
            reached, reached_at, reached_by = epoch, marker.ts, marker.node
    return starts


def lineages(markers: Iterable[Marker], newest: Mapping[Place, int]) -> list[Lineage]:
    """The clusters that logged under one name; usually one.

    newest: place -> its newest time stamp. Cluster ids that one place names one after the other are incarnations of one cluster. Those
    that no place has in common are two clusters if the places of the older went on after the younger had begun: a cluster that was wiped
    is silent then. Incarnations are numbered through, by their beginnings.
    """
    markers = sorted(markers, key=lambda marker: marker.ts)
    starts = incarnation_starts(markers)
    alone = [Lineage(tuple(starts), tuple(range(1, len(starts) + 2)))]
    groups: list[tuple[set[str], set[Place]]] = []
    named = [marker for marker in markers if marker.cluster_id is not None]
    for marker in named:
        joined = [group for group in groups if marker.cluster_id in group[0] or marker.place in group[1]]
        groups = [group for group in groups if group not in joined]
        ids, places = {str(marker.cluster_id)}, {marker.place}
        groups.append((ids.union(*[one for one, _ in joined]), places.union(*[one for _, one in joined])))
    if len(groups) < 2:
        return alone
    begun = [min(marker.ts for marker in named if marker.cluster_id in ids) for ids, _ in groups]
    ended = [max(newest[place] for place in places) for _, places in groups]
    if not any(one < other < end - CLOCK_SKEW for one, end in zip(begun, ended, strict=True) for other in begun):
        return alone

    def only(known: Sequence[set[Any]]) -> list[frozenset[Any]]:
        return [frozenset(one.difference(*known[:n], *known[n + 1 :])) for n, one in enumerate(known)]

    folders = only([{marker.folder for marker in named if marker.place in places} for _, places in groups])
    nodes = only([{marker.node for marker in named if marker.place in places} - {None} for _, places in groups])
    own_starts = []
    for n, (_, places) in enumerate(groups):
        mine = [m for m in markers if m.place in places or m.folder in folders[n] or m.node in nodes[n]]
        own_starts.append(incarnation_starts(mine))
    lives = sorted((start, n) for n, later in enumerate(own_starts) for start in (begun[n], *later))
    return [
        Lineage(
            tuple(own_starts[n]),
            tuple(number for number, (_, of) in enumerate(lives, 1) if of == n),
            frozenset(places),
            folders[n],
            nodes[n],
        )
        for n, (_, places) in enumerate(groups)
    ]


def incarnation(of_name: Sequence[Lineage], file: str, node: int | None, ts: int | None) -> int:
    """The incarnation that a record belongs to.

    Where several clusters logged under one name: that of the record's place, folder or node; of what names none of these, the one after
    the last.
    """
    if len(of_name) == 1:
        return of_name[0].number_at(ts)
    folder = folder_of(file)
    for belongs in (
        lambda one: (folder, node) in one.places,
        lambda one: folder in one.folders,
        lambda one: node in one.nodes,
    ):
        for one in of_name:
            if belongs(one):
                return one.number_at(ts)
    return sum(len(one.numbers) for one in of_name) + 1


def incarnation_ends(of_name: Sequence[Lineage]) -> dict[int, int]:
    """Incarnation -> when it ended; those that did not, as far as is known, are left out."""
    return {number: end for one in of_name for number, end in zip(one.numbers, one.starts, strict=False)}
