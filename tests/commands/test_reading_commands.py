"""Commands that read tables: a pager on a real terminal, and tables in an object store."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import re
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
# the pager writes it after each text
END = "-- end --"
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


# several commands in one process: starting Python costs more than a command
COMMANDS = """
import json, sys
from jobs.nightly_audit import main
for arguments in json.loads(sys.argv[1]):
    print("exit code", main(arguments), flush=True)
"""


def on_a_terminal(
    environment: dict[str, str], *commands: list[str], rows: int = ROWS
) -> list[tuple[int, str]]:
    """Run commands on a pseudo terminal; return the exit code of each, and what the terminal received."""
    terminal, end = pty.openpty()
    fcntl.ioctl(end, termios.TIOCSWINSZ, struct.pack("HHHH", rows, COLUMNS, 0, 0))
    kept = {
        name: value
        for name, value in os.environ.items()
        if name not in ("NO_COLOR", "FORCE_COLOR", "COLUMNS", "LINES")
    }
    process = subprocess.Popen(
        [sys.executable, "-c", COMMANDS, json.dumps(commands)],
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
    assert process.wait(timeout=60) == 0
    *answers, rest = re.split(r"exit code (\d+)\r\n", received.decode())
    assert (len(answers), rest) == (2 * len(commands), "")
    return [(int(code), said) for said, code in zip(answers[::2], answers[1::2], strict=True)]


def pager_in(folder: Path) -> tuple[Path, Path]:
    """Return a pager that keeps what it is given, and the file that it adds it to."""
    script, kept = folder / "pager", folder / "kept"
    script.write_text(f'#!/bin/sh\ncat >> "{kept}"\necho "{END}" >> "{kept}"\necho "paged by $1"\n')
    script.chmod(0o755)
    return script, kept


def test_a_long_answer_is_shown_in_the_pager(audited: Path, tmp_path: Path) -> None:
    script, kept = pager_in(tmp_path)
    plan = tmp_path / "plan.json"
    plan.write_text(json.dumps(PLAN))
    commands = [*LONG.values(), ["assignments"], ["durability"], ["reassignment", str(plan)]]
    given = [[*command, "--tables", str(audited), "--color", "never"] for command in commands]
    pager = {"PAGER": f"{script} 'the test'"}
    answers = on_a_terminal(pager, *given, *[[*one, "--no-pager"] for one in given])
    paged, plain = answers[: len(given)], answers[len(given) :]
    assert paged == [(errors.CLEAN, "paged by the test\r\n")] * len(given)
    *texts, rest = kept.read_text().split(f"{END}\n")
    assert rest == ""
    assert [(code, said.replace("\r\n", "\n")) for code, said in plain] == [
        (errors.CLEAN, text) for text in texts
    ]
    assert all(len(text.splitlines()) >= ROWS for text in texts)


def test_text_that_fits_the_terminal_needs_no_pager(audited: Path, tmp_path: Path) -> None:
    script, kept = pager_in(tmp_path)
    ((code, received),) = on_a_terminal(
        {"PAGER": str(script)}, ["findings", "--tables", str(audited)], rows=500
    )
    assert code == errors.CLEAN
    assert received
    assert not kept.exists()


def test_the_product_has_a_pager_of_its_own(audited: Path, tmp_path: Path) -> None:
    """KAFKA_AUDIT_PAGER is used before PAGER; an empty one means none."""
    script, kept = pager_in(tmp_path)
    arguments = ["timeline", "orders", "--tables", str(audited)]
    ((code, received),) = on_a_terminal({"KAFKA_AUDIT_PAGER": "", "PAGER": str(script)}, arguments)
    assert code == errors.CLEAN
    assert "orders" in received
    assert not kept.exists()
    # colours go to the pager, too
    ((code, _),) = on_a_terminal({"KAFKA_AUDIT_PAGER": str(script), "PAGER": "false"}, arguments)
    assert code == errors.CLEAN
    assert "\x1b[" in kept.read_text()


def test_leaving_the_pager_early_is_no_error(audited: Path, tmp_path: Path) -> None:
    script = tmp_path / "pager"
    script.write_text("#!/bin/sh\nexit 0\n")
    script.chmod(0o755)
    answers = on_a_terminal({"PAGER": str(script)}, [*LONG["sql"], "--tables", str(audited)])
    assert answers == [(errors.CLEAN, "")]


def test_reading_commands_read_tables_in_an_object_store(
    audited: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
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
        for name, value in place.environment.items():
            monkeypatch.setenv(name, value)
        for command in commands:
            answers = []
            for root in (str(audited), f"s3://{place.bucket}/tables", f"s3a://{place.bucket}/tables"):
                code = main([*command, "--tables", root])
                answers.append((code, capsys.readouterr().out))
            assert answers == [answers[0]] * 3
            assert answers[0][0] in (errors.CLEAN, errors.FINDINGS)
            assert json.loads(answers[0][1].splitlines()[0])
