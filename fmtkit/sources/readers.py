"""Readers of each layout: a reader yields a source's blocks, and has its schema if there is one."""

import re
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import cached_property
from itertools import islice
from typing import IO, Protocol

import pyarrow as pa
import pyarrow.parquet as pq

from fmtkit.core.data_classes import dataclass
from fmtkit.sources.arrow_trial import Trial
from fmtkit.sources.blocks import ArrowBlock, Block, JsonBlock, RowsBlock
from fmtkit.sources.columnar import (
    READ_BUFFER_BYTES,
    arrow_errors,
    cut_tables,
    ipc_batches,
    parquet_batches,
)
from fmtkit.sources.compression import compression_of, decompressed
from fmtkit.sources.delimited import Table
from fmtkit.sources.json_array import Cutting, blocks_of_elements
from fmtkit.sources.jsonl import blocks_of_lines
from fmtkit.sources.kinds import Layout
from fmtkit.sources.parts import Part, byte_parts, grouped, is_small
from fmtkit.sources.plain_types import decoded_schema
from fmtkit.sources.raw import PEEK_BYTES, Location, RawBytes, Readable
from fmtkit.sources.temporary import naming_full_disk

LINED = ("lines", "lists")
"""Layouts with one record in each line."""
_LIST = re.compile(rb"^[ \t]*(\[[^\n]*\])(?=[ \t]*\r?$)", re.MULTILINE)
"""A line that is a list."""


class Reader(Protocol):
    """Reader of a source."""

    def blocks(self, columns: Sequence[str] | None) -> Iterator[Block]:
        """Read the source from its start."""
        ...

    def schema(self) -> pa.Schema | None:
        """Return the schema if it is known without reading rows."""
        ...

    def sha256(self) -> str:
        """Return the hash of the source's bytes."""
        ...


@dataclass(frozen=True)
class FileReader:
    """Reader of a file or stream of bytes."""

    location: Location
    head: bytes
    """The first raw bytes, which show the compression."""

    def sha256(self) -> str:
        """Return the hash of the file as it is stored."""
        return self.location.sha256()

    def _text(self, raw: RawBytes) -> Readable:
        return decompressed(raw, self.location.name, self.head)

    @property
    def _is_plain(self) -> bool:
        return compression_of(self.head) is None and not self.location.once

    @property
    def _seeks(self) -> bool:
        """Whether reading may begin anywhere in the location."""
        return self._is_plain and self.location.seeks

    @property
    def _whole(self) -> tuple[Part, ...]:
        return (Part(bytes=self.location.size),)

    def _local_path(self) -> str:
        """Return the path of the source's text: its own, or that of a temporary file with it."""
        if self._is_plain and self.location.path is not None:
            return str(self.location.path)
        if self.location.spool is None:
            self.location.spool = self._spooled()
        return self.location.spool.name

    def _spooled(self) -> IO[bytes]:
        spool = tempfile.NamedTemporaryFile(prefix="fmtkit-")  # noqa: SIM115 - it lives as the location
        name = self.location.name
        with self.location.bytes(hashed=True) as raw, naming_full_disk(f"the text of {name}"):
            text = self._text(raw)
            while data := text.read(PEEK_BYTES):
                spool.write(data)
            raw.drain()
            spool.flush()
        return spool


@dataclass(frozen=True)
class JsonReader(FileReader):
    """JSON lines, a JSON array, alone or in an object, or objects spread over lines."""

    layout: Layout
    max_line_bytes: int
    hashed: bool

    def blocks(self, columns: Sequence[str] | None) -> Iterator[JsonBlock]:
        """Cut the text; `columns` is only used by the parser."""
        del columns
        with self.location.bytes(hashed=self.hashed) as raw:
            text = self._text(raw)
            if self.layout in LINED:
                for cut in blocks_of_lines(text, max_line_bytes=self.max_line_bytes):
                    block = self._with_names(cut)
                    yield block if text is raw else replace(block, bytes_read=raw.count)
            else:
                cutting = Cutting(
                    array=self.layout in ("array", "wrapped"),
                    wrapped=self.layout == "wrapped",
                    max_line_bytes=self.max_line_bytes,
                )
                yield from blocks_of_elements(text, raw, cutting)
            raw.drain()

    def parts(self, each: int | None = None) -> tuple[Part, ...]:
        """Return byte ranges for files of lines."""
        size = self.location.size
        if self.layout not in LINED or size is None or not self._seeks:
            return self._whole
        return byte_parts(size, each)

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
            for block in map(self._with_names, blocks):
                yield replace(block, bytes_read=raw.begin + block.bytes_read)

    def _with_names(self, block: JsonBlock) -> JsonBlock:
        """Make a row of each line that is a list: the list becomes the row's column of messages."""
        if self.layout != "lists":
            return block
        return replace(block, data=_LIST.sub(rb'{"messages": \1}', block.data), line_feeds=None)

    def schema(self) -> None:
        """Return None: JSON has no schema."""


