"""Samples whose reward, rollout or environment failed: counted, masked, and never trained as zero.

`trl.max_failed_share` says how many of a generation batch may fail, over all processes. Those that do have
no reward by any function, so that neither an advantage nor the statistics of their group know them, and no
token of theirs is in the loss. More than that end the run on every process alike.
"""

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from fmtkit.training.run.callbacks import TrainingError

ROLLOUT_ERROR = "rollout_error"
"""Column by which a rollout function says of each answer why there is none; None where there is one."""
METRIC = "failed_samples"


class FailedSamplesError(TrainingError):
    """Say that more samples failed than may, and why; all processes raise it."""


def allowed(share: float, samples: int) -> int:
    """Return how many of so many samples may fail: that share, and one at least where it is above 0."""
    return max(1, math.floor(share * samples)) if share > 0 else 0


class Timings:
    """Seconds that calls took, by their names, for each sample; what was slowest of all is kept."""

    def __init__(self) -> None:
        """Begin with nothing."""
        self.seconds: dict[str, list[float]] = {}
        self.slowest: tuple[float, str, str] = (0.0, "", "")

    def add(
        self, name: str, seconds: Sequence[float], limit: float, samples: Sequence[Any]
    ) -> None:
        """Take the seconds of each sample; `samples` are texts that tell them."""
        # One append for all: answers may be made in another thread.
        self.seconds.setdefault(name, []).extend(seconds)
        most = max(seconds, default=0.0)
        if limit and most / limit > self.slowest[0]:
            which = str(samples[list(seconds).index(most)])
            self.slowest = (most / limit, f"{name} took {most:.3g} of {limit:g} s", which)

    def metrics(self) -> Iterator[tuple[str, float]]:
        """Yield the mean and the longest of each name, and begin anew."""
        found, self.seconds = self.seconds, {}
        for name, seconds in found.items():
            if seconds:
                yield f"seconds/{name}/mean", sum(seconds) / len(seconds)
                yield f"seconds/{name}/max", max(seconds)

    def finding(self) -> str | None:
        """Name the slowest call, where it took more than half of its time."""
        share, what, which = self.slowest
        if share <= 0.5:
            return None
        return f"the slowest call of {what}, for {which}: raise its limit, or see why it waits"


class Failures:
    """Samples of the batch at hand for which a reward failed, by their rows, and how long calls took."""

    def __init__(self) -> None:
        """Begin with none."""
        self.timings = Timings()
        self._by_row: dict[int, str] = {}

    def add(self, failed: Mapping[int, str]) -> None:
        """Take the rows for which a function failed; the first reason of a row is kept."""
        for row, reason in failed.items():
            self._by_row.setdefault(row, reason)

    def take(self) -> dict[int, str]:
        """Return the rows that failed, and begin anew."""
        found, self._by_row = self._by_row, {}
        return found


def reasons(trainer: Any, rows: Sequence[Mapping[str, Any]], rewards: Any) -> list[str | None]:
    """Return why each row of this process failed; None for those that did not.

    `rewards` are the run's (`Rewards`), or None.
    """
    by_reward = rewards.failures.take() if rewards is not None else {}
    environments = getattr(trainer, "environments", None) or [None] * len(rows)
    return [
        row.get(ROLLOUT_ERROR)
        or getattr(environment, "fmtkit_failure", None)
        or by_reward.get(number)
        for number, (row, environment) in enumerate(zip(rows, environments, strict=True))
    ]


def timings(trainer: Any, rewards: Any) -> list[Timings]:
    """Return the timings of a run's rewards, where environments note theirs too, and rollout function."""
    found = [rewards.failures.timings] if rewards is not None else []
    own = getattr(getattr(trainer, "rollout_func", None), "timings", None)
    return [*found, own] if isinstance(own, Timings) else found


def seconds(trainer: Any, rewards: Any) -> Iterator[tuple[str, float]]:
    """Yield the metrics of what calls took since the last time."""
    for one in timings(trainer, rewards):
        yield from one.metrics()


def masked(trainer: Any, rewards: Any, own: Sequence[str | None], share: float) -> Any:
    """Return the rewards [N, F] of all processes without those of samples that failed on any.

    Raises FailedSamplesError where more failed than `share` allows.
    """
    import torch

    flags = torch.tensor([reason is not None for reason in own], device=rewards.device)
    lost = trainer.accelerator.gather(flags)
    count = int(lost.sum())
    mode = "train" if trainer.model.training else "eval"
    if share > 0:
        trainer._metrics[mode][METRIC].append(float(count))
    if not count:
        return rewards
    trainer.lost_samples += count
    if count > allowed(share, len(lost)):
        raise FailedSamplesError(_message(trainer, own, count, len(lost), share))
    rewards = rewards.clone()
    rewards[lost] = math.nan
    return rewards


def _message(
    trainer: Any, own: Sequence[str | None], count: int, samples: int, share: float
) -> str:
    every = list(own)
    if trainer.accelerator.num_processes > 1:
        from accelerate.utils import gather_object

        every = gather_object(every)
    often, times = Counter(reason for reason in every if reason is not None).most_common(1)[0]
    limit = (
        f"trl.max_failed_share: {share:g} allows {allowed(share, samples)}"
        if share > 0
        else "none may; trl.max_retries tries again, and trl.max_failed_share masks some"
    )
    return f"{count} of {samples} samples failed, {times} of them thus: {often}; {limit}"


def without_loss(trainer: Any, batch: dict[str, Any]) -> dict[str, Any]:
    """Return a scored batch in which no token of a failed sample is trained on.

    Masks as TRL's mask_truncated_completions does, and counts the tokens of the batch anew.
    """
    import torch

    if not trainer.lost_samples:
        return batch
    kept = torch.tensor([reason is None for reason in trainer.failed])
    kept = kept.to(batch["completion_mask"].device).unsqueeze(1)
    mask = batch["completion_mask"] * kept
    out = {**batch, "completion_mask": mask}
    if "tool_mask" in batch:
        out["tool_mask"] = batch["tool_mask"] * kept
        mask = mask * out["tool_mask"]
    if "num_items_in_batch" in batch:
        out["num_items_in_batch"] = trainer.accelerator.gather(mask.sum()).sum()
    return out
