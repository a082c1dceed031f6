"""Account for every given file and line: rows of table `inputs`, and sentences for people. Pure."""

import fnmatch
import json
import os
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from jobs.errors import ConservationError
from jobs.files import archives
from parsers.explanation import counted, visible

if TYPE_CHECKING:
    from jobs.files.ingest import LogFile

# kinds of files that are not read -> the reason, for a file without a reason of its own
SKIPPED = {
    "empty": "it is empty",
    "unrelated": "it has no Kafka log record",
    "skipped": "it is no file",
    "unreadable": "",
}
# kinds that lines are counted as; they sum up to the number of lines
COUNTED = ("records", "other_records", "continuation_lines", "lines_without_record")
SHOWN = 5
LONGEST_SAMPLE = 80
_STAMP = re.compile(
    r"\[?\d{4}-\d\d-\d\d[T ]\d\d:\d\d|\[?\d\d/\w{3}/\d{4}:|\w{3} [ \d]\d \d\d:\d\d:\d\d |\d{12,13}\b"
)
# of syslog
_PRIORITY = re.compile(r"<\d{1,3}>")
# as in mails, and of all characters
_BASE64 = re.compile(r"(?=.*[0-9])(?=.*[a-z])(?=.*[A-Z])[A-Za-z0-9+/]{60,}={0,2}")
_GC = re.compile(r"\[[^\]\n]*\]\[(?:info|debug|trace|warning) ?\]\[gc|.*\[(?:GC|Full GC)")
_TRY = "`kafka-audit layout FILE` shows how it is read and proposes a ConversionPattern for layouts.toml (--rules DIR)"