@dataclass(frozen=True)
class CsvReader(FileReader):
    """Rows of text, separated by commas or tabs."""

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

    def _table(self, raw: RawBytes) -> Table:
        text = self._text(raw)
        return Table(text, self.location.name, self.delimiter, self.max_line_bytes)


@dataclass(frozen=True)
class ParquetReader(FileReader):
    """A Parquet file, read row group by row group."""

    def blocks(self, columns: Sequence[str] | None) -> Iterator[ArrowBlock]:
        """Decode the columns in slices bounded by bytes."""
        return self._decoded(columns, 0, None)

    def parts(self, each: int | None = None) -> tuple[Part, ...]:
        """Group consecutive row groups."""
        if is_small(self.location.size, each) or not self._seeks:
            return self._whole
        with self._opened() as parquet:
            metadata = parquet.metadata
            groups = [metadata.row_group(i) for i in range(metadata.num_row_groups)]
            sizes = [
                sum(group.column(i).total_compressed_size for i in range(group.num_columns))
                for group in groups
            ]
        return grouped(sizes, each, [group.num_rows for group in groups])

    def part_blocks(self, part: Part, first_line: int) -> Iterator[ArrowBlock]:
        """Decode some row groups."""
        del first_line
        return self._decoded(None, part.start, part.end)

    def schema(self) -> pa.Schema:
        """Read the footer."""
        with self._opened() as parquet:
            return decoded_schema(parquet.schema_arrow)

    def _decoded(
        self, columns: Sequence[str] | None, start: int, end: int | None
    ) -> Iterator[ArrowBlock]:
        with self._opened() as parquet:
            metadata = parquet.metadata
            rows = sum(metadata.row_group(i).num_rows for i in range(start))
            groups = range(start, metadata.num_row_groups if end is None else end)
            for table in cut_tables(parquet_batches(parquet, columns, groups)):
                rows += table.num_rows
                yield ArrowBlock(table, (self.location.size or 0) * rows // metadata.num_rows)

    @contextmanager
    def _opened(self) -> Iterator[pq.ParquetFile]:
        """Open the file in place; one that cannot seek is written to a temporary file first."""
        location = self.location
        in_place = self._seeks and location.path is None
        opened = pa.PythonFile(location.open(), "r") if in_place else pa.OSFile(self._local_path())
        with opened as file, arrow_errors(location.name):
            # With a buffer size a huge row group is not read at once.
            yield pq.ParquetFile(file, buffer_size=READ_BUFFER_BYTES, pre_buffer=False)


@dataclass(frozen=True)
class IpcReader(FileReader):
    """An Arrow file or stream."""

    def blocks(self, columns: Sequence[str] | None) -> Iterator[ArrowBlock]:
        """Read record batches, joined and sliced to blocks."""
        return self._decoded(columns, 0, None)

    def parts(self, each: int | None = None) -> tuple[Part, ...]:
        """Group consecutive record batches, of a local file."""
        size = self.location.size
        if size is None or is_small(size, each) or not self._is_plain or self.location.path is None:
            return self._whole
        with self._trial.opened() as reader:
            if isinstance(reader, pa.ipc.RecordBatchStreamReader):
                return self._whole
            count = reader.num_record_batches
        # Only reading would show how large each is.
        return grouped([size // count] * count, each) if count else self._whole

    def part_blocks(self, part: Part, first_line: int) -> Iterator[ArrowBlock]:
        """Decode some record batches."""
        del first_line
        return self._decoded(None, part.start, part.end)

    def schema(self) -> pa.Schema:
        """Read the schema message."""
        with self._trial.opened() as reader:
            return decoded_schema(reader.schema)

    def _decoded(
        self, columns: Sequence[str] | None, start: int, end: int | None
    ) -> Iterator[ArrowBlock]:
        size, name = self.location.size, self.location.name
        trial = Trial(self._local_path(), name, sound=start) if start else self._trial
        with trial.opened() as reader:
            read = (size or 0) * start // reader.num_record_batches if start else 0
            batches = trial.passed(ipc_batches(reader, columns, start), start)
            for table in cut_tables(islice(batches, None if end is None else end - start)):
                read += table.nbytes
                yield ArrowBlock(table, min(read, size or read))

    @cached_property
    def _trial(self) -> Trial:
        return Trial(self._local_path(), self.location.name)
