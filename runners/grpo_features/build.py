"""From a job to fmtkit's trainers of GRPO and RLOO: TRL's, with replay, re-rolling and dynamic sampling."""

from dataclasses import replace
from functools import partial
from typing import Any

from fmtkit.core.section import read
from fmtkit.training.building.build import Parts, load_class, trainer_inputs
from fmtkit.training.online.build import (
    environment_of,
    guarded_objects,
    objects_of,
    rewards_for,
    share_of,
    watched,
    with_server,
)
from fmtkit.training.planning.job import Job
from fmtkit.training.vllm.rollout_settings import read_settings as read_rollouts

from .settings import GrpoSettings


def build_grpo(job: Job, parts: Parts) -> Any:
    """Make fmtkit's GRPO trainer, or one that is derived from it."""
    return watched(job, load_class(parts.runner.trainer)(**online_inputs(job, parts)))


def build_rloo(job: Job, parts: Parts) -> Any:
    """Make fmtkit's RLOO trainer, with the run's rewards."""
    trainer_class = load_class(parts.runner.trainer)
    section = job.section("rl")
    inputs = trainer_inputs(job, parts, trainer_class) | objects_of(job, parts)
    gym = environment_of(job, parts)
    rewards = rewards_for(job, parts, gym)
    make = partial(
        trainer_class,
        **inputs,
        reward_funcs=rewards.functions,
        rewards=rewards,
        features=read(GrpoSettings, section),
        max_failed_share=share_of(section, gym),
    )
    return watched(job, with_server(job, make))


def online_inputs(job: Job, parts: Parts) -> dict[str, Any]:
    """Return the arguments of fmtkit's GRPO trainer: TRL's, the user's objects and our features."""
    section = job.section("rl")
    gym = environment_of(job, parts)
    rewards = rewards_for(job, parts, gym)
    out = {
        **trainer_inputs(job, parts, load_class(parts.runner.trainer)),
        **guarded_objects(job, parts, rewards),
        "rewards": rewards,
        "features": read(GrpoSettings, section),
        "rollouts": read_rollouts(job.of_rollouts(), run=job.run),
    }
    if gym is not None:
        out["rollouts"] = replace(out["rollouts"], masked_share=share_of(section, gym))
    if gym is not None and gym.rollout is not None:
        out["rollout_func"] = gym.rollout
        out["rollouts"] = replace(out["rollouts"], lora_name=gym.policy)
    return out
