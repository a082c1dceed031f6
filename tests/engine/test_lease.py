"""One run at a time: who holds the lease on the tables, who waits for it, and when it is taken over.

On a local folder and on an S3 endpoint.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from s3 import Endpoint, endpoint

from jobs import errors
from jobs.engine import lease
from jobs.engine.lease import (
    ByDeltaRs,
    BySpark,
    Commits,
    Holder,
    Lease,
    LeaseError,
    State,
    acquire,
    commits_of,
)
from jobs.errors import UsageError
from jobs.nightly_audit import main

LOGS = Path(__file__).parents[2] / "sample_logs" / "2.8.2-default" / "delete-topic-dead-broker" / "broker-1"


@pytest.fixture(scope="module")
def s3() -> Iterator[Endpoint]:
    with endpoint() as started:
        yield started


@pytest.fixture(params=["folder", "s3"])
def root(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Where tables are: each engine-free place that a lease is held in."""
    if request.param == "folder":
        return str(tmp_path / "tables")
    started: Endpoint = request.getfixturevalue("s3")
    for name, value in started.environment.items():
        monkeypatch.setenv(name, value)
    return f"s3a://{started.bucket}/{tmp_path.name}"


def state_of(root: str) -> State:
    return State.of(commits_of(root).last()[1])


def leave(root: str, holder: Holder, ago: float = 0) -> None:
    """A run that took the lease and did not end in order."""
    commits = commits_of(root)
    assert commits.commit(commits.last()[0], State(holder, time.time() - ago, lease.EXPIRES).text())


