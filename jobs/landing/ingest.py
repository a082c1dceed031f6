"""Find which files are logs, which node wrote them, and where to split them so that each record is read once. No Spark."""

import codecs
import contextlib
import glob
import os
import re
import stat
import sys
import tempfile
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from itertools import chain, groupby, islice
from pathlib import Path, PurePosixPath
from typing import Any, BinaryIO
from urllib.parse import unquote

import pyarrow as pa

from jobs.config import Cluster
from jobs.landing import accounting, archives, checkpoints
from jobs.landing.archives import Limits
from jobs.location import SCHEME
from parsers.envelopes import Envelope, Learner, Opener, printed, reader_of
from parsers.events import Identity, Parser
from parsers.records import LONGEST_LINE, LineBuilder, Record, split_lines
from parsers.rules import RuleSet

LOOK = 256 * 1024
LOOK_AT_MOST = 4 * 1024 * 1024
# a string, list or object as Python prints it
_PYTHON = re.compile(r"b?'|[\[({]\s{0,9}b?'")
# or of JSON; `[2026-…` begins a record
_JSON = re.compile(rf'{_PYTHON.pattern}|\{{\s{{0,9}}["}}]|\[\s{{0,9}}[\[{{"]|"')
_LONG_DOCUMENT = f"it is one line of JSON of more than {LONGEST_LINE:,} characters; `jq -r '.. | strings' FILE > FILE.log` writes each line of its log"
_RTF = "it is RTF; save it as plain text"
# before a date
_BREAK = re.compile(r"<br ?/?>[^\w\s<>]?\d{2,4}[-/.]\d\d[-/.]")
_BREAKS = "its lines end with <br>; `sed 's/<[^>]*>/\\n/g' FILE > FILE.log` writes each line of its log"
_LONG_LITERAL = f"it is one line of Python of more than {LONGEST_LINE:,} characters; write each line of its log as a line"
STAMP_LENGTH = 24
NODE_FOLDER = re.compile(r"(?:broker|node|kafka|controller|server)[-_.]?(\d+)", re.IGNORECASE)
# lines that show whether a collector cuts lines
MOST_HEADERS = 50
# unrelated files that are named one by one
MOST_NAMED = 50
# a million files are examined a few at a time
AT_A_TIME = 500
MISSING = "no such file or folder"
ROTATED = "it was rotated away while it was read; the next run reads what it held under its new name"
# bytes that are parsed at once
BLOCK = 4 * 1024 * 1024
# bytes of text that one task reads
SMALLEST_SPLIT, LARGEST_SPLIT = 8 * 1024 * 1024, 64 * 1024 * 1024
# number of cores that logs are split for, since Spark does not report those of a cluster
CORES_OF_CLUSTER = 64
# bytes at the end of a file that are searched for its last time stamp
LAST_RECORDS = 64 * 1024
MOST_OF_ONE_MOMENT = 20_000


