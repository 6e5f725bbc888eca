"""Assembles a column of texts from pieces: constants, contents and derived texts, copied once.

Each piece is an Arrow string view (16 bytes: size, buffer, offset); casting the views to strings
concatenates the pieces in one buffer, so that the text of a row is the run of its pieces.
"""

import re
from collections.abc import Sequence

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from fmtkit.core.buffers import MAX_INT32, Bools, Int64s, ends, from_offsets, offsets_of, texts
from fmtkit.rendering.batch_answers import BatchContents, Unknowns, trimmed_slot
from fmtkit.rendering.text_columns import TextColumn, Trim, text_column
from fmtkit.rendering.unknowns import FIRST, LAST, Derived

Views = NDArray[np.complex128]

_PIECES = re.compile(f"([{chr(FIRST)}-{chr(LAST)}])")


class Assembly:
    """Columns of texts over the same rows, sharing their buffers."""

    def __init__(self, rows: BatchContents, count: int, columns: int) -> None:
        """Begin without text; a row that gets none is null."""
        self._rows = rows
        self._count = count
        self._parts: list[list[tuple[Int64s, list[Views]]]] = [[] for _ in range(columns)]
        self._buffers: list[pa.Buffer | None] = []
        self._columns: dict[tuple[int, tuple[Trim, ...]], Views] = {}
        self._numbers: dict[int, int] = {}
        self._constants: dict[str, Views] = {}

    def add(self, column: int, rows: Int64s, symbolic_text: str, unknowns: Unknowns) -> None:
        """Set the texts of rows to what a symbolic text is for them."""
        found = [piece for piece in _PIECES.split(symbolic_text) if piece]
        pieces = [self._piece(piece, unknowns, rows) for piece in found]
        self._parts[column].append((rows, pieces))

    def add_texts(self, column: int, rows: Int64s, values: Sequence[str]) -> None:
        """Set the texts of rows one by one."""
        self._parts[column].append((rows, [self._own(values)]))

    def _piece(self, piece: str, unknowns: Unknowns, rows: Int64s) -> Views:
        trimmed = trimmed_slot(piece, unknowns)
        if trimmed is not None:
            slot, trims = trimmed
            views = self._views(self._rows.column(slot), trims)
            return views[self._rows.places(slot, rows)]
        if _PIECES.fullmatch(piece):
            unknown = unknowns[ord(piece) - FIRST]
            assert isinstance(unknown, Derived)
            return self._made(unknown, unknowns, rows)
        if piece not in self._constants:
            self._constants[piece] = self._own([piece])
        return self._constants[piece]

    def _made(self, unknown: Derived, unknowns: Unknowns, rows: Int64s) -> Views:
        """Return what an operation makes of texts: JSON of a whole one by columns, the rest one by one."""
        trimmed = trimmed_slot(unknown.text, unknowns) if unknown.operation == "json" else None
        if trimmed is not None and not trimmed[1]:
            slot = trimmed[0]
            return self._column(self._rows.column(slot).as_json(self._rows.places(slot, rows)))
        values, places = self._rows.values(unknown, unknowns, rows)
        return self._own(values)[places]

    def _own(self, values: Sequence[str]) -> Views:
        return self._column(text_column(texts(values)))

    def _column(self, column: TextColumn) -> Views:
        self._buffers.append(column.buffer)
        return column.views((), len(self._buffers) - 1)

    def _views(self, column: TextColumn, trims: tuple[Trim, ...]) -> Views:
        if (id(column), trims) not in self._columns:
            if id(column) not in self._numbers:
                self._numbers[id(column)] = len(self._buffers)
                self._buffers.append(column.buffer)
            made = column.views(trims, self._numbers[id(column)])
            self._columns[id(column), trims] = made
        return self._columns[id(column), trims]

    def text(self, column: int) -> pa.Array:
        """Return a column: string, or large_string beyond 2 GiB; null where no text was set."""
        sizes = np.zeros(self._count, np.int64)
        valid = np.zeros(self._count, np.bool_)
        for rows, pieces in self._parts[column]:
            sizes[rows] = len(pieces)
            valid[rows] = True
        bounds = ends(sizes)
        views = np.zeros(int(bounds[-1]), np.complex128)
        for rows, pieces in self._parts[column]:
            at = bounds[rows]
            for position, piece in enumerate(pieces):
                views[at + position] = piece
        return _joined(views, bounds, valid, self._buffers)


def _joined(
    views: Views, bounds: Int64s, valid: Bools, buffers: Sequence[pa.Buffer | None]
) -> pa.Array:
    held = [buffer if buffer is not None else pa.py_buffer(b"") for buffer in buffers]
    pieces = pa.Array.from_buffers(pa.string_view(), len(views), [None, pa.py_buffer(views), *held])
    size = int(views.view(np.int32)[::4].sum(dtype=np.int64))
    laid = pieces.cast(pa.large_string() if size > MAX_INT32 else pa.string())
    return from_offsets(offsets_of(laid)[bounds], laid.buffers()[2] or pa.py_buffer(b""), valid)
