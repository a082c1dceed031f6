"""Find the files that are logs and the node of each, and split them so that each record is read once.

No Spark.
"""

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
from jobs.files import accounting, archives, checkpoints
from jobs.files.archives import Limits
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
# a line end as text, before a header
_JOINED = re.compile(r"\\n\[?\d{4}-\d\d-\d\d[ T]\d\d:")
_IS_JOINED = (
    "its line ends are the text \\n; `sed 's/\\\\n/\\n/g' FILE > FILE.log` writes each line of its log"
)
_LONG_LITERAL = (
    f"it is one line of Python of more than {LONGEST_LINE:,} characters; write each line of its log as a line"
)
STAMP_LENGTH = 24
NODE_FOLDER = re.compile(r"(?:broker|node|kafka|controller|server)[-_.]?(\d+)", re.IGNORECASE)
# number of lines that show whether a collector cuts lines
MOST_HEADERS = 50
# most unrelated files that are reported one by one
MOST_NAMED = 50
# files that are examined at once: there may be a million
AT_A_TIME = 500
MISSING = "no such file or folder"
ROTATED = "it was rotated away while it was read; the next run reads its records under its new name"
# bytes that are parsed at once
BLOCK = 4 * 1024 * 1024
# bytes of text that one task reads
SMALLEST_SPLIT, LARGEST_SPLIT = 8 * 1024 * 1024, 64 * 1024 * 1024
# number of cores that logs are split for, since Spark does not report those of a cluster
CORES_OF_CLUSTER = 64
# bytes at the end of a file in which its last time stamp is searched
LAST_RECORDS = 64 * 1024
MOST_OF_ONE_MOMENT = 20_000


