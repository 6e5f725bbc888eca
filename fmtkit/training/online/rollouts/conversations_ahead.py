"""Prefetch of complete conversations with tools or environments, by TRL's own loop in a second thread.

The thread uses TRL's code that runs conversations, with only the trainer's attributes that this code reads.
An attribute that a later TRL adds is therefore missing there, not shared by two threads. No weights are
transferred between two turns of a conversation. The main thread takes the conversations when their batch
trains, together with their environments, which rewards may use.
"""

import copy
import inspect
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from types import SimpleNamespace
from typing import Any

from trl.trainer.grpo_trainer import GRPOTrainer

from fmtkit.core.data_classes import dataclass
from fmtkit.training.building.callbacks import TrainingError
from fmtkit.training.online.rollouts.contract import RolloutError, in_one_line
from fmtkit.training.online.rollouts.generation import prompts_of

PromptRows = Sequence[dict[str, Any]]
Pool = dict[Any, list[Any]]

_READ = (
    *("accelerator", "args", "chat_template", "chat_template_kwargs", "environment_factories"),
    *("eos_token_ids", "max_completion_length", "max_tool_calling_iterations", "num_generations"),
    *("rollout_func", "tools", "use_vllm", "vllm_mode", "_is_vlm"),
)
"""Attributes of the trainer that conversations read and do not set."""
_READ_IF_THERE = ("async_loop", "_env_tools", "_multi_environment", "_standalone_tools")
"""Attributes that TRL sets only for tools, for asynchronous tools, or for environments."""
_NOT_TOOLS = frozenset({"reset", "get_reward"})


class ConversationRunner(GRPOTrainer):
    """TRL's loop over the turns of some conversations, without a model: a vLLM server writes the replies."""

    # TRL annotates these as unions of many types, or not at all.
    environment_factories: Any
    environments: Any
    model: Any
    processing_class: Any

    def __init__(self, trainer: Any, tokenizer: Any, pool: Pool) -> None:
        """Take the attributes that conversations read; tokenizer and pool are for this thread alone."""
        # TRL's own __init__ would create a second trainer, with model, optimizer and data.
        for name in (*_READ, *(one for one in _READ_IF_THERE if hasattr(trainer, one))):
            setattr(self, name, getattr(trainer, name))
        self.processing_class = tokenizer
        self._tokenizer = getattr(tokenizer, "tokenizer", tokenizer)
        self.state = copy.copy(trainer.state)
        # Always in training mode, also while the main thread evaluates.
        self.model = SimpleNamespace(training=True, config=trainer.model.config)
        # A copy: the main thread may change the limit on answers before this thread sends its requests.
        self.vllm_generation = copy.copy(trainer.vllm_generation)
        self._last_loaded_step = self.state.global_step
        self._metrics: Any = {"train": defaultdict(list)}
        self.pool = pool
        self.environments = None
        self._batch_environments: list[Any] = []

    def run(self, rows: PromptRows) -> tuple[list[Any], tuple[Any, ...]]:
        """Return the prompts of some rows, and what TRL's `_generate` returns for them.

        The steps before `_generate` are those of TRL's `_generate_and_score_completions`: draw and reset the
        environments, and collect the tools of each conversation.
        """
        prompts = prompts_of(self, rows)
        if self.environment_factories is not None:
            several = self._multi_environment
            self._batch_environments = [row.get("environment") if several else None for row in rows]
            self.environments = self._drawn()
        if self.tools:
            tools = [self._tools_of(number) for number in range(len(rows))]
            waits = inspect.iscoroutinefunction
            self._sync_tool_dicts = [
                {n: t for n, t in one.items() if not waits(t)} for one in tools
            ]
            self._async_tool_dicts = [{n: t for n, t in one.items() if waits(t)} for one in tools]
        for number, environment in enumerate(self.environments or ()):
            given = rows[number]
            if self._multi_environment:
                given = {name: value for name, value in given.items() if name != "environment"}
            prompts[number] = _observed(prompts[number], environment.reset(**given))
        return prompts, self._generate(prompts)

    def _drawn(self) -> list[Any]:
        """Return an environment for each row: one that is free, or a new one."""
        factories, drawn = self.environment_factories, list[Any]()
        taken: dict[Any, int] = defaultdict(int)
        for name in self._batch_environments:
            if name not in factories:
                raise ValueError(
                    f"environment {name!r} is not one of {', '.join(map(str, factories))}"
                )
            free = self.pool.setdefault(name, [])
            if taken[name] == len(free):
                free.append(factories[name]())
            drawn.append(free[taken[name]])
            taken[name] += 1
        return drawn

    def _tools_of(self, number: int) -> dict[str, Any]:
        """Return the tools of a conversation by name: the run's, and its environment's methods."""
        methods = []
        if self.environments:
            environment = self.environments[number]
            named = inspect.getmembers(type(environment), inspect.isfunction)
            methods = [
                getattr(environment, name)
                for name, _ in named
                if name not in _NOT_TOOLS and not name.startswith("_")
            ]
        return {tool.__name__: tool for tool in (*self._standalone_tools, *methods)}


