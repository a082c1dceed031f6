"""The identity of findings: their fingerprints, and which stored finding each continues. Plain Python.

A fingerprint depends on the check, its subject, and for checks of episodes the day on which the episode
began. Late records may move the begin of an episode, join two episodes or split one. A reported finding then
gets a new fingerprint; `known_as` keeps the one that people and sinks know.
"""

import hashlib
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import schemas

Finding = dict[str, Any]
# subject of a finding that an earlier version wrote without `thing`
SUBJECT = ("topic", "partition", "replica", "node")
FIRST, LAST = datetime.min.replace(tzinfo=UTC), datetime.max.replace(tzinfo=UTC)


def episodic() -> frozenset[str]:
    """Return the checks whose findings are episodes: the same thing may fail several times."""
    return frozenset(check.name for check in schemas.statements("checks") if "episodes" in check.header)


def hashed(*parts: object) -> str:
    """Return the SHA-256 of the parts that are not null."""
    return hashlib.sha256("|".join(str(part) for part in parts if part is not None).encode()).hexdigest()


def identified(found: Iterable[Finding]) -> list[Finding]:
    """Return the findings with `fingerprint`. found: rows of `findings` with `thing`.

    The newest episode of one thing and day gets the hash of thing and day. New records of that day do not
    change it, and no earlier episode is needed to compute it. The other episodes are hashed with their begin.
    So are several findings of one thing where a check has no episodes: a check whose columns do not
    distinguish its findings must not stop a run.
    """
    rows, episodes = list(found), episodic()
    together: dict[str, list[int]] = defaultdict(list)
    fingerprints = []
    for number, row in enumerate(rows):
        of_thing = (row["check_id"], row["cluster"], row["incarnation"], row["thing"])
        if row["check_id"] in episodes:
            fingerprints.append(hashed(*of_thing, _day(row)))
        else:
            fingerprints.append(hashed(*of_thing))
        together[fingerprints[-1]].append(number)
    for numbers in together.values():
        _, *others = sorted(numbers, key=lambda number: _age(rows[number]), reverse=True)
        taken: set[str] = set()
        for number in others:
            fingerprints[number] = _own(fingerprints[number], rows[number], taken)
    return [row | {"fingerprint": fingerprint} for row, fingerprint in zip(rows, fingerprints, strict=True)]


def _day(row: Finding) -> str | None:
    at = row["first_seen"]
    return None if at is None else f"{_utc(at):%Y-%m-%d}"


def _age(row: Finding) -> tuple[datetime, datetime, list[str]]:
    first, last = _span(row)
    return first, last, sorted(row["evidence"])


def _own(fingerprint: str, row: Finding, taken: set[str]) -> str:
    """Return a unique fingerprint, the hash of the shared one and the begin."""
    at = row["first_seen"]
    found = fingerprint
    while found == fingerprint or found in taken:
        found = hashed(found, None if at is None else _utc(at).isoformat())
    taken.add(found)
    return found


def _utc(at: datetime) -> datetime:
    return at.replace(tzinfo=UTC) if at.tzinfo is None else at.astimezone(UTC)


@dataclass(frozen=True)
class Matched:
    """Found and stored findings; a found one and the stored one that it continues have one fingerprint.

    found: with `known_as`. before: the stored rows; those whose fingerprint or begin changed are marked
    `moved`. fingerprints: stored -> new, of the moved ones.
    """

    found: list[Finding]
    before: list[Finding]
    fingerprints: Mapping[str, str]


def matched(found: Iterable[Finding], before: Iterable[Finding], begins: Mapping[str, datetime]) -> Matched:
    """Match each finding with the stored finding that it continues.

    found: `checks.violations`. before: the stored rows of `findings`. begins: cluster -> begin of the rows
    that this run reads; a cluster whose rows are all read is left out.
    """
    rows, stored, episodes = list(found), list(before), episodic()
    pairs = dict(_pairs(rows, stored))
    changed = {row["fingerprint"]: number for number, row in enumerate(rows)}
    for number, old in pairs.items():
        rows[number] = _with_its_begin(rows[number], stored[old], begins)
    rows = identified(rows)
    names = {fingerprint: rows[number]["fingerprint"] for fingerprint, number in changed.items()}
    rows = [row | {"caused_by": names.get(row["caused_by"], row["caused_by"])} for row in rows]
    own = {row["fingerprint"] for row in rows}
    given = {known_as(row) for row in stored}
    for number, row in enumerate(rows):
        if number in pairs:
            name = known_as(stored[pairs[number]])
        else:
            name = _own(row["fingerprint"], row, given) if row["fingerprint"] in given else row["fingerprint"]
        rows[number] = row | {"known_as": None if name == row["fingerprint"] else name}
    now = {old: rows[number] for number, old in pairs.items()}
    renamed, moved = [], {}
    for number, row in enumerate(stored):
        fingerprint = row["fingerprint"]
        if number in now:
            fingerprint = now[number]["fingerprint"]
        elif fingerprint in own:
            fingerprint = _own(fingerprint, row, own)
        begin = row["first_seen"]
        if number in now and row["check_id"] in episodes:
            begin = now[number]["first_seen"]
        if (fingerprint, begin) == (row["fingerprint"], row["first_seen"]):
            renamed.append(row)
            continue
        moved[row["fingerprint"]] = fingerprint
        name = known_as(row)
        is_known_as = {"fingerprint": fingerprint, "known_as": None if name == fingerprint else name}
        renamed.append(row | is_known_as | {"first_seen": begin, "moved": True})
    return Matched(rows, renamed, moved)


