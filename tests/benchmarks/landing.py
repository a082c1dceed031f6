"""How fast logs land as events, beside three other ways with the same bytes in the same run. Run by hand.

    .venv/bin/python tests/benchmarks/landing.py [--megabytes 300] [--runs 5] [--recording sample_logs/...]

copy     text -> Delta, nothing parsed: the floor
events   headers, all rules, typed columns, identity, written to Delta: what a night does
python   the reference matcher on Python's `re`, one process, nothing written (on PYTHON_MB of the bytes)
duckdb   DuckDB with the same header, dispatch and patterns, into a table in memory (where the package duckdb is installed)

A recording's state-change.log lines are repeated with shifted dates until the size is reached, so that every record is another
one. Ratios count; the machine's noise shows in the spread.
"""

import argparse
import importlib.util
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from datetime import date, timedelta
from pathlib import Path

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT))

import schemas  # noqa: E402
from jobs import events, ingest, session  # noqa: E402
from jobs.config import Cluster  # noqa: E402
from jobs.store import Store  # noqa: E402
from parsers.compile import HEADER_SLOTS, rule_slots  # noqa: E402
from parsers.match import Matcher  # noqa: E402
from parsers.patterns import SEPARATOR, capture_numbers, to_java  # noqa: E402
from parsers.rules import RuleSet, built_in  # noqa: E402

PYTHON_MB = 10


def multiply(recording: Path, folder: Path, megabytes: int) -> int:
    """Writes broker-<n>/state-change.log.<k> files of some 50 MB; returns the bytes."""
    sources = {log.parent.name: log.read_text() for log in sorted(recording.glob("broker-*/state-change.log"))}
    written, day, part = 0, date(2020, 1, 1), 0
    while written < megabytes * 10**6:
        part += 1
        for broker, text in sources.items():
            target = folder / broker / f"state-change.log.{part}"
            target.parent.mkdir(parents=True, exist_ok=True)
            with target.open("w") as log:
                size = 0
                shifted = day
                while size < 50 * 10**6 / len(sources):
                    for first in {line[1:11] for line in text.splitlines() if line.startswith("[20")}:
                        piece = text.replace(f"[{first}", f"[{shifted.isoformat()}")
                    size += log.write(piece)
                    shifted += timedelta(days=1)
            written += size
        day = shifted
    return written


def with_python(files: list[ingest.LogFile]) -> float:
    """MB a second of the reference matcher."""
    matcher, read, begun = Matcher(), 0, time.perf_counter()
    for file in files:
        with file.path.open() as log:
            for line in log:
                read += len(line)
                if record := matcher.record(line):
                    matcher.events(record)
                if read > PYTHON_MB * 10**6:
                    return read / 1e6 / (time.perf_counter() - begun)
    return read / 1e6 / (time.perf_counter() - begun)


