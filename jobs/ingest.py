"""Which files are logs, whose they are, and where they can be cut so that each record is read once. No Spark."""

import contextlib
import glob
import gzip
import os
import re
import tempfile
import zlib
from collections import Counter, deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from itertools import chain, groupby, islice
from pathlib import Path
from typing import BinaryIO
from urllib.parse import unquote

import pyarrow as pa

from jobs import checkpoints
from jobs.config import Cluster
from jobs.errors import InputError
from jobs.location import SCHEME
from parsers.events import Identity, Parser
from parsers.records import split_lines
from parsers.rules import RuleSet

LOOK = 256 * 1024
LOOK_AT_MOST = 4 * 1024 * 1024
STAMP_LENGTH = 24
NODE_FOLDER = re.compile(r"(?:broker|node|kafka|controller|server)[-_.]?(\d+)", re.IGNORECASE)
# lines that tell whether a collector cuts lines
MOST_HEADERS = 50
# a million files are looked into a few at a time
AT_A_TIME = 500
ROTATED = "it was rotated away while it was read; the next run reads what it held under its new name"
# bytes that are parsed at once
BLOCK = 4 * 1024 * 1024
# bytes; what goes on without a line end is cut there
LONGEST_LINE = 64 * 1024 * 1024
# bytes of text that one task reads
SMALLEST_SPLIT, LARGEST_SPLIT = 8 * 1024 * 1024, 64 * 1024 * 1024
# bytes at the end of a file that are looked into for its last time stamp
LAST_RECORDS = 64 * 1024
MOST_OF_ONE_MOMENT = 20_000


