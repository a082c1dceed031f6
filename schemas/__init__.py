"""Load the definitions of the product: column vocabulary, tables, state machines, checks and views."""

import hashlib
import json
import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib.resources import files
from importlib.resources.abc import Traversable
from typing import Any

# severities of findings, the mildest first
SEVERITIES = ("info", "warning", "error", "critical")
SPARK_TYPES = {
    "int": "INT",
    "bigint": "BIGINT",
    "string": "STRING",
    "boolean": "BOOLEAN",
    "int_list": "ARRAY<INT>",
}

# version of all tables together -> digest of their columns; a changed column is a new version, and lint
# prints its line
TABLES_DIGESTS = {
    2: "d65540235d31e0fe",
}
TABLES_VERSION = max(TABLES_DIGESTS)


def folder(name: str) -> Traversable:
    """Return a data folder of this package, which may be inside a zip."""
    return files(__name__).joinpath(name)


@cache
def vocabulary() -> dict[str, dict[str, str]]:
    """Return column name -> {type, comment} of all values that rules may capture, in column order."""
    return tomllib.loads(files(__name__).joinpath("vocabulary.toml").read_text("utf-8"))


@dataclass(frozen=True)
class Statement:
    """One `.sql` file: its name, the `-- key: value` lines of its head, and its text."""

    name: str
    header: dict[str, str]
    sql: str

    def listed(self, key: str) -> set[str]:
        """Return the names that a head line lists, separated by commas."""
        return {name.strip() for name in self.header.get(key, "").split(",")} - {""}

    @property
    def needs(self) -> "Needs":
        """Return the logs that a check needs; without them it reports nothing or less. Raises ValueError."""
        return needed(self.header.get("needs", ""))

    def part(self, name: str) -> str:
        """Return a query for the rows of a CTE. Raises ValueError where there is none of that name.

        A line `WITH name AS (` or `), name AS (` begins a CTE, and the next line that begins with `)` ends
        it.
        """
        lines = self.sql.splitlines()
        begin = next(
            (n for n, line in enumerate(lines) if re.match(rf"(WITH|\),) {name} AS \($", line)), None
        )
        if begin is None:
            raise ValueError(f"no part of the query is called {name}")
        end = next(n for n in range(begin + 1, len(lines)) if lines[n].startswith(")"))
        return "\n".join([*lines[:end], f") SELECT * FROM {name}"])


@dataclass(frozen=True)
class Coverage:
    """Logs that a conclusion from absence may need (`coverage.toml`).

    condition: over a finding r and its row h of `nodes_heard`; null: enforced elsewhere. lacking: template of
    a sentence for findings without the logs.
    """

    about: str
    condition: str | None = None
    lacking: str | None = None


@cache
def coverage() -> dict[str, Coverage]:
    """Return kind of coverage -> its definition."""
    return {
        name: Coverage(**entry)
        for name, entry in tomllib.loads(files(__name__).joinpath("coverage.toml").read_text("utf-8")).items()
    }


@dataclass(frozen=True)
class Needs:
    """The coverage that a check needs: any of `kinds`.

    otherwise: greatest severity without it; null: no findings without it.
    """

    kinds: tuple[str, ...]
    otherwise: str | None = None


_NEEDS = re.compile(r"(?P<kinds>\w+(?: or \w+)*)(?:, else (?P<otherwise>\w+))?")


def needed(text: str) -> Needs:
    """Parse the head line `needs` of a check: `this_node or controller, else warning`. Raises ValueError."""
    found = _NEEDS.fullmatch(text)
    if found is None:
        raise ValueError("name a kind of coverage; `one or another`, and `, else` a severity may follow")
    kinds = tuple(found["kinds"].split(" or "))
    if unknown := set(kinds) - coverage().keys():
        raise ValueError(
            f"no kind of coverage is called {', '.join(sorted(unknown))}; there are {', '.join(coverage())}"
        )
    if found["otherwise"] not in (None, *SEVERITIES):
        raise ValueError(f"severity {found['otherwise']} is none of {', '.join(reversed(SEVERITIES))}")
    if any(coverage()[kind].condition is None for kind in kinds) and (len(kinds) > 1 or found["otherwise"]):
        raise ValueError(f"{text.split(maxsplit=1)[0]} cannot be combined")
    return Needs(kinds, found["otherwise"])


