"""Parts of a source that can be read independently: ranges of bytes, row groups or record batches.

Where a part ends depends on the source alone, so that any number of workers reads the same parts.
"""

from collections.abc import Iterator, Sequence
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


@runtime_checkable
class InParts(Protocol):
    """A reader that knows the parts of its source."""

    def parts(self) -> tuple[Part, ...]:
        """Return the parts; one without an end where the source cannot be cut."""
        ...

    def part_blocks(self, part: Part, first_line: int) -> Iterator[Block]:
        """Read a part with an end; lines are counted from `first_line` on."""
        ...


def parts_of(source: Any) -> tuple[Part, ...]:
    """Return the parts of a source, all of it in order."""
    reader = getattr(source, "reader", None)
    if isinstance(reader, InParts) and not source.once:
        return reader.parts()
    return (Part(bytes=source.size),)


def blocks_of_part(source: Any, part: Part, first_line: int = 1) -> Iterator[Block]:
    """Read a part of a source."""
    blocks: Iterator[Block]
    blocks = source.blocks() if part.end is None else source.part_blocks(part, first_line)
    return blocks


def is_small(size: int | None) -> bool:
    """Return whether a file is read as one part; true if its size is unknown."""
    return size is None or size <= PART_BYTES


def byte_parts(size: int) -> tuple[Part, ...]:
    """Return the parts of a file of lines."""
    if is_small(size):
        return (Part(bytes=size),)
    starts = range(0, size, PART_BYTES)
    return tuple(
        Part(number, start, end := min(start + PART_BYTES, size), end - start)
        for number, start in enumerate(starts)
    )


def grouped(sizes: Sequence[int]) -> tuple[Part, ...]:
    """Group consecutive pieces into parts by the bytes of each piece."""
    parts: list[Part] = []
    start, held = 0, 0
    for number, size in enumerate(sizes):
        if number > start and held + size > PART_BYTES:
            parts.append(Part(len(parts), start, number, held))
            start, held = number, 0
        held += size
    return (*parts, Part(len(parts), start, len(sizes), held))
