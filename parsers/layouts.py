"""Load layouts and wrappers.

A layout locates time stamp, level, logger and message in a log line; a wrapper is a collector's text before
the line. A layout is compiled from log4j's own ConversionPattern (org.apache.log4j.PatternLayout, log4j2
PatternLayout, Logback), or it is JSON with one record per line. Every layout yields the same slots: time,
level, logger, thread, log ident, statement, thrown.
"""

import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from parsers.patterns import THROWABLE_CLASS, DefinitionError, check_dialect

# the log ident, a component's text before its statement: `[Controller id=1 epoch=5] `, `Controller 1 epoch 5
# `, `[Kafka Server 3], `
LOG_IDENT = (
    r"(?<log_ident>(?:\[[^\]]{1,300}+\][:,]{0,2}+ ?+)?+(?:(?:Controller|Broker) \d++ (?:epoch \d++ )?+)?+)"
)
LOGGER = r"(?<logger>[\w.$\-]+)"
# a word and a colon before the message are no logger: `INFO Registered: ..`
DOTTED_LOGGER = r"(?<logger>[\w$\-]+\.[\w.$\-]+)"
LEVELS = ("TRACE", "DEBUG", "INFO", "WARN", "WARNING", "ERROR", "FATAL")
LEVEL = rf"(?<level>{'|'.join(LEVELS)})"
# without time and level, only Kafka's own loggers distinguish a line from prose
KAFKAS_LOGGER = r"(?<logger>state\.change\.logger|kafka\.[\w.$]+|org\.apache\.kafka\.[\w.$]+)"
# `%m%ex`: an exception begins on the line of its message, or the message is the rest of the line
THROWN = rf"(?:(?![^\n])| (?<thrown>{THROWABLE_CLASS}(?:: [^\n]*)?)[ \t]*)"
TRAILING = r"[ \t]*"
# the lines after the message
REST = TRAILING + r"(?:\n.*)?"
JSON_SLOTS = ("time", "level", "logger", "thread", "message", "stack_trace", "error_class", "error_message")
BUILT_IN = "parsers/layouts.toml"
# numbers of syslog's levels, from log4j2's Severity
SYSLOG_LEVELS = {
    "0": "FATAL",
    "1": "FATAL",
    "2": "FATAL",
    "3": "ERROR",
    "4": "WARN",
    "5": "INFO",
    "6": "INFO",
    "7": "DEBUG",
}
_KEYS = {
    "conversion_pattern",
    "json",
    "levels",
    "pattern",
    "wrapper",
    "prefix",
    "head",
    "logger",
    "of_cluster",
    "sample",
}
_NAME = re.compile(r"[a-z][a-z0-9_]*")


@dataclass(frozen=True)
class Layout:
    """One layout.

    head        regex of a record's first line up to the message; a continuation line does not match it
    line        regex of the first line of a record whose message is one line
    record      regex of a whole record whose message may have several lines; empty where nothing marks its
                end
    pattern     its ConversionPattern; empty for JSON
    time        template of the time stamp, groups in braces, such as `{date} {clock}{fraction}{zone}`; empty
                where it prints none
    cuts        the logger may be abbreviated, `k.c.KafkaController`, to at most `width` characters, if given
    json        keys of each of JSON_SLOTS in a JSON layout, the first existing one counts; `a.b` may be key b
                of object a
    levels      printed level of a JSON layout -> its name; empty: the name itself
    logger      logger of records that print none
    of_cluster  its records are of no node; equal records of several nodes are one
    """

    name: str
    head: str
    line: str
    record: str
    pattern: str = ""
    time: str = ""
    cuts: bool = False
    width: int | None = None
    json: Mapping[str, tuple[str, ...]] | None = None
    levels: Mapping[str, str] = field(default_factory=dict)
    logger: str = ""
    of_cluster: bool = False
    samples: tuple[Mapping[str, Any], ...] = ()
    built_in: bool = True

    @property
    def bare(self) -> bool:
        """Return whether its lines have no time stamp.

        Such a layout is tried only on files that no other one matches.
        """
        return not self.time

    @property
    def time_groups(self) -> list[str]:
        """Return the groups of the time stamp; the first one always matches."""
        return [] if self.json else re.findall(r"\{(\w+)\}", self.time)

    @property
    def names_logger(self) -> bool:
        """Return whether its records name their logger."""
        return bool(self.logger or "(?<logger>" in self.line or (self.json and self.json["logger"]))


