"""Find what is wrong with rules, layouts, log idents, vocabulary, machines, checks, contracts."""

import ast
import re
import tomllib
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import cache
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Any

import sqlglot
from sqlglot import exp
from sqlglot.errors import SqlglotError

import schemas
from parsers import meanings, references, relations
from parsers.envelopes import EnvelopeReader, Learner, envelope_entries
from parsers.events import Parser
from parsers.layouts import BUILT_IN, Layout, Wrapper
from parsers.patterns import DefinitionError, check_dialect, compiled, group_names
from parsers.rules import ITEMS, SAYS, Rule, RuleSet, built_in, load, logger_key
from schemas import wording

ENVELOPES = "parsers/envelopes.toml"
# keys of an entry, one of which describes the envelope
ENVELOPE_KINDS = ("prefix", "keys", "columns")
# log lines that replace LINE in the samples of envelopes
IN_ENVELOPES = tuple(
    f"[2026-11-20 10:09:1{second},175] INFO [Controller id=4 epoch=5] Changed partition orders-{second} from NewPartition to OnlinePartition "
    "with state LeaderAndIsr(leader=1) (state.change.logger)"
    for second in range(3)
)
CHECK_HEADER = ("severity", "harm", "concludes", "needs", "identity")
CHECK_COLUMNS = (
    "cluster",
    "incarnation",
    "severity",
    "topic",
    "partition",
    "replica",
    "node",
    "first_seen",
    "last_seen",
    "ended",
    "thing",
    "evidence",
)
# optional columns of a check, listed under `also`
CHECK_ALSO = ("subjects", "outage", "by_absence")
# names besides event types that a check may list under `only`: kinds of episodes (jobs.timelines.episodes),
# kinds of input
EPISODES = ("leaderless", "out_of_sync", "last_in_sync", "below_min_isr", "not_preferred")
INPUTS = ("metadata_log", "cluster_ids", "drifted", "slos", "unknown_errors", "incarnations")
# tables that a check may list under `only`
INPUT_TABLES = ("reassignments", "topic_deletions", "discontinuities", "broker_outages", "checkpoints")
# facts that a check may list under `only` (schemas/facts, jobs.nightly.fact_frames)
INPUT_FACTS = ("clock_distances", "controller_vacancies", "losses")
# views that Python registers; their columns are not known to lint
REGISTERED_BY_PYTHON = (
    "clocks",
    "slos",
    "legal_moves",
    "leading",
    "partition_episodes",
    "losses",
    "audited_partitions_now",
    # jobs.nightly.fact_frames
    "logs_seen",
    "nodes_heard",
    "brokers_named",
    "logged_min_isr",
    "controller_vacancies",
    "terms_of_quorum",
    # jobs.reporting.pictures, jobs.checking.harms
    "recent_spans",
    "proofs",
    "harmed_findings",
    "clusters_now",
    # jobs.checking.checks
    "quoted_records",
)
# a slice of a list without a defined order
UNORDERED = re.compile(r"slice\((?:array_distinct\()?flatten\(collect_list")
# record ids are hashes; sorted by them, a finding may quote its last line first
BY_HASH = re.compile(r"array_sort\((?:array_\w+\()?collect_(?:set|list)\((?:\w+\.)?\w*record(?:_id)?\)")
# a level that marks a failure
LOUD = re.compile(r"\b(?:ERROR|FATAL)\b")
# parts of a query that conclude from the absence of lines
ABSENCE = re.compile(
    r"\bANTI JOIN\b|\bNOT EXISTS\b|\bNOT exists\(|\b(?:until|valid_to|completed_at) IS NULL|\bpartition_episodes\b|'in_progress'"
)
CAUSE_SUBJECTS = ("broker", "partition", "topic", "cluster")
CAUSE_BEGINS = ("before", "any")
CONTRACT_KEYS = {"key", "values", "rules"}
# keys of a check's header that docs/reference/checks.md prints
DOCUMENTED = ("levels", "concludes", "silence", "identity")
# most characters of a check's name, most words of a sentence
NAME_LENGTH, SENTENCE_WORDS = 60, 25
# unit of a threshold -> its form in the threshold's name
UNITS = {"milliseconds": "ms"}
WORD_KEYS = {"type", "comment"}
VERSION = re.compile(r"\d+\.\d+(?:\.\d+)?")
# other names of slots in the samples of layouts
SLOTS = {"speaker": "log_ident"}
# literal beginning of a pattern, without a character that is followed by a quantifier
LITERAL_BEGINNING = re.compile(r"(?:(?:\\\W|[^\\\[(.*+?^$|{])(?![*?{]))*")
LITERAL = re.compile(r"\\(?=\W)")
# errors that reading a data file of the wrong shape raises
MALFORMED = (KeyError, TypeError, ValueError, AttributeError, re.error, tomllib.TOMLDecodeError, OSError)


