"""A column of texts as bytes and numbers: trimmed, tested and cut without making strings.

A text is its first and last byte in the column's data. Trimming moves these; tests look at the
bytes in between. UTF-8 makes that exact: a text occurs in another where its bytes occur.
"""

import json
from collections.abc import Sequence
from dataclasses import field
from functools import cached_property

import numpy as np
import polars as pl
import pyarrow as pa
from numpy.typing import NDArray

from fmtkit.core.buffers import Bools, Int64s, offsets_of, validity
from fmtkit.core.data_classes import dataclass

Trim = tuple[str, str | None]
"""strip, lstrip or rstrip, and its characters (None: white space)."""

WHITE_SPACE = (
    "\t\n\v\f\r\x1c\x1d\x1e\x1f \x85\xa0\u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009"
    "\u200a\u2028\u2029\u202f\u205f\u3000"
)
"""What Python's str.strip removes; to test every character takes 10 ms at the start."""
JSON_ESCAPES = {c: json.dumps(c)[1:-1] for c in ['"', "\\", *map(chr, range(0x20))]}
"""What `tojson` writes of the characters that do not stand for themselves."""
MAX_STEPS = 64
"""Bytes that are trimmed from all texts at once; what is left then is few texts and many bytes."""

VIEW_INLINE = 12
"""Bytes that an Arrow string view holds itself."""


@dataclass(frozen=True)
class Spans:
    """Where texts begin and end in the data of their column."""

    starts: Int64s
    ends: Int64s

    @cached_property
    def sizes(self) -> Int64s:
        """Return the number of bytes of each text."""
        return self.ends - self.starts


