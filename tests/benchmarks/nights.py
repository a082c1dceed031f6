"""What a night costs when many went before. Run by hand.

    .venv/bin/python tests/benchmarks/nights.py [--topics 200] [--nights 10] [--same | --touched 0.01]
    .venv/bin/python tests/benchmarks/nights.py --topics 400 --partitions 51 --touched 0.01 --nights 4      #
    some minutes
    .venv/bin/python tests/benchmarks/nights.py --topics 2000 --partitions 51 --touched 0.01 --nights 30    #
    100,000 partitions
    .venv/bin/python tests/benchmarks/nights.py --same --recording FOLDER --topic orders --begin 10:13:00
    --end 10:13:46

One topic of a recording is multiplied, by default one with three partitions. By default every night brings
the whole life of other topics (all lines of topics / nights copies); with --same every night brings the same
events of all topics and brokers once more, a broker that stops and comes back, with the epochs going on; with
--touched the first night creates all topics, and to each of the others the same happens to that share of
them, one after another. Where the recording is of KRaft, so is the cluster: every copy has an id of its own.
What counts are the last columns: the clock, what the processors work, and what they work for the timelines,
against the second night; the first makes the tables.
"""

import argparse
import contextlib
import io
import os
import re
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from datetime import date, timedelta
from multiprocessing import get_context
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT))

from jobs import errors, nightly_audit  # noqa: E402
from jobs.nightly import updates  # noqa: E402

DAY = date(2026, 11, 20)
EPOCH = re.compile(
    r"((?:leader|partition|broker)Epoch=|LeaderEpoch:|ZkVersion:|(?:leader|partition|broker) epoch |version updated to |epoch was )(\d+)"
)
BROKER_EPOCH = re.compile(r"broker ?Epoch", re.IGNORECASE)
PARTITION = re.compile(r"((?:^|[\[( ,'\"/=])TOPIC-|[Pp]artition=|partitionIndex=)(\d+)(?![\w.])")
TOPIC_ID = re.compile(r" with topic (?:ID|id) ([\w\-]{22})")
# so many epochs a partition goes through meanwhile, and a broker at most
EPOCHS_A_NIGHT = 3
BROKER_EPOCHS_A_NIGHT = 1000
# the smallest measurement, which the suite runs
SMALLEST = ("--topics", "4", "--nights", "2", "--engine", "local")


