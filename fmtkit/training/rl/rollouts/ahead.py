"""A prefetching iterator: it reads some batches ahead of its consumer."""

from collections.abc import Iterator
from typing import Any


class LookAhead:
    """Numbers the batches of a run through all its epochs, and shows those to come.

    TRL repeats each generation batch `steps_per_generation * num_iterations` times, one for each
    micro-batch, so the batch of the next generation lies that many further on.
    """

    def __init__(self, ahead: int) -> None:
        self.ahead = ahead
        self._source: Iterator[Any] | None = None
        self._batches: dict[int, Any] = {}
        self._read = 0
        self._given = 0

    def over(self, source: Iterator[Any]) -> Iterator[Any]:
        """Iterate over an epoch's batches; the same source is gone on with."""
        self._source = source
        while True:
            self._fill()
            if self._given not in self._batches:
                return
            self._given += 1
            yield self._batches[self._given - 1]

    def batch(self, index: int) -> Any:
        """Return the batch of this number, or None if it is not of this epoch."""
        return self._batches.get(index)

    def forget_before(self, index: int) -> None:
        """Let go of batches that were trained."""
        for old in [number for number in self._batches if number < index]:
            del self._batches[old]

    def _fill(self) -> None:
        assert self._source is not None
        while self._read <= self._given + self.ahead:
            try:
                batch = next(self._source)
            except StopIteration:
                return
            self._batches[self._read] = batch
            self._read += 1
