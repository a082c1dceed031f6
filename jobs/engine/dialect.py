"""Spark's SQL for DuckDB: SQLGlot translates it, and this module corrects what SQLGlot leaves with another
meaning.
"""

import re
from datetime import UTC, datetime
from functools import lru_cache

import sqlglot
from sqlglot import exp
from sqlglot.errors import SqlglotError

# number of translations in the cache; checks and contracts are some hundred queries
TRANSLATED = 500
# functions that DuckDB lacks or defines otherwise, as CREATE MACRO takes them
MACROS = (
    # the first of each value in the order of the list, null included. It sorts, because a search for each
    # value's place is quadratic
    "with_places(list) AS list_sort(list_transform(list, lambda one, place: {'one': one, 'place': place}))",
    "firsts(sorted) AS list_transform(list_filter(list_zip(list_prepend(NULL, sorted), sorted, true), "
    "lambda pair, n: n = 1 OR pair[1].one IS DISTINCT FROM pair[2].one), lambda pair: pair[2])",
    "array_distinct(list) AS CASE WHEN list IS NOT NULL THEN "
    "list_transform(list_sort(list_transform(firsts(with_places(list)), lambda it: {'place': it.place, 'one': it.one})), lambda it: it.one) END",
    "get(list, place) AS list_extract(list, place + 1)",
    "make_dt_interval(days, hours := 0, minutes := 0, seconds := 0) AS "
    "to_days(CAST(days AS INT)) + to_hours(hours) + to_minutes(minutes) + to_seconds(seconds)",
    "arrays_overlap(one, other) AS list_has_any(one, other)",
    "array_union(one, other) AS array_distinct(list_concat(one, other))",
    "array_intersect(one, other) AS list_filter(array_distinct(one), lambda it: list_contains(other, it))",
    "array_repeat(one, times) AS list_transform(range(times), lambda n: one)",
    "substring_index(text, delimiter, n) AS CASE WHEN n >= 0 "
    "THEN array_to_string(list_slice(string_split(text, delimiter), 1, n), delimiter) "
    "ELSE array_to_string(list_slice(string_split(text, delimiter), n, -1), delimiter) END",
    # a number is cut, a moment is seconds since 1970, anything else is cast
    "to_whole(x) AS CASE "
    "WHEN typeof(x) IN ('DOUBLE', 'FLOAT') OR typeof(x) LIKE 'DECIMAL%' THEN TRY_CAST(trunc(TRY_CAST(x AS DOUBLE)) AS HUGEINT) "
    "WHEN typeof(x) LIKE 'TIMESTAMP%' THEN TRY_CAST(floor(epoch(TRY_CAST(x AS TIMESTAMP))) AS HUGEINT) "
    "ELSE TRY_CAST(x AS HUGEINT) END",
    # a moment is seconds since 1970, with milliseconds
    "to_fraction(x) AS CASE WHEN typeof(x) LIKE 'TIMESTAMP%' THEN epoch(TRY_CAST(x AS TIMESTAMP)) ELSE TRY_CAST(x AS DOUBLE) END",
    "pmod(a, b) AS ((a % b) + b) % b",
    "place_in(list, one) AS CASE WHEN list IS NOT NULL AND one IS NOT NULL THEN coalesce(list_position(list, one), 0) END",
    "try_divide(a, b) AS a / nullif(b, 0)",
    "timestamp_seconds(n) AS make_timestamp(CAST(n * CAST(1000000 AS BIGINT) AS BIGINT))",
    "timestamp_millis(n) AS make_timestamp(CAST(n * CAST(1000 AS BIGINT) AS BIGINT))",
    "timestamp_micros(n) AS make_timestamp(CAST(n AS BIGINT))",
)
# what Java's regular expressions have and DuckDB's (RE2) lack: lookarounds, possessive quantifiers, back
# references
_BEYOND_RE2 = re.compile(r"\(\?(?:[=!>]|<[=!])|[*+?}]\+|\\[1-9]")
# a moment with a zone, as text
_WITH_ZONE = re.compile(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d(?::\d\d(?:\.\d{1,6})?)?(?:Z|[+-]\d\d:?\d\d)")
_WHOLE = (
    exp.DataType.Type.TINYINT,
    exp.DataType.Type.SMALLINT,
    exp.DataType.Type.INT,
    exp.DataType.Type.BIGINT,
)
_FRACTIONS = (exp.DataType.Type.FLOAT, exp.DataType.Type.DOUBLE)
# the option of Spark's to_json that writes fields that are null
WITH_NULLS = ["ignoreNullFields", "false"]
# names of units that Spark has and DuckDB has not
_UNITS = {"MM": "MONTH", "MON": "MONTH", "YY": "YEAR", "YYYY": "YEAR", "DD": "DAY"}
# letters of a time pattern that SQLGlot does not translate
_PATTERN = (("SSSSSS", "%f"), ("SSS", "%g"), ("'T'", "T"), ("''", "'"))
_CASTS = {
    "int": "INT",
    "bigint": "BIGINT",
    "smallint": "SMALLINT",
    "tinyint": "TINYINT",
    "string": "TEXT",
    "double": "DOUBLE",
    "float": "FLOAT",
    "boolean": "BOOLEAN",
}
# constructs that run on both engines with different results
_UNLIKE = {exp.Pivot: "PIVOT", exp.Typeof: "typeof", exp.Kurtosis: "kurtosis", exp.TableSample: "TABLESAMPLE"}


class Unsupported(SqlglotError):
    """A construct that DuckDB would answer otherwise than Spark; the text names it."""


@lru_cache(TRANSLATED)
def translated(sql: str) -> str:
    """Return a query of Spark's SQL in DuckDB's. Raises SqlglotError where it is none."""
    return in_duckdb(adapted(sqlglot.parse_one(sql, read="spark")))


@lru_cache(TRANSLATED)
def macro(sql: str) -> str:
    """Return Spark's CREATE FUNCTION as DuckDB's CREATE MACRO.

    The types of its arguments are those of each call.
    """
    created = sqlglot.parse_one(sql, read="spark")
    arguments = ", ".join(argument.name for argument in created.this.expressions)
    body = in_duckdb(adapted(exp.select(created.expression)).expressions[0])
    return f"CREATE OR REPLACE MACRO {created.this.this.name}({arguments}) AS {body}"


def in_duckdb(tree: exp.Expr) -> str:
    """Return the text of a tree that has been adapted."""
    return tree.sql(dialect="duckdb", comments=False)


def adapted(tree: exp.Expr) -> exp.Expr:
    """Change a tree of Spark's SQL so that DuckDB gives Spark's result, and return it."""
    for node in reversed(list(tree.walk())):
        other = _as_in_spark(node)
        if other is not node:
            node.replace(other)
    return tree


@lru_cache(TRANSLATED)
def condition(sql: str) -> str:
    """Return a condition of Spark's SQL in DuckDB's."""
    tree = sqlglot.parse_one(f"SELECT 1 FROM rows WHERE {sql}", read="spark")
    return adapted(tree).args["where"].this.sql(dialect="duckdb")


def _as_in_spark(node: exp.Expr) -> exp.Expr:
    for kind, name in _UNLIKE.items():
        if isinstance(node, kind):
            raise Unsupported(name)
    match node:
        case exp.Cast() if node.to.this in _WHOLE and not (
            isinstance(node.this, exp.Literal) and node.this.is_string
        ):
            return exp.TryCast(this=_call("to_whole", node.this), to=node.to.copy())
        case exp.Cast() if node.to.this in _FRACTIONS and not isinstance(node.this, exp.Literal):
            return exp.TryCast(this=_call("to_fraction", node.this), to=node.to.copy())
        case exp.Literal() if node.is_string and _WITH_ZONE.fullmatch(node.this) and _is_a_moment(node):
            at = datetime.fromisoformat(node.this).astimezone(UTC).replace(tzinfo=None)
            return exp.Literal.string(at.isoformat(" "))
        case exp.Anonymous() if node.name.lower() in _CASTS and len(node.expressions) == 1:
            return _as_in_spark(
                exp.TryCast(this=node.expressions[0].copy(), to=exp.DataType.build(_CASTS[node.name.lower()]))
            )
        case exp.Anonymous() if node.name.lower() in _OTHERWISE:
            return _OTHERWISE[node.name.lower()](node)
        case exp.DayOfWeek():
            return exp.paren(node.copy()) + 1
        case exp.Extract() if node.name.upper() in ("DOW", "DAYOFWEEK"):
            return exp.paren(exp.Extract(this=exp.var("DOW"), expression=node.expression.copy())) + 1
        case exp.Extract() if node.name.upper() in ("DOW_ISO", "DAYOFWEEK_ISO"):
            return exp.Extract(this=exp.var("ISODOW"), expression=node.expression.copy())
        case exp.TsOrDsAdd() if not isinstance(node.parent, exp.Cast):
            return exp.cast(node.copy(), "date")
        case exp.TimestampDiff() | exp.DateDiff() if node.args.get("unit") is not None:
            end, begin = (exp.cast(_bare(one), "timestamp") for one in (node.this, node.expression))
            return _call("date_sub", exp.Literal.string(node.args["unit"].name.lower()), begin, end)
        case exp.StrToUnix():
            return _seconds(node)
        case exp.TimestampTrunc() if node.args["unit"].name.upper() in _UNITS:
            node.args["unit"].set("this", _UNITS[node.args["unit"].name.upper()])
            return node
        case exp.DateTrunc() if not isinstance(node.parent, exp.Cast):
            unit = node.args["unit"].name.upper()
            node.args["unit"].set("this", _UNITS.get(unit, unit))
            return exp.cast(node.copy(), "date")
        case exp.Transform() | exp.ArrayFilter() if (
            isinstance(node.expression, exp.Lambda) and len(node.expression.expressions) == 2
        ):
            return _places_from_0(node)
        case exp.TimeToStr() | exp.StrToTime() if isinstance(node.args.get("format"), exp.Literal):
            node.args["format"].set("this", _pattern(node.args["format"].this))
            return node
        case exp.RegexpReplace() | exp.RegexpLike() | exp.RegexpExtract() if (
            node.expression.is_string and _BEYOND_RE2.search(node.expression.this)
        ):
            return _by_python(node)
        case exp.RegexpReplace() if isinstance(node.args.get("replacement"), exp.Literal):
            text = re.sub(
                r"\\(.)|\$(\d)",
                lambda found: f"\\{found[2]}" if found[2] else _escaped(found[1]),
                node.args["replacement"].this,
            )
            node.args["replacement"].set("this", text)
            return node
        case exp.Like() | exp.ILike() if (
            node.expression.is_string
            and "\\" in node.expression.this
            and not isinstance(node.parent, exp.Escape)
        ):
            return exp.Escape(this=node.copy(), expression=exp.Literal.string("\\"))
        case exp.ArrayPrepend():
            return _call("list_prepend", node.expression, node.this)
        case exp.ArrayPosition():
            return _call("place_in", node.this, node.expression)
        case exp.Group() if any(
            not one.expressions for one in (*(node.args.get("rollup") or ()), *(node.args.get("cube") or ()))
        ):
            return _of_all(node)
        case exp.Lateral() if node.args.get("outer"):
            node.set("outer", False)
            node.this.set("this", _never_empty(node.this.this))
            return node
        case exp.ExplodeOuter():
            return exp.Explode(this=_never_empty(node.this))
        case exp.Values() if not node.args.get("alias"):
            width = len(node.expressions[0].expressions) if isinstance(node.expressions[0], exp.Tuple) else 1
            columns = [exp.to_identifier(f"col{n}") for n in range(1, width + 1)]
            node.set("alias", exp.TableAlias(this=exp.to_identifier("values"), columns=columns))
            return node
        case exp.Table() if (
            isinstance(node.this, exp.Anonymous)
            and node.this.name.lower() == "range"
            and not node.alias_column_names
        ):
            node.set(
                "alias",
                exp.TableAlias(
                    this=exp.to_identifier(node.alias or "range"), columns=[exp.to_identifier("id")]
                ),
            )
            return node
        case exp.CurrentTimestamp():
            return exp.cast(node.copy(), "timestamp")
        case exp.DataType() if node.this in (exp.DataType.Type.TIMESTAMPTZ, exp.DataType.Type.TIMESTAMPLTZ):
            return exp.DataType.build("timestamp", dialect="duckdb")
        case exp.ArrayDistinct():
            return _call("array_distinct", node.this)
        case exp.Filter() if isinstance(node.this, exp.ArrayAgg | exp.ArrayUniqueAgg):
            return _or_empty(node)
        case exp.ArrayAgg() | exp.ArrayUniqueAgg() if not isinstance(node.parent, exp.Filter):
            return _or_empty(node)
        case exp.JSONFormat() if isinstance(node.args.get("options"), exp.VarMap):
            options = node.args["options"]
            if [
                one.name for one in (*options.args["keys"].expressions, *options.args["values"].expressions)
            ] != WITH_NULLS:
                raise Unsupported("options of to_json")
            # DuckDB writes fields that are null, as Spark does with this option
            return exp.JSONFormat(this=node.this.copy())
        case exp.Exists() if isinstance(node.expression, exp.Lambda):
            return exp.func("len", exp.ArrayFilter(this=node.this, expression=node.expression)) > 0
        case exp.ArgMin():
            return _call("arg_min_null", node.this, _nulls_lowest(node.expression))
        case exp.ArgMax():
            return _call("arg_max_null", node.this, _nulls_lowest(node.expression))
        case exp.Min() if isinstance(node.this, exp.Struct):
            return _call("arg_min_null", node.this, _nulls_lowest(node.this))
        case exp.Max() if isinstance(node.this, exp.Struct):
            return _call("arg_max_null", node.this, _nulls_lowest(node.this))
        case exp.CountIf():
            # a count of nothing but nulls is 0
            return exp.Count(this=exp.Case().when(node.this.copy(), exp.convert(1)))
        case exp.ApproxQuantile():
            return _call("quantile_disc", node.this, node.args["quantile"])
        case exp.Concat() if len(node.expressions) == 1:
            return exp.cast(node.expressions[0], "text")
        case exp.Floor():
            return exp.cast(node.copy(), "bigint")
        case exp.UnixSeconds():
            return exp.cast(exp.Floor(this=exp.func("epoch", node.this)), "bigint")
        case exp.Struct() if node.find(exp.Star):
            return _call("struct_pack", exp.var("*COLUMNS(*)"))
        case exp.Inline():
            return _call("unnest", node.this, exp.Kwarg(this=exp.var("max_depth"), expression=exp.convert(2)))
        case _:
            return node


def _is_a_moment(text: exp.Expr) -> bool:
    """Return whether a text is compared, or cast to a moment."""
    if isinstance(text.parent, exp.Cast):
        return text.parent.to.this in exp.DataType.TEMPORAL_TYPES
    return isinstance(text.parent, exp.Binary | exp.Between | exp.In)


def _bare(value: exp.Expr) -> exp.Expr:
    """Return the value without the cast to a day that SQLGlot adds for Spark's difference of days."""
    return value.this.copy() if isinstance(value, exp.TsOrDsToDate) else value.copy()


def _seconds(node: exp.StrToUnix) -> exp.Expr:
    """Seconds since 1970 of a moment, or of a text in a pattern."""
    pattern = _pattern(node.args["format"].this) if isinstance(node.args.get("format"), exp.Literal) else None
    if pattern is None or pattern == "%Y-%m-%d %H:%M:%S":
        return exp.TryCast(
            this=_call("to_whole", exp.cast(node.this, "timestamp")), to=exp.DataType.build("bigint")
        )
    moment = _call("strptime", node.this, exp.Literal.string(pattern))
    return exp.TryCast(this=_call("to_whole", moment), to=exp.DataType.build("bigint"))


def _pattern(text: str) -> str:
    """Return a time pattern for strftime. given: SQLGlot's translation of Java's pattern."""
    text = text.replace("strict", "")
    for java, ours in _PATTERN:
        text = text.replace(java, ours)
    return text


def _escaped(char: str) -> str:
    return "\\\\" if char == "\\" else char


def _by_python(node: exp.RegexpReplace | exp.RegexpLike | exp.RegexpExtract) -> exp.Expr:
    """Return a call of the function of the database that reads Java's regular expressions
    (`REGEX_FUNCTIONS`).
    """
    match node:
        case exp.RegexpReplace():
            return _call("java_replace", node.this, node.expression, node.args["replacement"])
        case exp.RegexpExtract():
            group = node.args.get("group") or exp.Literal.number(1)
            return _call("java_extract", node.this, node.expression, exp.cast(group, "text"))
        case _:
            return _call("java_matches", node.this, node.expression).eq(exp.Literal.string("true"))


def _of_all(group: exp.Group) -> exp.Expr:
    """GROUP BY a, b WITH ROLLUP as GROUP BY ROLLUP (a, b); CUBE likewise."""
    kind = "rollup" if group.args.get("rollup") else "cube"
    grouping = (exp.Rollup if kind == "rollup" else exp.Cube)(
        expressions=[one.copy() for one in group.expressions]
    )
    return exp.Group(**{kind: [grouping]})


def _never_empty(some: exp.Expr) -> exp.Expr:
    """Return a list that has one null where it is empty or null itself."""
    length = _call("len", some)
    return (
        exp.Case()
        .when(exp.GT(this=length, expression=exp.convert(0)), some.copy())
        .else_(exp.Array(expressions=[exp.null()]))
    )


def _places_from_0(node: exp.Transform | exp.ArrayFilter) -> exp.Expr:
    """Return a function over (element, place): Spark counts places from 0, DuckDB from 1."""
    place = node.expression.expressions[1].name
    for name in list(node.expression.this.find_all(exp.Identifier)):
        if name.name == place:
            inner = name.parent if isinstance(name.parent, exp.Column) else name
            inner.replace(exp.paren(inner.copy() - 1))
    return node


def _weekday(node: exp.Anonymous) -> exp.Expr:
    return _call("isodow", node.expressions[0]) - 1


def _for_all(node: exp.Anonymous) -> exp.Expr:
    some, test = node.expressions
    other = exp.Lambda(
        this=exp.not_(exp.paren(test.this.copy())), expressions=[one.copy() for one in test.expressions]
    )
    return exp.func("len", exp.ArrayFilter(this=some.copy(), expression=other)).eq(0)


def _any_true(node: exp.Anonymous) -> exp.Expr:
    return _call("bool_or", node.expressions[0])


def _all_true(node: exp.Anonymous) -> exp.Expr:
    return _call("bool_and", node.expressions[0])


_OTHERWISE = {
    "weekday": _weekday,
    "forall": _for_all,
    "some": _any_true,
    "any": _any_true,
    "every": _all_true,
}


def _call(name: str, *arguments: exp.Expr) -> exp.Expr:
    """Return a call of that name; SQLGlot does not interpret the name."""
    return exp.Anonymous(this=name, expressions=[one.copy() for one in arguments])


def _or_empty(some: exp.Expr) -> exp.Expr:
    """Return the list, empty where there is no row."""
    return exp.Coalesce(this=some.copy(), expressions=[exp.Array()])


def _nulls_lowest(key: exp.Expr) -> exp.Expr:
    """Return the key that rows are compared by.

    A null field is the smallest value in Spark and the largest in DuckDB.
    """
    if not isinstance(key, exp.Struct):
        return key
    values = [one.expression if isinstance(one, exp.PropertyEQ) else one.unalias() for one in key.expressions]
    fields = [part for value in values for part in (value.is_(exp.null()).not_(), value.copy())]
    return exp.Struct(
        expressions=[
            exp.PropertyEQ(this=exp.to_identifier(f"k{n}"), expression=one) for n, one in enumerate(fields)
        ]
    )


# -- names of columns ----------------------------------------------------------------------------------------

# functions that Spark writes in capitals in the name of a column
_CAPITALS = re.compile(r"\b(ceil|floor|sqrt|power|exp|ln|log10|radians|degrees|sin|cos|tan)\(")


def name_columns(tree: exp.Expr, sql: str) -> None:
    """Give each column of a query that has no name the one that Spark gives it, such as `count(1)`.

    The tree is changed.

    tree: as SQLGlot parses the text, not adapted yet.
    """
    for query in list(tree.find_all(exp.Select)):
        for column in query.expressions:
            if (
                isinstance(column, exp.Column | exp.Alias | exp.Aliases | exp.Star)
                or column.is_star
                or _has_many_columns(column)
            ):
                continue
            column.replace(exp.alias_(column.copy(), _spark_name(column, sql), quoted=True))


def _has_many_columns(column: exp.Expr) -> bool:
    kinds = (
        (exp.Posexplode, exp.PosexplodeOuter, exp.Inline, exp.Stack)
        if hasattr(exp, "Stack")
        else (exp.Posexplode, exp.Inline)
    )
    return isinstance(column, kinds) or (
        isinstance(column, exp.Anonymous) and column.name.lower() in ("stack", "inline_outer")
    )


def _spark_name(column: exp.Expr, sql: str) -> str:
    if isinstance(column, exp.Explode | exp.ExplodeOuter):
        return "col"
    if isinstance(column, exp.Cast) and isinstance(column.this, exp.Column):
        return column.this.name
    if isinstance(column, exp.Subquery):
        return "scalarsubquery()"
    tree = exp.select(column.copy()).expressions[0].copy()
    root = exp.Paren(this=tree)
    for node in reversed(list(root.find_all(exp.Expression))):
        if node is root:
            continue
        other = _as_named(node)
        if other is not node:
            node.replace(other)
    text = _CAPITALS.sub(lambda found: found.group().upper(), _text(root.this))
    # SQLGlot writes units in capitals
    text = re.sub(
        r"\bdate_trunc\((\w+)",
        lambda found: found[0].lower() if f"'{found[1].lower()}'" in sql else found[0],
        text,
    )
    return text.replace("FILTER(", "FILTER (")


def _text(node: exp.Expr) -> str:
    return node.sql(dialect="spark", normalize_functions="lower", comments=False)


def _as_named(node: exp.Expr) -> exp.Expr:
    """Return the node as it is written in the name of a column."""
    match node:
        case exp.Literal() if node.is_string:
            return exp.Var(this=node.this)
        case exp.Column() if not node.is_star:
            return exp.var(node.name)
        case exp.Paren():
            return node.this
        case exp.Count() if isinstance(node.this, exp.Star):
            return exp.Count(this=exp.Literal.number(1))
        case exp.Neg() if not isinstance(node.this, exp.Literal):
            return exp.Paren(this=exp.var(f"- {_text(node.this)}"))
        case exp.Is():
            no = "NOT " if isinstance(node.parent, exp.Not) else ""
            return exp.Paren(this=exp.var(f"{_text(node.this)} IS {no}{_text(node.expression)}"))
        case exp.Not() if isinstance(node.this, exp.Paren):
            return (
                node.this
                if " IS NOT " in node.this.name
                else exp.Paren(this=exp.var(f"NOT {_text(node.this)}"))
            )
        case exp.Boolean():
            return exp.var(str(node.this).lower())
        case exp.Cast() if not isinstance(node, exp.TryCast):
            kind = node.to.sql(dialect="spark")
            return exp.var(f"{kind} '{node.this.name}'" if kind in ("DATE", "TIMESTAMP") else node.this.name)
        case exp.TimestampTrunc():
            return _call("date_trunc", exp.var(node.args["unit"].name), node.this)
        case exp.RegexpReplace():
            return _call(
                "regexp_replace", node.this, node.expression, node.args["replacement"], exp.convert(1)
            )
        case exp.RegexpExtract() | exp.RegexpExtractAll():
            name = "regexp_extract_all" if isinstance(node, exp.RegexpExtractAll) else "regexp_extract"
            return _call(name, node.this, node.expression, node.args.get("group") or exp.convert(1))
        case exp.RegexpSplit():
            return _call("split", node.this, node.expression, exp.var("-1"))
        case exp.Round() if node.args.get("decimals") is None:
            return _call("round", node.this, exp.convert(0))
        case exp.Substring() if node.args.get("length") is None:
            return _call("substring", node.this, node.args["start"], exp.var("2147483647"))
        case exp.DPipe():
            return _call("concat", node.this, node.expression)
        case exp.If() if isinstance(node.parent, exp.Case):
            return node
        case exp.Between():
            return _call("between", node.this, node.args["low"], node.args["high"])
        case (
            exp.Like()
            | exp.ILike()
            | exp.RegexpLike()
            | exp.PropertyEQ()
            | exp.Dot()
            | exp.Slice()
            | exp.Kwarg()
        ):
            return node
        case exp.Binary() | exp.Not() | exp.In() | exp.If():
            return exp.Paren(this=node.copy())
        case _:
            return node
