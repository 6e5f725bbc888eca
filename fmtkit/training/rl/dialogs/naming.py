"""Names of the environment's reward in `trl.reward_funcs`, axolotl's included: one function, added once."""

from collections.abc import Sequence

from fmtkit.core.errors import OptionError

POLICY = "fmtkit-policy"
"""Name of the adapter that agents and environments request, unless a key gives one."""
VERIFY, ENV_REWARD = "nemo_gym_verify", "env_reward"
_NAMES = {
    VERIFY: VERIFY,
    ENV_REWARD: ENV_REWARD,
    "axolotl.integrations.nemo_gym.rewards.reward_nemo_gym_verify": VERIFY,
    "axolotl.integrations.nemo_gym.rewards.reward_env": ENV_REWARD,
}
_KEY = "trl.reward_funcs"


def listed(value: object) -> list[object]:
    """Return `trl.reward_funcs` as a list."""
    if value is None:
        return []
    return list(value) if isinstance(value, (list, tuple)) else [value]


def others(value: object) -> list[object]:
    """Return the entries other than the environment's reward."""
    return [entry for entry in listed(value) if _ours(entry) is None]


def with_ours(value: object, reward: object) -> list[object]:
    """Return the entries with the environment's reward where it is named, or at the end."""
    entries = [entry if _ours(entry) is None else reward for entry in listed(value)]
    return entries if reward in entries else [*entries, reward]


def check(value: object, *, enabled: bool, multi_turn: bool) -> None:
    """Raise OptionError if the environment's reward is named twice, without a Gym, or for the wrong mode."""
    named = [entry for entry in listed(value) if _ours(entry) is not None]
    if not named:
        return
    if not enabled:
        raise OptionError(f"{_KEY}: {named[0]} is the reward of a Gym; set nemo_gym_enabled: true")
    if len(named) > 1:
        raise OptionError(f"{_KEY}: {_words(named)} are the same reward; name it once")
    right = ENV_REWARD if multi_turn else VERIFY
    if _ours(named[0]) != right:
        kind = "entire conversations, run by an agent" if multi_turn else "single answers"
        raise OptionError(
            f"{_KEY}: {named[0]}: nemo_gym_multi_turn: {str(multi_turn).lower()} is for {kind}; "
            f"their reward is {right}, which need not be named"
        )


def _ours(entry: object) -> str | None:
    return _NAMES.get(entry) if isinstance(entry, str) else None


def _words(names: Sequence[object]) -> str:
    return " and ".join(map(str, names))
