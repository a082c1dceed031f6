"""Rules to Spark columns: one header match, one dispatch and one replace a record, nothing on executors but built-ins.

The regex captures, the replacement lays out the row: every rule rewrites its statement to the same slots, joined by U+0001,
so that one `split` and one cast a column serve all rules. `spark.sql.codegen.hugeMethodLimit=8000` keeps it compiled.
"""

import re
from collections.abc import Callable, Iterable, Sequence
from functools import reduce

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import StringType, StructField, StructType

import schemas
from parsers.layouts import (
    EPOCH_INSTANT,
    EPOCH_MILLIS,
    EPOCH_MS,
    EPOCH_SECONDS,
    ISO_WHOLE,
    JSON_SLOTS,
    LEVELS,
    SPEAKER,
    Layout,
    Wrapper,
    wrapping,
)
from parsers.patterns import GROUP, NOT_PRINTED, SEPARATOR, THROWABLE, capture_numbers, group_names, replacement, to_java
from parsers.rules import (
    BEGINNING,
    CUT_STATE_CHANGE,
    ITEMS,
    STATE_CHANGE,
    STATE_CHANGE_SPEAKER,
    Rule,
    RuleSet,
    Speaker,
    logger_key,
)

HEADER_SLOTS = ("layout", "ts_text", "level", "logger", "thread", "speaker", "statement", "thrown")
SPEAKER_SLOTS = ("node", "controller", "controller_epoch", "topic", "partition")
# who says nearly all of state-change.log and controller.log: told together with the header
USUAL_SPEAKERS = ("controller_in_epoch", "broker")
# SPEAKER would take more
_SPEAKS_ON = r"(?:Controller|Broker) \d+ "
_BOM = "\ufeff"
# NUL, our own separator, what a colour begins with: in no line that is as it was printed
_ODD = ("\x00", SEPARATOR, "\x1b")
# what stands before a statement is shorter
LONGEST_HEAD = 700
UNTOLD = "\x02"
# bytes; a longer record stands with its first item only: a LeaderAndIsr request may name 50,000 partitions in 10 MB
LONG_RECORD = 10_000
# of what no rule reads: enough to write one
LONG_STATEMENT = 2_000
OF_OTHERS = 1 << 62
# an ISO time stamp in a header begins before
LONGEST_TIME = 80
DAY = r"\d{4}-\d\d-\d\d"
DAY_LENGTH = 10
# lines of the first layout, which no collector has put anything before
USUAL_BEGINNING = "[2"
# what `clean` leaves as it is, to the end
CLEAN_TO_THE_END = rf"[^{''.join(_ODD)}\r]*+\z"


def _whole(pattern: str) -> str:
    return rf"(?s)\A(?:{to_java(pattern)})\z"


def _begins(pattern: str) -> str:
    return rf"\A(?:{GROUP.sub('(?:', pattern)})"


def _with_speakers(pattern: str, speakers: Iterable[Speaker]) -> str:
    """The pattern of a layout, in which what these speakers tell has groups of its own: `<speaker>_<slot>`."""
    told = "|".join(GROUP.sub(rf"(?<{speaker.name}_\1>", speaker.pattern) + f"(?!{_SPEAKS_ON})" for speaker in speakers)
    return pattern.replace(SPEAKER, f"(?<speaker>(?:{told})|{GROUP.sub('(?:', SPEAKER)})") if told else pattern


def _filled_by(speaker: Speaker) -> dict[str, str]:
    """Slot -> the group of the speaker's pattern that fills it."""
    groups = {name: name for name in group_names(speaker.pattern)}
    return {"controller": "node"} | groups if speaker.is_controller else groups


def _header_replacement(layout: Layout, pattern: str, speakers: Iterable[Speaker]) -> str:
    numbers = capture_numbers(pattern)

    def slot(name: str) -> str:
        return f"${numbers[name]}" if name in numbers else ""

    def told(name: str) -> str:
        return "".join(slot(f"{speaker.name}_{_filled_by(speaker).get(name)}") for speaker in speakers)

    ts = re.sub(r"\{(\w+)\}", lambda found: slot(found[1]), layout.time)
    given = {"logger": layout.logger} if layout.logger else {}
    shown = [given.get(name) or slot(name) for name in HEADER_SLOTS[2:]]
    return SEPARATOR.join([layout.name, ts, *shown, *map(told, SPEAKER_SLOTS)])


