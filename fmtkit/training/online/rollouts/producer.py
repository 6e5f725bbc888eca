"""Prefetch: the answers to batch k+1 are generated while batch k trains.

An iterator reads some batches ahead of the trainer, and one thread generates, batch after batch; rewards,
log-probabilities and advantages stay on the main thread with the weights of that step. Answers are
`depth` generation batches old when they are trained.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from queue import SimpleQueue
from threading import RLock, Thread
from typing import Any, Protocol

from fmtkit.core.data_classes import dataclass
from fmtkit.training.online.rollouts.generation import agreed, prompts_of


class LookAhead:
    """Numbers the batches of a run over all its epochs, and returns those to come.

    TRL repeats each generation batch `steps_per_generation * num_iterations` times, one for each
    micro-batch, so the batch of the next generation is that many further on.
    """

    def __init__(self, ahead: int) -> None:
        self.ahead = ahead
        self._source: Iterator[Any] | None = None
        self._batches: dict[int, Any] = {}
        self._read = 0
        self._given = 0

    def over(self, source: Iterator[Any]) -> Iterator[Any]:
        """Iterate over an epoch's batches; the same source is continued."""
        self._source = source
        while True:
            self._fill()
            if self._given not in self._batches:
                return
            self._given += 1
            yield self._batches[self._given - 1]

    def batch(self, index: int) -> Any:
        """Return the batch with this number, or None if it is not in this epoch."""
        return self._batches.get(index)

    def forget_before(self, index: int) -> None:
        """Drop batches that were trained."""
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


JOIN_SECONDS = 5.0

Job = tuple[Callable[[], Any], "Future[Any]"]


class Worker:
    """One daemon thread: a rollout that hangs does not keep the process from ending."""

    def __init__(self, name: str) -> None:
        self.busy = RLock()
        """Held while a job runs."""
        self._jobs: SimpleQueue[Job | None] = SimpleQueue()
        self._futures: list[Future[Any]] = []
        self._thread = Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def submit(self, job: Callable[[], Any]) -> "Future[Any]":
        """Queue a job; its result or its exception is in the future."""
        future: Future[Any] = Future()
        self._futures = [other for other in self._futures if not other.done()] + [future]
        self._jobs.put((job, future))
        return future

    def close(self) -> None:
        """Cancel jobs that have not started, and wait a moment for the running one."""
        for future in self._futures:
            future.cancel()
        self._jobs.put(None)
        self._thread.join(JOIN_SECONDS)

    def _run(self) -> None:
        while (item := self._jobs.get()) is not None:
            job, future = item
            with self.busy:
                if not future.set_running_or_notify_cancel():
                    continue
                try:
                    future.set_result(job())
                except BaseException as error:  # noqa: BLE001 - raised again where it is waited for
                    future.set_exception(error)


PromptRows = Sequence[dict[str, Any]]


class Generation(Protocol):
    """How answers are made; see `fmtkit.training.online.rollouts.generation`."""

    def prepare(
        self, trainer: Any, prompts: list[Any], rows: PromptRows
    ) -> Callable[[], Any] | None: ...

    def scoring(self, trainer: Any, wait: Callable[[], Any]) -> AbstractContextManager[None]: ...

    def generate(
        self, trainer: Any, prompts: list[Any], wait: Callable[[], Any], usual: Callable[..., Any]
    ) -> Any: ...


@dataclass(frozen=True)
class Pending:
    """Answers in flight: their rows, and the step of the weights that generate them."""

    rows: PromptRows
    prompts: list[Any]
    step: int
    made: Callable[[], Any]


class Producer:
    """Requests batches ahead of time, and passes their answers to TRL when it needs them."""

    def __init__(self, trainer: Any, generation: Generation, depth: int) -> None:
        self.trainer = trainer
        self.generation = generation
        self.every = trainer.args.steps_per_generation * trainer.num_iterations
        self.depth = depth
        self.worker = Worker("fmtkit-prefetch")
        self.batches = LookAhead(self.every * depth)
        self.pending: dict[int, Pending] = {}
        self.first = trainer._step
        self.first_step: int | None = None
        self._release: Callable[[], None] = lambda: None

    @property
    def index(self) -> int:
        """Return the number of the batch that trains now, counted from the start of this run."""
        return int(self.trainer._step - self.first)

    def rows_of_now(self) -> PromptRows | None:
        """Return the rows whose answers are under way for this batch, or None."""
        pending = self.pending.get(self.index)
        return None if pending is None else pending.rows

    def scoring(self, rows: PromptRows) -> AbstractContextManager[None]:
        """Surround TRL's method that generates and scores the answers to the current rows."""
        pending = self.pending.get(self.index) if self.trainer.model.training else None
        if pending is None or pending.rows is not rows:
            return nullcontext()
        return self.generation.scoring(self.trainer, pending.made)

    def generate(self, prompts: list[Any], usual: Callable[..., Any]) -> Any:
        """Return answers made ahead; else those of TRL's `_generate`, while no job is running."""
        pending = self.pending.pop(self.index, None) if self.trainer.model.training else None
        if pending is not None and agreed(self.trainer.accelerator, pending.prompts == prompts):
            wait = partial(self._waited, pending)
            return self.generation.generate(self.trainer, prompts, wait, usual)
        with self.worker.busy:
            return usual(prompts)

    def _waited(self, pending: Pending) -> Any:
        """Return what was made, and log how long that took and how old it is."""
        started = time.perf_counter()
        output = pending.made()
        self._log("prefetch/waited_seconds", time.perf_counter() - started)
        self._log("prefetch/age_in_steps", self.trainer.state.global_step - pending.step)
        return output

    def ask_ahead(self, chosen: Callable[[PromptRows], PromptRows]) -> None:
        """Ask for the answers to the batches to come; `chosen` returns the rows that they will have."""
        now = self.index
        self.batches.forget_before(now)
        end = self._end()
        for number in range(1, self.depth + 1):
            index = now + number * self.every
            batch = self.batches.batch(index)
            # Nothing is generated for batches that the run does not reach.
            if batch is not None and index not in self.pending and index < end:
                self._ask(index, chosen(batch))

    def _end(self) -> int:
        """Return the number of batches that this run trains, if no epoch ends in a short step."""
        state = self.trainer.state
        if self.first_step is None:
            self.first_step = state.global_step
        steps: int = state.max_steps - self.first_step
        return steps * int(self.trainer.args.gradient_accumulation_steps)

    def _ask(self, index: int, rows: PromptRows) -> None:
        if "image" in rows[0] or "images" in rows[0]:
            return
        prompts = prompts_of(self.trainer, rows)
        with self.trainer.limited(rows):
            job = self.generation.prepare(self.trainer, prompts, rows)
        if job is not None:
            result = self.worker.submit(job).result
            self.pending[index] = Pending(rows, prompts, self.trainer.state.global_step, result)

    def hold_sync(self, vllm_generation: Any) -> None:
        """Delay transfers of weights while answers are generated with the previous ones."""
        before = vllm_generation.sync_weights

        def sync() -> None:
            with self.worker.busy:
                before()

        vllm_generation.sync_weights = sync
        self._release = partial(setattr, vllm_generation, "sync_weights", before)

    def _log(self, name: str, value: float) -> None:
        self.trainer._metrics["train"][name].append(value)

    def close(self) -> None:
        """Cancel what is under way."""
        self.worker.close()
        self.pending.clear()
        self._release()
