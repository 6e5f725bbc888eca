"""The raw bytes of a source, counted and hashed while they pass.

The hash of a source is of its ranges, so that several processes may make it, each from a part of the bytes.
Up to one range it is the SHA-256 of the bytes, as sha256sum prints it; beyond, the SHA-256 of the ranges'
digests one after the other, and how many they are: `HEX-N`.
"""

import hashlib
import io
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import IO, Any, Protocol, cast

from fmtkit.core.errors import SourceError

RANGE_BYTES = 96 << 20
"""Part of the definition: another size makes other hashes of the same bytes."""
READ_BYTES = 1 << 20


class RangeHash:
    """Incremental hash of a source."""

    def __init__(self) -> None:
        self._done: list[bytes] = []
        self._begin()

    def _begin(self) -> None:
        self._hash, self._left = hashlib.sha256(), RANGE_BYTES

    def update(self, data: memoryview | bytes) -> None:
        """Add the next bytes."""
        left = memoryview(data)
        # A range ends where another begins: the last one of a file is never empty.
        while len(left) > self._left:
            self._hash.update(left[: self._left])
            self._done.append(self._hash.digest())
            left = left[self._left :]
            self._begin()
        self._hash.update(left)
        self._left -= len(left)

    def hexdigest(self) -> str:
        """Return the hash of the bytes so far."""
        return folded([*self._done, self._hash.digest()])


def folded(digests: Sequence[bytes]) -> str:
    """Return the hash of a source from the digests of its ranges."""
    if len(digests) == 1:
        return digests[0].hex()
    return f"{hashlib.sha256(b''.join(digests)).hexdigest()}-{len(digests)}"


def ranges_of(size: int) -> Iterator[tuple[int, int]]:
    """Yield the ranges of that many bytes: one empty range if there are none."""
    for start in range(0, max(size, 1), RANGE_BYTES):
        yield start, min(start + RANGE_BYTES, size)


TAIL_BYTES = 64 << 10
"""Bytes at the end of a block in which its last line feed is searched before the block is read."""

PEEK_BYTES = 1 << 20
"""Bytes of a source that are read to recognise its format."""


@contextmanager
def reading(name: str) -> Iterator[None]:
    """Name the source that the system cannot read."""
    try:
        yield
    except SourceError:
        raise
    except OSError as error:
        raise SourceError(f"{name}: {error.strerror or error}") from error


class Readable(Protocol):
    """A readable binary file; a read of 0 bytes is its end."""

    def read(self, size: int, /) -> bytes:
        """Return up to `size` bytes."""
        ...

    def readinto(self, buffer: memoryview, /) -> int:
        """Fill the buffer as far as a read goes and return by how much."""
        ...

    def close(self) -> None:
        """Close the file."""
        ...


class Seekable(Readable, Protocol):
    """A file that may be read from anywhere."""

    def seek(self, offset: int, /) -> int:
        """Continue at a byte."""
        ...


class RawBytes(AbstractContextManager["RawBytes"]):
    """One pass over a source; a non-seekable file for other libraries.

    With `window` (start, end) the pass covers those bytes; the file is positioned at the start. `count` is
    its position in the source.
    """

    def __init__(
        self,
        location: "Location",
        head: bytes,
        file: Readable,
        *,
        hashed: bool,
        window: tuple[int, int] | None = None,
    ) -> None:
        self._location, self._head, self._file = location, head, file
        self._hash = RangeHash() if hashed else None
        self._window = window
        self.count = self.begin = 0 if window is None else window[0]
        self.closed = False

    @property
    def size(self) -> int | None:
        """Return how many bytes the pass covers; None for a stream."""
        return self._location.size if self._window is None else self._window[1] - self.begin

    def read(self, size: int) -> bytes:
        """Return up to `size` bytes; raise SourceError where the system cannot deliver them."""
        buffer = bytearray(size)
        return bytes(memoryview(buffer)[: self.readinto(memoryview(buffer))])

    def readinto(self, buffer: memoryview) -> int:
        """Fill the buffer as far as a read goes; raise SourceError as `read` does."""
        if self._window is not None:
            buffer = buffer[: self._window[1] - self.count]
        with reading(self._location.name):
            size = self._take(buffer)
        if self._window is not None and len(buffer) and not size:
            raise SourceError(
                f"{self._location.name}: it is cut short: it ends after {self.count} of "
                f"{self._location.size} bytes"
            )
        self.count += size
        if self._hash is not None:
            self._hash.update(buffer[:size])
            if len(buffer) and (not size or self._location.once):
                self._location.digest = self._hash.hexdigest()
        return size

    def _take(self, buffer: memoryview) -> int:
        if not self._head:
            return self._file.readinto(buffer)
        size = min(len(self._head), len(buffer))
        buffer[:size] = self._head[:size]
        self._head = self._head[size:]
        return size

    def lines(self, size: int, again: int) -> bytes | None:
        """Return at most `size` bytes that end with a line feed; the first `again` of them were read before.

        None if only `readinto` can tell: pipes, the end of the file, lines longer than TAIL_BYTES.
        Reading exactly so much saves a copy of the whole: 2.2 GB/s against 1.7.
        """
        start, file = self.count - again, self._file
        end_at = self.begin + (self.size or 0)
        if not isinstance(file, io.FileIO) or start + size >= end_at:
            return None
        with reading(self._location.name):
            file.seek(start + max(size - TAIL_BYTES, 0))
            end = file.read(min(size, TAIL_BYTES)).rfind(b"\n") + 1
            file.seek(start)
            data = file.read(max(size - TAIL_BYTES, 0) + end) if end else b""
            file.seek(max(start + len(data), self.count))
        if len(data) <= again or not data.endswith(b"\n"):
            file.seek(self.count)
            return None
        self.count += len(data) - again
        if self._hash is not None:
            self._hash.update(memoryview(data)[again:])
        return data

    def drain(self) -> None:
        """Read to the end, so that the hash covers the whole source."""
        while self.read(PEEK_BYTES):
            pass

    def close(self) -> None:
        """Close the file."""
        self.closed = True
        self._file.close()

    def __exit__(self, *_: object) -> None:
        self.close()


