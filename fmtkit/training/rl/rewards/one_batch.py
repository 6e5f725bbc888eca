"""Batches for which every reward function returned None: they are skipped and counted."""

import threading
import warnings
from collections.abc import Callable, Sequence
from typing import Any

from fmtkit.training.rl.rewards.verdicts import RewardError, Value

SKIPPED = "rewards/skipped_batches"
"""The metric that counts batches without a reward, from the first one on."""


class OneBatch:
    """Collects the functions' answers to the batch at hand, which is known by its completions."""

    def __init__(self, labels: Sequence[str]) -> None:
        """Take the functions that answer, each by the name of the configuration."""
        self._labels = tuple(labels)
        self._lock = threading.Lock()
        self._completions: Any = None
        self._silent: dict[int, bool] = {}
        self.seen = 0
        """Batches that all functions have answered."""
        self.is_fatal = False
        """Whether a batch without a reward is an error: the trainer would learn from it all the same."""
        self.skipped = 0
        """Those of them for which all functions said None."""

    def add(
        self,
        index: int,
        completions: Any,
        values: Sequence[Value],
        log_metric: Callable[[str, float], None] | None = None,
    ) -> None:
        """Take a function's answer; count the batch if it is the last and there is no reward.

        TRL gives such answers no advantage and goes on; so does a run of ours, which says so once.
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
        """Return what to say of the batches of all processes; raise RewardError if none had a reward."""
        if skipped and skipped == seen:
            raise RewardError(
                f"no batch of this run had a reward: the functions said None for all {seen}; have the "
                "rows a reference? `fmtkit rewards test` shows what each function returns"
            )
        return f"{skipped} of {seen} batches had no reward and were skipped" if skipped else None
