"""Write the report: one self-contained HTML file, for a person whom an alert has woken up."""

import re
from collections import Counter
from collections.abc import Sequence
from datetime import UTC, datetime
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

from jinja2 import Environment, StrictUndefined, Template
from markupsafe import Markup, escape

import schemas
from jobs.checking import harms
from jobs.checking.finding_identity import known_as
from jobs.checking.ranking import by_cause, is_never_hidden, is_over, worst_first
from jobs.errors import UsageError
from jobs.files import accounting
from jobs.reporting import pictures as drawn
from jobs.reporting import targets
from jobs.reporting.pictures import Pictures
from jobs.reporting.verdict import (
    RunResults,
    advice,
    harm_sentences,
    headline,
    of_each_severity,
    others,
    when,
    worst_of,
)
from parsers.explanation import counted
from schemas import wording
from schemas.moments import moment

OPTION = "--report"
FULL = 25  # most findings of one check with detail and proof
BRIEF = 500  # most further findings of one check, by title, unless they are errors
CAUSES = 5  # most stories of a cluster on top
ADVICE_ON_TOP = 2  # most stories of a cluster with advice on top
EFFECTS_ON_TOP = 3  # most consequences of a story on top
TOP_DETAIL = 300  # characters of a finding's detail on top
ERRORS_ON_TOP = 500  # most unresolved errors of a cluster on top, CAUSES included
TOP_LINES, TOP_CHARACTERS = 3, 600  # of a record that are shown before the rest is folded
PROOF_LINES = 60
PROOF_CHARACTERS = 4_000
SHOWN_CHARACTERS = 2_000
UNREADABLE = 200
INPUTS = 200  # most files of a cluster with the counts of their lines
SHOWN_UNKNOWN = 10
# characters of all findings with detail, about
ROOM = 1_200_000
# lines of findings by title, some of them reserved for errors; further findings are only counted
BRIEF_LINES = 2_000
# characters of the pictures of clusters, the worst first
PICTURES_ROOM = 500_000
# longer texts are cut; the rest can be unfolded
TITLE, DETAIL = 160, 600
FILTER_TOPICS = 50


def write(
    path: Path, results: RunResults, outcomes: list[Any], run_id: str, pictures: Pictures | None = None
) -> None:
    """Write the report; an old one stays until the new one is complete.

    Raises UsageError if it cannot be written.
    outcomes: `landing.logs.Outcome` of each cluster.
    """
    targets.prepare(path, OPTION, makes_folder=True)
    page = rendered(results, outcomes, run_id, pictures)
    part = targets.partial(path)
    try:
        try:
            part.write_text(page, "utf-8")
            part.replace(path.resolve())
        finally:
            part.unlink(missing_ok=True)
    except OSError as error:
        raise UsageError(f"--report {path} cannot be written: {error.strerror}; give another path") from None


def rendered(
    results: RunResults,
    outcomes: list[Any],
    run_id: str,
    pictures: Pictures | None = None,
    now: datetime | None = None,
) -> str:
    """Return the page."""
    shown_pictures = pictures or Pictures()
    marks = _Marks(results)
    tones = ("problem", *severities(), "ok")
    # clusters are rendered worst first, because room is limited
    worst_first = sorted(
        outcomes, key=lambda outcome: tones.index(_verdict(*_findings_of(results, outcome), outcome)[0])
    )
    clusters = [
        _cluster(results, outcome, marks, shown_pictures, place) for place, outcome in enumerate(worst_first)
    ]
    current = [finding for finding in results.findings if finding["status"] != "resolved"]
    first = outcomes[0] if outcomes else None
    facts = [("Run", run_id), ("Report written", moment(now or datetime.now(UTC)))]
    if first:
        facts += [
            (
                "Records read",
                f"{first.records:,}, {first.new:,} of them new, {first.out_of_scope:,} of loggers out of scope",
            )
        ]
    names = ", ".join(outcome.cluster for outcome in outcomes)
    return _template().render(
        page_title=f"Kafka audit of {names[:100]}: {of_each_severity(current) or 'no findings'}",
        clusters=[cluster for cluster in clusters if not cluster["quiet"]],
        quiet=[cluster for cluster in clusters if cluster["quiet"]],
        facts=facts,
        severities=severities(),
        checks=marks.checks,
        topics=marks.topics,
        patterns=drawn.PATTERNS,
    )


