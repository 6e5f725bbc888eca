"""From a job to the trainer of online DPO, with the run's rewards."""

from functools import partial
from typing import Any

from fmtkit.training.building.build import Parts, load_class, trainer_inputs
from fmtkit.training.online.build import (
    environment_of,
    objects_of,
    rewards_for,
    share_of,
    watched,
    with_server,
)
from fmtkit.training.planning.job import Job


def build_online_dpo(job: Job, parts: Parts) -> Any:
    """Make an online DPO trainer with the run's rewards."""
    trainer_class = load_class(parts.runner.trainer)
    gym = environment_of(job, parts)
    rewards = rewards_for(job, parts, gym)
    inputs = trainer_inputs(job, parts, trainer_class)
    if rewards.judge is not None:
        # Two answers without a reward are a pair for it, the first of which is the better one.
        rewards.judge.is_fatal = True
    # TRL 1.16's OnlineDPOTrainer calls coroutine functions without awaiting them.
    make = partial(
        trainer_class,
        **inputs,
        reward_funcs=rewards.waited_for,
        rewards=rewards,
        max_failed_share=share_of(job.section("rl"), gym),
    )
    return watched(job, with_server(job, make))


def build_trls_own(job: Job, parts: Parts) -> Any:
    """Make TRL's own trainer with the run's rewards."""
    trainer_class = load_class(parts.runner.trainer)
    inputs = trainer_inputs(job, parts, trainer_class) | objects_of(job, parts)
    rewards = rewards_for(job, parts, environment_of(job, parts))
    # Nothing leaves a failed sample out of TRL's loss.
    rewards.end_at_a_failure()
    return with_server(job, partial(trainer_class, **inputs, reward_funcs=rewards.waited_for))