def wait_until(happens: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 120
    while not happens():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def elsewhere(**others: Any) -> Holder:
    return replace(
        Holder("db7.example.org", 4711, "cafe", "2026-03-01T03:00:00+00:00", "another machine", 5), **others
    )


def test_a_second_run_names_the_first(root: str) -> None:
    with acquire(root, "first"):
        with pytest.raises(LeaseError) as raised, acquire(root, "second"):
            pass
        own = state_of(root).holder
        assert own is not None
        assert f"host {own.host}, process {os.getpid()}, run first, since 20" in str(raised.value)
        assert raised.value.exit_code == errors.USAGE
    with acquire(root, "third"):
        assert state_of(root).holder is not None
    assert state_of(root).holder is None


def test_a_second_run_waits_for_the_first(root: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lease, "LOOKS_EVERY", 0.05)
    began, order = threading.Event(), []

    def first() -> None:
        with acquire(root, "first"):
            began.set()
            time.sleep(0.5)
            order.append("first")

    thread = threading.Thread(target=first)
    thread.start()
    assert began.wait(20)
    with acquire(root, "second", wait=20):
        order.append("second")
    thread.join()
    assert order == ["first", "second"]


@pytest.mark.parametrize("end", [KeyboardInterrupt, SystemExit, RuntimeError])
def test_the_lease_is_free_however_a_run_ends(root: str, end: type[BaseException]) -> None:
    with pytest.raises(end), acquire(root, "first"):
        raise end
    assert state_of(root).holder is None


def test_a_lease_that_was_not_renewed_is_taken_over(root: str, capsys: pytest.CaptureFixture[str]) -> None:
    leave(root, elsewhere(), ago=lease.EXPIRES - 30)
    with (
        pytest.raises(
            LeaseError, match=r"host db7.example.org, process 4711, run cafe, since 2026-03-01 03:00:00 UTC"
        ),
        acquire(root, "b"),
    ):
        pass
    leave(root, elsewhere(), ago=lease.EXPIRES + 1)
    with acquire(root, "c"):
        assert "took over the lease" in capsys.readouterr().err
        holder = state_of(root).holder
        assert holder is not None
        assert holder.run_id == "c"


def test_a_process_that_was_killed_is_recognised_at_once(
    root: str, capsys: pytest.CaptureFixture[str]
) -> None:
    process = subprocess.Popen(["sleep", "60"])
    own = Holder.of_this_process("killed")
    other = replace(own, process=process.pid, began=lease._began(process.pid) or 0)
    leave(root, other)
    with pytest.raises(LeaseError), acquire(root, "second"):
        pass
    process.kill()
    process.wait()
    with acquire(root, "second"):
        assert (
            f"a run that died (host {own.host}, process {process.pid}, run killed" in capsys.readouterr().err
        )
    # another process has got its number, and one of another machine says nothing
    assert replace(own, began=own.began - 1).is_dead
    assert not replace(own, machine="another machine", process=process.pid).is_dead


def test_of_many_runs_one_takes_the_lease(root: str) -> None:
    leave(root, elsewhere(), ago=lease.EXPIRES + 1)
    got: list[str] = []
    ready = threading.Barrier(6)

    def run(name: str) -> None:
        ready.wait()
        try:
            taken = lease._acquired(commits_of(root), root, elsewhere(run_id=name), 0)
        except LeaseError:
            return
        got.append(name)
        assert taken is not None

    threads = [threading.Thread(target=run, args=(str(number),)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(got) == 1
    holder = state_of(root).holder
    assert holder is not None
    assert holder.run_id == got[0]


def test_a_run_renews_its_lease_and_stops_when_it_is_lost(root: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lease, "RENEWED_EVERY", 0.05)
    with acquire(root, "first") as mine:
        begun = state_of(root).renewed_at
        wait_until(lambda: state_of(root).renewed_at != begun)
        mine.check()
        # its machine sleeps meanwhile; a run that renews so often would be faster than any other
        with mine._turn:
            leave(root, elsewhere())
        wait_until(lambda: mine._taken_by is not None)
        with pytest.raises(LeaseError, match=r"lost its lease .*run cafe"):
            mine.check()
    # and the other one keeps it
    holder = state_of(root).holder
    assert holder is not None
    assert holder.run_id == "cafe"


def test_a_process_that_was_stopped_looks_before_it_writes(
    root: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with acquire(root, "first") as mine:
        leave(root, elsewhere())
        mine.check()  # it was renewed just now
        mine._renewed_at -= lease.EXPIRES
        with pytest.raises(LeaseError):
            mine.check()


class Unreachable:
    """A place that answers no more."""

    def last(self) -> tuple[int, str]:
        raise OSError("no route")

    def commit(self, after: int, text: str) -> bool:
        raise OSError("no route")


def test_a_place_that_is_out_of_reach_is_asked_again_until_the_lease_expires(
    capsys: pytest.CaptureFixture[str],
) -> None:
    mine = Lease(Unreachable(), elsewhere(), 3)
    mine._renew_once()
    mine.check()
    mine._renewed_at -= lease.EXPIRES + 1
    with pytest.raises(LeaseError):
        mine.check()
    mine = Lease(Unreachable(), elsewhere(), 3)
    mine.release()
    assert "could not be released" in capsys.readouterr().err


def test_what_cannot_be_read_is_a_free_lease() -> None:
    for text in (
        "",
        "{}",
        "[1]",
        '{"holder": {"host": 1}, "renewed_at": 1, "expires": 2}',
        json.dumps({"holder": None}),
    ):
        assert State.of(text).is_over
    told = State(elsewhere(), 1.5, 180)
    assert State.of(told.text()) == told


def test_a_folder_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with (
        pytest.raises(UsageError, match="give a folder that can be written"),
        acquire(str(tmp_path / "file" / "tables"), "first"),
    ):
        pass


def test_an_audit_that_finds_another_one_at_work_starts_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    tables = tmp_path / "tables"
    with acquire(str(tables), "first"):
        assert main(["audit", str(LOGS), "--tables", str(tables)]) == errors.USAGE
    said = capsys.readouterr().err
    last = said.splitlines()[-1]
    assert "Another run is writing to" in last
    assert f"process {os.getpid()}, run first, since" in last
    assert "start Spark" not in said
    assert sorted(path.name for path in tables.iterdir()) == ["_lease"]


def test_seconds_to_wait_are_a_number(capsys: pytest.CaptureFixture[str]) -> None:
    for text in ("soon", "-1", "inf", "nan"):
        with pytest.raises(SystemExit):
            main(["audit", str(LOGS), "--tables", "t", "--wait", text])
    assert "--wait" in capsys.readouterr().err


def test_on_s3_spark_keeps_no_lease(monkeypatch: pytest.MonkeyPatch) -> None:
    """Hadoop's S3A creates no object conditionally, so that two runs could both hold a lease of Spark's."""
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{closed.getsockname()[1]}"
    for name, value in Endpoint(url, "audit").environment.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(lease, "LIMITS", {"max_retries": "0", "retry_timeout": "1s", "connect_timeout": "1s"})
    monkeypatch.setattr(lease, "BySpark", pytest.fail)
    spark = SimpleNamespace(conf={})
    with pytest.raises(UsageError, match="delta-rs keeps the lease on S3, and does not reach it"):
        commits_of("s3a://audit/tables", spark)


@pytest.mark.spark
def test_spark_and_delta_rs_hold_one_lease(spark: Any, tmp_path: Path) -> None:
    path = f"{tmp_path}/{lease.TABLE}"
    ours: list[Commits] = [BySpark(spark, path), ByDeltaRs(path)]
    version = ours[0].last()[0]
    # each commits after the other
    for number in range(3):
        mine, other = ours[number % 2], ours[1 - number % 2]
        assert mine.last()[0] == other.last()[0] == version + number
        assert mine.commit(version + number, f"{number}")
        assert other.last() == (version + number + 1, f"{number}")
        # each number is given once
        assert not other.commit(version + number, "again")
        assert not mine.commit(version + number, "again")
        assert other.last() == (version + number + 1, f"{number}")