@dataclass(frozen=True)
class LogFile:
    """One text that was given: a file, or one that is packed in a file. kind: `log`, `bare` (records without time stamps), `checkpoint`
    (`jobs.landing.checkpoints`), `empty`, `unrelated`, `skipped` (no file, or no text), `unreadable`.

    open_end: its last line has no end: it is being written, or the writer died.  open_head: what there is of it may be the beginning
    of a header.  inode: of the file that was looked into.
    size: of the file, packed.  length: bytes of its text, unpacked.  layers: what it is packed in (`jobs.landing.archives`), within limits.
    cut: a collector has cut long lines of it in pieces.
    alike: files that are empty, or unrelated, stand for so many of a cluster.
    uri: where it is, if that is no path of this machine.  given: what it was called, if that is no path: `-`.  layout: of its first record.  ending: as of `ending`, where it is known.
    envelope: what is around its lines beyond the known wrappers.
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
    layers: archives.Layers = ()
    limits: Limits = archives.LIMITS
    given: str = ""
    layout: str = ""
    envelope: Envelope | None = None

    @property
    def name(self) -> str:
        """Its name for people."""
        return archives.name_of(self.uri or self.given or str(self.path), self.layers)

    @property
    def place(self) -> PurePosixPath:
        """Its path if everything were unpacked: the folders may name the node."""
        members = [layer.name.replace("\\", "/") for layer in self.layers if isinstance(layer, archives.Member)]
        path = PurePosixPath(self.path.resolve() if self.inode else self.path)
        for member in members:
            path = path.with_name(path.name.partition(".")[0] or path.name) / member.lstrip("/")
        return path

    @property
    def usable(self) -> bool:
        """Whether records can be read from it."""
        return self.kind in {"log", "bare"}

    @property
    def wrapped(self) -> bool:
        """Whether something is around its lines that was found in the file itself."""
        return bool(self.envelope and self.envelope.layers)

    @property
    def read_as(self) -> str:
        """What is around its lines, for a person; empty where nothing is."""
        return self.envelope.about if self.envelope else ""

    @property
    def packed(self) -> bool:
        """Whether it is read unpacked, from its beginning to its end."""
        return bool(self.layers)

    def open(self) -> contextlib.AbstractContextManager[BinaryIO]:
        """Its text, unpacked. Raises OSError, `archives.LimitError` and `archives.DamagedError` among them, also while it is read."""
        return archives.open_text(self.path, self.layers, self.limits)


def _below(folder: str) -> Iterator[str]:
    """Yield every regular file below a folder, by name; a folder that cannot be listed is yielded itself."""
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
            yield entry.path


def _is_empty(path: str) -> bool:
    try:
        status = os.stat(path)
        return stat.S_ISREG(status.st_mode) and not status.st_size
    except OSError:
        return False


def _expand(logs: Iterable[str], missing: list[str]) -> Iterator[str]:
    """Every file given, each once where several are given. missing: what does not exist is added to it."""
    for given in logs:
        if os.path.isdir(given):
            yield from _below(str(Path(given)))
        elif os.path.lexists(given):
            yield str(Path(given))
        elif matches := sorted(glob.glob(given, recursive=True)):
            yield from _expand(matches, missing)
        else:
            missing.append(given)


def is_missing(given: str) -> bool:
    """Return whether no file and no folder is at a path or glob of this machine."""
    return not os.path.lexists(given) and next(glob.iglob(given, recursive=True), None) is None


class Sniffer:
    """Examines files: is this a log, and which node wrote it?"""

    def __init__(self, ruleset: RuleSet | None = None, limits: Limits = archives.LIMITS) -> None:
        self.parser, self.limits = Parser(ruleset), limits
        self._timed, self._bare = (self.parser.headers(bare) for bare in (False, True))
        self._learner = Learner(self.parser)

    def look(self, path: Path, named: Path | None = None) -> LogFile:
        """Return what the file is, or the first one that is packed in it."""
        return self.look_inside(path, named)[0]

    def look_inside(self, path: Path, named: Path | None = None) -> list[LogFile]:
        """Return what the file is, or each one that is packed in it; never raises. named: another path whose folders name the node."""
        try:
            status = path.stat()
            if stat.S_ISDIR(status.st_mode) and not path.is_symlink():
                return [LogFile(path, 0, "unreadable", why="it is a folder that cannot be listed")]
            if why := _no_file(path, status.st_mode):
                return [LogFile(path, 0, "skipped", why=why)]
            file = LogFile(path, status.st_size, "empty", inode=status.st_ino, limits=self.limits)
            if not file.size:
                return [file]
            found = [self._look_at(replace(file, layers=text.layers), text, named) for text in archives.walk(path, self.limits)]
            return found or [file]
        except OSError as error:
            if path.is_symlink() and not path.exists():
                return [LogFile(path, 0, "skipped", why="it is a link to nothing")]
            return [LogFile(path, 0, "unreadable", why=error.strerror or str(error))]

    def _look_at(self, file: LogFile, opened: archives.Opened, named: Path | None) -> LogFile:
        if opened.stream is None:
            return replace(file, kind="unreadable", why=opened.why)
        try:
            return self._look_into(file, opened.stream, named)
        except OSError as error:
            return replace(file, kind="unreadable", why=error.strerror or str(error))

    def _look_into(self, file: LogFile, stream: BinaryIO, named: Path | None) -> LogFile:
        text, kind, begun = self._beginning(stream)
        if len(text) > LONGEST_LINE and _is_one_line_of_json(text.rstrip()):
            return replace(file, kind="unreadable", why=_LONG_LITERAL if _PYTHON.match(text) else _LONG_DOCUMENT)
        if text.startswith("{\\rtf"):
            return replace(file, kind="unreadable", why=_RTF)
        if kind != "log" and any(len(_BREAK.findall(line)) > 1 for line in split_lines(text)[:MOST_HEADERS]):
            return replace(file, kind="unreadable", why=_BREAKS)
        envelope = self._envelope(text, kind)
        if envelope and envelope.layers:
            kind = "log"
        if kind is None and not file.packed and file.path.suffix in archives.SUFFIXES:
            return replace(file, kind="unreadable", why=f"it is no {file.path.suffix}, and holds no log record")
        if kind is None and checkpoints.is_like_output(text):
            return replace(file, kind="checkpoint", length=len(begun))
        if kind is None:
            return replace(file, kind="unrelated" if text else "empty", why=accounting.looks_like(text) if text else "")
        lines = split_lines(text)
        is_cut = goes_on = False
        if file.packed:
            read = _Followed(begun, stream)
            is_cut, goes_on = self._cut(read, lines)
            length, end = read.to_the_end()
        else:
            stream.seek(0)
            is_cut, goes_on = self._cut(stream, lines)
            stream.seek(max(file.size - LAST_RECORDS, 0))
            length, end = file.size, stream.read(min(file.size, LAST_RECORDS))
        last_lines = split_lines(end.decode("utf-8", "replace"))
        unended = "" if file.packed else last_lines[-1]
        header = next((line for line in lines if self._timed.begins(self.parser.unwrapped(line))), "")
        return replace(
            file,
            kind=kind,
            length=length,
            node=self._node(
                (replace(file, path=named, inode=0) if named else file).place, self._records(text, kind, envelope), envelope
            ),
            open_end=bool(unended) or goes_on,
            open_head=bool(unended) and _begins_like(unended, header),
            cut=is_cut,
            layout=next((record.layout for record in self._records(text, kind, envelope)), ""),
            first_ts=next((record.ts for record in self._records(text, kind, envelope) if record.ts), "")
            if envelope and envelope.layers
            else self._ts_of(lines),
            last_ts=self._ts_of(reversed(last_lines)) if kind == "log" and not (envelope and envelope.layers) else "",
            envelope=envelope,
        )

    def _beginning(self, stream: BinaryIO) -> tuple[str, str | None, bytes]:
        """Return (text up to where its kind shows; `log`, `bare` or neither; the bytes of the text)."""
        text, looked_at, kind, begun = "", 0, None, b""
        while not kind and len(text) < LOOK_AT_MOST and (piece := stream.read(LOOK)):
            begun += piece
            text += piece.decode("utf-8", "replace")
            # a document on one line is examined as a whole
            while len(text) < LOOK_AT_MOST and _is_one_line_of_json(text) and (piece := stream.read(LOOK)):
                begun += piece
                text += piece.decode("utf-8", "replace")
            for line in map(self.parser.unwrapped, split_lines(text[looked_at:])):
                # other data may be JSON that names a level, too
                if self._timed.begins(line) and (line[0] != "{" or self._timed.of_line(line)):
                    return text, "log", begun
                kind = kind or ("bare" if self._bare.begins(line) else None)
            looked_at = text.rfind("\n") + 1
        return text, kind, begun

    def _cut(self, stream: Any, lines: Sequence[str]) -> tuple[bool, bool]:
        """(whether a collector has cut lines of the text, whether its last line goes on). lines: the first of them."""
        joined, cut, last = self.parser.joined, False, ""
        if any(map(joined.knows, lines[:MOST_HEADERS])):
            for last in chain.from_iterable(blocks(stream)):
                cut = cut or joined.is_partial(last)
        return cut, joined.is_partial(last)

    def _ts_of(self, lines: Iterable[str]) -> str:
        """The time stamp of the first of the lines that begins a record, as printed."""
        line = next((line for line in map(self.parser.unwrapped, lines) if self._timed.begins(line)), "")
        header = self._timed.of_line(line)
        return (header[1] or "") if header else ""

    def _envelope(self, text: str, kind: str | None) -> Envelope | None:
        """What is around the lines; None where the known wrappers have to do."""
        lines = split_lines(text)
        if any(map(self.parser.joined.knows, lines[:MOST_HEADERS])):
            return None
        found = self._learner.learn(lines)
        return found if found and (found.layers or kind is not None) else None

    def _records(self, text: str, kind: str, envelope: Envelope | None) -> Iterator[Record]:
        reader = reader_of(self.parser, envelope, kind == "bare")
        yield from reader.feed(split_lines(text))
        yield from reader.close()

    def _node(self, path: PurePosixPath, records: Iterable[Record], envelope: Envelope | None) -> int | None:
        """Return the id that the lines show; else the folder's; else None."""
        contradiction = envelope.contradiction if envelope else None
        idents = {record.log_ident for record in records}
        said = {ident.node for ident in map(self.parser.log_ident, idents) if ident is not None and ident.node is not None}
        folders = [m.group(1) for part in path.parts[:-1] if (m := NODE_FOLDER.fullmatch(part))]
        folder = int(folders[-1]) if folders else None
        # of several pods one has said its id: lines of the others are not of that node
        if len(said) == 1 and (contradiction is None or contradiction.nodes == 1):
            return said.pop()
        # several nodes write to one file: each line names its node
        return folder if not said or folder in said else None


