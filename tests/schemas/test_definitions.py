"""`kafka-audit lint`: our own data files are sound, and each kind of fault is named."""

import ast
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import schemas
from parsers.definitions import (
    check_problems,
    column_problems,
    command_problems,
    contract_problems,
    envelope_problems,
    machine_problems,
    problems,
    severities,
    silence_problems,
    table_columns,
    threshold_problems,
    version_problems,
    word_problems,
    wording_problems,
)
from parsers.rules import built_in
from schemas import wording

RULE = """loggers = ["own.Logger"]
[own_rule]
starts = "Own "
pattern = '''Own (?<broker>\\d+)'''
says = "is"
[[own_rule.sample]]
line = '''[2026-03-01 12:00:00,123] INFO Own 7 (own.Logger)'''
gives = { broker = 7 }
"""


def test_ours_are_sound() -> None:
    assert problems(None) == []


KUBECTL = {
    "name": "kubectl logs --prefix",
    "prefix": r"\[pod/[\w.\-]+/[\w.\-]+\] ",
    "sample": "[pod/kafka-4/kafka] ",
}


@pytest.mark.parametrize(
    ("changed", "named"),
    [
        ({"prefix": r"\[pod/\w+\] "}, "does not match the whole sample"),
        ({"prefix": r"(?:\w*)* "}, "repeated group"),
        ({"prefix": ""}, "give one of prefix, keys, columns"),
        ({"keys": ["log"]}, "give one of prefix, keys, columns"),
        ({"sample": ""}, "no sample"),
        ({"node": 4}, "unknown key node"),
        ({"name": "pods"}, "is read as kubectl logs --prefix prefix '[pod/kafka-4/kafka] '"),
        ({"prefix": "", "keys": ["log"], "sample": '{"log":"LIME"}'}, "has no LINE"),
        ({"prefix": "", "keys": ["log"], "sample": "no log at all"}, "has no LINE"),
        ({"prefix": "", "keys": ["log"], "sample": "# LINE"}, "is read as"),
        ({"prefix": "[.]{400}", "sample": "." * 400}, "no envelope is found"),
    ],
)
def test_faults_of_an_envelope(changed: dict[str, Any], named: str) -> None:
    assert envelope_problems({"pods": KUBECTL}) == []
    (problem,) = envelope_problems({"pods": KUBECTL | changed})
    assert problem.startswith("parsers/envelopes.toml [pods]: ") or "prefix: " in problem
    assert named in problem


def test_own_rules_are_linted_with_ours(tmp_path: Path) -> None:
    (tmp_path / "own.toml").write_text(RULE)
    assert problems(tmp_path) == []


@pytest.mark.parametrize(
    ("before", "after", "named"),
    [
        ("broker = 7", "broker = 8", "item 0"),
        ("(?<broker>", "(?<nobody>", "no word"),
        ('says = "is"', 'says = "was"', "says"),
        ('says = "is"', "", "`says` is missing"),
        ('starts = "Own "', 'starts = "Other "', "does not begin"),
        (r"\d+)", r"(?:\d?)+)", "repeated group"),
        (r"\d+)", r"\d+", "unterminated"),
        ("Own (", "{unheard_of}Own (", "unknown fragment"),
        ("line = ", "lime = ", "`line` is missing"),
        ("[own_rule]", "[own_rule", "own.toml"),
    ],
)
def test_faults_of_a_rule(tmp_path: Path, before: str, after: str, named: str) -> None:
    assert before in RULE
    (tmp_path / "own.toml").write_text(RULE.replace(before, after))
    found = problems(tmp_path)
    assert found
    assert any(named in problem for problem in found), found


def test_files_of_the_wrong_shape(tmp_path: Path) -> None:
    (tmp_path / "own.toml").write_bytes(b"\xff\xfe")
    assert problems(tmp_path)
    (tmp_path / "own.toml").write_text('loggers = ["x"]\nstray = 1\n')
    assert problems(tmp_path)
    assert problems(tmp_path / "missing") == [f"--rules {tmp_path / 'missing'}: no such folder"]


def test_faults_of_a_machine() -> None:
    move = schemas.LegalMove("m", "A", "B", "1.0")
    assert machine_problems({"m": ("A", "B")}, [move]) == []
    assert "is listed twice" in machine_problems({"m": ("A", "B", "A")}, [move])[0]
    assert "is listed twice" in machine_problems({"m": ("A", "B")}, [move, move])[0]
    assert "no state B" in machine_problems({"m": ("A",)}, [move])[0]
    assert "no version" in machine_problems({"m": ("A", "B")}, [schemas.LegalMove("m", "A", "B", "new")])[0]


