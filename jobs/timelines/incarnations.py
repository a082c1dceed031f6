"""Find the incarnation of a record.

A cluster may be wiped and set up again, and several clusters may log under one name.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

# clocks of two brokers may differ by this much (microseconds) before an epoch that falls back counts as a
# wiped cluster
CLOCK_SKEW = 60_000_000
# if there is no controller, a starting broker is elected within this time (microseconds)
ELECTED_AT_START = 2 * CLOCK_SKEW
# a process names its cluster within this time from its start (microseconds)
NAMED_AT_START = CLOCK_SKEW
# an epoch this far above the one before may be of another cluster, if it follows that cluster's epochs better
FAR = 4
# an election in epoch 1 is a first one: duplicates of its line are at most this far apart (microseconds)
FIRST_ELECTION_SKEW = CLOCK_SKEW // 12


class Marker(NamedTuple):
    """A record that shows the incarnation of a cluster. ts: microseconds.

    It is an election with its controller epoch, a node that names the cluster id, or the first record of a
    metadata log (begins_log). Or:
    heard: the first line of a controller's term, which may be long after its election. is_daily: the first
    line of a term on a day.
    started: the start of a process. registered: a broker and its broker epoch. kraft: a line that needs KRaft
    controllers.
    """

    ts: int
    controller_epoch: int | None = None
    cluster_id: str | None = None
    begins_log: bool = False
    folder: str = ""
    node: int | None = None
    heard: bool = False
    is_daily: bool = False
    started: bool = False
    registered: tuple[int, int] | None = None
    kraft: bool = False

    @property
    def place(self) -> "Place":
        """Return the folder and the node: the same for all logs of one broker."""
        return self.folder, self.node

    @property
    def is_election(self) -> bool:
        """Return whether it is an election, and not only a line of a term."""
        return self.controller_epoch is not None and not (self.heard or self.is_daily)


Place = tuple[str, int | None]


def folder_of(file: str) -> str:
    """Return the folder of a file; the file itself if it is in no folder."""
    return file.rpartition("/")[0] if "/" in file else file


@dataclass(frozen=True)
class Lineage:
    """One of the clusters that logged under one name.

    starts: when its second, third, .. incarnation began. numbers: of all its incarnations. places: of its
    brokers. folders, nodes: those that no other of these clusters has. The fields but the first two are empty
    if it is the only cluster.
    """

    starts: tuple[int, ...]
    numbers: tuple[int, ...]
    places: frozenset[Place] = frozenset()
    folders: frozenset[str] = frozenset()
    nodes: frozenset[int] = frozenset()

    def number_at(self, ts: int | None) -> int:
        """Return the incarnation at a moment; the first one for None."""
        return self.numbers[0 if ts is None else sum(start <= ts for start in self.starts)]


def incarnation_starts(markers: Iterable[Marker]) -> list[int]:
    """Return when the second, third, .. incarnation of a cluster began.

    There are three proofs, with a class for each: a new cluster id, and controller epochs or broker epochs
    that do not continue. The next id that a node names belongs to an incarnation that epochs showed, unless
    it is still the same one: then a clock is wrong.
    """
    markers = sorted(markers, key=lambda m: (m.ts, m.controller_epoch or 0))
    starts: list[int] = []
    ids = _ClusterIds(markers)
    processes = _Processes()
    controllers = _ControllerEpochs()
    brokers = _BrokerEpochs()
    named_at = None
    for marker in markers:
        if ids.begins(marker):
            starts.append(processes.started_by(marker, named_at))
            controllers.begin_new()
        if marker.cluster_id is not None:
            named_at = marker.ts
        processes.see(marker)
        if marker.kraft:
            controllers.see_kraft(marker.ts)
        if marker.registered is not None:
            older_at = brokers.of_other_incarnation(marker.ts, *marker.registered)
            # an election in this incarnation may have been logged before
            if older_at is not None and (not starts or starts[-1] < older_at):
                starts.append(processes.begun_by(marker, older_at))
                controllers.begin_with_election()
                ids.begin_unnamed()
        elif marker.controller_epoch is not None:
            start = controllers.begins(marker, processes)
            if start is not None:
                starts.append(start)
                ids.begin_unnamed()
    return _without_same_id(starts, markers)


def _without_same_id(starts: Sequence[int], markers: Sequence[Marker]) -> list[int]:
    """Return the starts without those before and after which all nodes name one and the same cluster id.

    ZooKeeper keeps the id (/cluster/id) beside the epochs: both are lost together. With KRaft, nodes may be
    formatted again with the same id (`kafka-storage format --cluster-id`).
    """
    if any(marker.kraft for marker in markers):
        return list(starts)
    named = [(marker.ts, marker.cluster_id) for marker in markers if marker.cluster_id is not None]
    found: list[int] = []
    for start, end in zip(starts, [*starts[1:], None], strict=False):
        begun = found[-1] if found else None
        before = {name for ts, name in named if (begun is None or begun <= ts) and ts < start}
        after = {name for ts, name in named if start <= ts and (end is None or ts < end)}
        if len(before) != 1 or before != after:
            found.append(start)
    return found


class _ClusterIds:
    """Incarnations by the ids that nodes name, or by metadata logs (KRaft) that begin with offset 0.

    The more numerous of both decide.
    """

    def __init__(self, markers: Sequence[Marker]) -> None:
        logs = {marker.ts for marker in markers if marker.begins_log}
        self.by_log = len(logs) > len({marker.cluster_id for marker in markers} - {None})
        self.known: set[str] = set()
        self.is_named = True

    def begins(self, marker: Marker) -> bool:
        """Return whether a marker names a new incarnation, and not the one that began without a name."""
        name = (str(marker.ts) if marker.begins_log else None) if self.by_log else marker.cluster_id
        if name is None:
            return False
        is_new = bool(self.known) and name not in self.known and self.is_named
        self.is_named = True
        self.known.add(name)
        return is_new

    def begin_unnamed(self) -> None:
        self.is_named = False


class _Processes:
    """The last start of the process of each place, and the last election of a controller there."""

    def __init__(self) -> None:
        self.started: dict[Place, int] = {}
        self.elected: dict[Place, int] = {}

    def see(self, marker: Marker) -> None:
        if marker.started:
            self.started[marker.place] = marker.ts
        if marker.is_election:
            self.elected[marker.place] = marker.ts

    def started_by(self, marker: Marker, after: int | None) -> int:
        """Return when the process started that names its cluster: it logs lines before that."""
        earliest = max(marker.ts - NAMED_AT_START, after or 0)
        started = self.started.get(marker.place)
        return started if started is not None and started > earliest else marker.ts

    def begun_by(self, marker: Marker, not_before: int) -> int:
        """Return when the process of an elected or registering broker started.

        For a controller that reads a registration its election counts, too.
        """
        own = [one[marker.place] for one in (self.started, self.elected) if marker.place in one]
        return min(
            [at for at in own if max(marker.ts - ELECTED_AT_START, not_before) < at], default=marker.ts
        )


class _BrokerEpochs:
    """Broker epochs of one incarnation.

    A broker epoch is the ZooKeeper transaction that created the broker's node (KIP-380). An epoch that falls
    is of another ZooKeeper, and so is a new epoch that is older than those of other brokers by then. A
    controller reads them right after its election (KafkaController.onControllerFailover, 2.2 to 3.9).
    """

    def __init__(self) -> None:
        self.newest: dict[int, tuple[int, int]] = {}

    def of_other_incarnation(self, ts: int, broker: int, broker_epoch: int) -> int | None:
        """Return when the broker was last seen with its known epoch if this epoch is of another incarnation.

        None: it is of the same incarnation.
        """
        known, known_at = self.newest.get(broker, (-1, ts))
        # a broker that registers again has the newest transaction
        past = [
            one
            for one, at in self.newest.values()
            if broker_epoch > known and (at == known_at or at + CLOCK_SKEW < known_at)
        ]
        is_other = broker_epoch < max(known, *past, -1) and ts > known_at + CLOCK_SKEW
        if is_other:
            self.newest.clear()
        if broker_epoch >= known or not self.newest:
            self.newest[broker] = broker_epoch, ts
        return known_at if is_other else None


class _ControllerEpochs:
    """Controller epochs of one incarnation, and the highest epoch of the one before it.

    /controller_epoch in ZooKeeper only grows. An election in an epoch that was reached before, later than
    clocks can differ, is of another incarnation; but a controller that could not write its epoch tries the
    same one again. The first election of an incarnation need not be
    logged: the incarnation begins with the first line of an older, unknown term, or with the start of the
    elected process.

    Two clusters that write to one place take turns: if the epochs of the one before continue, it continues as
    a further incarnation. Once they are known to take turns, the very next epoch of the one before, elected
    or heard, is its turn again: each election adds one
    (KafkaZkClient.registerControllerAndIncrementControllerEpoch), and for the other cluster several elections
    would be missing.

    No cluster returns from KRaft to an empty ZooKeeper: a migrated cluster (KIP-866) has elected ZooKeeper
    controllers before its brokers register with the KRaft ones (3.4 to 3.9: KafkaServer.startup starts
    KafkaController, then BrokerLifecycleManager), and its epochs continue if the migration is reverted. So a
    first election in epoch 1 after that is of another incarnation.
    """

    def __init__(self) -> None:
        self.reached = 0
        self.reached_at: int | None = None
        self.reached_by: int | None = None
        # (ts, epoch) of terms that were first heard when a later epoch had been reached
        self.older: list[tuple[int, int]] = []
        self.kraft_at: int | None = None
        self.reached_before, self.take_turns = 0, False

    def begin_new(self) -> None:
        """Begin an incarnation with another id, which continues nothing."""
        self.reached, self.reached_at, self.take_turns, self.kraft_at = 0, None, False, None

    def begin_with_election(self) -> None:
        """Begin an incarnation that broker epochs show: its election was seen already or is not logged."""
        self.reached_before = self.reached
        self.begin_new()

    def see_kraft(self, ts: int) -> None:
        self.kraft_at = self.kraft_at or ts

    def begins(self, marker: Marker, processes: _Processes) -> int | None:
        """Return when the incarnation of an election or a line of a term began; None: it is of the known one."""
        ts, epoch, begun_before = marker.ts, marker.controller_epoch or 0, self.reached_at
        is_later = begun_before is not None and ts > begun_before + CLOCK_SKEW
        if marker.heard and epoch < self.reached and is_later:
            self.older.append((ts, epoch))
        is_turn = begun_before is not None and self._is_turn(marker)
        if not marker.is_election and not (is_turn and is_later):
            return None
        start = None
        if begun_before is None:
            if epoch == 1 and self.kraft_at is not None and ts > self.kraft_at + CLOCK_SKEW:
                start = processes.begun_by(marker, self.kraft_at)
        elif is_turn or epoch - self.reached > FAR > epoch - self.reached_before > 0:
            start = processes.begun_by(marker, begun_before)
            self.reached_before, self.reached, self.take_turns = self.reached, 0, True
        elif self._falls(marker, ts - begun_before):
            start = min(
                [processes.begun_by(marker, begun_before), *(at for at, term in self.older if term < epoch)]
            )
            self.take_turns = self.take_turns and epoch > self.reached_before
            self.reached_before, self.reached, self.reached_at = self.reached, 0, None
        if epoch > self.reached:
            self.older.clear()
            self.reached, self.reached_at, self.reached_by = epoch, ts, marker.node
        return start

    def _is_turn(self, marker: Marker) -> bool:
        """Return whether it is the turn of the cluster before, of two that are known to take turns."""
        epoch = marker.controller_epoch or 0
        # a controller that was elected in a later epoch does not write in an earlier one
        is_of_other = epoch > self.reached + 1 or (
            not marker.is_election and epoch < self.reached and marker.node == self.reached_by
        )
        continues = epoch - self.reached_before == 1 or (
            not marker.is_election and epoch == self.reached_before
        )
        return self.take_turns and is_of_other and continues

    def _falls(self, marker: Marker, later: int) -> bool:
        """Return whether an election is in an epoch that had been reached.

        later: microseconds after the newest epoch.
        """
        epoch = marker.controller_epoch or 0
        is_tried_again = epoch == self.reached > 1 and marker.node == self.reached_by is not None
        is_late = later > CLOCK_SKEW or (epoch == 1 and later > FIRST_ELECTION_SKEW)
        return epoch <= self.reached and not is_tried_again and is_late


def lineages(markers: Iterable[Marker], newest: Mapping[Place, int]) -> list[Lineage]:
    """Return the clusters that logged under one name; usually one.

    newest: place -> its newest time stamp. Cluster ids that one place names one after the other are
    incarnations of one cluster. Ids without a common place are two clusters if places of the older still
    wrote after the younger had begun: a wiped cluster writes nothing then. Incarnations of all clusters are
    numbered in order of their begin.
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
    if not any(
        one < other < end - CLOCK_SKEW for one, end in zip(begun, ended, strict=True) for other in begun
    ):
        return alone

    def only(known: Sequence[set[Any]]) -> list[frozenset[Any]]:
        return [frozenset(one.difference(*known[:n], *known[n + 1 :])) for n, one in enumerate(known)]

    folders = only([{marker.folder for marker in named if marker.place in places} for _, places in groups])
    nodes = only(
        [{marker.node for marker in named if marker.place in places} - {None} for _, places in groups]
    )
    own_starts = []
    for n, (_, places) in enumerate(groups):
        mine = [m for m in markers if m.place in places or m.folder in folders[n] or m.node in nodes[n]]
        own_starts.append(incarnation_starts(mine))
    begins = sorted((start, n) for n, later in enumerate(own_starts) for start in (begun[n], *later))
    return [
        Lineage(
            tuple(own_starts[n]),
            tuple(number for number, (_, of) in enumerate(begins, 1) if of == n),
            frozenset(places),
            folders[n],
            nodes[n],
        )
        for n, (_, places) in enumerate(groups)
    ]


def incarnation(of_name: Sequence[Lineage], file: str, node: int | None, ts: int | None) -> int:
    """Return the incarnation of a record.

    If several clusters logged under one name, the record's place, folder or node decides; a record without
    any of these gets the number after the last.
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
    """Return incarnation -> when it ended, without those that have not ended."""
    return {number: end for one in of_name for number, end in zip(one.numbers, one.starts, strict=False)}