@dataclass(frozen=True)
class LogFile:
    """A given text: a file, or a member of one.

    kind        log, bare (records without time stamps), checkpoint (`jobs.files.checkpoints`), empty,
                unrelated, skipped (no file, or no
                text), unreadable
    open_end    its last line has no end: it is being written, or the writer died
    open_head   its unfinished last line may be the beginning of a header
    inode       of the examined file
    size        bytes of the file, packed
    length      bytes of its text, unpacked
    layers      it is packed in (`jobs.files.archives`), within `limits`
    cut         a collector has cut its long lines into pieces
    alike       number of files that the row counts: one row counts all empty files of a cluster, or its
                further unrelated ones
    uri         its address, if it is on no path of this machine
    given       its name, if that is no path: `-`
    layout      of its first record
    ending      as the function `ending` returns it; None: not read yet
    envelope    around its lines, besides the known wrappers
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
        """Return its name for people."""
        return archives.name_of(self.uri or self.given or str(self.path), self.layers)

    @property
    def place(self) -> PurePosixPath:
        """Return its path as if everything were unpacked, because the folders may name the node."""
        members = [
            layer.name.replace("\\", "/") for layer in self.layers if isinstance(layer, archives.Member)
        ]
        path = PurePosixPath(self.path.resolve() if self.inode else self.path)
        for member in members:
            path = path.with_name(path.name.partition(".")[0] or path.name) / member.lstrip("/")
        return path

    @property
    def usable(self) -> bool:
        """Return whether records can be read from it."""
        return self.kind in {"log", "bare"}

    @property
    def wrapped(self) -> bool:
        """Return whether its lines have an envelope that was learned from the file itself."""
        return bool(self.envelope and self.envelope.layers)

    @property
    def read_as(self) -> str:
        """Return the description of its envelope; empty where it has none."""
        return self.envelope.about if self.envelope else ""

    @property
    def packed(self) -> bool:
        """Return whether it must be unpacked, which is possible only from its beginning to its end."""
        return bool(self.layers)

    def open(self) -> contextlib.AbstractContextManager[BinaryIO]:
        """Open its text, unpacked.

        Raises OSError (such as archives.LimitError and DamagedError), also while it is read.
        """
        return archives.open_text(self.path, self.layers, self.limits)


def _below(folder: str) -> Iterator[str]:
    """Yield every file below a folder, by name; a folder that cannot be listed is yielded itself."""
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
    """Yield every file of the given paths and globs. missing: paths that do not exist are added to it."""
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
    """Examines files: whether each is a log, and which node wrote it."""

    def __init__(self, ruleset: RuleSet | None = None, limits: Limits = archives.LIMITS) -> None:
        self.parser, self.limits = Parser(ruleset), limits
        self._timed, self._bare = (self.parser.headers(bare) for bare in (False, True))
        self._learner = Learner(self.parser)

    def look(self, path: Path, named: Path | None = None) -> LogFile:
        """Examine a file and return it, or the first text that is packed in it."""
        return self.look_inside(path, named)[0]

    def look_inside(self, path: Path, named: Path | None = None) -> list[LogFile]:
        """Examine a file and return it, or each text that is packed in it; never raises.

        named: another path whose folders name the node.
        """
        try:
            status = path.stat()
            if stat.S_ISDIR(status.st_mode) and not path.is_symlink():
                return [LogFile(path, 0, "unreadable", why="it is a folder that cannot be listed")]
            if why := _no_file(path, status.st_mode):
                return [LogFile(path, 0, "skipped", why=why)]
            file = LogFile(path, status.st_size, "empty", inode=status.st_ino, limits=self.limits)
            if not file.size:
                return [file]
            found = [
                self._look_at(replace(file, layers=text.layers), text, named)
                for text in archives.walk(path, self.limits)
            ]
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
            return replace(
                file, kind="unreadable", why=_LONG_LITERAL if _PYTHON.match(text) else _LONG_DOCUMENT
            )
        if text.startswith("{\\rtf"):
            return replace(file, kind="unreadable", why=_RTF)
        if kind != "log" and any(len(_BREAK.findall(line)) > 1 for line in split_lines(text)[:MOST_HEADERS]):
            return replace(file, kind="unreadable", why=_BREAKS)
        if kind == "log" and _is_joined(split_lines(text)[:MOST_HEADERS]):
            return replace(file, kind="unreadable", why=_IS_JOINED)
        envelope = self._envelope(text, kind)
        if envelope and envelope.layers:
            kind = "log"
        if kind is None and not file.packed and file.path.suffix in archives.SUFFIXES:
            return replace(file, kind="unreadable", why=f"it is no {file.path.suffix}, and has no log record")
        if kind is None and checkpoints.is_like_output(text):
            return replace(file, kind="checkpoint", length=len(begun))
        if kind is None:
            return replace(
                file, kind="unrelated" if text else "empty", why=accounting.looks_like(text) if text else ""
            )
        lines = split_lines(text)
        is_cut = is_last_partial = False
        if file.packed:
            read = _Followed(begun, stream)
            is_cut, is_last_partial = self._cut(read, lines)
            length, end = read.to_the_end()
        else:
            stream.seek(0)
            is_cut, is_last_partial = self._cut(stream, lines)
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
                (replace(file, path=named, inode=0) if named else file).place,
                self._records(text, kind, envelope),
                envelope,
            ),
            open_end=bool(unended) or is_last_partial,
            open_head=bool(unended) and _begins_like(unended, header),
            cut=is_cut,
            layout=next((record.layout for record in self._records(text, kind, envelope)), ""),
            first_ts=next((record.ts for record in self._records(text, kind, envelope) if record.ts), "")
            if envelope and envelope.layers
            else self._ts_of(lines),
            last_ts=self._ts_of(reversed(last_lines))
            if kind == "log" and not (envelope and envelope.layers)
            else "",
            envelope=envelope,
        )

    def _beginning(self, stream: BinaryIO) -> tuple[str, str | None, bytes]:
        """Return (the text up to its first header; `log`, `bare` or None; the bytes of the text)."""
        text, looked_at, kind, begun = "", 0, None, b""
        while not kind and len(text) < LOOK_AT_MOST and (piece := stream.read(LOOK)):
            begun += piece
            text += piece.decode("utf-8", "replace")
            # a document on one line is examined as a whole
            while len(text) < LOOK_AT_MOST and _is_one_line_of_json(text) and (piece := stream.read(LOOK)):
                begun += piece
                text += piece.decode("utf-8", "replace")
            for line in map(self.parser.unwrapped, split_lines(text[looked_at:])):
                # data that is no log may be JSON with a level, too
                if self._timed.begins(line) and (line[0] != "{" or self._timed.of_line(line)):
                    return text, "log", begun
                kind = kind or ("bare" if self._bare.begins(line) else None)
            looked_at = text.rfind("\n") + 1
        return text, kind, begun

    def _cut(self, stream: Any, lines: Sequence[str]) -> tuple[bool, bool]:
        """Return (whether a collector has cut lines of the text, whether its last line is cut).

        lines: the first ones.
        """
        joined, cut, last = self.parser.joined, False, ""
        if any(map(joined.knows, lines[:MOST_HEADERS])):
            for last in chain.from_iterable(blocks(stream)):
                cut = cut or joined.is_partial(last)
        return cut, joined.is_partial(last)

    def _ts_of(self, lines: Iterable[str]) -> str:
        """Return the printed time stamp of the first line that begins a record; empty where none does."""
        line = next((line for line in map(self.parser.unwrapped, lines) if self._timed.begins(line)), "")
        header = self._timed.of_line(line)
        return (header[1] or "") if header else ""

    def _envelope(self, text: str, kind: str | None) -> Envelope | None:
        """Learn the envelope of the lines; None where they have none, or a known wrapper."""
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
        """Return the node id that the lines show, else the one of the folder, else None."""
        contradiction = envelope.contradiction if envelope else None
        idents = {record.log_ident for record in records}
        said = {
            ident.node
            for ident in map(self.parser.log_ident, idents)
            if ident is not None and ident.node is not None
        }
        folders = [m.group(1) for part in path.parts[:-1] if (m := NODE_FOLDER.fullmatch(part))]
        folder = int(folders[-1]) if folders else None
        # where only one of several pods prints its id, the lines of the others are not of that node
        if len(said) == 1 and (contradiction is None or contradiction.nodes == 1):
            return said.pop()
        # several nodes write to one file: each line names its node
        return folder if not said or folder in said else None


class _Followed:
    """A stream whose first bytes were read before; it measures the text and keeps its end."""

    def __init__(self, begun: bytes, stream: BinaryIO) -> None:
        self._begun, self._stream = begun, stream
        self._length, self._last = 0, b""

    def read(self, size: int) -> bytes:
        """Return the next bytes."""
        piece, self._begun = (self._begun, b"") if self._begun else (self._stream.read(size), b"")
        self._length, self._last = self._length + len(piece), (self._last + piece)[-LAST_RECORDS:]
        return piece

    def to_the_end(self) -> tuple[int, bytes]:
        """Read to the end and return (bytes of the text, its last bytes).

        Only this shows whether an archive is truncated.
        """
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


def _is_joined(lines: Sequence[str]) -> bool:
    """Return whether most records of a text begin within its lines; strings of JSON and CSV are read."""
    joined = sum(len(_JOINED.findall(line)) for line in lines if line[:1] not in {"{", '"'})
    return joined > max(1, len(lines)) and '"' not in lines[0][:STAMP_LENGTH]


def _begins_like(line: str, other: str) -> bool:
    """Return whether a line may be the beginning of a header like another one; all digits count as equal."""
    begun, whole = (re.sub(r"\d", "0", text)[:STAMP_LENGTH] for text in (line, other))
    return whole.startswith(begun)


STANDARD_INPUT = "-"


def is_stream(given: str) -> bool:
    """Return whether a path can be read only once: standard input, or a pipe such as `<(zcat ..)`."""
    return given == STANDARD_INPUT or (
        os.path.exists(given) and not os.path.isfile(given) and not os.path.isdir(given)
    )


def _copied(given: str, folder: Path, limits: Limits) -> Path:
    """Copy a stream to a file. Raises OSError, such as archives.LimitError."""
    if given == STANDARD_INPUT and sys.stdin is None:
        raise OSError("standard input is closed")
    number, name = tempfile.mkstemp(dir=folder)
    with os.fdopen(number, "wb") as file, contextlib.ExitStack() as stack:
        stream = sys.stdin.buffer if given == STANDARD_INPUT else stack.enter_context(open(given, "rb"))
        archives.copy(stream, file, limits.temporary)
    return Path(name)


def _of_stream(given: str, sniffer: "Sniffer", folder: Path) -> list[LogFile]:
    try:
        found = sniffer.look_inside(_copied(given, folder, sniffer.limits))
    except OSError as error:
        found = [LogFile(Path(given), 0, "unreadable", why=error.strerror or str(error))]
    return [replace(file, given=given) for file in found]


def find(
    cluster: Cluster,
    ruleset: RuleSet | None = None,
    limits: Limits = archives.LIMITS,
    temporary: Path | None = None,
) -> list[LogFile]:
    """Examine every file below the paths of a cluster; a path that does not exist is unreadable.

    temporary: folder for copies of streams (`is_stream`), if there may be any. One entry counts all empty
    files, and one counts all unrelated files after the first MOST_NAMED, because there may be a million.
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
            for file in chain.from_iterable(
                pool.map(sniffer.look_inside, (Path(path) for path in some if path not in empty))
            ):
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


