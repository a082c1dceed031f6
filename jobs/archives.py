"""Opens packed files: which codec a file has shows in its first bytes; limits stop an archive that expands without end.

A file is read as a stream. Nothing is unpacked to disk.
"""

import bz2
import gzip
import io
import lzma
import re
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO

# bytes that tell a codec: RFC 1952 and 8878, the .xz and .lz4 frame formats, bzip2's block header
_MAGIC = (
    ("gz", re.compile(rb"\x1f\x8b")),
    ("zst", re.compile(rb"\x28\xb5\x2f\xfd")),
    ("xz", re.compile(rb"\xfd7zXZ\x00")),
    ("bz2", re.compile(rb"BZh[1-9](?:1AY&SY|\x17rE8P\x90)")),
    ("lz4", re.compile(rb"\x04\x22\x4d\x18")),
)
_MAGIC_BYTES = 10
# endings that promise a codec; other content in such a file is worth a word
SUFFIXES = {f".{codec}": codec for codec, _ in _MAGIC}
# bytes of text over which the ratio is measured
WINDOW = 64 * 1024 * 1024
# a log has more lines of its own: one in so many bytes
BYTES_PER_LINE = 64 * 1024
# how many times the ratio is allowed where the lines differ, over the whole file
DIFFERENT_LINES = 25
# bytes that are unpacked at once
_PIECE = 1024 * 1024


class LimitError(OSError):
    """Unpacked, a file is larger than it may be, or it repeats itself without end."""


class DamagedError(OSError):
    """What a file is packed in is truncated or damaged."""


@dataclass(frozen=True)
class Limits:
    """Bounds of one packed file.

    unpacked   bytes of its text
    ratio      text to packed bytes where the text repeats itself; 25 times as much is allowed where it does not
    """

    unpacked: int = 100 * 10**9
    ratio: int = 200


LIMITS = Limits()


class Meter:
    """Compares what a codec gives with what it takes. Raises LimitError.

    A long text of equal bytes or lines in few packed bytes is no log. A log is allowed to pack well: its lines have time stamps.
    """

    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        self.packed = self.unpacked = 0
        self._window_ends, self._packed_before = WINDOW, 0
        # of a window that follows one with too high a ratio
        self._lines: set[bytes] | None = None

    def count(self, text: bytes) -> None:
        """Adds a piece of text."""
        self.unpacked += len(text)
        if self.unpacked > self.limits.unpacked:
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
        if (is_dense and repeats) or (self.unpacked > 4 * WINDOW and self.packed * ratio * DIFFERENT_LINES < self.unpacked):
            raise LimitError(
                f"it is no log: {self.unpacked >> 20:,} MB of repeated text come from {self.packed / 2**20:.1f} MB; if it is one, "
                "raise `ratio` in [limits] of audit.toml"
            )
        self._lines = set() if is_dense else None


class _Counted(io.RawIOBase):
    """Packed bytes on their way to a codec."""

    def __init__(self, stream: BinaryIO, meter: Meter) -> None:
        self._stream, self._meter = stream, meter

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        data = self._stream.read(min(len(buffer), 16 * 1024))
        buffer[: len(data)] = data
        self._meter.packed += len(data)
        return len(data)

    def fileno(self) -> int:
        return self._stream.fileno()

    def close(self) -> None:
        self._stream.close()
        super().close()


class _Unpacked(io.RawIOBase):
    """The text of a packed stream. Raises LimitError and DamagedError."""

    def __init__(self, codec: str, read: Callable[[int], bytes], packed: io.RawIOBase, meter: Meter) -> None:
        self._codec, self._read, self._packed, self._meter = codec, read, packed, meter

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        try:
            text = self._read(min(len(buffer), _PIECE))
        except EOFError:
            raise DamagedError(f"the .{self._codec} is truncated") from None
        except (OSError, ValueError, zlib.error, lzma.LZMAError) as error:
            if isinstance(error, LimitError | DamagedError):
                raise
            if "runcated" in str(error):
                raise DamagedError(f"the .{self._codec} is truncated") from None
            raise DamagedError(f"the .{self._codec} is damaged: {error}") from None
        self._meter.count(text)
        buffer[: len(text)] = text
        return len(text)

    def fileno(self) -> int:
        return self._packed.fileno()

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


def codec_of(beginning: bytes) -> str | None:
    """The codec of a file that begins with these bytes."""
    return next((codec for codec, magic in _MAGIC if magic.match(beginning)), None)


def layers_of(path: Path) -> tuple[str, ...]:
    """The codecs that a file is packed with, the outermost first; none for plain text. Raises OSError."""
    with path.open("rb") as stream:
        codec = codec_of(stream.read(_MAGIC_BYTES))
    return (codec,) if codec else ()


def open_text(path: Path, layers: tuple[str, ...], limits: Limits = LIMITS) -> BinaryIO:
    """The text of a file; of a packed one as a stream that is read once, from its beginning. Raises OSError."""
    stream: BinaryIO = path.open("rb")
    for codec in layers:
        meter = Meter(limits)
        packed = _Counted(stream, meter)
        stream = io.BufferedReader(_Unpacked(codec, _CODECS[codec](packed).read, packed, meter), _PIECE)
    return stream
