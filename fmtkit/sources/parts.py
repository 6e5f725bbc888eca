"""Parts of a source that can be read independently: ranges of bytes, row groups or record batches.

Where a part ends depends on the source alone, so that any number of workers reads the same parts.
"""

from collections.abc import Iterator, Sequence
from dataclasses import field
from itertools import pairwise
from typing import Any, Protocol, runtime_checkable

from fmtkit.core.data_classes import dataclass
from fmtkit.sources.blocks import Block

PART_BYTES = 96 << 20
"""Approximate bytes of a part: 16 blocks."""


@dataclass(frozen=True, slots=True)
class Part:
    """A part of a source; one without an end is the whole source.

    Of JSON lines `start` and `end` are bytes: the part begins after the first line feed at or after
    its start (at 0, with the file), and ends with the line that contains its end. Of Parquet they are
    row groups, of Arrow files record batches.
    """

    number: int = 0
    start: int = 0
    end: int | None = None
    bytes: int | None = None
    """Approximate bytes of the file in it; None if unknown before reading."""
    rows: int | None = field(default=None, compare=False)
    """Rows in it, where the file says how many."""


@runtime_checkable
class InParts(Protocol):
    """A reader that knows the parts of its source."""

    def parts(self, each: int | None = None) -> tuple[Part, ...]:
        """Return the parts, of about `each` bytes; one without an end where the source cannot be cut."""
        ...

    def part_blocks(self, part: Part, first_line: int) -> Iterator[Block]:
        """Read a part with an end; lines are counted from `first_line` on."""
        ...


def parts_of(source: Any, each: int | None = None) -> tuple[Part, ...]:
    """Return the parts of a source, all of it in order, of about `each` bytes where it can be cut so."""
    reader = getattr(source, "reader", None)
    if isinstance(reader, InParts) and not source.once:
        return reader.parts(each)
    return (Part(bytes=source.size),)


def blocks_of_part(source: Any, part: Part, first_line: int = 1) -> Iterator[Block]:
    """Read a part of a source."""
    blocks: Iterator[Block]
    blocks = source.blocks() if part.end is None else source.part_blocks(part, first_line)
    return blocks


def is_small(size: int | None, each: int | None = None) -> bool:
    """Return whether a file is read as one part; true if its size is unknown."""
    return size is None or size <= (each or PART_BYTES)


def byte_parts(size: int, each: int | None = None) -> tuple[Part, ...]:
    """Return the parts of a file of lines."""
    if is_small(size, each):
        return (Part(bytes=size),)
    each = each or PART_BYTES
    return tuple(
        Part(number, start, end := min(start + each, size), end - start)
        for number, start in enumerate(range(0, size, each))
    )


def grouped(
    sizes: Sequence[int], each: int | None = None, rows: Sequence[int] | None = None
) -> tuple[Part, ...]:
    """Group consecutive pieces into parts by the bytes of each piece; `rows` are those of each, if known."""
    ends, held = list[int](), 0
    for number, size in enumerate(sizes):
        if number > (ends[-1] if ends else 0) and held + size > (each or PART_BYTES):
            ends.append(number)
            held = 0
        held += size
    return tuple(
        Part(
            number,
            start,
            end,
            sum(sizes[start:end]),
            None if rows is None else sum(rows[start:end]),
        )
        for number, (start, end) in enumerate(pairwise((0, *ends, len(sizes))))
    )