@dataclass(frozen=True)
class LogFile:
    """One file that was given. kind: `log`, `bare` (records without time stamps), `checkpoint` (`jobs.checkpoints`), `empty`,
    `unrelated`, `unreadable`.

    open_end: its last line has no end: it is being written, or the writer died.  open_head: what there is of it may be the beginning
    of a header.  inode: of the file that was looked into.
    length: bytes of its text, unpacked.  cut: a collector has cut long lines of it in pieces.
    alike: files that are empty, or unrelated, stand for so many of a cluster.
    uri: where it is, if that is no path of this machine.  ending: as of `ending`, where it is known.
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
    first_ts: str = ""
    last_ts: str = ""
    inode: int = 0
    length: int = 0
    cut: bool = False
    alike: int = 1
    uri: str = ""
    ending: Mapping[bytes, int] | None = None

    @property
    def name(self) -> str:
        """What it is called."""
        return self.uri or str(self.path)

    @property
    def usable(self) -> bool:
        """Whether records can be read from it."""
        return self.kind in {"log", "bare"}

    @property
    def packed(self) -> bool:
        """Whether it is read unpacked, from its beginning to its end."""
        return self.path.suffix == ".gz"

    def open(self) -> BinaryIO:
        """Its text, unpacked."""
        return _open(self.path)


def _open(path: Path) -> BinaryIO:
    return gzip.open(path, "rb") if path.suffix == ".gz" else path.open("rb")  # type: ignore[return-value]


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


class Sniffer:
    """Looks into files: is this a log, and whose?"""

    def __init__(self, ruleset: RuleSet | None = None) -> None:
        self.parser = Parser(ruleset)
        self._timed, self._bare = (self.parser.headers(bare) for bare in (False, True))

    def look(self, path: Path, named: Path | None = None) -> LogFile:
        """What the file is; never raises. named: the path whose folders name the node, if it is another one."""
        try:
            status = path.stat()
            file = LogFile(path, status.st_size, "empty", inode=status.st_ino)
            if not file.size:
                return file
            with file.open() as stream:
                text, kind = self._beginning(stream)
                if kind == "unreadable":
                    return replace(file, kind=kind, why="it is UTF-16; convert it: iconv -f UTF-16 -t UTF-8")
                if kind is None:
                    return replace(file, kind="checkpoint" if checkpoints.is_output(text) else "unrelated" if text else "empty")
                length, end = _to_the_end(stream, file)
            lines, last_lines = split_lines(text), split_lines(end.decode("utf-8", "replace"))
            unended = "" if file.packed else last_lines[-1]
            file = replace(file, kind=kind, length=length, node=self._node(named or path.resolve(), text, kind))
            cut, goes_on = self._cut(file, lines)
            header = next((line for line in lines if self._timed.begins(self.parser.unwrapped(line))), "")
            return replace(
                file,
                open_end=bool(unended) or goes_on,
                open_head=bool(unended) and _begins_like(unended, header),
                cut=cut,
                first_ts=self._ts_of(lines),
                last_ts=self._ts_of(reversed(last_lines)) if kind == "log" else "",
            )
        except (OSError, EOFError, zlib.error) as error:
            why = "the .gz is truncated" if isinstance(error, EOFError) else getattr(error, "strerror", None) or str(error)
            return LogFile(path, 0, "unreadable", why=why)

    def _beginning(self, stream: BinaryIO) -> tuple[str, str | None]:
        """(text up to where its kind shows, log, bare or unreadable, if it is one of them)."""
        text, looked_at, kind = "", 0, None
        while not kind and len(text) < LOOK_AT_MOST and (piece := stream.read(LOOK)):
            if not text and piece[:2] in (b"\xff\xfe", b"\xfe\xff"):
                return text, "unreadable"
            text += piece.decode("utf-8", "replace")
            for line in map(self.parser.unwrapped, split_lines(text[looked_at:])):
                # other data may be JSON that names a level, too
                if self._timed.begins(line) and (line[0] != "{" or self._timed.of_line(line)):
                    return text, "log"
                kind = kind or ("bare" if self._bare.begins(line) else None)
            looked_at = text.rfind("\n") + 1
        return text, kind

    def _cut(self, file: LogFile, lines: Sequence[str]) -> tuple[bool, bool]:
        """(whether a collector has cut lines of the file, whether its last line goes on). lines: the first of them."""
        joined, cut, last = self.parser.joined, False, ""
        if any(map(joined.knows, lines[:MOST_HEADERS])):
            with file.open() as stream:
                for last in chain.from_iterable(blocks(stream)):
                    cut = cut or joined.is_partial(last)
        return cut, joined.is_partial(last)

    def _ts_of(self, lines: Iterable[str]) -> str:
        """The time stamp of the first of the lines that begins a record, as printed."""
        line = next((line for line in map(self.parser.unwrapped, lines) if self._timed.begins(line)), "")
        header = self._timed.of_line(line)
        return (header[1] or "") if header else ""

    def _node(self, path: Path, text: str, kind: str) -> int | None:
        """The id that the lines give, if they give one; else the folder's; else None."""
        idents = {record.log_ident for record in self.parser.records(text, bare=kind == "bare")}
        said = {ident.node for ident in map(self.parser.log_ident, idents) if ident is not None and ident.node is not None}
        folders = [m.group(1) for part in path.parts[:-1] if (m := NODE_FOLDER.fullmatch(part))]
        folder = int(folders[-1]) if folders else None
        if len(said) == 1:
            return said.pop()
        # several speak in one file: each line speaks for itself
        return folder if not said or folder in said else None


def _to_the_end(stream: BinaryIO, file: LogFile) -> tuple[int, bytes]:
    """(bytes of its text, the last of it); a truncated archive shows only at its end."""
    if not file.packed:
        stream.seek(max(file.size - LAST_RECORDS, 0))
        return file.size, stream.read(min(file.size, LAST_RECORDS))
    stream.seek(0)
    length, last = 0, b""
    while piece := stream.read(LOOK):
        length, last = length + len(piece), (last + piece)[-LAST_RECORDS:]
    return length, last


def _begins_like(line: str, other: str) -> bool:
    """Whether a line may become one with a header like that of another, digits being alike."""
    begun, whole = (re.sub(r"\d", "0", text)[:STAMP_LENGTH] for text in (line, other))
    return whole.startswith(begun)


