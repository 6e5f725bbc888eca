"""What all functions said of one batch: where all of them say None, nothing would be learnt."""

import threading
from collections.abc import Sequence
from typing import Any

from fmtkit.training.rl.rewards.verdicts import RewardError, Value


class OneBatch:
    """Collects the functions' answers to the batch at hand, which is known by its completions."""

    def __init__(self, labels: Sequence[str]) -> None:
        """Take the functions that answer, each by the name of the configuration."""
        self._labels = tuple(labels)
        self._lock = threading.Lock()
        self._completions: Any = None
        self._silent: dict[int, bool] = {}

    def add(self, index: int, completions: Any, values: Sequence[Value]) -> None:
        """Take a function's answer; raise RewardError if it is the last and there is no reward."""
        with self._lock:
            if self._completions is not completions:
                self._completions, self._silent = completions, {}
            self._silent[index] = all(value is None for value in values)
            if len(self._silent) == len(self._labels) and all(self._silent.values()):
                raise RewardError(
                    f"every reward of this batch is None ({', '.join(self._labels)}, "
                    f"{len(values)} completions): nothing can be learnt; at least one function "
                    "must return a number (`fmtkit rewards test` shows what each returns)"
                )
