"""Changes that opening the tables makes in them, decided before anything is written. Pure: no engine, no I/O.

Each table carries the version of the tables that it belongs to as a property. A table without the property is
of version 0. Changes are made in an order that survives an interruption at any point: the next opening finds
what is left to do.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

import schemas
from jobs.batches.rereading import OF_RECORD
from jobs.engine.literals import quoted
from jobs.errors import UsageError

# property of a table: the version of the tables that wrote it
VERSION = "kafka_audit.tables_version"
# prefix of the properties in which Delta keeps the conditions of CHECK constraints
CONSTRAINT = "delta.constraints."
# property of `cluster_facts`: derived tables were emptied, and the run that rebuilds them has not ended yet
REBUILDING = "kafka_audit.rebuilding"
# properties of `cluster_facts`: hashes of the rules that `events` was read with; loggers that these rules
# brought into scope
RULES = "kafka_audit.rules"
SKIPPED = "kafka_audit.skipped_loggers"
# likewise: clusters whose events other rules have changed and whose derived tables may not be rebuilt yet
STALE = "kafka_audit.stale_clusters"
# the table that every rebuild starts from, and the tables that it resets first
FACTS = "cluster_facts"
EVENTS = "events"


@dataclass(frozen=True)
class Present:
    """A table that is there.

    columns: name -> type, as Spark prints it. by: columns that it is partitioned by; None: not looked up.
    """

    columns: Mapping[str, str]
    properties: Mapping[str, str]
    by: tuple[str, ...] | None = None

    @property
    def version(self) -> int:
        """Return the version of the tables that it belongs to."""
        found = self.properties.get(VERSION, "0")
        return int(found) if found.isdecimal() else 0

    def missing(self, table: str) -> dict[str, str]:
        """Return the columns of this version that it lacks."""
        return {name: kind for name, kind in schemas.columns(table).items() if name not in self.columns}

    def differing(self, table: str) -> dict[str, tuple[str, str]]:
        """Column -> (its type, the type of this version), where they are not the same."""
        kinds = {
            name: (self.columns[name], kind)
            for name, kind in schemas.columns(table).items()
            if name in self.columns
        }
        return {name: pair for name, pair in kinds.items() if _plain(pair[0]) != _plain(pair[1])}

    def lacks(self, table: str) -> dict[str, str]:
        """Properties of this version that it lacks."""
        return {key: value for key, value in properties(table).items() if self.properties.get(key) != value}


def _plain(kind: str) -> str:
    return kind.replace(" ", "").upper()


def properties(table: str) -> dict[str, str]:
    """Properties of a table of this version, CHECK constraints among them."""
    constraints = {CONSTRAINT + name: condition for name, condition in schemas.constraints(table).items()}
    return schemas.properties(table) | {VERSION: str(schemas.TABLES_VERSION)} | constraints


@dataclass(frozen=True)
class Plan:
    """The changes that opening makes, in this order.

    rebuilds    `cluster_facts` is marked and emptied: all timelines are rebuilt from `events`
    emptied     derived tables that have other columns; `passed_over`, where the ids of its records are others
    reread      `events` of an earlier version, where anything has other columns: the text of its records is
                read again, so that it has what
                the rules of this version say of it, and the ids of this version
    added       table -> columns that it lacks
    created     tables that are missing
    stamped     table -> properties that it lacks; last, so that an interrupted opening goes on
    """

    rebuilds: bool = False
    emptied: tuple[str, ...] = ()
    reread: tuple[str, ...] = ()
    added: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    created: tuple[str, ...] = ()
    stamped: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    # older versions among the tables; empty: none
    older: tuple[int, ...] = ()
    # table -> number of duplicate rows that were removed
    doubled: Mapping[str, int] = field(default_factory=dict)

    def sentences(self) -> list[str]:
        """Return what was done, for people."""
        found = []
        if self.older:
            found.append(
                f"The tables were of version {self.older[0]} and are of version {schemas.TABLES_VERSION} now."
            )
        if self.reread:
            found.append(f"The text of all records in {_listed(self.reread)} was read again.")
        if "passed_over" in self.emptied:
            found.append(
                "The counts of records out of scope start again: audit the old logs once more to have them."
            )
        if self.added:
            found.append(f"Columns were added to {_listed(self.added)}.")
        for table, rows in self.doubled.items():
            found.append(f"{rows:,} rows of {table} stood twice and were removed.")
        if self.rebuilds:
            found.append("Timelines, and all tables derived from them, were rebuilt from events.")
        return found


def _listed(names: Collection[str]) -> str:
    *some, last = sorted(names)
    return f"{', '.join(some)} and {last}" if some else last


def decide(there: Mapping[str, Present], root: str) -> Plan:
    """Return what has to change.

    Raises UsageError where tables are of a newer version or cannot be converted; then nothing may change.
    """
    if newer := {name: one.version for name, one in there.items() if one.version > schemas.TABLES_VERSION}:
        raise UsageError(
            f"The tables under {root} are of version {max(newer.values())} ({_listed(newer)}), this kafka-audit knows version "
            f"{schemas.TABLES_VERSION}. Nothing was changed. Use the newer kafka-audit, or give --tables another folder"
        )
    definitions = {one.name: one.header for one in schemas.statements("tables")}
    derived = {name for name, header in definitions.items() if header.get("derived") == "yes"}
    # rows of `passed_over` are identified by the ids of records
    has_other_ids = any(
        header.get("needs") in there[name].missing(name)
        for name, header in definitions.items()
        if name in there
    )
    emptied = ["passed_over"] if has_other_ids and "passed_over" in there else []
    added: dict[str, Mapping[str, str]] = {}
    for name, one in there.items():
        missing, other = one.missing(name), one.differing(name)
        if name in derived:
            if missing or other or one.by not in (None, tuple(schemas.partition_columns(name))):
                emptied.append(name)
        elif other and name not in emptied:
            others = ", ".join(
                f"{column} {kind} instead of {wanted}" for column, (kind, wanted) in other.items()
            )
            raise UsageError(
                f"Table {name} under {root} has {others}. Nothing was changed. Give --tables another folder, or convert the column"
            )
        elif missing and name != EVENTS:
            added[name] = missing
    created = [name for name in definitions if name not in there]
    events = there.get(EVENTS)
    rebuilds = (
        (events is not None and bool(events.missing(EVENTS)))
        or bool(derived.intersection(emptied))
        or (events is not None and bool(derived.intersection(created)))
        or (FACTS in there and there[FACTS].properties.get(REBUILDING) == "true")
    )
    is_older = events is not None and (
        events.version < schemas.TABLES_VERSION or bool(events.missing(EVENTS))
    )
    reread = [EVENTS] if rebuilds and is_older else []
    if (
        events is not None
        and reread
        and (lacking := [name for name in (*OF_RECORD, "item", "event_type") if name not in events.columns])
    ):
        raise UsageError(
            f"Table {EVENTS} under {root} has no {_listed(lacking)}, and cannot be converted. Nothing was changed. "
            "Give --tables another folder"
        )
    return Plan(
        rebuilds=rebuilds,
        reread=tuple(reread),
        emptied=tuple(emptied),
        added=added,
        created=tuple(created),
        stamped={name: lacks for name, one in there.items() if (lacks := one.lacks(name))},
        older=tuple(sorted({one.version for one in there.values() if one.version < schemas.TABLES_VERSION})),
    )


def settings(properties: Mapping[str, str]) -> str:
    """Properties as SQL's TBLPROPERTIES lists them."""
    return ", ".join(f"{quoted(key)} = {quoted(value)}" for key, value in properties.items())


def without_constraints(properties: Mapping[str, str]) -> dict[str, str]:
    """Return the properties that SQL may set for a table that is there: Delta adds CHECK constraints to it by
    statements of their own.
    """
    return {key: value for key, value in properties.items() if not key.startswith(CONSTRAINT)}


def constraint_statements(identifier: str, properties: Mapping[str, str]) -> list[str]:
    """Return the statements that give a table the CHECK constraints among some properties.

    A constraint of the same name is replaced.
    """
    conditions = {
        key.removeprefix(CONSTRAINT): value for key, value in properties.items() if key.startswith(CONSTRAINT)
    }
    return [
        f"ALTER TABLE {identifier} {change}"
        for name, condition in conditions.items()
        for change in (f"DROP CONSTRAINT IF EXISTS {name}", f"ADD CONSTRAINT {name} CHECK ({condition})")
    ]
