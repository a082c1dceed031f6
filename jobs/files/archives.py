"""Open compressed files, archives and encodings, which are recognised by content.

Limits stop a file that expands without end. Everything is read as a stream. Nothing is unpacked to disk,
except an archive within an archive that must be read from its end: it is copied to a temporary file of
bounded size. Names of members are only shown; no file is ever written under them.
"""

import bz2
import codecs
import gzip
import importlib.util
import io
import lzma
import os
import re
import subprocess
import sys
import tarfile
import tempfile
import threading
import zipfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO

from jobs.files import seven_zip
from parsers.explanation import visible

# first bytes of each codec: RFC 1952 and 8878, the .xz and .lz4 frame formats, bzip2's block header
_MAGIC = (
    ("gz", re.compile(rb"\x1f\x8b")),
    ("zst", re.compile(rb"\x28\xb5\x2f\xfd")),
    ("xz", re.compile(rb"\xfd7zXZ\x00")),
    ("bz2", re.compile(rb"BZh[1-9](?:1AY&SY|\x17rE8P\x90)")),
    ("lz4", re.compile(rb"\x04\x22\x4d\x18")),
)
# formats that are not unpacked, and their names in messages
_FOREIGN = (
    (re.compile(rb"Rar!\x1a\x07"), "a .rar"),
    (re.compile(rb"\x1f\x9d"), "a .Z"),
)
_SEVEN_ZIP = re.compile(rb"7z\xbc\xaf\x27\x1c")
_ZIP = re.compile(rb"PK\x03\x04|PK\x05\x06\x00")
# zip files of programs or documents
NO_LOGS = re.compile(r".*\.(?:jar|war|ear|whl|apk|docx|xlsx|pptx|odt|ods|epub)", re.IGNORECASE)
# most archives within each other, and most layers of one text
MOST_ARCHIVES, MOST_LAYERS = 2, 6
# first bytes that identify a stream; a tar needs its first header
_BEGINNING = 64 * 1024
# suffixes of a codec; a file with other content is reported
SUFFIXES = {f".{codec}": codec for codec, _ in _MAGIC}
# the ratio is measured over this many bytes of text
WINDOW = 64 * 1024 * 1024
# a log has at least one line of its own in this many bytes
BYTES_PER_LINE = 64 * 1024
# a file whose lines differ may exceed the ratio by this factor
DIFFERENT_LINES = 25
# bytes that are unpacked at once
_PIECE = 1024 * 1024


class UnreadableError(OSError):
    """A layer is recognised but cannot be read. The text says why, and what to do."""


class LimitError(OSError):
    """An unpacked file is larger than the limit, or repeats itself without end."""


class DamagedError(OSError):
    """An archive or compressed file is truncated or damaged."""


@dataclass(frozen=True)
class Limits:
    """Bounds of one packed file.

    unpacked   bytes of its text
    ratio      text to packed bytes where the text repeats itself; DIFFERENT_LINES times as much where it does
               not
    temporary  bytes of a temporary file: a copy of standard input, or of an archive in an archive that is
               read from its end
    """

    unpacked: int = 100 * 10**9
    ratio: int = 200
    temporary: int = 10 * 10**9


LIMITS = Limits()