class Location:
    """The location of bytes, how to open them, and their hash once it is known.

    A location that can be read `once` (stdin) keeps what was peeked for the pass.
    """

    def __init__(
        self,
        name: str,
        opener: Callable[[], Readable],
        size: int | None = None,
        *,
        once: bool = False,
        seeks: bool = True,
        path: Path | None = None,
        mark: str = "",
    ) -> None:
        self.name, self.size, self.once, self.path = name, size, once, path
        self.mark = mark
        """The version of a file at a URL: its etag, or a substitute."""
        self.seeks = seeks
        """Whether the opened file has random access."""
        self.digest: str | None = None
        self.spool: IO[bytes] | None = None
        """Its text as a temporary file, once a reader had to seek."""
        self._opener = opener
        self._kept: tuple[bytes, Readable] | None = None
        self._used = False

    def __getstate__(self) -> dict[str, Any]:
        """Pickle the location and how it is opened, not what has been read."""
        if self.once:
            raise TypeError(f"{self.name} can be read only once, by the process that opened it")
        return {**vars(self), "spool": None, "_kept": None}

    def peek(self, size: int = PEEK_BYTES) -> bytes:
        """Return the first bytes; raise SourceError where the source cannot be opened or read."""
        file = self.open()
        with reading(self.name):
            head = read_fully(file, size)
        if self.once:
            self._kept = (head, file)
        else:
            file.close()
        return head

    def bytes(self, *, hashed: bool = False) -> RawBytes:
        """Start a pass over the bytes."""
        if not self.once:
            return RawBytes(self, b"", self.open(), hashed=hashed and self.digest is None)
        if self._used:
            raise SourceError(f"{self.name} can be read only once; give a file to read it again")
        self._used = True
        head, file = self._kept or (b"", self.open())
        self._kept = None
        return RawBytes(self, head, file, hashed=hashed)

    def range(self, start: int, end: int) -> RawBytes:
        """Start a pass over a range of bytes, of a seekable file that does not change."""
        return self._part(lambda _: (start, end))

    def lines(self, start: int, end: int) -> RawBytes:
        """Start a pass over the lines of a range of bytes, of a seekable file that does not change.

        They begin after the first line feed at or after `start`, and end with the line that holds the
        byte `end`. Only the bytes of its own lines are read more than once.
        """

        def window(file: Seekable) -> tuple[int, int]:
            begin = self._after_line_feed(file, start, end) if start else 0
            if begin is None:
                return end, end
            size = self.size or 0
            return begin, self._after_line_feed(file, end, size) or size

        return self._part(window)

    def _part(self, window: Callable[[Seekable], tuple[int, int]]) -> RawBytes:
        file = cast("Seekable", self.open())
        try:
            with reading(self.name):
                self._check()
                found = window(file)
                file.seek(found[0])
        except SourceError:
            file.close()
            raise
        return RawBytes(self, b"", file, hashed=False, window=found)

    def _check(self) -> None:
        if self.path is not None and self.path.stat().st_size != self.size:
            raise SourceError(f"{self.name}: it changed since it was listed; run again")

    def _after_line_feed(self, file: Seekable, start: int, end: int) -> int | None:
        """Return what follows the first line feed from `start` on; None where there is none before `end`."""
        file.seek(start)
        raw = RawBytes(self, b"", file, hashed=False, window=(start, end))
        while data := raw.read(TAIL_BYTES):
            place = data.find(b"\n") + 1
            if place:
                return raw.count - len(data) + place
        return None

    def sha256(self) -> str:
        """Return the hash of the raw bytes; they are read for it unless a whole pass has been made."""
        if self.digest is None:
            with self.bytes(hashed=True) as raw:
                raw.drain()
        assert self.digest is not None
        return self.digest

    def open(self) -> Readable:
        """Open the source, uncounted; raise SourceError if that fails."""
        try:
            return self._opener()
        except OSError as error:
            reason = error.strerror or str(error)
            raise SourceError(f"{self.name} cannot be opened: {reason}") from error


def read_fully(file: Readable, size: int) -> bytes:
    """Read `size` bytes, fewer only at the end: pipes and decompressors return less at a time."""
    data = file.read(size) if size else b""
    if not data or len(data) == size:
        return data
    parts = [data]
    missing = size - len(data)
    while missing and (data := file.read(missing)):
        parts.append(data)
        missing -= len(data)
    return b"".join(parts)


def fill(file: Readable, buffer: memoryview) -> int:
    """Fill a buffer, less only at the end of the file, and return the number of bytes."""
    done = 0
    while done < len(buffer) and (size := file.readinto(buffer[done:])):
        done += size
    return done


def digest_of_range(location: Location, start: int, end: int) -> bytes:
    """Read a range of a seekable file, and return its digest.

    Raises SourceError where it cannot be read, or ends before.
    """
    digest = hashlib.sha256()
    with location.range(start, end) as raw:
        while data := raw.read(READ_BYTES):
            digest.update(data)
    return digest.digest()