@dataclass(frozen=True)
class Wrapper:
    """The text that a collector of logs puts before every line.

    pattern: of a collector that cuts lines, it has a group `partial`, which matches where the line continues
    in the next one of `stream`.
    """

    name: str
    pattern: str
    samples: tuple[Mapping[str, Any], ...] = ()
    built_in: bool = True


@dataclass(frozen=True)
class Shapes:
    """All layouts in the order of the trial, and all wrappers from the outermost to the innermost."""

    layouts: tuple[Layout, ...]
    wrappers: tuple[Wrapper, ...]


def literal(text: str) -> str:
    """Return a regex that matches only this text."""
    return re.sub(r"([\\.*+?()\[\]{}|^$\-])", r"\\\1", text)


# -- dates -------------------------------------------------------------------------------------------------

_DATE_FORMATS = {
    "": "yyyy-MM-dd HH:mm:ss,SSS",
    "DEFAULT": "yyyy-MM-dd HH:mm:ss,SSS",
    "DEFAULT_MICROS": "yyyy-MM-dd HH:mm:ss,SSSSSS",
    "DEFAULT_NANOS": "yyyy-MM-dd HH:mm:ss,SSSSSSSSS",
    "DEFAULT_PERIOD": "yyyy-MM-dd HH:mm:ss.SSS",
    "ISO8601": "yyyy-MM-dd HH:mm:ss,SSS",
    "ISO8601_BASIC": "yyyyMMdd'T'HHmmss,SSS",
    "ISO8601_BASIC_PERIOD": "yyyyMMdd'T'HHmmss.SSS",
    "ISO8601_OFFSET_DATE_TIME_HH": "yyyy-MM-dd'T'HH:mm:ss,SSSX",
    "ISO8601_OFFSET_DATE_TIME_HHMM": "yyyy-MM-dd'T'HH:mm:ss,SSSXX",
    "ISO8601_OFFSET_DATE_TIME_HHCMM": "yyyy-MM-dd'T'HH:mm:ss,SSSXXX",
    "ISO8601_PERIOD": "yyyy-MM-dd'T'HH:mm:ss.SSS",
    "ISO8601_PERIOD_MICROS": "yyyy-MM-dd'T'HH:mm:ss.SSSSSS",
    "COMPACT": "yyyyMMddHHmmssSSS",
    "ABSOLUTE": "HH:mm:ss,SSS",
    "DATE": "dd MMM yyyy HH:mm:ss,SSS",
    "UNIX_MILLIS": "UNIX_MILLIS",
}
_ZONE = r"Z|[+\-]\d\d(?::?\d\d)?"
_ISO = re.compile(r"yyyy-MM-dd(?:'T'|T| )HH:mm:ss(?:[,.]S+)?( ?(?:X+|x+|Z+))?")
# appenders of one site may differ: T or blank, comma or point or no fraction, zone or none
ISO_TIME = r"(?<date>\d{4}-\d\d-\d\d)[T ](?<clock>\d\d:\d\d:\d\d)(?:(?<fraction>[,.]\d{3})\d{0,6})?"
ISO_ZONE = rf"(?: ?(?<zone>{_ZONE}))?"
ISO_WHOLE = ISO_TIME + ISO_ZONE
# the time of a layout that counts milliseconds since 1970
EPOCH_MS = "{epoch_ms}"
EPOCH_MILLIS = r"\d{12,14}"
EPOCH_SECONDS = r"(?<seconds>\d{9,11})(?:\.(?<fraction>\d{1,9}))?"
EPOCH_INSTANT = r'\{"epochSecond": ?(?<seconds>\d{9,11})(?:, ?"nanoOfSecond": ?(?<nanos>\d{1,9}))?\}'
_DATE_PIECE = re.compile(
    r"'(?P<quoted>[^']*)'|(?P<date>yyyy-MM-dd)|(?P<clock>HH:mm:ss)|(?P<fraction>[,.]S+)|(?P<digits>S+)"
    r"|(?P<year>(?:yy|uu)(?![yu])|yyyy(?!y)|uuuu(?!u))|(?P<month_name>MMMM?(?!M))|(?P<month>MM?(?!M))|(?P<day>dd?(?!d))|(?P<hour>HH?(?!H))|(?P<minute>mm?(?!m))"
    r"|(?P<second>ss?(?!s))|(?P<zone>X+|x+|Z+)|(?P<named_zone>z+)|(?P<unknown>(?!T(?!T))(?P<letter>[A-Za-z])(?P=letter)*)|(?P<other>.)",
    re.DOTALL,
)
# in any language: see `parsers.months`
MONTH_NAME = r"[^\s\d\[\](),:;|/\-]{2,20}+"
_DATE_REGEX = {
    "date": r"\d{4}-\d\d-\d\d",
    "clock": r"\d\d:\d\d:\d\d",
    "zone": _ZONE,
    "month_name": MONTH_NAME,
}


