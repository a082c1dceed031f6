"""The report: escaped, complete, self-contained, written at once or not at all."""

import re
from datetime import UTC, datetime
from html.parser import HTMLParser
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from test_pictures import at, recent_hours

import schemas
from jobs.errors import UsageError
from jobs.reporting import report
from jobs.reporting.pictures import Pictures

AT = datetime(2026, 11, 20, 10, 0)
NASTY = "<script>alert('x')</script>\u202egnp\x1b[31m\x00\udcff&\""


def finding(**changes: Any) -> dict[str, Any]:
    row = {
        "run_id": "r",
        "cluster": "payments",
        "incarnation": 1,
        "check_id": "partition_leaderless",
        "severity": "critical",
        "status": "new",
        "topic": "orders",
        "partition": 3,
        "replica": None,
        "node": None,
        "first_seen": AT,
        "last_seen": AT,
        "title": "Partition without a leader: orders-3",
        "detail": "orders-3 has no leader.",
        "advice": "Start a broker of the last ISR.",
        "fingerprint": "f",
        "evidence": ["e1", "e2"],
    }
    return row | changes


def results_of(*findings: dict[str, Any], **changes: Any) -> Any:
    parts = {
        "findings": list(findings),
        "counts": {"payments": {"records": 12345, "partitions": 4}},
        "not_shown": {"payments": []},
        "unknown": {},
        "subjects": {},
        "harms": {},
        "proof": {
            "e1": {
                "file": "/logs/controller.log",
                "record_no": 17,
                "raw": "[2026] the line\n\tat a.B\n\tat c.D\n\tat e.F",
            }
        },
    }
    return SimpleNamespace(**(parts | changes))


def outcome(**changes: Any) -> Any:
    parts = {
        "cluster": "payments",
        "records": 12345,
        "new": 7,
        "out_of_scope": 1,
        "unreadable": (),
        "problem": None,
        "now": AT,
        "inputs": (),
    }
    return SimpleNamespace(**(parts | changes))