@dataclass(frozen=True)
class Recording:
    """What is multiplied.

    begin, end: between these moments a broker is stopped, and is a leader again. partitions: of a copy, some
    more where it is no multiple of those that the topic has; None: as many as it has.
    """

    folder: Path
    topic: str
    begin: str
    end: str
    partitions: int | None = None

    def lines_of(self, log: Path) -> tuple[list[str], list[str]]:
        """(lines about the cluster, lines about the topic)"""
        cluster: list[str] = []
        topic: list[str] = []
        for line in log.read_text().splitlines(keepends=True):
            if line.startswith("[20"):
                (topic if self.topic in line else cluster).append(line)
        return cluster, topic

    def write_night(
        self,
        folder: Path,
        night: int,
        topics: range,
        *,
        hours: tuple[str, str] | None = None,
        again: int = 0,
        brokers: bool = False,
    ) -> None:
        """The logs of one night, and no others.

        hours: lines about topics of these alone. again: how often these have told about the same topics
        already. brokers: lines about the cluster too; the first night has all of them.
        """
        shutil.rmtree(folder, ignore_errors=True)
        day = (DAY + timedelta(days=night)).isoformat()

        def later(found: re.Match[str]) -> str:
            more = BROKER_EPOCHS_A_NIGHT if BROKER_EPOCH.match(found.group(1)) else EPOCHS_A_NIGHT
            return f"{found.group(1)}{int(found.group(2)) + again * more}"

        def moved(lines: list[str], hours: tuple[str, str] | None) -> Iterator[str]:
            for line in lines:
                if not hours or hours[0] <= line[12:20] < hours[1]:
                    yield (EPOCH.sub(later, line) if again else line).replace(DAY.isoformat(), day, 1)

        logs = {log: self.lines_of(log) for log in sorted(self.folder.glob("*/*.log"))}
        about = [line for _, topic in logs.values() for line in topic]
        ids = {found for line in about for found in TOPIC_ID.findall(line)}
        partition = re.compile(PARTITION.pattern.replace("TOPIC", re.escape(self.topic)))
        own = 1 + max(int(found.group(2)) for line in about for found in partition.finditer(line))
        copies = -(-self.partitions // own) if self.partitions else 1
        for log, (cluster, topic) in logs.items():
            target = folder / log.parent.name / log.name
            target.parent.mkdir(parents=True, exist_ok=True)
            with target.open("w") as out:
                if night == 0 or brokers:
                    out.writelines(moved(cluster, hours if night else None))
                for line in moved(topic, hours):
                    several = [
                        partition.sub(
                            lambda found, n=n: f"{found.group(1)}{int(found.group(2)) + n * own}", line
                        )
                        for n in range(copies)
                    ]
                    for number in topics:
                        # what names no partition is said once
                        for text in dict.fromkeys(several):
                            copy = text.replace(self.topic, f"topic{number:05d}")
                            for found in ids:
                                copy = copy.replace(found, f"T{number:021d}")
                            out.write(copy)


@dataclass(frozen=True)
class Night:
    """What a night took: seconds of the clock and of processors, and of them the timelines'.

    MB that the JVM had at most.
    """

    clock: float
    timelines: float
    worked: float
    worked_at_timelines: float
    memory: int


def jvm() -> int:
    """The process of the JVM."""
    from pyspark import SparkContext

    return SparkContext._gateway.jvm.java.lang.ProcessHandle.current().pid()  # type: ignore[union-attr]


@dataclass(frozen=True)
class Process:
    """What the system tells about a process.

    seconds: of processors, with those of children that have ended; memory: MB it has now.
    """

    number: int
    is_python: bool
    seconds: float
    memory: int


def processes() -> list[Process]:
    """This one and what it has started: the JVM and its Python workers."""
    found: dict[int, tuple[int, Process]] = {}
    for entry in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            name, _, rest = entry.read_text().rpartition(")")
            values = rest.split()
            spent = sum(map(int, values[11:15])) / os.sysconf("SC_CLK_TCK")
            number, size = int(entry.parent.name), int(values[21]) * os.sysconf("SC_PAGE_SIZE") >> 20
            found[number] = int(values[1]), Process(number, "(java" not in name, spent, size)
    mine = {os.getpid()}
    while more := {number for number, (parent, _) in found.items() if parent in mine} - mine:
        mine |= more
    return [found[number][1] for number in mine]


def processor() -> float:
    """Seconds that processors have worked for this: what other programs do to the clock does not show in
    them.
    """
    return sum(process.seconds for process in processes())


def audit(root: Path, engine: str) -> Night:
    """Audits what was written."""
    spent: dict[str, float] = {"clock": 0.0, "worked": 0.0}
    update = updates.update

    def timed(*args: Any) -> Any:
        begun, worked = time.perf_counter(), processor()
        made = update(*args)
        spent.update(clock=time.perf_counter() - begun, worked=processor() - worked)
        return made

    updates.update = timed
    begun, worked = time.perf_counter(), processor()
    with contextlib.redirect_stdout(io.StringIO()):
        code = nightly_audit.main(
            [
                "audit",
                str(root / "logs"),
                "--tables",
                str(root / "tables"),
                "--cluster",
                "c",
                "--engine",
                engine,
            ]
        )
    assert code in (errors.CLEAN, errors.FINDINGS)
    # of the process that computes: the JVM, or this one
    status = Path(f"/proc/{os.getpid() if engine == 'local' else jvm()}/status").read_text()
    memory = int(re.findall(r"VmHWM:\s+(\d+)", status)[0]) // 1024
    return Night(time.perf_counter() - begun, spent["clock"], processor() - worked, spent["worked"], memory)


def main() -> None:
    """Prints a line a night."""
    given = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    given.add_argument("--topics", type=int, default=200)
    given.add_argument("--partitions", type=int, help="of each topic (default: as many as the recording's)")
    given.add_argument("--nights", type=int, default=10)
    given.add_argument("--engine", choices=["local", "spark"], default="spark")
    kind = given.add_mutually_exclusive_group()
    kind.add_argument("--same", action="store_true", help="every night is about all topics")
    kind.add_argument("--touched", type=float, help="share of the topics that a night is about")
    given.add_argument(
        "--recording", type=Path, default=ROOT / "sample_logs" / "3.9.1-default" / "controlled-shutdown"
    )
    given.add_argument("--topic", default="invoices", help="the one that is multiplied")
    given.add_argument("--begin", default="10:43:44", help="when a broker is stopped")
    given.add_argument("--end", default="10:44:52", help="when it leads again")
    options = given.parse_args()
    recording = Recording(options.recording, options.topic, options.begin, options.end, options.partitions)
    stop = (recording.begin, recording.end)
    columns = (
        "night",
        "records",
        "audit s",
        "timelines s",
        "records/s",
        "JVM MB",
        "audit cpu",
        "timelines cpu",
        *["ratio"] * 3,
    )
    print(" ".join(f"{name:>{max(len(name), 7)}}" for name in columns))
    second: Night | None = None
    # a process a night, as a scheduler starts it
    with (
        tempfile.TemporaryDirectory(prefix="nights-") as folder,
        ProcessPoolExecutor(1, mp_context=get_context("spawn"), max_tasks_per_child=1) as processes,
    ):
        root = Path(folder)
        for number in range(options.nights):
            every = range(options.topics)
            if options.same:
                hours = stop if number else ("", recording.end)
                recording.write_night(root / "logs", number, every, hours=hours, again=number, brokers=True)
            elif options.touched is None:
                a_night = options.topics // options.nights
                recording.write_night(root / "logs", number, every[number * a_night :][:a_night])
            elif number == 0:
                recording.write_night(root / "logs", number, every, hours=("", recording.begin))
            else:
                a_night = int(options.topics * options.touched)
                before = (number - 1) * a_night
                some = every[before % options.topics :][:a_night]
                recording.write_night(root / "logs", number, some, hours=stop, again=before // options.topics)
            records = sum(log.read_text().count("\n") for log in (root / "logs").rglob("*.log"))
            night = processes.submit(audit, root, options.engine).result()
            cells = [
                number + 1,
                records,
                f"{night.clock:.1f}",
                f"{night.timelines:.1f}",
                f"{records / night.timelines:.0f}",
            ]
            cells += [night.memory, f"{night.worked:.1f}", f"{night.worked_at_timelines:.1f}"]
            second = night if number == 1 else second
            if second:
                ratios = (night.clock / second.clock, night.worked / second.worked,
                          night.worked_at_timelines / second.worked_at_timelines)  # fmt: skip
                cells += [f"{ratio:.2f}" for ratio in ratios]
            else:
                cells += [""] * 3
            print(
                " ".join(f"{cell:>{max(len(name), 7)}}" for name, cell in zip(columns, cells, strict=True)),
                flush=True,
            )


if __name__ == "__main__":
    main()