def problems(site: Path | None) -> list[str]:
    """Return one sentence per problem.

    site: a site's folder of rule files, which is linted instead of the product's data.
    """
    found: list[str] = []
    if site is not None and not site.is_dir():
        return [f"--rules {site}: no such folder"]
    parts: list[tuple[str, Callable[[], list[str]]]] = [
        ("rules", lambda: rule_problems(load(site))),
        ("layouts.toml", lambda: layout_problems(load(site))),
    ]
    if site is None:
        parts += _product_parts()
    for where, part in parts:
        try:
            found += part()
        except DefinitionError as error:
            found.append(str(error))
        except MALFORMED as error:
            found.append(f"{where}: not of the right shape ({type(error).__name__}: {error})")
    return found


def _product_parts() -> list[tuple[str, Callable[[], list[str]]]]:
    """Return (place, function that lints it) of the product's data besides rules and layouts."""
    return [
        (ENVELOPES, lambda: envelope_problems(envelope_entries())),
        ("schemas/vocabulary.toml", lambda: word_problems(schemas.vocabulary())),
        ("schemas/__init__.py", lambda: version_problems(schemas.TABLES_DIGESTS, schemas.tables_digest())),
        ("schemas/machines", lambda: machine_problems(schemas.machines(), schemas.moves())),
        ("schemas/checks", lambda: check_problems(schemas.statements("checks"), severities())),
        ("schemas/thresholds.toml", lambda: threshold_problems(schemas.thresholds(), _readers())),
        ("schemas/checks/*.md", lambda: wording_problems(schemas.statements("checks"), wording.wordings())),
        ("schemas/commands.toml", lambda: command_problems(wording.known_commands(), wording.wordings())),
        (
            "schemas/unreported.toml",
            lambda: silence_problems(built_in().rules, _readers(), schemas.unreported()),
        ),
        ("schemas/contracts", lambda: contract_problems(schemas.contract_files(), table_columns())),
        ("schemas/causes.toml", lambda: cause_problems(schemas.cause_rules(), set(schemas.harms()))),
        ("event types in jobs and schemas", lambda: reference_problems(built_in())),
        ("tables and columns in jobs and schemas", lambda: name_problems(_columns_of_tables())),
        (
            "parsers/meanings.toml",
            lambda: meaning_problems(built_in().rules, meanings.words(), _modules(files("jobs"), "jobs")),
        ),
    ]


def _readers() -> list[schemas.Statement]:
    """Return the checks, and the facts that they read."""
    return [*schemas.statements("checks"), *schemas.statements("facts")]


def reference_problems(ruleset: RuleSet) -> list[str]:
    """Find event types in Python or SQL that no rule has.

    After the rename of a rule its readers would silently find nothing.
    """
    tables = table_columns()
    kinds = ("checks", "facts", "functions", "views")
    sql = {f"schemas/{kind}/{one.name}.sql": one.sql for kind in kinds for one in schemas.statements(kind)}
    columns = {name for names in tables.values() for name in names} | schemas.vocabulary().keys()
    return references.unknown(
        _modules(files("jobs"), "jobs"), sql, {rule.name for rule in ruleset.rules}, {*tables, *columns}
    )


def _columns_of_tables() -> dict[str, relations.Columns]:
    """Return table or view -> its columns."""
    return {
        name: frozenset(column.lower() for column in columns) for name, columns in table_columns().items()
    }


def name_problems(tables: Mapping[str, relations.Columns]) -> list[str]:
    """Find tables and columns in the product's queries that do not exist. tables: name -> columns."""
    known, found = {**tables, **dict.fromkeys(REGISTERED_BY_PYTHON)}, []
    queries = [
        (f"schemas/{kind}/{one.name}.sql", one.sql)
        for kind in ("facts", "checks", "views")
        for one in schemas.statements(kind)
    ]
    for one in schemas.statements("facts") + schemas.statements("views"):
        body = one.sql.partition(" VIEW ")[2].partition(" AS\n")[2] or one.sql
        # checks read facts and views by their names
        known[one.name] = relations.output(body, {**dict.fromkeys(_tables_in(body)), **known})
    for table, contract in schemas.contract_files().items():
        for rule in contract.get("rules", ()):
            sql = re.sub(r"\{(\w+)\}", r"\1", rule["violations"].replace("{batch}", table))
            queries.append((f"schemas/contracts/{table}.toml {rule['words']!r}", sql))
    for where, sql in queries:
        try:
            found += [f"{where}: {problem}" for problem in relations.problems(sql, known)]
        except SqlglotError as error:
            found.append(f"{where}: not a query: {str(error).splitlines()[0]}")
    modules = {
        path: text
        for path, text in _modules(files("jobs"), "jobs").items()
        if not path.startswith("jobs/engine/")
    }
    return found + relations.problems_of_modules(modules, known)[0]


def _tables_in(sql: str) -> set[str]:
    return {table.name for table in sqlglot.parse_one(sql, dialect="spark").find_all(exp.Table)}


