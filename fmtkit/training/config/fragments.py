"""Fragments of a configuration: what a run would still need, and the method their keys belong to."""

from dataclasses import replace

from fmtkit.core import runner
from fmtkit.core.runner import Runner
from fmtkit.training.config.config import Config, Setting
from fmtkit.training.planning import datatypes


def completed(config: Config) -> Config:
    """Return a fragment with the method that its keys belong to, where it names none."""
    if config.method() != runner.DEFAULT or config.get("rl") is not None:
        return config
    tables = datatypes.tables_of(config.datasets[0]) if config.datasets else ()
    method = None
    # The default method's tables are no evidence for another method.
    if not {*tables} & {*runner.find(runner.DEFAULT).tables}:
        method = next(filter(None, (runner.guess({table}) for table in tables)), None)
    if method is None:
        method = runner.guess({name.partition(".")[0] for name in config.settings})
    if method is None:
        return config
    guess = Setting(method, "guess for a fragment")
    return replace(config, settings={**config.settings, "rl": guess})


def missing(config: Config, chosen: Runner) -> list[str]:
    """Return the keys without which the configuration cannot train."""
    needed = ["base_model"] if config.text("base_model") is None else []
    own = config.is_true("nemo_gym_enabled") or config.get("verifiers.environment")
    if not config.datasets and not own:
        needed.append("datasets")
    needed += [key for part in chosen.hooks("missing") for key in part(config)]
    if "teacher" in chosen.needs and config.get("teacher_model") is None:
        needed.append("teacher_model")
    rewards = (
        *("trl.reward_funcs", "trl.environment_factory"),
        *("nemo_gym_enabled", "verifiers.environment"),
    )
    if "rewards" in chosen.needs and not any(config.get(name) for name in rewards):
        needed.append("trl.reward_funcs")
    if "reward_model" in chosen.needs and config.get("reward_model_path") is None:
        needed.append("reward_model_path")
    return needed
