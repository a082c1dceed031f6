"""What event types mean for timelines is said in their rules.

Lint compares the words with the rules and with the code that asks for them.
"""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest

from parsers import meanings
from parsers.definitions import DefinitionError, meaning_problems
from parsers.definitions import problems as own_problems
from parsers.rules import Rule, built_in, load, logger_key

JOBS = Path(__file__).parents[2] / "jobs"
MODULES = {"jobs/a.py": "X = event_types('a', 'b')"}
RULE = built_in().rules[0]
LOGGER = logger_key(min(RULE.loggers))


def problems(*rules: Rule, words: tuple[str, ...] = ("a", "b")) -> list[str]:
    return meaning_problems(rules, dict.fromkeys(words, "defined"), MODULES)


def test_the_words_are_those_that_the_rules_list() -> None:
    """The quick way of reading them gives what reading the whole rules gives."""
    by_rule = {rule.name: rule for rule in built_in().rules}
    for word in meanings.words():
        found = meanings.loggers(word)
        assert {name for name, some in found.items() if some == meanings.ANY} == {
            name for name, rule in by_rule.items() if word in rule.means
        }
        assert {name: some for name, some in found.items() if some} == {
            name: frozenset(rule.means_by[word]) for name, rule in by_rule.items() if word in rule.means_by
        }


def test_ours_are_sound() -> None:
    modules = {str(path): path.read_text("utf-8") for path in JOBS.rglob("*.py")}
    assert meaning_problems(built_in().rules, meanings.words(), modules) == []


def test_an_unknown_word_is_found() -> None:
    sound = replace(RULE, means=("a", "b"), means_by={})
    assert problems(sound) == []
    (found,) = problems(replace(sound, means=("a", "b", "odd")))
    assert found == f"{RULE.file} [{RULE.name}]: odd is no word of parsers/meanings.toml"
    (found,) = problems(replace(sound, means_by={"odd": (LOGGER,)}))
    assert "odd is no word" in found


def test_a_word_without_a_rule_is_found() -> None:
    (found,) = problems(replace(RULE, means=("a",), means_by={}))
    assert found == "parsers/meanings.toml [b]: no rule lists it; remove it"


def test_a_word_that_nothing_asks_for_is_found() -> None:
    (found,) = problems(replace(RULE, means=("a", "b", "c"), means_by={}), words=("a", "b", "c"))
    assert found == "parsers/meanings.toml [c]: nothing in jobs/ uses it; remove it"


@pytest.mark.parametrize("loggers", [(), ("Odd",)])
def test_a_logger_that_prints_no_statement_of_the_file_is_found(loggers: tuple[str, ...]) -> None:
    (found,) = problems(replace(RULE, means=("a",), means_by={"b": loggers}))
    assert "means_by.b names" in found


def test_a_word_is_listed_once() -> None:
    (found,) = problems(replace(RULE, means=("a", "b"), means_by={"b": (LOGGER,)}))
    assert found.endswith("b is under `means` and under `means_by`")


def test_whoever_asks_for_no_word_learns_it_at_once() -> None:
    with pytest.raises(KeyError, match="no word begins_a_term"):
        meanings.event_types("begins_a_term")


def test_rules_of_a_site_mean_nothing_for_timelines(tmp_path: Path) -> None:
    (tmp_path / "own.toml").write_text(
        """loggers = ["kafka.controller.KafkaController"]
[own]
starts = "Own "
pattern = '''Own (?<text>.*)'''
says = "is"
means = ["ends_term"]
"""
    )
    with pytest.raises(
        DefinitionError, match=re.escape("own.toml [own]: timelines read built-in rules only; remove `means`")
    ):
        load(tmp_path)


def test_the_example_of_the_guide_is_sound(tmp_path: Path) -> None:
    page = (Path(__file__).parents[2] / "docs" / "contributing" / "statements.md").read_text("utf-8")
    (example,) = re.findall(r"^```toml\n(.*?)^```$", page, re.M | re.S)
    without = re.sub(r"^means = .*\n", "", example, flags=re.M)
    (tmp_path / "own.toml").write_text('loggers = ["kafka.server.BrokerServer"]\n' + without, "utf-8")
    assert own_problems(tmp_path) == []


def test_the_words_in_the_guide_exist() -> None:
    page = (Path(__file__).parents[2] / "docs" / "contributing" / "statements.md").read_text("utf-8")
    (listed,) = re.findall(r"^means = \[(.*)\]$", page, re.M)
    assert set(re.findall(r'"(\w+)"', listed)) <= meanings.words().keys()
