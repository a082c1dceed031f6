"""What it costs to fold partitions: on the driver, and on workers. Run by hand.

    .venv/bin/python tests/benchmarks/folding.py                                       # where workers begin
    to be worth it
    .venv/bin/python tests/benchmarks/folding.py --partitions 100000 --topics 1        # one topic with
    100,000 partitions
    .venv/bin/python tests/benchmarks/folding.py --partitions 1000000 --topics 10000 --first 12   # a million
    partitions
    .venv/bin/python tests/benchmarks/folding.py --partitions 1000 --hot 0.9           # one of them has 90 %
    of all events

The events of one partition of a recording are multiplied. Seconds of the clock and of processors, of them
Python's; the memory is the most that a Python worker had.
"""

import argparse
import os
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "tests")]

from benchmarks.nights import processes  # noqa: E402
from logs import keeps, recorded  # noqa: E402

RECORDING = ROOT / "sample_logs" / "3.9.1-default" / "controlled-shutdown"
TOPIC = "invoices"
# microseconds between two rounds of the same events
ROUND = 3_600_000_000
EPOCHS_A_ROUND = 10
# the smallest measurement, which the suite runs
SMALLEST = ("--partitions", "2", "--topics", "1", "--first", "10")


class Watch:
    """Processor seconds and memory of this process and what it started."""

    def __init__(self) -> None:
        self.worker_memory = 0
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._look, daemon=True)

    def _look(self) -> None:
        while not self._stop.wait(0.2):
            sizes = [one.memory for one in processes() if one.is_python and one.number != os.getpid()]
            self.worker_memory = max([self.worker_memory, *sizes])

    def __enter__(self) -> "Watch":
        self.clock, self.python, self.jvm = time.perf_counter(), *self._spent()
        self._thread.start()
        return self

    @staticmethod
    def _spent() -> tuple[float, float]:
        found = processes()
        return sum(one.seconds for one in found if one.is_python), sum(
            one.seconds for one in found if not one.is_python
        )

    def __exit__(self, *_: Any) -> None:
        self._stop.set()
        self._thread.join()
        python, jvm = self._spent()
        self.clock, self.python, self.jvm = (
            time.perf_counter() - self.clock,
            python - self.python,
            jvm - self.jvm,
        )


def multiplied(spark: Any, partitions: int, options: argparse.Namespace) -> Any:
    """Events of so many partitions."""
    import pyarrow as pa
    from pyspark.sql import functions as F

    from jobs.batches import folding
    from jobs.batches.types import table_schema
    from jobs.timelines import EVENT_COLUMNS

    own = [e for e in recorded(RECORDING) if e.topic == TOPIC and e.partition == 0][: options.first]
    kinds = [table_schema("events").field(name).type for name in EVENT_COLUMNS]
    arrays = [folding.array(values, kind) for values, kind in zip(zip(*own, strict=True), kinds, strict=True)]
    one = F.broadcast(spark.createDataFrame(pa.table(arrays, names=list(EVENT_COLUMNS))))
    numbers = spark.range(partitions).select(F.col("id").alias("n"), F.lit(0).alias("round"))
    numbers = numbers.select("n", F.explode(F.sequence(F.lit(0), F.lit(options.rounds - 1))).alias("round"))
    if options.hot:
        more = int(partitions * options.rounds * options.hot / (1 - options.hot))
        numbers = numbers.unionByName(
            spark.range(more).select(
                F.lit(0).cast("bigint").alias("n"), (F.col("id") + options.rounds).cast("int").alias("round")
            )
        )
    grown = {
        name: F.col(name) + F.col("round") * EPOCHS_A_ROUND for name in ("leader_epoch", "partition_epoch")
    }
    later = F.timestamp_micros(F.unix_micros("ts") + F.col("round") * F.lit(ROUND))
    changed = grown | {
        "topic": F.format_string("topic%06d", F.col("n") % options.topics),
        "partition": (F.col("n") / options.topics).cast("int"),
        "ts": later,
        "record_id": F.concat_ws("-", "record_id", "n", "round"),
        "record_no": F.col("record_no") + F.col("round") * 100_000,
    }
    return numbers.join(one).select(
        F.lit("c").alias("cluster"), *[changed.get(name, F.col(name)).alias(name) for name in EVENT_COLUMNS]
    )


def main() -> None:
    """Prints a line a measurement."""
    given = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    given.add_argument("--partitions", type=int, help="(default: some, from few to many)")
    given.add_argument("--topics", type=int, default=100)
    given.add_argument("--rounds", type=int, default=1, help="how often each partition goes through the same")
    given.add_argument("--hot", type=float, default=0.0, help="share of all events that one partition has")
    given.add_argument("--first", type=int, help="so many events a round (default: all)")
    options = given.parse_args()

    from jobs.batches import folding
    from jobs.engine import session
    from jobs.engine.frames import IN_PROCESS
    from jobs.engine.rows import is_empty, is_true, where
    from jobs.engine.store import Store
    from jobs.nightly import updates
    from jobs.timelines import ClusterEvidence, ClusterFacts

    spark = session.start()
    facts = {"c": ClusterFacts.of(ClusterEvidence.of(recorded(RECORDING)), keeps())}
    print(
        f"{'events':>10} {'where':>8} {'clock s':>8} {'cpu s':>8} {'python s':>8} {'µs/event':>8} {'worker MB':>9} {'rows':>9}"
    )
    sizes = [options.partitions] if options.partitions else [10, 30, 100, 300, 1000, 3000]
    with tempfile.TemporaryDirectory(prefix="folding-") as folder:
        store = Store(spark, Path(folder) / "tables")
        for number, partitions in enumerate(sizes):
            path = f"{folder}/{number}"
            multiplied(spark, partitions, options).write.parquet(path)
            events = spark.read.parquet(path)
            count = events.count()
            for is_small in (True, False) if not options.partitions else (False,):
                with Watch() as spent:
                    keyed = updates._keyed(events, facts)
                    os.environ[IN_PROCESS] = str(count if is_small else 0)
                    rows = Store(spark, store.root).folded(
                        keyed, folding.INPUT.empty_table(), facts, folding.EVENTS_AT_ONCE
                    )
                    made = rows.count()
                worked = spent.python + spent.jvm
                cells = [
                    "driver" if is_small else "workers",
                    f"{spent.clock:.2f}",
                    f"{worked:.2f}",
                    f"{spent.python:.2f}",
                    f"{worked / count * 1e6:.0f}",
                ]
                print(
                    f"{count:>10,} "
                    + " ".join(f"{c:>8}" for c in cells)
                    + f" {spent.worker_memory:>9} {made:>9,}",
                    flush=True,
                )
                assert is_empty(where(rows, is_true("is_stale")))


if __name__ == "__main__":
    main()