@cache
def _template() -> Template:
    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=False)
    environment.filters["shown"] = shown
    environment.filters["shown_lines"] = shown_lines
    environment.filters["with_code"] = with_code
    environment.filters["counted"] = counted
    return environment.from_string(files("jobs.reporting").joinpath("report.html.j2").read_text("utf-8"))


def severities() -> Sequence[str]:
    """Return the severities, the worst first."""
    return schemas.contracts()["findings"].values["severity"]


def shown(text: Any) -> Markup:
    """Return the text of one line as escaped HTML.

    Characters that are not printable or reverse the line are shown as codes.
    """
    text = str(text)
    if len(text) > SHOWN_CHARACTERS:
        text = text[:SHOWN_CHARACTERS] + " .."
    return _marked_up(text, keep="")


def with_code(text: Any) -> Markup:
    """Return the text of one line as HTML, with commands between backticks as code."""
    parts = re.split(r"`([^`]+)`", str(text))
    return Markup("").join(
        Markup("<code>{}</code>").format(shown(part)) if n % 2 else shown(part)
        for n, part in enumerate(parts)
    )


def shown_lines(text: str) -> Markup:
    """Return the text of several lines as escaped HTML, as `shown` does."""
    return _marked_up(text, keep="\n\t")


def _marked_up(text: str, keep: str) -> Markup:
    if text.isprintable():
        return escape(text)
    parts: list[str] = []
    plain: list[str] = []
    for char in text:
        if char.isprintable() or char in keep:
            plain.append(char)
            continue
        code = ord(char)
        name = f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"
        parts.append(escape("".join(plain)) + Markup('<span class="esc">{}</span>').format(name))
        plain = []
    return Markup("").join([*parts, escape("".join(plain))])


class _Marks:
    """The classes that the filter of the page uses, one per check and per frequent topic.

    And the room that is left.
    """

    def __init__(self, results: RunResults) -> None:
        findings = results.findings
        self._topics_of = {
            finding["fingerprint"]: {
                finding["topic"],
                *results.subjects.get(finding["fingerprint"], {}).get("topics", ()),
            }
            - {None}
            for finding in findings
        }
        names = Counter(finding["check_id"] for finding in findings)
        self.checks = [(f"c{number}", name) for number, name in enumerate(sorted(names))]
        topics = Counter(topic for some in self._topics_of.values() for topic in sorted(some))
        self.topics = [
            (f"t{number}", name) for number, (name, _) in enumerate(topics.most_common(FILTER_TOPICS))
        ]
        self.room, self.pictures_room = ROOM, PICTURES_ROOM
        self.lines = BRIEF_LINES
        self.errors_left = sum(map(is_never_hidden, findings))
        self.shown: set[str] = set()  # fingerprints of the findings on the page
        self.check_class = {name: mark for mark, name in self.checks}
        self._topics = {name: mark for mark, name in self.topics}

    def has_line(self, finding: dict[str, Any]) -> bool:
        """Take a line for a finding by title and return whether one was left; lines are reserved for errors."""
        if self.lines <= (0 if is_never_hidden(finding) else self.errors_left):
            return False
        self.lines -= 1
        return True

    def classes(self, finding: dict[str, Any]) -> str:
        """Return the classes of the element of a finding."""
        topics = sorted(
            self._topics[name] for name in self._topics_of[finding["fingerprint"]] if name in self._topics
        )
        return " ".join([self.check_class[finding["check_id"]], *(topics or ["t-other"])])


