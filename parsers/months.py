"""The number of a month by its name in any language, from CLDR's data (package babel). No Spark."""

from functools import cache

# forms and contexts of CLDR in which names of months differ
WIDTHS, CONTEXTS = ("wide", "abbreviated"), ("format", "stand-alone")


@cache
def _numbers(locales: tuple[str, ...] | None) -> dict[str, set[int]]:
    """Return name in lower case and without its dot -> numbers of months. locales: None: all languages."""
    from babel import Locale, UnknownLocaleError, localedata

    found: dict[str, set[int]] = {}
    for name in locales or [name for name in localedata.locale_identifiers() if "_" not in name]:
        try:
            months = Locale.parse(name).months
        except (UnknownLocaleError, ValueError):
            continue
        for context in CONTEXTS:
            for width in WIDTHS:
                for number, text in months[context][width].items():
                    found.setdefault(text.casefold().rstrip("."), set()).add(number)
    return found


@cache
def month(name: str) -> str:
    """Return `11` for `Nov`, `noviembre` or `11\u6708`; the name itself where it is unknown or ambiguous."""
    key = name.casefold().rstrip(".")
    for locales in (("en",), None):
        numbers = _numbers(locales).get(key, set())
        if len(numbers) == 1:
            return f"{next(iter(numbers)):02d}"
    return name
