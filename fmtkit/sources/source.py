"""A source: one file, stream or object that gives blocks of rows in order."""

from collections.abc import Iterator, Sequence
from dataclasses import field
from itertools import chain, islice
from typing import Any

import pyarrow as pa

from fmtkit.core.data_classes import dataclass
from fmtkit.sources.blocks import Block
from fmtkit.sources.filtered import FilteredBlock, RowFilter, filtered
from fmtkit.sources.kinds import Kind
from fmtkit.sources.parts import InParts, Part
from fmtkit.sources.readers import Reader
from fmtkit.sources.spooling import spooled


@dataclass(eq=False)
class Source:
    """One file, stream or object with rows.

    `name` is its name in reports: the path as given, "-" for stdin, "<memory>" for objects.
    `size` is in bytes, as `bytes_read` of the blocks; None if unknown before reading.
    """

    name: str
    kind: Kind
    size: int | None
    reader: Reader
    once: bool = False
    """Whether the rows can be read only once (stdin, a generator)."""
    hashed: bool = True
    """Whether its hash is wanted; hashing a large source costs as much as converting it."""
    given: str = ""
    """The argument from which it was opened, as the user wrote it: a folder has many sources."""
    row_filter: RowFilter | None = None
    """Which of its rows are read; None for all."""
    _begun: tuple[Block | None, Iterator[Block]] | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        self.given = self.given or self.name

    def __getstate__(self) -> dict[str, Any]:
        """Pickle what the rows are read from, not the reading position."""
        return {**vars(self), "_begun": None}

    @property
    def schema(self) -> pa.Schema | None:
        """The schema if it is known without reading rows (columnar sources, CSV), else None."""
        return self.reader.schema()

    def blocks(self, start: int = 0, columns: Sequence[str] | None = None) -> Iterator[Block]:
        """Read blocks from index `start` on; only these `columns`, if that saves work."""
        blocks = self._all_blocks(None if self.row_filter else columns)
        return filtered(islice(blocks, start, None), self.row_filter)

    def part_blocks(self, part: Part, first_line: int) -> Iterator[Block]:
        """Read a part with an end of a source that is read in parts; lines count from `first_line` on."""
        assert isinstance(self.reader, InParts)
        return filtered(self.reader.part_blocks(part, first_line), self.row_filter)

    def _all_blocks(self, columns: Sequence[str] | None) -> Iterator[Block]:
        begun, self._begun = self._begun, None
        if begun is None:
            return self.reader.blocks(columns)
        first, rest = begun
        # The list releases the block as soon as the next one is requested.
        return rest if first is None else chain([first], rest)

    def first_block(self, columns: Sequence[str] | None = None) -> Block | None:
        """Return the first block, None for an empty source; `blocks` yields it again."""
        first = self._first_block(None if self.row_filter else columns)
        if first is None or self.row_filter is None:
            return first
        return FilteredBlock(first, self.row_filter)

    def _first_block(self, columns: Sequence[str] | None) -> Block | None:
        if self._begun is not None:
            return self._begun[0]
        blocks = self.reader.blocks(columns)
        first = next(blocks, None)
        if self.once:
            # Whatever columns were requested: a source that is read once is read with all columns.
            self._begun = (first, blocks)
        return first

    def keep(self) -> None:
        """Let the rows be read more than once, from a temporary file if need be."""
        if self.once:
            self.reader = spooled(self.reader, self._all_blocks(None))
            self.once = False

    def sha256(self) -> str:
        """Return the hash of the raw bytes; for a stream, of the bytes read so far."""
        return self.reader.sha256()
