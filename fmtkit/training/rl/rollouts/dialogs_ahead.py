"""Prefetch of complete conversations with tools or environments: TRL's own loop, on a copy of the trainer.

The thread runs TRL's own code: it chooses and resets environments, requests answers from the server,
calls tools and requests again. Its copy of the trainer has its own tokenizer, metrics and environments, and
no weights are transferred between two turns of a conversation. The main thread takes the conversations when
their batch trains, and the environments with them, since rewards may use those.
"""

import copy
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from types import SimpleNamespace
from typing import Any

from trl.trainer.grpo_trainer import GRPOTrainer

from fmtkit.core.data_classes import dataclass
from fmtkit.training.building.callbacks import TrainingError
from fmtkit.training.rl.rollouts.contract import RolloutError, in_one_line

Rows = Sequence[dict[str, Any]]
Pool = dict[Any, list[Any]]


@dataclass(frozen=True)
class Prefetched:
    """Finished conversations: the trainer copy that ran them, its prompts, and what `_generate` returned."""

    trainer: Any
    prompts: list[Any]
    answers: tuple[Any, ...]
    tokens: int


class _End(Exception):  # noqa: N818 - carries the dialogs out of TRL's method; not an error
    """End TRL's method once the conversations have ended, before they are scored."""

    def __init__(self, prompts: list[Any], answers: tuple[Any, ...]) -> None:
        super().__init__()
        self.prompts = prompts
        self.answers = answers


class DialogGeneration:
    """Conversations of a trainer with tools or environments, in one process that asks a vLLM server."""

    def __init__(self, trainer: Any) -> None:
        self.processing_class = copy.deepcopy(trainer.processing_class)
        self.free: list[Pool] = []
        """Environments that no batch uses any longer, for reuse."""

    def prepare(self, trainer: Any, prompts: list[Any], rows: Rows) -> Callable[[], Any] | None:
        """Return the job that runs the conversations of these rows."""
        del prompts
        return partial(_prefetch, self._copy(trainer), rows)

    @contextmanager
    def scoring(self, trainer: Any, wait: Callable[[], Any]) -> Iterator[None]:
        """Prevent TRL from resetting environments while it scores finished conversations."""
        factories, before = trainer.environment_factories, trainer.environments
        # TRL would draw and reset environments for this batch; `generate` puts it back.
        trainer.environment_factories, trainer.environments = None, None
        try:
            yield
        finally:
            trainer.environment_factories = factories
            if factories is None:
                trainer.environments = before
            else:
                # Their rewards have been read; they are no longer used.
                self.free.append(wait().trainer._environment_pool)

    def generate(
        self, trainer: Any, prompts: list[Any], wait: Callable[[], Any], usual: Callable[..., Any]
    ) -> Any:
        """Return what TRL's `_generate` returned in the thread; raises what was raised there."""
        del usual
        prefetched: Prefetched = wait()
        if trainer.state.global_step != trainer._last_loaded_step:
            # As TRL does before it generates: the next conversations use these weights.
            trainer.vllm_generation.sync_weights()
            trainer._last_loaded_step = trainer.state.global_step
        for name in ("environment_factories", "environments", "_batch_environments"):
            if hasattr(prefetched.trainer, name):
                setattr(trainer, name, getattr(prefetched.trainer, name))
        # TRL continues with this list, which by now has what environments returned at their reset.
        prompts[:] = prefetched.prompts
        metrics = trainer._metrics["train"]
        for name, values in prefetched.trainer._metrics["train"].items():
            metrics[name].extend(values)
        trainer.state.num_input_tokens_seen += prefetched.tokens
        metrics["num_tokens"] = [trainer.state.num_input_tokens_seen]
        return prefetched.answers

    def _copy(self, trainer: Any) -> Any:
        """Return a copy of the trainer that may run in a thread, with the current settings."""
        copied = copy.copy(trainer)
        copied.processing_class = self.processing_class
        copied._tokenizer = getattr(self.processing_class, "tokenizer", self.processing_class)
        copied.state = copy.copy(trainer.state)
        # It must not see that the main thread evaluates.
        copied.model = SimpleNamespace(training=True, config=trainer.model.config)
        copied.vllm_generation = copy.copy(trainer.vllm_generation)
        copied._last_loaded_step = copied.state.global_step
        copied._metrics = {"train": defaultdict(list), "eval": defaultdict(list)}
        if trainer.environment_factories is not None:
            fresh: Pool = {name: [] for name in trainer.environment_factories}
            copied._environment_pool = self.free.pop() if self.free else fresh
        return copied


def _prefetch(copied: Any, rows: Rows) -> Prefetched:
    """Run the conversations of some rows; raise RolloutError for an error of the user's code."""
    before = copied.state.num_input_tokens_seen

    def generate(prompts: list[Any]) -> None:
        raise _End(list(prompts), GRPOTrainer._generate(copied, prompts))

    # In place of the method: TRL's own code sets everything up and calls it.
    copied._generate = generate
    try:
        GRPOTrainer._generate_and_score_completions(copied, list(rows))
    except _End as end:
        tokens = copied.state.num_input_tokens_seen - before
        return Prefetched(copied, end.prompts, end.answers, tokens)
    except TrainingError:
        raise
    except Exception as error:
        raise RolloutError(f"a prefetched conversation raised {in_one_line(error)}") from error
    raise AssertionError("TRL scored a batch without generating")