def meaning_problems(
    rules: Iterable[Rule], words: Mapping[str, str], modules: Mapping[str, str]
) -> list[str]:
    """Find what is wrong with the words of meanings.toml.

    modules: path -> text of the modules that may use the words.
    """
    where, found, used = "parsers/meanings.toml", [], set[str]()
    for rule in rules:
        of_rule = f"{rule.file} [{rule.name}]"
        used |= {*rule.means, *rule.means_by}
        found += [
            f"{of_rule}: {word} is no word of {where}"
            for word in sorted({*rule.means, *rule.means_by} - words.keys())
        ]
        found += [
            f"{of_rule}: {word} is under `means` and under `means_by`"
            for word in sorted({*rule.means} & {*rule.means_by})
        ]
        # a Scala object logs its name with or without `$`
        own = {name for logger in rule.loggers for name in (logger_key(logger), f"{logger_key(logger)}$")}
        found += [
            f"{of_rule}: means_by.{word} names {', '.join(sorted({*some} - own)) or 'no logger'}, which is none of this file's"
            for word, some in rule.means_by.items()
            if not some or not own.issuperset(some)
        ]
    asked = {
        node.value
        for text in modules.values()
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    }
    found += [f"{where} [{word}]: no definition" for word, definition in words.items() if not definition]
    found += [f"{where} [{word}]: no rule lists it; remove it" for word in sorted(words.keys() - used)]
    return found + [
        f"{where} [{word}]: nothing in jobs/ uses it; remove it" for word in sorted(words.keys() - asked)
    ]


def _modules(folder: Traversable, path: str) -> dict[str, str]:
    """Return path -> text of the Python modules in a folder of a package, which may be inside a zip."""
    found: dict[str, str] = {}
    for entry in folder.iterdir():
        if entry.is_dir():
            found |= _modules(entry, f"{path}/{entry.name}")
        elif entry.name.endswith(".py"):
            found[f"{path}/{entry.name}"] = entry.read_text("utf-8")
    return found


def severities() -> list[str]:
    """Return the severities of findings, the worst first."""
    return list(schemas.contracts()["findings"].values["severity"])


def rule_problems(ruleset: RuleSet) -> list[str]:
    """Find what is wrong with rules and log idents. Samples are tried only where all else is sound."""
    found, names = [], dict[str, str]()
    for rule in ruleset.rules:
        where = f"{rule.file} [{rule.name}]"
        if rule.name in names:
            found.append(f"{where}: the name is taken by {names[rule.name]}")
        names[rule.name] = rule.file
        if rule.says not in SAYS:
            found.append(f"{where}: says = {rule.says!r} is none of {', '.join(SAYS)}")
        captured = group_names(rule.pattern)
        if (ITEMS in captured) != (rule.each is not None) or ITEMS in group_names(rule.each or ""):
            found.append(f"{where}: `each` needs a group named {ITEMS} in `pattern`, and nothing else does")
        unknown = {*rule.columns, *rule.keeps} - schemas.vocabulary().keys()
        found += [f"{where}: {name} is no word of schemas/vocabulary.toml" for name in sorted(unknown)]
        unsound = [
            text for pattern in (rule.pattern, rule.each or "") for text in _dialect_problems(pattern, where)
        ]
        found += unsound or [
            f"{where}: pattern does not begin with the literal {start!r}"
            for start in rule.starts
            if not _begins(start, rule.pattern)
        ]
    allowed = {"node", "controller", "controller_epoch", "topic", "partition"}
    for ident in ruleset.log_idents:
        where, groups = f"log_idents.toml [{ident.name}]", set(group_names(ident.pattern))
        found += _dialect_problems(ident.pattern, where)
        if unknown := groups - allowed:
            found.append(f"{where}: a log ident does not give {', '.join(sorted(unknown))}")
        if ident.is_controller and "node" not in groups:
            found.append(f'{where}: `of = "controller"` needs a group named node')
        if not ident.samples:
            found.append(f"{where}: no sample")
    return found or sample_problems(ruleset)


def _dialect_problems(pattern: str, where: str) -> list[str]:
    try:
        check_dialect(pattern, where)
    except DefinitionError as error:
        return [str(error)]
    return []


def _begins(start: str, pattern: str) -> bool:
    """Return whether a pattern's literal beginning agrees with `start`, as far as both reach."""
    own = LITERAL.sub("", LITERAL_BEGINNING.match(pattern)[0])  # type: ignore[index]
    return own.startswith(start) or start.startswith(own)


def sample_problems(ruleset: RuleSet) -> list[str]:
    """Find samples of rules and log idents that are not parsed as they say, and rules without samples."""
    parser, found = Parser(ruleset), []
    for rule in ruleset.rules:
        where = f"{rule.file} [{rule.name}]"
        if not rule.samples:
            found.append(f"{where}: no sample")
        for number, sample in enumerate(rule.samples, 1):
            found += [f"{where} sample {number}: {text}" for text in _of_sample(rule, sample, parser)]
    for ident in ruleset.log_idents:
        for text in ident.samples:
            first = next(
                (other.name for other in ruleset.log_idents if compiled(other.pattern).fullmatch(text)), None
            )
            if first != ident.name:
                found.append(f"log_idents.toml [{ident.name}]: {text!r} is taken by {first}")
    return found


