"""The report in a real browser: nothing runs, nothing overflows, the filter filters.

Skipped where there is no Chromium.
"""

from __future__ import annotations

import html
import json
import re
import shutil
import subprocess
from datetime import date
from pathlib import Path
from typing import Any

import pytest
from test_pictures import recent_hours
from test_report import AT, finding, outcome, results_of

from jobs.reporting import report
from jobs.reporting.pictures import Durability, Pictures, TopicDay

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
RUNS = '<img src=x onerror="top.ran=1"><script>top.ran=1</script><svg onload="top.ran=1">'
NASTY = f"{RUNS}\u202e\u2066{'x' * 249}"
MEASURE = """<body><iframe id="page" style="width:{width}px;height:900px;border:0" srcdoc="{page}"></iframe><script>
onload = () => {{
  const view = document.getElementById('page').contentDocument, seen = name => getComputedStyle(view.querySelector(name)).display !== 'none';
  const found = {{ran: Boolean(window.ran), wide: view.documentElement.scrollWidth, before: seen('.finding.critical')}};
  view.querySelector('#show-critical').click();
  found.after = seen('.finding.critical'); found.others = seen('.finding.warning');
  view.querySelector('#show-critical').click();
  const checks = view.querySelector('#checks'); checks.selectedIndex = [...checks.options].findIndex(o => o.text === 'format_drift');
  found.only = [seen('.finding.critical'), seen('.finding.warning')];
  checks.selectedIndex = 0;
  const topics = view.querySelector('#topics'); topics.selectedIndex = [...topics.options].findIndex(o => o.text === 'orders');
  found.topic = [seen('.finding.critical'), seen('.finding.warning')];
  topics.selectedIndex = 0;
  found.all = [seen('.finding.critical'), seen('.finding.warning')];
  found.requests = document.getElementById('page').contentWindow.performance.getEntriesByType('resource').length;
  const reached = [...view.querySelectorAll('a[href], summary, input, select')].filter(one => one.checkVisibility());
  found.keyboard = reached.length > 10 && reached.every(one => {{ one.focus(); return view.activeElement === one; }});
  document.body.innerHTML = ''; document.body.append('found' + JSON.stringify(found) + 'end');
}};</script></body>"""

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="needs Chromium (apt-get install chromium)")


def chromium(tmp_path: Path, page: Path, *options: str) -> str:
    """What it prints about a page."""
    assert CHROMIUM is not None
    command = [
        CHROMIUM,
        "--headless",
        "--no-sandbox",
        "--disable-gpu",
        "--disable-background-networking",
        "--no-first-run",
    ]
    profile = f"--user-data-dir={tmp_path / 'profile'}"
    done = subprocess.run(
        [*command, profile, *options, page.as_uri()], capture_output=True, text=True, timeout=100, check=True
    )
    return done.stdout


DURABLE = Durability(
    [TopicDay(f"{n}{NASTY}", date(2026, 11, 14 + n), 1, 50.0, 20.0, 10.0, 20.0, 15.0) for n in range(7)], 900
)


def hostile() -> str:
    """A page of names that nobody would give a topic, and of a line of 10 MB."""
    proof = {"e1": {"file": NASTY, "record_no": 1, "raw": RUNS + "y" * 10_000_000}}
    page = results_of(
        finding(title=f"Partition without a leader: {NASTY}", detail=NASTY, topic=NASTY, fingerprint="a"),
        finding(
            severity="warning",
            check_id="format_drift",
            title=f"w {NASTY}",
            topic="orders",
            fingerprint="b",
            evidence=["e1"],
        ),
        proof=proof,
        not_shown={"payments": [NASTY]},
        unknown={
            "payments": [
                {"records": 1, "status": "drifted", "logger": NASTY, "masked": NASTY, "example": NASTY}
            ]
        },
        subjects={"a": {"partitions": 3, "first": (NASTY, 0), "some": [f"{NASTY}-{n}" for n in range(3)]}},
    )
    return report.rendered(
        page,
        [outcome(unreadable=(NASTY,))],
        NASTY,
        Pictures({"payments": recent_hours()}, {}, {"payments": DURABLE}),
        AT,
    )


@pytest.mark.parametrize("width", [360, 1200])
def test_nothing_runs_nothing_overflows_and_the_filter_works(tmp_path: Path, width: int) -> None:
    page = tmp_path / "wrapper.html"
    page.write_text(MEASURE.format(width=width, page=html.escape(hostile())), "utf-8")
    dom = chromium(tmp_path, page, "--dump-dom", "--virtual-time-budget=5000")
    found_by_page = re.search(r"found(\{.*?\})end", html.unescape(dom))
    assert found_by_page is not None, dom[:500]
    found: dict[str, Any] = json.loads(found_by_page.group(1))
    assert not found["ran"]
    assert found["requests"] == 0
    assert found["keyboard"]
    assert found["wide"] <= width
    assert (found["before"], found["after"], found["others"]) == (True, False, True)
    assert found["only"] == [False, True]
    assert (found["topic"], found["all"]) == ([False, True], [True, True])


def test_a_screenshot(tmp_path: Path) -> None:
    page, picture = tmp_path / "report.html", tmp_path / "report.png"
    page.write_text(hostile(), "utf-8")
    chromium(tmp_path, page, f"--screenshot={picture}", "--window-size=1000,2000")
    assert picture.stat().st_size > 20_000