def clean(line: Column, wrappers: Sequence[Wrapper] = ()) -> Column:
    """A line without what no layout prints: NUL padding, colours, CR, our own separator, what collectors put before it."""
    odd = reduce(Column.__or__, map(line.contains, _ODD)) | line.startswith(_BOM)
    plain = F.regexp_replace(line, NOT_PRINTED, "")
    if wrappers:
        any_of = "|".join(GROUP.sub("(?:", wrapper.pattern) for wrapper in wrappers)
        # a default line and a line of a stack trace are told by their beginning
        wrapped = ~line.startswith(USUAL_BEGINNING) & ~line.startswith("\t") & line.rlike(rf"\A(?:{any_of})")
        odd = odd | wrapped
        plain = F.regexp_replace(plain, rf"\A{GROUP.sub('(?:', wrapping(wrappers))}", "")
    whole = F.when(odd, plain).otherwise(line)
    return F.when(whole.endswith("\r"), F.rtrim(whole, F.lit("\r"))).otherwise(whole)


def is_head(line: Column, layouts: Iterable[Layout]) -> Column:
    """Whether a line begins a record in one of the layouts."""
    heads = dict.fromkeys(GROUP.sub("(?:", layout.head) for layout in layouts)
    return line.rlike(rf"\A(?:{'|'.join(heads)})") if heads else F.lit(False)


def has_usual(layouts: Sequence[Layout]) -> bool:
    """Whether lines of the first layout can be told by one match, before any other is asked."""
    return "(?<date>" in layouts[0].head and all(layout.built_in for layout in layouts)


def look_at(lines: DataFrame, layouts: Sequence[Layout], closely: bool, wrappers: Sequence[Wrapper] = ()) -> DataFrame:
    """What can be told of lines before their headers are parsed.

    closely: not only at records of the first layout, which is what most logs have and what is told by one match; others have the
    bit OF_OTHERS alone then, and no beginning.
    in: any columns, with `value`, the line as the file has it. out: the same, plus
    plain STRING: the line as `clean` gives it;
    heads BIGINT: bit n: the line may begin a record of layout n; 0: it begins none. Where all layouts are ours, a line that the
    first one's head takes has its bit alone: `that_took` knows which go with it;
    beginning STRING: how the statement begins (BEGINNING characters), as each layout of `heads` reads it, joined by U+0001; UNTOLD
    stands for what only the whole header tells; null where no record begins;
    day DATE: as printed; null where none is, or no record begins.
    """
    first = layouts[0]
    usual = F.lit(None).cast("string")
    if has_usual(layouts):
        pattern = f"{first.head}{GROUP.sub('(?:', SPEAKER)}(?<beginning>.{{0,{BEGINNING}}}).*"
        numbers = capture_numbers(pattern)
        told = f"{SEPARATOR}${numbers['date']}{SEPARATOR}${numbers['beginning']}"
        replaced = F.regexp_replace("value", rf"(?s)\A(?={CLEAN_TO_THE_END})(?:{to_java(pattern)})\z", told)
        usual = once(F.when(F.col("value").startswith(USUAL_BEGINNING), replaced))
    with_usual = lines.select("*", usual.alias("usual"))
    is_usual = F.coalesce(F.col("usual").startswith(SEPARATOR), F.lit(False))
    plain = once(F.when(is_usual, F.col("value")).otherwise(clean(F.col("value"), wrappers)))
    cleaned = with_usual.select("*", plain.alias("plain"))
    line = F.col("plain")
    every = F.lit(OF_OTHERS).cast("bigint")
    found: list[Column] = []
    if closely:
        bits = [F.when(line.rlike(_begins(lay.head)), 1 << n).otherwise(0).cast("bigint") for n, lay in enumerate(layouts)]
        every = reduce(Column.bitwiseOR, bits)
        taken = [F.col("heads").bitwiseAND(F.lit(1 << n)) != 0 for n in range(len(layouts))]
        found = [F.when(took, _beginning(line, layout)) for took, layout in zip(taken, layouts, strict=True)]
    heads = F.when(is_usual, F.lit(1).cast("bigint")).when(is_head(line, layouts), every).otherwise(F.lit(0).cast("bigint"))
    headed = cleaned.select("*", once(heads).alias("heads"))
    other_day = F.regexp_extract(F.substring(line, 1, LONGEST_TIME), DAY, 0)
    day = F.when(is_usual, F.substring("usual", 2, DAY_LENGTH)).when(F.col("heads") != 0, other_day)
    return headed.select(
        *lines.columns,
        "plain",
        "heads",
        F.when(is_usual, F.substring("usual", DAY_LENGTH + 3, BEGINNING))
        .when(F.col("heads") != 0, F.concat_ws(SEPARATOR, *found) if found else F.lit(UNTOLD))
        .alias("beginning"),
        F.nullif(day, F.lit("")).try_cast("date").alias("day"),
    )