class _Followed:
    """A stream whose first bytes were read before: it measures its text and keeps the end."""

    def __init__(self, begun: bytes, stream: BinaryIO) -> None:
        self._begun, self._stream = begun, stream
        self._length, self._last = 0, b""

    def read(self, size: int) -> bytes:
        """The next bytes."""
        piece, self._begun = (self._begun, b"") if self._begun else (self._stream.read(size), b"")
        self._length, self._last = self._length + len(piece), (self._last + piece)[-LAST_RECORDS:]
        return piece

    def to_the_end(self) -> tuple[int, bytes]:
        """(bytes of the text, the last of it); whether an archive is truncated or has no end shows only there."""
        while self.read(LOOK):
            pass
        return self._length, self._last


def _no_file(path: Path, mode: int) -> str:
    """Return why a path that is no regular file is not read; empty for a regular file."""
    if stat.S_ISREG(mode):
        return ""
    return "it is a link to a folder; give that folder" if stat.S_ISDIR(mode) else "it is no file"


def _is_one_line_of_json(text: str) -> bool:
    return _JSON.match(text) is not None and "\n" not in text and "\r" not in text


def _begins_like(line: str, other: str) -> bool:
    """Return whether a line may grow into one with a header like another's, where all digits count as equal."""
    begun, whole = (re.sub(r"\d", "0", text)[:STAMP_LENGTH] for text in (line, other))
    return whole.startswith(begun)


