"""Step labels: hard (right or wrong) or soft (how likely)? One soft label makes the whole column soft."""

from collections.abc import Iterable
from functools import partial
from typing import Any

import numpy as np

from fmtkit.columns.kinds import FlagKind, ListKind
from fmtkit.columns.read_spec import ReadSpec, spec_of
from fmtkit.reading import clean_lines
from fmtkit.sources.blocks import Block, Readable, Records, Rows
from fmtkit.work.engines import Engine
from fmtkit.work.tasks import scan_blocks


def has_soft_labels(source: Readable, column: str, engine: Engine | None = None) -> bool:
    """Return whether any label of a source is neither true, false, 0 nor 1."""
    path = tuple(column.split("."))
    hard = spec_of([(column, path, ListKind(FlagKind()), False)], [], [], [])
    return scan_blocks([source], engine, partial(_is_soft_block, path=path, hard=hard), any)


def _is_soft_block(block: Block, path: tuple[str, ...], hard: ReadSpec) -> bool:
    return _is_soft(block.records(), path, hard)


def _is_soft(records: Rows, path: tuple[str, ...], hard: ReadSpec) -> bool:
    """Look at the labels of each record, except for those that are read as hard ones natively."""
    left: Iterable[int] = range(len(records))
    read = clean_lines.read(records.data, hard) if isinstance(records, Records) else None
    if read is not None:
        verdicts = read.verdicts[read.verdicts != clean_lines.BLANK]
        left = np.flatnonzero(verdicts == clean_lines.UNSURE).tolist()
    return any(_holds_soft(records.value(record)[0], path) for record in left)


def _holds_soft(row: Any, path: tuple[str, ...]) -> bool:
    for key in path:
        row = row.get(key) if isinstance(row, dict) else None
    labels = row if isinstance(row, list) else []
    return any(isinstance(label, float) and label not in (0, 1) for label in labels)
