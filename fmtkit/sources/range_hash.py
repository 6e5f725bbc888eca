"""The hash of a source: of its ranges, so that several processes may make it, each from a part of the bytes.

Up to one range it is the SHA-256 of the bytes, as sha256sum prints it; beyond, the SHA-256 of the
ranges' digests one behind the other, and how many they are: `HEX-N`.
"""

import hashlib
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, cast

from fmtkit.core.errors import SourceError

if TYPE_CHECKING:
    from fmtkit.sources.raw import Location, Seekable

RANGE_BYTES = 96 << 20
"""Part of the definition: another size makes other hashes of the same bytes."""
READ_BYTES = 1 << 20


class RangeHash:
    """The hash of bytes while they pass."""

    def __init__(self) -> None:
        self._done: list[bytes] = []
        self._begin()

    def _begin(self) -> None:
        self._hash, self._left = hashlib.sha256(), RANGE_BYTES

    def update(self, data: memoryview | bytes) -> None:
        """Take the bytes that follow."""
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
        """Return the hash of what has passed so far."""
        return folded([*self._done, self._hash.digest()])


def folded(digests: Sequence[bytes]) -> str:
    """Return the hash of a source from the digests of its ranges."""
    if len(digests) == 1:
        return digests[0].hex()
    return f"{hashlib.sha256(b''.join(digests)).hexdigest()}-{len(digests)}"


def ranges_of(size: int) -> Iterator[tuple[int, int]]:
    """Yield the ranges of so many bytes: one of nothing where there are none."""
    for start in range(0, max(size, 1), RANGE_BYTES):
        yield start, min(start + RANGE_BYTES, size)


def digest_of_range(location: "Location", start: int, end: int) -> bytes:
    """Read a range of a file that seeks, and return its digest.

    Raises SourceError where it cannot be read, or ends before.
    """
    digest, at = hashlib.sha256(), start
    file = cast("Seekable", location.open())
    try:
        location.check()
        file.seek(start)
        while at < end:
            data = file.read(min(READ_BYTES, end - at))
            if not data:
                raise location.cut_short(at)
            digest.update(data)
            at += len(data)
    except OSError as error:
        if isinstance(error, SourceError):
            raise
        raise SourceError(f"{location.name}: {error.strerror or error}") from error
    finally:
        file.close()
    return digest.digest()
