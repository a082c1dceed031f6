"""Rules to Spark columns: one header match, one dispatch and one replace a record, nothing on executors but built-ins.

The regex captures, the replacement lays out the row: every rule rewrites its statement to the same slots, joined by U+0001,
so that one `split` and one cast a column serve all rules. `spark.sql.codegen.hugeMethodLimit=8000` keeps it compiled.
"""

from collections.abc import Iterable, Sequence

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

import schemas
from parsers.layouts import Layout
from parsers.patterns import SEPARATOR, capture_numbers, group_names, replacement, to_java
from parsers.rules import ITEMS, Rule, RuleSet, logger_key

HEADER_SLOTS = ("layout", "ts_text", "level", "logger", "thread", "speaker", "statement")
SPEAKER_SLOTS = ("node", "controller", "controller_epoch", "topic", "partition")
THROWABLE = r"(?m)^(?:Caused by: )?([\w.$]+\.[\w$]*(?:Exception|Error|Throwable)[\w$]*)(?:: (.*))?$"
_ESC = "\x1b"


def _whole(pattern: str) -> str:
    return rf"(?s)\A(?:{to_java(pattern)})\z"


def _header_replacement(layout: Layout, pattern: str) -> str:
    numbers = capture_numbers(pattern)

    def slot(name: str) -> str:
        return f"${numbers[name]}" if name in numbers else ""

    ts = ""
    if "date" in numbers:
        ts = slot("date") + " " + slot("clock") + ("." + slot("fraction") if "fraction" in numbers else "") + slot("zone")
    elif "epoch_ms" in numbers:
        ts = slot("epoch_ms")
    cells = [layout.name, ts, slot("level"), layout.logger or slot("logger"), slot("thread"), slot("speaker"), slot("statement")]
    return SEPARATOR.join(cells)


def clean(line: Column) -> Column:
    """A line without what no log prints but crashes and terminals leave: NUL padding, colours, CR, our own separator."""
    odd = line.contains("\x00") | line.contains(SEPARATOR) | line.contains(_ESC)
    plain = F.regexp_replace(line, "[\\x00\\x01]|\\x1B\\[[0-9;]*[A-Za-z]", "")
    return F.rtrim(F.when(odd, plain).otherwise(line), F.lit("\r"))


def is_head(line: Column, layouts: Iterable[Layout]) -> Column:
    """Whether a line begins a record in one of the layouts."""
    found = F.lit(False)
    for layout in layouts:
        found = found | line.rlike(rf"\A(?:{to_java(layout.head)})")
    return found


def header(head: Column, raw: Column, has_tail: Column, layouts: Iterable[Layout]) -> Column:
    """ARRAY<STRING> of HEADER_SLOTS for a record, or of one element where no layout fits the whole of it.

    head: the record's first line; raw: all its lines; has_tail: whether there are more than one.
    """
    cases = F.lit(None).cast("string")
    for layout in reversed(list(layouts)):
        one_line = F.regexp_replace(head, _whole(layout.line), _header_replacement(layout, layout.line))
        spanning = F.regexp_replace(raw, _whole(layout.record), _header_replacement(layout, layout.record))
        begins = head.rlike(rf"\A(?:{to_java(layout.head)})")
        cases = F.when(begins, F.when(has_tail, spanning).otherwise(one_line)).otherwise(cases)
    return F.split(cases, SEPARATOR)


def quoted(text: str) -> str:
    """A Spark SQL string literal. Hundreds of branches are built as SQL text: as Column calls they take seconds."""
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


def _case(branches: Iterable[tuple[str, str]], otherwise: str = "CAST(NULL AS STRING)") -> str:
    """One flat CASE; nested ones overflow the analyzer's stack."""
    cases = " ".join(f"WHEN {condition} THEN {value}" for condition, value in branches)
    return f"CASE {cases} ELSE {otherwise} END" if cases else otherwise


def _rewritten(column: str, pattern: str, layout: str) -> str:
    return f"regexp_replace({column}, {quoted(pattern)}, {quoted(layout)})"


