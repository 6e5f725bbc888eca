"""Prefetch in two halves: what the main thread prepares, and what a second thread may run.

A thread may only generate: not with the trainer's tokenizer (fast ones refuse two users at once), no
collective of the processes, no metrics. A generation is `prepare` (main thread, all processes) -> a job
for the thread, and `generate` (main thread, all processes) -> what TRL's `_generate` returns. Those here
answer once; `conversations_ahead` runs complete conversations.
"""

import copy
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import Any

from fmtkit.training.online.rollouts.contract import RolloutFunction

PromptRows = Sequence[dict[str, Any]]
_EMPTY = [{"role": "user", "content": ""}]
Job = Callable[[], Any]


class Given(ABC):
    """Answers in the form of a rollout function, which returns what was prefetched."""

    @abstractmethod
    def finish(self, trainer: Any, wait: Callable[[], Any]) -> dict[str, Any]:
        """Return this process's answers; raise the exception of their generation, if there was one."""

    def scoring(self, trainer: Any, wait: Callable[[], Any]) -> AbstractContextManager[None]:
        """Do nothing around TRL's scoring."""
        del trainer, wait
        return nullcontext()

    def generate(
        self, trainer: Any, prompts: list[Any], wait: Callable[[], Any], usual: Callable[..., Any]
    ) -> Any:
        """Return what TRL's `_generate` returns for the answers."""
        output = self.finish(trainer, wait)
        before, trainer.rollout_func = trainer.rollout_func, lambda *_: output
        try:
            return usual(prompts)
        finally:
            trainer.rollout_func = before


class FunctionGeneration(Given):
    """The user's rollout function, run ahead of time; each process runs its own."""

    def __init__(self, function: RolloutFunction) -> None:
        self.function = function

    def prepare(self, trainer: Any, prompts: list[Any], rows: PromptRows) -> Job | None:
        """Return the call of the function on these prompts."""
        return partial(self._made, copy.deepcopy(prompts), trainer, rows)

    def _made(
        self, prompts: list[Any], trainer: Any, rows: PromptRows
    ) -> tuple[dict[str, Any], list[Any]]:
        return self.function.made(prompts, trainer, rows), prompts

    def finish(self, trainer: Any, wait: Callable[[], Any]) -> dict[str, Any]:
        """Return what the function returned; raise what it raised."""
        output, prompts = wait()
        return self.function.completed(output, prompts, trainer)


class ServerGeneration(Given):
    """Requests to a vLLM server, sent by the main process for all."""

    def prepare(self, trainer: Any, prompts: list[Any], rows: PromptRows) -> Job | None:
        """Tokenize as TRL does, and return the request; None for prompts with images."""
        del rows
        prompt_ids, images, _ = trainer._tokenize_prompts(copy.deepcopy(prompts))
        if not agreed(trainer.accelerator, images is None):
            return None
        group = trainer.num_generations
        if trainer.accelerator.num_processes == 1:
            # Copied now: a limit on the answers may have changed by the time the thread asks.
            return partial(_alone, copy.copy(trainer.vllm_generation), prompt_ids, group)
        return _together(trainer, prompt_ids, group)

    def finish(self, trainer: Any, wait: Callable[[], Any]) -> dict[str, Any]:
        """Return this process's share; raise on every process what failed on the main one."""
        if trainer.accelerator.num_processes == 1:
            output: dict[str, Any] = wait()
            return output
        from accelerate.utils import broadcast_object_list

        answer: list[Any] = [_or_error(wait) if trainer.accelerator.is_main_process else None]
        broadcast_object_list(answer, from_process=0)
        if isinstance(answer[0], BaseException):
            raise answer[0]
        per_process = len(answer[0]["prompt_ids"]) // trainer.accelerator.num_processes
        start = trainer.accelerator.process_index * per_process
        return {name: values[start : start + per_process] for name, values in answer[0].items()}


def prompts_of(trainer: Any, rows: PromptRows) -> list[Any]:
    """Return the prompts of some rows: with environments, an empty one if a row has none, as in TRL."""
    if trainer.environment_factories is None:
        return [row["prompt"] for row in rows]
    return [row.get("prompt", _EMPTY) for row in rows]


def agreed(accelerator: Any, here: bool) -> bool:
    """Return whether something holds on every process; a collective call."""
    if accelerator.num_processes == 1:
        return here
    from accelerate.utils import gather_object

    return all(gather_object([here]))


def _alone(vllm: Any, prompt_ids: list[list[int]], group: int) -> dict[str, Any]:
    """Call TRL's own generation: with one process its gathering does nothing."""
    _, completion_ids, logprobs, _ = vllm.generate(
        prompts=prompt_ids, images=None, num_generations=group
    )
    return _flat(prompt_ids, completion_ids, logprobs)


def _together(trainer: Any, prompt_ids: list[list[int]], group: int) -> Job:
    """Gather the prompts now; the main process's job queries the server for all of them."""
    from accelerate.utils import gather_object

    every = gather_object(prompt_ids)
    if not trainer.accelerator.is_main_process:
        return dict
    vllm = trainer.vllm_generation
    wanted = {
        "n": group,
        "repetition_penalty": vllm.repetition_penalty,
        "temperature": vllm.temperature,
        "top_p": vllm.top_p,
        "top_k": vllm.top_k,
        "min_p": vllm.min_p or 0.0,
        "max_tokens": vllm.max_completion_length,
        "logprobs": vllm.logprobs,
        "structured_outputs_regex": vllm.structured_outputs_regex,
        "generation_kwargs": vllm.generation_kwargs,
    }

    def ask() -> dict[str, Any]:
        # Groups are together over all processes, so every group-th prompt is a new one.
        output = vllm.vllm_client.generate(prompts=every[::group], **wanted)
        return _flat(every, output["completion_ids"], output["logprobs"])

    return ask


def _flat(
    prompt_ids: list[list[int]], completion_ids: list[list[int]], logprobs: list[list[list[float]]]
) -> dict[str, Any]:
    """Keep the sampled token's log-probability of each position: the first, as TRL does."""
    return {
        "prompt_ids": prompt_ids,
        "completion_ids": completion_ids,
        "logprobs": [[position[0] for position in answer] for answer in logprobs],
    }


def _or_error(wait: Callable[[], Any]) -> Any:
    try:
        return wait()
    except Exception as error:  # noqa: BLE001 - raised by every process, after they agree on it
        return error
