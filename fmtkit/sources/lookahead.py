"""Text that is read ahead, and the blocks made of it, for the readers of JSON arrays."""

from dataclasses import field

import numpy as np

from fmtkit.core.codes import Reject
from fmtkit.core.data_classes import dataclass
from fmtkit.sources.blocks import JsonBlock
from fmtkit.sources.jsonl import BLANK, line_feeds
from fmtkit.sources.raw import RawBytes, Readable, read_fully


@dataclass
class Text:
    """The bytes that are read ahead and not yet divided into elements."""

    file: Readable
    raw: RawBytes
    """What `file` decompresses, or `file` itself."""
    held: bytes = b""
    line: int = 1
    """1-based physical line of the first byte held."""
    ended: bool = False
    """Whether the file has no more bytes."""
    indent: bytes = b""
    """The indentation of an element at the start of a line."""
    nests_alike: bool = False
    """Whether objects inside elements have the same indentation as elements."""
    within_object: bool = False
    """Whether the array stands in an object, which ends after it."""

    def hold(self, size: int) -> None:
        """Read ahead until `size` bytes are held."""
        missing = size - len(self.held)
        if missing > 0 and not self.ended:
            more = read_fully(self.file, missing)
            self.ended = len(more) < missing
            self.held += more

    def drop(self, size: int) -> None:
        """Drop bytes."""
        self.line += line_feeds(self.held[:size])
        self.held = self.held[size:]

    def skip_blanks(self, size: int) -> bool:
        """Drop leading blanks, hold `size` bytes after them, and return whether there are any."""
        self.hold(size)
        while blanks := len(self.held) - len(self.held.lstrip(BLANK)):
            self.note_indent(self.held[:blanks])
            self.drop(blanks)
            self.hold(size)
        return bool(self.held)

    def note_indent(self, blanks: bytes) -> None:
        """Remember the indentation of elements that begin a line."""
        if b"\n" in blanks:
            self.indent = blanks.rpartition(b"\n")[2]

    @property
    def next_element(self) -> bytes:
        """The start of an element at the start of a line, with the line feed before it."""
        return b"\n" + self.indent + b"{"


@dataclass
class Records:
    """Collects the records and rejects of one block."""

    first_line: int
    pieces: list[bytes] = field(default_factory=list)
    lines: list[int] = field(default_factory=list)
    rejects: list[Reject] = field(default_factory=list)

    def add(self, record: bytes, line: int) -> None:
        """Add a record, which may span lines outside of its strings."""
        self.pieces.append(on_one_line(record))
        self.lines.append(line)

    def reject(self, code: str, message: str, record: bytes, line: int, size: int = 0) -> None:
        """Add a record of `size` bytes (0 if all are given) that is not parsed."""
        self.rejects.append(
            Reject(len(self), line, code, None, message, record, size or len(record))
        )

    def block(self, bytes_read: int) -> JsonBlock:
        """Make the block; it may be empty."""
        data = b"\n".join([*self.pieces, b""])
        lines = np.array(self.lines, np.int64)
        return JsonBlock(data, self.first_line, lines, tuple(self.rejects), bytes_read)

    def __len__(self) -> int:
        return len(self.pieces) + len(self.rejects)


def on_one_line(record: bytes) -> bytes:
    """Replace line ends, which have no meaning outside strings, by blanks."""
    return record.replace(b"\n", b" ").replace(b"\r", b" ")
