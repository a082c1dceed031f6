"""Commands that read tables: a pager on a real terminal, and tables in an object store."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import struct
import subprocess
import sys
import termios
from pathlib import Path

import pytest
import s3

from jobs import errors
from jobs.nightly_audit import main

ROOT = Path(__file__).parents[2]
SAMPLE = ROOT / "sample_logs" / "3.3.2-default" / "reassign"
ROWS, COLUMNS = 4, 80
LONG = {
    "findings": ["findings"],
    "timeline": ["timeline", "orders"],
    "sql": ["sql", "SELECT topic, partition, step, leader FROM partition_timeline"],
}
PLAN = {"version": 1, "partitions": [{"topic": "orders", "partition": 0, "replicas": [4, 5, 6]}]}


@pytest.fixture(scope="module")
def audited(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Tables of one run of the local engine over a reassignment."""
    tables = tmp_path_factory.mktemp("audited")
    assert (
        main(["audit", str(SAMPLE), "--tables", str(tables), "--engine", "local", "--exit-zero"])
        == errors.CLEAN
    )
    return tables


def on_a_terminal(arguments: list[str], environment: dict[str, str], rows: int = ROWS) -> tuple[int, str]:
    """Run the command on a pseudo terminal; return its exit code and what the terminal received."""
    terminal, end = pty.openpty()
    fcntl.ioctl(end, termios.TIOCSWINSZ, struct.pack("HHHH", rows, COLUMNS, 0, 0))
    kept = {
        name: value
        for name, value in os.environ.items()
        if name not in ("NO_COLOR", "FORCE_COLOR", "COLUMNS", "LINES")
    }
    process = subprocess.Popen(
        [sys.executable, "-m", "jobs.nightly_audit", *arguments],
        stdin=end,
        stdout=end,
        stderr=subprocess.DEVNULL,
        cwd=ROOT,
        env={**kept, "TERM": "xterm", **environment},
    )
    os.close(end)
    received = b""
    while True:
        try:
            piece = os.read(terminal, 65536)
        except OSError:  # Linux says so when the other end is closed
            break
        if not piece:
            break
        received += piece
    os.close(terminal)
    return process.wait(timeout=60), received.decode()


def pager_in(folder: Path) -> tuple[Path, Path]:
    """Return a pager that keeps what it is given, and the file that it keeps it in."""
    script, kept = folder / "pager", folder / "kept"
    script.write_text(f'#!/bin/sh\ncat > "{kept}"\necho "paged by $1"\n')
    script.chmod(0o755)
    return script, kept


@pytest.mark.parametrize("command", [*LONG, "assignments", "durability", "reassignment"])
def test_a_long_answer_is_shown_in_the_pager(command: str, audited: Path, tmp_path: Path) -> None:
    script, kept = pager_in(tmp_path)
    plan = tmp_path / "plan.json"
    plan.write_text(json.dumps(PLAN))
    given = LONG.get(command, [command, str(plan)] if command == "reassignment" else [command])
    arguments = [*given, "--tables", str(audited), "--color", "never"]
    code, received = on_a_terminal(arguments, {"PAGER": f"{script} 'the test'"})
    assert received == "paged by the test\r\n"
    assert code == errors.CLEAN
    again, plain = on_a_terminal([*arguments, "--no-pager"], {"PAGER": str(script)})
    assert (again, plain.replace("\r\n", "\n")) == (code, kept.read_text())
    assert len(kept.read_text().splitlines()) >= ROWS


def test_text_that_fits_the_terminal_needs_no_pager(audited: Path, tmp_path: Path) -> None:
    script, kept = pager_in(tmp_path)
    code, received = on_a_terminal(["findings", "--tables", str(audited)], {"PAGER": str(script)}, rows=500)
    assert code == errors.CLEAN
    assert received
    assert not kept.exists()


def test_the_product_has_a_pager_of_its_own(audited: Path, tmp_path: Path) -> None:
    """KAFKA_AUDIT_PAGER is used before PAGER; an empty one means none."""
    script, kept = pager_in(tmp_path)
    arguments = ["timeline", "orders", "--tables", str(audited)]
    code, received = on_a_terminal(arguments, {"KAFKA_AUDIT_PAGER": "", "PAGER": str(script)})
    assert code == errors.CLEAN
    assert "orders" in received
    assert not kept.exists()
    # colours go to the pager, too
    assert on_a_terminal(arguments, {"KAFKA_AUDIT_PAGER": str(script), "PAGER": "false"})[0] == errors.CLEAN
    assert "\x1b[" in kept.read_text()


def test_leaving_the_pager_early_is_no_error(audited: Path, tmp_path: Path) -> None:
    script = tmp_path / "pager"
    script.write_text("#!/bin/sh\nexit 0\n")
    script.chmod(0o755)
    assert on_a_terminal([*LONG["sql"], "--tables", str(audited)], {"PAGER": str(script)}) == (
        errors.CLEAN,
        "",
    )


def test_reading_commands_read_tables_in_an_object_store(audited: Path, tmp_path: Path) -> None:
    """The same answer as from the folder, by the scheme of the store and by Hadoop's."""
    import boto3

    plan = tmp_path / "plan.json"
    plan.write_text(json.dumps(PLAN))
    commands = (["assignments", "--json"], ["durability", "--json"], ["reassignment", str(plan), "--json"])
    with s3.endpoint() as place:
        keys = {"aws_access_key_id": "x", "aws_secret_access_key": "x"}
        client = boto3.client("s3", endpoint_url=place.url, region_name="us-east-1", **keys)
        for file in sorted(path for path in audited.rglob("*") if path.is_file()):
            client.upload_file(str(file), place.bucket, f"tables/{file.relative_to(audited)}")
        environment = {**os.environ, **place.environment}
        for command in commands:
            roots = (str(audited), f"s3://{place.bucket}/tables", f"s3a://{place.bucket}/tables")
            answers = [
                subprocess.run(
                    [sys.executable, "-m", "jobs.nightly_audit", *command, "--tables", root],
                    env=environment,
                    cwd=ROOT,
                    capture_output=True,
                    text=True,
                    check=False,
                )
                for root in roots
            ]
            assert {(one.returncode, one.stdout) for one in answers} == {
                (answers[0].returncode, answers[0].stdout)
            }, answers
            assert answers[0].returncode in (errors.CLEAN, errors.FINDINGS), answers[0].stderr
            assert json.loads(answers[0].stdout.splitlines()[0])
