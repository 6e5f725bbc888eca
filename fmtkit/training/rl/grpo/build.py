"""From a job to the trainer of an online method: its rewards, tools, rollouts and features."""

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from fmtkit.training.build import Parts, load_class, trainer_inputs
from fmtkit.training.job import Job
from fmtkit.training.rl.grpo.settings import read_settings
from fmtkit.training.rl.imports import is_dotted, load, load_function


def build_grpo(job: Job, parts: Parts) -> Any:
    """Make fmtkit's GRPO trainer, for grpo and gdpo."""
    from trl.trainer.grpo_trainer import GRPOTrainer

    from fmtkit.training.rl.grpo.trainer import FmtkitGRPOTrainer

    return FmtkitGRPOTrainer(
        **trainer_inputs(job, parts, GRPOTrainer),
        **users_objects(job),
        settings=read_settings(job.sections.get("rl")),
    )


def build_rewarded(job: Job, parts: Parts) -> Any:
    """Make TRL's own trainer with the user's rewards, for rloo and online_dpo."""
    trainer_class = load_class(parts.runner.trainer)
    return trainer_class(
        **trainer_inputs(job, parts, trainer_class), reward_funcs=reward_functions(job)
    )


def users_objects(job: Job) -> dict[str, Any]:
    """Return what the configuration names of the user's own: rewards, tools, rollout, environments."""
    section = job.sections.get("rl", {})
    places = job_places(job)
    out: dict[str, Any] = {"reward_funcs": reward_functions(job)}
    if section.get("tools"):
        out["tools"] = [load_function("trl.tools", name, places) for name in listed(job, "tools")]
    if section.get("rollout_func"):
        out["rollout_func"] = load_function(
            "trl.rollout_func", str(section["rollout_func"]), places
        )
    if section.get("environment_factory"):
        out["environment_factory"] = _environments(section["environment_factory"], places)
    return out


def reward_functions(job: Job) -> list[Callable[..., Any] | str]:
    """Return the reward functions in their order; a name that is no import path is a reward model."""
    key, places = "trl.reward_funcs", job_places(job)
    return [
        load_function(key, name, places) if is_dotted(name) else name
        for name in listed(job, "reward_funcs")
    ]


def listed(job: Job, name: str) -> list[str]:
    """Return a key of the section `rl` as a list."""
    value = job.sections.get("rl", {}).get(name)
    if value is None:
        return []
    return [str(item) for item in value] if isinstance(value, list) else [str(value)]


def job_places(job: Job) -> tuple[Path, ...]:
    """Return the folders where the user's modules are looked for."""
    return tuple(Path(place) for place in job.places) or (Path(os.curdir).resolve(),)


def _environments(wish: object, places: tuple[Path, ...]) -> Any:
    key = "trl.environment_factory"
    if isinstance(wish, Mapping):
        return {str(name): load(key, str(path), places) for name, path in wish.items()}
    return load(key, str(wish), places)
