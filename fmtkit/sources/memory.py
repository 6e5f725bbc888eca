"""Readers of objects in memory: tables, frames, datasets, and rows that are dicts."""

import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Any

import polars as pl
import pyarrow as pa

from fmtkit.core.codes import Reject
from fmtkit.core.data_classes import dataclass
from fmtkit.core.errors import SourceError
from fmtkit.core.escaping import without_addresses
from fmtkit.sources.blocks import BLOCK_BYTES, ArrowBlock, JsonBlock
from fmtkit.sources.columnar import (
    PARQUET_BATCH_ROWS,
    arrow_errors,
    cut_tables,
    present,
)
from fmtkit.sources.plain_types import decoded_schema


@dataclass(frozen=True)
class TableReader:
    """A reader of record batches; `batches` must return the same ones each time."""

    arrow_schema: pa.Schema
    batches: Callable[[], Iterable[pa.RecordBatch]]

    def __post_init__(self) -> None:
        """Raise SourceError for a schema that cannot be read."""
        with arrow_errors("the table"):
            self.schema()

    def blocks(self, columns: Sequence[str] | None) -> Iterator[ArrowBlock]:
        """Yield the batches, joined and sliced to blocks."""
        kept = None if columns is None else present(columns, self.arrow_schema)
        read = 0
        with arrow_errors("the table"):
            batches = self.batches()
            for table in cut_tables(batches if kept is None else (b.select(kept) for b in batches)):
                read += table.nbytes
                yield ArrowBlock(table, read)

    def schema(self) -> pa.Schema:
        """Return the schema, dictionaries decoded."""
        return decoded_schema(self.arrow_schema)

    def sha256(self) -> str:
        """Return the hash of the rows as an Arrow stream of blocks."""
        digest = _Digest()
        with pa.ipc.new_stream(pa.PythonFile(digest, "w"), self.schema()) as writer:
            for block in self.blocks(None):
                writer.write_table(block.batch)
        return digest.hash.hexdigest()


def reader_of_frame(frame: pl.DataFrame) -> TableReader:
    """Return a reader of a polars frame, slice by slice, since conversion to Arrow copies strings.

    Raises SourceError for a column of a type that Arrow does not have.
    """
    empty = frame.clear()
    for name, dtype in frame.schema.items():
        try:
            foreign = dtype == pl.Object
            _arrow(empty.select(name))
        except pa.ArrowException:
            foreign = True
        if foreign:
            raise SourceError(
                f"the table cannot be read: column {name!r} is of the polars type {dtype}, which "
                "Arrow does not have; cast or drop the column"
            )
    return TableReader(_arrow(empty).schema, partial(_batches_of_frame, frame))


def _batches_of_frame(frame: pl.DataFrame) -> Iterator[pa.RecordBatch]:
    for part in frame.iter_slices(PARQUET_BATCH_ROWS):
        yield from _arrow(part).to_batches()


def _arrow(frame: pl.DataFrame) -> pa.Table:
    """Convert a frame; polars cannot export a name with NUL in it."""
    numbered = frame.rename({name: str(i) for i, name in enumerate(frame.columns)})
    return numbered.to_arrow().rename_columns(frame.columns)


class _Digest:
    """A file that keeps only the hash of the bytes written to it."""

    closed = False

    def __init__(self) -> None:
        self.hash = hashlib.sha256()

    def write(self, data: bytes) -> int:
        self.hash.update(data)
        return len(data)

    def flush(self) -> None:
        """Do nothing: a hash has no buffer."""

    def close(self) -> None:
        self.closed = True


@dataclass(frozen=True)
class RowsReader:
    """Rows that are Python objects, read as if they were lines of JSON."""

    rows: Iterable[Any]
    digest: "hashlib._Hash"
    """The hash of the lines so far."""

    def blocks(self, columns: Sequence[str] | None) -> Iterator[JsonBlock]:
        """Yield the rows as JSON lines, so that the same parser reads them as files."""
        del columns
        lines: list[bytes] = []
        rejects: list[Reject] = []
        size = read = 0
        for row in self.rows:
            try:
                line = _json_line(row)
            except (TypeError, ValueError, RecursionError) as error:
                rejects.append(_not_json(len(lines) + len(rejects), row, error))
            else:
                lines.append(line)
                size += len(line)
            if size >= BLOCK_BYTES:
                read += size
                yield self._block(lines, rejects, read)
                lines, rejects, size = [], [], 0
        if lines or rejects:
            yield self._block(lines, rejects, read + size)

    def _block(self, lines: list[bytes], rejects: list[Reject], read: int) -> JsonBlock:
        data = b"".join(lines)
        self.digest.update(data)
        return JsonBlock(data, 0, None, tuple(rejects), read)

    def schema(self) -> None:
        """Return None: rows have no schema."""

    def sha256(self) -> str:
        """Return the hash of the rows read so far, as JSON lines."""
        return self.digest.hexdigest()


def _json_line(row: object) -> bytes:
    try:
        return json.dumps(row, ensure_ascii=False).encode() + b"\n"
    except UnicodeEncodeError:
        # Half a surrogate pair cannot be UTF-8; escaped, the parser reports it.
        return json.dumps(row).encode() + b"\n"


def _not_json(row: int, value: object, error: Exception) -> Reject:
    # In the quarantine, which is the same for the same rows.
    raw = without_addresses(repr(value)).encode("utf-8", "backslashreplace")
    return Reject(row, None, "type_error", None, f"not JSON: {error}", raw)