STANDARD_INPUT = "-"


def is_stream(given: str) -> bool:
    """Whether it can be read only once: standard input, or a pipe, as a shell makes it for `<(zcat ..)`."""
    return given == STANDARD_INPUT or (os.path.exists(given) and not os.path.isfile(given) and not os.path.isdir(given))


def _kept(given: str, folder: Path, limits: Limits) -> Path:
    """Copy a stream to a file. Raises OSError, `archives.LimitError` among them."""
    if given == STANDARD_INPUT and sys.stdin is None:
        raise OSError("standard input is closed")
    number, name = tempfile.mkstemp(dir=folder)
    with os.fdopen(number, "wb") as file, contextlib.ExitStack() as stack:
        stream = sys.stdin.buffer if given == STANDARD_INPUT else stack.enter_context(open(given, "rb"))
        archives.copy(stream, file, limits.temporary)
    return Path(name)


def _of_stream(given: str, sniffer: "Sniffer", folder: Path) -> list[LogFile]:
    try:
        found = sniffer.look_inside(_kept(given, folder, sniffer.limits))
    except OSError as error:
        found = [LogFile(Path(given), 0, "unreadable", why=error.strerror or str(error))]
    return [replace(file, given=given) for file in found]


def find(
    cluster: Cluster, ruleset: RuleSet | None = None, limits: Limits = archives.LIMITS, temporary: Path | None = None
) -> list[LogFile]:
    """Every file below the paths given for a cluster, with what it is; a path that does not exist is unreadable.

    temporary: folder for copies of streams (`is_stream`), if there may be any.
    The first empty file represents all empty ones, and one unrelated file all after the first MOST_NAMED: there may be a million.
    """
    sniffer = Sniffer(ruleset, limits)
    found: list[LogFile] = []
    others: dict[str, LogFile] = {}
    alike: Counter[str] = Counter()
    named = 0
    given = [logs for logs in cluster.logs if not SCHEME.match(logs)]
    streams = [one for one in dict.fromkeys(given) if temporary is not None and is_stream(one)]
    missing: list[str] = []
    paths = _expand((one for one in given if one not in streams), missing)
    if len(given) != 1 or not os.path.isdir(given[0]):
        paths = iter(dict.fromkeys(paths))
    for one in streams:
        assert temporary is not None
        found += _of_stream(one, sniffer, temporary)
    with ThreadPoolExecutor(2) as pool:
        while some := list(islice(paths, AT_A_TIME)):
            empty = dict.fromkeys(filter(_is_empty, some))
            if empty:
                alike["empty"] += len(empty)
                others.setdefault("empty", LogFile(Path(next(iter(empty))), 0, "empty"))
            for file in chain.from_iterable(pool.map(sniffer.look_inside, (Path(path) for path in some if path not in empty))):
                if file.kind == "unrelated" and named < MOST_NAMED:
                    named += 1
                    found.append(file)
                elif file.kind in {"empty", "unrelated"}:
                    others.setdefault(file.kind, file)
                    alike[file.kind] += 1
                else:
                    found.append(file)
    found += [replace(file, alike=alike[kind]) for kind, file in others.items()]
    found += [LogFile(Path(one), 0, "unreadable", why=MISSING) for one in dict.fromkeys(missing)]
    return [replace(file, cluster=cluster.name, timezone=cluster.timezone) for file in found]


