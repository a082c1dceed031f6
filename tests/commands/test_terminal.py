"""The terminal: colour, width, encodings, hints, formats of output and of messages, names of clusters, times
in words.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
from datetime import UTC, datetime, timedelta, timezone
from importlib import metadata
from pathlib import Path
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobs import errors, progress, terminal
from jobs.analysis import text_table
from jobs.commands import command_line
from jobs.files import cluster_names, ingest
from jobs.nightly_audit import main
from jobs.reporting import output
from parsers.explanation import visible
from schemas import moments
from schemas.durations import two_units

ROOT = Path(__file__).parents[2]
SAMPLE = ROOT / "sample_logs" / "3.3.2-trace" / "delete-topic-dead-broker"


@pytest.fixture(scope="module")
def audited(tmp_path_factory):
    folder = tmp_path_factory.mktemp("terminal")
    assert (
        main(["audit", str(SAMPLE), "--tables", str(folder / "tables"), "--engine", "local", "--quiet"])
        == errors.CLEAN
    )
    return folder / "tables"


def run(*arguments, **environment):
    """The command in a process of its own."""
    whole = {"PATH": os.environ["PATH"], **environment}
    command = [sys.executable, "-m", "jobs.nightly_audit", *map(str, arguments)]
    return subprocess.run(
        command, capture_output=True, env=whole, timeout=120, check=False, cwd=Path(__file__).parents[2]
    )


@pytest.mark.parametrize(
    ("arguments", "hint"),
    [
        (["aduit"], "no command aduit; did you mean audit?"),
        (["audit", "--tabels", "x", "y"], "no option --tabels; did you mean --tables?"),
        (["findings", "--tables", "x", "--severity", "eror"], "did you mean error?"),
        ([], "required: a command, such as audit"),
    ],
)
def test_wrong_arguments_get_one_line_with_the_nearest_name(arguments, hint, capsys):
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    said = capsys.readouterr()
    assert ended.value.code == errors.USAGE
    assert said.out == ""
    (line,) = said.err.splitlines()
    assert line.startswith("error: ")
    assert hint in line


def test_colour_is_for_terminals_and_by_request(audited):
    plain = run("findings", "--tables", audited)
    assert b"\x1b" not in plain.stdout
    assert b"\x1b[" in run("findings", "--tables", audited, "--color", "always").stdout
    assert b"\x1b[" in run("findings", "--tables", audited, FORCE_COLOR="1").stdout
    assert b"\x1b" not in run("findings", "--tables", audited, NO_COLOR="1", FORCE_COLOR="1").stdout
    assert b"\x1b" not in run("findings", "--tables", audited, "--color", "never", FORCE_COLOR="1").stdout
    assert b"\x1b" not in run("findings", "--tables", audited, "--json", "--color", "always").stdout


def test_a_terminal_that_only_has_ascii_is_no_error(tmp_path):
    query = "SELECT 'caf\u00e9 \u2026 \u2192' AS text"
    done = run("sql", query, "--tables", tmp_path, PYTHONIOENCODING="ascii")
    assert b"has no tables" in done.stderr
    assert b"Traceback" not in done.stderr
    code = "from jobs import terminal; terminal.set_up(); print('\\u2026 caf\\xe9 \\u2192 \\udce9 \\u4e2d')"
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        env=os.environ | {"PYTHONIOENCODING": "ascii"},
        check=False,
        cwd=Path(__file__).parents[2],
    )
    assert done.stdout == b"... caf\\xe9 -> \\udce9 \\u4e2d\n"
    assert done.stderr == b""


def test_a_table_is_cut_to_the_terminal():
    rows = [["x" * 90, 1, "y" * 90], ["short", 22, "z"]]
    assert max(map(len, text_table(["a", "b", "c"], rows, 80))) <= 80
    assert max(map(len, text_table(["a", "b", "c"], rows))) > 180


def test_help_has_no_markup_errors(capsys, monkeypatch):
    monkeypatch.setenv("FORCE_COLOR", "1")
    with pytest.raises(SystemExit) as ended:
        main(["audit", "--help"])
    said = capsys.readouterr().out
    assert ended.value.code == errors.CLEAN
    assert "\x1b[" in said
    assert "--output-format" in said


def test_the_versions_of_the_engines_are_named_without_importing_them():
    code = (
        "import sys, runpy; sys.argv = ['kafka-audit', '--version']\n"
        "try: runpy.run_module('jobs.nightly_audit', run_name='__main__')\n"
        "finally: assert not {'pyspark', 'duckdb', 'deltalake'} & set(sys.modules), sorted(sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        env=os.environ | {"JAVA_HOME": "/nowhere"},
        check=False,
        cwd=Path(__file__).parents[2],
    )
    lines = done.stdout.splitlines()
    for name in ("deltalake", "duckdb", "pyspark", "delta-spark"):
        assert f"{name} {metadata.version(name)}" in lines
    assert f"Python {sys.version.split()[0]}" in lines
    assert lines[-1] == "Java: No Java found at JAVA_HOME=/nowhere"


@pytest.mark.parametrize(
    ("script", "cause"),
    [
        ("#!/bin/sh\necho 'openjdk version \"1.8.0_402\"' >&2\n", "is Java 8; Spark 4.1 needs Java 17 or 21"),
        (
            "#!/bin/sh\necho 'Error: could not find libjava.so' >&2\n",
            "prints no version: Error: could not find libjava.so",
        ),
        ("", "does not run: Exec format error"),
        (None, "No Java found at JAVA_HOME="),
    ],
)
def test_a_wrong_java_is_named_with_the_cause(tmp_path, monkeypatch, script, cause):
    from jobs.engine import session

    if script is not None:
        java = tmp_path / "bin" / "java"
        java.parent.mkdir()
        java.write_bytes(script.encode() or b"\x7fno program")
        java.chmod(0o755)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    assert cause in session.java_problem()


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_a_shell_gets_a_script_that_completes(shell, capsys):
    assert main(["completion", shell]) == errors.CLEAN
    said = capsys.readouterr().out
    for word in ("durability", "output-format", "kafka-audit"):
        assert word in said
    if shell == "bash":
        subprocess.run(["bash", "-n"], input=said, text=True, check=True)


def test_quiet_leaves_warnings_and_errors(audited, tmp_path):
    done = run("audit", SAMPLE, "--tables", tmp_path / "t", "--engine", "local", "--quiet")
    assert (done.returncode, done.stderr) == (errors.CLEAN, b"")
    done = run("audit", tmp_path / "nothing", "--tables", tmp_path / "t", "--engine", "local", "--quiet")
    assert done.returncode == errors.INPUT
    assert done.stderr.startswith(b"error: ")


def test_messages_as_json_and_details(audited):
    done = run(
        "audit", SAMPLE, "--tables", audited, "--engine", "local", "--log-format", "json", "-v", "--json"
    )
    messages = [json.loads(line) for line in done.stderr.splitlines()]
    assert {"info", "debug"} <= {one["level"] for one in messages}
    assert any(one.get("stage") == "read records" and one["seconds"] >= 0 for one in messages)
    assert any("state-change.log" in one["message"] for one in messages)
    assert datetime.fromisoformat(messages[0]["time"]).tzinfo is not None
    assert json.loads(done.stdout)["exit_code"] == errors.CLEAN


def test_exit_zero_hides_findings_and_nothing_else(audited, tmp_path, capsys):
    arguments = ["audit", str(SAMPLE), "--tables", str(audited), "--engine", "local", "--fail-on", "info"]
    assert main(arguments) == errors.FINDINGS
    capsys.readouterr()
    assert main([*arguments, "--exit-zero", "--json"]) == errors.CLEAN
    assert json.loads(capsys.readouterr().out)["exit_code"] == errors.CLEAN
    empty = tmp_path / "empty"
    empty.mkdir()
    assert (
        main(["audit", str(empty), "--tables", str(tmp_path / "t"), "--engine", "local", "--exit-zero"])
        == errors.INPUT
    )


def finding(**given):
    begin = datetime(2026, 11, 20, 10, 0, tzinfo=UTC)
    return {
        "cluster": "pay", "severity": "error", "status": "new", "title": "50% | of, it\nall", "detail": None, "check_id": "c",
        "first_seen": begin, "last_seen": begin + timedelta(seconds=75), "fingerprint": "ab" * 16, "first_fingerprint": None, "silenced": False,
        "harm": None, "topic": None, "partition": None, "replica": None, "node": None, "caused_by": None,
    } | given  # fmt: skip


def test_annotations_of_a_workflow_are_one_line_each():
    rows = [finding(), finding(status="resolved"), finding(silenced=True), finding(severity="info")]
    lines = list(output.findings("github", rows))
    assert len(lines) == 2
    assert lines[0].startswith("::error title=pay%3A 50%25 | of%2C it")
    assert lines[1].startswith("::notice ")
    assert all("\n" not in line for line in lines)


def _parsed(line):
    """(command, properties, data) as the runner of GitHub Actions reads a line (ActionCommand.TryParseV2)."""
    assert line.startswith("::")
    head, data = line[2:].split("::", 1)
    command, _, rest = head.partition(" ")
    given = dict(one.split("=", 1) for one in rest.split(",") if one)
    for code, char in {"%0D": "\r", "%0A": "\n", "%3A": ":", "%2C": ",", "%25": "%"}.items():
        given = {name: value.replace(code, char) for name, value in given.items()}
    for code, char in {"%0D": "\r", "%0A": "\n", "%25": "%"}.items():
        data = data.replace(code, char)
    return command, given, data


HOSTILE = st.one_of(
    st.text(),
    st.lists(
        st.sampled_from(
            [
                "::",
                ":",
                ",",
                "%",
                "%0A",
                "%25",
                "\r",
                "\n",
                "=",
                "\u2028",
                "\x1b",
                "::error file=x::",
                "##[group]",
                "a",
            ]
        )
    ).map("".join),
)


@given(cluster=HOSTILE, title=HOSTILE, detail=HOSTILE)
def test_names_of_logs_forge_no_annotation(cluster, title, detail):
    (line,) = output.findings("github", [finding(cluster=cluster, title=title, detail=detail)])
    assert len(line.splitlines()) == 1
    command, properties, data = _parsed(line)
    assert (command, properties) == ("error", {"title": visible(f"{cluster}: {title}")})
    assert data.startswith(visible(detail or title))
    outcome = SimpleNamespace(cluster=cluster, problem=detail, unreadable=(title,))
    for line in output.verdict("github", [], [outcome], []):
        assert len(line.splitlines()) == 1
        command, properties, data = _parsed(line)
        assert (command, properties) == ("warning", {"title": "Kafka audit"})
        assert data.startswith(visible(f"{cluster}: not "))


def test_markdown_keeps_its_columns():
    lines = list(output.findings("markdown", [finding(title="a | b `c` <i>")]))
    assert lines[2].startswith("| error | new | a \\| b `c` \\<i\\> |")
    outcome = SimpleNamespace(cluster="pay", problem=None, unreadable=("x.gz: truncated",))
    text = "\n".join(output.verdict("markdown", [finding()], [outcome], ["note"]))
    assert "## Kafka audit of pay: 1 open" in text
    assert "- pay: not read: x.gz: truncated" in text


def test_a_report_gets_its_folder(tmp_path):
    report = tmp_path / "a" / "b" / "last.html"
    arguments = [
        "audit",
        str(SAMPLE),
        "--engine",
        "local",
        "-q",
        "--tables",
        str(tmp_path / "t"),
        "--report",
        str(report),
    ]
    assert main(arguments) == errors.CLEAN
    assert report.is_file()
    assert list(report.parent.iterdir()) == [report]


def _loop(folder):
    (folder / "loop").symlink_to(folder / "loop")
    return folder / "loop" / "r.html"


def _below_a_file(folder):
    (folder / "file").write_text("")
    return folder / "file" / "r.html"


@pytest.mark.parametrize(
    "place",
    [
        _below_a_file,
        _loop,
        lambda folder: folder,
        lambda folder: folder / ("n" * 300),
        lambda folder: folder / ("n" * 300) / "r.html",
        lambda folder: Path("/dev/null"),
        # no user may make a file there, not even root
        lambda folder: Path("/proc/r.html"),
        lambda folder: Path("/proc/a/r.html"),
    ],
    ids=[
        "below a file",
        "links in a circle",
        "a folder",
        "long name",
        "long folder",
        "a device",
        "not writable",
        "no folder",
    ],
)
@pytest.mark.parametrize("option", ["--report", "--metrics"])
def test_a_file_that_cannot_be_written_is_refused_before_a_log_is_read(
    tmp_path, option, place, capsys, monkeypatch
):
    monkeypatch.setattr(ingest, "find", lambda *_: pytest.fail("logs were looked for"))
    arguments = [
        "audit",
        str(SAMPLE),
        "--engine",
        "local",
        "--tables",
        str(tmp_path / "tables"),
        option,
        str(place(tmp_path)),
    ]
    assert main(arguments) == errors.USAGE
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"error: {option} ")
    assert "create it" in line or "give " in line
    assert not (tmp_path / "tables").exists()


@pytest.mark.parametrize(
    ("given", "name"),
    [
        ("/data/payments/broker-*/", "payments"),
        ("/data/payments/broker-*/*.log*", "payments"),
        ("/data/payments/*", "payments"),
        ("/data/pay*/logs", "data"),
        ("s3a://logs/payments/*/*.log*", "payments"),
        ("s3://bucket/orders/broker-1/server.log.gz", "orders"),
        ("hdfs://host/payments/dt=2026-03-01/hour=04", "payments"),
        ("/data/payments/2026/03/01/*.gz", "payments"),
        ("-", "cluster"),
    ],
)
def test_a_cluster_is_named_by_the_folder_that_people_mean(given, name):
    assert cluster_names.of_logs(given) == name


@pytest.mark.parametrize(
    ("folder", "name"),
    [
        ("payments", "payments"), ("payments/broker-1", "payments"), ("payments/logs", "payments"), ("payments/kafka/logs", "payments"),
        ("payments/node-3/kafka-logs", "payments"), ("payments/2026-03-01/broker-2", "payments"), ("var/log/kafka", "kafka"),
        ("payments/kafka-1", "payments"), ("payments/data", "data"), ("payments/3", "payments"),
    ],
)  # fmt: skip
def test_folders_of_nodes_and_logs_name_no_cluster(tmp_path, folder, name):
    (tmp_path / folder).mkdir(parents=True)
    (tmp_path / folder / "server.log").write_text("")
    assert cluster_names.of_logs(str(tmp_path / folder)) == name
    if name != "kafka" and folder != "payments/data":
        assert cluster_names.of_logs(str(tmp_path / folder / "server.log")) == name


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0 s"),
        (39, "39 s"),
        (59.6, "1 min"),
        (252.9, "4 min 13 s"),
        (7500, "2 h 5 min"),
        (7203, "2 h"),
        (273_600, "3 d 4 h"),
    ],
)
def test_durations_are_in_words(seconds, text):
    assert two_units(seconds) == text


BEGAN = datetime(2026, 11, 20, 23, 30, 12, 900_000)


@pytest.mark.parametrize(
    ("name", "missing"),
    [
        ("explain", {"pyarrow", "numpy", "duckdb", "deltalake", "sqlglot", "jobs.commands.audit"}),
        (
            "findings",
            {
                "pyspark",
                "great_expectations",
                "jobs.commands.audit",
                "jobs.commands.repair",
                "jobs.alerts",
                "jobs.config",
            },
        ),
        (
            "sql",
            {
                "pyspark",
                "great_expectations",
                "jobs.commands.audit",
                "jobs.commands.repair",
                "jobs.alerts",
                "jobs.config",
            },
        ),
        (
            "timeline",
            {
                "pyspark",
                "great_expectations",
                "jobs.commands.audit",
                "jobs.commands.repair",
                "jobs.alerts",
                "jobs.config",
            },
        ),
    ],
)
def test_a_command_imports_nothing_of_other_commands(name, missing):
    code = f"import sys; from jobs.commands import command_line; command_line.parser({name!r}); print(*sys.modules)"
    loaded = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT
    ).stdout.split()
    assert not missing & set(loaded)


def test_the_list_of_commands_is_the_parsers():
    (commands,) = (
        action for action in command_line.parser()._actions if isinstance(action, argparse._SubParsersAction)
    )
    assert tuple(commands.choices) == command_line.COMMANDS


def test_moments_have_their_zone():
    berlin = timezone(timedelta(hours=1))
    assert moments.moment(BEGAN) == moments.moment(BEGAN.replace(tzinfo=UTC)) == "2026-11-20 23:30:12 UTC"
    assert moments.moment(BEGAN.replace(tzinfo=UTC).astimezone(berlin)) == "2026-11-20 23:30:12 UTC"
    assert moments.moment(BEGAN, after=BEGAN - timedelta(hours=1)) == "23:30:12 UTC"
    # midnight of the zone in which it is printed decides
    assert moments.moment(BEGAN + timedelta(hours=1), after=BEGAN) == "2026-11-21 00:30:12 UTC"
    assert moments.moment(datetime.max.replace(tzinfo=timezone(timedelta(hours=-1)))).startswith(
        "9999-12-31 23:59:59"
    )
    assert moments.to_milliseconds(BEGAN.replace(tzinfo=UTC).astimezone(berlin)) == "2026-11-20 23:30:12.900"


def test_the_length_of_a_span():
    assert (
        moments.span(BEGAN, BEGAN + timedelta(seconds=20.9))
        == "2026-11-20 23:30:12 UTC to 23:30:33 UTC (21 s)"
    )
    assert (
        moments.span(BEGAN, BEGAN + timedelta(hours=2))
        == "2026-11-20 23:30:12 UTC to 2026-11-21 01:30:12 UTC (2 h)"
    )
    assert moments.span(BEGAN, None) == moments.span(BEGAN, BEGAN) == "at 2026-11-20 23:30:12 UTC"


def test_moments_are_put_into_words_in_one_place():
    """No module that people read formats a date and a clock itself."""
    found = [
        f"{path.relative_to(ROOT)}: {line.strip()}"
        for room in ("jobs", "schemas")
        for path in sorted((ROOT / room).rglob("*.py"))
        for line in path.read_text("utf-8").splitlines()
        if re.search(r"%Y-%m-%d %H:%M", line)
    ]
    # what strptime reads, and SQL's own form of a time
    assert [line for line in found if "dialect.py" not in line and "strptime" not in line] == []


def test_the_remaining_time_is_estimated(monkeypatch):
    progress.expect(1_000_000)
    progress.advance(250_000)
    assert progress._amount(0.5) == "25 %, 0.5 MB/s, 1 s left"
    progress.advance(750_000)
    assert progress._amount(2) == ""


def test_a_pager_is_for_terminals_only(monkeypatch, capsys):
    monkeypatch.setenv("PAGER", "false")
    terminal.show([str(n) for n in range(1000)])
    assert capsys.readouterr().out.splitlines()[-1] == "999"
    assert terminal._pager() == ["false"]
    monkeypatch.setenv("PAGER", "cat")
    assert terminal._pager() is None


def test_an_option_of_a_command_is_known_where_another_argument_is_not(capsys):
    with pytest.raises(SystemExit):
        main(["sql", "SELECT", "1", "--tables", "x"])
    assert capsys.readouterr().err == "error: not understood: 1; see kafka-audit --help\n"


def test_packages_of_spark_that_are_missing_are_named_in_one_line(monkeypatch, tmp_path, capsys):
    from jobs.engine import later

    monkeypatch.setattr(later, "find_spec", lambda name: None)
    assert main(["audit", str(SAMPLE), "--tables", str(tmp_path / "t"), "--engine", "spark"]) == errors.USAGE
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("error: delta-spark, great-expectations, pyspark are not installed")

    def broken(*_):
        raise ModuleNotFoundError("No module named 'great_expectations'", name="great_expectations")

    monkeypatch.setattr("jobs.commands.findings.run", broken)
    assert main(["findings", "--tables", str(tmp_path)]) == errors.USAGE
    assert capsys.readouterr().err.startswith("error: great-expectations is not installed")
