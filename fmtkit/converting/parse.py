"""Parse a block of JSON lines: what is certain natively, every other line by the strict parser.

A row's verdict and value depend on that row alone: both readers make the same of it, and the strict one,
which judges line by line, reads all where there is no native kernel.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import numpy as np
import polars as pl

from fmtkit.converting.binding import Binding
from fmtkit.converting.unread_turns import carried
from fmtkit.core import buffers
from fmtkit.core.codes import Reject
from fmtkit.reading import clean_lines
from fmtkit.rendering.content_parts import Cuts
from fmtkit.sources.blocks import Records, Row


@dataclass(frozen=True)
class Parsed:
    """The sound rows of a block as the converter sees them, and the rejects.

    `frame` has one column for each bound column and `__row`, the record's number within the block.
    """

    frame: pl.DataFrame
    rejects: list[Reject]
    records: int
    blank: int
    fast_rows: int
    cuts: Mapping[int, Cuts] = field(default_factory=dict)
    """Record -> which of its contents came in parts; records without such are not in it."""


def parse_records(records: Records, binding: Binding) -> Parsed:
    """Parse the records of a block: the clean lines natively, the others one by one."""
    read = clean_lines.read(records.data, binding.spec)
    if read is None:
        judged = _judge(records, range(len(records)), binding)
        return _parsed(records, judged.frame(binding), judged, 0, binding)
    records.blank_lines = read.verdicts == clean_lines.BLANK
    verdicts = read.verdicts[~records.blank_lines]
    clean = np.flatnonzero(verdicts == clean_lines.CLEAN)
    judged = _judge(records, np.flatnonzero(verdicts == clean_lines.UNSURE).tolist(), binding)
    frame = _as_converters_see(read.frame, clean, binding)
    if judged.sound:
        frame = pl.concat([frame, judged.frame(binding)]).sort("__row")
    return _parsed(records, frame, judged, len(clean), binding)


def _parsed(
    records: Records, frame: pl.DataFrame, judged: "_Judged", clean: int, binding: Binding
) -> Parsed:
    return Parsed(frame, judged.rejects, len(records), records.blank, clean, judged.cuts(binding))


def _as_converters_see(frame: pl.DataFrame, rows: np.ndarray, binding: Binding) -> pl.DataFrame:
    """Number the rows of a frame that the kernel read, and tell what its watched columns carry."""
    columns = {column.name: frame.get_column(column.name) for column in binding.every}
    for watched in binding.watched:
        texts = columns[watched.name]
        if texts.null_count() < len(texts):
            columns[watched.name] = carried(texts)
    # Of Arrow, since polars asks numpy.ma of numbers that are numpy's, which takes 20 ms to import.
    numbers = pl.Series("__row", buffers.int64s(rows))
    return pl.DataFrame([*columns.values(), numbers])


@dataclass(frozen=True)
class _Judged:
    """Records that the strict parser took one by one, and the rejects of the others."""

    sound: list[tuple[int, Row]] = field(default_factory=list)
    rejects: list[Reject] = field(default_factory=list)

    def frame(self, binding: Binding) -> pl.DataFrame:
        """Return what converters see of the sound ones."""
        return binding.frame([row for _, row in self.sound], [record for record, _ in self.sound])

    def cuts(self, binding: Binding) -> dict[int, Cuts]:
        """Return the parts of contents that came in parts."""
        return {record: cut for record, row in self.sound if (cut := binding.cuts(row))}


def _judge(records: Records, numbers: Iterable[int], binding: Binding) -> _Judged:
    """Judge records one by one."""
    judged = _Judged()
    for record in numbers:
        value, fault = records.value(record, written=True)
        found = [fault] if fault else binding.judge(value)
        if found:
            first = found[0]
            judged.rejects.append(records.reject(record, first.code, first.column, first.message))
        else:
            judged.sound.append((record, value))
    return judged
