"""From a job to TRL's AsyncGRPOTrainer. It needs CUDA and a vLLM server, and is not tested here."""

from functools import partial
from pathlib import Path
from typing import Any

from fmtkit.core.errors import OptionError
from fmtkit.training.building.build import Parts, load_class, trainer_inputs
from fmtkit.training.online.rewards import entries
from fmtkit.training.online.rewards.loading import load_entry
from fmtkit.training.online.rollouts.loading import rollout_objects
from fmtkit.training.planning.job import Job


def build_async(job: Job, parts: Parts) -> Any:
    """Make the trainer. Its rewards run in a child process, so the user's functions are passed unwrapped."""
    if not isinstance(parts.model, str):
        raise OptionError(
            "trl.backend: async loads the model by its path; leave out tokens, unfrozen_parameters "
            "and lora_model_dir"
        )
    trainer_class = load_class(parts.runner.trainer)
    section = job.section("rl")
    places = [Path(place) for place in job.places]
    inputs = trainer_inputs(job, parts, trainer_class)
    inputs.pop("eval_dataset")
    return trainer_class(
        **inputs,
        **rollout_objects(section, places),
        reward_funcs=[
            _function(entry) for entry in entries.read(section.get("reward_funcs"), places)
        ],
    )


def _function(entry: entries.Entry) -> Any:
    if entry.model:
        raise OptionError(
            f"{entries.KEY}: {entry.label}: trl.backend: async takes functions; reward models are "
            "for trl.backend: sync"
        )
    function, options = load_entry(entry)
    return partial(function, **options) if options else function
