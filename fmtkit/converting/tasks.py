"""Tasks: the units that a run is cut into, by its sources alone.

A task is some parts of sources that follow each other: a range of a large file, or many small files.
Its rows end in files of its own, so that any number of workers makes the same files.
"""

from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from fmtkit.converting.engines import Engine, Threads
from fmtkit.sources import parts
from fmtkit.sources.blocks import Block
from fmtkit.sources.opening import Source
from fmtkit.sources.parts import Part, blocks_of_part, parts_of
from fmtkit.sources.readers import FileReader
from fmtkit.sources.spooling import MadeSource

T = TypeVar("T")

HERE = "memory://"
"""What only this process can read."""
PART_SHIFT = 20
"""A block's number has its part's number above this many bits."""
MOST_PARTS = 4096
"""The cost of opening a file, in bytes, when tasks are cut."""


@dataclass(frozen=True)
class Task:
    """Parts of sources that are read one after the other: index of the source, and part."""

    number: int
    parts: tuple[tuple[int, Part], ...]
    rows: int | None = None
    """How many of its rows are read, if --limit ends in it."""

    @property
    def next_block(self) -> tuple[int, int]:
        """Return the source, and the number of the block in it, that come after the task."""
        index, part = self.parts[-1]
        return index, (part.number + 1) << PART_SHIFT

    def is_begun(self, next_block: tuple[int, int]) -> bool:
        """Return whether the next block is behind the first of the task."""
        index, part = self.parts[0]
        return (index, part.number << PART_SHIFT) < next_block < self.next_block

    def named(self, sources: Sequence[Any]) -> str:
        """Return what the task reads, for errors."""
        index, part = self.parts[0]
        more = f" and {len(self.parts) - 1} more" if self.parts[1:] else ""
        if part.end is None:
            return f"{sources[index].name}{more}"
        what = "bytes" if sources[index].kind == "json" else "row groups"
        return f"{sources[index].name}, {what} {part.start} to {part.end}{more}"


def tasks_of(sources: Sequence[Any]) -> list[Task]:
    """Cut sources; a file that cannot be cut is in one task as a whole."""
    tasks: list[Task] = []
    held: list[tuple[int, Part]] = []
    size = 0
    for index, source in enumerate(sources):
        for part in parts_of(source):
            own = parts.PART_BYTES if part.bytes is None else part.bytes
            if held and (size + own > parts.PART_BYTES or len(held) == MOST_PARTS):
                tasks.append(Task(len(tasks), tuple(held)))
                held, size = [], 0
            held.append((index, part))
            size += own
    return [*tasks, Task(len(tasks), tuple(held))] if held else tasks


def blocks_of(sources: Sequence[Any], tasks: Iterable[Task]) -> Iterator[tuple[int, int, Block]]:
    """Read tasks block by block; each comes with the index of its source, and its number in it."""
    for task in tasks:
        for index, part in task.parts:
            first = part.number << PART_SHIFT
            for number, block in enumerate(blocks_of_part(sources[index], part), first):
                yield index, number, block


def can_travel(source: Any) -> bool:
    """Return whether other processes can read a source."""
    if isinstance(source, MadeSource):
        # Its rows are made again where they are read.
        source = source.source
    return (
        isinstance(source, Source)
        and not source.once
        and isinstance(source.reader, FileReader)
        and not source.name.startswith(HERE)
    )


@dataclass(frozen=True)
class OfBlocks(Generic[T]):
    """Looks at every block of a task; it can be pickled."""

    sources: tuple[Any, ...]
    of_block: Callable[[Block], T]
    merged: Callable[[Iterable[T]], T]

    def __call__(self, task: Task) -> T:
        """Return what is found in the task."""
        blocks = (block for _, _, block in blocks_of(self.sources, [task]))
        return self.merged(map(self.of_block, blocks))


def look_at_all(
    sources: Sequence[Any],
    engine: Engine | None,
    of_block: Callable[[Block], T],
    merged: Callable[[Iterable[T]], T],
) -> T:
    """Look at every block of sources before anything is converted, and merge what is found, in order.

    On threads, or by tasks on the engine given where it can reach the sources.
    """
    if engine is not None and all(map(can_travel, sources)):
        work = OfBlocks(tuple(sources), of_block, merged)
        return _closed(engine.map(work, iter(tasks_of(sources))), merged)
    return _closed(Threads().map(of_block, _all_blocks(sources)), merged)


def _closed(found: Iterator[T], merged: Callable[[Iterable[T]], T]) -> T:
    """Merge results lazily: the consumer may stop early."""
    try:
        return merged(found)
    finally:
        if isinstance(found, Generator):
            found.close()


def _all_blocks(sources: Sequence[Any]) -> Iterator[Block]:
    for source in sources:
        source.keep()
        yield from source.blocks()
