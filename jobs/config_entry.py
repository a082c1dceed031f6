"""Read one table of audit.toml value by value.

A wrong value raises UsageError, which names file and key.
"""

import difflib
import re
from collections.abc import Iterable
from datetime import UTC, date, datetime, time
from typing import Any
from urllib.parse import SplitResult, urlsplit

from jobs.errors import UsageError
from jobs.globs import matches


def nearest(name: str, known: Iterable[str]) -> str:
    """Return the known name that is most similar to an unknown one."""
    return difflib.get_close_matches(name, list(known), 1, 0.0)[0]


class Entry:
    """One table of the file. Its values are read by type; a wrong one raises UsageError."""

    def __init__(self, table: Any, where: str, known: Iterable[str]) -> None:
        if not isinstance(table, dict):
            raise UsageError(f"{where} must be a table")
        self.table, self.where = table, where
        known = list(known)
        for key in table:
            if key not in known:
                raise UsageError(f"{where}: unknown key {key!r}; did you mean {nearest(key, known)!r}?")

    def wrong(self, key: str, what: str) -> UsageError:
        """Return the error about a key."""
        return UsageError(f"{self.where}: {key} {what}")

    def required(self, *keys: str) -> None:
        """Raise UsageError where one of the keys is missing."""
        for key in keys:
            if key not in self.table:
                raise self.wrong(key, "is missing")

    def text(self, key: str) -> str | None:
        """Return a text that is not empty; None where the key is missing."""
        value = self.table.get(key)
        if value is not None and (not isinstance(value, str) or not value.strip()):
            raise self.wrong(key, "must be a text")
        return value

    def texts(self, key: str, default: tuple[str, ...] = ()) -> tuple[str, ...]:
        """Return a list of texts that is not empty."""
        value = self.table.get(key)
        if value is None:
            return default
        if not isinstance(value, list) or not value:
            raise self.wrong(key, 'must be a list of texts such as ["a", "b"]')
        if not all(isinstance(item, str) and item for item in value):
            raise self.wrong(key, "must be a text in every item")
        return tuple(value)

    def number(self, key: str, default: int, least: int = 0) -> int:
        """Return a whole number."""
        value = self.table.get(key, default)
        if not isinstance(value, int) or isinstance(value, bool):
            raise self.wrong(key, "must be a whole number")
        if value < least:
            raise self.wrong(key, f"must be {least} or more")
        return value

    def flag(self, key: str, default: bool) -> bool:
        """Return true or false."""
        value = self.table.get(key, default)
        if not isinstance(value, bool):
            raise self.wrong(key, "must be true or false")
        return value

    def one_of(self, key: str, default: str | None, known: Iterable[str]) -> str:
        """Return one of the known texts."""
        value = self.text(key) or default
        if value is None or value not in (known := list(known)):
            raise self.wrong(
                key, f"{value!r} is none of {', '.join(known)}; did you mean {nearest(str(value), known)!r}?"
            )
        return value

    def moment(self, key: str) -> datetime | None:
        """Return a time in UTC; without a zone it is UTC."""
        value = self.table.get(key)
        if isinstance(value, str):
            try:
                value = datetime.fromisoformat(value)
            except ValueError:
                value = 0
        if isinstance(value, date) and not isinstance(value, datetime):
            value = datetime.combine(value, time())
        if value is None:
            return None
        if not isinstance(value, datetime):
            raise self.wrong(key, "must be a time such as 2026-12-24T00:00:00Z")
        return (value if value.tzinfo else value.replace(tzinfo=UTC)).astimezone(UTC)

    def globs(self, key: str, names: Iterable[str], what: str) -> tuple[str, ...]:
        """Return globs that each match one of the names; any glob is valid where no name is known."""
        given = self.texts(key, ("*",))
        names = list(names)
        for glob in given:
            if names and not any(matches([glob], name) for name in names):
                raise self.wrong(key, f"{glob!r} matches no {what}; the nearest is {nearest(glob, names)!r}")
        return given

    def glob(self, key: str, names: Iterable[str], what: str) -> str:
        """Return one glob that matches one of the names."""
        if (value := self.text(key)) is None:
            return "*"
        (found,) = Entry({key: [value]}, self.where, [key]).globs(key, names, what)
        return found


def check_url(url: str, entry: Entry, key: str, schemes: tuple[str, ...]) -> SplitResult:
    """Return the parts of an address.

    Raises UsageError, which does not repeat an address from an environment variable.
    """
    try:
        parts = urlsplit(url)
        sound = (
            parts.scheme in schemes
            and bool(parts.hostname)
            and (parts.port or 1) > 0
            and not re.search(r"[\s\x00-\x1f]", url)
        )
    except ValueError:
        sound = False
    if sound:
        return parts
    shown = "names an environment variable that holds no" if key.endswith("_env") else f"{url!r} is no"
    raise entry.wrong(key, f"{shown} address such as {schemes[0]}://host:port")
