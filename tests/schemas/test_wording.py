"""Words of findings: templates, what fills them in, and the commands that advice names."""

from datetime import UTC, datetime

import pytest
import sqlglot
from sqlglot import exp

import schemas
from jobs.checking import checks
from schemas import wording

SINCE, UNTIL = "2026-11-20 10:09:22.5", datetime(2026, 11, 20, 10, 10, 1, tzinfo=UTC)


@pytest.mark.parametrize(
    ("template", "value", "text"),
    [
        ("{{ x | number }}", 3429, "3,429"),
        ("{{ x | number(1) }}", 1234.56, "1,234.6"),
        ("{{ x | count('record') }}", 1, "1 record"),
        ("{{ x | count('record') }}", 3429, "3,429 records"),
        ("{{ x | count('entry', 'entries') }}", 2, "2 entries"),
        ("{{ x | listed }}", [1], "1"),
        ("{{ x | listed }}", [1, 2, 3], "1, 2 and 3"),
        ("{{ x | listed(2) }}", [1, 2, 3, 4], "1, 2 and 2 more"),
        ("{{ x | listed }}", None, "?"),
        ("{{ x | listed(2) }}", [3, 3, 1, 3], "3 and 1"),
        ("{{ x | named('broker') }}", [3, 3], "broker 3"),
        ("{{ x | named('broker') }}", [3], "broker 3"),
        ("{{ x | named('broker', 1) }}", [3, 4, 5], "brokers 3 and 2 more"),
        ("{{ x | at }}", SINCE, "2026-11-20 10:09:22 UTC"),
        ("{{ x | at }}", "2026-11-20T10:09:22.500Z", "2026-11-20 10:09:22 UTC"),
        ("{{ x | at(x) }}", UNTIL, "10:10:01 UTC"),
        ("{{ x | at }}", None, "?"),
        ("{{ x | day }}", UNTIL, "2026-11-20"),
        ("{{ x | duration }}", 0.2, "less than 1 s"),
        ("{{ x | duration }}", 39, "39 s"),
        ("{{ x | duration }}", 560, "9 min 20 s"),
        ("{{ x | duration }}", 3 * 3600, "3 h"),
        ("{{ x | duration }}", 52 * 3600, "2 d 4 h"),
        ("{{ x | duration_to('2026-11-20 10:10:01.5') }}", SINCE, "39 s"),
        ("{{ x | quoted(9) }}", "a\tb\n\x1b[31mcd efgh", "a b [31m…"),
        ("{{ x | tail(6) }}", "/var/lib/d1", "…ib/d1"),
        ("{{ x | simple }}", "kafka.server.Kafka$Thread", "Thread"),
        ("At {{ x }}{% if x %}, seen{% endif %}  .", None, "At ?."),
    ],
)
def test_filters(template: str, value: object, text: str) -> None:
    assert wording.rendered(template, {"x": value}) == text


@pytest.mark.parametrize(
    "text", ["{{ 7 * 7 }}", "{% include 'which' %}", "{{ ''.__class__.__mro__ }}", "%s {0} $x ${x}", "# x {#"]
)
def test_a_text_of_a_log_is_never_a_template(text: str) -> None:
    assert wording.rendered("Logged: {{ x | quoted }}", {"x": text}) == f"Logged: {text}"
    assert wording.rendered("Logged: {{ x }}", {"x": text}) == f"Logged: {text}"


@pytest.mark.parametrize(
    "template", ["{{ x.__class__ }}", "{{ x.append(1) }}", "{{ missing }}", "{{ x | at }}", "{{ range(9) }}"]
)
def test_a_template_that_does_not_fit_is_an_error(template: str) -> None:
    with pytest.raises(wording.FAILED):
        wording.rendered(template, {"x": []})


@pytest.mark.parametrize("template", ["{{ x | capitalize }}", "{% if x %}{{ x | capitalize }}{% endif %}"])
def test_lint_names_a_filter_that_is_none(template: str) -> None:
    wrong, _ = wording.problem(template, ["x"])
    assert wrong is not None
    assert "capitalize" in wrong


def test_a_wrong_template_costs_no_other_check_its_findings() -> None:
    row = dict.fromkeys(
        ("topic", "partition", "replica", "node", "first_seen", "last_seen", "lacking", "unheard")
    )
    row |= {"cluster": "c", "severity": "error", "ended": False}
    rows = [
        row | {"check_id": "rack_violation", "topic": "orders", "facts": '{"violations": ["{{ 7 * 7 }}"]}'},
        row | {"check_id": "thread_died", "facts": "{}"},
    ]
    failed: dict[str, str] = {}
    (done,) = checks._in_words(rows, {"c": wording.commands(True, None)}, failed)
    assert (done["title"], done["detail"]) == (
        "Replicas of topic orders share a rack",
        "orders: {{ 7 * 7 }}.",
    )
    assert "facts" not in done
    assert failed.keys() == {"thread_died"}


