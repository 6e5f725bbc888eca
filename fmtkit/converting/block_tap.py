"""A tap on a source: the blocks as they pass, for who needs more of them than the pipeline does."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

import pyarrow as pa

from fmtkit.sources.blocks import Block
from fmtkit.sources.opening import Source
from fmtkit.sources.readers import Reader


@dataclass(eq=False)
class BlockTap:
    """Blocks on their way, by source and number; a worker takes the one that it works on."""

    passing: dict[tuple[int, int], Block] = field(default_factory=dict)

    def on(self, sources: Sequence[Source]) -> list[Source]:
        """Return the sources with the tap on them."""
        return [
            replace(source, reader=_TappedReader(source.reader, number, self.passing))
            for number, source in enumerate(sources)
        ]

    def take(self, source: int, number: int) -> Block:
        """Return a block that is being worked on, and forget it."""
        return self.passing.pop((source, number))


@dataclass(eq=False)
class _TappedReader:
    reader: Reader
    source: int
    passing: dict[tuple[int, int], Block]

    def schema(self) -> pa.Schema | None:
        return self.reader.schema()

    def sha256(self) -> str:
        return self.reader.sha256()

    def blocks(self, columns: Sequence[str] | None = None) -> Iterator[Block]:
        for number, block in enumerate(self.reader.blocks(columns)):
            self.passing[self.source, number] = block
            yield block