def parsed(name: str, sql: str) -> Statement:
    """Return the statement in a text.

    A head line `-- key: value` starts an entry, a following `--   more` continues it.
    """
    header: dict[str, str] = {}
    key = ""
    for line in sql.splitlines():
        if not line.startswith("--"):
            break
        if start := re.match(r"-- (\w+): (.*)", line):
            key = start.group(1)
            header[key] = start.group(2).strip()
        elif key:
            header[key] += " " + line.lstrip("- ").strip()
    return Statement(name, header, sql)


@cache
def statements(kind: str) -> tuple[Statement, ...]:
    """Return the `.sql` files of `tables`, `checks`, `facts`, `functions` or `views`, by name."""
    found = []
    for entry in sorted(folder(kind).iterdir(), key=lambda e: e.name):
        if not entry.name.endswith(".sql"):
            continue
        found.append(parsed(entry.name.removesuffix(".sql"), entry.read_text("utf-8")))
    return tuple(found)


@dataclass(frozen=True)
class Limit:
    """A threshold of checks: its default, its unit, and what it limits."""

    default: int
    unit: str
    meaning: str


@cache
def thresholds() -> dict[str, Limit]:
    """Return threshold -> its definition; see thresholds.toml."""
    return {
        name: Limit(**entry)
        for name, entry in tomllib.loads(
            files(__name__).joinpath("thresholds.toml").read_text("utf-8")
        ).items()
    }


# harms of findings to the users of the cluster, the worst first
HARMS = ("loss", "unavailability", "risk", "protocol", "housekeeping")


@cache
def harms() -> dict[str, str]:
    """Return check -> its harm, one of HARMS, from the heads of the checks: `-- harm: loss`."""
    return {check.name: check.header["harm"] for check in statements("checks")}


@cache
def columns(table: str) -> dict[str, str]:
    """Return column name -> SQL type of a table, in order."""
    words = "\n".join(
        f"  {name} {SPARK_TYPES[word['type']]} COMMENT ''," for name, word in vocabulary().items()
    )
    body = _table(table).sql.replace("{vocabulary},", words)
    found = re.findall(r"^  (\w+) ([A-Z]+(?:<.*>)?)(?: NOT NULL)?(?: COMMENT .*)?$", body, re.MULTILINE)
    return {name: kind.strip() for name, kind in found}


def tables_digest() -> str:
    """Return the digest of the columns and partitionings of all tables."""
    tables = {
        one.name: [list(columns(one.name).items()), partition_columns(one.name)]
        for one in statements("tables")
    }
    return hashlib.sha256(json.dumps(tables).encode()).hexdigest()[:16]


def _table(name: str) -> Statement:
    (definition,) = (one for one in statements("tables") if one.name == name)
    return definition


def columns_ddl(table: str) -> str:
    """Return the columns of a table from its definition.

    `{vocabulary}` is the placeholder of those of the vocabulary.
    """
    return _table(table).sql.partition("(\n")[2].partition("\n) USING delta")[0]


def partition_columns(table: str) -> list[str]:
    """Return the columns that a table is partitioned by."""
    found = re.search(r"^PARTITIONED BY \((.*)\)$", _table(table).sql, re.MULTILINE)
    return found.group(1).split(", ") if found else []


def properties(table: str) -> dict[str, str]:
    """Return Delta's properties of a table."""
    found = re.search(r"^TBLPROPERTIES \((.*)\)$", _table(table).sql, re.MULTILINE)
    return dict(re.findall(r"'([^']*)' = '([^']*)'", found.group(1))) if found else {}


def constraints(table: str) -> dict[str, str]:
    """Name -> condition of Delta's CHECK constraints: the values that a column may have.

    Blanks are as Delta's SQL stores them.
    """
    values = contracts()[table].values if table in contracts() else {}
    listed = {column: " , ".join(f"'{one}'" for one in allowed) for column, allowed in values.items()}
    return {
        f"{column}_values": f"{column} IS NULL OR {column} IN ( {some} )" for column, some in listed.items()
    }


def comment(table: str) -> str:
    """Return the comment of a table."""
    return re.search(r"^COMMENT '(.*)'$", _table(table).sql, re.MULTILINE).group(1)  # type: ignore[union-attr]


@dataclass(frozen=True)
class LegalMove:
    """One legal move of a state machine, and the first Kafka version that has it."""

    machine: str
    from_state: str
    to_state: str
    since: str


@cache
def machines() -> dict[str, tuple[str, ...]]:
    """Return machine (`replica`, `partition`) -> its states."""
    return {name: tuple(content["states"]) for name, content in _machine_files().items()}