def _beginning(line: Column, layout: Layout) -> Column:
    speaker = GROUP.sub("(?:", SPEAKER)
    if layout.json:
        keys = "|".join(re.escape(key.rpartition(".")[2]) for key in layout.json["message"])
        texts = F.regexp_extract_all(line, F.lit(rf'"(?:{keys})" ?: ?"{speaker}([^"]{{0,{BEGINNING}}})'), F.lit(1))
        joined = F.array_join(texts, SEPARATOR)
        return F.when(joined.contains("\\"), UNTOLD).otherwise(joined)
    if layout.bare or layout.logger:
        numbers = capture_numbers(layout.line)
        return F.substring(F.regexp_extract(line, _whole(layout.line), numbers["statement"]), 1, BEGINNING)
    return F.regexp_extract(F.substring(line, 1, LONGEST_HEAD), rf"{_begins(layout.head)}{speaker}(.{{0,{BEGINNING}}})", 1)


def that_took(layouts: Sequence[Layout], heads: int) -> list[Layout]:
    """The layouts that are needed for lines of which `heads` of `look_at`, or-ed, is this."""
    first = layouts[0].head
    return [lay for n, lay in enumerate(layouts) if heads >> n & 1 or (heads & 1 and lay.head.startswith(first))]


def _laid_out(text: Column, layouts: Iterable[Layout], speakers: Sequence[Speaker], spanning: bool) -> Column:
    """The text as the first layout that takes the whole of it lays it out; what is laid out, no further layout takes."""
    for layout in layouts:
        if not layout.json and (whole := layout.record if spanning else layout.line):
            pattern = _with_speakers(whole, speakers)
            text = F.regexp_replace(text, _whole(pattern), _header_replacement(layout, pattern, speakers))
    return text


def header(head: Column, raw: Column, has_tail: Column, layouts: Iterable[Layout], speakers: Iterable[Speaker]) -> Column:
    """ARRAY<STRING> of HEADER_SLOTS and SPEAKER_SLOTS for a record, or of one element (or null) where no layout fits the whole of it.

    head: the record's first line; raw: all its lines; has_tail: whether there are more than one. SPEAKER_SLOTS are filled only where
    one of USUAL_SPEAKERS speaks.
    """
    known = list(layouts)
    speakers = [speaker for speaker in speakers if speaker.name in USUAL_SPEAKERS]
    first = _laid_out(raw, known, speakers, spanning=False)
    laid_out = F.when(has_tail, _laid_out(first, known, speakers, spanning=True)).otherwise(first)
    for layout in reversed(known):
        if layout.json:
            laid_out = F.when(head.startswith("{") & head.rlike(_begins(layout.head)), _json_laid_out(head, layout)).otherwise(
                laid_out
            )
    return apart(F.split(laid_out, SEPARATOR))


def once(column: Column) -> Column:
    """The column, evaluated once: the optimizer moves filters below a projection by copying what they are made of, unless it is
    not deterministic. A partition's number is never negative."""
    return F.when(F.spark_partition_id() >= 0, column)


def apart(column: Column) -> Column:
    """The column, evaluated once, and by an operator of its own.

    Spark generates one method for all neighbouring operators, and runs each of them by itself, copying rows from one to the next,
    where that method gets too long to be compiled. What makes it long stands apart: an operator with a function of a function has
    methods of its own, short ones.
    """
    return F.when(F.exists(F.array(F.spark_partition_id()), lambda number: number >= 0), column)


