"""Scores and ranks in the row of a pair: the columns that say which reply is the better one.

A conversion reads only what its type takes. These columns are numbers at the top of a row, so that
they can be read from its bytes: a quote inside a JSON text has a backslash before it, therefore
`"score_chosen":` is always a key.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from fmtkit.findings.directions import RANKS, SCORES
from fmtkit.sources.blocks import ArrowRows, Block, Records

Floats = npt.NDArray[np.float64]

NUMBER = rb'"?(-?\d+(?:\.\d+)?(?:[eE][-+]?\d+)?)'


def score_names(sample: Sequence[Mapping[str, Any]]) -> tuple[str, ...]:
    """Return the columns of a sample that come in pairs and hold scores or ranks of two replies."""
    held = {name for row in sample for name, value in row.items() if _is_number(value)}
    pairs = [(name, name.replace("chosen", "rejected")) for name in sorted(held)]
    found = [
        name
        for pair in pairs
        if pair[0] != pair[1]
        and pair[1] in held
        and (SCORES.search(pair[0]) or RANKS.search(pair[0]))
        for name in pair
    ]
    return tuple(found)


def _is_number(value: Any) -> bool:
    if isinstance(value, str):
        return re.fullmatch(r"\s*-?\d+(\.\d+)?([eE][-+]?\d+)?\s*", value) is not None
    return isinstance(value, int | float) and not isinstance(value, bool)


def read_scores(block: Block, names: Sequence[str]) -> dict[str, Floats]:
    """Return for each name its number in each record of a block, NaN if it has none."""
    records = block.records()
    if isinstance(records, Records):
        return {name: _scan(records.data, records.found.starts, name) for name in names}
    if isinstance(records, ArrowRows):
        return {name: _column(records.batch, name) for name in names}
    rows = [row for row, _ in records.values()]
    return {name: np.array([_number(row.get(name)) for row in rows], np.float64) for name in names}


def _scan(data: bytes, starts: npt.NDArray[np.int64], name: str) -> Floats:
    numbers = np.full(len(starts), np.nan)
    key = re.escape(f'"{name}"'.encode())
    found = [(m.start(), float(m[1])) for m in re.finditer(key + rb"\s*:\s*" + NUMBER, data)]
    if found:
        places, values = (np.array(column) for column in zip(*found, strict=True))
        numbers[np.searchsorted(starts, places, side="right") - 1] = values
    return numbers


def _column(batch: pa.Table, name: str) -> Floats:
    if name not in batch.schema.names:
        return np.full(batch.num_rows, np.nan)
    return np.array([_number(value) for value in batch.column(name).to_pylist()], np.float64)


def _number(value: Any) -> float:
    return float(value) if _is_number(value) else np.nan
