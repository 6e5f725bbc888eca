"""Blocks kept in a temporary file, to be read again: of what can be read only once, or was costly to make."""

import pickle
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import IO

import pyarrow as pa

from fmtkit.sources.blocks import Block
from fmtkit.sources.readers import Reader
from fmtkit.sources.temporary import room_for


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