def still_there(files: Iterable[LogFile]) -> list[LogFile]:
    """Return the files. A log that was rotated, removed or cut short since it was examined becomes unreadable."""

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


def _end_of_lines(data: bytes, begin: int, end: int) -> int:
    """Return where the last whole line between two places ends; 0 where none does. A CR as the last byte may be half of a line end."""
    cr = data.rfind(b"\r", begin, min(end, len(data) - 1))
    return max(data.rfind(b"\n", begin, end), cr + (cr >= 0 and data[cr + 1 : cr + 2] == b"\n")) + 1


def _end_of_line(data: bytes) -> int:
    """Return where the first line ends; 0 where it continues."""
    end = min((at for at in (data.find(b"\n"), data.find(b"\r", 0, -1)) if at >= 0), default=-1)
    return end + 1 + (data[end : end + 2] == b"\r\n")


def _long_line(data: bytes, read: Callable[[], bytes]) -> tuple[str, bytes]:
    """Return (a line that is too long, shortened; what follows it). data: of the stream, from the begin of the line on."""
    line, decoded = LineBuilder(), codecs.getincrementaldecoder("utf-8")("replace")
    while True:
        if end := _end_of_line(data):
            line.add(decoded.decode(data[:end].rstrip(b"\r\n"), True))
            return line.line(), data[end:]
        held = data[-1:] if data[-1:] == b"\r" else b""
        line.add(decoded.decode(data[: len(data) - len(held)]))
        more = read()
        if not more:
            line.add(decoded.decode(b"", True))
            return line.line(), b""
        data = held + more


