"""The columns of a source: what each holds, and how often it is null.

Columnar sources are counted completely. In others the first rows are examined, and some of every later block:
a column that starts late is seen, and parsing every column of every row would take longer than a conversion.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import field
from typing import Any

import pyarrow as pa

from fmtkit.core.data_classes import dataclass
from fmtkit.findings.scripts import count_scripts
from fmtkit.sources.blocks import ArrowRows, Block

FIRST_ROWS = 1000
"""Rows of a source's first block that are looked at."""

LATER_ROWS = 20
"""Rows of every further block."""

SCRIPT_ROWS = 20
"""Rows of a block whose scripts are counted."""


@dataclass(frozen=True)
class ColumnSummary:
    """What a column holds."""

    name: str
    kinds: Mapping[str, int]
    """Kind of value -> rows looked at that hold one."""
    null_share: float
    """Share of the rows looked at in which it is null or absent."""


@dataclass
class ColumnCounts:
    """Kinds of values by column, of the rows looked at."""

    rows: int = 0
    kinds: dict[str, Counter[str]] = field(default_factory=dict)
    scripts: Counter[str] = field(default_factory=Counter)
    """Script -> letters."""
    unread: Counter[str] = field(default_factory=Counter)
    """Code -> rows looked at that could not be read."""

    def add_block(self, block: Block, number: int) -> None:
        """Look at a block; `number` is its place in the source."""
        records = block.records()
        if isinstance(records, ArrowRows):
            self._add_batch(records.batch)
            return
        wanted = FIRST_ROWS if number == 0 else LATER_ROWS
        step = max(1, len(records) // wanted) if number else 1
        chosen = range(0, min(len(records), wanted * step), step)
        found = [records.value(record) for record in chosen]
        self._add_rows(value for value, fault in found if fault is None)
        own = (reject.code for reject in block.rejects)
        self.unread.update([*(fault.code for _, fault in found if fault is not None), *own])

    def _add_rows(self, rows: Iterable[Mapping[str, Any]]) -> None:
        for number, row in enumerate(rows):
            self.rows += 1
            for name, value in row.items():
                if value is not None:
                    self.kinds.setdefault(name, Counter())[kind_of(value)] += 1
                else:
                    self.kinds.setdefault(name, Counter())
            if number < SCRIPT_ROWS:
                self.scripts.update(count_scripts(texts_of(row)))

    def _add_batch(self, batch: pa.Table) -> None:
        self.rows += batch.num_rows
        for name in batch.schema.names:
            column = batch.column(name)
            counts = self.kinds.setdefault(name, Counter())
            filled = batch.num_rows - column.null_count
            if filled:
                counts[str(column.type)] += filled
        for row, fault in ArrowRows(batch.slice(0, SCRIPT_ROWS)).values():
            if fault is None:
                self.scripts.update(count_scripts(texts_of(row)))

    def absorb(self, other: "ColumnCounts") -> None:
        """Add the counts of other rows."""
        self.rows += other.rows
        self.scripts.update(other.scripts)
        self.unread.update(other.unread)
        for name, counts in other.kinds.items():
            self.kinds.setdefault(name, Counter()).update(counts)

    def summaries(self) -> tuple[ColumnSummary, ...]:
        """Return the columns in the order in which they were first seen."""
        rows = max(self.rows, 1)
        return tuple(
            ColumnSummary(name, dict(counts.most_common()), 1 - counts.total() / rows)
            for name, counts in self.kinds.items()
        )


def kind_of(value: Any) -> str:
    """Name the kind of a JSON value; of a list also what it holds."""
    if isinstance(value, bool):
        return "bool"
    if isinstance(value, str):
        return "text"
    if isinstance(value, int):
        return "integer"
    if isinstance(value, float):
        return "number"
    if isinstance(value, list):
        inner = sorted({kind_of(item) for item in value})
        return f"list of {' or '.join(inner)}" if inner else "list"
    return "null" if value is None else "object"


def texts_of(value: Any) -> list[str]:
    """Return all texts within a value."""
    if isinstance(value, str):
        return [value]
    if isinstance(value, Mapping):
        return [text for item in value.values() for text in texts_of(item)]
    if isinstance(value, list):
        return [text for item in value for text in texts_of(item)]
    return []