def _of_sample(rule: Rule, sample: Mapping[str, Any], parser: Parser) -> Iterator[str]:
    if unknown := set(sample) - {"line", "gives", "gives_each"}:
        yield f"unknown key {', '.join(sorted(unknown))}"
    record = parser.record(sample["line"]) if "line" in sample else None
    if record is None:
        yield "no layout has such a line" if "line" in sample else "`line` is missing"
        return
    claimed = [other.name for other in parser.ruleset.rules if other.claims(record.statement)]
    accepting = [name for name in claimed if parser.accepts(name, record.statement)]
    if not parser.in_scope(record):
        yield f"logger {record.logger} is not among the file's `loggers`"
    elif (claimant := parser.claimant(record)) is None or claimant.name != rule.name:
        yield f"the dispatch sends it to {claimant.name if claimant else 'no rule'}"
    elif accepting != [rule.name]:
        yield f"the patterns of {accepting or 'no rule'} accept it"
    else:
        events, expected = parser.events(record), sample.get("gives_each", [sample.get("gives", {})])
        if len(events) != len(expected):
            yield f"{len(events)} events instead of {len(expected)}"
        for item, (event, given) in enumerate(zip(events, expected, strict=False)):
            if wrong := {
                key: (value, event.get(key)) for key, value in given.items() if event.get(key) != value
            }:
                yield f"item {item}: (expected, got) = {wrong}"


def layout_problems(ruleset: RuleSet) -> list[str]:
    """Find samples of layouts and wrappers that do not parse to `gives`, and missing samples."""
    parser, found = Parser(ruleset), []
    entries: list[Layout | Wrapper] = [*ruleset.layouts, *ruleset.wrappers]
    for entry in entries:
        where = f"{BUILT_IN if entry.built_in else 'layouts.toml'} [{entry.name}]"
        if entry.built_in and not entry.samples:
            found.append(f"{where}: no sample")
        for number, sample in enumerate(entry.samples, 1):
            record = parser.record(sample["line"])
            expected = {"layout": entry.name, "fits": True} if isinstance(entry, Layout) else {"fits": True}
            expected |= sample.get("gives", {})
            if unknown := set(sample) - {"line", "gives"}:
                found.append(f"{where} sample {number}: unknown key {', '.join(sorted(unknown))}")
            if record is None:
                found.append(f"{where} sample {number}: the line has no known head")
                continue
            got = {slot: getattr(record, SLOTS.get(slot, slot), None) for slot in expected}
            found += [
                f"{where} sample {number}: {slot} is {got[slot]!r} instead of {value!r}"
                for slot, value in expected.items()
                if got[slot] != value
            ]
    return found


