"""Blocks of a source that can be read only once, kept in a temporary file to be read again."""

import pickle
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import IO

import pyarrow as pa

from fmtkit.errors import WriteError
from fmtkit.sources.blocks import Block
from fmtkit.sources.readers import Reader


@dataclass(frozen=True)
class SpooledReader:
    """The blocks that another reader gave, as often as they are asked for."""

    reader: Reader
    file: IO[bytes]
    """Goes when the reader does."""
    places: tuple[int, ...]
    """Where each block begins in the file."""

    def blocks(self, columns: Sequence[str] | None) -> Iterator[Block]:
        """Read the blocks back, all columns of them."""
        del columns
        for place in self.places:
            self.file.seek(place)
            block: Block = pickle.load(self.file)  # noqa: S301 - written by ourselves, to a file without a name
            yield block

    def schema(self) -> pa.Schema | None:
        """Return the schema as the first reader knew it."""
        return self.reader.schema()

    def sha256(self) -> str:
        """Return the hash of the bytes that went by."""
        return self.reader.sha256()


def spooled(reader: Reader, blocks: Iterable[Block]) -> SpooledReader:
    """Read all blocks into a temporary file; WriteError where it cannot hold them."""
    file = tempfile.TemporaryFile(prefix="fmtkit-")  # noqa: SIM115 - it lives as long as the reader
    places = []
    try:
        for block in blocks:
            places.append(file.tell())
            pickle.dump(block, file, protocol=pickle.HIGHEST_PROTOCOL)
    except OSError as error:
        folder = tempfile.gettempdir()
        raise WriteError(
            f"what can be read only once does not fit into {folder} ({error.strerror or error}); "
            "set TMPDIR to a larger disk, or give a file as SOURCE"
        ) from error
    return SpooledReader(reader, file, tuple(places))
