"""Which life of a cluster a record belongs to: clusters that were wiped and set up anew, and several that log under one name."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

# clocks of two brokers may differ by this much (microseconds) before an epoch that falls back counts as a wiped cluster
CLOCK_SKEW = 60_000_000
# a controller is elected within this time from its start, where there is none (microseconds)
ELECTED_AT_START = 2 * CLOCK_SKEW
# a process names its cluster within this time from its start (microseconds)
NAMED_AT_START = CLOCK_SKEW
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

    @property
    def is_election(self) -> bool:
        """Whether a controller is elected here, not only heard."""
        return self.controller_epoch is not None and not (self.heard or self.goes_on)


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

    Three proofs, each said by a class: an id that was never seen before, controller epochs and broker epochs that do not go on. A life that
    the epochs told takes the next id that is named for its own.
    """
    markers = sorted(markers, key=lambda m: (m.ts, m.controller_epoch or 0))
    starts: list[int] = []
    ids, processes, controllers, brokers = _ClusterIds(markers), _Processes(), _ControllerEpochs(), _BrokerEpochs()
    named_at = None
    for marker in markers:
        if ids.begins(marker):
            starts.append(processes.started_by(marker, named_at))
            controllers.begin_anew()
        if marker.cluster_id is not None:
            named_at = marker.ts
        processes.see(marker)
        if marker.kraft:
            controllers.see_kraft(marker.ts)
        if marker.registered is not None:
            older_at = brokers.of_other_life(marker.ts, *marker.registered)
            # what is elected in this life may have been logged before it
            if older_at is not None and (not starts or starts[-1] < older_at):
                starts.append(processes.begun_by(marker, older_at))
                controllers.begin_with_election()
                ids.begin_unnamed()
        elif marker.controller_epoch is not None:
            start = controllers.begins(marker, processes)
            if start is not None:
                starts.append(start)
                ids.begin_unnamed()
    return starts


class _ClusterIds:
    """Lives by the id that nodes name, or by metadata logs (KRaft), which begin with offset 0 once more: by what tells more of them."""

    def __init__(self, markers: Sequence[Marker]) -> None:
        logs = {marker.ts for marker in markers if marker.begins_log}
        self.by_log = len(logs) > len({marker.cluster_id for marker in markers} - {None})
        self.known: set[str] = set()
        self.is_named = True

    def begins(self, marker: Marker) -> bool:
        """Whether a marker names a life that is neither known nor the one that began without a name."""
        life = (str(marker.ts) if marker.begins_log else None) if self.by_log else marker.cluster_id
        if life is None:
            return False
        is_new = bool(self.known) and life not in self.known and self.is_named
        self.is_named = True
        self.known.add(life)
        return is_new

    def begin_unnamed(self) -> None:
        self.is_named = False


class _Processes:
    """When the process of each place started last, and when a controller was elected there."""

    def __init__(self) -> None:
        self.started: dict[Place, int] = {}
        self.elected: dict[Place, int] = {}

    def see(self, marker: Marker) -> None:
        if marker.started:
            self.started[marker.place] = marker.ts
        if marker.is_election:
            self.elected[marker.place] = marker.ts

    def started_by(self, marker: Marker, after: int | None) -> int:
        """When the process started that names its cluster: it logs lines before it does."""
        earliest = max(marker.ts - NAMED_AT_START, after or 0)
        started = self.started.get(marker.place)
        return started if started is not None and started > earliest else marker.ts

    def begun_by(self, marker: Marker, not_before: int) -> int:
        """When the process started that is elected, or registers; of a controller that reads who is registered, when it was elected, too."""
        own = [one[marker.place] for one in (self.started, self.elected) if marker.place in one]
        return min([at for at in own if max(marker.ts - ELECTED_AT_START, not_before) < at], default=marker.ts)


