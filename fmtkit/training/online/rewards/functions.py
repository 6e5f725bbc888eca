"""Reward functions as TRL calls them: wrappers of the user's functions, with all checks."""

import asyncio
import threading
import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from fmtkit.core.foreign_calls import retried_coroutine
from fmtkit.training.online.failed_samples import Failures, processes
from fmtkit.training.online.rewards.batch import (
    Batch,
    batch_of,
    group_starts,
    groups_each,
    parts,
    recording,
    replay,
)
from fmtkit.training.online.rewards.calls import Called, Scored, excerpt
from fmtkit.training.online.rewards.pool import Pool
from fmtkit.training.online.rewards.verdicts import (
    FinalRewardError,
    OneBatch,
    RewardError,
    Value,
    checked,
)


class Cutting:
    """Cuts batches into parts of complete groups; all functions of a run share one."""

    def __init__(self, groups: int) -> None:
        """Cut after that many groups; 0 leaves batches unsplit."""
        self.groups = groups
        self.group_size: int | Callable[[], int] | None = None

    def cut(self, batch: Batch, called: Called, workers: int) -> list[Batch]:
        """Return the parts that a function is called with, one after another or side by side."""
        needs_all = getattr(called.function, "needs_full_batch", False)
        if needs_all or not len(batch) or not (self.groups or workers > 1):
            return [batch]
        size = self.group_size() if callable(self.group_size) else self.group_size
        starts = group_starts(batch.prompts, size)
        return list(parts(batch, starts, self.groups or groups_each(len(starts), workers)))


class Lengths:
    """Logs each answer's length in tokens, and whether it was cut off, as columns of TRL's answers.

    Once for a batch, after its last function, unless one of them logs columns of these names itself.
    """

    def __init__(self, ends: Collection[int], functions: int) -> None:
        """Take the tokens with which a whole answer ends, and how many functions a batch is given to."""
        self.ends = frozenset(ends)
        self.functions = functions
        self._completions: Any = None
        self._left = 0
        self._names: set[str] = set()

    def noting(self, batch: Batch) -> Batch:
        """Return a batch whose function is seen to log columns."""
        if self._completions is not batch.completions:
            self._completions, self._left, self._names = batch.completions, self.functions, set()
        log_extra = batch.context.get("log_extra")
        if log_extra is None:
            return batch

        def note(name: str, values: Sequence[Any]) -> None:
            self._names.add(name)
            log_extra(name, values)

        return replace(batch, context={**batch.context, "log_extra": note})

    def add(self, batch: Batch) -> None:
        """Log the lengths, if this is the last function of the batch."""
        self._left -= 1
        answers, log_extra = batch.completion_ids, batch.context.get("log_extra")
        if self._left or answers is None or log_extra is None:
            return
        columns: dict[str, list[Any]] = {
            "tokens": [len(answer) for answer in answers],
            "cut": [not len(answer) or answer[-1] not in self.ends for answer in answers],
        }
        for name in columns.keys() - self._names:
            log_extra(name, columns[name])


class _UserReward:
    """Base of the wrappers of a user's function: its properties, and the checks of the batch."""

    failures: "Failures | None" = None
    """Where samples that failed are kept for the trainer."""
    lengths: Lengths | None = None
    """What logs how long answers are, where the trainer does not."""

    def __init__(
        self, name: str, index: int, called: Called, cutting: Cutting, judged: OneBatch | None
    ) -> None:
        """Wrap the function under the name that TRL's metrics show."""
        self.__name__ = name
        self.index = index
        self.called = called
        self.cutting = cutting
        self.judged = judged

    @property
    def is_shaping(self) -> bool:
        """Return whether the function is a shaping reward (length, repetition), not one of the outcome."""
        return bool(getattr(self.called.function, "is_shaping", False))

    def batch_of(
        self,
        prompts: Sequence[Any],
        completions: Sequence[Any],
        completion_ids: Sequence[Any] | None = None,
        **others: Any,
    ) -> Batch:
        """Return the batch of one call of TRL's."""
        batch = batch_of(prompts, completions, completion_ids, others)
        return batch if self.lengths is None else self.lengths.noting(batch)

    def lost(self, batch: Batch, error: RewardError) -> list[Value]:
        """End the run on every process after an error: all of them raise it."""
        if self.failures is None or processes() == 1 or isinstance(error, FinalRewardError):
            raise error
        self.failures.final = self.failures.final or str(error)
        # Nothing is made of these numbers; TRL would warn of rewards that are None.
        return [0.0] * len(batch)

    def finish(self, batch: Batch, scored: Scored) -> list[Value]:
        """Return the rewards after they are recorded for the batch; keep what failed and how long it took."""
        values = scored.values
        if self.failures is not None:
            self.failures.add(scored.failed)
            descriptions = [f"completion {excerpt(one)}" for one in batch.completions]
            label = f"reward {self.called.label}"
            self.failures.timings.add(label, scored.seconds, self.called.seconds, descriptions)
        if self.lengths is not None:
            self.lengths.add(batch)
        if self.judged is not None:
            log_metric = batch.context.get("log_metric")
            self.judged.add(self.index, batch.completions, values, log_metric)
        return values


