"""Checks of what a reward function returned, before it becomes an advantage.

TRL turns None into "does not apply", and NaN as well: a function that is broken would train nothing,
silently.
"""

import math
import threading
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from numbers import Real
from typing import Any

from fmtkit.training.building.callbacks import BetweenStepsError

Value = float | None


class RewardError(BetweenStepsError):
    """A reward function failed; the message names the row and what to do, `trace` is the user's traceback."""

    def __init__(self, message: str, trace: str = "") -> None:
        super().__init__(message)
        self.trace = trace


class FinalRewardError(RewardError):
    """A reward error that a retry would not fix: it ends the run, however many samples may fail."""


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


SKIPPED = "rewards/skipped_batches"
"""The metric that counts batches without a reward, from the first one on."""


class OneBatch:
    """Collects the functions' results for the current batch, which is identified by its completions."""

    def __init__(self, labels: Sequence[str]) -> None:
        """Take the functions of the run, by their names in the configuration."""
        self._labels = tuple(labels)
        self._lock = threading.Lock()
        self._completions: Any = None
        self._silent: dict[int, bool] = {}
        self.seen = 0
        """Batches that all functions have scored."""
        self.is_fatal = False
        """Whether a batch without a reward is an error, since the trainer would train on it anyway."""
        self.skipped = 0
        """Batches for which all functions returned None."""

    def add(
        self,
        index: int,
        completions: Any,
        values: Sequence[Value],
        log_metric: Callable[[str, float], None] | None = None,
    ) -> None:
        """Add a function's rewards; count the batch if it is the last one and there is no reward.

        TRL gives such answers no advantage and continues; so does fmtkit, which says so once.
        Raises RewardError where they are fatal.
        """
        with self._lock:
            if self._completions is not completions:
                self._completions, self._silent = completions, {}
            self._silent[index] = all(value is None for value in values)
            if len(self._silent) < len(self._labels):
                return
            self.seen += 1
            is_silent = all(self._silent.values())
            self.skipped += is_silent
            is_first = is_silent and self.skipped == 1
        if is_silent and self.is_fatal:
            raise RewardError(
                f"every reward of this batch is None ({', '.join(self._labels)}, {len(values)} "
                "completions), and this trainer cannot leave it out; at least one function must return "
                "a number (`fmtkit rewards test` shows what each returns)"
            )
        if log_metric is not None and self.skipped:
            log_metric(SKIPPED, float(self.skipped))
        if is_first:
            warnings.warn(
                f"every reward of a batch is None ({', '.join(self._labels)}, {len(values)} "
                f"completions): nothing is learned from it; {SKIPPED} counts such batches "
                "(`fmtkit rewards test` shows what each function returns)",
                stacklevel=2,
            )

    def finding(self, skipped: int, seen: int) -> str | None:
        """Return a note on the batches of all processes; raise RewardError if none had a reward."""
        if skipped and skipped == seen:
            raise RewardError(
                f"no batch of this run had a reward: the functions returned None for all {seen}; have the "
                "rows a reference? `fmtkit rewards test` shows what each function returns"
            )
        return f"{skipped} of {seen} batches had no reward and were skipped" if skipped else None
