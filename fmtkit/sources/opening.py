"""Any SOURCE argument -> sources, each of which gives blocks of rows in order."""

import io
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import cast

import pyarrow as pa
from fmtkit.errors import SourceError
from fmtkit.sources.blocks import MAX_LINE_BYTES, Block
from fmtkit.sources.compression import head_of_text
from fmtkit.sources.kinds import KIND_OF, Kind, Layout, layout_of
from fmtkit.sources.paths import local_files
from fmtkit.sources.raw import Location, Readable
from fmtkit.sources.readers import IpcReader, JsonReader, ParquetReader, Reader

TEXT_PEEK_BYTES = 1 << 18
"""How much text is looked at to tell its layout."""


@dataclass(eq=False)
class Source:
    """One file, stream or object with rows.

    `name` is how reports call it: the path as given, "-" for stdin, "<memory>" for objects.
    `size` is in bytes, as `bytes_read` of the blocks; None where only reading tells.
    """

    name: str
    kind: Kind
    size: int | None
    reader: Reader
    once: bool = False
    """The rows can be read only once (stdin, a generator)."""
    _begun: tuple[Block | None, Iterator[Block]] | None = field(default=None, repr=False)

    @property
    def schema(self) -> pa.Schema | None:
        """The schema where it is known without reading rows (columnar sources, CSV), else None."""
        return self.reader.schema()

    def blocks(self, start: int = 0, columns: Sequence[str] | None = None) -> Iterator[Block]:
        """Read blocks from index `start` on, of these `columns` only where that saves work."""
        return islice(self._all_blocks(columns), start, None)

    def _all_blocks(self, columns: Sequence[str] | None) -> Iterator[Block]:
        begun, self._begun = self._begun, None
        if begun is None:
            yield from self.reader.blocks(columns)
            return
        first, rest = begun
        if first is not None:
            yield first
        del first, begun
        yield from rest

    def first_block(self, columns: Sequence[str] | None = None) -> Block | None:
        """Return the first block, None of an empty source; `blocks` will give it again."""
        if self._begun is not None:
            return self._begun[0]
        blocks = self.reader.blocks(columns)
        first = next(blocks, None)
        if self.once:
            # Whatever columns were asked for: a source that is read once has none to choose from.
            self._begun = (first, blocks)
        return first

    def sha256(self) -> str:
        """Return the hash of the raw bytes; of a stream, of what has been read of it."""
        return self.reader.sha256()


@dataclass(frozen=True)
class Reading:
    """How files are read: what the caller knows of them and they do not say themselves."""

    layout: Layout | None = None
    """Of a text whose name does not tell, or lies."""
    hashed: bool = True
    """Hash while reading; else `sha256()` reads again."""
    max_line_bytes: int = MAX_LINE_BYTES


def open_sources(
    specs: Sequence[object] | object,
    *,
    split: str | None = None,
    hashed: bool = True,
    max_line_bytes: int = MAX_LINE_BYTES,
) -> list[Source]:
    """Open each argument, in the order given."""
    if isinstance(specs, str | Path) or not isinstance(specs, Sequence):
        specs = [specs]
    reading = Reading(None, hashed, max_line_bytes)
    out: list[Source] = []
    for spec in specs:
        out.extend(_open(spec, split, reading))
    return out


def _open(spec: object, split: str | None, reading: Reading) -> list[Source]:
    if isinstance(spec, str | Path):
        text = str(spec)
        if text == "-":
            return [open_location(standard_input(), reading, text=True)]
        return [open_location(local(path), reading) for path in local_files(text, split)]
    raise SourceError(f"{type(spec).__name__} is nothing that rows can be read from")


def local(path: Path) -> Location:
    """Return the location of a file on this machine."""
    try:
        size = path.stat().st_size if path.is_file() else None
    except OSError as error:
        raise SourceError(f"{path} cannot be opened: {error.strerror}") from error
    # Pipes (/dev/stdin, <(zcat a.gz)) have neither size nor a second pass.
    return Location(
        str(path), lambda: cast("Readable", io.FileIO(path)), size, once=size is None, path=path
    )


def standard_input() -> Location:
    """Return the location of what is piped in."""
    return Location("-", lambda: cast("Readable", sys.stdin.buffer), once=True)


def open_location(location: Location, reading: Reading, *, text: bool = False) -> Source:
    """Look at the first bytes of a location and open it as what it is."""
    head = location.peek()
    start = head_of_text(head, TEXT_PEEK_BYTES)
    layout = reading.layout or layout_of(location.name, start, text=text)
    readers: dict[Layout, Callable[[], Reader]] = {
        "lines": lambda: JsonReader(location, head[:8], reading.max_line_bytes, reading.hashed),
        "parquet": lambda: ParquetReader(location, head[:8]),
        "ipc": lambda: IpcReader(location, head[:8]),
    }
    reader = readers[layout]()
    return Source(location.name, KIND_OF[layout], location.size, reader, once=location.once)
