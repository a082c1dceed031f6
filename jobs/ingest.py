"""Files to records: which files are logs, whose they are, where a record begins and ends."""

import contextlib
import glob
import gzip
import os
import re
import shutil
import zlib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from datetime import date
from functools import reduce
from itertools import islice
from operator import or_
from pathlib import Path

from pyspark.sql import Column, DataFrame, Row, SparkSession, Window
from pyspark.sql import functions as F

from jobs.config import Cluster
from jobs.errors import InputError
from parsers import compile as compiled
from parsers.layouts import Layout, Wrapper, shapes
from parsers.match import Joiner, Matcher
from parsers.patterns import GROUP, SEPARATOR, to_python
from parsers.rules import RuleSet

LOOK = 256 * 1024
LOOK_AT_MOST = 4 * 1024 * 1024
LONGEST_HEAD = 4096
STAMP_LENGTH = 24
NODE_FOLDER = re.compile(r"(?:broker|node|kafka|controller|server)[-_.]?(\d+)", re.IGNORECASE)
# lines that tell whether a collector cuts lines
MOST_HEADERS = 50
# a million files are looked into a few at a time
AT_A_TIME = 500
ROTATED = "it was rotated away while it was read; the next run reads what it held under its new name"
# a link of a staged file is named by so many digits
LINK_DIGITS = 7
# a place is a file's number and the offset at which a split of it begins: a terabyte
OFFSET_BITS = 40
# of more lines, what belongs to stack traces is looked for once and kept
MOST_ONCE = 200_000
# more are no words of Kafka's, and not worth a rule each
MOST_BEGINNINGS = 20_000
MOST_BROADCAST = 500_000
# a stack trace may be long, but a million lines of prose between two records are none
LONGEST_TAIL = 20_000
STACK_TRACE = r"^(?:\s+at |\s*\.\.\. \d+ more|Caused by: |[\w.$]+\.[\w$]*(?:Exception|Error)(?::|$))"


@dataclass(frozen=True)
class LogFile:
    """One file that was given. kind: `log`, `bare` (records without time stamps), `empty`, `unrelated`, `unreadable`.

    open_end: its last line has no end: it is being written, or the writer died.  open_head: what there is of it may be the beginning
    of a header.  inode: of the file that was looked into.
    length: bytes of its text, unpacked.  cut: a collector has cut long lines of it in pieces.  alike: files that are empty, or unrelated, stand for so many of a cluster.
    """

    path: Path
    size: int
    kind: str
    node: int | None = None
    why: str = ""
    cluster: str = ""
    timezone: str = "UTC"
    open_end: bool = False
    open_head: bool = False
    inode: int = 0
    length: int = 0
    cut: bool = False
    alike: int = 1

    @property
    def usable(self) -> bool:
        """Whether records can be read from it."""
        return self.kind in {"log", "bare"}


def _below(folder: str) -> Iterator[str]:
    """Every regular file of a folder and of those in it, by name; a folder that cannot be listed stands for what is in it."""
    try:
        with os.scandir(folder) as listed:
            entries = sorted(listed, key=lambda entry: entry.name)
    except OSError:
        yield folder
        return
    for entry in entries:
        if entry.is_dir(follow_symlinks=False):
            yield from _below(entry.path)
        else:
            with contextlib.suppress(OSError):
                if entry.is_file():
                    yield entry.path


def _is_empty(path: str) -> bool:
    try:
        return os.stat(path).st_size == 0
    except OSError:
        return False


def _expand(logs: Iterable[str]) -> Iterator[str]:
    """Every file given, each once where several are given."""
    for given in logs:
        if os.path.isdir(given):
            yield from _below(str(Path(given)))
        elif os.path.exists(given):
            yield str(Path(given))
        else:
            matches = sorted(glob.glob(given, recursive=True))
            if not matches:
                raise InputError(
                    f"{given}: no such file or folder; give the folder that holds controller.log and state-change.log"
                )
            yield from _expand(matches)


def _beginning(path: Path) -> Iterator[bytes]:
    """The file's content in pieces, unpacked. Raises OSError, EOFError or zlib.error where it cannot be read."""
    opened = gzip.open(path) if path.suffix == ".gz" else path.open("rb")  # noqa: SIM115
    with opened as stream:
        while piece := stream.read(LOOK):
            yield piece


