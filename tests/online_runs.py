"""Jobs of the online methods over small prompts, and the user's module that they name."""

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import tiny_training as tiny

from fmtkit.training.planning.job import Job
from fmtkit.training.run import process

REWARDS = '''
"""Rewards, tools and rollouts as a user writes them."""


def text(completion):
    return completion if isinstance(completion, str) else completion[-1].get("content") or ""


def length(completions, **kwargs):
    return [len(text(c)) / 100 for c in completions]


def vowels(completions, **kwargs):
    return [float(sum(letter in "aeiou" for letter in text(c))) for c in completions]


async def slow_length(completions, **kwargs):
    return [len(text(c)) / 50 for c in completions]


def nothing(completions, **kwargs):
    return [None] * len(completions)


def constant(completions, **kwargs):
    return [1.0] * len(completions)


def add(left: int, right: int) -> int:
    """Add two numbers.

    Args:
        left: The first number.
        right: The second number.

    Returns:
        Their sum.
    """
    return left + right
'''
LORA = {"adapter": "lora", "lora_r": 4, "lora_alpha": 8, "lora_target_linear": True}
TRL = {"num_generations": 2, "max_completion_length": 8, "reward_funcs": ["rewards.length"]}


def make_job(
    folder: Path,
    model: str,
    method: str = "grpo",
    more: Mapping[str, object] | None = None,
    **trl: object,
) -> Job:
    """Write the rewards beside the run and return its job; keywords are keys of `trl`."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "rewards.py").write_text(REWARDS, encoding="utf-8")
    keys = {"trl": {**TRL, **trl}, **(more or {})}
    if method == "online_dpo":
        keys |= {"trl": {"reward_funcs": TRL["reward_funcs"], **trl}, "max_new_tokens": 8}
    work = tiny.make_job(folder, model, method, "Prompt", keys)
    return replace(work, places=(str(folder),))


def steps(work: Job) -> list[dict]:
    """Run a job in this process and return the metrics of its steps."""
    assert process.train(work) == 0
    lines = (Path(work.run) / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
    return [json.loads(line) for line in lines if "loss" in json.loads(line)]


def trainer_of(work: Job):
    """Return the trainer that a job makes, before it trains."""
    from fmtkit.training.building.build import make_trainer, parts_of

    parts = parts_of(work, [])
    return make_trainer(work, parts)