def speaker_slots(speaker: str, ruleset: RuleSet) -> Column:
    """ARRAY<STRING> of SPEAKER_SLOTS for the column `speaker`; null where the speaker is not known."""
    branches = []
    for entry in ruleset.speakers:
        numbers = capture_numbers(entry.pattern)
        if entry.is_controller:
            numbers = {"controller": numbers["node"]} | numbers
        layout = SEPARATOR.join(f"${numbers[slot]}" if slot in numbers else "" for slot in SPEAKER_SLOTS)
        pattern = _whole(entry.pattern)
        branches.append((f"{speaker} RLIKE {quoted(pattern)}", _rewritten(speaker, pattern, layout)))
    return F.when(F.col(speaker) != "", F.split(F.expr(_case(branches)), SEPARATOR))


def rule_slots() -> tuple[str, ...]:
    """Slots that every rule fills, in order."""
    return ("event_type", "says", *schemas.vocabulary(), ITEMS)


def statement_slots(statement: str, ruleset: RuleSet) -> Column:
    """ARRAY<STRING> of rule_slots() for the column `statement`; null: no rule knows it; of one element: drift.

    Two dispatches, each a flat CASE: by the first character, then by the literal that the statement begins with.
    """
    anywhere = [rule for rule in ruleset.rules if "" in rule.starts]
    others = [rule for rule in ruleset.rules if "" not in rule.starts]
    branches = []
    for char in sorted({start[0] for rule in others for start in rule.starts}):
        rules = [rule for rule in others if any(start[0] == char for start in rule.starts)]
        branches.append((f"substring({statement}, 1, 1) = {quoted(char)}", _claimed(statement, rules)))
    return F.split(F.expr(f"coalesce({_case(branches)}, {_claimed(statement, anywhere)})"), SEPARATOR)


def _claimed(statement: str, rules: list[Rule]) -> str:
    """The statement laid out by the first of the rules that claims it; unchanged where its pattern does not match."""
    branches = []
    for rule in rules:
        claims = " OR ".join(f"startswith({statement}, {quoted(start)})" for start in rule.starts)
        if rule.contains is not None:
            claims = f"({claims}) AND contains({statement}, {quoted(rule.contains)})"
        marks = {name: _as_text(value) for name, value in rule.implies.items()}
        marks |= {"event_type": rule.name, "says": rule.says}
        branches.append((claims, _rewritten(statement, _whole(rule.pattern), replacement(rule.pattern, rule_slots(), marks))))
    return _case(branches)