def find(cluster: Cluster, ruleset: RuleSet | None = None) -> list[LogFile]:
    """Every file below the paths given for a cluster, with what it is. Raises InputError where something given does not exist.

    Of those that are empty or unrelated, of which there may be a million, the first of each stands for all.
    """
    sniffer = Sniffer(ruleset)
    found: list[LogFile] = []
    others: dict[str, LogFile] = {}
    alike: Counter[str] = Counter()
    given = [logs for logs in cluster.logs if not SCHEME.match(logs)]
    paths = _expand(given)
    if len(given) != 1 or not os.path.isdir(given[0]):
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
        if not file.usable or file.uri:
            return file
        try:
            status = file.path.stat()
        except OSError as error:
            return replace(file, kind="unreadable", why=f"{ROTATED} ({error.strerror})")
        same = status.st_ino == file.inode and status.st_size >= file.size
        return file if same else replace(file, kind="unreadable", why=ROTATED)

    return [look_again(file) for file in files]


# -- reading -----------------------------------------------------------------------------------------------


def _pieces(stream: BinaryIO, length: int | None = None) -> Iterator[bytes]:
    """A stream, or its next bytes, in pieces of some megabytes that end with a line, if it has an end."""
    rest, left = b"", length
    while True:
        piece = stream.read(BLOCK if left is None else min(BLOCK, left))
        left = None if left is None else left - len(piece)
        data = rest + piece
        end = data.rfind(b"\n") + 1
        if not piece or (not end and len(data) > LONGEST_LINE):
            end = len(data)
        if end:
            yield data[:end]
        rest = data[end:]
        if not piece:
            return


def blocks(stream: BinaryIO, length: int | None = None) -> Iterator[list[str]]:
    """The lines of a stream, or of its next bytes, without their ends, some megabytes at a time."""
    for piece in _pieces(stream, length):
        lines = split_lines(piece.decode("utf-8", "replace"))
        if not lines[-1]:
            lines.pop()
        yield lines


@dataclass(frozen=True)
class Split:
    """A part of a file that one task reads: all of the records that begin in it, to their ends.

    number: of the file among those of a run.  begin, end: bytes.  line_no: of its first line.
    said_before: ids of texts that the file before this one, by rotation, has ended with, and how often.
    """

    file: LogFile
    number: int
    begin: int
    end: int
    line_no: int = 1
    said_before: dict[bytes, int] = field(default_factory=dict)

    @property
    def is_last(self) -> bool:
        """Whether the file ends with it."""
        return self.end >= self.file.length


def _next_record(stream: BinaryIO, at: int, parser: Parser) -> int | None:
    """Where a file may be cut at or after a place: a record begins there, and none before it in a row has its time stamp.

    So equal texts, which have one time stamp, are counted by one task. None: nowhere before the end.
    """
    headers = parser.headers(False)
    stream.seek(max(at - 1, 0))
    stream.readline(LONGEST_LINE)
    begun, first = False, None
    while True:
        place = stream.tell()
        data = stream.readline(LONGEST_LINE)
        if not data:
            return None
        line = parser.unwrapped(split_lines(data.decode("utf-8", "replace"))[0])
        if headers.begins(line):
            header = headers.of_line(line)
            ts = header[1] if header else None
            if begun and ts != first:
                return place
            begun, first = True, ts


def _lines_between(file: LogFile, begin: int, end: int) -> int:
    """How many lines `blocks` gives of these bytes."""
    with file.open() as stream:
        stream.seek(begin)
        return sum(
            piece.count(b"\n") + piece.count(b"\r") - piece.count(b"\r\n") + (piece[-1:] not in b"\r\n")
            for piece in _pieces(stream, end - begin)
        )