class Meter:
    """Compares the size of a text with its packed size. Raises LimitError.

    A small packed file with a long text of equal bytes or lines is no log. A log may pack well, because its
    lines differ by their time stamps.
    """

    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        self.packed = self.unpacked = 0
        self._window_ends, self._packed_before = WINDOW, 0
        self.is_exceeded = False
        # lines of the current window, if the ratio of the previous one was too high
        self._lines: set[bytes] | None = None

    def count(self, text: bytes) -> None:
        """Add a piece of text."""
        self.unpacked += len(text)
        if self.unpacked > self.limits.unpacked:
            self.is_exceeded = True
            raise LimitError(
                f"its text is larger than {self.limits.unpacked / 1e9:g} GB; if it is a log, raise `unpacked_gb` "
                "in [limits] of audit.toml"
            )
        if self._lines is not None:
            self._lines.update(text.split(b"\n")[1:-1])
        if self.unpacked >= self._window_ends:
            self._judge()
            self._window_ends, self._packed_before = self.unpacked + WINDOW, self.packed

    def _judge(self) -> None:
        ratio = self.limits.ratio
        is_dense = (self.packed - self._packed_before) * ratio < WINDOW
        repeats = self._lines is not None and len(self._lines) < WINDOW // BYTES_PER_LINE
        if (is_dense and repeats) or (
            self.unpacked > 4 * WINDOW and self.packed * ratio * DIFFERENT_LINES < self.unpacked
        ):
            self.is_exceeded = True
            raise LimitError(
                f"it is no log: {self.unpacked >> 20:,} MB of repeated text in {self.packed / 2**20:.1f} MB; if it is one, "
                "raise `ratio` in [limits] of audit.toml"
            )
        self._lines = set() if is_dense else None


class _Counted(io.RawIOBase):
    """Counts the packed bytes that a codec reads."""

    def __init__(self, stream: BinaryIO, meter: Meter) -> None:
        self._stream, self._meter = stream, meter

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        data = self._stream.read(min(len(buffer), 16 * 1024))
        buffer[: len(data)] = data
        self._meter.packed += len(data)
        return len(data)

    def seekable(self) -> bool:
        return self._stream.seekable()

    def seek(self, offset: int, whence: int = 0) -> int:
        return self._stream.seek(offset, whence)

    def tell(self) -> int:
        return self._stream.tell()

    def close(self) -> None:
        self._stream.close()
        super().close()


class _Unpacked(io.RawIOBase):
    """The text of a packed stream. Raises LimitError and DamagedError."""

    def __init__(self, codec: str, read: Callable[[int], bytes], packed: Any, meter: Meter | None) -> None:
        self._codec, self._read, self._packed, self._meter = codec, read, packed, meter

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        try:
            text = self._read(min(len(buffer), _PIECE))
        except EOFError:
            raise DamagedError(f"the .{self._codec} is truncated") from None
        except (
            OSError,
            ValueError,
            zlib.error,
            lzma.LZMAError,
            zipfile.BadZipFile,
            tarfile.TarError,
        ) as error:
            if isinstance(error, LimitError | DamagedError | UnreadableError):
                raise
            if "runcated" in str(error) or "unexpected end" in str(error):
                raise DamagedError(f"the .{self._codec} is truncated") from None
            raise DamagedError(f"the .{self._codec} is damaged: {error}") from None
        if self._meter:
            self._meter.count(text)
        buffer[: len(text)] = text
        return len(text)

    def close(self) -> None:
        self._packed.close()
        super().close()


def _of_arrow(packed: io.RawIOBase, codec: str) -> Any:
    import pyarrow as pa

    return pa.CompressedInputStream(pa.PythonFile(packed, mode="r"), codec)


_CODECS: dict[str, Callable[[io.RawIOBase], Any]] = {
    "gz": lambda packed: gzip.GzipFile(fileobj=packed, mode="rb"),
    "bz2": lambda packed: bz2.BZ2File(packed, "rb"),
    "xz": partial(lzma.LZMAFile, mode="rb"),
    "zst": lambda packed: _of_arrow(packed, "zstd"),
    "lz4": lambda packed: _of_arrow(packed, "lz4"),
}


# types of headers that carry the name of the next one
_TAR_NAMES = (
    tarfile.XHDTYPE,
    tarfile.XGLTYPE,
    tarfile.GNUTYPE_LONGNAME,
    tarfile.GNUTYPE_LONGLINK,
    tarfile.SOLARIS_XHDTYPE,
)
_LONGEST_NAME = 1024 * 1024


