"""A replay buffer of groups: those of the largest advantages, drawn for batches without any."""

import heapq
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import Generic, TypeVar

import numpy as np

Member = TypeVar("Member")


@dataclass(frozen=True, order=True)
class _Entry(Generic[Member]):
    """A group and its score; of two with one score the older counts for more."""

    score: float
    age: int
    members: tuple[Member, ...] = field(compare=False)


class ReplayBuffer(Generic[Member]):
    """The best `size` groups so far. It belongs to one process, and no checkpoint holds it."""

    def __init__(self, size: int, seed: int) -> None:
        """Begin empty; draws follow from the seed, and leave torch's generator alone."""
        self.size = size
        self._entries: list[_Entry[Member]] = []
        self._ages = count(0, -1)
        self._generator = np.random.default_rng(seed)

    def __len__(self) -> int:
        return len(self._entries)

    def add(self, members: Sequence[Member], score: float) -> None:
        """Keep a group, if its score is above zero and among the best."""
        if score <= 0:
            return
        entry = _Entry(score, next(self._ages), tuple(members))
        if len(self._entries) < self.size:
            heapq.heappush(self._entries, entry)
        else:
            heapq.heappushpop(self._entries, entry)

    def draw(self, wanted: int) -> list[tuple[Member, ...]]:
        """Draw groups by their scores, none twice; fewer where there are fewer."""
        amount = min(wanted, len(self._entries))
        if not amount:
            return []
        scores = np.array([entry.score for entry in self._entries])
        chosen = self._generator.choice(
            len(scores), size=amount, replace=False, p=scores / scores.sum()
        )
        return [self._entries[index].members for index in chosen]
