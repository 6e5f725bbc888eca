"""What a reward function returned, looked at before it becomes an advantage.

TRL turns None into "does not apply", and NaN as well: a function that is broken would train nothing,
in silence.
"""

import math
from collections.abc import Iterable, Mapping
from numbers import Real
from typing import Any

from fmtkit.training.run.callbacks import BetweenStepsError

Value = float | None


class RewardError(BetweenStepsError):
    """Name the reward function, the row, and what to do; `trace` is the user's part of a traceback."""

    def __init__(self, message: str, trace: str = "") -> None:
        super().__init__(message)
        self.trace = trace


class FinalRewardError(RewardError):
    """Say that another call would fare no better: it ends the run, however many samples may fail."""


def checked(returned: Any, count: int, label: str, first: int = 0) -> list[Value]:
    """Return the rewards as floats and Nones; raise RewardError for anything else.

    `first` is the place of the first completion in its batch.
    """
    listed = returned.tolist() if hasattr(returned, "tolist") else returned
    if not isinstance(listed, Iterable) or isinstance(listed, (str, bytes, Mapping)):
        raise RewardError(
            f"reward {label} returned {_words(returned)}; it must return a list with one number "
            f"for each of the {count} completions"
        )
    values = list(listed)
    if len(values) != count:
        raise RewardError(
            f"reward {label} returned {len(values)} rewards for {count} completions; return one "
            "for each, None where it does not apply"
        )
    return [_number(value, row, label) for row, value in enumerate(values, first)]


def _number(value: Any, row: int, label: str) -> Value:
    if value is None:
        return None
    plain = value.item() if hasattr(value, "item") and getattr(value, "ndim", 0) == 0 else value
    if not isinstance(plain, Real):
        raise RewardError(
            f"reward {label} returned {_words(value)} for completion {row}; return a number, or "
            "None where it does not apply"
        )
    number = float(plain)
    if not math.isfinite(number):
        raise RewardError(
            f"reward {label} returned {number} for completion {row}; return a finite number, or "
            "None where it does not apply"
        )
    return number


def _words(value: Any) -> str:
    text = repr(value)
    kind = type(value).__name__
    return kind if value is None or len(text) > 40 else f"{text} ({kind})"
