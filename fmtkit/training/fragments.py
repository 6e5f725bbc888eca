"""Fragments of a configuration: what a run would still need, and the method their keys belong to."""

from dataclasses import replace

from fmtkit.training import datatypes
from fmtkit.training.config import Config, Setting
from fmtkit.training.rl.nemo_gym import plan as gym_plan
from fmtkit.training.runner import Runner

_METHOD_OF_SECTION = {"ebft": "ebft", "trl": "grpo", "vllm": "grpo", "nemo_gym_enabled": "grpo"}


def completed(config: Config) -> Config:
    """Return a fragment with the method that its keys belong to, where it names none."""
    if config.method() != "sft" or config.get("rl") is not None:
        return config
    if config.datasets and (found := datatypes.method_of(config.datasets[0])):
        guess = Setting(found, "guess for a fragment")
        return replace(config, settings={**config.settings, "rl": guess})
    sections = {name.partition(".")[0] for name in config.settings}
    method = next((m for section, m in _METHOD_OF_SECTION.items() if section in sections), None)
    if method is None and sections & {"rl_adapter_ref_model", "ref_model"}:
        method = "dpo"
    if method is None:
        return config
    origin = "guess for a fragment"
    return replace(config, settings={**config.settings, "rl": Setting(method, origin)})


def missing(config: Config, chosen: Runner) -> list[str]:
    """Return the keys without which the configuration cannot train."""
    needed = ["base_model"] if config.text("base_model") is None else []
    if not config.datasets and not config.is_true("nemo_gym_enabled"):
        needed.append("datasets")
    needed += gym_plan.missing(config)
    if "teacher" in chosen.needs and config.get("teacher_model") is None:
        needed.append("teacher_model")
    rewards = ("trl.reward_funcs", "trl.environment_factory", "nemo_gym_enabled")
    if "rewards" in chosen.needs and not any(config.get(name) for name in rewards):
        needed.append("trl.reward_funcs")
    if "reward_model" in chosen.needs and config.get("reward_model_path") is None:
        needed.append("reward_model_path")
    return needed