def _bound(value: Column, then: Callable[[Column], Column]) -> Column:
    """`then` of the value, which is computed once and stands in the plan once, however often it is used."""
    return F.get(F.transform(F.array(value), then), F.lit(0))


def time_text(text: Column) -> Column:
    """`yyyy-MM-dd HH:mm:ss.SSS` and the zone, of ISO text or a count since 1970; null of other text."""
    numbers = capture_numbers(ISO_WHOLE)
    iso = re.sub(r"\{(\w+)\}", lambda found: f"${numbers[found[1]]}", "{date} {clock}{fraction}{zone}")
    instant = _whole(EPOCH_INSTANT)

    def counted(millis: Column) -> Column:
        # no zone of a session in between: days and a rest
        second = F.pmod(F.floor(millis / 1000), F.lit(86_400))
        day = F.date_from_unix_date(F.floor(millis / 86_400_000).cast("int")).cast("string")
        clock = (F.floor(second / 3600), F.floor(second / 60) % 60, second % 60, F.pmod(millis, F.lit(1000)))
        return F.when(millis.isNotNull(), F.concat(day, F.format_string(" %02d:%02d:%02d.%03dZ", *clock)))

    def of(text: Column) -> Column:
        seconds, nanos = (F.regexp_extract(text, instant, number).try_cast("bigint") for number in (1, 2))
        millis = (
            F.when(text.rlike(_whole(EPOCH_MILLIS)), text.try_cast("bigint"))
            .when(text.rlike(_whole(EPOCH_SECONDS)), text.try_cast("bigint") * 1000)
            .when(text.rlike(instant), seconds * 1000 + F.floor(F.coalesce(nanos, F.lit(0)) / 1_000_000))
        )
        whole = _whole(ISO_WHOLE)
        return F.when(text.rlike(whole), F.regexp_replace(text, whole, iso)).otherwise(_bound(millis, counted))

    return _bound(text, of)


def _json_laid_out(line: Column, layout: Layout) -> Column:
    """The slots of a JSON record, joined; null where it is no JSON, or has no time, level and message."""
    keys = layout.json or {}
    paths = dict.fromkeys(path for slot in JSON_SLOTS for path in keys[slot])
    schema = StructType([StructField(key, StringType()) for key in {name: 0 for p in paths for name in (p, p.partition(".")[0])}])
    options = {"allowSingleQuotes": "false", "allowNonNumericNumbers": "false"}

    def at(content: Column, path: str) -> Column:
        """Text at a path: a key, or key b of object a for `a.b`; null where nothing stands, or an empty text."""
        outer, dot, inner = path.partition(".")
        value = F.nullif(content[path], F.lit(""))
        return F.coalesce(value, F.nullif(F.get_json_object(content[outer], f"$['{inner}']"), F.lit(""))) if dot else value

    def values(content: Column) -> Column:
        return F.struct(*[at(content, path).alias(f"p{n}") for n, path in enumerate(paths)])

    def laid_out(found: Column) -> Column:
        columns = {path: found[f"p{n}"] for n, path in enumerate(paths)}

        def first(slot: str) -> Column:
            some = [columns[path] for path in keys[slot]]
            if slot == "stack_trace":
                some = [F.when(~value.rlike(r"\A[\[{]"), value) for value in some]
            return F.coalesce(*some, F.lit(None).cast("string"))

        def plain(value: Column) -> Column:
            return F.coalesce(F.replace(value, F.lit(SEPARATOR), F.lit("")), F.lit(""))

        said = F.coalesce(F.concat(F.lit(": "), first("error_message")), F.lit(""))
        thrown = F.coalesce(first("stack_trace"), F.concat(first("error_class"), said))
        message = F.rtrim(F.replace(first("message"), F.lit(SEPARATOR), F.lit("")), F.lit("\r\n"))
        spoken = F.regexp_replace(message, rf"(?s)\A{to_java(SPEAKER)}(.*)\z", f"$1{SEPARATOR}$2")
        level = F.upper(first("level"))
        ts = time_text(first("time"))
        slots = [F.lit(layout.name), ts, level, plain(first("logger")), plain(first("thread")), spoken, plain(thrown)]
        slots += [F.lit("") for _ in SPEAKER_SLOTS]
        return F.when(level.isin(*LEVELS), F.concat(*[part for slot in slots for part in (F.lit(SEPARATOR), slot)][1:]))

    return _bound(_bound(F.from_json(line, schema, options), values), laid_out)


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
    """ARRAY<STRING> of SPEAKER_SLOTS; null where the speaker is not known. speaker: SQL expression."""
    branches = []
    for entry in ruleset.speakers:
        numbers = capture_numbers(entry.pattern)
        filled_by = _filled_by(entry)
        layout = SEPARATOR.join(f"${numbers[filled_by[slot]]}" if slot in filled_by else "" for slot in SPEAKER_SLOTS)
        pattern = _whole(entry.pattern)
        branches.append((f"{speaker} RLIKE {quoted(pattern)}", _rewritten(speaker, pattern, layout)))
    return F.when(F.expr(speaker) != "", F.split(F.expr(_case(branches)), SEPARATOR))