def blocks(stream: BinaryIO, length: int | None = None) -> Iterator[list[str]]:
    """Yield the lines of a stream, or of its next bytes, without line ends, some megabytes at a time. A line that is too long is a `CutLine`."""
    left = length

    def read() -> bytes:
        nonlocal left
        piece = stream.read(BLOCK if left is None else min(BLOCK, left))
        left = None if left is None else left - len(piece)
        return piece

    def lines_of(text: bytes) -> list[str]:
        lines = split_lines(text.decode("utf-8", "replace"))
        if not lines[-1]:
            lines.pop()
        return lines

    data, more = b"", True
    while more:
        piece = read()
        more = bool(piece)
        data += piece
        # the part in which no line is too long
        sound = 0
        while len(data) - sound > LONGEST_LINE:
            if end := _end_of_lines(data, sound, sound + LONGEST_LINE + 1):
                sound = end
                continue
            if sound:
                yield lines_of(data[:sound])
            line, data = _long_line(data[sound:], read)
            sound = 0
            yield [line]
        end = len(data) if not more else max(sound, _end_of_lines(data, sound, len(data)))
        if end:
            yield lines_of(data[:end])
        data = data[end:]


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
        """Whether it is the last part of the file."""
        return self.end >= self.file.length


def _next_record(file: LogFile, stream: BinaryIO, at: int, parser: Parser) -> int | None:
    """Return where a file may be split at or after a place: a record begins there with another time stamp than the one before.

    Equal texts share a time stamp, so one task counts them all. None: nowhere before the end.
    """
    headers, unwrapped = parser.headers(False), parser.unwrapped if file.envelope is None else printed
    opener = Opener(file.envelope) if file.envelope is not None and file.wrapped else None
    before: tuple[str, ...] | None = None
    stream.seek(max(at - 1, 0))
    _next_line(stream)
    begun, first = False, None
    while True:
        place = stream.tell()
        data = _next_line(stream)
        if not data:
            return None
        line = unwrapped(split_lines(data.decode("utf-8", "replace"))[0])
        goes_on = True
        if opener is not None:
            (inside,) = opener(line)
            line, goes_on, before = inside.text, before in (None, inside.source), inside.source
        if headers.begins(line):
            header = headers.of_line(line)
            ts = header[1] if header else None
            # a stack trace of another source may continue
            if begun and ts != first and goes_on:
                return place
            begun, first = True, ts


def _next_line(stream: BinaryIO) -> bytes:
    """Return the beginning of the next line, and read the stream past the end of that line."""
    line = more = stream.readline(LONGEST_LINE)
    while more and not more.endswith(b"\n"):
        more = stream.readline(LONGEST_LINE)
    return line


def _lines_between(file: LogFile, begin: int, end: int) -> int:
    """Return how many lines `blocks` yields for these bytes, which end with a line."""
    lines, left, is_cr = 0, end - begin, False
    with file.open() as stream:
        stream.seek(begin)
        while left and (piece := stream.read(min(BLOCK, left))):
            left -= len(piece)
            lines += piece.count(b"\n") + piece.count(b"\r") - piece.count(b"\r\n") - (is_cr and piece[:1] == b"\n")
            is_cr = piece[-1:] == b"\r"
    return lines


