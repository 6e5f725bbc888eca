"""Compressed sources: gzip and zstd, recognised by their first bytes."""

import gzip
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Literal, cast

import pyarrow as pa

from fmtkit.core.errors import SourceError
from fmtkit.sources.raw import RawBytes, Readable

Compression = Literal["gzip", "zstd"]

MAGIC: dict[bytes, Compression] = {b"\x1f\x8b": "gzip", b"\x28\xb5\x2f\xfd": "zstd"}
GZIP_WINDOW = 31
"""zlib's largest window, in a gzip wrapper."""
SKIPPABLE_FRAME = b"\x2a\x4d\x18"
"""Bytes 1-3 of a zstd frame without content (RFC 8878, 3.1.2), which pzstd writes first."""


def compression_of(head: bytes) -> Compression | None:
    """Return how bytes are compressed, None if they are not."""
    if head[1:4] == SKIPPABLE_FRAME and head[:1] >= b"\x50" and head[:1] < b"\x60":
        return "zstd"
    return next((kind for magic, kind in MAGIC.items() if head.startswith(magic)), None)


class Decompressed:
    """The decompressed bytes of a source; several gzip members or zstd frames are one text."""

    def __init__(self, raw: RawBytes, name: str, compression: Compression) -> None:
        self._raw, self._name = raw, name
        self._file = _gzip(raw) if compression == "gzip" else _zstd(raw)

    def read(self, size: int) -> bytes:
        """Return up to `size` bytes; raise SourceError where the source is cut short or damaged."""
        with self._errors():
            return self._file.read(size)

    def readinto(self, buffer: memoryview) -> int:
        """Fill the buffer as far as a read goes; raise SourceError as `read` does."""
        with self._errors():
            return self._file.readinto(buffer)

    @contextmanager
    def _errors(self) -> Iterator[None]:
        try:
            yield
        except SourceError:
            raise
        except (OSError, EOFError, zlib.error) as error:
            raise SourceError(
                f"{self._name}: the compressed data is damaged or cut short after about "
                f"{self._raw.count} bytes ({error}); fetch or compress the file again"
            ) from error

    def close(self) -> None:
        """Close the file."""
        self._raw.close()


def _gzip(raw: RawBytes) -> Readable:
    # Python's own: unlike Arrow's it accepts the zero padding that tape and block tools leave behind.
    return cast("Readable", gzip.GzipFile(fileobj=cast("gzip._ReadableFileobj", raw)))


def _zstd(raw: RawBytes) -> Readable:
    return cast("Readable", pa.CompressedInputStream(pa.PythonFile(raw, "r"), "zstd"))


def head_of_text(head: bytes, size: int) -> bytes:
    """Return up to `size` bytes of the text that begins with `head`, compressed or not.

    Damage is not reported here but while reading.
    """
    compression = compression_of(head)
    if compression is None:
        return head[:size]
    try:
        if compression == "gzip":
            return zlib.decompressobj(GZIP_WINDOW).decompress(head, size)
        return _pieces(pa.CompressedInputStream(pa.py_buffer(head), "zstd"), size)
    except (OSError, zlib.error):
        return b""


def _pieces(file: Readable, size: int) -> bytes:
    text = b""
    while len(text) < size:
        try:
            piece = file.read(4096)
        except OSError:
            break
        if not piece:
            break
        text += piece
    return text


def decompressed(raw: RawBytes, name: str, head: bytes) -> Readable:
    """Return the text of a source that begins with `head`, which decides whether to decompress."""
    compression = compression_of(head)
    return raw if compression is None else Decompressed(raw, name, compression)
