"""Types of columns, as the table definitions write them in Spark's DDL, for Arrow and for Delta."""

import re
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any

import pyarrow as pa

import schemas

# DDL -> (Arrow's type, Delta's name)
_PLAIN: dict[str, tuple[pa.DataType, str]] = {
    "STRING": (pa.string(), "string"),
    "INT": (pa.int32(), "integer"),
    "BIGINT": (pa.int64(), "long"),
    "SMALLINT": (pa.int16(), "short"),
    "DOUBLE": (pa.float64(), "double"),
    "FLOAT": (pa.float32(), "float"),
    "BOOLEAN": (pa.bool_(), "boolean"),
    "DATE": (pa.date32(), "date"),
    "TIMESTAMP": (pa.timestamp("us", "UTC"), "timestamp"),
    "BINARY": (pa.binary(), "binary"),
}
_COLUMN = re.compile(
    r"^  (\w+) ([A-Z]+(?:<.*>)?)( NOT NULL)?(?: COMMENT '((?:[^'\\]|\\.|'')*)')?,?$", re.MULTILINE
)


def arrow_type(ddl: str) -> pa.DataType:
    """Return Arrow's type. ddl: such as `ARRAY<STRUCT<partition: INT, replica: INT>>`."""
    name, inner = _split(ddl)
    if name == "ARRAY":
        return pa.list_(pa.field("element", arrow_type(inner)))
    if name == "MAP":
        key, value = _parts(inner)
        return pa.map_(pa.field("key", arrow_type(key), nullable=False), pa.field("value", arrow_type(value)))
    if name == "STRUCT":
        return pa.struct([(field, arrow_type(kind)) for field, kind in _fields(inner)])
    return _PLAIN[name][0]


def delta_type(ddl: str) -> Any:
    """Return the type as Delta writes it in JSON."""
    name, inner = _split(ddl)
    if name == "ARRAY":
        return {"type": "array", "elementType": delta_type(inner), "containsNull": True}
    if name == "MAP":
        key, value = _parts(inner)
        return {
            "type": "map",
            "keyType": delta_type(key),
            "valueType": delta_type(value),
            "valueContainsNull": True,
        }
    if name == "STRUCT":
        fields = [
            {"name": field, "type": delta_type(kind), "nullable": True, "metadata": {}}
            for field, kind in _fields(inner)
        ]
        return {"type": "struct", "fields": fields}
    return _PLAIN[name][1]


def arrow_schema(columns: Mapping[str, str]) -> pa.Schema:
    """Return the schema of columns: name -> DDL."""
    return pa.schema([pa.field(name, arrow_type(kind)) for name, kind in columns.items()])


def schema_of(ddl: str) -> pa.Schema:
    """Return the schema of columns as DDL lists them: `name TYPE, name TYPE`."""
    return arrow_schema(dict(column.split(None, 1) for column in _parts(ddl)))


@cache
def table_schema(table: str) -> pa.Schema:
    """Return the columns of a table of this version."""
    return arrow_schema(schemas.columns(table))


def delta_schema(table: str) -> dict[str, Any]:
    """Return the columns of a table of this version, as Delta writes them in JSON."""
    words = "\n".join(
        f"  {name} {schemas.SPARK_TYPES[word['type']]} COMMENT '{_escaped(word['comment'])}',"
        for name, word in schemas.vocabulary().items()
    )
    body = schemas.columns_ddl(table).replace("{vocabulary},", words).replace("{vocabulary}", words)
    fields = [
        {
            "name": name,
            "type": delta_type(kind),
            "nullable": not never_null,
            "metadata": {"comment": re.sub(r"\\(.)|''", lambda found: found[1] or "'", comment)}
            if comment
            else {},
        }
        for name, kind, never_null, comment in _COLUMN.findall(body)
    ]
    return {"type": "struct", "fields": fields}


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace("'", "\\'")


def _split(ddl: str) -> tuple[str, str]:
    name, _, inner = ddl.strip().partition("<")
    return name.strip().upper(), inner[:-1] if inner else ""


def _parts(inner: str) -> list[str]:
    """Return the texts between commas outside of angle brackets."""
    found, depth = [""], 0
    for char in inner:
        depth += (char == "<") - (char == ">")
        if char == "," and not depth:
            found.append("")
        else:
            found[-1] += char
    return [one.strip() for one in found]


def _fields(inner: str) -> Iterator[tuple[str, str]]:
    for part in _parts(inner):
        name, _, kind = part.partition(":")
        yield name.strip(), kind.strip()
