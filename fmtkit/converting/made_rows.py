"""Rows that are made from the sound rows of a block, by a user function or by joining them."""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from fmtkit.columns.kinds import RowKind
from fmtkit.columns.strict_kinds import judge
from fmtkit.core.codes import Reject
from fmtkit.sources.blocks import Block, MadeBlock


class MadeRows:
    """The sound rows of a block, and what is made from them."""

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
        """Yield the number and the value of each row that is sound, and refuse the others."""
        for record in range(len(self.records)):
            value, fault = self.records.value(record, written=True)
            # Whoever makes rows sees the whole row, and could be handed no NaN by way of JSON.
            fault = fault or next(iter(judge(RowKind(), value, "")), None)
            if fault is None:
                yield record, value
            else:
                self.refuse(record, fault.code, fault.column, fault.message)

    def place(self, record: int) -> int:
        """Return the row of the block that a record is."""
        return int(self._places[record])

    def refuse(self, record: int, code: str, column: str | None, message: str) -> None:
        """Reject a row."""
        reject = self.records.reject(record, code, column, message)
        self._rejects.append(replace(reject, row=self.place(record)))

    def add(self, row: bytes, place: int, line: int | None) -> None:
        """Add a row that was made, at the place and line of a row that it was made of."""
        self.rows.append(row)
        self._made_of.append(place)
        self._lines.append(line)

    def block(self, *, filtered: int = 0, joined: int = 0) -> MadeBlock:
        """Return the rows made."""
        return MadeBlock(
            self.rows,
            self._made_of,
            self._lines,
            rejects=tuple(sorted(self._rejects, key=lambda reject: reject.row)),
            filtered=filtered,
            joined=joined,
            blank_lines=self.records.blank,
            bytes_read=self._source.bytes_read,
        )