def fixed_zone(name: str, where: str) -> str:
    """Return a zone as a time stamp has it: `Z`, `+08:00`, ` Europe/Berlin`. Raises DefinitionError."""
    if found := re.fullmatch(r"(?:GMT|UTC)?([+\-])(\d{1,2})(?::?(\d\d))?", name):
        return f"{found[1]}{int(found[2]):02d}:{found[3] or '00'}"
    if name in {"UTC", "GMT", "Z"}:
        return "Z"
    try:
        ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        raise DefinitionError(f"{where}: there is no time zone {name}") from None
    return f" {name}"


def _date(options: list[str], where: str) -> tuple[str, str]:
    """Return (regex, template of the time) for the options of %d."""
    form = options[0].strip().strip('"') if options else ""
    zone = options[1] if len(options) > 1 else ""
    if logback := re.fullmatch(r'(.*?)"?, *((?:UTC|GMT)[+\-:\d]*|[A-Z]\w+/[\w/]+)', form):
        form, zone = logback.groups()
    fixed = fixed_zone(zone, where) if zone else ""
    asked, form = form, _DATE_FORMATS.get(form, form)
    if iso := _ISO.fullmatch(form):
        free = ISO_ZONE if iso[1] or not fixed else ""
        return ISO_TIME + free, "{date} {clock}{fraction}" + ("{zone}" if free else fixed)
    if form == "UNIX_MILLIS":
        return rf"(?<epoch_ms>{EPOCH_MILLIS})", EPOCH_MS
    groups: set[str] = set()
    regex = century = ""

    def unsupported(why: str) -> DefinitionError:
        return DefinitionError(f"{where}: date format {{{asked}}} is not supported: {why}")

    if re.fullmatch(r"[A-Z][A-Z\d_]+", form):
        raise unsupported("it is no date of numbers whose order is known")
    for piece in _DATE_PIECE.finditer(form):
        name, text = piece.lastgroup or "", piece.group()
        if name == "unknown":
            raise unsupported(
                f"{text} is no number of year, month, day, hour (0-23), minute, second or fraction, and no zone"
            )
        if name in groups:
            raise unsupported(f"{name} is used twice")
        if name in {"quoted", "other"}:
            regex += literal(piece[name])
            continue
        if name == "named_zone":  # a name such as CST has no unique offset: --timezone gives it
            regex += r"[\w+:\-/]{1,40}"
            continue
        groups.add(name)
        digits = len(text.lstrip(",."))
        kept = min(digits, 3) if name in {"fraction", "digits"} else digits
        number = rf"\d{{{kept}}}" if kept > 1 or name in {"fraction", "digits"} else r"\d{1,2}"
        number = _DATE_REGEX.get(name, "[,.]" * (name == "fraction") + number)
        regex += f"(?<{name}>{number})" + (rf"\d{{{digits - kept}}}" if digits > kept else "")
        century = "20" if text in {"yy", "uu"} else century
    month = "month_name" if "month_name" in groups else "month"
    if "date" not in groups and not groups >= {"year", month, "day"}:
        raise unsupported("it has no date")
    if "clock" not in groups and not groups >= {"hour", "minute", "second"}:
        raise unsupported("it has no time of day to the second")
    time = "{date}" if "date" in groups else f"{century}{{year}}-{{{month}}}-{{day}}"
    time += " {clock}" if "clock" in groups else " {hour}:{minute}:{second}"
    time += "{fraction}" if "fraction" in groups else ".{digits}" if "digits" in groups else ""
    return regex, time + ("{zone}" if "zone" in groups else fixed)


