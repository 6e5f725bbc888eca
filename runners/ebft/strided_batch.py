"""Batches of strided EBFT: documents padded to the longest of the batch, and their anchors."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from fmtkit.core.errors import OptionError
from fmtkit.counting.anchors import AnchorRule, Row, row_anchors, token_count

PLACEHOLDER = 1
"""The place of a block that only fills its batch; it is generated but not counted."""


@dataclass(frozen=True)
class StridedCollator:
    """Turn rows of a Tokens table into tensors; what is missing follows from the labels."""

    rule: AnchorRule

    def __call__(self, rows: Sequence[Row]) -> dict[str, Tensor]:
        """Return input_ids, attention_mask and labels (B, S), anchors and valid (B, K), K ≥ 1."""
        # Nothing attends to the padding, so any id will do.
        lengths = [token_count(row, i) for i, row in enumerate(rows)]
        longest = max(lengths)
        anchors = [row_anchors(self.rule, row, n) for row, n in zip(rows, lengths, strict=True)]
        most = max(1, *map(len, anchors))
        return {
            "input_ids": _padded([r["input_ids"] for r in rows], lengths, longest, 0),
            "attention_mask": _padded([[1] * n for n in lengths], lengths, longest, 0),
            "labels": _padded([_labels(row) for row in rows], lengths, longest, -100),
            "anchors": _padded(anchors, map(len, anchors), most, PLACEHOLDER),
            "valid": _padded([[1] * len(a) for a in anchors], map(len, anchors), most, 0).bool(),
        }


def survey_rows(rule: AnchorRule, rows: Iterable[Row]) -> tuple[int, list[int]]:
    """Return the tokens of the longest row, and which rows hold no block; some row must."""
    short: list[int] = []
    number, longest = -1, 0
    for number, row in enumerate(rows):
        length = token_count(row, number)
        longest = max(longest, length)
        if not row_anchors(rule, row, length):
            short.append(number)
    if short and len(short) == number + 1:
        raise OptionError(
            f"no row is long enough for one block: the longest has {longest} tokens, and a block "
            f"needs ebft.generate_max_len ({rule.generate_max_len}) tokens after the prompt or "
            f"ebft.context_length ({rule.context_length}), within the anchor mask if there is one"
        )
    return longest, short


def _labels(row: Row) -> Sequence[int]:
    labels = row.get("labels")
    return [-100] * len(row["input_ids"]) if labels is None else labels


def _padded(
    rows: Sequence[Sequence[int]], lengths: Iterable[int], width: int, filler: int
) -> Tensor:
    out = torch.full((len(rows), width), filler, dtype=torch.long)
    for i, (row, length) in enumerate(zip(rows, lengths, strict=True)):
        out[i, :length] = torch.as_tensor(row[:length], dtype=torch.long)
    return out
