"""The plan of a run with a Gym: its datasets replace those of the run, and its keys must fit each other.

Imports nothing heavy and asks no server: a dry run reads it.
"""

from collections.abc import Mapping
from pathlib import Path

from fmtkit.core.errors import OptionError, near_match
from fmtkit.core.runner import Runner, methods
from fmtkit.core.section import Provided
from fmtkit.training.config.config import Config, Entry
from fmtkit.training.online.conversations import naming
from fmtkit.training.planning.run_plan import Plan
from fmtkit.training.planning.types import Arguments
from fmtkit.training.vllm import serve

from .section import REWARDS
from .settings import VERIFY, GymSettings, find_file, read_settings

TYPE = "nemo_gym"
_KEYS = ("path", "server_name", "max_samples")
_KEY = "nemo_gym_datasets"
_NOT_SENT = ("top_k", "min_p", "repetition_penalty", "generation_kwargs")


def settings_of(config: Config) -> GymSettings:
    """Return the settings of a configuration."""
    values = {name: config.get(name) for name in config.settings}
    return read_settings(values, config.model or "")


def features(config: Config) -> list[str]:
    """Return the key by which answers are generated and rewarded by a Gym."""
    return ["nemo_gym_enabled"] if config.is_true("nemo_gym_enabled") else []


def provides(config: Config) -> tuple[Provided, ...]:
    """Return what the Gym has in place of the run's own: its agents make the answers of conversations."""
    if not config.is_true("nemo_gym_enabled"):
        return ()
    answers: tuple[Provided, ...] = ("answers",) if config.is_true("nemo_gym_multi_turn") else ()
    return ("datasets", "rewards", *answers)


def types(config: Config) -> dict[str, str]:
    """Return which names of types mean that of the Gym's rows: axolotl's documents say chat_template."""
    return {"chat_template": TYPE} if config.is_true("nemo_gym_enabled") else {}


def datasets(config: Config) -> dict[str, Entry]:
    """Return the datasets of the Gym, instead of the run's; none without a Gym.

    An entry of `datasets` for the same file, which axolotl requires, is left out; a different file is
    refused, since its rows name no server.
    """
    given = config.get(_KEY)
    if not config.is_true("nemo_gym_enabled") or not given:
        return {}
    settings = settings_of(config)
    entries = [_entry(item, settings) for item in given] if isinstance(given, list) else []
    known = {Path(str(entry["path"])).resolve() for entry in entries}
    for entry in config.datasets:
        path = str(entry.get("path", ""))
        if find_file(settings, path).resolve() not in known and not _same(path, known):
            raise OptionError(
                f"datasets: {path}: with a Gym the data are those of {_KEY}; list it there"
            )
    return {f"{_KEY}.{number}": entry for number, entry in enumerate(entries)}


def _same(path: str, known: set[Path]) -> bool:
    return Path(path).expanduser().resolve() in known


def _entry(item: object, settings: GymSettings) -> Entry:
    if not isinstance(item, Mapping) or not item.get("path"):
        raise OptionError(f"{_KEY}: {item!r}: write path, and server_name where the rows name none")
    for name in item:
        if name not in _KEYS:
            near = near_match(str(name), _KEYS)
            advice = f"did you mean {near!r}?" if near else f"known: {', '.join(_KEYS)}"
            raise OptionError(f"{_KEY}: no key {name!r}; {advice}")
    count = item.get("max_samples")
    if count is not None and (not isinstance(count, int) or isinstance(count, bool) or count < 1):
        raise OptionError(f"{_KEY}: max_samples: {count!r}: takes a whole number from 1")
    entry: dict[str, object] = {"path": str(find_file(settings, str(item["path"]))), "type": TYPE}
    if item.get("server_name"):
        entry["options"] = {"server_name": str(item["server_name"])}
    return entry if count is None else {**entry, "max_samples": count}


def policy_name(config: Config) -> str:
    """Return the name of the trained model on the trainer's vLLM server, for agents."""
    is_adapter = serve.sends_adapter(config)
    return settings_of(config).policy_name(config.model or "", is_adapter=is_adapter)


