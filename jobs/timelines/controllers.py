"""`controllers`: find the terms of controllers."""

from collections import defaultdict
from collections.abc import Collection, Mapping
from typing import Any

from jobs.timelines.cluster_evidence import TERM_ENDED, RecordPlace, Term, in_files, log_of
from jobs.timelines.event import Event, with_next
from jobs.timelines.facts import ClusterFacts
from parsers.meanings import event_types

# a controller's own lines that its term begins, and that it ends
QUORUM_BEGINS = event_types("begins_quorum_term")
BEGINS = QUORUM_BEGINS | event_types("begins_zookeeper_term", "begins_migration_term")
ENDS = TERM_ENDED | event_types("renounces_term")
# incarnation, controller epoch, node
TermKey = tuple[int, int, int | None]


def controllers(facts: ClusterFacts) -> list[tuple[Any, ...]]:
    """Return rows of `controllers`.

    out: incarnation, node, controller_epoch, elected_at, resigned_at, inferred, record_id, overruled. Times
    are microseconds. A ZooKeeper controller's term begins with `.. successfully elected as the controller.
    Epoch incremented to ..` (up to 2.0: `Epoch incremented to ..`) and ends with `Resigned`. Every broker
    prints that when it stops; it ends a term only of the broker that had one. A KRaft controller's term
    begins when its node has become the leader of the quorum (`Completed transition to Leader(..`,
    QuorumState) or, if only its controller.log is given, `Becoming the active controller at epoch ..`
    (QuorumController). It ends with `Renouncing ..`, or when the node leaves the state Leader. If the begin
    is not logged, the first line in that epoch shows that there was such a term. During a migration the KRaft
    controller also takes ZooKeeper's next epoch (`Successfully registered KRaft controller .. with ZK epoch
    ..`): a term of its own.
    """
    elections, resigned = _elections(facts), _resigned(facts)
    first = _begun(facts, elections)
    by_node: dict[tuple[int, int | None], list[TermKey]] = defaultdict(list)
    for key in sorted(first, key=lambda key: (key[0], key[1])):
        by_node[key[0], key[2]].append(key)
    rows = []
    for (number, node), keys in by_node.items():
        for key, after in with_next(keys):
            begun, until = first[key].ts, None if after is None else first[after].ts
            ended = (
                at
                for at in resigned[number, node]
                if begun is not None and begun <= at and (until is None or at < until)
            )
            elected = elections.get(key)
            record_id = (elected or first[key]).record_id
            times = elected and elected.ts, min(ended, default=None)
            rows.append(
                (number, node, key[1], *times, elected is None, record_id, _lines_when_deposed(facts, key))
            )
    return sorted(rows, key=lambda row: (row[0], row[2], str(row[1])))


def terms(facts: ClusterFacts) -> list[tuple[int, int, int | None, int | None, str]]:
    """Return incarnation, controller epoch, node, time and record of the first line of each term."""
    found = _begun(facts, _elections(facts))
    return [
        (*key, line.ts, line.record_id)
        for key, line in sorted(found.items(), key=lambda one: (one[0][0], one[0][1]))
    ]


def _begun(facts: ClusterFacts, elections: Mapping[TermKey, RecordPlace]) -> dict[TermKey, RecordPlace]:
    """Return the first line of each term, its election or another line."""
    first = facts.first_lines
    return first | {
        key: min(first.get(key, election), election, key=in_files) for key, election in elections.items()
    }


def quorum_terms(facts: ClusterFacts) -> list[TermKey]:
    """Return the terms of leaders of the KRaft quorum.

    Their epochs are those of the quorum, not those of ZooKeeper.
    """
    return sorted(_elections(facts, QUORUM_BEGINS))


def _elections(facts: ClusterFacts, begins: Collection[str] = BEGINS) -> dict[TermKey, RecordPlace]:
    """Return the first line with which each term begins."""
    found: dict[TermKey, RecordPlace] = {}
    for e in facts.ordered_events:
        if e.event_type in begins and e.controller_epoch is not None and e.controller == e.node is not None:
            key, line = (facts.incarnation_of(e), e.controller_epoch, e.node), _line(e)
            found[key] = min(found.get(key, line), line, key=in_files)
    return found


def _line(e: Event) -> RecordPlace:
    return RecordPlace(e.ts, log_of(e.logger), e.file, e.record_no, e.record_id)


def _resigned(facts: ClusterFacts) -> dict[tuple[int, int | None], list[int]]:
    """Return (incarnation, node) -> times at which it resigned."""
    found: dict[tuple[int, int | None], list[int]] = defaultdict(list)
    for e in facts.ordered_events:
        # a starting process prints its state, too: `Completed transition to ResignedState(..) from null`
        leaves = e.event_type == "raft_state_changed" and e.from_state == "Leader"
        if (leaves or e.event_type in ENDS) and e.ts is not None:
            found[facts.incarnation_of(e), e.node].append(e.ts)
    return found


def _lines_when_deposed(facts: ClusterFacts, key: TermKey) -> int:
    """Return the number of lines from memory that it printed after a successor was elected.

    Timelines leave them out.
    """
    number, epoch, node = key
    since = facts[number].deposed.get(epoch)
    term: Term = epoch, node
    if since is None:
        return 0
    end = facts[number].end
    return sum(since < at and (end is None or at < end) for at in facts.evidence.from_memory.get(term, ()))
