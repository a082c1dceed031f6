"""Convert a .7z on standard input to a tar on standard output. Needs py7zr, the extra `7z`.

It runs as a child process. py7zr writes as fast as it unpacks; the pipe makes it wait for the reader. It also
reserves whatever memory a header asks for; the system bounds the memory of the process. If the archive cannot
be read, it prints one line on standard error and exits with code 1.
"""

import sys
import tarfile
from typing import BinaryIO

# most bytes of memory; the largest dictionary of 7-Zip's own levels has 256 MB
MEMORY = 1024**3
# most seconds of processor time for the list of files; 100,000 files take 2 s
LONGEST_LIST = 30


def write_tar(packed: BinaryIO, into: BinaryIO) -> None:
    """Write each file of the archive, in the archive's order and under its unchanged name."""
    from py7zr import SevenZipFile
    from py7zr.io import MemIO, Py7zIO, WriterFactory

    class Member(Py7zIO):
        """A file that is written into the tar, after a header with its size."""

        def __init__(self, name: str, size: int) -> None:
            self._size, self._left = size, size
            entry = tarfile.TarInfo(name)
            entry.size = size
            into.write(entry.tobuf(tarfile.PAX_FORMAT, "utf-8", "surrogateescape"))

        def write(self, s: bytes | bytearray) -> int:
            self._left -= len(s)
            if self._left < 0:
                raise ValueError("a file is longer than its list says")
            into.write(s)
            return len(s)

        def close(self) -> None:
            if self._left:
                raise ValueError("a file is shorter than its list says")
            into.write(bytes(-self._size % tarfile.BLOCKSIZE))

        def read(self, size: int | None = None) -> bytes:
            return b""

        def seek(self, offset: int, whence: int = 0) -> int:
            return 0

        def flush(self) -> None:
            pass

        def size(self) -> int:
            return self._size - self._left

    # a small archive may list millions of files
    limit("RLIMIT_CPU", LONGEST_LIST)
    with SevenZipFile(packed) as archive:
        if archive.needs_password():
            raise ValueError("it is encrypted; unpack it")
        members = {
            str(file.id): file
            for file in archive.files
            if not (file.is_directory or file.is_symlink or file.is_socket)
        }
        limit("RLIMIT_CPU", None)

        class Members(WriterFactory):
            def create(self, filename: str) -> Member:
                file = members[filename]
                return Member(file.filename, 0 if file.emptystream else file.uncompressed)

        # `extract` would refuse the whole archive for one name that leads out of a folder; no file is written
        # under a name
        for number, file in members.items():
            archive.worker.register_filelike(file.id, MemIO(number, Members()))
        archive.worker.extract(archive.fp, None, parallel=False)
    into.write(bytes(2 * tarfile.BLOCKSIZE))
    into.flush()


def limit(what: str, most: int | None) -> None:
    """Limit a resource of the process, if the system can. most: None removes the limit."""
    try:
        import resource
    except ImportError:
        return
    kind = getattr(resource, what)
    _, hard = resource.getrlimit(kind)
    soft = hard if most is None else most if hard == resource.RLIM_INFINITY else min(most, hard)
    resource.setrlimit(kind, (soft, hard))


def why(error: BaseException) -> str:
    """Return what is wrong, as one line."""
    from py7zr import exceptions

    if isinstance(error, MemoryError):
        return f"the .7z needs more than {MEMORY >> 30} GB of memory; unpack it"
    if isinstance(error, exceptions.PasswordRequired):
        return "it is encrypted; unpack it"
    if isinstance(error, exceptions.UnsupportedCompressionMethodError):
        return "the .7z has a codec that py7zr does not read; unpack it"
    if isinstance(error, ValueError) and "unpack it" in str(error):
        return str(error)
    if isinstance(error, EOFError):
        return "the .7z is truncated"
    return f"the .7z is damaged: {str(error).splitlines()[0][:200] if str(error) else type(error).__name__}"


def main() -> int:
    """Convert standard input and return the exit code."""
    limit("RLIMIT_DATA", MEMORY)
    try:
        sys.stdin.buffer.seek(0)
        write_tar(sys.stdin.buffer, sys.stdout.buffer)
    except BrokenPipeError:
        return 0
    except Exception as error:  # a damaged archive makes the library raise anything
        print(why(error), file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