def looks_like(text: str) -> str:
    """Return a short description of a text without records. text: its beginning."""
    lines = [line for line in text.replace("\r", "\n").split("\n") if line.strip()]
    if not lines:
        return "it has only blank lines"
    first = lines[0].strip()
    sample = visible(first[:LONGEST_SAMPLE]) + ("…" if len(first) > LONGEST_SAMPLE else "")
    odd = sum((not c.isprintable() and c not in "\t\n\r") or c == "\ufffd" for c in text[:4096])
    if odd > max(4, min(len(text), 4096) // 10):
        return "it is no text"
    if first[0] in "{[":
        try:
            names = list(json.loads(first))
        except (ValueError, RecursionError, TypeError):
            names = []
        if first[0] == "{" and names:
            return f"it looks like JSON with the keys {', '.join(visible(str(name)[:40]) for name in names[:SHOWN])}, none of which contains a log line"
    if _BASE64.fullmatch(lines[len(lines) // 2].strip()):
        whole = _BASE64.fullmatch(first)
        cure = (
            "`base64 -d FILE > FILE.log` writes its text" if whole else "save the text of the mail as a file"
        )
        return f"it looks like base64; {cure}"
    if any(_GC.match(line) for line in lines[:20]):
        return "it looks like a log of Java's garbage collection"
    if first[0] == "<" and not _PRIORITY.match(first):
        return f"it looks like XML or HTML: {sample}"
    if any(_STAMP.match(line) for line in lines[:20]):
        return f"it looks like a log in another layout: {sample}"
    return f"it looks like a text: {sample}"


def rows(files: Sequence["LogFile"], counts: Mapping[int, Counter[str]], run_id: str) -> list[dict[str, Any]]:
    """Return rows of `inputs`. Raises ConservationError where a line is not accounted for.

    counts: number of a file among those that are read -> its lines, begun, continued, foreign, cut.
    """
    found, number = [], 0
    for file in files:
        row: dict[str, Any] = {
            "run_id": run_id,
            "cluster": file.cluster,
            "file": visible(file.name),
            "files": file.alike,
            "kind": file.kind,
            "read_as": read_as(file),
            "node": file.node,
            "bytes": file.length or file.size,
            "reason": file.why or SKIPPED.get(file.kind) or None,
        }
        if file.usable:
            count = counts.get(number, Counter())
            number += 1
            row |= {
                "lines": count["lines"],
                "records": count["begun"] - count["foreign"],
                "other_records": count["foreign"],
                "continuation_lines": count["continued"],
                "lines_without_record": count["lines"] - count["begun"] - count["continued"],
                "cut_records": count["cut"],
            }
            if min(row[name] for name in COUNTED) < 0 or sum(row[name] for name in COUNTED) != row["lines"]:
                raise ConservationError(
                    f"not every line of {row['file']} is accounted for: {dict(count)}; please report this with the log"
                )
        found.append(row)
    return found


def read_as(file: "LogFile") -> str | None:
    """Return how a file was read, such as `tar.gz, layout kafka`; None where it was not read."""
    if file.kind == "checkpoint":
        return ", ".join(filter(None, [archives.read_as(file.layers), "output of one of Kafka's tools"]))
    if not file.usable:
        return None
    return ", ".join(
        filter(None, [archives.read_as(file.layers), file.read_as, file.layout and f"layout {file.layout}"])
    )


def sentences(inputs: Iterable[Mapping[str, Any]]) -> list[str]:
    """Return sentences about what was read of one cluster and what was skipped."""
    inputs = list(inputs)
    logs = [row for row in inputs if row.get("lines") is not None]
    totals = {name: sum(row[name] for row in logs) for name in ("lines", *COUNTED)}
    parts = [
        counted(totals["records"], "record"),
        counted(totals["continuation_lines"], "continuation line"),
        f"{counted(totals['other_records'], 'record')} of other programs",
        f"{counted(totals['lines_without_record'], 'line')} without a record",
    ]
    found = [f"Read: {counted(len(logs), 'log')}, {counted(totals['lines'], 'line')} = {' + '.join(parts)}."]
    kinds = Counter[str]()
    for row in inputs:
        kinds[row["kind"]] += row["files"]
    if kinds["bare"]:
        found.append(
            f"{counted(kinds['bare'], 'log')} without time stamps: records keep the order of the file, and durations are not known."
        )
    skipped = [f"{kinds[kind]:,} {kind}" for kind in SKIPPED if kinds[kind]]
    outputs = f" {counted(kinds['checkpoint'], 'output')} of Kafka's tools." if kinds["checkpoint"] else ""
    if skipped or outputs:
        names = f" of {counted(sum(kinds.values()), 'file')}" if skipped else ""
        found.append(
            (f"Skipped{names}: {', '.join(skipped)} (table inputs has the reasons)." if skipped else "")
            + outputs
        )
    return found


def without_logs(given: Iterable[str], files: Sequence["LogFile"]) -> list[str]:
    """Return a sentence for each given path without logs: what it looks like, and what to try."""
    found = []
    for one in given:
        mine = [file for file in files if _is_of(file, one)]
        if any(file.usable or file.kind == "checkpoint" for file in mine) or any(
            file.kind == "unreadable" for file in mine
        ):
            continue  # unreadable files are reported elsewhere
        number = sum(file.alike for file in mine)
        example = max(mine, key=lambda file: file.kind == "unrelated", default=None)
        why = (
            (example.why or SKIPPED[example.kind]) if example else "no file with a Kafka log record is in it"
        )
        if example is not None and number > 1:
            why = f"none of its {number:,} files has a Kafka log record; for example, {visible(example.name)}: {why}"
        found.append(
            f"{visible(one)}: nothing was read: {why}. {_TRY}"
            if example and example.kind == "unrelated"
            else f"{visible(one)}: nothing was read: {why}"
        )
    return found


def _is_of(file: "LogFile", given: str) -> bool:
    """Return whether a file was found at a given path, which may be a folder or a glob."""
    if file.given:
        return file.given == given
    path, one = os.path.normpath(file.path), os.path.normpath(given)
    if one == "." and not os.path.isabs(path):
        return True
    if path == one or path.startswith(one.rstrip("/") + "/"):
        return True
    if not re.search(r"[*?\[]", one):
        return False
    # the glob may match a folder above the file; `**/` matches zero or more folders
    glob, parts = one.replace("**/", "*"), path.split("/")
    return any(fnmatch.fnmatch("/".join(parts[:end]), glob) for end in range(1, len(parts) + 1))