# -- conversion patterns -----------------------------------------------------------------------------------

# marks in the regex of a pattern: %m, %n, %ex
_MESSAGE, _END, _THROWN = "\0m", "\0n", "\0t"
_SLOTS = {
    "date": ("d", "date"),
    "level": ("p", "le", "level"),
    "logger": ("c", "lo", "logger"),
    "thread": ("t", "tn", "thread", "threadName"),
    "message": ("m", "msg", "message"),
}
_REGEX = {"level": LEVEL, "logger": LOGGER, "thread": r"(?<thread>[^\[\]\n]{0,300}?)", "message": _MESSAGE}
_OTHERS = {
    r"\d+": (
        "r",
        "relative",
        "pid",
        "processId",
        "T",
        "tid",
        "threadId",
        "tp",
        "threadPriority",
        "sn",
        "sequenceNumber",
        "N",
        "nano",
    ),
    r"[\d?]+": ("L", "line"),
    r"[\w.$?<>\-]*": ("F", "file", "C", "class", "M", "method"),
    r"[\w.$?<>\-]*(?:\([^()]{0,300}\))?": ("l", "location"),
    r"(?:\[[^\[\]\n]{0,300}\]|[^\[\]\n]{0,300}?)": ("x", "NDC"),
    r"[^\[\]|\n]{0,300}?": (
        "X",
        "mdc",
        "MDC",
        "K",
        "map",
        "MAP",
        "marker",
        "markerSimpleName",
        "cn",
        "contextName",
        "property",
        "u",
        "uuid",
        "h",
        "host",
        "hostName",
    ),
    r"(?:true|false)": ("endOfBatch",),
}
# the text inside is printed in a colour or with small changes
_AROUND = (
    "(",
    "highlight",
    "style",
    "clr",
    "enc",
    "encode",
    "replace",
    "maxLen",
    "maxLength",
    "black",
    "red",
    "green",
    "yellow",
    "blue",
    "magenta",
    "cyan",
    "white",
    "gray",
    "boldRed",
    "boldGreen",
    "boldYellow",
    "boldBlue",
    "boldMagenta",
    "boldCyan",
    "boldWhite",
    "faint",
)
_THROWABLE = (
    "ex",
    "exception",
    "throwable",
    "xEx",
    "xException",
    "xThrowable",
    "rEx",
    "rException",
    "rThrowable",
    "wEx",
    "xwEx",
    "wex",
    "xwex",
    "rootException",
)
_WORDS: dict[str, str] = {
    **{word: slot for slot, words in _SLOTS.items() for word in words},
    **{word: regex for regex, words in _OTHERS.items() for word in words},
    **dict.fromkeys(_AROUND, "around"),
    **dict.fromkeys(("notEmpty", "varsNotEmpty", "variablesNotEmpty"), "optional"),
    **dict.fromkeys(_THROWABLE, _THROWN),
    **dict.fromkeys(("nopex", "nopexception"), ""),
    "n": _END,
}
_PIECE = re.compile(
    r"\\(?P<escaped>.)|%(?P<percent>%)|%(?P<left>-?)(?P<width>\d*)(?:\.-?(?P<most>\d+))?(?P<word>\(|[A-Za-z]*)|(?P<other>.)",
    re.DOTALL,
)
_LONGEST_LEVEL = 5
_PADDING = " {0,60}"