def rule_slots(ruleset: RuleSet) -> tuple[str, ...]:
    """Slots that every rule lays its statement out to, in order: what any of them captures."""
    captured = {name for rule in ruleset.rules for name in rule.columns}
    return ("event_type", "says", *(name for name in schemas.vocabulary() if name in captured), ITEMS)


def statement_slots(statement: str, ruleset: RuleSet) -> Column:
    """ARRAY<STRING> of rule_slots() for the column `statement`; null: no rule knows it; of one element: drift.

    Two dispatches, each a flat CASE: by the first character, then by the literal that the statement begins with.
    """
    slots = rule_slots(ruleset)
    anywhere = [rule for rule in ruleset.rules if "" in rule.starts]
    others = [rule for rule in ruleset.rules if "" not in rule.starts]
    branches = []
    for char in sorted({start[0] for rule in others for start in rule.starts}):
        rules = [rule for rule in others if any(start[0] == char for start in rule.starts)]
        branches.append((f"substring({statement}, 1, 1) = {quoted(char)}", _claimed(statement, rules, slots)))
    return F.split(F.expr(f"coalesce({_case(branches)}, {_claimed(statement, anywhere, slots)})"), SEPARATOR)


def _claimed(statement: str, rules: list[Rule], slots: Sequence[str]) -> str:
    """The statement laid out by the first of the rules that claims it; unchanged where its pattern does not match."""
    branches = []
    for rule in rules:
        claims = " OR ".join(f"startswith({statement}, {quoted(start)})" for start in rule.starts)
        if rule.contains is not None:
            claims = f"({claims}) AND contains({statement}, {quoted(rule.contains)})"
        marks = {name: _as_text(value) for name, value in rule.implies.items()}
        marks |= {"event_type": rule.name, "says": rule.says}
        branches.append((claims, _rewritten(statement, _whole(rule.pattern), replacement(rule.pattern, slots, marks))))
    return _case(branches)


