"""Sources whose rows are made of the rows of another source."""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from functools import cached_property

from fmtkit.core.data_classes import dataclass
from fmtkit.core.pickling import PickledByFields
from fmtkit.sources.blocks import Block
from fmtkit.sources.filtered import RowFilter
from fmtkit.sources.source import Source
from fmtkit.sources.spooling import BlockFile


@dataclass(eq=False)
class MadeSource(PickledByFields, ABC):
    """A source with rows made of those of a different source; they are made once and kept in a file."""

    source: Source

    once = False
    kind = "json"
    schema = None
    """Made rows have no schema in advance."""

    @property
    @abstractmethod
    def what(self) -> str:
        """Return a description of the rows, for errors."""

    @abstractmethod
    def made(self) -> Iterator[Block]:
        """Make the rows, one block for each block of the source."""

    @property
    def name(self) -> str:
        """Return the name of the source itself."""
        return self.source.name

    @property
    def size(self) -> int | None:
        """Return the size of the source itself."""
        return self.source.size

    @property
    def row_filter(self) -> RowFilter | None:
        """Return which rows of the source itself are read."""
        return self.source.row_filter

    @property
    def hashed(self) -> bool:
        """Return whether the source itself is hashed."""
        return self.source.hashed

    def sha256(self) -> str:
        """Return the hash of the source itself."""
        return self.source.sha256()

    def keep(self) -> None:
        """Do nothing: the rows are kept anyway."""

    def first_block(self) -> Block | None:
        """Return the first block of the rows."""
        return next(self.blocks(), None)

    def blocks(self, start: int = 0, columns: Sequence[str] | None = None) -> Iterator[Block]:  # noqa: ARG002
        """Yield the rows, from a block on."""
        return self._kept.blocks(start)

    @cached_property
    def _kept(self) -> BlockFile:
        return BlockFile(self.made(), self.what)
