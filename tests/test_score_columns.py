"""Scores are read from the bytes of rows as the strict parser would read them."""

import json

import numpy as np
import pyarrow as pa
import pytest

from fmtkit.findings.score_columns import read_scores, score_names
from fmtkit.sources.blocks import ArrowBlock, JsonBlock, RowsBlock

ROWS = [
    {"chosen": "a", "rejected": "b", "score_chosen": 3, "score_rejected": 1.5},
    {
        "chosen": '"score_chosen": 9',
        "rejected": "b",
        "score_chosen": "-2e1",
        "score_rejected": None,
    },
    {"score_rejected": 7, "chosen": "c"},
    {"score_chosen": "high", "score_rejected": True},
]
NAMES = ("score_chosen", "score_rejected")
CHOSEN, REJECTED = [3, -20, np.nan, np.nan], [1.5, np.nan, 7, np.nan]


def block(kind: str) -> JsonBlock | ArrowBlock | RowsBlock:
    if kind == "json":
        return JsonBlock("".join(json.dumps(row) + "\n\n" for row in ROWS).encode(), 1)
    if kind == "arrow":
        columns = {name: [row.get(name) for row in ROWS] for name in NAMES}
        texts = {k: [None if v is None else str(v) for v in vs] for k, vs in columns.items()}
        return ArrowBlock(pa.table(texts))
    rows = [{k: None if v is None else str(v) for k, v in row.items()} for row in ROWS]
    return RowsBlock(rows, [1, 2, 3, 4])


@pytest.mark.parametrize("kind", ["json", "arrow", "csv"])
def test_numbers_are_read_wherever_rows_come_from(kind):
    found = read_scores(block(kind), NAMES)
    np.testing.assert_array_equal(found["score_chosen"], CHOSEN)
    np.testing.assert_array_equal(found["score_rejected"], REJECTED)


def test_only_pairs_of_numbers_named_for_a_score_are_taken():
    row = {
        "score_chosen": 1, "score_rejected": "2", "chosen_rank": 1, "rejected_rank": 3,
        "chosen_score": 1, "chosen_id": 5, "rejected_id": 6, "chosen_rating": "x", "rejected_rating": 1,
    }  # fmt: skip
    assert set(score_names([row])) == {
        "score_chosen", "score_rejected", "chosen_rank", "rejected_rank",
    }  # fmt: skip
