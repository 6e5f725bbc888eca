"""How reward functions are run: keys of the section `trl`, read strictly."""

from collections.abc import Mapping

from fmtkit.core.data_classes import dataclass
from fmtkit.core.errors import OptionError

SECONDS = 600.0
"""Default time limit of a call (`trl.reward_timeout`); NCCL gives up after the same time."""


@dataclass(frozen=True)
class RewardOptions:
    """Processes that run functions, seconds for one call, and groups for each call (0: all)."""

    workers: int = 1
    seconds: float = SECONDS
    groups: int = 0
    retries: int = 0
    masks: bool = False
    """Whether single samples may fail (`trl.max_failed_share` above 0)."""


def read_options(section: Mapping[str, object]) -> RewardOptions:
    """Read the options from the section `rl` of a job or a plan."""
    workers, seconds = section.get("reward_num_workers", 1), section.get("reward_timeout", SECONDS)
    if not isinstance(workers, int) or workers < 1:
        raise OptionError(f"trl.reward_num_workers: {workers!r}: takes a whole number from 1")
    if not isinstance(seconds, (int, float)) or seconds <= 0:
        raise OptionError(f"trl.reward_timeout: {seconds!r}: give a number of seconds above 0")
    groups = section.get("streaming_min_groups", 1)
    if not isinstance(groups, int) or groups < 1:
        raise OptionError(f"trl.streaming_min_groups: {groups!r}: takes a whole number from 1")
    streams = section.get("streaming_partial_batch") is True
    retries, share = section.get("max_retries") or 0, section.get("max_failed_share") or 0
    if not isinstance(retries, int) or retries < 0:
        raise OptionError(f"trl.max_retries: {retries!r}: takes a whole number from 0")
    masks = isinstance(share, (int, float)) and share > 0
    return RewardOptions(workers, float(seconds), groups if streams else 0, retries, masks)
