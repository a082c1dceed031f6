"""The public incidents of `tests/incidents`, and the page that lists them.

`tests/incidents/<number>_<slug>/` has the logs of an incident as the affected Kafka version prints them, with
invented names, and `incident.toml`: its sources and the findings that are right. `python -m
tests.incident_cases --write` writes docs/reference/incidents.md.
"""

from __future__ import annotations

import re
import sys
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

INCIDENTS = Path(__file__).parent / "incidents"
PAGE = Path(__file__).parents[1] / "docs" / "reference" / "incidents.md"
# the header of the layouts that the incidents have: Apache's and Strimzi's
HEADER = re.compile(
    r"\[?(?P<at>\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3})\]? [A-Z]+ (?P<text>.*) \((?P<logger>[\w.$]+)\)(?: \[[\w-]+\])?$"
)
LONGEST_LINE = 120


class Finding(NamedTuple):
    """What identifies a finding: its check, severity and subject."""

    check_id: str
    severity: str
    topic: str | None = None
    partition: int | None = None
    replica: int | None = None
    node: int | None = None

    @classmethod
    def of(cls, row: Mapping[str, Any]) -> Finding:
        """Return the finding of a row of the table `findings`."""
        return cls(*(row[name] for name in cls._fields))


class Line(NamedTuple):
    """A header line of a log."""

    at: str
    node: str
    text: str
    logger: str


@dataclass(frozen=True)
class Incident:
    """One `incident.toml`.

    line: a part of the first log line that shows it. noticed: how long before people noticed, where a source
    says. expected: the findings of severity warning or above, the main one first. pending: findings that no
    check raises yet. wrong: findings that should not be there.
    signal: of an incident that logs cannot show, what would. right_is: why no finding is right.
    """

    folder: Path
    title: str
    kafka: str
    sources: str
    line: str = ""
    noticed: str = ""
    signal: str = ""
    right_is: str = ""
    expected: tuple[Finding, ...] = ()
    pending: tuple[Finding, ...] = ()
    wrong: tuple[Finding, ...] = field(default=())

    @property
    def number(self) -> int:
        """Its number, by which the folders are sorted."""
        return int(self.folder.name.partition("_")[0])

    @property
    def is_found(self) -> bool:
        """Whether the audit reports what is right: all that is expected, or nothing where that is right."""
        return (
            not self.signal and not self.pending and not self.wrong and bool(self.expected or self.right_is)
        )

    def lines(self) -> Iterator[Line]:
        """Yield the header lines of its logs, oldest first."""
        found = []
        for path in sorted(self.folder.glob("*/*.log")):
            for text in path.read_text("utf-8").splitlines():
                if header := HEADER.match(text):
                    found.append(Line(header["at"], path.parent.name, header["text"], header["logger"]))
        yield from sorted(found, key=lambda line: line.at)

    def first_line(self) -> Line | None:
        """Return the oldest line that has the part `line`; null where the incident names none."""
        return next((line for line in self.lines() if self.line in line.text), None) if self.line else None


def incidents() -> list[Incident]:
    """Return all incidents in order of their numbers. Raises TypeError for an unknown key."""
    found = []
    for path in sorted(INCIDENTS.glob("*/incident.toml")):
        content = tomllib.loads(path.read_text("utf-8"))
        listed = {
            name: tuple(Finding(**row) for row in content.pop(name, ()))
            for name in ("expected", "pending", "wrong")
        }
        found.append(Incident(path.parent, **content, **listed))
    return found


def _code(text: str) -> str:
    cut = text if len(text) <= LONGEST_LINE else text[: LONGEST_LINE - 1] + "…"
    return f"`{cut}`".replace("|", "\\|")


def _findings(incident: Incident) -> str:
    if incident.signal:
        return "not found: logs cannot show it"
    words = list(dict.fromkeys(f"`{finding.check_id}` ({finding.severity})" for finding in incident.expected))
    words += [f"not yet: `{finding.check_id}` ({finding.severity})" for finding in incident.pending]
    words += [f"wrong: `{finding.check_id}`" for finding in dict.fromkeys(incident.wrong)]
    return ", ".join(words) or "none, which is right"


def _shown(incident: Incident) -> str:
    line = incident.first_line()
    if line is not None:
        return f"{line.at.split()[1].partition(',')[0]} {line.node}: {_code(line.text)}"
    return incident.signal or incident.right_is


def table() -> str:
    """Return how many incidents the audit finds, and the table incident, finding, first log line, time until
    people noticed.
    """
    all_of_them = incidents()
    found = [incident for incident in all_of_them if incident.is_found]
    wrong = [incident for incident in all_of_them if incident.wrong]
    rows = [
        f"| {one.number} | {one.title} ({one.sources}) | {one.kafka} | {_findings(one)} | {_shown(one)} | {one.noticed or 'not known'} |"
        for one in all_of_them
    ]
    summary = f"The audit reports {len(found)} of {len(all_of_them)} incidents correctly. {len(wrong)} have a wrong finding."
    return "\n".join(
        [
            summary,
            "",
            "| | incident | Kafka | findings | first log line that shows it | noticed after |",
            "|---|---|---|---|---|---|",
            *rows,
        ]
    )


def renewed(text: str) -> str:
    """Return the page with its generated part replaced."""
    return re.sub(
        r"(<!-- incidents -->\n).*?(<!-- /incidents -->)",
        lambda m: f"{m[1]}{table()}\n{m[2]}",
        text,
        flags=re.DOTALL,
    )


if __name__ == "__main__":
    page = renewed(PAGE.read_text("utf-8"))
    if "--write" in sys.argv:
        PAGE.write_text(page, "utf-8")
    else:
        print(page)