def test_faults_of_a_check() -> None:
    check = schemas.statements("checks")[0]
    assert check_problems([check], severities()) == []
    header = dict(check.header, severity="loud", harm="great")
    del header["identity"]
    found = check_problems([schemas.Statement("c", header, "SELECT 1")], severities())
    assert any("-- identity:" in problem for problem in found)
    assert any(
        "harm great is none of loss, unavailability, risk, protocol, housekeeping" in problem
        for problem in found
    )
    assert any("severity loud" in problem for problem in found)
    assert any("does not give" in problem and "evidence" in problem for problem in found)
    named = schemas.Statement(
        "c", header | {"candidates": "late, early"}, "WITH early AS (\n  SELECT 1\n)\nSELECT 1"
    )
    assert [problem for problem in check_problems([named], severities()) if "candidates" in problem] == [
        "schemas/checks/c.sql: candidates: no part of the query is called late"
    ]
    sliced = schemas.Statement(
        "c", header, "SELECT slice(array_distinct(flatten(collect_list(x))), 1, 20) AS evidence"
    )
    assert any("an unsorted collect_list" in problem for problem in check_problems([sliced], severities()))
    for by_hash in (
        "array_sort(collect_set(e.record_id))",
        "array_sort(array_compact(collect_list(t.record_id)))",
    ):
        query = schemas.Statement("c", header, f"SELECT slice({by_hash}, 1, 20) AS evidence")
        assert any("which are hashes" in problem for problem in check_problems([query], severities()))


def test_faults_of_a_wording() -> None:
    """The words of a check name facts that its query gives, all of them, and are sentences that a reader
    understands.
    """
    check = schemas.Statement("c", {"facts": "times"}, "SELECT x.node, count(*) AS times FROM x")
    sound = wording.Wording(
        "c", "Name", "It matters.", "Node {{ node }}: {{ times | count('time') }}", "Seen.", "Do it."
    )
    assert wording_problems([check], {"c": sound}) == []

    def found(**changed: str) -> str:
        return "; ".join(wording_problems([check], {"c": replace(sound, **changed)}))

    assert "no fact is called colour" in found(detail="{{ colour }}")
    assert "no fact is called colour" in found(detail="{% if colour %}x{% endif %}")
    assert "not a template" in found(detail="{{ times")
    assert "not a template" in found(detail="{{ times | upper }}")
    assert "no fragment is called nothing" in found(detail='{% include "nothing" %}')
    assert "calls nothing" in found(detail="{{ times.bit_length() }}")
    assert "no template names the fact times" in found(title="Node {{ node }}")
    assert "write again instead of anew" in found(why="It begins anew.")
    assert "more than 25 words" in found(advice="word " * 26)
    assert "longer than 60 characters" in found(name="n" * 61)
    old = schemas.Statement("c", {"facts": "times", "concludes": "what it told."}, check.sql)
    assert "its header: write logged, notified instead of told" in "; ".join(
        wording_problems([old], {"c": sound})
    )
    undeclared = schemas.Statement("c", {"facts": "times, colour"}, check.sql)
    assert "facts: the query gives no colour" in "; ".join(wording_problems([undeclared], {"c": sound}))
    assert wording_problems([check], {}) == ["schemas/checks/c.sql: no wording: add schemas/checks/c.md"]
    assert "d.md: no query" in "; ".join(wording_problems([check], {"c": sound, "d": sound}))


@pytest.mark.parametrize("template", ["check", "check_often"])
def test_a_check_begins_as_a_copy_of_a_template(template: str) -> None:
    """Lint names what the template leaves open; once that is filled in, it has nothing to say."""
    sql, words = (
        schemas.folder("templates").joinpath(f"{template}.{kind}").read_text("utf-8")
        for kind in ("sql", "md")
    )

    def found(sql: str, words: str) -> list[str]:
        check = schemas.parsed("my_check", sql)
        return check_problems([check], severities()) + wording_problems(
            [check], {"my_check": wording.parsed("my_check", words)}
        )

    named = {one.split(": ")[1] for one in found(sql, words) if "TODO" in one}
    assert {"TODO", "name", "why", "title", "detail", "advice"} <= named
    answers = {
        "severity": "warning",
        "harm": "risk",
        "concludes": "lines of a thread that ended.",
        "needs": "lines",
        "identity": "broker",
        "only": "thread_failed",
        "thresholds": "broker_outages_per_hour",
    }
    for key, answer in answers.items():
        sql = re.sub(rf"^-- {key}: TODO.*$", f"-- {key}: {answer}", sql, flags=re.MULTILINE)
    sql = sql.replace("IN ('TODO')", "IN ('thread_failed')").replace(
        "'TODO' AS severity", "'warning' AS severity"
    )
    sql = sql.replace(">= TODO(", ">= broker_outages_per_hour(")
    words = words.replace("# TODO: the name of the check in two to six words", "# Thread ended")
    words = words.replace("TODO: what happened", "lost a thread")
    words = re.sub(r"TODO: [^.{]*\.", "Restart it.", words)
    assert found(sql, words) == []


