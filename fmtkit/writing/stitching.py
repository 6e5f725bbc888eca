"""Lay encoded rows one after the other so that they are one file of their format.

A stitcher says which bytes come next; it opens nothing and holds no more than the footer to be.
"""

import struct
from collections.abc import Mapping, Sequence
from typing import Protocol, TypeAlias

import pyarrow as pa
import pyarrow.ipc

from fmtkit.writing.encoding import END_OF_STREAM, Encoded
from fmtkit.writing.parquet_footer import MAGIC, JoinedFooter

Bytes: TypeAlias = bytes | pa.Buffer


class Stitcher(Protocol):
    """What every format does: take rows in order, then end the file."""

    def add(self, encoded: Encoded, position: int) -> Sequence[Bytes]:
        """Return what to append to a file of `position` bytes; ValueError if the schema changed."""

    def end(self, metadata: Mapping[str, str]) -> bytes:
        """Return the last bytes of the file."""


class ParquetStitcher:
    """Row groups as they are, and one footer for all."""

    def __init__(self) -> None:
        self._footer = JoinedFooter()

    def add(self, encoded: Encoded, position: int) -> Sequence[Bytes]:
        """Return the row groups, the magic before the first."""
        magic = () if position else (MAGIC,)
        self._footer.add(encoded.head, position or len(MAGIC))
        return (*magic, *encoded.payload) if encoded.rows else magic

    def end(self, metadata: Mapping[str, str]) -> bytes:
        """Return the footer."""
        return self._footer.tail(metadata)


class JsonLinesStitcher:
    """Lines after lines; metadata has no place in them."""

    def add(self, encoded: Encoded, position: int) -> Sequence[Bytes]:  # noqa: ARG002
        """Return the lines."""
        return encoded.payload

    def end(self, metadata: Mapping[str, str]) -> bytes:  # noqa: ARG002
        """Return nothing: the last line has its newline."""
        return b""


class ArrowStitcher:
    """IPC messages as they are, and a footer that lists them.

    https://arrow.apache.org/docs/format/Columnar.html#ipc-file-format
    """

    _MAGIC = b"ARROW1"
    _START = b"ARROW1\0\0"

    def __init__(self) -> None:
        self._head = b""
        self._blocks: list[tuple[int, int, int]] = []

    def add(self, encoded: Encoded, position: int) -> Sequence[Bytes]:
        """Return the messages, magic and schema before the first."""
        if self._head and self._head != encoded.head:
            raise ValueError("the rows have another schema than those before them")
        start = () if position else (self._START, encoded.head)
        self._head = encoded.head
        place = position or len(self._START) + len(encoded.head)
        for message in encoded.payload:
            # A message: 0xFFFFFFFF, the length of its padded metadata, that, and the buffers.
            metadata_size = 8 + int.from_bytes(message.slice(4, 4), "little")
            self._blocks.append((place, metadata_size, message.size - metadata_size))
            place += message.size
        return (*start, *encoded.payload)

    def end(self, metadata: Mapping[str, str]) -> bytes:
        """Return the mark of the stream's end and the footer, whose schema bears the metadata."""
        schema = pa.ipc.read_schema(pa.py_buffer(self._head))
        schema = schema.with_metadata(dict(metadata)) if metadata else schema
        footer = _with_blocks(_empty_footer(schema), self._blocks)
        return END_OF_STREAM + footer + len(footer).to_bytes(4, "little") + self._MAGIC


def _empty_footer(schema: pa.Schema) -> bytes:
    """Return the footer of a file without rows, a flatbuffer."""
    out = pa.BufferOutputStream()
    pa.ipc.new_file(out, schema).close()
    file: bytes = out.getvalue().to_pybytes()
    return file[-10 - int.from_bytes(file[-10:-6], "little") : -10]


def _with_blocks(footer: bytes, blocks: list[tuple[int, int, int]]) -> bytes:
    """Point the footer's list of record batches at a list appended to it.

    A flatbuffer's root table begins with the distance back to its vtable; entry 3 of that (behind
    two sizes) says where in the table the offset of `recordBatches` is.
    https://github.com/apache/arrow/blob/main/format/File.fbs
    """
    table = int.from_bytes(footer[:4], "little")
    vtable = table - int.from_bytes(footer[table : table + 4], "little", signed=True)
    entry = vtable + 4 + 2 * 3
    slot = table + int.from_bytes(footer[entry : entry + 2], "little")
    # The structs that follow the count are aligned to 8 bytes.
    start = len(footer) + -(len(footer) + 4) % 8
    out = bytearray(footer.ljust(start, b"\0"))
    out[slot : slot + 4] = (start - slot).to_bytes(4, "little")
    out += len(blocks).to_bytes(4, "little")
    for block in blocks:
        out += struct.pack("<qi4xq", *block)
    return bytes(out)
