"""The life of findings from run to run: new, open, resolved, reopened, silenced. Plain Python.

A finding is a row of `findings`, its moments with a zone. `identity` decides before which stored finding it continues: both have one fingerprint.
What is found now (`checks.violations`) also has `ended` and `subjects`, and lacks run_id, status and silence.
"""

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

from jobs.config import Silence
from jobs.globs import matches

# a reported finding is over when the logs continue for this long after they last showed it
QUIET = timedelta(hours=24)
# columns of `findings` that a check does not fill
OF_RUN = ("run_id", "status", "silenced", "silence", "moved")
# columns of a finding now that `findings` does not have
OF_CHECK = ("ended", "subjects")
Finding = dict[str, Any]


def still(before: Iterable[Finding]) -> list[Finding]:
    """Return the reported findings that are not over, as if they were found again. before: rows of `findings`."""
    return [
        {name: value for name, value in row.items() if name not in OF_RUN} | {"ended": False, "subjects": None}
        for row in before
        if row["status"] != "resolved"
    ]


def news(found: Sequence[Finding], before: Iterable[Finding], begins: Mapping[str, datetime]) -> list[Finding]:
    """Return what is found now, without what was over before the rows of this run begin: this run sees too little of it.

    before: the rows of `findings` so far. begins: cluster -> begin of these rows; those of which all is seen are left out.
    """
    resolved = {row["fingerprint"] for row in before if row["status"] == "resolved"}

    def is_old(row: Finding) -> bool:
        since = begins.get(row["cluster"])
        if since is None or not row["ended"]:
            return False
        was_over = row["fingerprint"] in resolved and row["first_seen"] is not None and row["first_seen"] < since
        return was_over or (row["last_seen"] is not None and row["last_seen"] < since)

    return [row for row in found if not is_old(row)]


def settle(
    found: Sequence[Finding],
    before: Sequence[Finding],
    now: Mapping[str, datetime | None],
    run_id: str,
    silences: Sequence[Silence] = (),
) -> list[Finding]:
    """The findings of clusters after this run, one a fingerprint.

    found: `news`; before: the rows of `findings` so far. now: cluster -> the moment that its findings are measured against. silences: those
    that have not expired.
    new: violated and not known before; open: known before and still violated; resolved: over by the logs, or no longer violated, or
    reported before and not seen in them for QUIET; reopened: resolved before, and the logs show it again.
    first_seen: the earliest that was ever found. run_id: of the run that last changed the row.
    """
    known = {row["fingerprint"]: row for row in before}
    settled = [_settled(row, known.pop(row["fingerprint"], None), now.get(row["cluster"]), run_id, silences) for row in found]
    return settled + [_gone(row, run_id, silences) for row in known.values()]


def _settled(row: Finding, old: Finding | None, now: datetime | None, run_id: str, silences: Sequence[Silence]) -> Finding:
    told = {name: value for name, value in row.items() if name not in OF_CHECK}
    if old is None:
        return _changed(told, "resolved" if row["ended"] else "new", run_id, silences)
    is_quiet = now is not None and row["last_seen"] is not None and row["last_seen"] < now - QUIET
    is_over = row["ended"] or is_quiet
    status = "resolved" if is_over else "reopened" if old["status"] == "resolved" else "open"
    told["first_seen"] = min((at for at in (row["first_seen"], old["first_seen"]) if at is not None), default=None)
    is_same = status == old["status"] and row["last_seen"] == old["last_seen"] and not old.get("moved")
    return _changed(told, status, run_id, silences, old if is_same else None)


def _gone(old: Finding, run_id: str, silences: Sequence[Silence]) -> Finding:
    """Return a finding that is no longer found."""
    told = {name: value for name, value in old.items() if name not in OF_RUN}
    is_same = old["status"] == "resolved" and not old.get("moved")
    return _changed(told, "resolved", run_id, silences, old if is_same else None)


def _changed(told: Finding, status: str, run_id: str, silences: Sequence[Silence], same: Finding | None = None) -> Finding:
    """same: the stored row, where at most its silence has changed."""
    silence = silence_of(told, silences)
    is_old = same is not None and same["silence"] == silence
    return {
        "run_id": same["run_id"] if same is not None and is_old else run_id,
        "thing": None,
        "known_as": None,
        **told,
        "status": status,
        "silenced": silence is not None,
        "silence": silence,
    }


def silence_of(finding: Finding, silences: Iterable[Silence]) -> str | None:
    """Return why it is silenced: the first matching silence counts. A missing value of a finding counts as an empty name."""
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
            and (silence.fingerprint is None or any(matches([silence.fingerprint], name) for name in fingerprints))
            and (silence.broker is None or any(matches([silence.broker], names[name]) for name in ("node", "replica")))
        ):
            return silence.because()
    return None


def subjects(found: Iterable[Finding], before: Iterable[Finding]) -> list[dict[str, Any]]:
    """Return each subject of the findings: rows of `finding_subjects`.

    found: `news`. before: the stored rows; those of findings that are not found now stay.
    """
    rows, again = [], set()
    for finding in found:
        again.add(finding["fingerprint"])
        some = finding["subjects"]
        if some is None and finding["topic"] is not None and finding["partition"] is not None:
            of_partition = {name: finding[name] for name in ("topic", "partition", "replica")}
            until = finding["last_seen"] if finding["ended"] else None
            some = [{**of_partition, "since": finding["first_seen"], "until": until}]
        rows += [{"cluster": finding["cluster"], "fingerprint": finding["fingerprint"], **one} for one in some or ()]
    return rows + [row for row in before if row["fingerprint"] not in again]