def _open_end(path: Path) -> str | None:
    """The beginning of the last line, if that has no end."""
    if path.suffix == ".gz":
        return None
    with path.open("rb") as stream:
        stream.seek(-min(path.stat().st_size, LONGEST_HEAD), os.SEEK_END)
        end = stream.read()
    last = re.split(rb"[\r\n]", end)[-1]
    return last.decode("utf-8", "replace") if last else None


def _begins_like(line: str, other: str) -> bool:
    """Whether a line may become one with a header like that of another, digits being alike."""
    begun, whole = (re.sub(r"\d", "0", text)[:STAMP_LENGTH] for text in (line, other))
    return whole.startswith(begun)


class Sniffer:
    """Looks into files: is this a log, and whose?"""

    def __init__(self, ruleset: RuleSet | None = None) -> None:
        self.matcher = Matcher(ruleset)
        known = self.matcher.ruleset.layouts
        self.timed, self.bare = (
            to_python("|".join(GROUP.sub("(?:", layout.head) for layout in known if layout.bare == bare))
            for bare in (False, True)
        )

    def _lines(self, text: str) -> Iterator[str]:
        return map(self.matcher.unwrapped, text.split("\n"))

    def _looks_like(self, text: str) -> str | None:
        bare = False
        for line in self._lines(text):
            if self.timed.match(line) and (line[0] != "{" or self._is_record(line)):
                return "log"
            bare = bare or self.bare.match(line) is not None
        return "bare" if bare else None

    def _is_record(self, line: str) -> bool:
        """Whether a line of JSON is one of a log: other data may name a level, too."""
        record = self.matcher.record(line)
        return record is not None and record.fits

    def look(self, path: Path) -> LogFile:
        """What the file is; never raises."""
        try:
            status = path.stat()
            size = status.st_size
            if size == 0:
                return LogFile(path, 0, "empty")
            text, looked_at, kind = "", 0, None
            for piece in _beginning(path):
                if not text and piece[:2] in (b"\xff\xfe", b"\xfe\xff"):
                    return LogFile(path, size, "unreadable", why="it is UTF-16; convert it: iconv -f UTF-16 -t UTF-8")
                text += piece.decode("utf-8", "replace")
                kind = self._looks_like(text[looked_at:])
                looked_at = text.rfind("\n") + 1
                if kind or len(text) >= LOOK_AT_MOST:
                    break
            if kind is None:
                return LogFile(path, size, "unrelated" if text else "empty")
            # a truncated archive shows only at its end
            length = sum(map(len, _beginning(path))) if path.suffix == ".gz" else size
            unended, cut, goes_on = _open_end(path), False, False
            if any(map(self.matcher.joined.knows, text.split("\n", MOST_HEADERS)[:MOST_HEADERS])):
                last = ""
                for last in _raw_lines(path):
                    cut = cut or self.matcher.joined.is_partial(last)
                goes_on = self.matcher.joined.is_partial(last)
            head = next((line for line in text.split("\n") if self.timed.match(self.matcher.unwrapped(line))), "")
            return LogFile(
                path, size, kind, self._node(path, text, kind),
                open_end=unended is not None or goes_on,
                open_head=unended is not None and _begins_like(unended, head),
                inode=status.st_ino,
                length=length,
                cut=cut,
            )  # fmt: skip
        except (OSError, EOFError, zlib.error) as error:
            why = "the .gz is truncated" if isinstance(error, EOFError) else getattr(error, "strerror", None) or str(error)
            return LogFile(path, 0, "unreadable", why=why)

    def _node(self, path: Path, text: str, kind: str) -> int | None:
        """The id that the lines give, if they give one; else the folder's; else None."""
        said: Counter[int] = Counter()
        heads = self.timed if kind == "log" else self.bare
        for line in self._lines(text):
            if heads.match(line):
                record = self.matcher.record(line)
                node = self.matcher.speaker(record.speaker).get("node") if record and record.speaker else None
                if node is not None:
                    said[node] += 1
        folders = [m.group(1) for part in path.resolve().parts[:-1] if (m := NODE_FOLDER.fullmatch(part))]
        folder = int(folders[-1]) if folders else None
        if len(said) == 1:
            return next(iter(said))
        if said:  # several speakers in one file: each line speaks for itself
            return folder if folder in said else None
        return folder


