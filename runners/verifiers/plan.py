"""A `verifiers` environment in a plan: its dataset is that of the run, and its keys must fit each other.

Imports nothing heavy and starts nothing: a dry run reads it.
"""

from pathlib import Path

from fmtkit.core.errors import OptionError
from fmtkit.core.runner import Runner, methods
from fmtkit.core.section import Provided, read
from fmtkit.training.config.config import Config, Entry
from fmtkit.training.planning.run_plan import Plan
from fmtkit.training.vllm import serve

from .settings import ROWS, VerifiersSettings

_NAMED = "verifiers.environment"
_PREFIX = "verifiers."


def settings_of(config: Config) -> VerifiersSettings:
    """Return the settings of a configuration."""
    values = {name: config.get(name) for name in config.settings}
    return read(VerifiersSettings, values, _PREFIX)


def run_folder(config: Config) -> Path:
    """Return the folder of the run, as planning names it."""
    source = Path(config.source).stem if config.source != "<mapping>" else config.method()
    return Path(config.text("output_dir") or Path("runs") / source)


def features(config: Config) -> list[str]:
    """Return the key by which answers are generated and rewarded in an environment."""
    return [_NAMED] if config.get(_NAMED) else []


def provides(config: Config) -> tuple[Provided, ...]:
    """Return what an environment has in place of the run's own: all of it."""
    return ("datasets", "rewards", "answers") if config.get(_NAMED) else ()


def datasets(config: Config) -> dict[str, Entry]:
    """Return the dataset of the environment, which is written before the conversion; none without one."""
    if not config.get(_NAMED):
        return {}
    if config.datasets:
        path = config.datasets[0].get("path")
        raise OptionError(
            f"datasets: {path}: the rows are those of {_NAMED}; leave datasets out, and set "
            "verifiers.max_samples for fewer"
        )
    return {_NAMED: {"path": str(run_folder(config) / ROWS), "type": "passthrough"}}


def derive(plan: Plan) -> None:
    """Check the keys against each other and the method; say which do nothing."""
    config = plan.config
    idle = [name for name in config.settings if name.startswith(_PREFIX) and name != _NAMED]
    if not config.get(_NAMED):
        if idle:
            plan.arguments.notes.append(
                f"{_NAMED} is unset: {', '.join(sorted(idle))} change nothing"
            )
        return
    settings_of(config)
    _check_method(config, plan.runner)
    _check_sampler(plan)


def _check_method(config: Config, chosen: Runner) -> None:
    if "rollout_func" not in chosen.features:
        able = methods(lambda one: {"verifiers"} <= one.sections and "rollout_func" in one.features)
        raise OptionError(f"{_NAMED}: the trainer samples by itself; episodes are for {able}")
    for key in ("trl.rollout_func", "trl.environment_factory", "trl.tools"):
        if config.get(key):
            raise OptionError(f"{_NAMED}: the environment runs the rollouts; leave out {key}")
    if config.is_true("nemo_gym_enabled"):
        raise OptionError(f"{_NAMED}: nemo_gym_enabled: a run has one of the two")


def _check_sampler(plan: Plan) -> None:
    """Raise OptionError where the model that trains would have to answer beside its training."""
    config = plan.config
    if serve.is_asked(config) and not serve.is_inside(config):
        return
    advice = "set trl.use_vllm: true with a server (vllm_mode: server)"
    if config.is_true("trl.async_prefetch"):
        raise OptionError(
            f"trl.async_prefetch: the model cannot train and sample in one process at once; {advice}"
        )
    if plan.launch.processes != 1:
        raise OptionError(
            f"{_NAMED}: episodes end at different times, so the model that trains answers in one "
            f"training process alone; set num_processes: 1, or {advice}"
        )
