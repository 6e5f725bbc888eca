"""Samples whose reward, rollout or environment failed: counted, masked, and never trained as zero.

`trl.max_failed_share` says how many of a generation batch may fail, over all processes. Those that do
have no reward by any function, so they count neither in an advantage nor in the statistics of their group,
and none of their tokens is in the loss. If more fail, the run ends on every process.
"""

import math
import os
import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from fmtkit.training.building.callbacks import BetweenStepsError, RunLog

ROLLOUT_ERROR = "rollout_error"
"""Column in which a rollout function gives the reason for each answer that failed; None for the others."""
METRIC = "failed_samples"


class FailedSamplesError(BetweenStepsError):
    """More samples failed than allowed; the message says why."""

    is_shared = True


def processes() -> int:
    """Return the number of training processes: if only one of them raises, the others wait for it."""
    return int(os.environ.get("WORLD_SIZE", "1"))


def allowed(share: float, samples: int) -> int:
    """Return how many of `samples` may fail: that share, and at least one if it is above 0."""
    return max(1, math.floor(share * samples)) if share > 0 else 0


class Timings:
    """Seconds per sample of each kind of call, by name, and the slowest call."""

    def __init__(self) -> None:
        """Start without any."""
        self.seconds: dict[str, list[float]] = {}
        self.slowest: tuple[float, str, str] = (0.0, "", "")

    def add(
        self, name: str, seconds: Sequence[float], limit: float, samples: Sequence[Any]
    ) -> None:
        """Add the seconds of each sample; `samples` are their descriptions."""
        # One append for all: answers may be made in another thread.
        self.seconds.setdefault(name, []).extend(seconds)
        most = max(seconds, default=0.0)
        if limit and most / limit > self.slowest[0]:
            which = str(samples[list(seconds).index(most)])
            self.slowest = (most / limit, f"{name} took {most:.3g} of {limit:g} s", which)

    def metrics(self) -> Iterator[tuple[str, float]]:
        """Yield the mean and the maximum of each name, and reset."""
        by_name, self.seconds = self.seconds, {}
        for name, seconds in by_name.items():
            if seconds:
                yield f"seconds/{name}/mean", sum(seconds) / len(seconds)
                yield f"seconds/{name}/max", max(seconds)

    def finding(self) -> str | None:
        """Report the slowest call, if it took more than half of its time limit."""
        share, what, which = self.slowest
        if share <= 0.5:
            return None
        return f"the slowest call of {what}, for {which}: raise its limit, or see why it waits"


class Failures:
    """Samples of the current batch for which a reward failed, by their rows, and how long calls took."""

    def __init__(self) -> None:
        """Start without any."""
        self.timings = Timings()
        self.final = ""
        """An error that ends the run on every process, however many samples may fail."""
        self._by_row: dict[int, str] = {}

    def add(self, failed: Mapping[int, str]) -> None:
        """Add the rows for which a function failed; the first reason of a row is kept."""
        for row, reason in failed.items():
            self._by_row.setdefault(row, reason)

    def take(self) -> dict[int, str]:
        """Return the rows that failed, and reset."""
        reasons, self._by_row = self._by_row, {}
        return reasons


