"""The formats of written files: those of fmtkit, and those that installed packages add.

A format is one declaration: its name, which is the suffix of its files, how a table becomes bytes (on
workers, in any order), and how those bytes become one file (on one thread, in input order). A package
adds one by an entry point in the group `fmtkit.outputs`.
"""

import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Protocol, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.ipc
import pyarrow.parquet as pq

from fmtkit.core import buffers, plugins
from fmtkit.core.data_classes import dataclass
from fmtkit.core.errors import OptionError, near_match
from fmtkit.core.image_columns import FEATURES, IMAGES, image_texts
from fmtkit.core.tables import has_images
from fmtkit.writing import json_lines
from fmtkit.writing.parquet_footer import MAGIC, JoinedFooter, split_file, with_more

ROW_GROUP_BYTES = 64 * 2**20
"""Tables larger than this become several row groups of about equal rows."""

END_OF_STREAM = b"\xff\xff\xff\xff\0\0\0\0"
"""End of the messages of an Arrow IPC stream."""

# Measured on 4 KB rows: zstd 1 keeps 35 % of the bytes at 168 MB/s, snappy 50 % at 275 MB/s.
_LEVELS = {"zstd": 1}
_IMAGE_BYTES = f"{IMAGES}.list.element.bytes"


@dataclass(frozen=True, slots=True)
class Encoded:
    """Some rows as bytes of a format, to be appended to a file.

    `payload` holds Parquet's row groups, JSON lines, or one IPC message per batch. `head` is what a
    file needs beside them: Parquet's footer, the IPC schema message, or nothing.
    """

    format: str
    rows: int
    payload: tuple[pa.Buffer, ...]
    head: bytes = b""

    @property
    def nbytes(self) -> int:
        """Return the size of the payload."""
        return sum(buffer.size for buffer in self.payload)


def encode_json_lines(table: pa.Table, compression: str) -> Encoded:
    """Encode rows as JSON lines, which are never compressed."""
    del compression
    if has_images(table.schema):
        place = table.schema.get_field_index(IMAGES)
        texts = image_texts(buffers.whole(table.column(IMAGES)))
        table = table.set_column(place, IMAGES, texts)
    return Encoded("jsonl", table.num_rows, tuple(map(json_lines.encode, pieces(table))))


def encode_parquet(table: pa.Table, compression: str) -> Encoded:
    """Encode rows as the row groups of a Parquet file, and its footer."""
    out = pa.BufferOutputStream()
    compact = [path for path, leaf in _leaves(table.schema) if _is_compact(path, leaf)]
    pq.write_table(
        table,
        out,
        row_group_size=_rows_per_piece(table),
        compression=_codecs(table.schema, compression),
        compression_level=_LEVELS.get(compression),
        # Texts hardly repeat: a dictionary costs 20 % of the time and saves nothing; their smallest
        # and largest value help no reader. Token ids halve, roles vanish.
        use_dictionary=compact,
        write_statistics=compact,
    )
    file = out.getvalue()
    groups, footer = split_file(memoryview(file))
    return Encoded("parquet", table.num_rows, (file.slice(4, len(groups)),), footer)


def encode_arrow(table: pa.Table, compression: str) -> Encoded:
    """Encode rows as IPC messages, and that of their schema."""
    codec = None if compression == "none" else compression
    options = pa.ipc.IpcWriteOptions(compression=codec, use_threads=False)
    head = table.schema.serialize()
    messages = []
    for piece in pieces(table):
        # `take` copies the rows: bytes under nulls and outside a slice are zero afterwards.
        fresh = piece.take(buffers.int64s(np.arange(piece.num_rows))).combine_chunks()
        for batch in fresh.to_batches():
            out = pa.BufferOutputStream()
            with pa.ipc.new_stream(out, table.schema, options=options) as writer:
                writer.write_batch(batch)
            stream = out.getvalue()
            messages.append(stream.slice(head.size, stream.size - head.size - len(END_OF_STREAM)))
    return Encoded("arrow", table.num_rows, tuple(messages), head.to_pybytes())


def pieces(table: pa.Table) -> Iterator[pa.Table]:
    """Yield the rows in slices of about `ROW_GROUP_BYTES`."""
    step = _rows_per_piece(table)
    for start in range(0, table.num_rows, step):
        yield table.slice(start, step)


