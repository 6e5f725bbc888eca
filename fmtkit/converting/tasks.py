"""Tasks: what a run is cut into, by its sources alone.

A task is some parts of sources that follow each other: a range of a large file, or many small files.
Its rows end in files of its own, so that any number of workers makes the same files.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from fmtkit.converting.preparation import AnySource, Job
from fmtkit.sources import parts
from fmtkit.sources.parts import Part, parts_of

PART_SHIFT = 20
"""The number of a block has its part's number above so many bits."""
MOST_PARTS = 4096
"""Of a task: a file has its price, whatever its size."""


@dataclass(frozen=True)
class Task:
    """Parts of sources that are read one after the other: index of the source, and part."""

    number: int
    parts: tuple[tuple[int, Part], ...]
    rows: int | None = None
    """How many of its rows are read, where --limit ends in it."""

    @property
    def next_block(self) -> tuple[int, int]:
        """Return the source, and the number of the block in it, that come behind the task."""
        index, part = self.parts[-1]
        return index, (part.number + 1) << PART_SHIFT

    def is_begun(self, next_block: tuple[int, int]) -> bool:
        """Tell whether a block behind the first of the task is the one that comes next."""
        index, part = self.parts[0]
        return (index, part.number << PART_SHIFT) < next_block < self.next_block

    def named(self, sources: Sequence[AnySource]) -> str:
        """Return what the task reads, for errors."""
        index, part = self.parts[0]
        more = f" and {len(self.parts) - 1} more" if self.parts[1:] else ""
        if part.end is None:
            return f"{sources[index].name}{more}"
        what = "bytes" if sources[index].kind == "json" else "row groups"
        return f"{sources[index].name}, {what} {part.start} to {part.end}{more}"


def tasks_of(job: Job) -> list[Task]:
    """Cut the sources of a job; a file that cannot be cut is in one task as a whole."""
    tasks: list[Task] = []
    held: list[tuple[int, Part]] = []
    size = 0
    for index, source in enumerate(job.sources):
        for part in parts_of(source):
            own = parts.PART_BYTES if part.bytes is None else part.bytes
            if held and (size + own > parts.PART_BYTES or len(held) == MOST_PARTS):
                tasks.append(Task(len(tasks), tuple(held)))
                held, size = [], 0
            held.append((index, part))
            size += own
    return [*tasks, Task(len(tasks), tuple(held))] if held else tasks