def test_faults_of_a_command() -> None:
    words = {"c": wording.Wording("c", "Name", "Why.", "T", "D", "Run {{ list_all }}.")}
    sound = wording.Command("all", (("0", "a"),), (("0", "b"), ("2.4", "c")))
    assert command_problems({"list_all": sound}, words) == []
    late = replace(sound, zookeeper=(("2.4", "c"), ("0", "b")))
    assert "the first form is since 0" in "; ".join(command_problems({"list_all": late}, words))
    assert "no advice names it" in "; ".join(command_problems({"list_all": sound, "list_more": sound}, words))


def test_faults_of_a_threshold() -> None:
    query = schemas.Statement("c", {}, "SELECT 1 WHERE idle_seconds(cluster, NULL) > 1")

    def found(name: str = "idle_seconds", **changed: Any) -> str:
        entry = {"default": 3, "unit": "seconds", "meaning": "How long it may be idle.", **changed}
        return "; ".join(threshold_problems({name: schemas.Limit(**entry)}, [query]))

    assert "no check or fact calls it" in found("idle_minutes", unit="minutes")
    assert "the name ends with its unit, _minutes" in found(unit="minutes")
    assert "a meaning that is a sentence" in found(meaning="idle")
    assert "whole number" in found(default=-1)
    check = schemas.statements("checks")[0]
    undeclared = schemas.Statement(
        "c", check.header, f"{check.sql} AND leaderless_seconds(cluster, topic) > 1"
    )
    assert any(
        "thresholds: names those that the query calls" in one
        for one in check_problems([undeclared], severities())
    )


def test_a_part_of_a_query() -> None:
    query = "-- about: x\nWITH a AS (\n  SELECT 1 AS n\n), b AS (\n  -- of a (all)\n  SELECT max(n) FROM a\n)\nSELECT * FROM b"
    statement = schemas.Statement("c", {}, query)
    assert statement.part("a") == "-- about: x\nWITH a AS (\n  SELECT 1 AS n\n) SELECT * FROM a"
    assert statement.part("b") == query[: query.index("\n)\nSELECT")] + "\n) SELECT * FROM b"


def test_faults_of_a_contract() -> None:
    tables = table_columns()
    assert "topic" in tables["events"]
    assert "raw" in tables["events"]
    assert "blocked_by" in tables["topic_deletions"]
    contracts = {
        "nowhere": {},
        "events": {
            "key": ["no_such"],
            "values": {"says": []},
            "rules": [
                {"words": "q", "violations": "SELECT 1"},
                {"words": "r", "violations": "{batch} {odd}"},
            ],
            "x": 1,
        },
    }
    found = " ".join(contract_problems(contracts, tables))
    for named in (
        "no such table",
        "no column no_such",
        "values.says",
        "'q' does not read",
        "reads odd",
        "unknown key x",
    ):
        assert named in found


def test_faults_of_a_word() -> None:
    assert word_problems({"a": {"type": "int", "comment": "x"}}) == []
    assert len(word_problems({"A": {"type": "long", "note": "x"}})) == 4


def test_another_column_is_another_version_of_the_tables() -> None:
    digest = "0123456789abcdef"
    (problem,) = version_problems(schemas.TABLES_DIGESTS, digest)
    line = ast.literal_eval("{" + problem.split("`")[1] + "}")
    assert list(line) == [schemas.TABLES_VERSION + 1]
    assert version_problems(schemas.TABLES_DIGESTS | line, digest) == []


