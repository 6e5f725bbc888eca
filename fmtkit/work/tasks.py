"""Tasks: the units of work into which the sources of a run are divided.

A task is one or more consecutive parts of sources: a range of a large file, or many small files. The
division depends only on the sources, and each task writes its own files, so that the output files are the
same with any number of workers.
"""

from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from typing import Any, Generic, TypeVar

from fmtkit.core.data_classes import dataclass
from fmtkit.sources import parts
from fmtkit.sources.blocks import Block
from fmtkit.sources.made_source import MadeSource
from fmtkit.sources.parts import Part, blocks_of_part, parts_of
from fmtkit.sources.readers import FileReader
from fmtkit.sources.source import Source
from fmtkit.work.engines import Engine, Threads

T = TypeVar("T")

IN_PROCESS = "memory://"
"""The scheme of files that only this process can read."""
PART_SHIFT = 20
"""The number of a block is the number of its part, shifted left by this, plus its index in the part."""
MAX_PARTS = 4096
"""The most parts in a task: small files are grouped up to this many."""


@dataclass(frozen=True)
class Task:
    """Parts of sources, as (index of the source, part), that are read one after the other."""

    number: int
    parts: tuple[tuple[int, Part], ...]
    rows: int | None = None
    """Rows to read, if --limit is reached within the task."""

    @property
    def next_block(self) -> tuple[int, int]:
        """Return the index of the source and the number of the block right after the task."""
        index, part = self.parts[-1]
        return index, (part.number + 1) << PART_SHIFT

    def has_begun(self, next_block: tuple[int, int]) -> bool:
        """Return whether the next block to read is in this task, but not its first one."""
        index, part = self.parts[0]
        return (index, part.number << PART_SHIFT) < next_block < self.next_block

    def named(self, sources: Sequence[Any]) -> str:
        """Describe what the task reads, for error messages."""
        index, part = self.parts[0]
        more = f" and {len(self.parts) - 1} more" if self.parts[1:] else ""
        if part.end is None:
            return f"{sources[index].name}{more}"
        what = "bytes" if sources[index].kind == "json" else "row groups"
        return f"{sources[index].name}, {what} {part.start} to {part.end}{more}"


def tasks_of(sources: Sequence[Any]) -> list[Task]:
    """Divide sources into tasks; a file that cannot be split is in one task."""
    tasks: list[Task] = []
    held: list[tuple[int, Part]] = []
    size = 0
    for index, source in enumerate(sources):
        for part in parts_of(source):
            part_size = parts.PART_BYTES if part.bytes is None else part.bytes
            if held and (size + part_size > parts.PART_BYTES or len(held) == MAX_PARTS):
                tasks.append(Task(len(tasks), tuple(held)))
                held, size = [], 0
            held.append((index, part))
            size += part_size
    return [*tasks, Task(len(tasks), tuple(held))] if held else tasks


def blocks_of(sources: Sequence[Any], tasks: Iterable[Task]) -> Iterator[tuple[int, int, Block]]:
    """Yield the blocks of tasks as (index of the source, number of the block in it, block)."""
    for task in tasks:
        for index, part in task.parts:
            first = part.number << PART_SHIFT
            for number, block in enumerate(blocks_of_part(sources[index], part), first):
                yield index, number, block


def can_travel(source: Any) -> bool:
    """Return whether other processes can read a source, so that its tasks can be sent to them."""
    if isinstance(source, MadeSource):
        # Each process that reads it makes its rows again.
        source = source.source
    return (
        isinstance(source, Source)
        and not source.once
        and isinstance(source.reader, FileReader)
        and not source.name.startswith(IN_PROCESS)
    )


@dataclass(frozen=True)
class BlockScan(Generic[T]):
    """Applies a function to every block of a task and merges the results; it can be pickled."""

    sources: tuple[Any, ...]
    of_block: Callable[[Block], T]
    merged: Callable[[Iterable[T]], T]

    def __call__(self, task: Task) -> T:
        """Return the merged result of the task."""
        blocks = (block for _, _, block in blocks_of(self.sources, [task]))
        return self.merged(map(self.of_block, blocks))


def scan_blocks(
    sources: Sequence[Any],
    engine: Engine | None,
    of_block: Callable[[Block], T],
    merged: Callable[[Iterable[T]], T],
) -> T:
    """Apply a function to every block of sources before they are converted; merge the results in order.

    Runs by tasks on the given engine if its workers can read all sources, else on threads.
    """
    if engine is not None and all(map(can_travel, sources)):
        work = BlockScan(tuple(sources), of_block, merged)
        return _closed(engine.map(work, iter(tasks_of(sources))), merged)
    return _closed(Threads().map(of_block, _all_blocks(sources)), merged)


def _closed(found: Iterator[T], merged: Callable[[Iterable[T]], T]) -> T:
    """Merge results as they arrive, and close their generator: `merged` may stop before the last one."""
    try:
        return merged(found)
    finally:
        if isinstance(found, Generator):
            found.close()


def _all_blocks(sources: Sequence[Any]) -> Iterator[Block]:
    for source in sources:
        source.keep()
        yield from source.blocks()
