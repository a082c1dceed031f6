"""How fast logs land as events, beside other ways with the same bytes in the same run. Run by hand.

    .venv/bin/python tests/benchmarks/landing.py [--megabytes 300] [--runs 3] [--ways events,base] [--base
    FOLDER] [--recording sample_logs/...]

copy     text -> Delta, nothing parsed: the floor
events   headers, all rules, typed columns, identity, copies, written to Delta: what a night does
base     the same of another commit, checked out in FOLDER (one whose `jobs.landing.new_records.land` takes the
         parts of `jobs.files.ingest.read`)
python   the parser alone, in one process, nothing written (on PYTHON_MB of the bytes)
duckdb   DuckDB with the same header, dispatch and patterns, written to Parquet (where the package duckdb is
         installed)

A recording's state-change.log lines are repeated with shifted dates until the size is reached, so that every
record is another one. Ratios count; the machine's noise shows in the spread.
"""

import argparse
import importlib.util
import os
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import date, timedelta
from pathlib import Path

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT))

import schemas  # noqa: E402
from jobs.batches import record_blocks  # noqa: E402
from jobs.config import Cluster  # noqa: E402
from jobs.engine import session  # noqa: E402
from jobs.engine.store import Store  # noqa: E402
from jobs.engine.workers import OnWorkers  # noqa: E402
from jobs.files import ingest  # noqa: E402
from jobs.landing import new_records  # noqa: E402
from parsers.events import Parser  # noqa: E402
from parsers.patterns import GROUP, LOOKAROUND, compiled  # noqa: E402
from parsers.rules import ITEMS, RuleSet, built_in  # noqa: E402

PYTHON_MB = 20
# the smallest measurement, which the suite runs
SMALLEST = ("--megabytes", "1", "--runs", "1", "--ways", "events,python")
SEPARATOR = "\x01"
HEADER_SLOTS = ("layout", "ts_text", "level", "logger", "thread", "log_ident", "statement", "thrown")
# lands the logs under a folder whenever it is told to, and answers with the seconds
BASE = """
import shutil, sys, time
from pathlib import Path
sys.path.insert(0, sys.argv[1])
from jobs.config import Cluster
from jobs.engine import session
from jobs.engine.store import Store
from jobs.files import ingest
from jobs.landing import new_records
from parsers.rules import built_in
spark, work = session.start(), Path(sys.argv[2])
files = ingest.find(Cluster("benchmark", (str(work / "logs"),)))
for line in sys.stdin:
    store = Store(spark, work / "base")
    store.open()
    begun = time.perf_counter()
    with ingest.staged(files, Path(store.root) / "_staging") as source:
        new_records.land(store, ingest.read(spark, source, built_in()), source, built_in())
    print(time.perf_counter() - begun, flush=True)
    shutil.rmtree(store.root)
"""


def multiply(recording: Path, folder: Path, megabytes: int) -> int:
    """Writes broker-<n>/state-change.log.<k> files of some 50 MB; returns the bytes."""
    sources = {
        log.parent.name: log.read_text() for log in sorted(recording.glob("broker-*/state-change.log"))
    }
    written, day, part = 0, date(2020, 1, 1), 0
    while written < megabytes * 10**6:
        part += 1
        for broker, text in sources.items():
            target = folder / broker / f"state-change.log.{part}"
            target.parent.mkdir(parents=True, exist_ok=True)
            with target.open("w") as log:
                size = 0
                shifted = day
                while size < min(50, megabytes) * 10**6 / len(sources):
                    for first in {line[1:11] for line in text.splitlines() if line.startswith("[20")}:
                        piece = text.replace(f"[{first}", f"[{shifted.isoformat()}")
                    size += log.write(piece)
                    shifted += timedelta(days=1)
            written += size
        day = shifted
    return written


def with_python(files: list[ingest.LogFile]) -> float:
    """MB a second of the parser, on one core."""
    parser, read, begun = Parser(), 0, time.perf_counter()
    for split in ingest.splits(files, parser, PYTHON_MB * 10**6):
        for block in record_blocks.parse(split, parser):
            assert block.counts["records"] >= 0
        read += split.end - split.begin
        if read >= PYTHON_MB * 10**6:
            break
    return read / 1e6 / (time.perf_counter() - begun)


def plain(pattern: str) -> str:
    """The pattern with plain numbered groups, and without what only a backtracking engine needs to be fast."""
    pattern = LOOKAROUND.sub("", GROUP.sub("(", pattern).replace("(?>", "(?:"))
    return re.sub(r"(?<!\\)([*+?}])\+", r"\1", pattern)


def rule_slots(ruleset: RuleSet) -> tuple[str, ...]:
    """What any of the rules captures."""
    captured = {name for rule in ruleset.rules for name in rule.columns}
    return ("event_type", "says", *(name for name in schemas.vocabulary() if name in captured), ITEMS)