@dataclass
class _Facts:
    """Properties of a pattern besides its regex. seen: the slots that it has."""

    time: str = ""
    cuts: bool = False
    width: int | None = None
    seen: set[str] = field(default_factory=set)


def _lookups(pattern: str, where: str) -> str:
    """Replace `${NAME:-default}` by its default. Raises DefinitionError where there is none."""
    for _ in range(20):
        found = re.search(r"\$\{([^${}]*)\}", pattern)
        if not found:
            return pattern
        name, has_default, default = found[1].partition(":-")
        if not has_default:
            raise DefinitionError(f"{where}: ${{{name}}} has no default; replace it by its value")
        pattern = pattern[: found.start()] + default + pattern[found.end() :]
    raise DefinitionError(f"{where}: too many ${{..}}")


def _braced(pattern: str, at: int, pair: str, where: str) -> tuple[str, int]:
    """Return (the text inside of the brackets that open at `at`, the position after them)."""
    depth, begin = 0, at
    while at < len(pattern):
        if pattern[at] == "\\":
            at += 1
        elif pattern[at] == pair[0]:
            depth += 1
        elif pattern[at] == pair[1]:
            depth -= 1
            if depth == 0:
                return pattern[begin + 1 : at], at + 1
        at += 1
    raise DefinitionError(f"{where}: {pair[0]} is not closed in {pattern[begin:]}")


def _regex(pattern: str, facts: _Facts, where: str) -> str:
    """Return the regex of a conversion pattern, with _MESSAGE, _END and _THROWN in it.

    Raises DefinitionError.
    """
    regex, at = "", 0
    while piece := _PIECE.match(pattern, at):
        at = piece.end()
        if piece["escaped"]:
            regex += {"n": _END, "t": "\\t"}.get(piece["escaped"]) or literal(piece["escaped"])
            continue
        if plain := piece["percent"] or piece["other"]:
            regex += literal(plain)
            continue
        word, options = piece["word"], list[str]()
        kind = _WORDS.get(word)
        if kind is None:
            raise DefinitionError(f"{where}: conversion %{word or pattern[at : at + 1]} is not supported")
        at -= word == "("
        if kind in {"around", "optional"} and pattern.startswith("(", at):
            content, at = _braced(pattern, at, "()", where)
            options.append(content)
        while word != "(" and pattern.startswith("{", at):
            content, at = _braced(pattern, at, "{}", where)
            options.append(content)
        # a level is padded on either side
        padding = _PADDING if piece["width"] else ""
        before = "" if piece["left"] and kind != "level" else padding
        after = padding if piece["left"] or kind == "level" else ""
        regex += before + _conversion(word, options, piece["most"], facts, where) + after
    return regex


def _conversion(word: str, options: list[str], most: str | None, facts: _Facts, where: str) -> str:
    """Return the regex of one conversion. most: number of characters to which it is cut."""
    kind = _WORDS[word]
    if kind in {"around", "optional"}:
        if not options:
            raise DefinitionError(f"{where}: %{word} has nothing in braces")
        inner = _regex(options[0], facts, where)
        if kind == "optional" and _MESSAGE in inner:
            raise DefinitionError(f"{where}: the message may not be inside %{word}")
        return inner if kind == "around" else f"(?:{inner})?"
    if kind in facts.seen:
        raise DefinitionError(f"{where}: %{_SLOTS[kind][0]} is used twice")
    if kind in _SLOTS:
        facts.seen.add(kind)
    if kind == "date":
        regex, facts.time = _date(options, where)
        return regex
    if kind == "level" and (options or int(most or _LONGEST_LEVEL) < _LONGEST_LEVEL):
        raise DefinitionError(f"{where}: %{word} changes the names of the levels, which is not supported")
    if kind == "logger":
        facts.cuts, facts.width = bool(options or most), int(most) if most else None
    return _REGEX.get(kind, kind)