# -- layers ------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Member:
    """A file of an archive. kind: tar, zip or 7z.

    number: its place among all entries, because a name may occur twice.
    """

    kind: str
    number: int
    name: str


# a codec, a member of an archive or an encoding; Layers: around a text, the outermost first
Layer = str | Member
Layers = tuple[Layer, ...]


@dataclass
class Opened:
    """A text, or a layer that cannot be read. layers: those around it.

    The stream of an unreadable layer is None; why and error say what is wrong.
    """

    layers: Layers
    stream: BinaryIO | None = None
    why: str = ""
    error: OSError | None = None


def name_of(path: str, layers: Layers) -> str:
    """Return the name of a text, such as `bundle.tar.gz!/broker-1/server.log`."""
    return "!/".join([path, *(layer.name for layer in layers if isinstance(layer, Member))])


def read_as(layers: Layers) -> str:
    """Return the layers as `tar.gz, gz, UTF-16`, the innermost last; empty for a plain text."""
    kinds: list[str] = []
    for layer in layers:
        kind = (
            layer.kind
            if isinstance(layer, Member)
            else layer.upper().removesuffix("-LE").removesuffix("-BE")
            if "utf" in layer
            else layer
        )
        if isinstance(layer, Member) and layer.kind == "tar" and kinds and kinds[-1] in _CODECS:
            kinds[-1] = f"tar.{kinds[-1]}"
        else:
            kinds.append(kind)
    return ", ".join(kinds)


class _Peeked(io.RawIOBase):
    """A stream whose beginning was read before."""

    def __init__(self, beginning: bytes, stream: BinaryIO) -> None:
        self._beginning, self._stream = beginning, stream

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        data = self._beginning[: len(buffer)] or self._stream.read(len(buffer))
        self._beginning = self._beginning[len(buffer) :]
        buffer[: len(data)] = data
        return len(data)

    def close(self) -> None:
        self._stream.close()
        super().close()


class _Transcoded(io.RawIOBase):
    """Converts UTF-16 to UTF-8 and drops the byte order mark."""

    def __init__(self, encoding: str, stream: BinaryIO) -> None:
        self._decoder, self._stream = codecs.getincrementaldecoder(encoding)("replace"), stream
        self._text, self._is_first = b"", True

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        while not self._text:
            data = self._stream.read(_PIECE)
            text = self._decoder.decode(data, not data)
            if self._is_first:
                text, self._is_first = text.removeprefix("\ufeff"), not text
            self._text = text.encode("utf-8", "replace")
            if not data:
                break
        given, self._text = self._text[: len(buffer)], self._text[len(buffer) :]
        buffer[: len(given)] = given
        return len(given)

    def close(self) -> None:
        self._stream.close()
        super().close()


