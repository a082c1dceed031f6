"""SIGINT and SIGTERM at any moment: one line, the exit code of the signal, no process left, and the next run
continues.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
import uuid
from pathlib import Path

import pytest
from processes import MARK, left

ROOT = Path(__file__).parents[2]
SAMPLE = ROOT / "sample_logs" / "3.3.2-trace" / "delete-topic-dead-broker"
CODES = {signal.SIGINT: 130, signal.SIGTERM: 143}
# before anything of ours is imported; `{number}` is the signal
AT_IMPORT = "sys.addaudithook(lambda event, given: event == 'import' and given[0] == '{module}' and os.kill(os.getpid(), {number}))"
AT_EVENT = """
def hook(event, given):
    if event == '{event}' and {when}:
        os.kill(os.getpid(), {number})
sys.addaudithook(hook)
"""
AT_CALL = """
import threading
from {module} import {owner} as owner
before = owner.{name}
def instead(*given, **named):
    threading.Timer({seconds}, os.kill, (os.getpid(), {number})).start()
    return before(*given, **named)
owner.{name} = instead
"""


def run(code: str, *arguments: str, timeout: float = 120) -> tuple[int, str, dict[int, str]]:
    """(exit code, standard error, processes that are left) of the console script after some code."""
    mark = uuid.uuid4().hex
    script = f"import os, signal, sys, time\n{code}\nfrom jobs.nightly_audit import main\nsys.exit(main())"
    done = subprocess.run(
        [sys.executable, "-c", script, *arguments],
        env=os.environ | {MARK: mark},
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
    )
    return done.returncode, done.stderr, left(mark)


def is_interrupted(code: str, number: signal.Signals, *arguments: str) -> None:
    """Runs it, and looks at everything that is promised."""
    returned, said, processes = run(code, *arguments)
    assert returned == CODES[number], said
    assert processes == {}
    *before, last = said.splitlines()
    assert (
        last
        == f"kafka-audit: interrupted by {number.name}. What is written is kept; run the same command again to continue"
    )
    # of each stage that was over a line, as in any run
    assert all(": " in line and " s" in line for line in before), said


# both signals have one handler: each is sent in the first import and in the last one
@pytest.mark.parametrize(
    ("module", "numbers"),
    [
        ("argparse", CODES),
        ("jobs.commands.command_line", [signal.SIGINT]),
        ("tomllib", [signal.SIGTERM]),
        ("jobs.config", [signal.SIGINT]),
        ("pyarrow", [signal.SIGTERM]),
        ("pyspark", [signal.SIGINT]),
        ("jobs.engine.local_store", [signal.SIGTERM]),
        ("deltalake", CODES),
    ],
)
def test_while_modules_are_imported(tmp_path: Path, module: str, numbers: list[signal.Signals]) -> None:
    engine = "spark" if module == "pyspark" else "local"
    for number in numbers:
        code = AT_IMPORT.format(module=module, number=int(number))
        is_interrupted(
            code, number, "audit", str(SAMPLE), "--tables", str(tmp_path / "tables"), "--engine", engine
        )


@pytest.mark.spark
@pytest.mark.parametrize(
    ("number", "code"),
    [
        pytest.param(
            signal.SIGINT,
            AT_EVENT.format(event="subprocess.Popen", when="'spark-submit' in str(given)", number=2),
            id="before the JVM starts",
        ),
        pytest.param(
            signal.SIGTERM,
            AT_EVENT.format(event="socket.connect", when="True", number=15),
            id="once the JVM listens",
        ),
        pytest.param(
            signal.SIGINT,
            AT_CALL.format(
                module="pyspark", owner="SparkContext", name="_initialize_context", number=2, seconds=0
            ),
            id="while Spark's context is made",
        ),
        pytest.param(
            signal.SIGTERM,
            AT_CALL.format(module="jobs.engine.store", owner="Store", name="append", number=15, seconds=0),
            id="in a thread that writes",
        ),
        pytest.param(
            signal.SIGINT,
            "from jobs.engine import in_process\nfrom jobs.landing import new_records\nfrom jobs.files import ingest\nin_process.SMALL = 0\n"
            + AT_CALL.format(
                module="pyspark.sql.classic.dataframe", owner="DataFrame", name="collect", number=2, seconds=3
            ),
            id="while Spark's workers parse",
        ),
    ],
)
def test_while_spark_runs(tmp_path: Path, number: signal.Signals, code: str) -> None:
    is_interrupted(code, number, "audit", str(SAMPLE), "--tables", str(tmp_path / "tables"))


IN_ORDER = """
from contextlib import contextmanager
from jobs import interrupts
from jobs.commands import command_line
@contextmanager
def lease():
    try:
        yield
    finally:
        os.kill(os.getpid(), signal.SIGTERM)
        os.kill(os.getpid(), signal.SIGINT)
        print("released", flush=True)