class Reward(_UserReward):
    """A function that returns its rewards; `pool` runs it in other processes."""

    pool: Pool | None = None

    def __call__(self, *rows: Any, **named: Any) -> list[Value]:
        """Return one reward for each completion; raise RewardError for whatever is wrong."""
        batch = self.batch_of(*rows, **named)
        pool = self.pool if self.pool is not None and self.pool.takes(batch) else None
        cut = self.cutting.cut(batch, self.called, pool.workers if pool else 1)
        try:
            parts = (
                pool.run(self.index, cut) if pool else [self.called.scored(part) for part in cut]
            )
        except RewardError as error:
            return self.lost(batch, error)
        return self.finish(batch, Scored.joined(parts))


class AsyncReward(_UserReward):
    """A coroutine function; it runs on its own loop, since a blocking call would stop TRL's."""

    async def __call__(self, *rows: Any, **named: Any) -> list[Value]:
        """Return one reward for each completion; raise RewardError for whatever is wrong."""
        batch = self.batch_of(*rows, **named)
        cut = self.cutting.cut(batch, self.called, 1)
        try:
            scored = await asyncio.gather(*(self._part(part, self.called.seconds) for part in cut))
        except RewardError as error:
            return self.lost(batch, error)
        return self.finish(batch, Scored.joined(scored))

    async def _part(self, batch: Batch, seconds: float) -> Scored:
        """Score a batch; if it fails and samples may fail, score each half."""
        started = time.perf_counter()
        called = self.called
        try:
            values = await retried_coroutine(partial(self._scored, batch, seconds), called.retries)
        except RewardError as error:
            if not called.masks:
                raise
            if len(batch) <= called.least(batch):
                return Scored.lost(len(batch), str(error), started)
        else:
            return Scored(values, {}, [time.perf_counter() - started] * len(batch))
        middle = len(batch) // 2
        halves = (batch.part(0, middle), batch.part(middle, len(batch)))
        return Scored.joined(await asyncio.gather(*(self._part(h, seconds / 2) for h in halves)))

    async def _scored(self, batch: Batch, seconds: float) -> list[Value]:
        context, logged = recording(batch.context)
        arguments = self.called.arguments(replace(batch, context=context))
        loop = _loop()
        running = asyncio.run_coroutine_threadsafe(self.called.function(**arguments), loop)
        try:
            returned = await asyncio.wait_for(asyncio.wrap_future(running), seconds)
        except TimeoutError as error:
            _retire(loop)
            raise self.called.overdue(len(batch)) from error
        except Exception as error:
            raise self.called.raised(error, batch, None) from error
        replay(batch.context, logged)
        return checked(returned, len(batch), self.called.label, batch.first)


class Waited:
    """A coroutine function for a trainer that does not await: it is run to completion."""

    def __init__(self, reward: AsyncReward) -> None:
        """Wrap a function under its name."""
        self.__name__ = reward.__name__
        self.reward = reward

    def __call__(self, *arguments: Any, **others: Any) -> list[Value]:
        """Return one reward for each completion."""
        return asyncio.run(self.reward(*arguments, **others))


_LOOPS: list[asyncio.AbstractEventLoop] = []


def _loop() -> asyncio.AbstractEventLoop:
    """Return the one loop on which all coroutines of users run, in its own thread."""
    if not _LOOPS:
        _LOOPS.append(asyncio.new_event_loop())
        threading.Thread(target=_LOOPS[0].run_forever, daemon=True).start()
    return _LOOPS[0]


def _retire(loop: asyncio.AbstractEventLoop) -> None:
    """Start the next coroutine on a new loop: one that did not return in time may block this one."""
    if loop in _LOOPS:
        _LOOPS.remove(loop)