def known_as(row: Mapping[str, Any]) -> str:
    """Return the unique fingerprint under which people and sinks know a finding."""
    return str(row.get("known_as") or row["fingerprint"])


def _with_its_begin(row: Finding, old: Finding, begins: Mapping[str, datetime]) -> Finding:
    """Return the finding with its stored begin, where this run did not read its begin."""
    since, first = begins.get(row["cluster"]), old["first_seen"]
    if (
        since is None
        or first is None
        or row["first_seen"] is None
        or not _utc(first) < _utc(since) < _utc(row["first_seen"])
    ):
        return row
    return row | {"first_seen": first}


def _pairs(rows: Sequence[Finding], stored: Sequence[Finding]) -> Iterator[tuple[int, int]]:
    """Yield (number of a finding, number of the stored one that it continues), each at most once."""
    episodes = episodic()
    marked: dict[tuple[Any, ...], set[int]] = defaultdict(set)
    for number, old in enumerate(stored):
        for mark in _marks(old):
            marked[mark].add(number)
    scored = []
    for number, row in enumerate(rows):
        for other in set().union(*(marked.get(mark, ()) for mark in _marks(row))):
            old = stored[other]
            if score := _likeness(row, old, is_episode=row["check_id"] in episodes):
                scored.append((score, row["fingerprint"], old["fingerprint"], number, other))
    done: tuple[set[int], set[int]] = set(), set()
    for _, _, _, number, other in sorted(scored, reverse=True):
        if number not in done[0] and other not in done[1]:
            done[0].add(number)
            done[1].add(other)
            yield number, other


def _marks(row: Finding) -> Iterator[tuple[Any, ...]]:
    """Yield the keys of a finding; a finding shares at least one with the one that it continues."""
    of_check = row["cluster"], row["check_id"]
    yield *of_check, "fingerprint", row["fingerprint"]
    yield *of_check, "thing", row.get("thing")
    yield *of_check, "subject", *(row[name] for name in SUBJECT)
    for record_id in row["evidence"]:
        yield *of_check, "record", record_id


def _likeness(row: Finding, old: Finding, *, is_episode: bool) -> tuple[int, int, int, int, timedelta] | None:
    """Return how likely a found and a stored finding of one check are the same one.

    None where they are not. Findings of a check without episodes are the same if their fingerprints are.
    Others are if they concern the same thing at the same time, or if they overlap and share a record. The
    latter covers a thing whose description changed, such as its cause or incarnation.
    """
    if not is_episode and row["fingerprint"] == old["fingerprint"]:
        return 3, 0, 0, 0, timedelta()
    (begin, end), (old_begin, old_end) = _span(row), _span(old)
    if old["status"] != "resolved":
        old_end = LAST
    common = min(end, old_end) - max(begin, old_begin)
    shared = len(set(row["evidence"]) & set(old["evidence"]))
    is_same = is_episode and _is_about(row, old)
    if common < timedelta() or not (shared or is_same):
        return None
    # an open and a resolved finding may become one that lasts; it continues the open one, which people know
    is_lasting = old["status"] == "resolved" and not row["ended"]
    return 2 if is_same else 1, int(not is_lasting), int(begin == old_begin), shared, common


def _is_about(row: Finding, old: Finding) -> bool:
    if row["incarnation"] != old["incarnation"]:
        return False
    if old.get("thing") is not None:
        return bool(row["thing"] == old["thing"])
    return all(row[name] == old[name] for name in SUBJECT)


def _span(row: Finding) -> tuple[datetime, datetime]:
    """Return the first and last moment of a finding; without time stamps it covers all time."""
    first, last = row["first_seen"], row["last_seen"]
    return FIRST if first is None else _utc(first), LAST if last is None else _utc(last)
