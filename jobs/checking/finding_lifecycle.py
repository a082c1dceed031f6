"""The lifecycle of findings from run to run: new, open, resolved, reopened, silenced. Plain Python.

A finding is a row of `findings`, its moments with a zone. `finding_identity` has matched it with the stored
finding that it continues: both have one fingerprint. A finding of this run (`checks.violations`) also has
`ended` and `subjects`, and lacks run_id, status and silence.
"""

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

from jobs.config import Silence
from jobs.globs import matches

# a reported finding is resolved when the logs continue for this long without showing it
QUIET = timedelta(hours=24)
# columns of `findings` that a check does not fill
OF_RUN = ("run_id", "status", "silenced", "silence", "moved")
# columns of a violation that `findings` does not have
OF_CHECK = ("ended", "subjects")
Finding = dict[str, Any]


def unresolved(before: Iterable[Finding]) -> list[Finding]:
    """Return the unresolved findings as if this run had found them again.

    before: the stored rows of `findings`.
    """
    return [
        {name: value for name, value in row.items() if name not in OF_RUN}
        | {"ended": False, "subjects": None}
        for row in before
        if row["status"] != "resolved"
    ]


def without_old(
    found: Sequence[Finding], before: Iterable[Finding], begins: Mapping[str, datetime]
) -> list[Finding]:
    """Return the findings of this run without those that ended before its rows begin.

    This run reads too few rows to judge those. before: the stored rows of `findings`. begins: cluster ->
    begin of the rows that this run reads; a cluster whose rows are all read is left out.
    """
    resolved = {row["fingerprint"] for row in before if row["status"] == "resolved"}

    def is_old(row: Finding) -> bool:
        since = begins.get(row["cluster"])
        if since is None or not row["ended"]:
            return False
        was_over = (
            row["fingerprint"] in resolved and row["first_seen"] is not None and row["first_seen"] < since
        )
        return was_over or (row["last_seen"] is not None and row["last_seen"] < since)

    return [row for row in found if not is_old(row)]


def updated(
    found: Sequence[Finding],
    before: Sequence[Finding],
    now: Mapping[str, datetime | None],
    run_id: str,
    silences: Sequence[Silence] = (),
) -> list[Finding]:
    """Return the findings of clusters after this run, one per fingerprint.

    found: `without_old`. before: the stored rows of `findings`. now: cluster -> the moment that its findings
    are measured against.
    silences: those that have not expired.
    status: new: violated and not stored before. open: stored before and still violated. resolved: ended by
    the logs, no longer violated, or stored before and not shown by the logs for QUIET. reopened: resolved
    before and violated again.
    first_seen: the earliest of all runs. run_id: the run that last changed the row.
    """
    known = {row["fingerprint"]: row for row in before}
    rows = [
        _found_again(row, known.pop(row["fingerprint"], None), now.get(row["cluster"]), run_id, silences)
        for row in found
    ]
    return rows + [_not_found(row, run_id, silences) for row in known.values()]


def _found_again(
    row: Finding, old: Finding | None, now: datetime | None, run_id: str, silences: Sequence[Silence]
) -> Finding:
    """Return the row of a finding that this run found. old: its stored row."""
    values = {name: value for name, value in row.items() if name not in OF_CHECK}
    if old is None:
        return _changed(values, "resolved" if row["ended"] else "new", run_id, silences)
    is_quiet = now is not None and row["last_seen"] is not None and row["last_seen"] < now - QUIET
    is_over = row["ended"] or is_quiet
    status = "resolved" if is_over else "reopened" if old["status"] == "resolved" else "open"
    values["first_seen"] = min(
        (at for at in (row["first_seen"], old["first_seen"]) if at is not None), default=None
    )
    is_same = status == old["status"] and row["last_seen"] == old["last_seen"] and not old.get("moved")
    return _changed(values, status, run_id, silences, old if is_same else None)


def _not_found(old: Finding, run_id: str, silences: Sequence[Silence]) -> Finding:
    """Return the row of a stored finding that this run did not find."""
    values = {name: value for name, value in old.items() if name not in OF_RUN}
    is_same = old["status"] == "resolved" and not old.get("moved")
    return _changed(values, "resolved", run_id, silences, old if is_same else None)


def _changed(
    values: Finding, status: str, run_id: str, silences: Sequence[Silence], same: Finding | None = None
) -> Finding:
    """Return a row of `findings` with its status and silence.

    same: the stored row, where at most its silence has changed.
    """
    silence = silence_of(values, silences)
    is_old = same is not None and same["silence"] == silence
    return {
        "run_id": same["run_id"] if same is not None and is_old else run_id,
        "thing": None,
        "known_as": None,
        **values,
        "status": status,
        "silenced": silence is not None,
        "silence": silence,
    }


def silence_of(finding: Finding, silences: Iterable[Silence]) -> str | None:
    """Return why a finding is silenced, null if it is not.

    The first matching silence counts; a missing value matches as an empty name.
    """
    names = {name: "" if value is None else str(value) for name, value in finding.items()}
    for silence in silences:
        globs = {
            "check_id": silence.check,
            "cluster": silence.cluster,
            "topic": silence.topic,
        }
        fingerprints = (names["fingerprint"], names.get("known_as", ""))
        if (
            all(glob is None or matches([glob], names[name]) for name, glob in globs.items())
            and (
                silence.fingerprint is None
                or any(matches([silence.fingerprint], name) for name in fingerprints)
            )
            and (
                silence.broker is None
                or any(matches([silence.broker], names[name]) for name in ("node", "replica"))
            )
        ):
            return silence.because()
    return None


def subjects(found: Iterable[Finding], before: Iterable[Finding]) -> list[dict[str, Any]]:
    """Return the subjects of the findings: rows of `finding_subjects`.

    found: `without_old`. before: the stored rows; those of findings that are not found now stay.
    """
    rows, again = [], set()
    for finding in found:
        again.add(finding["fingerprint"])
        some = finding["subjects"]
        if some is None and finding["topic"] is not None and finding["partition"] is not None:
            of_partition = {name: finding[name] for name in ("topic", "partition", "replica")}
            until = finding["last_seen"] if finding["ended"] else None
            some = [{**of_partition, "since": finding["first_seen"], "until": until}]
        rows += [
            {"cluster": finding["cluster"], "fingerprint": finding["fingerprint"], **one}
            for one in some or ()
        ]
    return rows + [row for row in before if row["fingerprint"] not in again]
