"""Rollouts without a model, for tests and benchmarks of what stands around them.

A script answers by the prompt alone, so the answers are the same whenever they are made.
"""

import hashlib
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import tiny_training as tiny
from datasets import Dataset
from trl import GRPOConfig

from fmtkit.training.online.rollouts.trainer import RolloutTrainer
from fmtkit.training.vllm.rollout_settings import RolloutSettings

GROUP = 2


class Script:
    """A rollout function that notes what it was asked, and what happened around it.

    `pause`, if given, is called in the middle of a generation with its number.
    """

    def __init__(self, tokenizer: Any, pause: Callable[[int], None] | None = None) -> None:
        self.tokenizer = tokenizer
        self.pause = pause
        self.asked: list[list[str]] = []
        self.threads: list[str] = []
        self.events: list[str] = []

    def __call__(self, prompts: list[Any], trainer: Any) -> dict[str, Any]:
        number = len(self.asked)
        self.asked.append([text_of(prompt) for prompt in prompts])
        self.threads.append(threading.current_thread().name)
        self.events.append(f"begin {number}")
        if self.pause is not None:
            self.pause(number)
        end = self.tokenizer.eos_token_id
        answers = [[*_words(text_of(p), n), end] for n, p in enumerate(prompts)]
        self.events.append(f"end {number}")
        return {
            "prompt_ids": [self.tokenizer(text_of(p))["input_ids"] for p in prompts],
            "completion_ids": answers,
            "logprobs": [[-1.0] * len(ids) for ids in answers],
            "number": number,
        }


def text_of(prompt: Any) -> str:
    return prompt if isinstance(prompt, str) else prompt[-1]["content"]


def _words(text: str, copy: int) -> list[int]:
    """Return 1 to 5 token ids that follow from the text and the number of the copy."""
    digest = hashlib.sha256(f"{text} {copy}".encode()).digest()
    return [10 + byte % 100 for byte in digest[: 1 + digest[-1] % 5]]


def rewarded(completion_ids: list[list[int]], **_: Any) -> list[float]:
    return [float(sum(ids) % 7) for ids in completion_ids]


def rows(count: int) -> list[dict[str, Any]]:
    texts = [row["prompt"][0]["content"] for row in tiny.prompt_rows()]
    return [
        {"prompt": [{"role": "user", "content": f"{n} {texts[n % len(texts)]}"}]}
        for n in range(count)
    ]


def dataset(count: int) -> Dataset:
    return Dataset.from_list(rows(count))


def make_trainer(
    model: str,
    folder: Path,
    *,
    rollout: Any = None,
    rollouts: RolloutSettings | None = None,
    count: int = 48,
    kind: type[RolloutTrainer] = RolloutTrainer,
    more: dict[str, Any] | None = None,
    **arguments: Any,
) -> RolloutTrainer:
    """Make a trainer over some prompts, two to a batch, two answers to each."""
    given = {
        "max_steps": 4,
        "per_device_train_batch_size": 4,
        "num_generations": GROUP,
        "max_completion_length": 8,
        "logging_steps": 1,
        "learning_rate": 1e-3,
        "save_strategy": "no",
        "bf16": False,
        "use_cpu": True,
        "disable_tqdm": True,
        "seed": 3,
        **arguments,
    }
    return kind(
        model=model,
        args=GRPOConfig(output_dir=str(folder), **given),
        reward_funcs=[rewarded],
        rollout_func=rollout,
        rollouts=rollouts,
        **{"train_dataset": dataset(count), **(more or {})},
    )


def losses(trainer: Any) -> list[float]:
    return [log["loss"] for log in trainer.state.log_history if "loss" in log]
