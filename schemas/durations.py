"""Format durations in the one form of findings, the verdict, the report and progress."""


def two_units(seconds: float) -> str:
    """Return seconds, 0 or more and rounded, in their two largest units: `39 s`, `9 min 20 s`, `3 h 5 min`,
    `2 d 4 h`.
    """
    left, parts = round(seconds), list[str | None]()
    for size, unit in ((86_400, "d"), (3_600, "h"), (60, "min"), (1, "s")):
        number, left = divmod(left, size)
        if number or parts:
            parts.append(f"{number:,} {unit}" if number else None)
    return " ".join(filter(None, parts[:2])) or "0 s"
