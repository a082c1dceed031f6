"""JSON schemas of what `audit --json` and `findings --json` print.

`make docs` writes them into docs/reference.
"""

from typing import Any

import schemas

_DRAFT = "https://json-schema.org/draft/2020-12/schema"
_KINDS = {
    "INT": "integer",
    "BIGINT": "integer",
    "STRING": "string",
    "TIMESTAMP": "string",
    "BOOLEAN": "boolean",
    "DOUBLE": "number",
}


def _column(kind: str, words: list[str] | None) -> dict[str, Any]:
    if words:
        return {"enum": [*words, None]}
    if kind.upper().startswith("ARRAY"):
        return {"type": ["array", "null"]}
    name = _KINDS.get(kind.upper().split("(")[0])
    return {"type": [name, "null"]} if name else {}


def finding() -> dict[str, Any]:
    """Return the schema of an object of `findings --json`."""
    one_of = {"severity": list(schemas.SEVERITIES), "status": ["new", "open", "reopened", "resolved"]}
    columns = {name: _column(kind, one_of.get(name)) for name, kind in schemas.columns("findings").items()}
    columns |= {"silenced": {"type": ["boolean", "null"]}, "caused_by": {"type": ["string", "null"]}}
    required = ["cluster", "check_id", "severity", "status", "title", "fingerprint", "evidence"]
    return {
        "$schema": _DRAFT,
        "title": "A finding",
        "type": "object",
        "properties": columns,
        "required": required,
    }


def verdict() -> dict[str, Any]:
    """Return the schema of the object of `audit --json`."""
    of_findings = {name: value for name, value in finding().items() if name not in ("$schema", "title")}
    texts = {"type": "array", "items": {"type": "string"}}
    cluster = {
        "type": "object",
        "properties": {
            "cluster": {"type": "string"},
            "records_read": {"type": "integer", "minimum": 0},
            "records_new": {"type": ["integer", "null"], "minimum": 0},
            "now": {"type": ["string", "null"]},
            "problem": {"type": ["string", "null"]},
            "unreadable": texts,
            "counts": {"type": "object", "additionalProperties": {"type": "integer"}},
            "not_shown": texts,
            "unknown_statements": {"type": "array", "items": {"type": "object"}},
        },
        "required": [
            "cluster",
            "records_read",
            "records_new",
            "now",
            "problem",
            "unreadable",
            "counts",
            "not_shown",
        ],
    }
    return {
        "$schema": _DRAFT,
        "title": "The verdict of a run",
        "type": "object",
        "properties": {
            "run_id": {"type": "string"},
            "status": {"enum": ["clean", "findings", "input_problem"]},
            "exit_code": {"type": "integer"},
            "records_read": {"type": "integer", "minimum": 0},
            "records_new": {"type": "integer", "minimum": 0},
            "clusters": {"type": "array", "items": cluster},
            "findings": {"type": "array", "items": of_findings},
            "inputs": {"type": "array", "items": {"type": "object", "required": ["cluster", "file", "kind"]}},
            "notes": texts,
        },
        "required": [
            "run_id",
            "status",
            "exit_code",
            "records_read",
            "records_new",
            "clusters",
            "findings",
            "inputs",
            "notes",
        ],
    }


# file of docs/reference -> schema
FILES = {"verdict.schema.json": verdict, "finding.schema.json": finding}