def unchanged(files: Iterable[LogFile]) -> list[LogFile]:
    """Return the files.

    A log that was rotated, removed or truncated since it was examined is marked unreadable.
    """

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
    """Return where the last whole line between two places ends; 0 where none does.

    A final CR may be half of a line end.
    """
    cr = data.rfind(b"\r", begin, min(end, len(data) - 1))
    return max(data.rfind(b"\n", begin, end), cr + (cr >= 0 and data[cr + 1 : cr + 2] == b"\n")) + 1


def _end_of_line(data: bytes) -> int:
    """Return where the first line ends; 0 where it continues."""
    end = min((at for at in (data.find(b"\n"), data.find(b"\r", 0, -1)) if at >= 0), default=-1)
    return end + 1 + (data[end : end + 2] == b"\r\n")


def _long_line(data: bytes, read: Callable[[], bytes]) -> tuple[str, bytes]:
    """Return (a line that is too long, shortened; the bytes after it).

    data: the bytes that were read since the line began.
    """
    line, decoded = LineBuilder(), codecs.getincrementaldecoder("utf-8")("replace")
    while True:
        if end := _end_of_line(data):
            line.add(decoded.decode(data[:end].rstrip(b"\r\n"), True))
            return line.line(), data[end:]
        cr = data[-1:] if data[-1:] == b"\r" else b""
        line.add(decoded.decode(data[: len(data) - len(cr)]))
        more = read()
        if not more:
            line.add(decoded.decode(b"", True))
            return line.line(), b""
        data = cr + more


