"""Deferred re-rolling: prompts that failed are tried again late in the run, when the model may do better."""

import json
import math
from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any

Row = Mapping[str, Any]

WAITING = 256
"""The most prompts that wait; the oldest is dropped for the newest."""


class Rerolls:
    """A queue of failed prompts. Each waits once, and is rolled again at most once.

    A prompt has failed if all answers to it have the same total reward, and that is zero or less;
    answers that no reward function applies to say nothing. A queue belongs to one process.
    """

    def __init__(self, start_fraction: float, max_groups: int) -> None:
        """Re-roll at most `max_groups` prompts in a batch, after that share of the run."""
        self.start_fraction = start_fraction
        self.max_groups = max_groups
        self.waiting: deque[Row] = deque(maxlen=WAITING)
        self._seen: set[str] = set()

    def starts(self, max_steps: int) -> int:
        """Return the first step in which prompts are re-rolled."""
        return math.ceil(self.start_fraction * max_steps)

    def injected(self, rows: Sequence[Row], group: int) -> tuple[list[dict[str, Any]], int]:
        """Replace the last groups by waiting prompts; return the rows and how many."""
        count = min(self.max_groups, len(self.waiting), len(rows) // group)
        kept = [dict(row) for row in rows[: len(rows) - count * group]]
        again = [self.waiting.popleft() for _ in range(count)]
        return kept + [dict(row) for row in again for _ in range(group)], count

    def note(self, rows: Sequence[Row], totals: Sequence[float], group: int) -> None:
        """Queue the prompts of the groups that failed; `totals` has a reward for each row."""
        for start in range(0, len(rows), group):
            if not failed(totals[start : start + group]):
                continue
            key = _key(rows[start])
            if key not in self._seen:
                self._seen.add(key)
                self.waiting.append(dict(rows[start]))


def failed(totals: Sequence[float]) -> bool:
    """Return whether all answers of a group have one reward, and it is zero or less."""
    scored = [total for total in totals if not math.isnan(total)]
    return bool(scored) and max(scored) == min(scored) <= 0


def _key(row: Row) -> str:
    return json.dumps(row.get("prompt", row), sort_keys=True, default=str)