def envelope_problems(entries: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """Find entries that lack a describing key, or whose sample is not recognised under the entry's name."""
    found, learner = [], Learner(Parser())
    for key, entry in entries.items():
        where = f"{ENVELOPES} [{key}]"
        if unknown := set(entry) - {"name", "sample", *ENVELOPE_KINDS}:
            found.append(f"{where}: unknown key {', '.join(sorted(unknown))}")
        if missing := [one for one in ("name", "sample") if not entry.get(one)]:
            found.append(f"{where}: no {' and no '.join(missing)}")
            continue
        if len([one for one in ENVELOPE_KINDS if entry.get(one)]) != 1:
            found.append(f"{where}: give one of {', '.join(ENVELOPE_KINDS)}")
            continue
        try:
            check_dialect(entry.get("prefix", ""), f"{where} prefix")
        except DefinitionError as error:
            found.append(str(error))
            continue
        found += (f"{where}: {problem}" for problem in _of_envelope(entry, learner))
    return found


def _of_envelope(entry: Mapping[str, Any], learner: Learner) -> Iterator[str]:
    """Find what is wrong with how a file of an entry's sample is read."""
    name, sample = entry["name"], entry["sample"]
    if entry.get("prefix"):
        if not re.fullmatch(entry["prefix"], sample):
            yield "`prefix` does not match the whole sample"
            return
        lines = [sample + line for line in IN_ENVELOPES]
    elif "LINE" not in sample:
        yield "the sample has no LINE, the place of a line of a log"
        return
    else:
        lines = [line.replace("LINE", one) for one in IN_ENVELOPES for line in sample.split("\n")]
    envelope = learner.learn(lines)
    if envelope is None or not envelope.layers:
        yield "no envelope is found in a file of its sample"
    elif not envelope.about.startswith(name):
        yield f"a file of its sample is read as {envelope.about}"
    else:
        reader = EnvelopeReader(learner.headers(envelope), envelope)
        read = [record.log_ident + record.statement for record in (*reader.feed(lines), *reader.close())]
        if lost := [line for line in IN_ENVELOPES if not any(one and one in line for one in read)]:
            yield f"a file of its sample does not give the record {lost[0]!r}"


def word_problems(words: Mapping[str, Mapping[str, str]]) -> list[str]:
    """Find words of the vocabulary without a known type or a comment."""
    found = []
    for name, word in words.items():
        where = f"schemas/vocabulary.toml [{name}]"
        if not re.fullmatch(r"[a-z][a-z0-9_]*", name):
            found.append(f"{where}: a column name is lower case")
        if word.get("type") not in schemas.SPARK_TYPES:
            found.append(f"{where}: type {word.get('type')!r} is none of {', '.join(schemas.SPARK_TYPES)}")
        if not word.get("comment"):
            found.append(f"{where}: no comment")
        if unknown := set(word) - WORD_KEYS:
            found.append(f"{where}: unknown key {', '.join(sorted(unknown))}")
    return found


def version_problems(digests: Mapping[int, str], digest: str) -> list[str]:
    """Find changed columns without a new version, which audits need to convert stored tables.

    digests: version of the tables -> digest. digest: of the current columns.
    """
    newest = max(digests)
    if digests[newest] == digest:
        return []
    return [
        f"schemas/__init__.py TABLES_DIGESTS: the columns of the tables are not those of version {newest}. "
        f'Add the line `{newest + 1}: "{digest}",`, or give line {newest} this digest if it is not on the main branch yet. '
        "Every table of an earlier version is then converted by its next audit, which needs Java for it"
    ]


def machine_problems(
    machines: Mapping[str, tuple[str, ...]], moves: Iterable[schemas.LegalMove]
) -> list[str]:
    """Find moves with unknown states, repeated states and moves, and a `since` that is no version."""
    found = []
    for machine, states in machines.items():
        twice = sorted({state for state in states if states.count(state) > 1})
        found += [f"schemas/machines/{machine}.toml: state {state} is listed twice" for state in twice]
    seen = set()
    for move in moves:
        where = f"schemas/machines/{move.machine}.toml"
        named = f"{move.from_state} -> {move.to_state}"
        for state in dict.fromkeys((move.from_state, move.to_state)):
            if state not in machines.get(move.machine, ()):
                found.append(f"{where}: {named}: there is no state {state}")
        if (move.machine, move.from_state, move.to_state) in seen:
            found.append(f"{where}: {named} is listed twice")
        seen.add((move.machine, move.from_state, move.to_state))
        if not VERSION.fullmatch(str(move.since)):
            found.append(f"{where}: {named}: since = {move.since!r} is no version")
    return found


def check_problems(checks: Iterable[schemas.Statement], known: list[str]) -> list[str]:
    """Find checks with an incomplete header, an unknown severity, or without a column of findings."""
    found = []
    for check in checks:
        where = f"schemas/checks/{check.name}.sql"
        found += [f"{where}: no `-- {key}:` at its head" for key in CHECK_HEADER if not check.header.get(key)]
        severity = check.header.get("severity")
        if severity and severity not in known:
            found.append(f"{where}: severity {severity} is none of {', '.join(known)}")
        if check.header.get("episodes", "yes") != "yes":
            found.append(f"{where}: episodes: is yes, or left out")
        harm = check.header.get("harm")
        if harm and harm not in schemas.HARMS:
            found.append(f"{where}: harm {harm} is none of {', '.join(schemas.HARMS)}")
        called = _thresholds_of(check)
        if check.listed("thresholds") != called:
            found.append(
                f"{where}: thresholds: names those that the query calls, {', '.join(sorted(called)) or 'none'}"
            )
        states = {move.to_state for move in schemas.moves()}
        if nothing := check.listed("only") - {
            *EPISODES,
            *INPUTS,
            *INPUT_TABLES,
            *INPUT_FACTS,
            *states,
            *(rule.name for rule in built_in().rules),
        }:
            found.append(
                f"{where}: only: no event type, episode, state or kind of input is called {', '.join(sorted(nothing))}"
            )
        if unknown := set(check.header) - {
            *CHECK_HEADER,
            "also",
            "candidates",
            "episodes",
            "facts",
            "levels",
            "only",
            "optional",
            "silence",
            "thresholds",
        }:
            found.append(f"{where}: unknown header {', '.join(sorted(unknown))}")
        for part in sorted(check.listed("candidates")):
            try:
                check.part(part)
            except ValueError as error:
                found.append(f"{where}: candidates: {error}")
        if "TODO" in check.sql:
            found.append(f"{where}: TODO: replace the TODO of the template")
        body = re.sub(r"--[^\n]*", "", check.sql)
        if UNORDERED.search(body):
            found.append(
                f"{where}: a slice of an unsorted collect_list: sort it, or each run names other records"
            )
        if BY_HASH.search(body):
            found.append(
                f"{where}: records in the order of their ids, which are hashes: take earliest_records"
            )
        found += [f"{where}: {text}" for text in _clock_problems(body)]
        found += [f"{where}: {text}" for text in _coverage_problems(check, body)]
        found += column_problems(check)
        given = {name for name in CHECK_ALSO if re.search(rf"(?:\bAS |\w\.){name}\b", body)}
        if check.listed("also") != given:
            found.append(f"{where}: also: names those of {', '.join(CHECK_ALSO)} that the query gives")
        absent = [name for name in CHECK_COLUMNS if not re.search(rf"\b{name}\b", body)]
        if absent:
            found.append(f"{where}: the query does not give {', '.join(absent)}")
    return found


def _thresholds_of(one: schemas.Statement) -> set[str]:
    """Return the thresholds that a query calls, including those of the facts that it reads."""
    body = re.sub(r"--[^\n]*", "", one.sql)
    called = {name for name in schemas.thresholds() if re.search(rf"\b{name}\(", body)}
    return called.union(
        *(
            _thresholds_of(fact)
            for fact in schemas.statements("facts")
            if fact != one and _reads(body, fact.name)
        )
    )


def _reads(body: str, table: str) -> bool:
    return re.search(rf"\b(?:FROM|JOIN) {table}\b", body) is not None


def wording_problems(checks: Sequence[schemas.Statement], words: Mapping[str, wording.Wording]) -> list[str]:
    """Find templates that do not fit the facts, facts that no template uses, private words and long texts."""
    found = []
    names = {check.name for check in checks}
    found += [
        f"schemas/checks/{name}.sql: no wording: add schemas/checks/{name}.md"
        for name in sorted(names - words.keys())
    ]
    found += [
        f"schemas/checks/{name}.md: no query: add schemas/checks/{name}.sql"
        for name in sorted(words.keys() - names)
    ]
    for check in checks:
        if (of_check := words.get(check.name)) is None:
            continue
        where, facts = f"schemas/checks/{check.name}.md", check.listed("facts")
        if unknown := facts - _outer_columns(check.sql):
            found.append(
                f"schemas/checks/{check.name}.sql: facts: the query gives no {', '.join(sorted(unknown))}"
            )
        used: set[str] = set()
        for name in wording.TEMPLATES:
            wrong, names_of_it = wording.problem(
                getattr(of_check, name), {*facts, *wording.COLUMNS, *wording.MODE, *wording.known_commands()}
            )
            used |= names_of_it
            found += [f"{where}: {name}: {wrong}"] if wrong else []
        if unused := facts - used:
            found.append(f"{where}: no template names the fact {', '.join(sorted(unused))}")
        found += [f"{where}: {text}" for text in _style_problems(of_check)]
        documented = " ".join(check.header.get(key, "") for key in DOCUMENTED)
        found += [
            f"schemas/checks/{check.name}.sql: its header: {text}" for text in _private_words(documented)
        ]
    return found


def _outer_columns(sql: str) -> set[str]:
    """Return the columns of a query, empty where it is none."""
    try:
        query = sqlglot.parse_one(sql, read="spark")
    except SqlglotError:
        return set()
    return set(query.named_selects) if isinstance(query, exp.Query) else set()


def _private_words(text: str) -> Iterator[str]:
    for word, better in schemas.private_words().items():
        if re.search(rf"\b{word}\b", text, re.IGNORECASE):
            yield f"write {better} instead of {word}"


def _style_problems(words: wording.Wording) -> Iterator[str]:
    """Find private words, and long titles and sentences."""
    texts = {
        "name": words.name,
        "why": words.why,
        **{name: wording.plain(getattr(words, name)) for name in wording.TEMPLATES},
    }
    for name, text in texts.items():
        if "TODO" in text:
            yield f"{name}: TODO: replace the TODO of the template"
        yield from (f"{name}: {problem}" for problem in _private_words(text))
    if len(words.name) > NAME_LENGTH:
        yield f"name: longer than {NAME_LENGTH} characters"
    for name in ("why", "advice"):
        for sentence in re.split(r"(?<=[.;:])\s", re.sub(r"`[^`]*`", "command", texts[name])):
            if len(sentence.split()) > SENTENCE_WORDS:
                yield f"{name}: a sentence of more than {SENTENCE_WORDS} words: {sentence[:60]} …"


def command_problems(
    commands: Mapping[str, wording.Command], words: Mapping[str, wording.Wording]
) -> list[str]:
    """Find commands of Kafka whose versions are not in order, or that no advice uses."""
    found = []
    used = set().union(*(wording.problem(of_check.advice, ())[1] for of_check in words.values()))
    for name, command in commands.items():
        where = f"schemas/commands.toml [{name}]"
        for forms in (command.kraft, command.zookeeper):
            versions = [tuple(map(int, since.split("."))) for since, _ in forms]
            if versions != sorted(set(versions)) or not versions or versions[0] != (0,):
                found.append(f"{where}: the first form is since 0, each further one since a later version")
        if name not in used:
            found.append(f"{where}: no advice names it")
    return found


def threshold_problems(
    limits: Mapping[str, schemas.Limit], queries: Sequence[schemas.Statement]
) -> list[str]:
    """Find thresholds without a meaning, without their unit in the name, or that no query calls.

    queries: checks and facts.
    """
    found = []
    called = set().union(*map(_thresholds_of, queries))
    for name, limit in limits.items():
        where = f"schemas/thresholds.toml [{name}]"
        if type(limit.default) is not int or limit.default < 0:
            found.append(f"{where}: default is a whole number from 0 on")
        if not limit.meaning.endswith(".") or not limit.unit:
            found.append(f"{where}: give a unit, and a meaning that is a sentence")
        ending = (
            "_per_hour" if limit.unit.endswith("within one hour") else f"_{UNITS.get(limit.unit, limit.unit)}"
        )
        if not name.endswith(ending):
            found.append(
                f"{where}: the name ends with its unit, {ending}; with _per_hour if the unit ends with 'within one hour'"
            )
        if name not in called:
            found.append(f"{where}: no check or fact calls it")
    return found


def _clock_problems(body: str) -> Iterator[str]:
    """Find what is wrong with how a query reads `clocks`, the end of each cluster's logs.

    body: a query without comments.
    """
    for alias in sorted(set(re.findall(r"\bJOIN clocks (\w+)", body))):
        if not re.search(
            rf"\b{alias}\.(?:now|incarnation|version_number|kafka_version)\b",
            body.replace(f"{alias}.cluster", ""),
        ):
            yield "it joins clocks and reads neither its moment nor its incarnation nor its version"
        lasts = re.search(rf"coalesce\([\w.]+, (?:max\()?{alias}\.now\b|\b{alias}\.now AS last_seen\b", body)
        if lasts and f"{alias}.incarnation" not in body:
            yield "a finding that lasts until the end of the logs may be of an earlier incarnation: join clocks by incarnation, too"


def _coverage_problems(check: schemas.Statement, body: str) -> Iterator[str]:
    """Find what is wrong with the coverage that a check names. body: its query without comments."""
    try:
        kinds = check.needs.kinds
    except ValueError as error:
        if check.header.get("needs"):
            yield f"needs: {error}"
        return
    if kinds == ("partition",) and "partition_episodes" not in body:
        yield "needs: only partition_episodes enforces `partition`, and the query does not read it"
    is_silent = "lines" in kinds and ABSENCE.search(body) is not None
    if is_silent and not check.header.get("silence"):
        yield "it concludes from absence (an anti join, NOT EXISTS, a missing end): name the logs that it needs, or say under `silence` why missing lines raise no finding"
    if check.header.get("silence") and not is_silent:
        yield "silence: the query concludes nothing from absence"
    if "by_absence" in check.listed("also") and all(
        schemas.coverage()[kind].condition is None for kind in kinds
    ):
        yield "also: by_absence marks findings that need coverage, and the check needs none"


@cache
def filled_columns() -> dict[str, tuple[frozenset[str], frozenset[str]]]:
    """Return event type -> columns that its rule may fill, and those that it fills in all samples.

    node is always filled: a line without one has that of its file.
    """
    parser, found = Parser(built_in()), dict[str, tuple[frozenset[str], frozenset[str]]]()
    for rule in built_in().rules:
        samples = []
        for sample in rule.samples:
            record = parser.record(sample["line"])
            for event in parser.events(record) if record is not None else ():
                samples.append({name for name, value in event.items() if value is not None})
        some = frozenset({"node", *rule.columns, *rule.implies}.union(*samples))
        found[rule.name] = some, frozenset({"node"}.union(set.intersection(*samples) if samples else ()))
    return found


def column_problems(check: schemas.Statement) -> list[str]:
    """Find columns of `events` that a query reads and its event types do not fill.

    A column that it requires must be filled by all of them. Only a SELECT from audited_events alone is
    checked, if it names its event types: `event_type = 'a'`, `event_type IN ('a', 'b')`.
    """
    where, filled, words = f"schemas/checks/{check.name}.sql", filled_columns(), schemas.vocabulary().keys()
    found = []
    try:
        query = sqlglot.parse_one(check.sql, read="spark")
    except SqlglotError as error:
        return [f"{where}: not a query: {str(error).splitlines()[0]}"]
    for select in query.find_all(exp.Select):
        tables = [table.name for table in select.find_all(exp.Table) if table.parent_select is select]
        condition = select.args.get("where")
        if tables != ["audited_events"] or condition is None:
            continue
        conjuncts = (
            list(condition.this.flatten()) if isinstance(condition.this, exp.And) else [condition.this]
        )
        named = next((types for one in conjuncts if (types := _event_types(one))), None)
        if named is None or not named <= filled.keys():
            continue
        for one in conjuncts:
            if (
                isinstance(one, exp.Not)
                and isinstance(one.this, exp.Is)
                and isinstance(one.this.this, exp.Column)
            ):
                column = one.this.this.name
                lacking = sorted(name for name in named if column in words and column not in filled[name][1])
                if lacking and column not in check.listed("optional"):
                    found.append(
                        f"{where}: {column} IS NOT NULL leaves out lines of {', '.join(lacking)}; name it under `optional` if that is right"
                    )
        read = {
            column.name for column in select.find_all(exp.Column) if column.parent_select is select
        } & words
        missing = sorted(column for column in read if not any(column in filled[name][0] for name in named))
        found += [
            f"{where}: {column} is read of {', '.join(sorted(named))}, and no rule fills it"
            for column in missing
        ]
    return found


def cause_problems(rules: Iterable[schemas.CauseRule], checks: Collection[str]) -> list[str]:
    """Find rules of causes.toml with unknown checks or kinds, and checks that follow from each other."""
    where, found = "schemas/causes.toml", []
    follow: dict[str, set[str]] = defaultdict(set)
    for rule in rules:
        found += [
            f"{where} [{rule.check}]: there is no check {name}"
            for name in sorted({rule.check, *rule.effects} - {*checks})
        ]
        if rule.subject not in CAUSE_SUBJECTS:
            found.append(
                f"{where} [{rule.check}]: subject = {rule.subject!r} is none of {', '.join(CAUSE_SUBJECTS)}"
            )
        if rule.begins not in CAUSE_BEGINS:
            found.append(
                f"{where} [{rule.check}]: begins = {rule.begins!r} is none of {', '.join(CAUSE_BEGINS)}"
            )
        if not rule.reason:
            found.append(f"{where} [{rule.check}]: give a reason")
        follow[rule.check] |= {*rule.effects} - {rule.check}
    for check in sorted(follow):
        reached, left = set[str](), [*follow[check]]
        while left:
            if (name := left.pop()) not in reached:
                reached.add(name)
                left += follow.get(name, ())
        if check in reached:
            found.append(f"{where} [{check}]: it follows from its own effects; remove one of the rules")
    return found


def silence_problems(
    rules: Iterable[Rule], checks: Sequence[schemas.Statement], listed: Mapping[str, Mapping[str, Any]]
) -> list[str]:
    """Find rules of failures that neither a check reads nor `unreported.toml` lists.

    A rule is about a failure if it says `failed`, or has a sample at ERROR or FATAL.
    """
    where, found = "schemas/unreported.toml", []
    groups = {name: group for name, group in listed.items() if name != "states"}
    reasons: dict[str, str] = {}
    for name, group in groups.items():
        if set(group) != {"reason", "events"} or not group["reason"]:
            found.append(f"{where} [{name}]: give a reason and events")
            continue
        for event in group["events"]:
            if event in reasons:
                found.append(f"{where} [{name}]: {event} is listed in [{reasons[event]}], too")
            reasons[event] = name
    texts = [re.sub(r"--[^\n]*", "", one.sql) for one in checks]
    loud = {rule.name for rule in rules if _is_loud(rule)}
    reported = {name for name in loud if any(f"'{name}'" in text for text in texts)}
    found += [
        f"{name} reports a failure and no check reads it: write a check, or list it in {where} with the reason"
        for name in sorted(loud - reported - reasons.keys())
    ]
    found += [
        f"{where} [{reasons[name]}]: {name} feeds a check: remove it"
        for name in sorted(reported & reasons.keys())
    ]
    found += [
        f"{where} [{reasons[name]}]: no rule called {name} reports a failure"
        for name in sorted(reasons.keys() - loud)
    ]
    known = {check.name for check in checks}
    found += [
        f"{where} [states] {state}: there is no check {check}"
        for state, check in listed.get("states", {}).items()
        if check not in known
    ]
    return found


def _is_loud(rule: Rule) -> bool:
    return rule.says == "failed" or any(LOUD.search(sample.get("line", "")) for sample in rule.samples)


def _event_types(condition: exp.Expr) -> set[str] | None:
    """Return the event types that a condition names; None where it names none."""
    if isinstance(condition, exp.Paren):
        return _event_types(condition.this)
    if (
        isinstance(condition, exp.EQ)
        and isinstance(condition.this, exp.Column)
        and condition.this.name == "event_type"
    ):
        return {condition.expression.name}
    if (
        isinstance(condition, exp.In)
        and isinstance(condition.this, exp.Column)
        and condition.this.name == "event_type"
    ):
        return {one.name for one in condition.expressions}
    return None


def table_columns() -> dict[str, list[str]]:
    """Return table -> its columns, from schemas/tables."""
    found = {}
    for table in schemas.statements("tables"):
        names: list[str] = []
        for line in table.sql.splitlines():
            if line.startswith("{vocabulary}"):
                names += schemas.vocabulary()
            elif column := re.match(r"  (\w+) [A-Z]", line):
                names.append(column.group(1))
        found[table.name] = names
    return found


def contract_problems(
    contracts: Mapping[str, Mapping[str, Any]], tables: Mapping[str, list[str]]
) -> list[str]:
    """Find contracts about unknown tables and columns, and contracts with wrong rules."""
    found = []
    for table, contract in contracts.items():
        where = f"schemas/contracts/{table}.toml"
        if table not in tables:
            found.append(f"{where}: there is no such table")
            continue
        if unknown := set(contract) - CONTRACT_KEYS:
            found.append(f"{where}: unknown key {', '.join(sorted(unknown))}")
        for column in [*contract.get("key", ()), *contract.get("values", {})]:
            if column not in tables[table]:
                found.append(f"{where}: the table has no column {column}")
        for column, values in contract.get("values", {}).items():
            if not values or len(values) != len(set(values)):
                found.append(f"{where}: values.{column} is empty or names a value twice")
        words = [rule.get("words", "") for rule in contract.get("rules", ())]
        for name in sorted({name for name in words if words.count(name) > 1}):
            found.append(f"{where}: two rules have the words {name!r}")
        for rule in contract.get("rules", ()):
            found += [f"{where}: {problem}" for problem in _table_rule_problems(rule, set(contracts))]
    return found


def _table_rule_problems(rule: Mapping[str, Any], tables: Collection[str]) -> list[str]:
    """Find a rule without words or a query, and a query that does not read the validated rows."""
    if set(rule) - {"shows"} != {"words", "violations"} or not rule["words"]:
        return ["a rule has `words` and `violations`, and it may have `shows`"]
    read = set(re.findall(r"\{(\w+)\}", rule["violations"]))
    found = [] if "batch" in read else [f"the query of {rule['words']!r} does not read {{batch}}"]
    if unknown := read - {"batch", *tables}:
        found.append(
            f"the query of {rule['words']!r} reads {', '.join(sorted(unknown))}, which has no contract"
        )
    return found