def missing(config: Config) -> list[str]:
    """Return the keys that a Gym still needs before anything can train."""
    if not config.is_true("nemo_gym_enabled"):
        return []
    needed = [] if config.get(_KEY) else [_KEY]
    if config.get("nemo_gym_auto_start") is not False and not config.get("nemo_gym_config_paths"):
        needed.append("nemo_gym_config_paths (or nemo_gym_auto_start: false)")
    return needed


def derive(plan: Plan) -> None:
    """Check the keys against each other and the method; add what the user should know to the notes."""
    config, out = plan.config, plan.arguments
    settings = settings_of(config)
    rewards = config.get("trl.reward_funcs")
    if not settings.enabled:
        _say_idle(config, out)
        return
    _check_reward(rewards, multi_turn=settings.multi_turn)
    if settings.multi_turn:
        _check_conversations(config, plan.runner, out)
    _check_weights(config, rewards)


def _check_reward(rewards: object, *, multi_turn: bool) -> None:
    """Raise OptionError where the Gym's reward is named, and is that of the other mode."""
    right = naming.ENV_REWARD if multi_turn else VERIFY
    wrong = next(
        (name for name in naming.environments(rewards) if REWARDS.get(name, right) != right), None
    )
    if wrong is not None:
        kind = "entire conversations, run by an agent" if multi_turn else "single answers"
        raise OptionError(
            f"{naming.KEY}: {wrong}: nemo_gym_multi_turn: {str(multi_turn).lower()} is for {kind}; "
            f"their reward is {right}, which need not be named"
        )


def _say_idle(config: Config, out: Arguments) -> None:
    idle = [n for n in config.settings if n.startswith("nemo_gym_") and n != "nemo_gym_enabled"]
    if idle:
        out.notes.append(f"nemo_gym_enabled is not true: {', '.join(sorted(idle))} change nothing")


def _check_conversations(config: Config, chosen: Runner, out: Arguments) -> None:
    if "rollout_func" not in chosen.features:
        raise OptionError(
            f"nemo_gym_multi_turn: TRL's trainer for {chosen.method} samples by itself; conversations "
            f"are for {methods(lambda one: {'nemo_gym'} <= one.sections and 'rollout_func' in one.features)}"
        )
    unsent = [k for k in _NOT_SENT if config.get(f"trl.{k}") is not None]
    if unsent:
        out.notes.append(
            f"nemo_gym_multi_turn: requests carry temperature and top_p alone; {', '.join(unsent)} "
            "belong into extra_body of the Gym's model server"
        )
    for key in ("rollout_func", "environment_factory", "tools"):
        if config.get(f"trl.{key}"):
            raise OptionError(
                f"nemo_gym_multi_turn: the agent runs the rollouts; leave out trl.{key}"
            )
    if serve.is_asked(config) and serve.is_inside(config):
        raise OptionError(
            "nemo_gym_multi_turn: the agent asks a server for the model's turns; write "
            "trl.vllm_mode: server"
        )
    if serve.sends_adapter(config) and config.get("nemo_gym_auto_start") is False:
        out.notes.append(
            "nemo_gym_multi_turn: the server loads each version of the adapter as "
            f"{policy_name(config)}; start the Gym with policy_model_name={policy_name(config)}"
        )
    if not serve.is_asked(config):
        out.notes.append(
            "nemo_gym_multi_turn: without trl.use_vllm nothing sends the trained weights to the "
            "server that the agent calls: it uses the model that is named there"
        )


def _check_weights(config: Config, rewards: object) -> None:
    weights = config.get("trl.reward_weights")
    count = len(naming.with_ours(rewards, VERIFY))
    if isinstance(weights, list) and len(weights) != count:
        raise OptionError(
            f"trl.reward_weights has {len(weights)} numbers for {count} rewards: the Gym's is one of "
            "them, last unless it is named"
        )