def find(cluster: Cluster, ruleset: RuleSet | None = None) -> list[LogFile]:
    """Every file below what was given for a cluster, with what it is. Raises InputError where something given does not exist.

    Of those that are empty or unrelated, of which there may be a million, the first of each stands for all.
    """
    sniffer = Sniffer(ruleset)
    found: list[LogFile] = []
    others: dict[str, LogFile] = {}
    alike: Counter[str] = Counter()
    paths = _expand(cluster.logs)
    if len(cluster.logs) > 1 or not os.path.isdir(cluster.logs[0]):
        paths = iter(dict.fromkeys(paths))
    with ThreadPoolExecutor(2) as pool:
        while some := list(islice(paths, AT_A_TIME)):
            empty = dict.fromkeys(filter(_is_empty, some))
            if empty:
                alike["empty"] += len(empty)
                others.setdefault("empty", LogFile(Path(next(iter(empty))), 0, "empty"))
            for file in pool.map(sniffer.look, (Path(path) for path in some if path not in empty)):
                if file.kind in {"empty", "unrelated"}:
                    others.setdefault(file.kind, file)
                    alike[file.kind] += 1
                else:
                    found.append(file)
    found += [replace(file, alike=alike[kind]) for kind, file in others.items()]
    return [replace(file, cluster=cluster.name, timezone=cluster.timezone) for file in found]


def still_there(files: Iterable[LogFile]) -> list[LogFile]:
    """The files; a log that is not what was looked into any more, because it was rotated, removed or cut short, is unreadable."""

    def look_again(file: LogFile) -> LogFile:
        if not file.usable:
            return file
        try:
            status = file.path.stat()
        except OSError as error:
            return replace(file, kind="unreadable", why=f"{ROTATED} ({error.strerror})")
        same = status.st_ino == file.inode and status.st_size >= file.size
        return file if same else replace(file, kind="unreadable", why=ROTATED)

    return [look_again(file) for file in files]


def _raw_lines(path: Path) -> Iterator[str]:
    """The lines of a file without their ends; what is no UTF-8 comes out as it went in where it is encoded the same way."""
    with gzip.open(path, "rb") if path.suffix == ".gz" else path.open("rb") as stream:
        for line in stream:
            yield line.rstrip(b"\n").decode("utf-8", "surrogateescape")


@dataclass(frozen=True)
class Staged:
    """Log files linked under numbers, so that no name can mean anything to Spark; numbers follow the order of the paths.

    A file whose lines a collector has cut is copied instead, with its lines whole.
    """

    folder: Path
    files: tuple[LogFile, ...]

    def of_kind(self, kind: str) -> list[str]:
        """Paths of the links of one kind."""
        return [str(self.folder / _link_name(n, f)) for n, f in enumerate(self.files) if f.kind == kind]


def _link_name(number: int, file: LogFile) -> str:
    return f"{number:0{LINK_DIGITS}d}.log" + (".gz" if file.path.suffix == ".gz" and not file.cut else "")


@contextlib.contextmanager
def staged(files: Iterable[LogFile], folder: Path, joined: Joiner | None = None) -> Iterator[Staged]:
    """Links the readable logs into `folder`, which must be visible to all executors, and removes the links at the end."""
    joined = joined or Joiner(shapes().wrappers)
    chosen = tuple(f for f in files if f.usable)
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    try:
        for number, file in enumerate(chosen):
            link = folder / _link_name(number, file)
            if file.cut:
                with link.open("w", encoding="utf-8", errors="surrogateescape", newline="") as whole:
                    whole.writelines(line + "\n" for line in joined(_raw_lines(file.path)))
            else:
                link.symlink_to(file.path.resolve())
        yield Staged(folder, chosen)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@dataclass(frozen=True)
class Survey:
    """What the first pass over all lines of one kind of files found out.

    lines, continued: how many there are, how many of them begin no record.  layouts: those that the lines need.
    last_lines: number of the last line of each file_no.
    beginnings: of all statements; None where they are too many, or only the whole header tells them.
    first_day, last_day: of the records as printed, None where one prints none.
    repeated: hash BIGINT, of first lines that stand more than once; None where there are none.
    """

    lines: int
    continued: int
    layouts: list[Layout]
    last_lines: dict[int, int]
    beginnings: frozenset[str] | None
    first_day: date | None
    last_day: date | None
    repeated: DataFrame | None

    @property
    def records(self) -> int:
        """How many records begin."""
        return self.lines - self.continued


