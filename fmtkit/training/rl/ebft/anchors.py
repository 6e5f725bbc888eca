"""Anchors of strided EBFT: where in a document the blocks begin that are generated anew.

A block at anchor a rewrites tokens a…a+G−1 given all tokens before a. Nothing here needs torch: the
collator places anchors while it pads, and an inspection can show them.
"""

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class AnchorRule:
    """Where anchors may lie; lengths are in tokens."""

    stride: int = 8
    context_length: int = 8
    generate_max_len: int = 8
    min_completion_prefix: int = 0

    def first(self, prompt_length: int) -> int:
        """Return the first position a block may begin at: after prompt and shortest context."""
        return max(prompt_length + self.min_completion_prefix, self.context_length)


def anchor_positions(
    rule: AnchorRule, length: int, prompt_length: int, mask: Sequence[int] | None = None
) -> list[int]:
    """Return the anchors of a document of `length` tokens without padding.

    With a mask (1 where generated windows may lie), a window that is not wholly inside is left out.
    """
    last = length - rule.generate_max_len
    candidates = range(rule.first(prompt_length), last + 1, rule.stride)
    if mask is None:
        return list(candidates)
    return [a for a in candidates if all(mask[a : a + rule.generate_max_len])]
