"""From a job to the trainer of an online method: its rewards, rollouts and features."""

import copy
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from fmtkit.core.errors import OptionError
from fmtkit.training.building.build import Parts, build_trainer, load_class, trainer_inputs
from fmtkit.training.planning.job import Job
from fmtkit.training.rl.dialogs.environment import ExternalEnvironment
from fmtkit.training.rl.grpo import tool_templates
from fmtkit.training.rl.grpo.keep_samples import keeper
from fmtkit.training.rl.grpo.samples import FILE, SampleTable
from fmtkit.training.rl.grpo.settings import read_settings
from fmtkit.training.rl.rewards import Rewards, entries, read_options, rewards_of
from fmtkit.training.rl.rollouts.file_sync import connect, connecting
from fmtkit.training.rl.rollouts.guarded_environments import guarded
from fmtkit.training.rl.rollouts.loading import rollout_objects
from fmtkit.training.rl.rollouts.server import TIMEOUT, asks_server
from fmtkit.training.rl.rollouts.settings import read_settings as read_rollouts


def build_grpo(job: Job, parts: Parts) -> Any:
    """Make fmtkit's GRPO trainer, or one that is derived from it."""
    return watched(job, load_class(parts.runner.trainer)(**online_inputs(job, parts)))


def build_online(job: Job, parts: Parts) -> Any:
    """Make a trainer that takes `reward_funcs` as TRL's do, with the run's rewards."""
    trainer_class = load_class(parts.runner.trainer)
    inputs = trainer_inputs(job, parts, trainer_class) | _objects(job, parts)
    rewards = _rewards(job, parts, _environment(job, parts))
    make = partial(trainer_class, **inputs, reward_funcs=rewards.functions)
    return watched(job, _guarded(job, make))


def build_sampling(job: Job, parts: Parts) -> Any:
    """Make TRL's own trainer of a method that samples answers without rewards."""
    return _guarded(job, partial(build_trainer, job, parts))


def build_trls_own(job: Job, parts: Parts) -> Any:
    """Make TRL's own trainer with the run's rewards, on a TRL that fmtkit's trainer was not made for."""
    trainer_class = load_class(parts.runner.trainer)
    inputs = trainer_inputs(job, parts, trainer_class) | _objects(job, parts)
    rewards = _rewards(job, parts, None)
    # Nothing leaves a failed sample out of TRL's loss.
    rewards.end_at_a_failure()
    # Online DPO calls coroutine functions without awaiting them.
    functions = rewards.waited_for
    return _guarded(job, partial(trainer_class, **inputs, reward_funcs=functions))


def build_rloo(job: Job, parts: Parts) -> Any:
    """Make fmtkit's RLOO trainer, with the run's rewards."""
    trainer_class = load_class(parts.runner.trainer)
    section = job.sections.get("rl", {})
    inputs = trainer_inputs(job, parts, trainer_class) | _objects(job, parts)
    gym = _environment(job, parts)
    rewards = _rewards(job, parts, gym)
    make = partial(
        trainer_class,
        **inputs,
        reward_funcs=rewards.functions,
        rewards=rewards,
        features=read_settings(section),
        max_failed_share=_share(section, gym),
    )
    return watched(job, _guarded(job, make))


def build_online_dpo(job: Job, parts: Parts) -> Any:
    """Make an online DPO trainer with the run's rewards."""
    trainer_class = load_class(parts.runner.trainer)
    gym = _environment(job, parts)
    rewards = _rewards(job, parts, gym)
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
        max_failed_share=_share(job.sections.get("rl", {}), gym),
    )
    return watched(job, _guarded(job, make))


def _guarded(job: Job, make: Callable[[], Any]) -> Any:
    """Make a trainer; if it uses a vLLM server, each request gets a time limit."""
    if not asks_server(job.trainer):
        return make()
    seconds = job.trainer.get("vllm_server_timeout")
    settings = read_rollouts(job.of_rollouts(), run=job.run)
    with connecting(settings, float(seconds) if isinstance(seconds, (int, float)) else TIMEOUT):
        trainer = make()
    connect(trainer, getattr(trainer, "vllm_generation", trainer), settings)
    return trainer