def _findings_of(results: RunResults, outcome: Any) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Return (unresolved findings of a cluster, resolved ones)."""
    mine = [finding for finding in results.findings if finding["cluster"] == outcome.cluster]
    current = [finding for finding in mine if finding["status"] != "resolved"]
    return current, [finding for finding in mine if finding["status"] == "resolved"]


def _cluster(
    results: RunResults, outcome: Any, marks: _Marks, pictures: Pictures, place: int
) -> dict[str, Any]:
    """Return the template's values for one cluster."""
    current, resolved = _findings_of(results, outcome)
    not_shown = [text[:1].upper() + text[1:] + "." for text in results.not_shown.get(outcome.cluster, [])]
    tone, verdict = _verdict(current, resolved, outcome)
    stories_of_all = by_cause(sorted([*current, *resolved], key=worst_first))
    now_or_over = [
        [one for story in stories_of_all if is_over(story) is over for one in (story[0], *story[1])]
        for over in (False, True)
    ]
    groups = {
        name: _groups(some, results, marks, pictures)
        for name, some in zip(("current", "resolved"), now_or_over, strict=True)
    }
    anchor = f"cluster-{place}"
    stories = harms.stories(
        finding | {"silenced": bool(finding.get("silence"))} for finding in (*current, *resolved)
    )
    stories.sort(key=is_over)
    causes = [
        {
            "severity": worst_of(story)["severity"],
            "named": is_never_hidden(worst_of(story)) and not is_over(story),
            "anchor": known_as(head) if head["fingerprint"] in marks.shown else anchor,
            "title": head["title"][:TITLE] + (" .." if len(head["title"]) > TITLE else ""),
            "when": when(story, outcome.now),
            "over": is_over(story),
            "effects": [f"{word}: {one['title'][:TITLE]}" for word, one in others(story)[:EFFECTS_ON_TOP]],
            "effects_left": max(0, len(story[1]) - EFFECTS_ON_TOP),
            "harms": harm_sentences(story, results, outcome.now),
            "detail": (head["detail"] or "")[:TOP_DETAIL]
            + (" .." if len(head["detail"] or "") > TOP_DETAIL else ""),
            "do": advice(story),
        }
        for story in stories
        for head in [headline(story)]
        if worst_of(story)["severity"] != "info"
        or any(harm.lasts for harm in results.harms.get(story[0]["fingerprint"], ()))
    ]
    for n, cause in enumerate(causes):
        # the first screen shows what happened and what to do; details are below
        if n >= CAUSES or not cause["named"]:
            cause["detail"], cause["effects_left"] = "", cause["effects_left"] + len(cause["effects"])
            cause["effects"] = []
        if n >= ADVICE_ON_TOP or not cause["named"]:
            cause["do"] = []
    on_top = [cause for n, cause in enumerate(causes) if n < CAUSES or (n < ERRORS_ON_TOP and cause["named"])]
    # gaps of the logs matter where no error is found
    missing = (
        ["these logs cannot show everything"] if not_shown and not any(map(is_never_hidden, current)) else []
    )
    missing += ["some files could not be read"] if outcome.unreadable else []
    caveat = " and ".join(missing)
    unreadable = list(outcome.unreadable[:UNREADABLE])
    if len(outcome.unreadable) > UNREADABLE:
        unreadable.append(f"and {len(outcome.unreadable) - UNREADABLE:,} more")
    counts = results.counts.get(outcome.cluster, {})
    facts = [(name.capitalize().replace("_", " "), f"{counts[name]:,}") for name in counts if counts[name]]
    if outcome.now is not None:
        facts.append(("Durations are measured up to", moment(outcome.now)))
    return {
        "name": outcome.cluster,
        "tone": tone,
        "verdict": verdict,
        "causes": on_top,
        "causes_left": len(causes) - len(on_top),
        "quiet": tone == "ok" and not causes,
        "caveat": f"{caveat[:1].upper()}{caveat[1:]}; see below." if caveat and not outcome.problem else "",
        "problem": outcome.problem,
        "anchor": anchor,
        **groups,
        "pictures": _pictures(outcome.cluster, [*current, *resolved], marks, pictures, place),
        "resolved_total": len(now_or_over[1]),
        "resolved_open": any(finding["severity"] != "info" for finding in resolved),
        "checks": len(schemas.statements("checks")),
        "not_shown": not_shown,
        "unreadable": unreadable,
        "unknown": results.unknown.get(outcome.cluster, [])[:SHOWN_UNKNOWN],
        "facts": facts,
        "read": accounting.sentences(outcome.inputs) if outcome.inputs else [],
        "inputs": outcome.inputs[:INPUTS],
        "inputs_left": max(0, len(outcome.inputs) - INPUTS),
    }