def blocks(stream: BinaryIO, length: int | None = None) -> Iterator[list[str]]:
    """Yield the lines of a stream without line ends, some megabytes at a time.

    A line that is too long becomes a `CutLine`.
    length: bytes of the stream to read; None: all.
    """
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
        # end of the part in which no line is too long
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
    """A part of a file that one task reads, cut between records.

    number: of the file among those of a run.  begin, end: bytes.  line_no: of its first line.
    previous_ending: the `ending` of the previous file of the rotation: id of a text -> how often.
    """

    file: LogFile
    number: int
    begin: int
    end: int
    line_no: int = 1
    previous_ending: dict[bytes, int] = field(default_factory=dict)

    @property
    def is_last(self) -> bool:
        """Return whether it is the last part of the file."""
        return self.end >= self.file.length


def _next_record(file: LogFile, stream: BinaryIO, at: int, parser: Parser) -> int | None:
    """Return where a file may be split at or after a place: where the time stamp changes.

    Then one task counts all equal texts, which share a time stamp. None: nowhere before the end.
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
        is_same_source = True
        if opener is not None:
            (inside,) = opener(line)
            line, is_same_source, before = inside.text, before in (None, inside.source), inside.source
        if headers.begins(line):
            header = headers.of_line(line)
            ts = header[1] if header else None
            # the previous record of another source may still continue
            if begun and ts != first and is_same_source:
                return place
            begun, first = True, ts


def _next_line(stream: BinaryIO) -> bytes:
    """Return the beginning of the next line and skip the rest of that line."""
    line = more = stream.readline(LONGEST_LINE)
    while more and not more.endswith(b"\n"):
        more = stream.readline(LONGEST_LINE)
    return line


def _lines_between(file: LogFile, begin: int, end: int) -> int:
    """Return the number of lines that `blocks` yields for these bytes, which end with a line end."""
    lines, left, is_cr = 0, end - begin, False
    with file.open() as stream:
        stream.seek(begin)
        while left and (piece := stream.read(min(BLOCK, left))):
            left -= len(piece)
            lines += (
                piece.count(b"\n")
                + piece.count(b"\r")
                - piece.count(b"\r\n")
                - (is_cr and piece[:1] == b"\n")
            )
            is_cr = piece[-1:] == b"\r"
    return lines


def split_size(files: Iterable[LogFile], cores: int) -> int:
    """Return the size in bytes of the splits that keep the cores busy."""
    return min(max(sum(file.length for file in files) // (3 * cores), SMALLEST_SPLIT), LARGEST_SPLIT)


def absolute(file: LogFile) -> LogFile:
    """Return the file with an absolute path, for a process with another working directory."""
    return file if file.uri else replace(file, path=file.path.absolute(), given=file.given or str(file.path))


def splits(files: Sequence[LogFile], parser: Parser, size: int) -> list[Split]:
    """Split files into parts of about `size` bytes.

    Not split are files that are packed or at a URI, and those whose lines are cut, have no time stamps, or
    are in an envelope that is not of lines.
    """
    found = []
    endings = previous_endings(files, parser)
    for number, file in enumerate(files):
        edges = [0]
        is_whole = file.wrapped and file.envelope is not None and not file.envelope.is_of_lines
        if (
            not (file.uri or file.packed or file.cut or is_whole or file.kind == "bare")
            and file.length > size * 3 // 2
        ):
            with file.open() as stream:
                for at in range(size, file.length - size // 2, size):
                    place = _next_record(file, stream, at, parser) if at > edges[-1] else edges[-1]
                    if place is None:
                        break
                    if place > edges[-1]:
                        edges.append(place)
        line_no = 1
        for begin, end in zip(edges, [*edges[1:], file.length], strict=True):
            found.append(
                Split(file, number, begin, end, line_no, endings.get(number, {}) if begin == 0 else {})
            )
            if end < file.length:
                line_no += _lines_between(file, begin, end)
    return found


def lines_of(split: Split, parser: Parser, pieces: Counter[str] | None = None) -> Iterator[list[str]]:
    """Yield the lines of a split, joined where a collector has cut them.

    pieces: counts the lines before and after they are joined. Raises OSError where the file was replaced
    meanwhile.
    """
    with split.file.open() as stream:
        status = split.file.path.stat()
        if split.file.inode and (status.st_ino != split.file.inode or status.st_size < split.file.size):
            raise OSError(f"{split.file.name}: {ROTATED}")
        if not split.file.packed:
            stream.seek(split.begin)
        some = blocks(stream, None if split.file.packed else split.end - split.begin)
        if split.file.cut:
            yield from _counted(
                _some_lines(parser.joined(chain.from_iterable(_counted(some, pieces, "lines")))),
                pieces,
                "whole",
            )
        else:
            yield from some


def _counted(blocks: Iterable[list[str]], counts: Counter[str] | None, name: str) -> Iterator[list[str]]:
    for block in blocks:
        if counts is not None:
            counts[name] += len(block)
        yield block


def _some_lines(lines: Iterable[str]) -> Iterator[list[str]]:
    """Yield lines in blocks of some megabytes."""
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
    """Yield (URI as Hadoop writes it, local copy) for each file of some pieces.

    A copy is valid until the next one.
    """
    rows = (
        row
        for batch in batches
        for row in zip(*(column.to_pylist() for column in batch.columns), strict=True)
    )
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
    """Return the key that the files of a rotation share.

    Such files are state-change.log, state-change.log.2026-11-20-10, state-change.log.1.gz.
    """
    return file.cluster, str(file.place.parent), _ROTATED_TO.sub("", file.place.name)


def ending(file: LogFile, parser: Parser) -> dict[bytes, int]:
    """Return id -> how often, of the texts at the end of a file that share its last time stamp."""
    with file.open() as stream:
        if not file.packed and file.length > LAST_RECORDS:
            stream.seek(_next_record(file, stream, file.length - LAST_RECORDS, parser) or 0)
        reader = reader_of(parser, file.envelope, bare=False)
        records = deque(
            chain(chain.from_iterable(map(reader.feed, blocks(stream))), reader.close()), MOST_OF_ONE_MOMENT
        )
    identity, counts = Identity(file.cluster), Counter[bytes]()
    for record in records:
        if record.ts == records[-1].ts:
            ident = parser.log_ident(record.log_ident)
            counts[
                identity.of_text(file.node if ident is None or ident.node is None else ident.node, record.raw)
            ] += 1
    return dict(counts)


def previous_endings(files: Sequence[LogFile], parser: Parser) -> dict[int, dict[bytes, int]]:
    """Return the number of a file -> `ending` of the previous file, where both share a time stamp."""
    # equal texts of one time stamp, in two files, are several records
    logs = {
        number: file
        for number, file in enumerate(files)
        if file.kind == "log" and "" != file.first_ts != file.last_ts
    }
    begun = {(_family(file), file.first_ts): number for number, file in logs.items()}
    found: dict[int, dict[bytes, int]] = {}
    for file in logs.values():
        if (after := begun.get((_family(file), file.last_ts))) is not None:
            found[after] = dict(ending(file, parser) if file.ending is None else file.ending)
    return found