def duckdb_sql(files: list[ingest.LogFile], ruleset: RuleSet) -> str:
    """The same work as DuckDB's SQL, of the same definitions: header of the first layout, dispatch, one replace, typed columns."""

    def text(value: str) -> str:
        return "'" + value.replace("'", "''") + "'"

    def laid_out(pattern: str, slots: tuple[str, ...], given: dict[str, str]) -> str:
        numbers = capture_numbers(pattern)
        cells = [given.get(slot, f"\\{numbers[slot]}" if numbers.get(slot, 99) < 10 else "") for slot in slots]
        return SEPARATOR.join(cells)

    layout, slots = ruleset.layouts[0], rule_slots(ruleset)
    numbers = capture_numbers(layout.line)
    stamp = f"\\{numbers['date']} \\{numbers['clock']}\\{numbers['fraction']}"
    header = laid_out(layout.line, HEADER_SLOTS, {"layout": layout.name, "ts_text": stamp})
    cases = []
    for rule in ruleset.rules:
        claims = " OR ".join(f"starts_with(statement, {text(start)})" for start in rule.starts)
        if rule.contains is not None:
            claims = f"({claims}) AND contains(statement, {text(rule.contains)})"
        layout_of = laid_out(rule.pattern, slots, {"event_type": rule.name, "says": rule.says})
        cases.append(
            f"WHEN {claims} THEN regexp_replace(statement, {text(f'(?s)^(?:{to_java(rule.pattern)})$')}, {text(layout_of)})"
        )
    columns = []
    for name, word in schemas.vocabulary().items():
        if name not in slots:
            continue
        cell = f"r[{slots.index(name) + 1}]"
        kind = {"int": "INTEGER", "bigint": "BIGINT", "boolean": "BOOLEAN"}.get(word["type"])
        if word["type"] == "int_list":
            columns.append(f"CASE WHEN {cell} <> '' THEN regexp_extract_all({cell}, '-?[0-9]+')::INTEGER[] END AS {name}")
        else:
            columns.append(f"TRY_CAST(nullif({cell}, '') AS {kind}) AS {name}" if kind else f"nullif({cell}, '') AS {name}")
    paths = ", ".join(text(str(file.path)) for file in files)
    statement = f"h[{HEADER_SLOTS.index('statement') + 1}]"
    return f"""CREATE OR REPLACE TEMP TABLE landed AS
      WITH lines AS (SELECT * FROM read_csv([{paths}], columns = {{'line': 'VARCHAR'}}, delim = '{chr(2)}', quote = '', escape = '',
        header = false, auto_detect = false, max_line_size = 20000000)),
      headed AS (SELECT line, sha256(line) AS record_id, string_split(regexp_replace(line, {text(f"(?s)^(?:{to_java(layout.line)})$")},
        {text(header)}), '{SEPARATOR}') AS h FROM lines),
      said AS (SELECT *, {statement} AS statement FROM headed),
      matched AS (SELECT *, string_split(CASE {" ".join(cases)} END, '{SEPARATOR}') AS r FROM said)
      SELECT record_id, line, TRY_CAST(h[2] AS TIMESTAMP) AS ts, h[3] AS level, h[4] AS logger, r[1] AS event_type, r[2] AS says,
        {", ".join(columns)} FROM matched"""


def with_duckdb(files: list[ingest.LogFile], ruleset: RuleSet) -> float:
    """MB a second of DuckDB, on as many threads as Spark has."""
    import duckdb

    connection = duckdb.connect(config={"threads": 2})
    begun = time.perf_counter()
    connection.execute(duckdb_sql(files, ruleset))
    took = time.perf_counter() - begun
    (known,) = connection.execute("SELECT count(*) FROM landed WHERE event_type IS NOT NULL AND says IS NOT NULL").fetchone() or (
        0,
    )
    assert known > 0
    return sum(file.size for file in files) / 1e6 / took


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--megabytes", type=int, default=300)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--recording", type=Path, default=ROOT / "sample_logs" / "3.3.2-trace" / "delete-topic-dead-broker")
    options = parser.parse_args()
    work = Path(tempfile.mkdtemp(prefix="landing-"))
    try:
        size = multiply(options.recording, work / "logs", options.megabytes)
        spark = session.start(10**9)
        files = ingest.find(Cluster("benchmark", (str(work / "logs"),)))
        print(f"{size / 1e6:.0f} MB in {len(files)} files")
        ruleset, beginnings = built_in(), [frozenset[str]()]

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
            with ingest.staged(files, store.root / "_staging") as source:
                parts = ingest.read(spark, source, ruleset)
                events.land(store, parts, source, ruleset)
            took = time.perf_counter() - begun
            beginnings[0] = parts[0].survey.beginnings or frozenset()
            shutil.rmtree(store.root)
            return size / 1e6 / took

        ways: dict[str, Callable[[int], float]] = {"copy": copy, "events": land, "python": lambda _: with_python(files)}
        if importlib.util.find_spec("duckdb"):  # with the rules that these lines need, as Spark has them
            ways["duckdb"] = lambda _: with_duckdb(files, ruleset.that_may_claim(beginnings[0]))
        rates: dict[str, list[float]] = {name: [] for name in ways}
        for run in range(options.runs + 1):
            measured = {name: way(run) for name, way in ways.items()}
            print(
                "warm-up:" if run == 0 else f"run {run}:",
                ", ".join(f"{n} {v:.1f}" for n, v in measured.items()),
                "MB/s",
                flush=True,
            )
            for name, value in measured.items() if run else ():
                rates[name].append(value)
        for name, values in rates.items():
            ratio = statistics.median(e / v for e, v in zip(rates["events"], values, strict=True))
            print(
                f"{name:8} median {statistics.median(values):6.1f} MB/s ({min(values):.1f} .. {max(values):.1f}); events / {name}: {ratio:.2f}"
            )
    finally:
        shutil.rmtree(work, ignore_errors=True)


if __name__ == "__main__":
    main()
