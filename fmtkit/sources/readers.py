"""Readers of each layout: a reader yields a source's blocks, and has its schema if there is one."""

import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from itertools import count
from typing import IO, Protocol

import pyarrow as pa
import pyarrow.parquet as pq

from fmtkit.core.errors import SourceError
from fmtkit.sources.arrow_trial import Trial
from fmtkit.sources.blocks import ArrowBlock, Block, JsonBlock, RowsBlock
from fmtkit.sources.columnar import (
    ARROW_ERRORS,
    READ_BUFFER_BYTES,
    checked,
    cut_tables,
    decoded_schema,
    ipc_batches,
    open_ipc,
    parquet_batches,
    reason,
)
from fmtkit.sources.compression import compression_of, decompressed
from fmtkit.sources.delimited import Table
from fmtkit.sources.json_array import Cutting, blocks_of_elements
from fmtkit.sources.jsonl import blocks_of_lines
from fmtkit.sources.kinds import Layout
from fmtkit.sources.parts import Part, byte_parts, grouped, is_small
from fmtkit.sources.raw import PEEK_BYTES, Location, RawBytes
from fmtkit.sources.temporary import room_for


class Reader(Protocol):
    """Reader of a source."""

    def blocks(self, columns: Sequence[str] | None) -> Iterator[Block]:
        """Read the source from its start."""
        ...

    def schema(self) -> pa.Schema | None:
        """Return the schema where it is known without reading rows."""
        ...

    def sha256(self) -> str:
        """Return the hash of the source's bytes."""
        ...


@dataclass(frozen=True)
class JsonReader:
    """JSON lines, a JSON array, or objects spread over lines."""

    location: Location
    head: bytes
    """The first raw bytes, which show the compression."""
    layout: Layout
    max_line_bytes: int
    hashed: bool

    def blocks(self, columns: Sequence[str] | None) -> Iterator[JsonBlock]:
        """Cut the text; `columns` is only used by the parser."""
        del columns
        with self.location.bytes(hashed=self.hashed) as raw:
            text = decompressed(raw, self.location.name, self.head)
            if self.layout == "lines":
                for block in blocks_of_lines(text, max_line_bytes=self.max_line_bytes):
                    yield block if text is raw else replace(block, bytes_read=raw.count)
            else:
                cutting = Cutting(self.layout == "array", max_line_bytes=self.max_line_bytes)
                yield from blocks_of_elements(text, raw, cutting)
            raw.drain()

    def parts(self) -> tuple[Part, ...]:
        """Cut files of lines in place."""
        size = self.location.size
        if self.layout != "lines" or size is None or not can_seek(self.location, self.head):
            return (Part(bytes=size),)
        return byte_parts(size)

    def part_blocks(self, part: Part, first_line: int) -> Iterator[JsonBlock]:
        """Cut the lines of a range of bytes."""
        assert part.end is not None
        with self.location.lines(part.start, part.end) as raw:
            blocks = blocks_of_lines(
                raw,
                max_line_bytes=self.max_line_bytes,
                first_line=first_line,
                is_begin=not part.start,
            )
            for block in blocks:
                yield replace(block, bytes_read=raw.begin + block.bytes_read)

    def schema(self) -> None:
        """Return None: JSON has no schema."""

    def sha256(self) -> str:
        """Return the hash of the file as it is stored."""
        return self.location.sha256()


@dataclass(frozen=True)
class CsvReader:
    """Rows of text, separated by commas or tabs."""

    location: Location
    head: bytes
    delimiter: str
    max_line_bytes: int
    hashed: bool

    def blocks(self, columns: Sequence[str] | None) -> Iterator[RowsBlock]:
        """Read complete rows: their cells are stored together."""
        del columns
        with self.location.bytes(hashed=self.hashed) as raw:
            yield from self._table(raw).blocks(raw)
            raw.drain()

    def schema(self) -> pa.Schema | None:
        """Read the header, unless the source can be read only once."""
        if self.location.once:
            return None
        with self.location.bytes() as raw:
            return pa.schema([(name, pa.string()) for name in self._table(raw).header])

    def sha256(self) -> str:
        """Return the hash of the file as it is stored."""
        return self.location.sha256()

    def _table(self, raw: RawBytes) -> Table:
        text = decompressed(raw, self.location.name, self.head)
        return Table(text, self.location.name, self.delimiter, self.max_line_bytes)