class Page(HTMLParser):
    """Tags, attributes and text."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str | None]] = []
        self.text = ""
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += attrs

    def handle_data(self, data: str) -> None:
        self.text += data


def test_the_first_screen_has_cause_and_advice() -> None:
    page = Page(report.rendered(results_of(finding()), [outcome()], "run-1"))
    text = re.sub(r"\s+", " ", page.text)
    assert (
        "payments: 1 critical; new. critical Partition without a leader: orders-3 No line shows that a partition was unavailable, at risk or lost. Not over: at 2026-11-20 10:00:00 UTC."
        in text
    )
    assert "nobody can write to or read from the partition" in text  # why
    assert "Start a broker of the last ISR" in text  # what to do
    assert "[2026] the line" in text
    assert "/logs/controller.log, line 17" in text
    assert "1 further record that proves it" in text
    assert "12,345" in text
    assert "run-1" in text


def test_text_of_logs_is_escaped() -> None:
    dirty = results_of(
        finding(title=f"Partition without a leader: {NASTY}", detail=NASTY, cluster=NASTY, check_id=NASTY),
        counts={NASTY: {}},
        not_shown={NASTY: [NASTY]},
        proof={"e1": {"file": NASTY, "record_no": 1, "raw": NASTY + "\n" + NASTY}},
        unknown={
            NASTY: [
                {
                    "records": 1,
                    "status": "drifted",
                    "logger": NASTY,
                    "masked": NASTY,
                    "example": NASTY + "\n" + NASTY,
                }
            ]
        },
    )
    html = report.rendered(dirty, [outcome(cluster=NASTY, unreadable=(NASTY,))], NASTY)
    page = Page(html)
    html.encode("utf-8")
    assert "script" not in page.tags
    assert not re.search(r"[\u202a-\u202e\u2066-\u2069\x00-\x08\x0b-\x1f\x7f]", html)
    assert "\\u202e" in page.text
    assert "\\x1b" in page.text
    dirty = results_of(counts={}, not_shown={})
    assert "script" not in Page(report.rendered(dirty, [outcome(problem=NASTY)], "r")).tags


def test_the_page_needs_no_other_file() -> None:
    page = Page(report.rendered(results_of(finding()), [outcome()], "r"))
    assert not {"script", "link", "img", "iframe"} & set(page.tags)
    assert not {"src", "onclick"} & {name for name, _ in page.attributes}
    assert all((value or "").startswith("#") for name, value in page.attributes if name == "href")
    assert ("content", "default-src 'none'; style-src 'unsafe-inline'") in page.attributes
    html = report.rendered(results_of(), [outcome()], "r")
    assert "prefers-color-scheme: dark" in html
    assert "@media print" in html
    assert "url(" not in html.replace("url(#", "")
    assert not re.findall(r"https?:|//", html)


def test_links_have_a_target_on_the_page() -> None:
    many = [
        finding(fingerprint=f"f{n}", first_seen=at(n % 60)) for n in range(report.FULL + report.BRIEF + 9)
    ]
    effects = [finding(fingerprint=f"e{n}", caused_by="f0", first_seen=at(1)) for n in range(report.FULL + 9)]
    page = Page(
        report.rendered(results_of(*many, *effects), [outcome()], "r", Pictures({"payments": recent_hours()}))
    )
    found = {value for name, value in page.attributes if name == "id"}
    assert {value.removeprefix("#") for name, value in page.attributes if name == "href" and value} <= found


def test_the_worst_is_first_and_resolved_ones_are_folded() -> None:
    page = report.rendered(
        results_of(
            finding(
                severity="warning",
                check_id="format_drift",
                title="Log wording that the rules only half know: w",
                fingerprint="w",
            ),
            finding(),
            finding(status="resolved", title="Partition without a leader: old-1", fingerprint="o"),
        ),
        [outcome()],
        "r",
    )
    assert page.index("nobody can write to") < page.index("The rules know the beginning of these")
    assert page.index("Resolved: 1</summary>") < page.rindex("old-1")
    assert "1 critical, 1 warning; all new. Resolved: 1 critical." in page


def test_many_findings_of_one_check() -> None:
    many = [
        finding(severity="warning", title=f"Partition without a leader: {n}", fingerprint=str(n))
        for n in range(700)
    ]
    page = report.rendered(results_of(*many), [outcome()], "r")
    assert page.count('class="finding warning ') == report.FULL
    assert "500 more of the same check" in page
    assert (
        "175 more of the same check: kafka-audit findings --check partition_leaderless --tables DIR" in page
    )
    assert len(page) < 500_000


def test_every_error_is_on_the_page() -> None:
    minor = [
        finding(
            severity="warning",
            check_id=check.name,
            title=f"{check.name} {n}",
            fingerprint=f"{check.name}-{n}",
            cluster="a",
        )
        for check in schemas.statements("checks")
        for n in range(100)
    ]
    errors = [finding(title=f"Error {n}", fingerprint=f"e{n}") for n in range(400)]
    effects = [
        finding(severity="error", title=f"Effect {n}", fingerprint=f"x{n}", caused_by="e399")
        for n in range(100)
    ]
    worst = finding(cluster="a", fingerprint="worst")
    page = Page(
        report.rendered(results_of(worst, *minor, *errors, *effects), [outcome(cluster="a"), outcome()], "r")
    )
    found = {value for name, value in page.attributes if name == "id"}
    assert {f"e{n}" for n in range(400)} | {f"x{n}" for n in range(100)} <= found
    assert any(value in found for value in (row["fingerprint"] for row in minor))
    top = page.text[: page.text.index("Show")]
    assert all(re.search(rf"Error {n}\s", top) for n in range(400))


def test_the_size_of_the_page_is_bounded() -> None:
    names = [check.name for check in schemas.statements("checks")]
    many = [finding(check_id=name, title=f"{name} {n}", fingerprint=f"{name}-{n}", evidence=[f"e{m}" for m in range(9)], detail="d" * 999)
            for name in names for n in range(100)]  # fmt: skip
    proof = {f"e{m}": {"file": "controller.log", "record_no": m, "raw": "x" * 10_000} for m in range(9)}
    html = report.rendered(results_of(*many, proof=proof), [outcome()], "r")
    assert len(html) < 2_000_000
    assert "xxx" in html
    assert "100 more of the same check: kafka-audit findings --check" in html


def test_of_many_clusters_the_worst_have_pictures() -> None:
    names = [f"cluster{n:03d}" for n in range(300)]
    worst = finding(cluster=names[-1], severity="critical")
    html = report.rendered(
        results_of(worst),
        [outcome(cluster=name) for name in names],
        "r",
        Pictures({name: recent_hours() for name in names}),
    )
    assert len(html) < 2_000_000
    assert f"What happened in {names[-1]}" in html
    assert "a report of this cluster alone has its pictures" in html


def test_clean_partial_and_failed_clusters() -> None:
    clean = Page(report.rendered(results_of(), [outcome()], "r")).text
    assert "payments: nothing is wrong now, as far as these logs show." in clean
    assert f"None of the {len(schemas.statements('checks'))} checks finds anything in these logs." in clean
    partly = results_of(not_shown={"payments": ["replica states are inferred"]})
    page = Page(report.rendered(partly, [outcome(unreadable=("a.gz: not gzip",))], "r")).text
    assert "These logs cannot show everything and some files could not be read; see below." in page
    assert "Replica states are inferred." in page
    assert "a.gz: not gzip" in page
    failed = Page(report.rendered(results_of(), [outcome(problem="No file was found.", now=None)], "r")).text
    assert "not audited. No file was found." in failed
    assert report.rendered(results_of(), [], "r")


def test_times() -> None:
    shown = report.rendered(
        results_of(finding(first_seen=AT.replace(tzinfo=UTC), last_seen=AT.replace(hour=11))),
        [outcome()],
        "r",
    )
    assert "From 2026-11-20 10:00:00 UTC to 11:00:00 UTC" in shown
    assert "no time stamps" in report.rendered(
        results_of(finding(first_seen=None, last_seen=None)), [outcome()], "r"
    )


def test_the_top_has_harm_time_and_advice() -> None:
    lasting = finding(
        first_seen=AT.replace(hour=9, minute=5),
        last_seen=AT,
        detail="orders-3 has no leader; last in sync: 1.",
    )
    past = finding(
        status="resolved",
        severity="warning",
        first_seen=AT.replace(hour=8),
        last_seen=AT.replace(hour=9),
        fingerprint="p",
    )
    text = re.sub(r"\s+", " ", Page(report.rendered(results_of(lasting, past), [outcome()], "r")).text)
    top = text[text.index("Kafka audit payments") : text.index("Show")]
    assert (
        "Not over: since 2026-11-20 09:05:00 UTC, last seen at 10:00:00 UTC (55 min). orders-3 has no leader; last in sync: 1."
        in top
    )
    assert top.count("What to do: Start a broker of the last ISR") == 1
    assert (
        "warning, resolved Partition without a leader: orders-3 Over: from 2026-11-20 08:00:00 UTC to 09:00:00 UTC (1 h)."
        in top
    )


def test_long_records_are_cut() -> None:
    proof = {"e1": {"file": "f", "record_no": 1, "raw": "x" * 1_000_000}}
    page = report.rendered(results_of(finding(), proof=proof), [outcome()], "r")
    assert len(page) < 50_000
    assert "996,000 characters more" in page


def test_is_written_at_once(tmp_path: Path) -> None:
    target = tmp_path / "report.html"
    target.write_text("old")
    report.write(target, results_of(finding()), [outcome()], "r")
    assert "orders-3" in target.read_text("utf-8")
    assert [path.name for path in tmp_path.iterdir()] == ["report.html"]


def test_an_unwritable_path_is_refused(tmp_path: Path) -> None:
    no_folder = tmp_path / "file"
    no_folder.write_text("")
    for path in (no_folder / "r.html", tmp_path, Path("/dev/null")):
        with pytest.raises(UsageError, match="--report"):
            report.write(path, results_of(), [outcome()], "r")
    with pytest.raises(UsageError, match="cannot be written"):
        report.write(tmp_path / ("n" * 300), results_of(), [outcome()], "r")
    assert list(tmp_path.iterdir()) == [no_folder]


def test_causes_are_on_top_and_quiet_clusters_in_one_list() -> None:
    many = [finding(title=f"Partition without a leader: orders-{n}", fingerprint=f"f{n}") for n in range(7)]
    many += [
        finding(severity="warning", title=f"Partition without a leader: minor-{n}", fingerprint=f"w{n}")
        for n in range(2)
    ]
    effect = finding(
        severity="error", check_id="below_min_isr", title="Effect", fingerprint="e", caused_by="f0"
    )
    silent = finding(cluster="b", silence="broker 3 is replaced", fingerprint="s")
    clusters = [outcome(cluster=name) for name in ("a", "b", "payments")]
    page = results_of(*many, effect, silent)
    text = re.sub(r"\s+", " ", Page(report.rendered(page, clusters, "r")).text)
    top = text[text.index("Kafka audit payments") : text.index("Show")]
    assert "7 critical, 1 error, 2 warnings; all new." in top
    assert "and 2 more, below" in top
    assert "minor" not in top
    assert (
        "orders-0 No line shows that a partition was unavailable, at risk or lost. Not over: at 2026-11-20 10:00:00 UTC."
        in top
    )
    assert "Consequence: Effect" in top
    assert "orders-6" in top
    assert "2 clusters need nothing now: a, b" in top
    assert "Silenced: 1." in Page(report.rendered(page, clusters[1:2], "r")).text


def test_inputs_are_listed() -> None:
    """Names of files are hostile, too."""
    read = {
        "file": "a.tar.gz!/server.log",
        "files": 1,
        "kind": "log",
        "read_as": "tar.gz, layout log4j_default",
        "reason": None,
        "lines": 5000,
    }
    read |= {"records": 4000, "other_records": 1, "continuation_lines": 990, "lines_without_record": 9}
    skipped = {"file": NASTY, "files": 3, "kind": "unrelated", "read_as": None, "reason": NASTY}
    html = report.rendered(results_of(), [outcome(inputs=(read, skipped))], "r")
    page = Page(html)
    assert (
        "5,000 lines = 4,000 records + 990 continuation lines + 1 record of other programs + 9 lines without a record."
        in page.text
    )
    assert "a.tar.gz!/server.log" in page.text
    assert "and 2 more like it" in page.text
    assert "script" not in page.tags


def test_a_finding_about_a_broker_is_found_by_the_topics_of_its_partitions() -> None:
    of_broker = finding(fingerprint="b", check_id="broker_down", topic=None, partition=None, replica=1)
    partitions = {
        "partitions": 2,
        "first": ("payments", 0),
        "some": ["audit-0", "payments-0"],
        "replicas": [],
        "topics": ["audit", "payments"],
    }
    page = report.rendered(results_of(of_broker, finding(), subjects={"b": partitions}), [outcome()], "r")
    marks = dict(re.findall(r'<option value="(t\d+)">(\w+)</option>', page))
    assert set(marks.values()) == {"audit", "orders", "payments"}
    (classes,) = re.findall(r'class="([^"]*)"[^>]*id="b"', page) or re.findall(
        r'id="b"[^>]*class="([^"]*)"', page
    )
    assert {marks[one] for one in classes.split() if one in marks} == {"audit", "payments"}


def test_commands_in_advice_are_code() -> None:
    assert (
        report.with_code("Check `a --b <c>`, then `d`.")
        == "Check <code>a --b &lt;c&gt;</code>, then <code>d</code>."
    )
    assert report.with_code("one ` <b>") == "one ` &lt;b&gt;"
