"""What follows from the keys of `ebft:` together: a group's size, the mode, and what has no effect.

Nothing here imports torch: a config is checked before any process that trains.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from fmtkit.core.errors import OptionError

from .settings import EbftSettings, read_settings

STRUCTURED_KEYS = frozenset({"adaptive_max_tokens", "gt_length_multiplier", "multi_turn_train"})
STRIDED_KEYS = frozenset(
    {
        "stride",
        "context_length",
        "generate_max_len",
        "n_samples_per_prompt",
        "temperature",
        "top_p",
        "rl_coef",
        "min_completion_prefix",
        "mask_thinking_ce",
    }
)


@dataclass(frozen=True)
class EbftPlan:
    """Settings as they will be used, and what the user should know about them."""

    settings: EbftSettings
    remarks: tuple[str, ...] = ()


def plan_settings(
    values: Mapping[str, Any] | None, *, num_generations: int | None = None
) -> EbftPlan:
    """Read the keys and resolve what follows from several of them.

    `num_generations` is `trl.num_generations`, the size of a group in structured mode.
    """
    settings = read_settings(values)
    given = {key for key, value in (values or {}).items() if value is not None}
    other = STRUCTURED_KEYS if settings.mode == "strided" else STRIDED_KEYS
    remarks = []
    if unused := sorted(given & other):
        remarks.append(f"ebft.mode is {settings.mode}: {', '.join(unused)} has no effect")
    if settings.mode == "structured":
        _check_structured(settings, given)
        group = num_generations
    else:
        group = settings.n_samples_per_prompt
    if settings.mode == "strided" and group == 1:
        remarks.append(
            "one sample per prompt: the advantage is the reward, and there is no diversity"
        )
        settings = replace(settings, advantage_estimator="reinforce", diversity_coef=0.0)
    check_group(settings, group)
    if settings.use_whitening and settings.diversity_coef:
        remarks.append(
            "whitened samples are orthogonal unless they repeat: diversity_coef only counts repeats"
        )
    return EbftPlan(settings, tuple(remarks))


def scale_rewards(values: Mapping[str, Any] | None) -> str | None:
    """Return TRL's `scale_rewards` that the keys ask for, or None if they do not.

    An unbiased diversity is unbiased only where rewards are not divided by their spread.
    """
    settings = read_settings(values)
    if (values or {}).get("advantage_estimator") is None:
        return "none" if settings.diversity_baseline == "loo" else None
    return "none" if settings.advantage_estimator == "rloo" else "group"


def _check_structured(settings: EbftSettings, given: set[str]) -> None:
    if "advantage_estimator" in given and settings.advantage_estimator == "reinforce":
        raise OptionError(
            "ebft.advantage_estimator: reinforce has no form in structured mode, where TRL "
            "subtracts the group's mean; use rloo or group_norm, or ebft.mode: strided"
        )


def check_group(settings: EbftSettings, group: int | None) -> None:
    """Refuse the unbiased diversity baseline for groups too small for it."""
    unbiased = settings.diversity_baseline == "loo" and settings.diversity_coef > 0
    if unbiased and group is not None and group < 3:
        name = "trl.num_generations"
        if settings.mode == "strided":
            name = "ebft.n_samples_per_prompt"
        raise OptionError(
            f"ebft.diversity_baseline: loo needs at least 3 samples of a prompt and {name} is "
            f"{group}: without one pair there is no other to compare with; raise it or use "
            "diversity_baseline: group"
        )
