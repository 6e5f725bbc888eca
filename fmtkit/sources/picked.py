"""Selection of rows of sources by their position, before anything is converted."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import pairwise

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from fmtkit.core import buffers
from fmtkit.core.codes import Reject
from fmtkit.core.data_classes import dataclass
from fmtkit.core.errors import OptionError
from fmtkit.sources.blocks import ArrowBlock, Block, JsonBlock, RowsBlock
from fmtkit.sources.readers import Reader
from fmtkit.sources.source import Source

Mask = npt.NDArray[np.bool_]
Choice = Callable[[list[int]], list[Mask]]
"""Number of rows of each source -> for each source, which of its rows are chosen."""


@dataclass(frozen=True)
class Picked:
    """An argument of `open_sources`: files or folders, and which of their rows to read."""

    places: tuple[str, ...]
    choose: Choice


@dataclass(frozen=True)
class PickedReader:
    """A reader of the rows that a mask chooses; line numbers are those of the file."""

    whole: Reader
    mask: Mask

    def blocks(self, columns: Sequence[str] | None) -> Iterator[Block]:
        """Read the source from its start, and yield the blocks with chosen rows."""
        at = 0
        for block in self.whole.blocks(columns):
            count = _rows(block)
            wanted = self.mask[at : at + count]
            at += count
            if wanted.all():
                yield block
            elif wanted.any():
                yield _taken(block, wanted)

    def schema(self) -> pa.Schema | None:
        """Return the schema of the source."""
        return self.whole.schema()

    def sha256(self) -> str:
        """Return the hash of all bytes of the source."""
        return self.whole.sha256()


def pick(sources: Sequence[Source], choose: Choice) -> list[Source]:
    """Return the sources with the chosen rows; sources without any are left out.

    Reads every source once, to count its rows. Raises OptionError if no row is chosen.
    """
    for source in sources:
        source.keep()
    counts = [sum(map(_rows, source.blocks())) for source in sources]
    masks = choose(counts)
    if not any(mask.any() for mask in masks):
        names = ", ".join(dict.fromkeys(source.name for source in sources))
        raise OptionError(
            f"{names}: the slice or shard selects none of {max(counts, default=0)} rows"
        )
    return [
        replace(source, reader=PickedReader(source.reader, mask))
        for source, mask in zip(sources, masks, strict=True)
        if mask.any()
    ]


def _rows(block: Block) -> int:
    return len(block.records()) + len(block.rejects)


def _taken(block: Block, wanted: Mask) -> Block:
    """Return some rows of a block; `wanted` has a value for each record and reject, in their order."""
    if isinstance(block, ArrowBlock):
        return replace(block, batch=block.batch.filter(buffers.booleans(wanted)))
    number = np.cumsum(wanted) - 1
    rejects = tuple(
        replace(reject, row=int(number[reject.row]))
        for reject in block.rejects
        if wanted[reject.row]
    )
    count = len(wanted) - len(block.rejects)
    kept = np.flatnonzero(wanted[block.places(count)])
    if isinstance(block, RowsBlock):
        rows, lines = [block.rows[i] for i in kept], [block.lines[i] for i in kept]
        return replace(block, rows=rows, lines=lines, rejects=rejects)
    assert isinstance(block, JsonBlock)
    return _taken_lines(block, kept, rejects)


def _taken_lines(
    block: JsonBlock, kept: npt.NDArray[np.int64], rejects: tuple[Reject, ...]
) -> JsonBlock:
    records = block.records()
    # Runs of consecutive records are copied at once.
    ends = [0, *(np.flatnonzero(np.diff(kept) != 1) + 1).tolist(), len(kept)]
    parts = [
        block.data[records.found.starts[kept[a]] : records.found.ends[kept[b - 1]]].rstrip(b"\r\n")
        for a, b in pairwise(ends)
        if b > a
    ]
    return replace(
        block,
        data=b"".join(part + b"\n" for part in parts),
        lines=records.lines_of(kept),
        rejects=rejects,
        line_feeds=None,
    )