def _observed(prompt: Any, observation: Any) -> Any:
    """Return a prompt with an environment's first observation appended to the content of its last message."""
    if observation is None:
        return prompt
    content = prompt[-1]["content"]
    if isinstance(observation, list) and isinstance(content, str):
        content = [{"type": "text", "text": content}]
    if isinstance(observation, str) and isinstance(content, list):
        observation = [{"type": "text", "text": observation}]
    # A new message: the row itself must not change.
    return [*prompt[:-1], {**prompt[-1], "content": content + observation}]


@dataclass(frozen=True)
class Prefetched:
    """Finished conversations: their runner, their prompts, and what `_generate` returned."""

    runner: ConversationRunner
    prompts: list[Any]
    answers: tuple[Any, ...]
    tokens: int


class ConversationGeneration:
    """Generation of whole conversations with tools or environments, in a training of one process."""

    def __init__(self, trainer: Any) -> None:
        self.processing_class = copy.deepcopy(trainer.processing_class)
        self.free: list[Pool] = []
        """Environments that no batch uses any longer."""

    def prepare(
        self, trainer: Any, prompts: list[Any], rows: PromptRows
    ) -> Callable[[], Any] | None:
        """Return the job that runs the conversations of these rows."""
        del prompts
        pool = self.free.pop() if self.free else {}
        return partial(_prefetch, ConversationRunner(trainer, self.processing_class, pool), rows)

    @contextmanager
    def scoring(self, trainer: Any, wait: Callable[[], Any]) -> Iterator[None]:
        """Prevent TRL from resetting environments while it scores finished conversations."""
        factories, before = trainer.environment_factories, trainer.environments
        # Without factories TRL creates and resets no environments here; `generate` restores both attributes.
        trainer.environment_factories, trainer.environments = None, None
        try:
            yield
        finally:
            trainer.environment_factories = factories
            if factories is None:
                trainer.environments = before
            else:
                # Their rewards have been read; they are no longer used.
                self.free.append(wait().runner.pool)

    def generate(
        self, trainer: Any, prompts: list[Any], wait: Callable[[], Any], usual: Callable[..., Any]
    ) -> Any:
        """Return what TRL's `_generate` returned in the thread, or raise the exception of the thread."""
        del usual
        prefetched: Prefetched = wait()
        if trainer.state.global_step != trainer._last_loaded_step:
            # As TRL does before it generates: the next conversations use these weights.
            trainer.vllm_generation.sync_weights()
            trainer._last_loaded_step = trainer.state.global_step
        ran = prefetched.runner
        trainer.environment_factories, trainer.environments = (
            ran.environment_factories,
            ran.environments,
        )
        trainer._batch_environments = ran._batch_environments
        # TRL continues with this list, so the prompts with the observations are put into it.
        prompts[:] = prefetched.prompts
        metrics = trainer._metrics["train"]
        for name, values in ran._metrics["train"].items():
            metrics[name].extend(values)
        trainer.state.num_input_tokens_seen += prefetched.tokens
        metrics["num_tokens"] = [trainer.state.num_input_tokens_seen]
        return prefetched.answers


def _prefetch(runner: ConversationRunner, rows: PromptRows) -> Prefetched:
    """Run the conversations of some rows; raise RolloutError for an error of the user's code."""
    before = runner.state.num_input_tokens_seen
    try:
        prompts, answers = runner.run(rows)
    except TrainingError:
        raise
    except Exception as error:
        raise RolloutError(f"a prefetched conversation raised {in_one_line(error)}") from error
    tokens = runner.state.num_input_tokens_seen - before
    return Prefetched(runner, prompts, answers, tokens)