class FailedSamples:
    """What a trainer does about the failed samples of a batch, on all of its processes.

    `reasons` says of each row of this process why it failed, None where it did not.
    """

    def __init__(self, trainer: Any, rewards: Any, share: float) -> None:
        """Take the run's rewards (`Rewards`, or None), and the share of samples that may fail."""
        self.trainer = trainer
        self.rewards = rewards
        self.share = share
        self.reasons: list[str | None] = []
        self.of_batch = 0
        """Failed samples of the batch, over all processes."""
        self.of_all = 0
        """The same over all answers generated for the batch, also those that are not kept."""

    def begin(self) -> None:
        """Reset for the next batch."""
        self.reasons, self.of_batch, self.of_all = [], 0, 0

    def masked(self, rewards: Any, rows: Sequence[Mapping[str, Any]]) -> Any:
        """Return the rewards [N, F] of all processes without those of samples that failed on any.

        Raises FailedSamplesError where more failed than may.
        """
        import torch

        failures = Failures() if self.rewards is None else self.rewards.failures
        self.reasons = self._reasons(rows, failures.take())
        final = 2 * bool(failures.final)
        flags = torch.tensor([bool(one) + final for one in self.reasons], device=rewards.device)
        flags = self.trainer.accelerator.gather(flags)
        lost = flags > 0
        self.of_batch = int(lost.sum())
        self.of_all += self.of_batch
        if not self.of_batch:
            return rewards
        if bool((flags > 1).any()):
            raise FailedSamplesError(next(filter(None, self._of_all([failures.final]))))
        if self.of_batch > allowed(self.share, len(lost)):
            raise FailedSamplesError(f"{self._commonest(len(lost))}; {self._limit(len(lost))}")
        rewards = rewards.clone()
        rewards[lost] = math.nan
        return rewards

    def _reasons(
        self, rows: Sequence[Mapping[str, Any]], by_reward: Mapping[int, str]
    ) -> list[str | None]:
        environments = getattr(self.trainer, "environments", None) or [None] * len(rows)
        return [
            row.get(ROLLOUT_ERROR)
            or getattr(environment, "fmtkit_failure", None)
            or by_reward.get(number)
            for number, (row, environment) in enumerate(zip(rows, environments, strict=True))
        ]

    def _limit(self, samples: int) -> str:
        if self.share > 0:
            most = allowed(self.share, samples)
            return f"trl.max_failed_share: {self.share:g} allows {most}"
        return "none may; trl.max_retries tries again, and trl.max_failed_share masks some"

    def _commonest(self, samples: int) -> str:
        every = self._of_all(self.reasons)
        often, times = Counter(reason for reason in every if reason is not None).most_common(1)[0]
        return f"{self.of_batch} of {samples} samples failed, {times} of them with: {often}"

    def _of_all(self, reasons: Sequence[str | None]) -> list[str | None]:
        """Return the items of every process."""
        if self.trainer.accelerator.num_processes == 1:
            return list(reasons)
        from accelerate.utils import gather_object

        return list(gather_object(list(reasons)))

    def log_reasons(self) -> None:
        """Log why samples failed, if any did, and what a reward logged as `masked`."""
        if not any(self.reasons):
            return
        logged = self.trainer._pending_extra_logs
        logged_reasons = logged.pop("masked", [None] * len(self.reasons))
        pairs = zip(self.reasons, logged_reasons, strict=True)
        self.trainer._log_completion_extra("masked", [failed or other for failed, other in pairs])

    def metrics(self) -> Iterator[tuple[str, float]]:
        """Yield how many samples of the batch failed, if any may, and how long calls took."""
        if self.share > 0:
            yield METRIC, float(self.of_batch)
        for one in self._timings():
            yield from one.metrics()

    def check(self) -> None:
        """End the run on every process if a sample of the last batch failed on any, where none may.

        For a trainer that takes no part in this: it calls it before a step is made of the batch.
        """
        import torch

        environments = getattr(self.trainer, "environments", None) or [None]
        self.begin()
        unmasked = torch.zeros(1, device=self.trainer.accelerator.device)
        self.masked(unmasked, [{}] * len(environments))
        if hasattr(self.trainer, "_metrics"):
            self.log_metrics()

    def log_metrics(self) -> None:
        """Log them as TRL's GRPO and RLOO trainers log theirs."""
        mode = "train" if self.trainer.model.training else "eval"
        for name, value in self.metrics():
            self.trainer._metrics[mode][name].append(value)

    @contextmanager
    def reporting(self) -> Iterator[None]:
        """Wrap a training: at its end, stop the reward workers and report the findings of the run."""
        try:
            yield
            for finding in self._findings():
                self._report(finding)
        finally:
            if self.rewards is not None:
                self.rewards.close()

    def _findings(self) -> Iterator[str]:
        """Yield which calls came close to their time limits, and how many batches had no reward."""
        import torch

        yield from filter(None, (timings.finding() for timings in self._timings()))
        judge = None if self.rewards is None else self.rewards.judge
        if judge is not None:
            counts = torch.tensor([[judge.skipped, judge.seen]])
            device = self.trainer.accelerator.device
            finding = judge.finding(
                *self.trainer.accelerator.gather(counts.to(device)).sum(0).tolist()
            )
            if finding:
                yield finding

    def _report(self, finding: str) -> None:
        for callback in self.trainer.callback_handler.callbacks:
            if isinstance(callback, RunLog):
                callback.findings.append(finding)
        if self.trainer.is_world_process_zero():
            print(f"warning: {finding}", file=sys.stderr)  # noqa: T201

    def _timings(self) -> list[Timings]:
        """Return the timings of the run's rewards, environments included, and of its rollout function."""
        of_rewards = [self.rewards.failures.timings] if self.rewards is not None else []
        of_rollout = getattr(getattr(self.trainer, "rollout_func", None), "timings", None)
        return [*of_rewards, of_rollout] if isinstance(of_rollout, Timings) else of_rewards

    def without_loss(self, batch: dict[str, Any]) -> dict[str, Any]:
        """Return a scored batch in which no token of a failed sample is trained on.

        Masks as TRL's mask_truncated_completions does, and recounts the tokens of the batch.
        """
        import torch

        if not self.of_batch:
            return batch
        kept = torch.tensor([reason is None for reason in self.reasons])
        kept = kept.to(batch["completion_mask"].device).unsqueeze(1)
        mask = batch["completion_mask"] * kept
        out = {**batch, "completion_mask": mask}
        if "tool_mask" in batch:
            out["tool_mask"] = batch["tool_mask"] * kept
            mask = mask * out["tool_mask"]
        if "num_items_in_batch" in batch:
            out["num_items_in_batch"] = self.trainer.accelerator.gather(mask.sum()).sum()
        return out
