"""Blocks kept in a temporary file, to be read again: of what can be read only once, or was costly to make."""

import pickle
import tempfile
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import IO, TYPE_CHECKING

import pyarrow as pa

from fmtkit.core.pickling import PickledByFields
from fmtkit.sources.blocks import Block
from fmtkit.sources.readers import Reader
from fmtkit.sources.temporary import room_for

if TYPE_CHECKING:
    from fmtkit.sources.opening import Source


@dataclass(frozen=True)
class BlockFile:
    """Blocks in a file without a name, which goes when they do."""

    file: IO[bytes]
    places: tuple[int, ...]
    """Where each block begins in the file."""

    def blocks(self, start: int = 0) -> Iterator[Block]:
        """Read the blocks back, from the one with the index `start` on."""
        for place in self.places[start:]:
            self.file.seek(place)
            block: Block = pickle.load(self.file)  # noqa: S301 - written by ourselves, to a file without a name
            yield block


def kept_on_disk(blocks: Iterable[Block], what: str) -> BlockFile:
    """Read all blocks into a temporary file; WriteError where it cannot hold them."""
    file = tempfile.TemporaryFile(prefix="fmtkit-")  # noqa: SIM115 - it lives as long as the blocks
    places = []
    with room_for(what):
        for block in blocks:
            places.append(file.tell())
            pickle.dump(block, file, protocol=pickle.HIGHEST_PROTOCOL)
        file.flush()
    return BlockFile(file, tuple(places))


@dataclass(frozen=True)
class SpooledReader:
    """The blocks that another reader gave, as often as they are asked for."""

    reader: Reader
    kept: BlockFile

    def blocks(self, columns: Sequence[str] | None) -> Iterator[Block]:
        """Read the blocks back, all columns of them."""
        del columns
        return self.kept.blocks()

    def schema(self) -> pa.Schema | None:
        """Return the schema as the first reader knew it."""
        return self.reader.schema()

    def sha256(self) -> str:
        """Return the hash of the bytes that went by."""
        return self.reader.sha256()


def spooled(reader: Reader, blocks: Iterable[Block]) -> SpooledReader:
    """Read what can be read only once into a temporary file."""
    return SpooledReader(reader, kept_on_disk(blocks, "what can be read only once"))


@dataclass(eq=False)
class MadeSource(PickledByFields, ABC):
    """A source whose rows are made of another one's, once; it is read like any other, from a file of them."""

    source: "Source"

    once = False
    kind = "json"
    schema = None
    """Rows that are made have no schema before they are."""

    @property
    @abstractmethod
    def what(self) -> str:
        """Return what is kept, for errors."""

    @abstractmethod
    def made(self) -> Iterator[Block]:
        """Make the rows, block for block of the source."""

    @property
    def name(self) -> str:
        """Return the name of the source itself."""
        return self.source.name

    @property
    def size(self) -> int | None:
        """Return the size of the source itself."""
        return self.source.size

    @property
    def hashed(self) -> bool:
        """Tell whether the hash of the source itself is wanted."""
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
        return kept_on_disk(self.made(), self.what)