def _pictures(
    cluster: str, findings: list[dict[str, Any]], marks: _Marks, pictures: Pictures, place: int
) -> list[Markup]:
    """Return the pictures of a cluster: its newest hours, its heat map, the durability of its topics."""
    recent, durable = pictures.recent.get(cluster), pictures.durability.get(cluster)
    if recent is None:
        return []
    if marks.pictures_room < 0:
        return [Markup("<p>This page is full: a report of this cluster alone has its pictures.</p>")]
    marked = [
        finding | {"anchor": known_as(finding)}
        for finding in sorted(findings, key=worst_first)
        if finding["fingerprint"] in marks.shown
    ]
    found = [
        drawn.recent_strip(f"recent{place}", cluster, recent, marked),
        drawn.heat_map(f"heat{place}", recent),
        drawn.durability_bars(f"durable{place}", durable) if durable else None,
    ]
    kept = [picture for picture in found if picture is not None]
    marks.pictures_room -= sum(map(len, kept))
    return kept


def _verdict(current: list[dict[str, Any]], resolved: list[dict[str, Any]], outcome: Any) -> tuple[str, str]:
    """Return (tone, one sentence) for a cluster."""
    if outcome.problem:
        return "problem", f"not audited. {outcome.problem}"
    audible = [finding for finding in current if not finding.get("silence")]
    past = [finding for finding in resolved if finding["severity"] != "info"]
    over = f" Resolved: {of_each_severity(past)}." if past else ""
    over += f" Silenced: {len(current) - len(audible):,}." if len(audible) < len(current) else ""
    if not audible:
        return "ok", f"nothing is wrong now, as far as these logs show.{over}"
    new = sum(finding["status"] == "new" for finding in audible)
    new_part = (
        ""
        if not new
        else "; new"
        if new == len(audible) == 1
        else f"; {'all' if new == len(audible) else f'{new:,}'} new"
    )
    worst = min(audible, key=worst_first)["severity"]
    # brokers that were stopped on purpose are down, too
    lasting = [
        one
        for one in sorted(audible, key=worst_first)
        if schemas.harms().get(one["check_id"]) == "unavailability"
    ]
    if worst == "info" and lasting:
        return "info", f"{lasting[0]['title'][:TITLE]} ({of_each_severity(audible)}{new_part}).{over}"
    if worst == "info":
        return "ok", f"nothing to do now ({of_each_severity(audible)}{new_part}).{over}"
    return worst, f"{of_each_severity(audible)}{new_part}.{over}"


def _groups(
    findings: list[dict[str, Any]], results: RunResults, marks: _Marks, pictures: Pictures
) -> list[dict[str, Any]]:
    """Return findings by severity and check, the worst first, with the check's name and advice.

    Effects are below their cause; errors without room there are listed by title after it.
    """
    together: dict[tuple[str, str], list[tuple[dict[str, Any], list[dict[str, Any]]]]] = {}
    for finding, effects in by_cause(sorted(findings, key=worst_first)):
        together.setdefault((finding["severity"], finding["check_id"]), []).append((finding, effects))
    groups = []
    for (severity, check_id), members in together.items():
        words = wording.wordings().get(check_id)
        advice = {finding.get("advice") for finding, _ in members}
        common = advice.pop() if len(advice) == 1 else None
        full: list[dict[str, Any]] = []
        brief: list[dict[str, Any]] = []
        left = 0
        for finding, effects in members:
            in_full = len(full) < FULL and marks.room >= 0
            shown_effects = effects[:FULL] if in_full else []
            named = [
                effect
                for effect in effects[len(shown_effects) :]
                if is_never_hidden(effect) and marks.has_line(effect)
            ]
            if in_full:
                one = _finding(finding, results, marks, pictures)
                below = [
                    _finding(effect, results, marks, pictures) | {"do": effect.get("advice")}
                    for effect in shown_effects
                ]
                one["do"] = None if common else finding.get("advice")
                full.append(
                    one | {"effects": below, "effects_left": len(effects) - len(shown_effects) - len(named)}
                )
            elif (is_never_hidden(finding) or len(brief) < BRIEF) and marks.has_line(finding):
                brief.append(_finding(finding, results, marks) | {"is_effect": False})
            else:
                left += 1
            brief += [_finding(effect, results, marks) | {"is_effect": True} for effect in named]
        groups.append(
            {
                "severity": severity,
                "check_id": check_id,
                "class": marks.check_class[check_id],
                "title": words.name if words else check_id,
                "why": " ".join(words.why.split()) if words else None,
                "do": common,
                "total": len(members),
                "full": full,
                "brief": brief,
                "left": left,
            }
        )
    return groups