def test_a_weakened_claim_names_the_missing_logs() -> None:
    row = dict.fromkeys(("topic", "partition", "replica", "node", "first_seen", "last_seen"))
    row |= {
        "cluster": "c",
        "severity": "info",
        "ended": False,
        "check_id": "rack_violation",
        "topic": "a",
        "facts": '{"violations": ["x"]}',
    }
    row |= {"lacking": schemas.coverage()["every_node"].lacking, "unheard": [2, 3]}
    (done,) = checks._in_words([row], {"c": wording.commands(False, (2, 5))}, {})
    assert done["detail"] == "a: x. There are no logs of nodes 2 and 3, which may show otherwise."


def test_advice_names_the_command_of_the_version_and_the_mode() -> None:
    old, new, unknown = (wording.commands(False, version) for version in ((2, 3), (2, 6), None))
    assert old["elect_preferred"] == "`kafka-preferred-replica-election.sh --zookeeper HOST:2181`"
    assert new["elect_preferred"].startswith(
        "`kafka-leader-election.sh --bootstrap-server HOST:9092 --election-type PREFERRED"
    )
    assert "--zookeeper HOST:2181" in old["move_replicas"]
    assert "--bootstrap-server" in new["move_replicas"]
    assert "(before Kafka 2.6: `kafka-reassign-partitions.sh --zookeeper" in unknown["list_reassignments"]
    assert old["show_controller"] == "`zookeeper-shell.sh HOST:2181 get /controller`"
    kraft = wording.commands(True, (3, 9))
    assert not any("zookeeper" in command for command in kraft.values())
    assert (
        kraft["show_quorum"]
        == "`kafka-metadata-quorum.sh --bootstrap-controller HOST:9093 describe --status`"
    )
    assert "--bootstrap-server" in wording.commands(True, (3, 5))["show_quorum"]


# expressions that have a pattern for the text of a log
PATTERNS = (exp.Like, exp.ILike, exp.RegexpLike, exp.RegexpExtract, exp.RegexpExtractAll, exp.RegexpReplace)


def words_of(sql: str) -> list[str]:
    """Return the words in a query: texts with a blank and a letter.

    Patterns over lines are none, and the column `thing` is none: it is hashed, and nobody reads it.
    """
    return [
        text.this
        for text in sqlglot.parse_one(sql, read="spark").find_all(exp.Literal)
        if text.is_string
        and " " in text.this
        and any(map(str.isalpha, text.this))
        and not (isinstance(text.parent, PATTERNS) and text.arg_key == "expression")
        and "thing" not in _columns_with(text)
    ]


def _columns_with(text: exp.Expression) -> set[str]:
    """Return the columns of the selects around a text that it is part of."""
    found, node = set(), text.parent
    while node is not None:
        if isinstance(node, exp.Alias):
            found.add(node.alias)
        node = node.parent
    return found


@pytest.mark.parametrize(
    ("sql", "words"),
    [
        ("SELECT 'never applied' AS error FROM t", ["never applied"]),
        ("WITH a AS (SELECT CASE WHEN raw LIKE '%no way%' THEN 'no way' END AS why) SELECT why FROM a", ["no way"]),
        ("SELECT regexp_replace(raw, 'a b', 'c d') AS why FROM t", ["c d"]),
        ("SELECT 'as it was' = why AS is_so FROM t", ["as it was"]),
        ("SELECT array_join(found, ', ') AS found, concat('five minutes ', n) AS thing FROM t", []),
        ("SELECT 'never_applied' AS error FROM t WHERE raw RLIKE 'a b|c d' AND regexp_extract(raw, 'a (b)', 1) = 'b'", []),
    ],
)  # fmt: skip
def test_words_of_a_query(sql: str, words: list[str]) -> None:
    assert words_of(sql) == words


@pytest.mark.parametrize("check", schemas.statements("checks"), ids=lambda check: check.name)
def test_a_query_of_a_check_has_no_words(check: schemas.Statement) -> None:
    """The templates alone have words: a query gives codes, and moments are formatted by filters."""
    assert words_of(check.sql) == []
    assert "date_format(" not in check.sql
