"""Masks of rows that are segments of text: no template writes them."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from fmtkit.inspection.masked import Masked
from fmtkit.tokenizers.segment_tokens import SegmentTokens, cut, segment_tokens
from fmtkit.tokenizers.tokens import Tokenizer


def mask_segments(
    row: Mapping[str, Any], tokenizer: Tokenizer, longest: int | None, *, everything: bool
) -> tuple[Masked, ...]:
    """Return the sequence of a row; of a document that is longer than `longest`, its parts."""
    whole = segment_tokens(row["segments"], row["ends"], tokenizer, everything=everything)
    parts = [whole]
    if row["ends"] == "document" and longest is not None:
        parts = cut(whole, longest)
    rule = "everything" if everything else "segments"
    return tuple(_masked(part, rule, number, len(parts)) for number, part in enumerate(parts, 1))


def _masked(part: SegmentTokens, rule: str, number: int, parts: int) -> Masked:
    trained = np.array(part.learnt, dtype=np.bool_)
    first = int(np.argmax(trained)) if trained.any() else len(part.ids)
    side = f"part {number} of {parts}" if parts > 1 else ""
    ids = np.array(part.ids, dtype=np.int64)
    return Masked(side, part.text, ids, trained, tuple(part.offsets), first, rule)
