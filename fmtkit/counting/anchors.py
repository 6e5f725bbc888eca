"""Anchors of strided EBFT: the positions in a document at which regenerated blocks begin.

A block at anchor a replaces tokens a…a+G−1, given all tokens before a (arXiv 2603.12248, strided
sampling). Nothing here needs torch: the trainer's collator places anchors while it pads, and `inspect`
shows the same ones.
"""

from collections.abc import Mapping, Sequence
from dataclasses import fields
from typing import Any

from fmtkit.core.data_classes import dataclass
from fmtkit.core.errors import ColumnMismatchError, OptionError, UnknownNameError

Row = Mapping[str, Any]


@dataclass(frozen=True)
class AnchorRule:
    """The rule for the positions of anchors; lengths are in tokens."""

    stride: int = 8
    context_length: int = 8
    generate_max_len: int = 8
    min_completion_prefix: int = 0

    def first(self, prompt_length: int) -> int:
        """Return the first position at which a block may begin: after the prompt and the shortest context."""
        return max(prompt_length + self.min_completion_prefix, self.context_length)


def read_rule(values: Mapping[str, object]) -> AnchorRule:
    """Read keys of a config's `ebft:` as numbers; raises OptionError or UnknownNameError."""
    known = [entry.name for entry in fields(AnchorRule)]
    read: dict[str, int] = {}
    for key, value in values.items():
        if key not in known:
            raise UnknownNameError("key of ebft that places anchors", key, known)
        least = 0 if key == "min_completion_prefix" else 1
        text = str(value)
        if not text.isdecimal() or int(text) < least:
            raise OptionError(f"ebft.{key} is {text}; it takes a whole number of at least {least}")
        read[key] = int(text)
    return AnchorRule(**read)


def anchor_positions(
    rule: AnchorRule, length: int, prompt_length: int, mask: Sequence[int] | None = None
) -> list[int]:
    """Return the anchors of a document of `length` tokens without padding.

    With a mask (1 where generated windows may be), windows that are not completely inside are left out.
    """
    last = length - rule.generate_max_len
    candidates = range(rule.first(prompt_length), last + 1, rule.stride)
    if mask is None:
        return list(candidates)
    return [a for a in candidates if all(mask[a : a + rule.generate_max_len])]


def row_anchors(rule: AnchorRule, row: Row, length: int) -> list[int]:
    """Return the anchors of a row of a Tokens table that has `length` tokens."""
    prompt = row.get("prompt_length")
    if prompt is None:
        prompt = first_label(row.get("labels"))
    return anchor_positions(rule, length, prompt, row.get("anchor_mask"))


def token_count(row: Row, number: int) -> int:
    """Return the tokens of a row that are not padding; raises if padding comes before them."""
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


def first_label(labels: Sequence[int] | None) -> int:
    """Return the first token that is trained on; 0 without labels, the length if none is trained on."""
    if labels is None:
        return 0
    return next((i for i, label in enumerate(labels) if label != -100), len(labels))