def _rows_per_piece(table: pa.Table) -> int:
    pieces = -(-table.nbytes // ROW_GROUP_BYTES) or 1
    return -(-table.num_rows // pieces) or 1


def _leaves(fields: Any, prefix: str = "") -> Iterator[tuple[str, pa.DataType]]:
    """Yield each Parquet column of a schema or struct: its dotted path and its type."""
    for field in fields:
        path, dtype = f"{prefix}{field.name}", field.type
        while pa.types.is_list(dtype) or pa.types.is_large_list(dtype):
            path, dtype = f"{path}.list.element", dtype.value_type
        if pa.types.is_struct(dtype):
            yield from _leaves(dtype, f"{path}.")
        else:
            yield path, dtype


def _codecs(schema: pa.Schema, compression: str) -> str | dict[str, str]:
    """Return the codec of each column: fast ones make the bytes of images no smaller."""
    if compression in _LEVELS or not has_images(schema):
        return compression
    return {path: "none" if path == _IMAGE_BYTES else compression for path, _ in _leaves(schema)}


def _is_compact(path: str, leaf: pa.DataType) -> bool:
    """Return whether few distinct values are to be expected."""
    return pa.types.is_primitive(leaf) or path.endswith(".role")


Bytes: TypeAlias = bytes | pa.Buffer


class Stitcher(Protocol):
    """Interface of every format: add rows in order, then end the file."""

    def add(self, encoded: Encoded, position: int) -> Sequence[Bytes]:
        """Return what to append to a file of `position` bytes; ValueError if the schema changed."""

    def end(self, metadata: Mapping[str, str]) -> bytes:
        """Return the last bytes of the file."""


class ParquetStitcher:
    """Concatenates row groups, and writes one footer for all."""

    def __init__(self) -> None:
        self._footer = JoinedFooter()

    def add(self, encoded: Encoded, position: int) -> Sequence[Bytes]:
        """Return the row groups; the magic comes before the first."""
        magic = () if position else (MAGIC,)
        self._footer.add(encoded.head, position or len(MAGIC))
        return (*magic, *encoded.payload) if encoded.rows else magic

    def end(self, metadata: Mapping[str, str]) -> bytes:
        """Return the footer."""
        return self._footer.tail(metadata)


class JsonLinesStitcher:
    """Concatenates lines; JSON lines have no metadata."""

    def add(self, encoded: Encoded, position: int) -> Sequence[Bytes]:  # noqa: ARG002
        """Return the lines."""
        return encoded.payload

    def end(self, metadata: Mapping[str, str]) -> bytes:  # noqa: ARG002
        """Return nothing: the last line has its newline."""
        return b""


class ArrowStitcher:
    """IPC messages unchanged, and a footer that lists them.

    https://arrow.apache.org/docs/format/Columnar.html#ipc-file-format
    """

    _MAGIC = b"ARROW1"
    _START = b"ARROW1\0\0"

    def __init__(self) -> None:
        self._head = b""
        self._blocks: list[tuple[int, int, int]] = []

    def add(self, encoded: Encoded, position: int) -> Sequence[Bytes]:
        """Return the messages; magic and schema come before the first."""
        if self._head and self._head != encoded.head:
            raise ValueError("the schema of the rows differs from that of the rows before them")
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
        """Return the end-of-stream mark and the footer, whose schema has the metadata."""
        schema = pa.ipc.read_schema(pa.py_buffer(self._head))
        footer = _with_blocks(_empty_footer(with_more(schema, metadata)), self._blocks)
        return END_OF_STREAM + footer + len(footer).to_bytes(4, "little") + self._MAGIC


def _empty_footer(schema: pa.Schema) -> bytes:
    """Return the footer of a file without rows, a flatbuffer."""
    out = pa.BufferOutputStream()
    pa.ipc.new_file(out, schema).close()
    file: bytes = out.getvalue().to_pybytes()
    return file[-10 - int.from_bytes(file[-10:-6], "little") : -10]


def _with_blocks(footer: bytes, blocks: list[tuple[int, int, int]]) -> bytes:
    """Point the footer's list of record batches at a list appended to it.

    A flatbuffer's root table begins with the distance back to its vtable; entry 3 of that (after
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


GROUP = "fmtkit.outputs"


@dataclass(frozen=True)
class Format:
    """How rows are written as files of one format.

    `encode(table, compression)` returns the rows of a table as bytes. It is called on several
    threads at once, is pure, and raises WriteError for a value that the format cannot hold. `stitcher`
    makes the stitcher that appends those bytes, a new one for each file.
    """

    name: str
    """Also the suffix of its files, without the point."""
    encode: Callable[[pa.Table, str], Encoded]
    stitcher: Callable[[], Stitcher]
    compressions: tuple[str, ...] = ("none",)
    """The values of `--compression` that it takes, the default first."""


_SHIPPED = {
    made.name: made
    for made in (
        Format("parquet", encode_parquet, ParquetStitcher, ("snappy", "zstd", "lz4", "none")),
        Format("jsonl", encode_json_lines, JsonLinesStitcher),
        Format("arrow", encode_arrow, ArrowStitcher, ("none", "lz4", "zstd")),
    )
}


def names() -> tuple[str, ...]:
    """Return the names of the formats: fmtkit's own, then those of installed packages."""
    return tuple(dict.fromkeys([*_SHIPPED, *plugins.installed(GROUP)]))


def find(name: str) -> Format:
    """Return a format.

    Raises OptionError for a name that no format or more than one has, and DependencyError if its package
    cannot be used.
    """
    point = plugins.entry_point_named(GROUP, "format", name, shipped=name in _SHIPPED)
    if point is not None:
        return plugins.constant(point, "format", "FORMAT", Format, "name")
    if name not in _SHIPPED:
        near = near_match(name, names())
        meant = f"did you mean {near!r}? " if near else ""
        raise OptionError(f"--format {name}: {meant}choose one of {', '.join(names())}")
    return _SHIPPED[name]


def compression_of(format: str, wanted: str | None = None) -> str:
    """Return `wanted`, or the format's own default.

    Raises:
        OptionError: if the format cannot be compressed that way.
    """
    known = find(format).compressions
    if wanted is None:
        return known[0]
    if wanted not in known:
        raise OptionError(f"--compression {wanted}: {format} takes {', '.join(known)}")
    return wanted


def encode(table: pa.Table, format: Format, compression: str) -> Encoded:
    """Encode all rows; metadata of the schema is left out, that of the fields is kept.

    Of images it says what `datasets` is to make of them.

    Raises:
        WriteError: if the format cannot hold a value (JSON has no NaN and no dates).
    """
    shown = {"huggingface": FEATURES} if has_images(table.schema) else None
    return format.encode(_whole(table.replace_schema_metadata(shown)), compression)


def _whole(table: pa.Table) -> pa.Table:
    """Return a table whose columns have one chunk each."""
    columns = [buffers.whole(column) for column in table.columns]
    return pa.Table.from_arrays(columns, schema=table.schema)
