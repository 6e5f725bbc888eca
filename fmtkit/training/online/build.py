"""From a job to the trainer of an online method: its rewards, and how its answers are made."""

import copy
import sys
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from fmtkit.core.errors import OptionError
from fmtkit.training.building.build import Parts, build_trainer, load_class, trainer_inputs
from fmtkit.training.online import tool_templates
from fmtkit.training.online.conversations.environment import ENVIRONMENT, ExternalEnvironment
from fmtkit.training.online.keep_samples import keeper
from fmtkit.training.online.reward_watch import watch
from fmtkit.training.online.rewards import Rewards, entries, read_options, rewards_of
from fmtkit.training.online.rollouts.guarded_environments import guarded
from fmtkit.training.online.rollouts.loading import rollout_objects
from fmtkit.training.online.samples import FILE, SampleTable
from fmtkit.training.planning.job import Job
from fmtkit.training.vllm.file_sync import connect, connecting
from fmtkit.training.vllm.rollout_settings import read_settings as read_rollouts
from fmtkit.training.vllm.server_state import asks_server, start_timeout


def build_online(job: Job, parts: Parts) -> Any:
    """Make TRL's trainer, or another that takes `reward_funcs` as TRL's do, with the run's rewards."""
    trainer_class = load_class(parts.runner.trainer)
    rewards = rewards_for(job, parts, environment_of(job, parts))
    inputs = trainer_inputs(job, parts, trainer_class) | guarded_objects(job, parts, rewards)
    make = partial(trainer_class, **inputs, reward_funcs=rewards.functions)
    trainer = watched(job, with_server(job, make))
    watch(trainer, rewards)
    return trainer


def build_sampling(job: Job, parts: Parts) -> Any:
    """Make TRL's own trainer of a method that samples answers without rewards."""
    return with_server(job, partial(build_trainer, job, parts))


def with_server(job: Job, make: Callable[[], Any]) -> Any:
    """Make a trainer; if it uses a vLLM server, each request gets a time limit."""
    if not asks_server(job.trainer):
        return make()
    settings = read_rollouts(job.of_rollouts(), run=job.run)
    with connecting(settings, start_timeout(job.trainer)):
        trainer = make()
    connect(trainer, getattr(trainer, "vllm_generation", trainer), settings)
    return trainer


def watched(job: Job, trainer: Any) -> Any:
    """Let a trainer that logs its answers keep some of them in the run folder."""
    if not hasattr(trainer, "_logs"):
        note = "note: this version of TRL shows no answers to keep in the run folder"
        print(note, file=sys.stderr)  # noqa: T201
        return trainer
    trainer.add_callback(keeper(SampleTable(Path(job.run) / FILE, after=_resumed(job)), trainer))
    return trainer


def _resumed(job: Job) -> int:
    """Return the step that a run continues from; 0 for a new one."""
    number = (job.resume or "").rstrip("/").rpartition("-")[2]
    return int(number) if number.isdigit() else 0


def environment_of(job: Job, parts: Parts) -> ExternalEnvironment | None:
    """Return what a section of the method has in place of rewards; None where the run has no such thing."""
    opened = (make(job, parts.tokenizer) for make in parts.runner.hooks(ENVIRONMENT))
    return next((one for one in opened if one is not None), None)


def share_of(section: Mapping[str, Any], environment: ExternalEnvironment | None) -> float:
    """Return the share of samples that may fail; with an environment, it is 1 by default.

    If all of them fail, the run always ends.
    """
    share = section.get("max_failed_share")
    if share is None:
        return 0.0 if environment is None else 1.0
    return float(share)


def objects_of(job: Job, parts: Parts) -> dict[str, Any]:
    """Return the user's tools, environments and rollout function."""
    section = job.section("rl")
    out = rollout_objects(section, [Path(place) for place in job.places])
    for name in tool_templates.KEYS:
        if out.get(name):
            check_tool_template(parts.tokenizer, f"trl.{name}")
    return out


def guarded_objects(job: Job, parts: Parts, rewards: Rewards) -> dict[str, Any]:
    """Return the same, with environments under the time limits of the run."""
    out, factory = objects_of(job, parts), "environment_factory"
    if out.get(factory):
        settings = read_rollouts(job.of_rollouts(), run=job.run)
        out[factory] = guarded(out[factory], settings, rewards.failures.timings)
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


def rewards_for(job: Job, parts: Parts, environment: ExternalEnvironment | None) -> Rewards:
    """Load the rewards of a run."""
    section = job.section("rl")
    # An environment has rewards of its own, which TRL weighs alongside these.
    needs_rewards = "rewards" in parts.runner.needs and not section.get("environment_factory")
    if environment is not None:
        rewards = environment.rewards(job)
    elif needs_rewards:
        rewards = rewards_of(job)
    else:
        named = entries.read(section.get("reward_funcs"), [Path(place) for place in job.places])
        rewards = Rewards(named, read_options(section), judged=False)
    rewards.check_columns(parts.train.column_names)
    return rewards