@dataclass
class TextColumn:
    """Texts in one buffer; a null is an empty text that is not `present`."""

    data: NDArray[np.uint8]
    buffer: pa.Buffer | None
    whole: Spans
    present: Bools
    _trimmed: dict[tuple[Trim, ...], Spans] = field(default_factory=dict)
    _filled: dict[tuple[Trim, ...], Bools] = field(default_factory=dict)
    _found: dict[bytes, Bools] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.whole.starts)

    def text(self, index: int, trims: Sequence[Trim] = ()) -> str:
        """Return one text."""
        spans = self.trimmed(tuple(trims))
        return self._decoded(spans, index)

    def _decoded(self, spans: Spans, index: int) -> str:
        return self.data[spans.starts[index] : spans.ends[index]].tobytes().decode()

    def trimmed(self, trims: tuple[Trim, ...]) -> Spans:
        """Return where the texts are after trimming them one way after another."""
        if not trims:
            return self.whole
        if trims not in self._trimmed:
            self._trimmed[trims] = self._trim(self.trimmed(trims[:-1]), *trims[-1])
        return self._trimmed[trims]

    def _trim(self, spans: Spans, method: str, characters: str | None) -> Spans:
        wanted = WHITE_SPACE if characters is None else characters
        starts, ends = spans.starts.copy(), spans.ends.copy()
        if method != "rstrip":
            self._advance(starts, ends, wanted, left=True)
        if method != "lstrip":
            self._advance(starts, ends, wanted, left=False)
        return Spans(starts, ends)

    def _advance(self, starts: Int64s, ends: Int64s, characters: str, *, left: bool) -> None:
        """Move one side of each span past the characters, in place."""
        trimmed = np.zeros(256, np.bool_)
        trimmed[[ord(c) for c in characters if c.isascii()]] = True
        doubtful = np.zeros(256, np.bool_)
        doubtful[[c.encode()[0 if left else -1] for c in characters if not c.isascii()]] = True
        stepping = np.flatnonzero(ends > starts)
        for _ in range(MAX_STEPS):
            edge = self.data[starts[stepping] if left else ends[stepping] - 1]
            for row in stepping[doubtful[edge]].tolist():
                self._advance_one(starts, ends, row, characters, left=left)
            stepping = stepping[trimmed[edge]]
            if left:
                starts[stepping] += 1
            else:
                ends[stepping] -= 1
            stepping = stepping[ends[stepping] > starts[stepping]]
            if not len(stepping):
                return
        for row in stepping.tolist():
            self._advance_one(starts, ends, row, characters, left=left)

    def _advance_one(
        self, starts: Int64s, ends: Int64s, row: int, characters: str, *, left: bool
    ) -> None:
        text = self._decoded(Spans(starts, ends), row)
        if left:
            starts[row] += len(text.encode()) - len(text.lstrip(characters).encode())
        else:
            ends[row] -= len(text.encode()) - len(text.rstrip(characters).encode())

    def nonempty(self, trims: tuple[Trim, ...]) -> Bools:
        """Return which texts are not empty: asked again for each message of a conversation."""
        if trims not in self._filled:
            self._filled[trims] = self.trimmed(trims).sizes > 0
        return self._filled[trims]

    def startswith(self, trims: tuple[Trim, ...], other: str) -> Bools:
        """Return which texts begin with another one."""
        spans = self.trimmed(trims)
        return self._has(spans, spans.starts, other.encode())

    def endswith(self, trims: tuple[Trim, ...], other: str) -> Bools:
        """Return which texts end with another one."""
        spans, needle = self.trimmed(trims), other.encode()
        return self._has(spans, spans.ends - len(needle), needle)

    def equals(self, trims: tuple[Trim, ...], other: str) -> Bools:
        """Return which texts equal another one."""
        spans, needle = self.trimmed(trims), other.encode()
        same: Bools = self._has(spans, spans.starts, needle) & (spans.sizes == len(needle))
        return same

    def _has(self, spans: Spans, at: Int64s, needle: bytes) -> Bools:
        found = spans.sizes >= len(needle)
        candidates = np.flatnonzero(found)
        for position, byte in enumerate(needle):
            same = self.data[at[candidates] + position] == byte
            found[candidates[~same]] = False
            candidates = candidates[same]
            if not len(candidates):
                break
        return found

    def contains(self, trims: tuple[Trim, ...], other: str) -> Bools:
        """Return which texts contain another one: one search over all of them."""
        spans, needle = self.trimmed(trims), other.encode()
        if not needle or not len(self):
            return np.ones(len(self), np.bool_)
        # A copy: what is found is kept for the next question.
        found = self._hits(needle) & (spans.sizes >= len(needle))
        for row in np.flatnonzero(found & (spans.sizes < self.whole.sizes)).tolist():
            found[row] = needle in self.data[spans.starts[row] : spans.ends[row]].tobytes()
        return found

    def _hits(self, needle: bytes) -> Bools:
        """Return which untrimmed texts contain bytes; nulls may do so."""
        if needle not in self._found:
            self._found[needle] = self._series(pa.large_binary()).bin.contains(needle).to_numpy()
        return self._found[needle]

    def _series(self, kind: pa.DataType) -> pl.Series:
        """Return the texts for polars, sharing memory; nulls may be any text."""
        offsets = np.append(self.whole.starts, self.whole.ends[-1:])
        parts = [None, pa.py_buffer(offsets), self.buffer or pa.py_buffer(b"")]
        made = pl.from_arrow(pa.Array.from_buffers(kind, len(self), parts))
        assert isinstance(made, pl.Series)
        return made

    def as_json(self, places: Int64s) -> "TextColumn":
        """Return the texts of these places as `tojson` writes them."""
        chosen = self._series(pa.large_string()).gather(pl.Series(places))
        escaped = chosen.str.replace_many([*JSON_ESCAPES], [*JSON_ESCAPES.values()])
        return text_column(('"' + escaped + '"').to_arrow(compat_level=pl.CompatLevel.oldest()))

    def views(self, trims: tuple[Trim, ...], number: int) -> NDArray[np.complex128]:
        """Return the texts as Arrow string views (16 bytes each) into the buffer of that number."""
        spans = self.trimmed(trims)
        made = np.zeros((len(self), 4), np.uint32)
        made[:, 0] = spans.sizes
        made[:, 2] = number
        made[:, 3] = spans.starts
        short = np.flatnonzero(spans.sizes <= VIEW_INLINE)
        made[short, 1:] = self._inline(spans, short)
        return made.view(np.complex128).ravel()

    def _inline(self, spans: Spans, short: Int64s) -> NDArray[np.uint32]:
        if not len(self.data):
            return np.zeros((len(short), 3), np.uint32)
        inside = np.arange(VIEW_INLINE)[None, :] < spans.sizes[short][:, None]
        at = spans.starts[short][:, None] + np.arange(VIEW_INLINE)[None, :]
        held = np.where(inside, self.data[np.minimum(at, len(self.data) - 1)], 0)
        return np.ascontiguousarray(held.astype(np.uint8)).view(np.uint32)


def text_column(array: pa.Array) -> TextColumn:
    """Read a string or large_string array in place."""
    offsets = offsets_of(array)
    buffer = array.buffers()[2]
    # A view's offset has 31 bits: count from the first byte that is used.
    first = int(offsets[0])
    used = buffer.slice(first, int(offsets[-1]) - first) if buffer is not None else None
    data = np.frombuffer(used, np.uint8) if used is not None else np.zeros(0, np.uint8)
    present = validity(array)
    starts = offsets[:-1] - first
    ends = np.where(present, offsets[1:] - first, starts)
    return TextColumn(data, used, Spans(starts, ends), present)
