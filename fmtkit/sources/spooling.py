"""Blocks kept in a temporary file: of sources that can be read only once, and of made rows."""

import io
import pickle
import tempfile
from collections.abc import Generator, Iterable, Iterator, Sequence
from itertools import count
from threading import Lock

import pyarrow as pa

from fmtkit.core.data_classes import dataclass
from fmtkit.sources.blocks import Block
from fmtkit.sources.readers import Reader
from fmtkit.sources.temporary import naming_full_disk


class BlockFile:
    """Blocks in an unnamed temporary file, which is deleted with this object; each is made on first use."""

    def __init__(self, blocks: Iterable[Block], what: str) -> None:
        self._file = tempfile.TemporaryFile(prefix="fmtkit-")  # noqa: SIM115 - it lives as long as the blocks
        self._places: list[int] = []
        """The offset of each block in the file."""
        self._blocks, self._what = iter(blocks), what
        self._error: BaseException | None = None
        self._lock = Lock()

    def blocks(self, start: int = 0) -> Iterator[Block]:
        """Yield the blocks from index `start` on; raise WriteError if the file cannot be written."""
        for number in count(start):
            block = self._block(number)
            if block is None:
                return
            yield block

    def fill(self) -> "BlockFile":
        """Make all blocks that are not made yet, and return this object."""
        with self._lock:
            while self._make():
                pass
        return self

    def _block(self, number: int) -> Block | None:
        with self._lock:
            while len(self._places) <= number:
                if not self._make():
                    return None
            self._file.seek(self._places[number])
            block: Block = pickle.load(self._file)  # noqa: S301 - written by ourselves, to a file without a name
            return block

    def _make(self) -> bool:
        """Make the next block; return False if there is none."""
        if self._error is not None:
            # The iterator of blocks has failed: a second reader must not take that for the end.
            raise self._error
        try:
            with naming_full_disk(self._what):
                block = next(self._blocks, None)
                if block is None:
                    return False
                place = self._file.seek(0, io.SEEK_END)
                pickle.dump(block, self._file, protocol=pickle.HIGHEST_PROTOCOL)
                self._file.flush()
        except BaseException as error:
            self._error = error
            # The iterator may hold a process, which must end now and not at garbage collection.
            if isinstance(self._blocks, Generator):
                self._blocks.close()
            raise
        self._places.append(place)
        return True


@dataclass(frozen=True)
class SpooledReader:
    """A reader of the kept blocks of another reader."""

    reader: Reader
    kept: BlockFile

    def blocks(self, columns: Sequence[str] | None) -> Iterator[Block]:
        """Yield the kept blocks, with all columns."""
        del columns
        return self.kept.blocks()

    def schema(self) -> pa.Schema | None:
        """Return the schema of the first reader."""
        return self.reader.schema()

    def sha256(self) -> str:
        """Return the hash of the bytes that the first reader read."""
        return self.reader.sha256()


def spooled(reader: Reader, blocks: Iterable[Block]) -> SpooledReader:
    """Return a reader of blocks that are first copied into a temporary file."""
    return SpooledReader(reader, BlockFile(blocks, "what can be read only once").fill())