def run(arguments):
    with lease():
        os.kill(os.getpid(), signal.SIGINT)
command_line.run = run
"""


def test_a_second_signal_does_not_disturb_the_release_of_resources() -> None:
    returned, said, _ = run(IN_ORDER + "sys.stdout = sys.stderr")
    assert returned == 130
    assert said.splitlines()[0] == "released"
    assert len(said.splitlines()) == 2


SWALLOWED = """
from jobs import interrupts, progress
from jobs.commands import command_line
interrupts.PATIENCE, interrupts.LAST = 0.2, 1
def run(arguments):
    try:
        os.kill(os.getpid(), signal.SIGTERM)
    except BaseException:
        pass
    {then}
    return 0
command_line.run = run
"""


@pytest.mark.parametrize(
    "then", ["with progress.stage('next'): print('not reached')", "pass", "threading.Event().wait(60)"]
)
def test_a_signal_that_a_library_swallows_ends_the_run_nevertheless(then: str) -> None:
    begun = time.perf_counter()
    returned, said, _ = run("import threading\n" + SWALLOWED.format(then=then))
    assert returned == 143
    assert len(said.splitlines()) == 1
    assert time.perf_counter() - begun < 20


def test_threads_that_wait_do_not_keep_the_process() -> None:
    waits = "from concurrent.futures import ThreadPoolExecutor\npool = ThreadPoolExecutor(1)\npool.submit(time.sleep, 60)\n"
    begun = time.perf_counter()
    returned, said, _ = run(waits + SWALLOWED.format(then="pass"))
    assert (returned, len(said.splitlines())) == (143, 1)
    assert time.perf_counter() - begun < 20


def test_the_next_run_is_not_disturbed_in_the_same_process(capsys: pytest.CaptureFixture[str]) -> None:
    """Handlers are those that were there before, whatever a command did."""
    from jobs.nightly_audit import main

    before = [signal.getsignal(number) for number in CODES]
    assert main(["explain", "nothing"]) in {0, 1}
    assert [signal.getsignal(number) for number in CODES] == before
    assert signal.set_wakeup_fd(-1) == -1


AT_THE_END = """
import atexit, weakref
from jobs.commands import command_line
def run(arguments):
    {end}
    return 1
command_line.run = run
"""


@pytest.mark.parametrize(
    ("end", "code"),
    [
        pytest.param("pass", 1, id="undisturbed"),
        pytest.param(
            "atexit.register(os.kill, os.getpid(), signal.SIGTERM)", 143, id="before others have cleaned up"
        ),
        pytest.param(
            "weakref.finalize(run, os.kill, os.getpid(), signal.SIGINT)",
            130,
            id="while temporary files are removed",
        ),
    ],
)
def test_after_the_verdict(end: str, code: int) -> None:
    """Wait until the process has ended."""
    returned, said, _ = run(AT_THE_END.format(end=end))
    assert (returned, "interrupted by" in said) == (code, code > 1)