def splits(files: Sequence[LogFile], parser: Parser, size: int) -> list[Split]:
    """The files in parts of some `size` bytes. A packed file is read whole; so is one at a URI, and one whose lines are cut, or have no time stamps."""
    found = []
    before = said_before(files, parser)
    for number, file in enumerate(files):
        edges = [0]
        if not (file.uri or file.packed or file.cut or file.kind == "bare") and file.length > size * 3 // 2:
            with file.open() as stream:
                for at in range(size, file.length - size // 2, size):
                    place = _next_record(stream, at, parser) if at > edges[-1] else edges[-1]
                    if place is None:
                        break
                    if place > edges[-1]:
                        edges.append(place)
        line_no = 1
        for begin, end in zip(edges, [*edges[1:], file.length], strict=True):
            found.append(Split(file, number, begin, end, line_no, before.get(number, {}) if begin == 0 else {}))
            if end < file.length:
                line_no += _lines_between(file, begin, end)
    return found


def lines_of(split: Split, parser: Parser) -> Iterator[list[str]]:
    """The lines of a split, whole where a collector has cut them. Raises OSError where the file is another one by now."""
    with split.file.open() as stream:
        status = os.fstat(stream.fileno())
        if split.file.inode and (status.st_ino != split.file.inode or status.st_size < split.file.size):
            raise OSError(f"{split.file.name}: {ROTATED}")
        stream.seek(split.begin)
        some = blocks(stream, None if split.file.packed else split.end - split.begin)
        if split.file.cut:
            joined = parser.joined(line for block in some for line in block)
            while block := list(islice(joined, 10_000)):
                yield block
        else:
            yield from some


def fetched(batches: Iterable[pa.RecordBatch]) -> Iterator[tuple[str, Path]]:
    """(URI as Hadoop writes it, the file here until the next one is asked for) of each file of some pieces."""
    rows = (row for batch in batches for row in zip(*(column.to_pylist() for column in batch.columns), strict=True))
    with tempfile.TemporaryDirectory(prefix="kafka-audit-") as folder:
        for uri, pieces in groupby(rows, key=lambda row: row[0]):
            local = Path(folder) / f"log{'.gz' if uri.endswith('.gz') else ''}"
            with local.open("wb") as out:
                for piece in pieces:
                    out.write(piece[3])
                # Spark gives lines without their ends; the last one may have none
                if out.tell() == piece[1] + 1 and not uri.endswith(".gz"):
                    out.truncate(piece[1])
            yield unquote(uri), local


# -- rotation ----------------------------------------------------------------------------------------------


def _family(file: LogFile) -> tuple[str, str, str]:
    """What files have in common that one was rotated to the other: `state-change.log`, `state-change.log.2026-11-20-10`, `..log.1.gz`."""
    return file.cluster, str(file.path.parent), re.sub(r"(?<=\.log)[.\-].*|[.\-_]?\d[\d\-.]*(?=\.|$)|\.gz$", "", file.path.name)


def ending(file: LogFile, parser: Parser) -> dict[bytes, int]:
    """Ids of the texts that a file ends with within one moment, and how often."""
    with file.open() as stream:
        if not file.packed and file.length > LAST_RECORDS:
            stream.seek(_next_record(stream, file.length - LAST_RECORDS, parser) or 0)
        reader = parser.reader()
        records = deque(chain(chain.from_iterable(map(reader.feed, blocks(stream))), reader.close()), MOST_OF_ONE_MOMENT)
    identity, counts = Identity(file.cluster), Counter[bytes]()
    for record in records:
        if record.ts == records[-1].ts:
            ident = parser.log_ident(record.log_ident)
            counts[identity.of_text(file.node if ident is None or ident.node is None else ident.node, record.raw)] += 1
    return dict(counts)


def said_before(files: Sequence[LogFile], parser: Parser) -> dict[int, dict[bytes, int]]:
    """Of files that go on, by rotation, where another ends within one moment: ids of the texts that this one ends with, how often."""
    # those of one moment may be copies
    logs = {number: file for number, file in enumerate(files) if file.kind == "log" and "" != file.first_ts != file.last_ts}
    begun = {(_family(file), file.first_ts): number for number, file in logs.items()}
    found: dict[int, dict[bytes, int]] = {}
    for file in logs.values():
        if (after := begun.get((_family(file), file.last_ts))) is not None:
            found[after] = dict(ending(file, parser) if file.ending is None else file.ending)
    return found