def utf_16(beginning: bytes) -> str | None:
    """Return the UTF-16 encoding of a text: by its byte order mark, else by zeros in every other byte.

    None: another encoding.
    """
    if beginning.startswith((b"\xff\xfe", b"\xfe\xff")):
        return "utf-16-le" if beginning[:1] == b"\xff" else "utf-16-be"
    even, odd = beginning[: 2 * (len(beginning) // 2) : 2], beginning[1::2]
    if len(odd) < 16:
        return None
    for encoding, zeros, others in (("utf-16-le", odd, even), ("utf-16-be", even, odd)):
        if zeros.count(0) > 0.7 * len(zeros) and others.count(0) < 0.05 * len(others):
            return encoding
    return None


def _is_tar(beginning: bytes) -> bool:
    """Return whether the checksum of the first header is right, the only mark of older forms."""
    try:
        tarfile.TarInfo.frombuf(beginning[: tarfile.BLOCKSIZE], "utf-8", "surrogateescape")
    except tarfile.HeaderError:
        return False
    return True


def codec_of(beginning: bytes) -> str | None:
    """Return the codec of a file that begins with these bytes; None: it has none."""
    return next((codec for codec, magic in _MAGIC if magic.match(beginning)), None)


class _Entry(tarfile.TarInfo):
    """A header of a tar.

    Raises HeaderError where it is damaged, wherever it is, and where its name is megabytes long.
    """

    @classmethod
    def frombuf(cls, buf: bytes | bytearray, encoding: str, errors: str) -> "_Entry":
        entry = super().frombuf(buf, encoding, errors)
        if entry.type in _TAR_NAMES and entry.size > _LONGEST_NAME:
            raise tarfile.ReadError("a name is too long")
        return entry

    @classmethod
    def fromtarfile(cls, tarfile_: tarfile.TarFile) -> "_Entry":
        try:
            return super().fromtarfile(tarfile_)
        except (tarfile.InvalidHeaderError, tarfile.TruncatedHeaderError) as error:  # type: ignore[attr-defined]
            raise tarfile.ReadError(str(error)) from None


def _entries(archive: tarfile.TarFile) -> Iterator[tarfile.TarInfo]:
    while (entry := archive.next()) is not None:
        yield entry
        # tarfile would keep all members in memory
        archive.members.clear()  # type: ignore[attr-defined]


def _rewound(stream: BinaryIO) -> bool:
    """Rewind a stream and return whether that was possible."""
    if not stream.seekable():
        return False
    stream.seek(0)
    return True


@contextmanager
def _seekable(stream: BinaryIO, limits: Limits) -> Iterator[BinaryIO]:
    """Yield a seekable stream of the same bytes: the stream itself, or a temporary file."""
    if stream.seekable():
        yield stream
        return
    with tempfile.TemporaryFile(prefix="kafka-audit-") as file:
        copy(stream, file, limits.temporary)
        file.seek(0)
        yield file


def copy(stream: BinaryIO, into: BinaryIO, most: int) -> None:
    """Copy a stream. Raises LimitError where it is longer than `most` bytes."""
    while piece := stream.read(_PIECE):
        most -= len(piece)
        if most < 0:
            raise LimitError(
                "it does not fit into a temporary file; unpack it, or raise `temporary_gb` in [limits] of audit.toml"
            )
        into.write(piece)


def _why(error: Exception, kind: str = "") -> str:
    """Return what is wrong, as one line."""
    if isinstance(error, LimitError | DamagedError | UnreadableError):
        return str(error)
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    return f"the .{kind} is damaged: {error}" if kind else str(error)


def _why_after(error: Exception, kind: str, last: str) -> str:
    """Return what is wrong with an archive, and the last member that could be read."""
    if isinstance(error, UnreadableError) and not last:
        return str(error)
    return f"{_why(error, kind)}{f', after its member {last}' if last else ''}; what follows is skipped"


@contextmanager
def _unpacking(file: BinaryIO) -> Iterator[Callable[[int], bytes]]:
    """Read the tar into which a child process converts a .7z.

    Reading raises UnreadableError where the child fails.
    """
    process = subprocess.Popen(
        [sys.executable, "-m", seven_zip.__name__],
        stdin=file,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
    )
    assert process.stdout
    assert process.stderr
    output, errors = process.stdout, process.stderr

    def read(size: int) -> bytes:
        data = output.read(size)
        if not data and (code := process.wait()):
            message = (
                errors.read(1000).decode("utf-8", "replace").strip().rpartition("\n")[2] if code > 0 else ""
            )
            raise UnreadableError(message or "reading the .7z takes too much memory or time; unpack it")
        return data

    try:
        yield read
    finally:
        process.kill()
        process.wait()
        output.close()
        errors.close()


class _Walk:
    """Walks a file and everything that is packed in it, once and in order.

    One meter counts all members of a depth, so that the limits apply to the sum of small members.
    """

    def __init__(self, path: Path, limits: Limits) -> None:
        self._path, self._limits = path, limits
        self._meters: dict[int, Meter] = {}

    def texts(self) -> Iterator[Opened]:
        """Yield each text, and each layer that cannot be read.

        Raises OSError where the file cannot be opened.

        A stream is valid until the next one is yielded.
        """
        with self._path.open("rb") as stream:
            yield from self._inside(stream, ())

    def _meter(self, depth: int) -> Meter:
        return self._meters.setdefault(depth, Meter(self._limits))

    def _inside(self, stream: BinaryIO, layers: Layers) -> Iterator[Opened]:
        """Yield the texts in a stream. layers: those around it."""
        try:
            beginning = stream.read(_BEGINNING)
        except OSError as error:
            yield Opened(layers, why=_why(error), error=error)
            return
        stream = stream if _rewound(stream) else io.BufferedReader(_Peeked(beginning, stream), _PIECE)
        if why := next(
            (f"it is {what}; unpack it" for magic, what in _FOREIGN if magic.match(beginning)), ""
        ):
            yield Opened(layers, why=why)
        elif len(layers) > MOST_LAYERS:
            yield Opened(layers, why=f"it is packed more than {MOST_LAYERS} times; unpack it")
        elif codec := codec_of(beginning):
            yield from self._inside(self._unpacked(codec, stream, len(layers)), (*layers, codec))
        elif (
            (is_7z := _SEVEN_ZIP.match(beginning))
            or (is_zip := _ZIP.match(beginning) and not self._has_no_logs(layers))
            or _is_tar(beginning)
        ):
            if sum(isinstance(layer, Member) for layer in layers) >= MOST_ARCHIVES:
                yield Opened(layers, why="it is an archive in an archive in an archive; unpack it")
            elif is_7z:
                yield from self._7z(stream, layers)
            elif is_zip:
                yield from self._zip(stream, layers)
            else:
                yield from self._tar(stream, layers)
        elif encoding := utf_16(beginning):
            yield Opened((*layers, encoding), io.BufferedReader(_Transcoded(encoding, stream), _PIECE))
        else:
            yield Opened(layers, stream)

    def _has_no_logs(self, layers: Layers) -> bool:
        names = [layer.name for layer in layers if isinstance(layer, Member)]
        return NO_LOGS.fullmatch(names[-1] if names else self._path.name) is not None

    def _unpacked(self, codec: str, stream: BinaryIO, depth: int) -> BinaryIO:
        meter = self._meter(depth)
        packed = _Counted(stream, meter)
        return io.BufferedReader(_Unpacked(codec, _CODECS[codec](packed).read, packed, meter), _PIECE)

    def _tar(self, stream: BinaryIO, layers: Layers, kind: str = "tar") -> Iterator[Opened]:
        last = ""
        try:
            mode: Any = "r:" if stream.seekable() else "r|"
            with tarfile.open(fileobj=stream, mode=mode, encoding="utf-8", tarinfo=_Entry) as archive:
                for number, entry in enumerate(_entries(archive)):
                    last = visible(entry.name)
                    inside = (*layers, Member(kind, number, last))
                    if entry.issparse():
                        yield Opened(inside, why="it is a sparse file; unpack it")
                    elif entry.isreg() and (member := archive.extractfile(entry)):
                        text = _Unpacked(kind, member.read, member, None)
                        yield from self._inside(io.BufferedReader(text, _PIECE), inside)
        except (tarfile.TarError, OSError, EOFError, ValueError) as error:
            yield Opened(layers, why=_why_after(error, kind, last))

    def _7z(self, stream: BinaryIO, layers: Layers) -> Iterator[Opened]:
        """Yield the texts of a .7z, which a child process converts to a tar (jobs.files.seven_zip)."""
        if importlib.util.find_spec("py7zr") is None:
            yield Opened(layers, why="it is a .7z; unpack it, or install kafka-nightly-audit[7z]")
            return
        try:
            with _seekable(stream, self._limits) as file, _unpacking(file) as read:
                meter = self._meter(len(layers))
                # its codecs read in any order, so the whole size counts from the beginning
                meter.packed += file.seek(0, io.SEEK_END)
                unpacked = _Unpacked("7z", read, io.BytesIO(), meter)
                yield from self._tar(io.BufferedReader(unpacked, _PIECE), layers, "7z")
        except OSError as error:
            yield Opened(layers, why=_why_after(error, "7z", ""))

    def _zip(self, stream: BinaryIO, layers: Layers) -> Iterator[Opened]:
        last = ""
        try:
            meter = self._meter(len(layers))
            with (
                _seekable(stream, self._limits) as file,
                zipfile.ZipFile(io.BufferedReader(_Counted(file, meter), 64 * 1024)) as archive,
            ):
                for number, entry in enumerate(archive.infolist()):
                    if meter.is_exceeded:
                        break
                    last = visible(entry.filename)
                    inside = (*layers, Member("zip", number, last))
                    if entry.is_dir():
                        continue
                    if entry.flag_bits & 1:
                        yield Opened(inside, why="it is encrypted; unpack it")
                        continue
                    try:
                        member = archive.open(entry)
                    except NotImplementedError as error:
                        yield Opened(inside, why=f"{error}; unpack it")
                        continue
                    text = _Unpacked("zip", member.read, member, meter)
                    yield from self._inside(io.BufferedReader(text, _PIECE), inside)
            if meter.is_exceeded:
                yield Opened(layers, why=f"it hit a limit in its member {last}; what follows is skipped")
        except (zipfile.BadZipFile, OSError, EOFError, ValueError, NotImplementedError) as error:
            yield Opened(layers, why=_why_after(error, "zip", last))


# -- opening -----------------------------------------------------------------------------------------------


def walk(path: Path, limits: Limits = LIMITS) -> Iterator[Opened]:
    """Yield every text in a file, its own or the packed ones, and each layer that cannot be read.

    A stream is valid until the next one is yielded. Raises OSError where the file cannot be opened.
    """
    return _Walk(path, limits).texts()


class _OpenWalk(threading.local):
    """A walk that continues after a member, one per thread, so that an archive is read only once."""

    key: Any = None
    texts: Iterator[Opened] | None = None
    place: tuple[int, ...] = ()

    def to(self, path: Path, layers: Layers, limits: Limits) -> Opened | None:
        """Return the text with these layers; None where there is none any more."""
        status = path.stat()
        key = (path, limits, status.st_ino, status.st_size, status.st_mtime_ns, threading.get_ident())
        place = _place(layers)
        if self.texts is None or key != self.key or place <= self.place:
            self.end()
            self.key, self.texts = key, walk(path, limits)
        assert self.texts is not None
        for opened in self.texts:
            self.place = _place(opened.layers)
            if opened.layers == layers:
                return opened
        self.end()
        return None

    def end(self) -> None:
        """Close the archive."""
        self.key, self.texts, self.place = None, None, ()


_open_walk = _OpenWalk()


def _place(layers: Layers) -> tuple[int, ...]:
    return tuple(layer.number for layer in layers if isinstance(layer, Member))


@contextmanager
def open_text(path: Path, layers: Layers = (), limits: Limits = LIMITS) -> Iterator[BinaryIO]:
    """Open a text of a file. A packed text can only be read once, from its beginning.

    Raises OSError, also while it is read.
    """
    if not layers:
        with path.open("rb") as stream:
            yield stream
        return
    if not any(isinstance(layer, Member) for layer in layers):
        for opened in walk(path, limits):
            if opened.stream is None or opened.layers != layers:
                raise opened.error or DamagedError(opened.why or "it has changed")
            yield opened.stream
            return
        return
    found = _open_walk.to(path, layers, limits)
    if found is None or found.stream is None:
        raise (found and found.error) or DamagedError(found.why if found else "it has changed")
    try:
        yield found.stream
    except BaseException:
        _open_walk.end()
        raise