def sized(rows: DataFrame, count: int) -> DataFrame:
    """The rows, marked for a broadcast where they are few: of rows in memory Spark's planner does not know how many there are."""
    return F.broadcast(rows) if count < MOST_BROADCAST else rows


def line_hash(line: str | Column) -> Column:
    """BIGINT: tells copies of the first line of a record."""
    return F.xxhash64(line)


def _survey(
    placed: DataFrame, chosen: list[Layout], closely: bool, wrappers: Sequence[Wrapper]
) -> tuple[list[Row], DataFrame | None]:
    """(what lines each place has, in the order of places; hash BIGINT: of first lines that stand more than once, or None).

    in: place, row, value. All lines are read once.
    """
    is_head = F.col("heads") != 0
    looked_at = compiled.look_at(placed, chosen, closely, wrappers).select(
        "place",
        "row",
        "heads",
        "beginning",
        "day",
        (F.col("plain") != F.col("value")).alias("odd"),
        F.when(is_head, line_hash("plain")).alias("hash"),
    )
    grouped = (
        looked_at.groupingSets([["place", "beginning"], ["hash"]], "place", "beginning", "hash")
        .agg(
            F.min("row").alias("first"), F.count("*").alias("n"),
            F.count_if(~is_head).alias("continued"), F.bit_or("heads").alias("heads"),
            F.min("day").alias("first_day"), F.max("day").alias("last_day"),
            F.count_if(is_head & F.col("day").isNull()).alias("undated"),
            F.count_if("odd").alias("odd"),
        )
        .filter(F.col("place").isNotNull() | (F.col("hash").isNotNull() & (F.col("n") > 1)))
        .localCheckpoint()
    )  # fmt: skip
    found = grouped.groupBy("place").agg(
        F.min("first").alias("first"),
        F.count("*").alias("groups"),
        F.sum("n").alias("n"),
        F.sum("continued").alias("continued"),
        F.bit_or("heads").alias("heads"),
        F.min("first_day").alias("first_day"),
        F.max("last_day").alias("last_day"),
        F.sum("undated").alias("undated"),
        F.sum("odd").alias("odd"),
        F.slice(F.collect_list("beginning"), 1, MOST_BEGINNINGS + 1).alias("beginnings"),
    )
    rows = found.collect()
    repeated = next((row.groups for row in rows if row.place is None), 0)
    hashes = sized(grouped.filter("place IS NULL").select("hash"), repeated) if repeated else None
    return sorted((row for row in rows if row.place is not None), key=lambda row: row.place), hashes


def lines(
    spark: SparkSession, paths: list[str], chosen: list[Layout], wrappers: Sequence[Wrapper] = ()
) -> tuple[DataFrame, Survey]:
    """(lines, what they are).

    out: file_no INT, line_no BIGINT (from 1), value STRING. Two passes: Spark numbers rows within a split only, the first pass finds
    out where each split begins, and everything else that is worth knowing before the lines are parsed.
    """
    text = spark.read.text(paths)
    file_no = F.substring("_metadata.file_name", 1, LINK_DIGITS).cast("bigint")
    place = F.shiftleft(file_no, OFFSET_BITS).bitwiseOR(F.col("_metadata.file_block_start"))
    placed = text.select(place.alias("place"), F.monotonically_increasing_id().alias("row"), "value")
    blocks, repeated = _survey(placed, chosen, not compiled.has_usual(chosen), wrappers)
    if any(block.heads & compiled.OF_OTHERS for block in blocks):
        blocks, repeated = _survey(placed, chosen, True, wrappers)
    beginnings = {joined for block in blocks for joined in block.beginnings}
    begun = {text for joined in beginnings for text in joined.split(SEPARATOR)}
    used = compiled.that_took(chosen, reduce(or_, (block.heads for block in blocks), 0))
    # where a header shows another date, what looks like one may stand in its message
    dated = all("{date}" in layout.time for layout in used) and not any(block.undated for block in blocks)
    days = [day for block in blocks for day in (block.first_day, block.last_day) if day and dated]
    last_lines: Counter[int] = Counter()
    shifts = []
    for block in blocks:
        number = block.place >> OFFSET_BITS
        shifts.append((block.place, last_lines[number] + 1 - block.first))
        last_lines[number] += block.n
    survey = Survey(
        lines=sum(block.n for block in blocks),
        continued=sum(block.continued for block in blocks),
        layouts=used,
        last_lines=dict(last_lines),
        beginnings=None if len(beginnings) > MOST_BEGINNINGS or compiled.UNTOLD in begun else frozenset(begun),
        first_day=min(days, default=None),
        last_day=max(days, default=None),
        repeated=repeated,
    )
    if any(block.odd for block in blocks):
        placed = placed.select("place", "row", compiled.once(compiled.clean(F.col("value"), wrappers)).alias("value"))
    values = ", ".join(f"({place}L, {shift}L)" for place, shift in shifts or [(-1, 0)])
    offsets = spark.sql(f"SELECT * FROM VALUES {values} AS t(place, shift)")
    numbered = placed.join(F.broadcast(offsets), "place").select(
        F.shiftright("place", OFFSET_BITS).cast("int").alias("file_no"), (F.col("row") + F.col("shift")).alias("line_no"), "value"
    )
    return numbered, survey


