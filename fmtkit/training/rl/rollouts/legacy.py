"""The legacy rollout function: f(model, processing_class, prompts, generation_config) -> strings.

It samples from the policy in this process, so it cannot run during training, nor with vLLM.
"""

import inspect
from collections.abc import Callable
from typing import Any

import torch

from fmtkit.training.rl.rollouts.contract import RolloutError

_OLD = ("model", "processing_class", "prompts")


def is_legacy(function: Callable[..., Any]) -> bool:
    """Return whether a rollout function has the parameters of the older form."""
    try:
        names = inspect.signature(function).parameters
    except (TypeError, ValueError):
        return False
    return "model" in names and "trainer" not in names


def adapt(name: str, function: Callable[..., Any]) -> Callable[[list[Any], Any], dict[str, Any]]:
    """Return the function in TRL's form.

    Prompts are given as {"messages": ...}, plain strings as {"prompt": ...}; the returned strings are
    tokenized without special tokens, ended by the end-of-sequence token, and cut at
    max_completion_length (a cut answer has no end).
    """
    takes = inspect.signature(function).parameters

    def rollout(prompts: list[Any], trainer: Any) -> dict[str, Any]:
        given = [{"prompt": p} if isinstance(p, str) else {"messages": p} for p in prompts]
        named = {"processing_class": trainer.processing_class, "prompts": given}
        if "generation_config" in takes:
            named["generation_config"] = trainer.generation_config
        with _policy(trainer) as model, torch.no_grad():
            answers = function(model=model, **named)
        if not isinstance(answers, list) or not all(isinstance(text, str) for text in answers):
            raise RolloutError(f"{name} must return a list of strings, one for each prompt")
        prompt_ids, _, _ = trainer._tokenize_prompts(prompts)
        return {
            "prompt_ids": prompt_ids,
            "completion_ids": [_ids(text, trainer) for text in answers],
            "logprobs": None,
        }

    return rollout


def _ids(text: str, trainer: Any) -> list[int]:
    tokenizer = trainer._tokenizer
    ids: list[int] = tokenizer(text, add_special_tokens=False)["input_ids"]
    return [*ids, tokenizer.eos_token_id][: trainer.max_completion_length]


def _policy(trainer: Any) -> Any:
    """Return the context in which TRL itself samples from the policy."""
    from trl.models.utils import unwrap_model_for_generation

    return unwrap_model_for_generation(
        trainer.model_wrapped,
        trainer.accelerator,
        gather_deepspeed3_params=trainer.args.ds3_gather_for_generation,
        generation_kwargs=trainer.generation_kwargs,
        gradient_checkpointing_kwargs=trainer.args.gradient_checkpointing_kwargs,
    )
