"""Rows made from the valid rows of a block, by a user function or by joining rows."""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from fmtkit.columns.kinds import RowKind
from fmtkit.columns.strict_kinds import judge
from fmtkit.core.codes import Reject
from fmtkit.sources.blocks import Block, MadeBlock


class MadeRows:
    """The valid rows of a block, and the rows made from them."""

    def __init__(self, block: Block) -> None:
        self.records = block.records()
        self.rows: list[bytes] = []
        """As JSON."""
        self._source = block
        self._places = block.places(len(self.records))
        self._rejects: list[Reject] = list(block.rejects)
        self._made_of: list[int] = []
        self._lines: list[int | None] = []

    def sound(self) -> Iterator[tuple[int, Mapping[str, Any]]]:
        """Yield the number and the value of each valid row, and reject the others."""
        for record in range(len(self.records)):
            value, fault = self.records.value(record, written=True)
            # A function gets all columns of a row, and JSON cannot pass it a NaN.
            fault = fault or next(iter(judge(RowKind(), value, "")), None)
            if fault is None:
                yield record, value
            else:
                self.refuse(record, fault.code, fault.column, fault.message)

    def place(self, record: int) -> int:
        """Return the row number in the block of a record."""
        return int(self._places[record])

    def refuse(self, record: int, code: str, column: str | None, message: str) -> None:
        """Reject a row."""
        reject = self.records.reject(record, code, column, message)
        self._rejects.append(replace(reject, row=self.place(record)))

    def add(self, row: bytes, place: int, line: int | None) -> None:
        """Add a made row, with the row number and line of a row of which it was made."""
        self.rows.append(row)
        self._made_of.append(place)
        self._lines.append(line)

    def block(self, *, filtered: int = 0, joined: int = 0) -> MadeBlock:
        """Return the rows made; what --where left out is filtered, too."""
        return MadeBlock(
            self.rows,
            self._made_of,
            self._lines,
            rejects=tuple(sorted(self._rejects, key=lambda reject: reject.row)),
            filtered=filtered + len(self._source.left_out),
            joined=joined,
            left_out=self._source.left_out,
            blank_lines=self.records.blank,
            bytes_read=self._source.bytes_read,
        )