def records(
    numbered: DataFrame, survey: Survey, stack_traces_only: bool, open_heads: Mapping[int, int] | None = None
) -> DataFrame:
    """Lines put together to records.

    in: the output of `lines`. open_heads: file_no -> line_no of a last line that goes on as a record of its own.
    out: file_no INT, line_no BIGINT (of its first line), head STRING (first line), tail STRING (the other lines, or null), raw STRING
    (all). Lines before a file's first record belong to none and are left out.
    """
    line = F.col("value")
    columns = ["file_no", "line_no", line.alias("head")]
    if survey.continued == 0:
        return numbered.select(*columns, F.lit(None).cast("string").alias("tail"), line.alias("raw"))
    is_head = compiled.is_head(line, survey.layouts)
    heads = numbered.filter(is_head)
    # the cheaper question first: few lines look like those of a stack trace
    more = numbered.filter(line.rlike(STACK_TRACE) & ~is_head) if stack_traces_only else numbered.filter(~is_head)
    if open_heads:
        cells = ", ".join(f"({file_no}, {line_no}L)" for file_no, line_no in open_heads.items())
        more = more.filter(f"NOT (file_no, line_no) IN ({cells})")
    in_file = Window.partitionBy("file_no").orderBy("line_no").rowsBetween(Window.unboundedPreceding, Window.currentRow)
    islands = more.select("file_no", "line_no", "value", (F.col("line_no") - F.row_number().over(in_file)).alias("island"))
    tails = (
        islands.groupBy("file_no", "island")
        .agg(F.min("line_no").alias("first"), F.array_sort(F.collect_list(F.struct("line_no", "value"))).alias("all"))
        .select(
            "file_no",
            (F.col("first") - 1).alias("line_no"),
            F.array_join(F.slice("all", 1, LONGEST_TAIL).getField("value"), "\n").alias("tail"),
        )
    )
    if survey.lines > MOST_ONCE:
        tails = tails.localCheckpoint()
    if survey.continued < 200_000:
        tails = F.broadcast(tails)
    joined = heads.join(tails, ["file_no", "line_no"], "left")
    whole = F.when(F.col("tail").isNull(), line).otherwise(F.concat_ws("\n", "value", "tail"))
    return joined.select(*columns, "tail", whole.alias("raw"))


@dataclass(frozen=True)
class Part:
    """All files of one kind. records: as the function `records` gives them; bare: they carry no time stamps."""

    records: DataFrame
    survey: Survey
    bare: bool


def read(spark: SparkSession, source: Staged, ruleset: RuleSet) -> list[Part]:
    """The records of all staged files, files with time stamps and files without apart."""
    parts = []
    for kind in ("log", "bare"):
        if paths := source.of_kind(kind):
            bare = kind == "bare"
            chosen = [layout for layout in ruleset.layouts if layout.bare == bare]
            numbered, survey = lines(spark, paths, chosen, ruleset.wrappers)
            open_heads = {n: line for n, line in survey.last_lines.items() if source.files[n].open_head}
            parts.append(Part(records(numbered, survey, bare, open_heads), survey, bare))
    return parts