@cache
def moves() -> tuple[LegalMove, ...]:
    """Return all legal moves of all machines."""
    return tuple(
        LegalMove(machine, before, state, block["since"])
        for machine, content in _machine_files().items()
        for block in content["moves"]
        for state, befores in block.items()
        if state != "since"
        for before in befores
    )


def _machine_files() -> dict[str, dict[str, list]]:
    return {
        entry.name.removesuffix(".toml"): tomllib.loads(entry.read_text("utf-8"))
        for entry in sorted(folder("machines").iterdir(), key=lambda e: e.name)
        if entry.name.endswith(".toml")
    }


def version_number(version: str) -> int:
    """Return a version as a number that can be compared: 2003000 for `2.3.0` and `2.3`.

    0 where there is none.
    """
    found = re.match(r"(\d+)\.(\d+)(?:\.(\d+))?", version)
    return (
        sum(int(part or 0) * scale for part, scale in zip(found.groups(), (10**6, 10**3, 1), strict=True))
        if found
        else 0
    )


@dataclass(frozen=True)
class TableRule:
    """One rule over the rows of a table: its words, and a query in Spark's SQL for violating rows.

    violations: reads {batch}, the validated rows, and all rows of {any_table}; it returns the columns of
    `Contract.shown`.
    shows: further columns that name the violating row.
    """

    words: str
    violations: str
    shows: tuple[str, ...] = ()


@dataclass(frozen=True)
class Contract:
    """The rules of a table besides types and NOT NULL, which Delta enforces.

    key: unique columns; empty: no such rule. values: column -> the values that it may have besides null.
    """

    table: str
    key: tuple[str, ...] = ()
    values: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    rules: tuple[TableRule, ...] = ()

    @property
    def shown(self) -> tuple[str, ...]:
        """Return the columns that name a row: the key, else required columns that are no measurements."""
        kinds = columns(self.table)
        named = [name for name in required(self.table) if kinds[name] in ("STRING", "INT", "BIGINT", "DATE")]
        return self.key or tuple(named[:MOST_SHOWN])


# columns that name a row of a table without a key
MOST_SHOWN = 7


@cache
def required(table: str) -> tuple[str, ...]:
    """Return the columns of a table that are NOT NULL, in order."""
    return tuple(re.findall(r"^  (\w+) [A-Z].*? NOT NULL", _table(table).sql, re.MULTILINE))


@cache
def contract_files() -> dict[str, dict[str, Any]]:
    """Return table -> the content of its file in `contracts`."""
    entries = sorted(folder("contracts").iterdir(), key=lambda entry: entry.name)
    return {
        entry.name.removesuffix(".toml"): tomllib.loads(entry.read_text("utf-8"))
        for entry in entries
        if entry.name.endswith(".toml")
    }


@cache
def contracts() -> dict[str, Contract]:
    """Return table -> its contract."""
    return {
        table: Contract(
            table,
            key=tuple(found.get("key", ())),
            values={column: tuple(values) for column, values in found.get("values", {}).items()},
            rules=tuple(
                TableRule(rule["words"], rule["violations"].strip(), tuple(rule.get("shows", ())))
                for rule in found.get("rules", ())
            ),
        )
        for table, found in contract_files().items()
    }


@cache
def unreported() -> dict[str, dict[str, Any]]:
    """Return why some failures feed no check, and which check reports each state that should end.

    See unreported.toml.
    """
    return tomllib.loads(files(__name__).joinpath("unreported.toml").read_text("utf-8"))


@cache
def private_words() -> dict[str, str]:
    """Return word that texts for users must not use -> its replacement; see private_words.toml."""
    return tomllib.loads(files(__name__).joinpath("private_words.toml").read_text("utf-8"))


@dataclass(frozen=True)
class CauseRule:
    """One `[[cause]]` of causes.toml: findings of `effects` may follow from one of `check`.

    title: glob of the cause's title.
    """

    check: str
    effects: tuple[str, ...]
    subject: str
    begins: str
    reason: str
    slack_seconds: int
    gap_minutes: int
    clock_seconds: int
    title: str = "*"


@cache
def cause_rules() -> tuple[CauseRule, ...]:
    """Return the rules of causes.toml in order.

    Raises TypeError for an unknown key and KeyError for a missing one.
    """
    content = tomllib.loads(files(__name__).joinpath("causes.toml").read_text("utf-8"))
    return tuple(
        CauseRule(**one | {"effects": tuple(one["effects"])}, **content["limits"]) for one in content["cause"]
    )
