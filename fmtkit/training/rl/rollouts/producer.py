"""Prefetch: the answers to batch k+1 are made while batch k trains.

One thread generates, batch after batch; rewards, log-probabilities and advantages stay on the main
thread with the weights of then. Answers are `depth` generation batches old when they are trained.
"""

import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol

from fmtkit.training.rl.rollouts.ahead import LookAhead
from fmtkit.training.rl.rollouts.generation import agreed
from fmtkit.training.rl.rollouts.worker import Worker

Rows = Sequence[dict[str, Any]]


class Generation(Protocol):
    """How answers are made; see `fmtkit.training.rl.rollouts.generation`."""

    def prepare(self, trainer: Any, prompts: list[Any], rows: Rows) -> Callable[[], Any] | None: ...

    def scoring(self, trainer: Any, made: Callable[[], Any]) -> AbstractContextManager[None]: ...

    def generate(
        self, trainer: Any, prompts: list[Any], made: Callable[[], Any], usual: Callable[..., Any]
    ) -> Any: ...


@dataclass(frozen=True)
class Pending:
    """Answers under way: the rows that they are for, and the step whose weights make them."""

    rows: Rows
    prompts: list[Any]
    step: int
    made: Callable[[], Any]


class Producer:
    """Asks for batches ahead of time, and hands their answers to TRL when their turn comes."""

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

    def rows_of_now(self) -> Rows | None:
        """Return the rows whose answers are under way for this batch, or None."""
        pending = self.pending.get(self.index)
        return None if pending is None else pending.rows

    def scoring(self, rows: Rows) -> AbstractContextManager[None]:
        """Surround TRL's method that makes and scores the answers to the rows of now."""
        pending = self.pending.get(self.index) if self.trainer.model.training else None
        if pending is None or pending.rows is not rows:
            return nullcontext()
        return self.generation.scoring(self.trainer, pending.made)

    def generate(self, prompts: list[Any], usual: Callable[..., Any]) -> Any:
        """Return answers made ahead; else those of TRL's `_generate`, with nothing under way beside it."""
        pending = self.pending.pop(self.index, None) if self.trainer.model.training else None
        if pending is not None and agreed(self.trainer.accelerator, pending.prompts == prompts):
            made = partial(self._waited, pending)
            return self.generation.generate(self.trainer, prompts, made, usual)
        with self.worker.busy:
            return usual(prompts)

    def _waited(self, pending: Pending) -> Any:
        """Return what was made, and log how long that took and how old it is."""
        started = time.perf_counter()
        output = pending.made()
        self._log("prefetch/waited_seconds", time.perf_counter() - started)
        self._log("prefetch/age_in_steps", self.trainer.state.global_step - pending.step)
        return output

    def ask_ahead(self, chosen: Callable[[Rows], Rows]) -> None:
        """Ask for the answers to the batches to come; `chosen` returns the rows that they will have."""
        now = self.index
        self.batches.forget_before(now)
        end = self._end()
        for number in range(1, self.depth + 1):
            index = now + number * self.every
            batch = self.batches.batch(index)
            # Nothing is made for batches that the run does not come to.
            if batch is not None and index not in self.pending and index < end:
                self._ask(index, chosen(batch))

    def _end(self) -> int:
        """Return the number of batches that this run trains, if no epoch ends in a short step."""
        state = self.trainer.state
        if self.first_step is None:
            self.first_step = state.global_step
        steps: int = state.max_steps - self.first_step
        return steps * int(self.trainer.args.gradient_accumulation_steps)

    def _ask(self, index: int, rows: Rows) -> None:
        if "image" in rows[0] or "images" in rows[0]:
            return
        prompts = [row["prompt"] for row in rows]
        with self.trainer.limited(rows):
            job = self.generation.prepare(self.trainer, prompts, rows)
        if job is not None:
            made = self.worker.submit(job).result
            self.pending[index] = Pending(rows, prompts, self.trainer.state.global_step, made)

    def hold_sync(self, vllm_generation: Any) -> None:
        """Let no weights go out while answers are made with those of before."""
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
