"""Whether scores and ranks in a row agree with which reply of its pair is the chosen one.

Pairs come with the scores or ranks they were made from (`score_chosen` and `score_rejected`,
`chosen_rank` and `rejected_rank`, a `margin`): if they rate the rejected reply
higher, training makes the model worse.
"""

import re

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from fmtkit.core.data_classes import dataclass
from fmtkit.core.tables import carried

Bools = npt.NDArray[np.bool_]

SCORES = re.compile(r"score|rating|reward|grade|quality|overall|points|elo|logit", re.IGNORECASE)
RANKS = re.compile(r"rank|position|place", re.IGNORECASE)


@dataclass(frozen=True)
class Directions:
    """Judge the pairs of a table by its numeric columns."""

    def judge(self, table: pa.Table) -> tuple[Bools, Bools]:
        """Return which pairs are contradicted, and which tied; without numbers they are neither."""
        contradicted = np.zeros(table.num_rows, dtype=np.bool_)
        tied = np.zeros(table.num_rows, dtype=np.bool_)
        for better, worse in _gaps(table):
            with np.errstate(invalid="ignore"):
                contradicted |= better < worse
                tied |= better == worse
        return contradicted, tied & ~contradicted


def _gaps(table: pa.Table) -> list[tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]]:
    """Return the numbers of chosen and rejected for each pair of columns; higher is better."""
    found = []
    for name in table.column_names:
        other = name.replace("chosen", "rejected")
        if other == name or other not in table.column_names:
            continue
        is_rank, is_score = RANKS.search(name), SCORES.search(name)
        chosen, rejected = _numbers(table[name]), _numbers(table[other])
        if chosen is None or rejected is None or not (is_rank or is_score):
            continue
        found.append((-chosen, -rejected) if is_rank else (chosen, rejected))
    named = [name for name in ("margin", carried("margin")) if name in table.column_names]
    margins = [margin for name in named if (margin := _numbers(table[name])) is not None]
    return [*found, *((margin, np.zeros_like(margin)) for margin in margins)]


def _numbers(column: pa.ChunkedArray) -> npt.NDArray[np.float64] | None:
    """Return a column's numbers, NaN for null; None where it holds something else."""
    if pa.types.is_string(column.type) or pa.types.is_large_string(column.type):
        is_number = pc.match_substring_regex(column, r"^\s*-?\d+(\.\d+)?([eE][-+]?\d+)?\s*$")
        if not pc.any(is_number).as_py():
            return None
        column = pc.if_else(
            is_number, pc.utf8_trim_whitespace(column), pa.scalar(None, column.type)
        )
    elif not (pa.types.is_integer(column.type) or pa.types.is_floating(column.type)):
        return None
    numbers: npt.NDArray[np.float64] = pc.cast(column, pa.float64()).to_numpy()
    return numbers
