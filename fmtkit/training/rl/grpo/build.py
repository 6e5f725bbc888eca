"""From a job to the trainer of an online method: its rewards, rollouts and features."""

from dataclasses import replace
from pathlib import Path
from typing import Any

from fmtkit.training.build import Parts, load_class, trainer_inputs
from fmtkit.training.job import Job
from fmtkit.training.rl.grpo import tool_template
from fmtkit.training.rl.grpo.samples import FILE, SampleTable, keeper
from fmtkit.training.rl.grpo.settings import read_settings
from fmtkit.training.rl.nemo_gym.session import Gym, open_gym
from fmtkit.training.rl.rewards import Rewards, entries, read_options, rewards_of
from fmtkit.training.rl.rollouts.loading import rollout_objects
from fmtkit.training.rl.rollouts.settings import read_settings as read_rollouts


def build_grpo(job: Job, parts: Parts) -> Any:
    """Make fmtkit's GRPO trainer, for grpo and gdpo."""
    from fmtkit.training.rl.grpo.trainer import FmtkitGRPOTrainer

    return watched(job, FmtkitGRPOTrainer(**online_inputs(job, parts)))


def build_rloo(job: Job, parts: Parts) -> Any:
    """Make TRL's own RLOO trainer with the run's rewards."""
    trainer_class = load_class(parts.runner.trainer)
    rewards = _rewards(job, parts, open_gym(job, parts.tokenizer))
    inputs = trainer_inputs(job, parts, trainer_class)
    return watched(job, trainer_class(**inputs, reward_funcs=rewards.functions))


def build_online_dpo(job: Job, parts: Parts) -> Any:
    """Make TRL's online DPO trainer with the run's rewards."""
    from fmtkit.training.rl.grpo.online_dpo import FmtkitOnlineDPOTrainer

    rewards = _rewards(job, parts, open_gym(job, parts.tokenizer))
    inputs = trainer_inputs(job, parts, load_class(parts.runner.trainer))
    # TRL 1.16's OnlineDPOTrainer calls coroutine functions without awaiting them.
    return watched(job, FmtkitOnlineDPOTrainer(**inputs, reward_funcs=rewards.waited_for))


def watched(job: Job, trainer: Any) -> Any:
    """Let a trainer that logs its answers keep some of them in the run folder."""
    trainer.add_callback(keeper(SampleTable(Path(job.run) / FILE, after=_resumed(job)), trainer))
    return trainer


def _resumed(job: Job) -> int:
    """Return the step that a run goes on from; 0 for a new one."""
    number = (job.resume or "").rstrip("/").rpartition("-")[2]
    return int(number) if number.isdigit() else 0


def online_inputs(job: Job, parts: Parts) -> dict[str, Any]:
    """Return the arguments of fmtkit's GRPO trainer: TRL's, the user's objects and our features."""
    from trl.trainer.grpo_trainer import GRPOTrainer

    section = job.sections.get("rl", {})
    gym = open_gym(job, parts.tokenizer)
    out = {
        **trainer_inputs(job, parts, GRPOTrainer),
        **rollout_objects(section, [Path(place) for place in job.places]),
        # EBFT and an environment have rewards of their own, which TRL weighs beside these.
        "rewards": _rewards(
            job, parts, gym, alone=job.method != "ebft" and not section.get("environment_factory")
        ),
        "features": read_settings(section),
        "rollouts": read_rollouts(section, run=job.run),
    }
    for name in ("tools", "environment_factory"):
        if out.get(name):
            tool_template.check(parts.tokenizer, f"trl.{name}")
    if gym is not None and gym.rollout is not None:
        out["rollout_func"] = gym.rollout
        out["rollouts"] = replace(out["rollouts"], lora_name=gym.policy)
    return out


def _rewards(job: Job, parts: Parts, gym: Gym | None, *, alone: bool = True) -> Rewards:
    """Load the rewards of a run; `alone` says that no reward of another origin stands beside them."""
    section = job.sections.get("rl", {})
    if gym is not None:
        rewards = gym.rewards(job)
    elif alone:
        rewards = rewards_of(job)
    else:
        named = entries.read(section.get("reward_funcs"), [Path(place) for place in job.places])
        rewards = Rewards(named, read_options(section), judged=False)
    rewards.check_columns(parts.train.column_names)
    return rewards
