"""Blocks of which only the rows that a filter takes are read; the filter tests each row by itself."""

from collections.abc import Iterator
from dataclasses import replace
from functools import cached_property
from typing import Protocol

import numpy as np
import numpy.typing as npt

from fmtkit.core import buffers
from fmtkit.core.codes import Reject
from fmtkit.core.data_classes import dataclass
from fmtkit.core.pickling import PickledByFields
from fmtkit.sources.blocks import ArrowBlock, Block, JsonBlock, ReadCells, Rows, RowsBlock
from fmtkit.sources.structure import NEWLINE, RETURN

Mask = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class Taken:
    """The records of a block that a filter takes, and the records that it cannot test."""

    mask: Mask
    """Whether each record is taken; false for rejected records too."""
    rejects: tuple[Reject, ...] = ()
    """Records that are bad rows; their `row` is the number of the record."""


class RowFilter(Protocol):
    """A function of a block that depends on each of its rows alone; it can be pickled."""

    def __call__(self, block: Block) -> Taken:
        """Return which records to read."""
        ...


@dataclass(eq=False)
class FilteredBlock(PickledByFields, Block):
    """A block without the rows that a filter leaves out; they are counted as filtered.

    The filter runs when the rows are first asked for, which is on a worker.
    """

    whole: Block
    row_filter: RowFilter

    @property
    def nbytes(self) -> int:
        """Return the size of all rows: how blocks are merged does not depend on the filter."""
        return self.whole.nbytes

    @property
    def bytes_read(self) -> int:
        """Return the bytes of the source consumed so far."""
        return self.whole.bytes_read

    @property
    def next_line(self) -> int | None:
        """Return the physical line that follows the block."""
        return self.whole.next_line

    @property
    def count(self) -> int:
        """Return how many rows were read, without filtering them."""
        return self.whole.count

    @property
    def rejects(self) -> tuple[Reject, ...]:
        """Return the bad rows of the block, and the rows that the filter cannot test."""
        own = self._taken.rejects
        if not own:
            return self.whole.rejects
        places = self._places
        found = [replace(reject, row=int(places[reject.row])) for reject in own]
        return tuple(sorted([*self.whole.rejects, *found], key=lambda reject: reject.row))

    @property
    def filtered(self) -> int:
        """Count the rows that are left out."""
        taken = self._taken
        return len(taken.mask) - int(np.count_nonzero(taken.mask)) - len(taken.rejects)

    @property
    def left_out(self) -> tuple[int, ...]:
        """Return the places of the rows that are left out."""
        without = ~self._taken.mask
        without[[reject.row for reject in self._taken.rejects]] = False
        return tuple(self._places[without].tolist())

    def records(self, read: ReadCells | None = None) -> Rows:
        """Return the records that are read."""
        return self._kept.records(read)

    def places(self, records: int) -> npt.NDArray[np.int64]:
        """Return the row of each record among all records of the block."""
        return self._places[self._taken.mask][:records]

    def head(self, rows: int) -> tuple[Block, int]:
        """Return the first rows that are read, filtered or not, and how many more are wanted."""
        whole, left = self.whole.head(rows)
        return FilteredBlock(whole, self.row_filter), left

    def _cut(self, rows: int, rejects: tuple[Reject, ...]) -> Block:
        del rejects  # they are those of the whole block that is cut
        return self.head(rows)[0]

    @cached_property
    def _taken(self) -> Taken:
        return self.row_filter(self.whole)

    @cached_property
    def _places(self) -> npt.NDArray[np.int64]:
        return self.whole.places(len(self._taken.mask))

    @cached_property
    def _kept(self) -> Block:
        return _with_rows(self.whole, self._taken.mask)


def filtered(blocks: Iterator[Block], row_filter: RowFilter | None) -> Iterator[Block]:
    """Return blocks with the rows that a filter takes; all rows without a filter."""
    if row_filter is None:
        return blocks
    return (FilteredBlock(block, row_filter) for block in blocks)


def _with_rows(block: Block, mask: Mask) -> Block:
    """Return a block with some of its records; their lines are those of the source."""
    if mask.all():
        return block
    if isinstance(block, ArrowBlock):
        return replace(block, batch=block.batch.filter(buffers.booleans(mask)))
    kept = np.flatnonzero(mask)
    if isinstance(block, RowsBlock):
        rows, lines = [block.rows[i] for i in kept], [block.lines[i] for i in kept]
        return replace(block, rows=rows, lines=lines)
    assert isinstance(block, JsonBlock)
    lines_of = block.records().lines_of(kept)
    return replace(block, data=_without_lines(block, ~mask), lines=lines_of, line_feeds=None)


def _without_lines(block: JsonBlock, dropped: Mask) -> bytes:
    """Return the data of a block without the lines of some records; blank lines stay, to be counted."""
    found, data = block.records().found, block.data
    starts, ends = found.starts[dropped], found.ends[dropped]
    characters = np.frombuffer(data + bytes([NEWLINE]), np.uint8)
    # A carriage return before the line feed is outside of the record.
    stops = np.minimum(ends + (characters[ends] == RETURN) + 1, len(data))
    begins = np.concatenate(([0], stops)).tolist()
    return b"".join(
        data[begin:end] for begin, end in zip(begins, [*starts.tolist(), len(data)], strict=True)
    )