def duckdb_sql(files: list[ingest.LogFile], ruleset: RuleSet, target: Path) -> str:
    """The same work as DuckDB's SQL, of the same definitions: header of the first layout, dispatch, one
    replace, typed columns.
    """

    def text(value: str) -> str:
        return "'" + value.replace("'", "''") + "'"

    def laid_out(pattern: str, slots: tuple[str, ...], given: dict[str, str]) -> str:
        numbers = compiled(pattern).groupindex
        cells = [
            given.get(slot, f"\\{numbers[slot]}" if numbers.get(slot, 99) < 10 else "") for slot in slots
        ]
        return SEPARATOR.join(cells)

    layout, slots = ruleset.layouts[0], rule_slots(ruleset)
    numbers = compiled(layout.line).groupindex
    stamp = f"\\{numbers['date']} \\{numbers['clock']}\\{numbers['fraction']}"
    header = laid_out(layout.line, HEADER_SLOTS, {"layout": layout.name, "ts_text": stamp})
    cases = []
    for rule in ruleset.rules:
        claims = " OR ".join(f"starts_with(statement, {text(start)})" for start in rule.starts)
        if rule.contains is not None:
            claims = f"({claims}) AND contains(statement, {text(rule.contains)})"
        layout_of = laid_out(rule.pattern, slots, {"event_type": rule.name, "says": rule.says})
        cases.append(
            f"WHEN {claims} THEN regexp_replace(statement, {text(f'(?s)^(?:{plain(rule.pattern)})$')}, {text(layout_of)})"
        )
    columns = []
    for name, word in schemas.vocabulary().items():
        if name not in slots:
            continue
        cell = f"r[{slots.index(name) + 1}]"
        kind = {"int": "INTEGER", "bigint": "BIGINT", "boolean": "BOOLEAN"}.get(word["type"])
        if word["type"] == "int_list":
            columns.append(
                f"CASE WHEN {cell} <> '' THEN regexp_extract_all({cell}, '-?[0-9]+')::INTEGER[] END AS {name}"
            )
        else:
            columns.append(
                f"TRY_CAST(nullif({cell}, '') AS {kind}) AS {name}"
                if kind
                else f"nullif({cell}, '') AS {name}"
            )
    paths = ", ".join(text(str(file.path)) for file in files)
    statement = f"h[{HEADER_SLOTS.index('statement') + 1}]"
    return f"""COPY (WITH lines AS (SELECT * FROM read_csv([{paths}], columns = {{'line': 'VARCHAR'}}, delim = '{chr(2)}', quote = '', escape = '',
        header = false, auto_detect = false, max_line_size = 20000000)),
      headed AS (SELECT line, sha256(line) AS record_id, string_split(regexp_replace(line, {text(f"(?s)^(?:{plain(layout.line)})$")},
        {text(header)}), '{SEPARATOR}') AS h FROM lines),
      said AS (SELECT *, {statement} AS statement FROM headed),
      matched AS (SELECT *, string_split(CASE {" ".join(cases)} END, '{SEPARATOR}') AS r FROM said)
      SELECT record_id, line, TRY_CAST(h[2] AS TIMESTAMP) AS ts, h[3] AS level, h[4] AS logger, r[1] AS event_type, r[2] AS says,
        {", ".join(columns)} FROM matched) TO {text(str(target))} (FORMAT parquet, COMPRESSION snappy)"""