def test_a_check_names_the_logs_that_it_needs() -> None:
    """A query that tests for absence needs logs, or says why lines that are missing raise no finding."""
    check = schemas.statements("checks")[0]

    def found(needs: str, query: str, **header: str) -> str:
        changed = schemas.Statement("c", check.header | {"needs": needs} | header, query)
        return "; ".join(check_problems([changed], severities()))

    for query in (
        "x LEFT ANTI JOIN y",
        "WHERE NOT EXISTS (SELECT 1)",
        "WHERE o.until IS NULL",
        "FROM partition_episodes",
    ):
        assert "it concludes from absence" in found("lines", query)
        assert "absence" not in found("every_node", query)
        assert "absence" not in found("lines", query, silence="there is nothing to miss")
    assert "the query concludes nothing from absence" in found("lines", "SELECT 1", silence="none")
    assert "no `-- needs:`" in found("", "SELECT 1")
    assert "no kind of coverage is called some_node" in found("some_node", "SELECT 1")
    assert "severity loud is none of" in found("this_node, else loud", "SELECT 1")
    assert "lines cannot be combined" in found("lines or this_node", "SELECT 1")
    assert "only partition_episodes enforces" in found("partition", "SELECT 1")
    assert "by_absence marks findings" in found("lines", "SELECT 1 AS by_absence", also="by_absence")


def test_findings_that_last_must_be_of_the_last_incarnation() -> None:
    """As in log_directory_failed, which reported a directory of an earlier cluster of that name as failed
    until today.
    """
    check = schemas.statements("checks")[0]

    def found(query: str) -> str:
        return "; ".join(check_problems([schemas.Statement("c", check.header, query)], severities()))

    lasting = "SELECT coalesce(b.until, k.now) AS last_seen FROM b JOIN clocks k ON k.cluster = b.cluster"
    assert "join clocks by incarnation" in found(lasting)
    assert "join clocks by incarnation" in found(
        "SELECT k.now AS last_seen FROM b JOIN clocks k ON k.cluster = b.cluster"
    )
    assert "clocks" not in found(f"{lasting} AND (b.until IS NOT NULL OR k.incarnation = b.incarnation)")
    assert "clocks" not in found(
        "SELECT max(b.ts) < max(k.now) AS ended FROM b JOIN clocks k ON k.cluster = b.cluster"
    )
    assert "it joins clocks and reads neither" in found(
        "SELECT b.ts FROM b JOIN clocks k ON k.cluster = b.cluster"
    )


def test_coverage_is_one_of_several_kinds() -> None:
    assert schemas.needed("this_node or controller, else warning") == schemas.Needs(
        ("this_node", "controller"), "warning"
    )
    assert schemas.needed("every_node") == schemas.Needs(("every_node",))


def test_a_failure_that_no_check_reads_is_a_problem() -> None:
    """No silent failure: a new rule that says `failed`, or is printed at ERROR, needs a check or a reason."""
    checks, listed = schemas.statements("checks"), schemas.unreported()
    rules = list(built_in().rules)
    assert silence_problems(rules, [*checks, *schemas.statements("facts")], listed) == []
    failed = next(rule for rule in rules if rule.says == "failed")
    new = replace(failed, name="flux_inverted")
    (problem,) = silence_problems([*rules, new], [*checks, *schemas.statements("facts")], listed)
    assert problem.startswith("flux_inverted reports a failure and no check reads it")
    quiet = replace(
        failed, name="flux_seen", says="is", samples=[{"line": "[2026-11-20 10:00:00,000] INFO x (y)"}]
    )
    assert silence_problems([*rules, quiet], [*checks, *schemas.statements("facts")], listed) == []
    loud = replace(quiet, samples=[{"line": "[2026-11-20 10:00:00,000] FATAL x (y)"}])
    assert len(silence_problems([*rules, loud], [*checks, *schemas.statements("facts")], listed)) == 1

    def problems_of(**groups: dict[str, object]) -> str:
        return "; ".join(silence_problems(rules, checks, {**listed, **groups}))

    assert "thread_failed feeds a check" in problems_of(more={"reason": "r", "events": ["thread_failed"]})
    assert "no rule called nothing" in problems_of(more={"reason": "r", "events": ["nothing"]})
    assert "give a reason" in problems_of(more={"events": []})
    assert "there is no check nowhere" in problems_of(states={"waiting": "nowhere"})


def test_a_check_reads_columns_that_its_event_types_fill() -> None:
    """As log_directory_failed did not: all directories that fail are in `text`, and it required `path`."""

    def found(query: str, **header: str) -> list[str]:
        return column_problems(schemas.Statement("c", header, query))

    query = "SELECT node, path FROM audited_events WHERE event_type IN ('log_dir_offline', 'log_dirs_all_failed') AND path IS NOT NULL"
    (problem,) = found(query)
    assert "path IS NOT NULL leaves out lines of log_dirs_all_failed" in problem
    assert found(query, optional="path") == []
    (problem,) = found("SELECT isr FROM audited_events WHERE event_type = 'log_dir_offline'")
    assert "isr is read of log_dir_offline, and no rule fills it" in problem
    assert found("SELECT node, path, ts FROM audited_events WHERE event_type = 'log_dir_offline'") == []