def split_size(files: Iterable[LogFile], cores: int) -> int:
    """Return the size, in bytes, of the parts of some files that keep so many cores busy."""
    return min(max(sum(file.length for file in files) // (3 * cores), SMALLEST_SPLIT), LARGEST_SPLIT)


def anywhere(file: LogFile) -> LogFile:
    """The same file, under the same name, for a process with another working directory."""
    return file if file.uri else replace(file, path=file.path.absolute(), given=file.given or str(file.path))


def splits(files: Sequence[LogFile], parser: Parser, size: int) -> list[Split]:
    """The files in parts of some `size` bytes. A packed file is read whole; so is one at a URI, and one whose lines are cut, have no time stamps, or are in an envelope that is
    not of lines.
    """
    found = []
    before = said_before(files, parser)
    for number, file in enumerate(files):
        edges = [0]
        is_whole = file.wrapped and file.envelope is not None and not file.envelope.is_of_lines
        if not (file.uri or file.packed or file.cut or is_whole or file.kind == "bare") and file.length > size * 3 // 2:
            with file.open() as stream:
                for at in range(size, file.length - size // 2, size):
                    place = _next_record(file, stream, at, parser) if at > edges[-1] else edges[-1]
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


def lines_of(split: Split, parser: Parser, pieces: Counter[str] | None = None) -> Iterator[list[str]]:
    """Yield the lines of a split, joined where a collector has cut them. pieces: counts lines of the file, and whole ones.

    Raises OSError where the file was replaced meanwhile.
    """
    with split.file.open() as stream:
        status = split.file.path.stat()
        if split.file.inode and (status.st_ino != split.file.inode or status.st_size < split.file.size):
            raise OSError(f"{split.file.name}: {ROTATED}")
        if not split.file.packed:
            stream.seek(split.begin)
        some = blocks(stream, None if split.file.packed else split.end - split.begin)
        if split.file.cut:
            yield from _counted(_some_lines(parser.joined(chain.from_iterable(_counted(some, pieces, "lines")))), pieces, "whole")
        else:
            yield from some


def _counted(blocks: Iterable[list[str]], counts: Counter[str] | None, name: str) -> Iterator[list[str]]:
    for block in blocks:
        if counts is not None:
            counts[name] += len(block)
        yield block


def _some_lines(lines: Iterable[str]) -> Iterator[list[str]]:
    """Lines in blocks of some megabytes."""
    block, size = [], 0
    for line in lines:
        block.append(line)
        size += len(line)
        if size > BLOCK:
            yield block
            block, size = [], 0
    if block:
        yield block


def fetched(batches: Iterable[pa.RecordBatch]) -> Iterator[tuple[str, Path]]:
    """Yield (URI as Hadoop writes it, a local file that is valid until the next one) for each file of some pieces."""
    rows = (row for batch in batches for row in zip(*(column.to_pylist() for column in batch.columns), strict=True))
    with tempfile.TemporaryDirectory(prefix="kafka-audit-") as folder:
        for uri, pieces in groupby(rows, key=lambda row: row[0]):
            local = Path(folder) / "log"
            with local.open("wb") as out:
                for piece in pieces:
                    out.write(piece[3])
                # Spark gives lines without their ends; the last one may have none
                if out.tell() == piece[1] + 1:
                    out.truncate(piece[1])
            yield unquote(uri), local


# -- rotation ----------------------------------------------------------------------------------------------


_PACKED = "|".join(suffix[1:] for suffix in archives.SUFFIXES)
_ROTATED_TO = re.compile(rf"(?<=\.log)[.\-].*|[.\-_]?\d[\d\-.]*(?=\.|$)|\.(?:{_PACKED})$")


def _family(file: LogFile) -> tuple[str, str, str]:
    """What files have in common that one was rotated to the other: `state-change.log`, `state-change.log.2026-11-20-10`, `..log.1.gz`."""
    return file.cluster, str(file.place.parent), _ROTATED_TO.sub("", file.place.name)


def ending(file: LogFile, parser: Parser) -> dict[bytes, int]:
    """Ids of the texts that a file ends with within one moment, and how often."""
    with file.open() as stream:
        if not file.packed and file.length > LAST_RECORDS:
            stream.seek(_next_record(file, stream, file.length - LAST_RECORDS, parser) or 0)
        reader = reader_of(parser, file.envelope, bare=False)
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
