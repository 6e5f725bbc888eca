"""Masks of rows that are tokens already: labels, and the windows of strided EBFT."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from fmtkit.counting.anchors import AnchorRule, row_anchors
from fmtkit.inspection.masked import Ints, Masked
from fmtkit.tokenizers.tokens import Tokenizer


def mask_tokens(row: Mapping[str, Any], tokenizer: Tokenizer, rule: AnchorRule) -> Masked:
    """Return a row without its padding, as the collator of strided EBFT cuts it."""
    attended = np.array(row["attention_mask"], dtype=np.bool_)
    length = int(attended.sum())
    is_right = bool(attended[:length].all())
    kept = length if is_right else len(attended)
    ids = np.array(row["input_ids"][:kept], dtype=np.int64)
    labels = np.array(row["labels"][:kept], dtype=np.int64)
    anchors = row_anchors(rule, row, length) if is_right else []
    text, offsets = _spelled(ids, tokenizer)
    return Masked(
        "",
        text,
        ids,
        (labels != -100) & attended[:kept],
        offsets,
        int(row["prompt_length"]),
        "blocks",
        windows=tuple((a, a + rule.generate_max_len) for a in anchors),
        notes=_notes(is_right=is_right, has_anchors=bool(anchors)),
    )


def _notes(*, is_right: bool, has_anchors: bool) -> tuple[str, ...]:
    if not is_right:
        return ("padding stands before a token: strided EBFT refuses the row",)
    if not has_anchors:
        return ("no window fits: the row teaches by ce_coef alone",)
    return ()


def _spelled(ids: Ints, tokenizer: Tokenizer) -> tuple[str, tuple[tuple[int, int], ...]]:
    pieces = [
        tokenizer.backend.decode([number], skip_special_tokens=False) for number in ids.tolist()
    ]
    ends = np.cumsum([len(piece) for piece in pieces], dtype=np.int64).tolist()
    return "".join(pieces), tuple(zip([0, *ends[:-1]], ends, strict=False))