def from_conversion_pattern(pattern: str, where: str, name: str = "", prefix: str = "") -> Layout:
    """Return the layout of a ConversionPattern. Raises DefinitionError, which names what is not supported.

    prefix: regex of text before it.
    """
    facts = _Facts()
    head, message, tail = _regex(_lookups(pattern, where), facts, where).partition(_MESSAGE)
    tail, _, ending = tail.partition(_END)
    if not message:
        raise DefinitionError(f"{where}: no %m in the pattern")
    if _END in head:
        raise DefinitionError(f"{where}: %n before %m is not supported: the head of a record is one line")
    if ending.replace(_END, "").replace(_THROWN, ""):
        raise DefinitionError(f"{where}: text after %n is not supported")
    if not facts.seen & {"date", "level", "logger"}:
        raise DefinitionError(
            f"{where}: with no time stamp, level or logger, no record can be distinguished from other text"
        )
    head, tail = prefix + head.replace(_THROWN, ""), tail.replace(_THROWN, THROWN)
    bare_line = not facts.seen & {"date", "level"}
    if bare_line:
        head, tail = head.replace(LOGGER, KAFKAS_LOGGER), tail.replace(LOGGER, KAFKAS_LOGGER)
    if not facts.cuts:
        head = head.replace(LOGGER, DOTTED_LOGGER)
    lazy = "?" if tail == THROWN else ""
    # a head matches in one way only, so that a failing rest does not backtrack into it
    first = f"(?>{head}){LOG_IDENT}(?<statement>[^\\n]*{lazy}){tail}"
    line = first + TRAILING if tail not in {"", THROWN} else first
    record = (
        f"(?>{head}){LOG_IDENT}(?<statement>.*?){tail}{REST}"
        if tail not in {"", THROWN} and not bare_line
        else ""
    )
    for part in (head, line, record):
        check_dialect(part, where)
    return Layout(
        name, first if bare_line else head, line, record, pattern, facts.time, facts.cuts, facts.width
    )


# -- JSON --------------------------------------------------------------------------------------------------


def from_json(keys: Mapping[str, Any], where: str, name: str = "", levels: str = "names") -> Layout:
    """Return a layout of one JSON object per line. Raises DefinitionError.

    levels: `names`, or `syslog` for numbers. Other programs print such numbers, too, so these need the key of
    the logger.
    """
    if levels not in {"names", "syslog"}:
        raise DefinitionError(f"{where}: levels are names or syslog")
    if unknown := set(keys) - set(JSON_SLOTS):
        raise DefinitionError(
            f"{where}: unknown slot {', '.join(sorted(unknown))}; there are {', '.join(JSON_SLOTS)}"
        )
    slots = {slot: (value,) if isinstance(value, str) else tuple(value) for slot, value in keys.items()}
    for slot in ("time", "level", "message"):
        if not slots.get(slot):
            raise DefinitionError(f"{where}: json names no key of the {slot}")
    last = sorted(
        {literal(path.rsplit(".", 1)[-1]) for path in slots["level"]}
        | {literal(path) for path in slots["level"]}
    )
    numbers = SYSLOG_LEVELS if levels == "syslog" else {}
    if numbers and not slots.get("logger"):
        raise DefinitionError(f"{where}: numbers of levels need a key of the logger")
    names = "|".join(spelt for level in LEVELS for spelt in (level, level.lower(), level.title()))
    level = rf'"(?:{"|".join(last)})" {{0,5}}: {{0,5}}' + ("[0-7](?![0-9.])" if numbers else f'"(?:{names})"')
    beside = rf'(?=[^\n]*"(?:{"|".join(map(literal, slots["logger"]))})" {{0,5}}:)' if numbers else ""
    head = rf'\{{ {{0,5}}{beside}"[^\n]*{level}'
    check_dialect(head, where)
    return Layout(
        name,
        head,
        head,
        "",
        time="{json}",
        json={slot: slots.get(slot, ()) for slot in JSON_SLOTS},
        levels=numbers,
    )