@dataclass(frozen=True)
class ParquetReader:
    """A Parquet file, read row group by row group."""

    location: Location
    head: bytes

    def blocks(self, columns: Sequence[str] | None) -> Iterator[ArrowBlock]:
        """Decode the columns in slices bounded by bytes."""
        with native_file(self.location, self.head) as file, arrow_errors(self.location.name):
            parquet = open_parquet(file)
            total, rows = parquet.metadata.num_rows, 0
            for table in cut_tables(parquet_batches(parquet, columns)):
                rows += table.num_rows
                yield ArrowBlock(table, (self.location.size or 0) * rows // total)

    def parts(self) -> tuple[Part, ...]:
        """Group adjacent row groups."""
        size = self.location.size
        if is_small(size) or not can_seek(self.location, self.head):
            return (Part(bytes=size),)
        with native_file(self.location, self.head) as file, arrow_errors(self.location.name):
            metadata = open_parquet(file).metadata
            groups = [metadata.row_group(i) for i in range(metadata.num_row_groups)]
            sizes = [
                sum(group.column(i).total_compressed_size for i in range(group.num_columns))
                for group in groups
            ]
        return grouped(sizes)

    def part_blocks(self, part: Part, first_line: int) -> Iterator[ArrowBlock]:
        """Decode some row groups."""
        del first_line
        with native_file(self.location, self.head) as file, arrow_errors(self.location.name):
            parquet = open_parquet(file)
            metadata = parquet.metadata
            total = metadata.num_rows
            rows = sum(metadata.row_group(i).num_rows for i in range(part.start))
            groups = range(part.start, part.end or 0)
            for table in cut_tables(parquet_batches(parquet, None, groups)):
                rows += table.num_rows
                yield ArrowBlock(table, (self.location.size or 0) * rows // total)

    def schema(self) -> pa.Schema:
        """Read the footer."""
        with native_file(self.location, self.head) as file, arrow_errors(self.location.name):
            return decoded_schema(open_parquet(file).schema_arrow)

    def sha256(self) -> str:
        """Return the hash of the file as it is stored."""
        return self.location.sha256()


@dataclass
class IpcReader:
    """An Arrow file or stream."""

    location: Location
    head: bytes
    _trial: Trial | None = field(default=None, init=False, repr=False)

    def blocks(self, columns: Sequence[str] | None) -> Iterator[ArrowBlock]:
        """Read record batches, joined and sliced to blocks."""
        with self._opened() as (file, trial):
            read = 0
            for table in cut_tables(self._batches(file, trial, columns)):
                read += table.nbytes
                yield ArrowBlock(table, min(read, self.location.size or read))

    def parts(self) -> tuple[Part, ...]:
        """Group adjacent record batches of a local file."""
        size, path = self.location.size, self.location.path
        if path is None or size is None or is_small(size) or compression_of(self.head):
            return (Part(bytes=size),)
        with self._opened() as (file, _):
            reader = open_ipc(file)
            if isinstance(reader, pa.ipc.RecordBatchStreamReader):
                return (Part(bytes=size),)
            count = reader.num_record_batches
        # The size of each is unknown before reading.
        return grouped([size // count] * count) if count else (Part(bytes=size),)

    def part_blocks(self, part: Part, first_line: int) -> Iterator[ArrowBlock]:
        """Decode some record batches."""
        del first_line
        path = local_path(self.location, self.head)
        trial = Trial(path, self.location.name, sound=part.start)
        trial.open()
        with pa.OSFile(path) as file, arrow_errors(self.location.name):
            reader = open_ipc(file)
            size, count = self.location.size or 0, reader.num_record_batches
            done = part.start

            def batches() -> Iterator[pa.RecordBatch]:
                nonlocal done
                for index in range(part.start, part.end or 0):
                    trial.reach(index)
                    yield checked(reader.get_batch(index))
                    done = index + 1

            for table in cut_tables(batches()):
                yield ArrowBlock(table, size * done // count)

    def schema(self) -> pa.Schema:
        """Read the schema message."""
        with self._opened() as (file, _):
            return decoded_schema(open_ipc(file).schema)

    def sha256(self) -> str:
        """Return the hash of the file as it is stored."""
        return self.location.sha256()

    @contextmanager
    def _opened(self) -> Iterator[tuple[pa.NativeFile, Trial]]:
        """Open the file from a path, after another process has validated it."""
        path = local_path(self.location, self.head)
        if self._trial is None:
            self._trial = Trial(path, self.location.name)
        self._trial.open()
        with pa.OSFile(path) as file, arrow_errors(self.location.name):
            yield file, self._trial

    @staticmethod
    def _batches(
        file: pa.NativeFile, trial: Trial, columns: Sequence[str] | None
    ) -> Iterator[pa.RecordBatch]:
        batches = ipc_batches(open_ipc(file), columns)
        for index in count():
            trial.reach(index)
            batch = next(batches, None)
            if batch is None:
                return
            yield batch


def can_seek(location: Location, head: bytes) -> bool:
    """Return whether a location can be read from any offset."""
    return location.seeks and not location.once and compression_of(head) is None


def open_parquet(file: pa.NativeFile) -> pq.ParquetFile:
    """Open a Parquet file so that a huge row group is not read at once."""
    return pq.ParquetFile(file, buffer_size=READ_BUFFER_BYTES, pre_buffer=False)


@contextmanager
def arrow_errors(name: str) -> Iterator[None]:
    """Return the file that pyarrow complains about."""
    try:
        yield
    except ARROW_ERRORS as error:
        if isinstance(error, SourceError):
            raise
        raise SourceError(f"{name} cannot be read: {reason(error)}") from error


@contextmanager
def native_file(location: Location, head: bytes) -> Iterator[pa.NativeFile]:
    """Open a source for random access; a non-seekable one is written to a temporary file first."""
    plain = compression_of(head) is None and not location.once
    if plain and location.seeks and location.path is None:
        with pa.PythonFile(location.open(), "r") as file:
            yield file
        return
    with pa.OSFile(local_path(location, head)) as file:
        yield file


def local_path(location: Location, head: bytes) -> str:
    """Return the path of a source's text: its own, or that of a temporary file with it."""
    plain = compression_of(head) is None and not location.once
    if plain and location.path is not None:
        return str(location.path)
    if location.spool is None:
        location.spool = _spooled(location, head)
    return location.spool.name


def _spooled(location: Location, head: bytes) -> IO[bytes]:
    spool = tempfile.NamedTemporaryFile(prefix="fmtkit-")  # noqa: SIM115 - it lives as the location
    with location.bytes(hashed=True) as raw, room_for(f"the text of {location.name}"):
        text = decompressed(raw, location.name, head)
        while data := text.read(PEEK_BYTES):
            spool.write(data)
        raw.drain()
        spool.flush()
    return spool