def _finding(
    finding: dict[str, Any], results: RunResults, marks: _Marks, pictures: Pictures | None = None
) -> dict[str, Any]:
    """Return the template's values for one finding. Without pictures it has neither records nor a strip."""
    evidence = list(finding["evidence"] or [])
    proofs = [_proof(results.proof[record]) for record in evidence if pictures and record in results.proof]
    title = finding["title"]
    words = wording.wordings().get(finding["check_id"])
    detail = finding["detail"] or ""
    about = results.subjects.get(finding["fingerprint"])
    strip = pictures.strips.get(finding["fingerprint"]) if pictures else None
    drawing = drawn.partition_strip(f"strip-{finding['fingerprint']}", strip) if strip else None
    if pictures:
        marks.room -= (
            500
            + len(title)
            + len(drawing or "")
            + sum(300 + len(proof["raw"] + proof["rest"]) for proof in proofs)
        )
        marks.room -= 2 * len(detail)
    marks.shown.add(finding["fingerprint"])
    marks.errors_left -= is_never_hidden(finding)
    return {
        "classes": marks.classes(finding),
        "check_title": words.name if words else finding["check_id"],
        "thing": title[:TITLE],
        "thing_rest": title[TITLE:],
        "detail": detail[:DETAIL],
        "detail_rest": detail[DETAIL:],
        "do": None,
        "severity": finding["severity"],
        "status": finding["status"],
        "silence": finding.get("silence"),
        "incarnation": finding["incarnation"] or 1,
        "when": _span(finding["first_seen"], finding["last_seen"]),
        "evidence": evidence,
        "further": max(0, len(evidence) - max(len(proofs), 1)),
        "proofs": proofs,
        "about": about if about and about["partitions"] > 1 else None,
        "fingerprint": finding["fingerprint"],
        "known_as": known_as(finding),
        "strip": drawing,
        "effects": [],
        "effects_left": 0,
    }


def _proof(record: dict[str, Any]) -> dict[str, Any]:
    lines = record["raw"].split("\n")
    raw = "\n".join(lines[:PROOF_LINES])
    cut = raw[:PROOF_CHARACTERS]
    left = ""
    if len(raw) > len(cut):
        left = f"The record continues: {len(record['raw']) - len(cut):,} characters more."
    elif len(lines) > PROOF_LINES:
        left = f"The record continues: {len(lines) - PROOF_LINES:,} lines more."
    top = "\n".join(cut.split("\n")[:TOP_LINES])[:TOP_CHARACTERS]
    return {
        "raw": top,
        "rest": cut[len(top) :].removeprefix("\n"),
        "left": left,
        "file": record["file"],
        "line": record["record_no"],
    }


def _utc(value: datetime) -> datetime:
    """Return a time of a table as UTC without a zone; one without a zone is UTC."""
    return value if value.tzinfo is None else value.astimezone(UTC).replace(tzinfo=None)


def _span(first: datetime | None, last: datetime | None) -> str:
    if first is None:
        return "These logs carry no time stamps" if last is None else f"Until {moment(last)}"
    if last is None or last == first:
        return f"At {moment(first)}"
    return f"From {moment(first)} to {moment(last, first)}"