def watched(job: Job, trainer: Any) -> Any:
    """Let a trainer that logs its answers keep some of them in the run folder."""
    trainer.add_callback(keeper(SampleTable(Path(job.run) / FILE, after=_resumed(job)), trainer))
    return trainer


def _resumed(job: Job) -> int:
    """Return the step that a run continues from; 0 for a new one."""
    number = (job.resume or "").rstrip("/").rpartition("-")[2]
    return int(number) if number.isdigit() else 0


def online_inputs(job: Job, parts: Parts) -> dict[str, Any]:
    """Return the arguments of fmtkit's GRPO trainer: TRL's, the user's objects and our features."""
    section = job.sections.get("rl", {})
    gym = _environment(job, parts)
    out = {
        **trainer_inputs(job, parts, load_class(parts.runner.trainer)),
        **_objects(job, parts),
        "rewards": _rewards(job, parts, gym),
        "features": read_settings(section),
        "rollouts": read_rollouts(job.of_rollouts(), run=job.run),
    }
    if out.get("environment_factory"):
        timings = out["rewards"].failures.timings
        out["environment_factory"] = guarded(out["environment_factory"], out["rollouts"], timings)
    if gym is not None:
        out["rollouts"] = replace(out["rollouts"], masked_share=_share(section, gym))
    if gym is not None and gym.rollout is not None:
        out["rollout_func"] = gym.rollout
        out["rollouts"] = replace(out["rollouts"], lora_name=gym.policy)
    return out


def _environment(job: Job, parts: Parts) -> ExternalEnvironment | None:
    """Return what a section of the method has in place of rewards; None where the run has no such thing."""
    opened = (make(job, parts.tokenizer) for make in parts.runner.hooks("environment"))
    return next((one for one in opened if one is not None), None)


def _share(section: Mapping[str, Any], gym: ExternalEnvironment | None) -> float:
    """Return the share of samples that may fail; with an environment, it is 1 by default.

    If all of them fail, the run always ends.
    """
    share = section.get("max_failed_share")
    if share is None:
        return 0.0 if gym is None else 1.0
    return float(share)


def _objects(job: Job, parts: Parts) -> dict[str, Any]:
    """Return the user's tools, environments and rollout function."""
    section = job.sections.get("rl", {})
    out = rollout_objects(section, [Path(place) for place in job.places])
    for name in tool_templates.KEYS:
        if out.get(name):
            check_tool_template(parts.tokenizer, f"trl.{name}")
    return out


def check_tool_template(tokenizer: Any, origin: str) -> None:
    """Raise OptionError unless the template writes tool calls and TRL knows how to read them.

    TRL itself checks later, when the model is loaded.
    """
    from trl.chat_template_utils import add_response_schema, supports_tool_calling

    if not supports_tool_calling(tokenizer):
        raise OptionError(f"{origin}: {tool_templates.CANNOT_WRITE}")
    schemas = (getattr(tokenizer, name, None) for name in tool_templates.SCHEMAS)
    if any(value is not None for value in schemas):
        return
    try:
        # TRL knows templates by their text; what it finds is put on the copy.
        add_response_schema(copy.copy(tokenizer))
    except ValueError as error:
        raise OptionError(f"{origin}: {tool_templates.CANNOT_READ}") from error


def _rewards(job: Job, parts: Parts, gym: ExternalEnvironment | None) -> Rewards:
    """Load the rewards of a run."""
    section = job.sections.get("rl", {})
    # An environment has rewards of its own, which TRL weighs alongside these.
    needs_rewards = "rewards" in parts.runner.needs and not section.get("environment_factory")
    if gym is not None:
        rewards = gym.rewards(job)
    elif needs_rewards:
        rewards = rewards_of(job)
    else:
        named = entries.read(section.get("reward_funcs"), [Path(place) for place in job.places])
        rewards = Rewards(named, read_options(section), judged=False)
    rewards.check_columns(parts.train.column_names)
    return rewards