def _as_text(value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return str(value)


def told_columns(ruleset: RuleSet) -> tuple[str, ...]:
    """The columns of the vocabulary that some rule, or a speaker, may give a value."""
    places = {*rule_slots(ruleset), *item_columns(ruleset), *SPEAKER_SLOTS}
    return tuple(name for name in schemas.vocabulary() if name in places)


def item_columns(ruleset: RuleSet) -> tuple[str, ...]:
    """What items of records that name many are laid out to."""
    captured = {name for rule in ruleset.rules if rule.each for name in group_names(rule.each.pattern)}
    return tuple(name for name in schemas.vocabulary() if name in captured)


def item_slots(event_type: str, items: str, ruleset: RuleSet) -> Column:
    """ARRAY<STRING>: each item of a record that names many, its columns joined by U+0001; null for all other records.

    event_type, items: SQL expressions.
    """
    names = item_columns(ruleset)
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
    return F.when(F.expr(items) != "", F.expr(_case(branches, "CAST(NULL AS ARRAY<STRING>)")))


def typed(text: Column, kind: str) -> Column:
    """A captured text as the vocabulary's type; null where it is empty or does not fit."""
    if kind == "string":
        return F.nullif(text, F.lit(""))
    if kind == "int_list":
        ids = F.regexp_extract_all(F.regexp_replace(text, r"brokerEpoch=-?\d+", ""), F.lit(r"-?\d+"), F.lit(0))
        return F.when(text != "", F.array_compact(ids.try_cast("array<int>")))
    # an empty text first: under ANSI, try_cast of it throws and catches, a hundred times slower than a comparison
    return F.nullif(text, F.lit("")).try_cast(kind)


def parse(records: DataFrame, ruleset: RuleSet, layouts: Iterable[Layout]) -> DataFrame:
    """Headers.

    in: any columns, with `head` (first line), `raw` (whole record), `tail` (lines after the first, or null).
    out: the same without `head`, plus layout, ts_text, level, logger, thread, statement, in_scope, and spoken ARRAY<STRING> of
    SPEAKER_SLOTS (null where the speaker is not known). A record of which no layout takes the whole has a null logger; it is in scope,
    kept and counted, unless nothing in it is Kafka's.
    """
    layouts = list(layouts)
    kept = [name for name in records.columns if name != "head"]
    split = records.select(
        *kept, header(F.col("head"), F.col("raw"), F.col("tail").isNotNull(), layouts, ruleset.speakers).alias("h")
    )
    fits = F.size("h") == len(HEADER_SLOTS) + len(SPEAKER_SLOTS)
    slots = {name: F.when(fits, F.nullif(F.get("h", F.lit(n)), F.lit(""))) for n, name in enumerate(HEADER_SLOTS)}
    slots["ts_text"] = F.replace(slots["ts_text"], F.lit(","), F.lit("."))
    if counting := [layout.name for layout in layouts if layout.time == EPOCH_MS]:
        counted = time_text(slots["ts_text"])
        slots["ts_text"] = F.when(slots["layout"].isin(*counting), counted).otherwise(slots["ts_text"])
    if any(layout.json or "(?<thrown>" in layout.line for layout in layouts):
        more = F.nullif(F.concat_ws("\n", slots["thrown"], F.col("tail")), F.lit(""))
        columns = [more.alias("tail") if name == "tail" else F.col(name) for name in kept]
    else:
        columns = [F.col(name) for name in kept]
    is_usual = fits & (F.get("h", F.lit(len(HEADER_SLOTS))) != "")
    usual = F.when(is_usual, F.slice("h", len(HEADER_SLOTS) + 1, len(SPEAKER_SLOTS)))
    speaker = f"get(h, {HEADER_SLOTS.index('speaker')})"
    spoken = apart(F.coalesce(usual, F.when(fits, speaker_slots(speaker, ruleset))))
    shown = [slot.alias(name) for name, slot in slots.items() if name != "thrown"]
    named = split.select(*columns, *shown, spoken.alias("spoken"))
    if cutting := [layout.name for layout in layouts if layout.cuts]:
        named = named.withColumn("logger", F.when(F.col("layout").isin(*cutting), _full_name(ruleset)).otherwise(F.col("logger")))
    key = F.when(F.col("logger").endswith(STATE_CHANGE), F.lit(STATE_CHANGE)).otherwise(_class_name())
    # without a logger: `Matcher.in_scope` says the same
    own = F.substring_index("raw", "\n", 1).rlike(f"(?s){ruleset.own_marks(layouts)}")
    anonymous = [layout.name for layout in layouts if not layout.names_logger]
    nameless = F.when(F.col("layout").isNull(), own).otherwise(F.col("layout").isin(*anonymous) | F.col("spoken").isNotNull())
    of_rules = key.isin(*sorted(logger_key(name) for name in ruleset.loggers))
    in_scope = F.when(F.col("logger").isNull(), nameless).otherwise(of_rules)
    shown = [name for name in HEADER_SLOTS if name not in {"speaker", "thrown"}]
    return named.select(*kept, *shown, in_scope.alias("in_scope"), "spoken")


def _class_name() -> Column:
    return F.rtrim(F.substring_index("logger", ".", -1), F.lit("$"))


def _full_name(ruleset: RuleSet) -> Column:
    """The logger in full where a layout has abbreviated it; see `parsers.rules.full_name`."""
    logger = F.col("logger")
    named = F.create_map(*[F.lit(text) for pair in ruleset.full_names.items() for text in pair])
    is_state_change = logger.rlike(_whole(CUT_STATE_CHANGE)) | (
        (logger == "logger") & F.coalesce(F.col("speaker"), F.lit("")).rlike(_whole(STATE_CHANGE_SPEAKER))
    )
    return F.when(is_state_change, STATE_CHANGE).otherwise(F.coalesce(F.try_element_at(named, _class_name()), logger))


def spoken_node() -> Column:
    """INT: the node that the speaker names, of the column `spoken`."""
    return F.nullif(F.get("spoken", F.lit(0)), F.lit("")).try_cast("int")


def say(parsed: DataFrame, ruleset: RuleSet) -> DataFrame:
    """What records say.

    in: the output of `parse` (records in scope).
    out: the same without spoken and tail, plus item INT, event_type, says, drifted BOOLEAN, `told_columns`, error_class,
    error_message. statement: only where no rule reads it, its first LONG_STATEMENT characters. One row an item.
    """
    words = schemas.vocabulary()
    kept = [name for name in parsed.columns if name not in {"spoken", "statement"}]
    slot_of = {name: F.get("r", F.lit(number)) for number, name in enumerate(rule_slots(ruleset))}
    known = F.size("r") == len(slot_of)
    items = item_slots("get(r, 0)", f"get(r, {len(slot_of) - 1})", ruleset)
    matched = parsed.select(
        *kept, "statement", F.col("spoken").alias("s"), apart(statement_slots("statement", ruleset)).alias("r")
    )
    thrown = F.col("tail").isNotNull()
    others = [name for name in kept if name not in {"raw", "tail"}]
    unread = F.when(~F.coalesce(known, F.lit(False)), F.substring("statement", 1, LONG_STATEMENT))
    # a row an item: what may be long must not go with each, neither the record nor the text of the list
    judged = matched.select(
        *others, "raw", "s", unread.alias("statement"), items.alias("listed"), (F.octet_length("raw") >= LONG_RECORD).alias("long"),
        F.when(slot_of[ITEMS] != "", F.slice("r", 1, len(slot_of) - 1)).otherwise(F.col("r")).alias("r"),
        F.when(known, slot_of["event_type"]).alias("event_type"),
        (F.col("r").isNotNull() & ~known).alias("drifted"),
        F.when(thrown, F.nullif(F.regexp_extract("tail", rf"(?m)^{THROWABLE}$", 1), F.lit(""))).alias("error_class"),
        F.when(thrown, F.nullif(F.regexp_extract("tail", rf"(?m)^{THROWABLE}$", 2), F.lit(""))).alias("error_message"),
    )  # fmt: skip
    raw = F.col("raw").alias("raw")
    alone = F.array(F.struct(F.lit(None).cast("string").alias("i"), raw))
    each = F.transform(
        "listed", lambda i, n: F.struct(i.alias("i"), F.when((n == 0) | ~F.col("long"), F.col("raw")).alias("raw"))
    )
    exploded = judged.select(
        *others, "s", "r", "event_type", "drifted", "statement", "error_class", "error_message",
        F.posexplode(F.when(F.size("listed") > 0, each).otherwise(alone)).alias("item", "one"),
    )  # fmt: skip
    split = exploded.select(
        *others, "s", "r", "event_type", "drifted", "statement", "error_class", "error_message", "item",
        F.col("one.raw").alias("raw"),
        F.when(F.col("one.i").isNotNull(), F.split("one.i", SEPARATOR)).alias("i"),
    )  # fmt: skip
    # the item's own value, else the record's, else the speaker's
    places = [{name: F.get("i", F.lit(number)) for number, name in enumerate(item_columns(ruleset))}, slot_of]
    places += [{name: F.get("s", F.lit(number)) for number, name in enumerate(SPEAKER_SLOTS)}]
    columns = []
    for name in told_columns(ruleset):
        texts = [place[name] for place in places if name in place]
        text = F.coalesce(*[F.nullif(one, F.lit("")) for one in texts]) if len(texts) > 1 else texts[0]
        columns.append(typed(text, words[name]["type"]).alias(name))
    return split.select(
        *others, "item", "event_type", slot_of["says"].alias("says"), "drifted", *columns, "statement",
        "error_class", "error_message", "raw",
    )  # fmt: skip
