"""Batches of strided EBFT: documents padded to the longest of the batch, and their anchors."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from fmtkit.errors import ColumnMismatchError, OptionError
from fmtkit.training.rl.ebft.anchors import AnchorRule, anchor_positions

Row = Mapping[str, Any]

PLACEHOLDER = 1
"""Where a block lies that only fills its batch; it is generated, and counts nowhere."""


@dataclass(frozen=True)
class StridedCollator:
    """Turn rows of a Tokens table into tensors; what is missing follows from the labels."""

    rule: AnchorRule

    def __call__(self, rows: Sequence[Row]) -> dict[str, Tensor]:
        """Return input_ids, attention_mask and labels (B, S), anchors and valid (B, K), K ≥ 1."""
        # Nothing ever looks at the padding, so any id does.
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


def token_count(row: Row, number: int) -> int:
    """Return the tokens of a row that are no padding; raises if padding stands before them."""
    mask = row.get("attention_mask")
    if mask is None:
        return len(row["input_ids"])
    length = int(sum(mask))
    if not all(mask[:length]):
        raise ColumnMismatchError(
            f"row {number}: attention_mask has padding before a token; strided EBFT takes rows "
            "that are padded on the right, or not at all"
        )
    return length


def row_anchors(rule: AnchorRule, row: Row, length: int) -> list[int]:
    """Return the anchors of a row of `length` tokens."""
    prompt = row.get("prompt_length")
    if prompt is None:
        prompt = first_label(row.get("labels"))
    return anchor_positions(rule, length, prompt, row.get("anchor_mask"))


def first_label(labels: Sequence[int] | None) -> int:
    """Return the first token that is learnt; 0 without labels, the length if none is learnt."""
    if labels is None:
        return 0
    return next((i for i, label in enumerate(labels) if label != -100), len(labels))


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
            f"needs ebft.generate_max_len ({rule.generate_max_len}) tokens behind the prompt or "
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