# -- files -------------------------------------------------------------------------------------------------


def _from_pattern(entry: Mapping[str, Any], where: str, name: str) -> Layout:
    """Return a layout of text that no logger printed, such as the output of kafka-dump-log."""
    if missing := {"head", "logger"} - set(entry):
        raise DefinitionError(f"{where}: a pattern needs {' and '.join(sorted(missing))}, too")
    head, line = entry["head"], entry["pattern"]
    for part in (head, line):
        check_dialect(part, where)
    if lacking := [group for group in ("statement", "epoch_ms") if f"(?<{group}>" not in line]:
        raise DefinitionError(f"{where}: the pattern has no group {' and '.join(lacking)}")
    of_cluster = entry.get("of_cluster", False)
    return Layout(name, head, line, "", time=EPOCH_MS, logger=entry["logger"], of_cluster=of_cluster)


def _entries(text: str, file: str, built_in: bool) -> Iterator[Layout | Wrapper]:
    try:
        content = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise DefinitionError(f"{file}: {error}") from None
    for name, entry in content.items():
        where = f"{file} [{name}]"
        if not isinstance(entry, dict):
            raise DefinitionError(f"{where}: a layout is a table with a `conversion_pattern`")
        if not _NAME.fullmatch(name):
            raise DefinitionError(
                f"{where}: a name is of small letters, digits and _, and begins with a letter"
            )
        if unknown := set(entry) - _KEYS:
            raise DefinitionError(
                f"{where}: unknown key {', '.join(sorted(unknown))}; there are {', '.join(sorted(_KEYS))}"
            )
        kinds = [kind for kind in ("conversion_pattern", "json", "pattern", "wrapper") if kind in entry]
        if len(kinds) != 1:
            raise DefinitionError(f"{where}: give one of conversion_pattern, json, pattern, wrapper")
        samples = tuple(entry.get("sample", ()))
        if kinds == ["wrapper"]:
            check_dialect(entry["wrapper"], where)
            yield Wrapper(name, entry["wrapper"], samples, built_in)
            continue
        if kinds == ["json"]:
            layout = from_json(entry["json"], where, name, entry.get("levels", "names"))
        elif kinds == ["pattern"]:
            layout = _from_pattern(entry, where, name)
        else:
            layout = from_conversion_pattern(
                entry["conversion_pattern"], where, name, entry.get("prefix", "")
            )
        yield replace(layout, samples=samples, built_in=built_in)


@cache
def shapes(site: Path | None = None) -> Shapes:
    """Return the built-in layouts and wrappers, after those of a site's `layouts.toml`.

    Raises DefinitionError.
    A site's entry replaces the built-in one of the same name.
    """
    text = files(__name__.split(".")[0]).joinpath("layouts.toml").read_text("utf-8")
    found = list(_entries(text, BUILT_IN, True))
    if site is not None and (site / "layouts.toml").is_file():
        own = list(_entries((site / "layouts.toml").read_text("utf-8"), "layouts.toml", False))
        names = {entry.name for entry in own}
        found = own + [entry for entry in found if entry.name not in names]
    return Shapes(
        tuple(entry for entry in found if isinstance(entry, Layout)),
        tuple(entry for entry in found if isinstance(entry, Wrapper)),
    )


def wrapping(wrappers: Iterable[Wrapper]) -> str:
    """Return a regex of all wrappers before a line.

    It matches every line, most of them with an empty text.
    """
    return "".join(f"(?:{wrapper.pattern})?" for wrapper in wrappers)
