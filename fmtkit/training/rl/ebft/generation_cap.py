"""How many tokens an answer may have: as many as the batch's references suggest."""

import math
from collections.abc import Sequence

FLOOR = 64
"""References of a few words still leave room for an answer of another length."""


def generation_cap(lengths: Sequence[int], multiplier: float, longest: int) -> int:
    """Return the cap for references of these lengths; never above `longest`, the user's own."""
    wanted = min(math.ceil(max(lengths) * multiplier), longest)
    return max(wanted, min(FLOOR, longest))