def _as_text(value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return str(value)


def item_slots(event_type: str, items: str, ruleset: RuleSet) -> Column:
    """ARRAY<STRING>: each item of a record that names many, its columns joined by U+0001; null for all other records."""
    names = tuple(schemas.vocabulary())
    by_pattern: dict[str, list[str]] = {}
    for rule in ruleset.rules:
        if rule.each is not None:
            by_pattern.setdefault(rule.each.pattern, []).append(rule.name)
    branches = []
    for source, rules in by_pattern.items():
        pattern = f"(?s){to_java(source)}"
        found = f"regexp_extract_all({items}, {quoted(pattern)}, 0)"
        laid_out = f"transform({found}, item -> {_rewritten('item', pattern, replacement(source, names))})"
        branches.append((f"{event_type} IN ({', '.join(map(quoted, rules))})", laid_out))
    return F.when(F.col(items) != "", F.expr(_case(branches, "CAST(NULL AS ARRAY<STRING>)")))


def typed(text: Column, kind: str) -> Column:
    """A captured text as the vocabulary's type; null where it is empty or does not fit."""
    if kind == "string":
        return F.nullif(text, F.lit(""))
    if kind == "int_list":
        ids = F.regexp_extract_all(F.regexp_replace(text, r"brokerEpoch=-?\d+", ""), F.lit(r"-?\d+"), F.lit(0))
        return F.when(text != "", F.array_compact(ids.try_cast("array<int>")))
    # an empty text first: under ANSI, try_cast of it throws and catches, a hundred times slower than a comparison
    return F.nullif(text, F.lit("")).try_cast(kind)


def parse(records: DataFrame, ruleset: RuleSet, layouts: Sequence[Layout]) -> DataFrame:
    """Headers.

    in: any columns, with `head` (first line), `raw` (whole record), `tail` (lines after the first, or null).
    out: the same without `head`, plus layout, ts_text, level, logger, thread, statement, in_scope, and spoken ARRAY<STRING> of
    SPEAKER_SLOTS (null where the speaker is not known). A record of which no layout takes the whole has a null logger and is in
    scope: it is kept and counted.
    """
    kept = [name for name in records.columns if name != "head"]
    split = records.select(*kept, header(F.col("head"), F.col("raw"), F.col("tail").isNotNull(), layouts).alias("h"))
    fits = F.size("h") == len(HEADER_SLOTS)
    printed = {name: F.when(fits, F.nullif(F.get("h", F.lit(n)), F.lit(""))) for n, name in enumerate(HEADER_SLOTS)}
    if counted := [layout.name for layout in layouts if layout.epoch_ms]:
        moment = F.timestamp_millis(printed["ts_text"].try_cast("bigint"))
        in_utc = F.date_format(moment, "yyyy-MM-dd HH:mm:ss.SSS'Z'")
        printed["ts_text"] = F.when(printed["layout"].isin(counted), in_utc).otherwise(printed["ts_text"])
    named = split.select(*kept, *[column.alias(name) for name, column in printed.items()])
    class_name = F.regexp_replace(F.element_at(F.split("logger", r"\."), -1), r"\$+$", "")
    key = F.when(F.col("logger").endswith("state.change.logger"), F.lit("state.change.logger")).otherwise(class_name)
    in_scope = F.col("logger").isNull() | key.isin(*sorted(logger_key(name) for name in ruleset.loggers))
    spoken = speaker_slots("speaker", ruleset)
    shown = [name for name in HEADER_SLOTS if name != "speaker"]
    return named.select(*kept, *shown, in_scope.alias("in_scope"), spoken.alias("spoken"))


def spoken_node() -> Column:
    """INT: the node that the speaker names, of the column `spoken`."""
    return F.nullif(F.get("spoken", F.lit(0)), F.lit("")).try_cast("int")


def say(parsed: DataFrame, ruleset: RuleSet) -> DataFrame:
    """What records say.

    in: the output of `parse` (records in scope).
    out: the same without spoken and statement, plus item INT, event_type, says, drifted BOOLEAN, every column of the vocabulary,
    error_class, error_message. One row an item.
    """
    words = schemas.vocabulary()
    kept = [name for name in parsed.columns if name not in {"spoken", "statement"}]
    slot_of = {name: number for number, name in enumerate(rule_slots())}
    sliced = parsed.select(*kept, F.col("spoken").alias("s"), statement_slots("statement", ruleset).alias("r"))
    known = F.size("r") == len(rule_slots())
    judged = sliced.select(
        *kept, "s",
        F.when(known, F.slice("r", 1, len(rule_slots()) - 1)).alias("r"),
        (F.col("r").isNotNull() & ~known).alias("drifted"),
        F.when(known, F.get("r", F.lit(0))).alias("event_type"),
        F.when(known, F.get("r", F.lit(slot_of[ITEMS]))).alias("listed"),
    )  # fmt: skip
    exploded = judged.select(
        *kept, "s", "r", "drifted", "event_type",
        F.posexplode_outer(item_slots("event_type", "listed", ruleset)).alias("item", "i"),
    )  # fmt: skip
    split = exploded.select(*kept, "s", "r", "drifted", "event_type", "item", F.split("i", SEPARATOR).alias("i"))
    listed = {name for rule in ruleset.rules if rule.each for name in group_names(rule.each.pattern)}
    spoken = {name: F.get("s", F.lit(number)) for number, name in enumerate(SPEAKER_SLOTS)}
    columns = []
    for number, (name, word) in enumerate(words.items()):
        texts = [F.get("i", F.lit(number))] if name in listed else []
        texts += [F.get("r", F.lit(slot_of[name]))] + ([spoken[name]] if name in spoken else [])
        text = F.coalesce(*[F.nullif(one, F.lit("")) for one in texts]) if len(texts) > 1 else texts[0]
        columns.append(typed(text, word["type"]).alias(name))
    thrown = F.col("tail").isNotNull()
    return split.select(
        *kept,
        F.coalesce("item", F.lit(0)).cast("int").alias("item"),
        "event_type",
        F.get("r", F.lit(slot_of["says"])).alias("says"),
        "drifted",
        *columns,
        F.when(thrown, F.nullif(F.regexp_extract("tail", THROWABLE, 1), F.lit(""))).alias("error_class"),
        F.when(thrown, F.nullif(F.regexp_extract("tail", THROWABLE, 2), F.lit(""))).alias("error_message"),
    )
