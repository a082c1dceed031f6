"""An audit calls the functions of "The way of a record" in the order of that table."""

from __future__ import annotations

import inspect
import itertools
import re
import sys
import threading
from collections import defaultdict
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from jobs import errors
from jobs.nightly_audit import main

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "contributing" / "architecture.md"
LOGS = (
    ROOT / "sample_logs" / "3.3.2-trace" / "delete-topic-dead-broker" / "broker-1" / "controller.log",
    ROOT / "sample_logs" / "4.3.0-kraft" / "reassign" / "node-2" / "controller.log",
)


@dataclass(frozen=True)
class Row:
    """A row of the table. engine: `both`, `local` or `Spark`."""

    engine: str
    file: str
    functions: tuple[str, ...]


def rows_of_page() -> list[Row]:
    section = PAGE.read_text("utf-8").partition("## The way of a record\n")[2].partition("\n## ")[0]
    cells = [
        line.strip("| ").split(" | ")
        for line in section.splitlines()
        if re.search(r"`[\w/]+\.py`", line) and line[0] == "|"
    ]
    return [
        Row(engine, file.strip("`"), tuple(re.findall(r"`([\w.]+)`", functions)))
        for *_, engine, file, functions in cells
    ]


@contextmanager
def calls(
    wanted: Collection[tuple[str, str]],
) -> Iterator[dict[tuple[str, str], list[tuple[int, threading.Thread]]]]:
    """Record (file, function or class) -> number and thread of each call, in all threads of this process.

    Numbers are in order of time.
    """
    found: dict[tuple[str, str], list[tuple[int, threading.Thread]]] = defaultdict(list)
    numbers = itertools.count()

    def note(frame: Any, event: str, _: Any) -> None:
        code = frame.f_code
        # the body of a class is no function
        if (
            event == "call"
            and code.co_flags & inspect.CO_OPTIMIZED
            and code.co_filename.startswith(str(ROOT))
        ):
            function = code.co_filename.removeprefix(f"{ROOT}/"), code.co_qualname.removesuffix(".__init__")
            if function in wanted:
                # an ident may be that of a thread that has ended
                found[function].append((next(numbers), threading.current_thread()))

    before = sys.getprofile()
    threading.setprofile(note)
    sys.setprofile(note)
    try:
        yield found
    finally:
        sys.setprofile(before)
        threading.setprofile(before)


@pytest.mark.parametrize("log", LOGS, ids=["ZooKeeper", "KRaft"])
@pytest.mark.parametrize("engine", ["local", pytest.param("spark", marks=pytest.mark.spark)])
def test_functions_are_called_in_the_order_of_the_page(
    engine: str, log: Path, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    """One log, so that no function is called again for another file."""
    if engine == "spark":
        request.getfixturevalue("spark")
    page = [
        row for row in rows_of_page() if row.engine in ("both", "local" if engine == "local" else "Spark")
    ]
    with calls({(row.file, name) for row in page for name in row.functions}) as found:
        code = main(["audit", str(log), "--tables", str(tmp_path / "tables"), "--engine", engine, "--quiet"])
    assert code in (errors.CLEAN, errors.FINDINGS)
    # on Spark a thread parses small logs while the session starts
    ((_, parsing),) = found["jobs/engine/in_process.py", "parsed_in_process"]
    at = {True: -1, False: -1}
    followed = 0
    for row in page:
        for name in row.functions:
            if numbered := found.get((row.file, name)):
                ahead = [number for number, thread in numbered if engine == "spark" and thread is parsing]
                is_ahead, numbers = bool(ahead), ahead or [number for number, _ in numbered]
                later = [number for number in numbers if number > at[is_ahead]]
                assert later, f"{row.file} {name} is not called after those above it"
                at[is_ahead] = later[0]
                followed += 1
    assert followed > 35
