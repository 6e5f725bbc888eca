"""What `fmtkit inspect` shows of strided EBFT's windows is what its collator makes of the rows."""

import pyarrow.parquet as pq
import pytest

pytest.importorskip("torch")

from test_inspect_anchors import RULE, chats, needs_goldens, survey_of
from test_survey import tokenizer

import fmtkit
from fmtkit.counting.anchors import read_rule
from fmtkit.runners.ebft.strided_batch import StridedCollator

__all__ = ["tokenizer"]


@needs_goldens
def test_a_shown_row_has_the_windows_that_the_collator_places(tmp_path, tokenizer):
    rows = chats(6)
    survey = survey_of(tmp_path / "chats.jsonl", rows, tokenizer, show_mask=6)
    table = fmtkit.convert(
        tmp_path / "chats.jsonl",
        "ebft_strided_chat.transform",
        tmp_path / "out.parquet",
        tokenizer=tokenizer,
        max_length=256,
    )
    assert table.rows_written == 6
    batch = StridedCollator(read_rule(RULE))(pq.read_table(tmp_path / "out.parquet").to_pylist())
    for number, shown in enumerate(survey.shown):
        (side,) = shown.sides
        size = int(batch["attention_mask"][number].sum())
        assert list(side.ids) == batch["input_ids"][number, :size].tolist()
        anchors = batch["anchors"][number][batch["valid"][number]].tolist()
        assert [start for start, _ in side.windows] == anchors
        assert {end - start for start, end in side.windows} == {4}
        trained = [place for start, end in side.trained for place in range(start, end)]
        assert trained == (batch["labels"][number] != -100).nonzero().flatten().tolist()
