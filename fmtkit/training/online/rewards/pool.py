"""Reward workers: processes that run reward functions on parts of a batch in parallel.

They are spawned, not forked, and do not import the main module, so that TRL and torch are not loaded in
them. A function runs in the main thread of its worker, so that it may use `signal.alarm`.
"""

import pickle
import sys
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from queue import SimpleQueue
from types import SimpleNamespace
from typing import Any

from fmtkit.core.worker import Limits, Overrun, Worker
from fmtkit.training.online.rewards.batch import NAMES, Batch, replay
from fmtkit.training.online.rewards.call_limits import RewardOptions
from fmtkit.training.online.rewards.calls import Called, Scored
from fmtkit.training.online.rewards.entries import Entry
from fmtkit.training.online.rewards.verdicts import RewardError

Spec = bytes
"""A pickled pair: folders to add to the module search path, and a pickled Entry or function."""

TARGET = "fmtkit.training.online.rewards.serving:serve"
GREETING = b""
_START = 600.0
_GRACE = 5.0
"""Seconds between the interruption of a function and the kill of its worker."""
_UNPICKLABLE = (pickle.PicklingError, AttributeError, TypeError)
_PLAIN = (int, float, str, list, dict, type(None))


def spec_of(item: Entry | Callable[..., Any], called: Called) -> Spec | None:
    """Return the specification from which a worker loads a function, or None if it cannot.

    A named function is loaded by its name. Functions of the main module do not exist in a worker.
    """
    if isinstance(item, Entry):
        return pickle.dumps(((), pickle.dumps(item)))
    module = getattr(item, "__module__", None) or type(item).__module__
    if module == "__main__":
        return None
    try:
        return pickle.dumps((_folders_of(module), pickle.dumps(called.function)))
    except _UNPICKLABLE:
        return None


def _folders_of(module: str) -> tuple[str, ...]:
    """Return the folder from which a module was loaded, if any: a worker may not have it on its path."""
    top = sys.modules.get(module.partition(".")[0])
    file = getattr(top, "__file__", None)
    if file is None:
        return ()
    path = Path(file).resolve()
    return (str(path.parents[1] if path.name == "__init__.py" else path.parent),)


class Pool:
    """A pool of workers, each of which can run every function."""

    def __init__(
        self, options: RewardOptions, specs: Mapping[int, Spec], called: Mapping[int, Called]
    ) -> None:
        """Start the workers in the background."""
        self.workers = options.workers
        self._called = called
        setup = {
            "seconds": options.seconds,
            "retries": options.retries,
            "masks": options.masks,
            "functions": {
                str(index): [called[index].label, spec.hex()] for index, spec in specs.items()
            },
        }
        # If a batch fails, its halves get the same time again, and so does each retry.
        tries = (1 + options.retries) * (2 if options.masks else 1)
        limits = Limits(
            seconds=options.seconds * tries + _GRACE * tries, memory=None, start_seconds=_START
        )
        self._all = [Worker(TARGET, setup, limits) for _ in range(options.workers)]
        self._idle: SimpleQueue[Worker] = SimpleQueue()
        for worker in self._all:
            self._idle.put(worker)
        self._threads = ThreadPoolExecutor(options.workers)
        self._asked = [self._threads.submit(self._ask, GREETING) for _ in self._all]
        self._starts = list(self._asked)
        self._warned = False

    def takes(self, batch: Batch) -> bool:
        """Return whether a batch can be sent to a worker; environments cannot."""
        return "environments" not in batch.columns

    def run(self, index: int, parts: Sequence[Batch]) -> list[Scored]:
        """Return the rewards of all parts, in order, and log what the function logged."""
        items = self._items(index, parts)
        if items is None:
            return [self._called[index].scored(part) for part in parts]
        while self._starts:
            self._starts.pop().result()
        self._asked = asked = [self._threads.submit(self._ask, item) for item in items]
        outcomes: list[Scored] = []
        try:
            for part, answer in zip(parts, asked, strict=True):
                outcomes.append(self._outcome(index, part, answer))
        except RewardError:
            # The other parts are not needed, and this process could not exit before they end.
            self.close()
            raise
        return outcomes

    def close(self) -> None:
        """Kill the workers; a later call starts them again."""
        for answer in self._asked:
            answer.cancel()
        for worker in self._all:
            worker.kill()

    def _ask(self, item: bytes) -> bytes | Overrun:
        worker = self._idle.get()
        try:
            return worker.answer([item])[0]
        finally:
            self._idle.put(worker)

    def _outcome(self, index: int, part: Batch, answer: "Future[bytes | Overrun]") -> Scored:
        """Return a part's rewards, or raise the worker's error."""
        outcome = answer.result()
        label = self._called[index].label
        if isinstance(outcome, Overrun):
            reason = (
                f"reward {label}: a reward worker failed ({outcome.message}) on {len(part)} "
                "completions; see trl.reward_timeout, and `fmtkit rewards test`"
            )
            if self._called[index].masks:
                return Scored.lost(len(part), reason, time.perf_counter())
            raise RewardError(reason)
        # A worker runs only functions that the user chose, which could run in this process too.
        kind, first, second = pickle.loads(outcome)  # noqa: S301
        if kind == "failed":
            raise RewardError(first, second)
        replay(part.context, second)
        scored: Scored = first
        return scored

    def _items(self, index: int, parts: Sequence[Batch]) -> list[bytes] | None:
        """Return the parts as bytes, or None if a column cannot be pickled."""
        try:
            return [pickle.dumps((index, replace(part, context=_light(part)))) for part in parts]
        except _UNPICKLABLE as error:
            if not self._warned:
                self._warned = True
                warnings.warn(
                    f"reward {self._called[index].label}: {error}: the batch cannot be sent to "
                    "reward_num_workers; it is scored in the training process",
                    stacklevel=2,
                )
            return None


def _light(part: Batch) -> dict[str, Any]:
    """Return the context without logging functions, and the trainer's state as plain values."""
    context = {name: None if name in NAMES else value for name, value in part.context.items()}
    state = context.get("trainer_state")
    if hasattr(state, "__dict__"):
        plain = {n: v for n, v in vars(state).items() if isinstance(v, _PLAIN)}
        context["trainer_state"] = SimpleNamespace(**plain)
    return context