def with_duckdb(files: list[ingest.LogFile], ruleset: RuleSet, target: Path) -> float:
    """MB a second of DuckDB, on as many threads as Spark has."""
    import duckdb

    connection = duckdb.connect(config={"threads": 2})
    begun = time.perf_counter()
    connection.execute(duckdb_sql(files, ruleset, target))
    took = time.perf_counter() - begun
    known = connection.execute(
        f"SELECT count(*) FROM '{target}' WHERE event_type IS NOT NULL AND says IS NOT NULL"
    ).fetchone()
    assert known
    assert known[0] > 0
    target.unlink()
    return sum(file.size for file in files) / 1e6 / took


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--megabytes", type=int, default=300)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--ways", help="only these, and those that they are compared with")
    parser.add_argument("--base", type=Path, help="a checkout of the commit to compare with")
    parser.add_argument(
        "--recording", type=Path, default=ROOT / "sample_logs" / "3.3.2-trace" / "delete-topic-dead-broker"
    )
    options = parser.parse_args()
    work = Path(tempfile.mkdtemp(prefix="landing-"))
    other = None
    try:
        size = multiply(options.recording, work / "logs", options.megabytes)
        spark = session.start()
        files = ingest.find(Cluster("benchmark", (str(work / "logs"),)))
        print(f"{size / 1e6:.0f} MB in {len(files)} files")
        met: set[str] = set()
        steps: dict[str, float] = {}
        memory: dict[str, int] = {}

        def copy(run: int) -> float:
            target, begun = work / f"copy-{run}", time.perf_counter()
            spark.read.text([str(file.path) for file in files]).write.format("delta").save(str(target))
            took = time.perf_counter() - begun
            shutil.rmtree(target)
            return size / 1e6 / took

        def land(run: int) -> float:
            store = Store(spark, work / f"tables-{run}")
            store.open()
            begun = time.perf_counter()
            steps.clear()
            with most_memory(memory):
                steps.update(timed_steps(lambda: new_records.land(store, files)))
            took = time.perf_counter() - begun
            met.update(
                row[0] for row in store.table("events").select("event_type").distinct().collect() if row[0]
            )
            shutil.rmtree(store.root)
            return size / 1e6 / took

        ways: dict[str, Callable[[int], float]] = {
            "copy": copy,
            "events": land,
            "python": lambda _: with_python(files),
        }
        if options.base:
            command = [sys.executable, "-c", BASE, str(options.base), str(work)]
            other = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=options.base
            )

            def base(_: int) -> float:
                assert other
                assert other.stdin
                assert other.stdout
                other.stdin.write("go\n")
                other.stdin.flush()
                return size / 1e6 / float(other.stdout.readline())

            ways["base"] = base
        if importlib.util.find_spec("duckdb"):  # with the rules that these lines need

            def duckdb(_: int) -> float:
                ruleset = built_in()
                used = replace(ruleset, rules=tuple(rule for rule in ruleset.rules if rule.name in met))
                return with_duckdb(files, used, work / "duckdb.parquet")

            ways["duckdb"] = duckdb
        if options.ways:
            ways = {name: way for name, way in ways.items() if name in options.ways.split(",")}
        rates: dict[str, list[float]] = {name: [] for name in ways}
        for run in range(options.runs + 1):
            measured = {name: way(run) for name, way in ways.items()}
            told = ", ".join(f"{name} {value:.1f}" for name, value in measured.items())
            print("warm-up:" if run == 0 else f"run {run}:", told, "MB/s", flush=True)
            for name, value in measured.items() if run else ():
                rates[name].append(value)
        for name, values in rates.items():
            ratio = statistics.median(e / v for e, v in zip(rates.get("events", values), values, strict=True))
            spread = f"({min(values):.1f} .. {max(values):.1f})"
            print(
                f"{name:8} median {statistics.median(values):6.1f} MB/s {spread}; events / {name}: {ratio:.2f}"
            )
        print("seconds of the last landing:", ", ".join(f"{name} {took:.1f}" for name, took in steps.items()))
        print("memory at most, MB:", ", ".join(f"{name} {used >> 20}" for name, used in memory.items()))
    finally:
        if other:
            other.terminate()
        shutil.rmtree(work, ignore_errors=True)


@contextmanager
def most_memory(found: dict[str, int]) -> Iterator[None]:
    """Keeps the most that the JVM, Spark's Python workers together, and this process were given (resident, by
    /proc) meanwhile.
    """
    over = threading.Event()

    def look() -> None:
        while not over.wait(0.2):
            used = {"driver": 0, "JVM": 0, "workers": 0}
            for name, resident in resident_memory():
                used[name] += resident
            found.update({name: max(value, found.get(name, 0)) for name, value in used.items()})

    looking = threading.Thread(target=look)
    looking.start()
    try:
        yield
    finally:
        over.set()
        looking.join()


def resident_memory() -> Iterator[tuple[str, int]]:
    """(what it is, bytes) of this process and all that it has begot."""
    parents, processes = {}, {}
    for status in Path("/proc").glob("[0-9]*/status"):
        try:
            told = dict(line.split(":", 1) for line in status.read_text().splitlines())
        except OSError:
            continue  # it has ended
        if "VmRSS" in told:
            number = int(status.parent.name)
            parents[number] = int(told["PPid"])
            processes[number] = told["Name"].strip(), int(told["VmRSS"].split()[0]) * 1024
    for number, (name, resident) in processes.items():
        ancestor: int | None = number
        while ancestor is not None and ancestor != os.getpid():
            ancestor = parents.get(ancestor)
        if ancestor is not None:
            yield "driver" if number == os.getpid() else "JVM" if name == "java" else "workers", resident


def timed_steps(work: Callable[[], object]) -> dict[str, float]:
    """Seconds of each step of a landing, by the functions that make it up."""
    took: dict[str, float] = {}
    before = {}

    def timed(owner: object, name: str, label: str) -> None:
        function = before[owner, name] = getattr(owner, name)

        def run(*arguments: object, **named: object) -> object:
            begun = time.perf_counter()
            try:
                return function(*arguments, **named)
            finally:
                took[label] = took.get(label, 0.0) + time.perf_counter() - begun

        setattr(owner, name, run)

    timed(ingest, "splits", "find splits")
    timed(OnWorkers, "__init__", "parse")
    timed(OnWorkers, "duplicates", "find duplicates")
    timed(OnWorkers, "append", "write")
    try:
        work()
    finally:
        for (owner, name), function in before.items():
            setattr(owner, name, function)
    return took


if __name__ == "__main__":
    main()
