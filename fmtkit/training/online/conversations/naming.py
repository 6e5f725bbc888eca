"""Names of an environment's reward in `trl.reward_funcs`: one function, added once."""

from fmtkit.core import section
from fmtkit.core.errors import OptionError
from fmtkit.core.runner import Runner, Settings

POLICY = "fmtkit-policy"
"""Name of the adapter that agents and environments request, unless a key gives one."""
ENV_REWARD = "env_reward"
"""The reward that an environment gives for each of its conversations."""
KEY = "trl.reward_funcs"


def listed(value: object) -> list[object]:
    """Return `trl.reward_funcs` as a list."""
    if value is None:
        return []
    return list(value) if isinstance(value, (list, tuple)) else [value]


def others(value: object) -> list[object]:
    """Return the entries other than the environment's reward."""
    return [entry for entry in listed(value) if not _sections_of(entry)]


def environments(value: object) -> list[str]:
    """Return the entries that are the environment's reward."""
    return [entry for entry in listed(value) if isinstance(entry, str) and _sections_of(entry)]


def with_ours(value: object, reward: object) -> list[object]:
    """Return the entries with the environment's reward where it is named, or at the end."""
    entries = [reward if _sections_of(entry) else entry for entry in listed(value)]
    return entries if reward in entries else [*entries, reward]


def check(value: object, config: Settings, chosen: Runner) -> None:
    """Raise OptionError if an environment's reward is named twice, or is not that of the run's own."""
    named = environments(value)
    on = [one for one in section.every() if one.name in chosen.sections and _is_on(one, config)]
    for name in named:
        owners = _sections_of(name)
        if any(one in on for one in owners):
            continue
        if on:
            raise OptionError(
                f"{KEY}: {name} is not the reward of {on[0].switch}, whose own need not be named; leave "
                "it out"
            )
        switches = [one.switch for one in owners if one.name in chosen.sections]
        if switches:
            raise OptionError(
                f"{KEY}: {name} is the reward of an environment; set {' or '.join(switches)}"
            )
        raise OptionError(
            f"{KEY}: {name} is the reward of an environment, for which this trainer has no use; leave it out"
        )
    if len(named) > 1:
        raise OptionError(f"{KEY}: {' and '.join(named)} are the same reward; name it once")


def _is_on(one: section.Section, config: Settings) -> bool:
    return bool(one.rewards and one.switch and config.get(one.switch))


def _sections_of(entry: object) -> list[section.Section]:
    if not isinstance(entry, str):
        return []
    return [one for one in section.every() if entry in one.rewards]