class _BrokerEpochs:
    """Broker epochs of one life.

    A broker epoch is the transaction of ZooKeeper that made the broker's node (KIP-380), so one that falls is of another ZooKeeper, and so is
    a new one that is older than what any broker had by then; a controller reads them right after its election
    (KafkaController.onControllerFailover, 2.2 to 3.9).
    """

    def __init__(self) -> None:
        self.newest: dict[int, tuple[int, int]] = {}

    def of_other_life(self, ts: int, broker: int, broker_epoch: int) -> int | None:
        """When the broker had a later epoch, or was seen last, if this one is of another life; None if it is not."""
        known, known_at = self.newest.get(broker, (-1, ts))
        # registered anew, it would have the newest transaction
        past = [
            one for one, at in self.newest.values() if broker_epoch > known and (at == known_at or at + CLOCK_SKEW < known_at)
        ]
        is_other = broker_epoch < max(known, *past, -1) and ts > known_at + CLOCK_SKEW
        if is_other:
            self.newest.clear()
        if broker_epoch >= known or not self.newest:
            self.newest[broker] = broker_epoch, ts
        return known_at if is_other else None


class _ControllerEpochs:
    """Controller epochs of one life, and what the one before it had reached.

    /controller_epoch in ZooKeeper only grows, so an election in an epoch that was reached before, later than clocks can differ, is one of
    another life; but a controller that could not write its epoch tries the same one again. A life's first election need not be logged: it
    goes back to the first line of a term that was never heard of and is older than what had been reached, and to the start of the process
    that is elected.

    Two clusters that write to one place take turns: where the epochs of the one before go on, so does it, as a life of its own. Once they are
    known to take turns, the very next epoch of the one before is its turn again, elected or heard: each election adds one
    (KafkaZkClient.registerControllerAndIncrementControllerEpoch), and in the other one several would be in no log.

    No way leads from KRaft back to an empty ZooKeeper: a cluster that is migrated (KIP-866) has elected ZooKeeper controllers before its
    brokers register with the KRaft ones (3.4 to 3.9: KafkaServer.startup starts KafkaController, then BrokerLifecycleManager), and if it is
    taken back its epochs go on. So a first election in epoch 1 after that is of another life.
    """

    def __init__(self) -> None:
        self.reached = 0
        self.reached_at: int | None = None
        self.reached_by: int | None = None
        # (ts, epoch) of terms that were first heard when a later one had been reached
        self.older: list[tuple[int, int]] = []
        self.kraft_at: int | None = None
        self.reached_before, self.take_turns = 0, False

    def begin_anew(self) -> None:
        """A life of another id: nothing of the one before goes on."""
        self.reached, self.reached_at, self.take_turns, self.kraft_at = 0, None, False, None

    def begin_with_election(self) -> None:
        """A life whose brokers told it, and whose election was seen already or is not logged."""
        self.reached_before = self.reached
        self.begin_anew()

    def see_kraft(self, ts: int) -> None:
        self.kraft_at = self.kraft_at or ts

    def begins(self, marker: Marker, processes: _Processes) -> int | None:
        """When the life began that an election shows, or a line of a term; None if it is of the one that is known."""
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
            start = min([processes.begun_by(marker, begun_before), *(at for at, term in self.older if term < epoch)])
            self.take_turns = self.take_turns and epoch > self.reached_before
            self.reached_before, self.reached, self.reached_at = self.reached, 0, None
        if epoch > self.reached:
            self.older.clear()
            self.reached, self.reached_at, self.reached_by = epoch, ts, marker.node
        return start

    def _is_turn(self, marker: Marker) -> bool:
        """Whether it is the turn of the cluster that wrote before, of two that are known to take turns."""
        epoch = marker.controller_epoch or 0
        # a controller that was elected in a later epoch does not speak in an earlier one
        is_of_other = epoch > self.reached + 1 or (
            not marker.is_election and epoch < self.reached and marker.node == self.reached_by
        )
        goes_on = epoch - self.reached_before == 1 or (not marker.is_election and epoch == self.reached_before)
        return self.take_turns and is_of_other and goes_on

    def _falls(self, marker: Marker, later: int) -> bool:
        """Whether an election, so much later (microseconds) than the newest epoch, is in one that had been reached."""
        epoch = marker.controller_epoch or 0
        is_tried_again = epoch == self.reached > 1 and marker.node == self.reached_by is not None
        is_late = later > CLOCK_SKEW or (epoch == 1 and later > FIRST_ELECTION_SKEW)
        return epoch <= self.reached and not is_tried_again and is_late


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
