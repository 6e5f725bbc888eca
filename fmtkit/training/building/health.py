"""The health of an online run, read from its metrics; each warning names the next step to try.

A method's runner has the limits; besides them the rewards should have a spread in most steps.
"""

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    # Reward workers load this module by way of TrainingError, and start without pyarrow.
    from fmtkit.core.runner import HealthLimits

Log = Mapping[str, float]

_PATIENCE = 5
_WINDOW = 20


class OnlineHealth:
    """Watches the logs of a run, and gives each warning once."""

    def __init__(self, limits: "HealthLimits") -> None:
        """Start without a log."""
        self.limits = limits
        self.recent: deque[Log] = deque(maxlen=_WINDOW)
        self.best: dict[str, float] = {}
        self.first_entropy: float | None = None
        self.said: set[str] = set()

    def see(self, log: Log, step: int) -> Iterator[str]:
        """Take a log and yield the warnings that it triggers first."""
        self.recent.append(log)
        for name, value in self._means(log):
            self.best[name] = max(self.best.get(name, value), value)
        if self.first_entropy is None:
            self.first_entropy = log.get("entropy")
        for rule in RULES:
            for name, text in rule(self, step):
                if name not in self.said:
                    self.said.add(name)
                    yield text

    def last(self, metric: str, count: int = _PATIENCE) -> list[float]:
        """Return a metric in the last logs that have it; an empty list while there are too few."""
        values = [log[metric] for log in self.recent if metric in log]
        return values[-count:] if len(values) >= count else []

    def _means(self, log: Log) -> Iterator[tuple[str, float]]:
        """Yield the mean of each reward function whose scale the limits know."""
        for name, value in log.items():
            parts = name.split("/")
            if len(parts) != 3 or (parts[0], parts[2]) != ("rewards", "mean"):
                continue
            if parts[1] not in self.limits.own_scale:
                yield parts[1], value


Warnings = Iterable[tuple[str, str]]


def _low_reward(health: OnlineHealth, step: int) -> Warnings:
    limits = health.limits
    if step < limits.first_steps:
        return
    for name, best in health.best.items():
        if best <= limits.low_reward:
            yield (
                f"low reward of {name}",
                f"rewards/{name}/mean was never above {limits.low_reward} in {step} steps (best "
                f"{best:.3g}): try the function on rows with `fmtkit rewards test CONFIG`; if it is "
                "right and its scale is 0 to 1, begin with easier prompts or a model that was "
                "trained on such answers",
            )


def _no_spread(health: OnlineHealth, _: int) -> Warnings:
    shares = [log.get("frac_reward_zero_std", 0.0) for log in health.recent if "reward_std" in log]
    silent = sum(share == 1.0 for share in shares)
    if len(shares) >= _WINDOW // 2 and silent > len(shares) / 2:
        yield (
            "no spread",
            f"in {silent} of {len(shares)} steps all answers to each prompt had one reward, from "
            "which nothing is learned: choose prompts that the model solves sometimes, raise "
            "temperature or trl.num_generations, or set trl.dynamic_sampling: true",
        )


def _unfilled(health: OnlineHealth, _: int) -> Warnings:
    last = health.last("dynamic_sampling/unfilled_groups")
    if last and min(last) > 0:
        yield (
            "unfilled",
            f"trl.dynamic_sampling left {last[-1]:g} groups of a batch without a signal, {_PATIENCE} logs in "
            "a row: choose prompts that the model solves sometimes, or raise "
            "trl.dynamic_sampling_max_gen_batches",
        )


def _entropy(health: OnlineHealth, _: int) -> Warnings:
    limits = health.limits
    last = health.last("entropy")
    if not last:
        return
    if max(last) < limits.collapsed:
        yield (
            "collapsed",
            f"entropy is {last[-1]:.2g}, below {limits.collapsed}: the model gives one answer only; lower "
            "learning_rate, raise temperature, or hold it back with trl.beta: 0.04",
        )
    elif max(last) < limits.low_entropy:
        yield (
            "low entropy",
            f"entropy is {last[-1]:.2g}, below {limits.low_entropy}, and answers become similar: raise "
            "temperature or lower learning_rate before it collapses",
        )
    first = health.first_entropy
    if first is not None and min(last) > max(limits.high_entropy, 1.5 * first):
        yield (
            "high entropy",
            f"entropy rose from {first:.2g} to {last[-1]:.2g}: answers drift towards noise; lower "
            "learning_rate or temperature, or set trl.beta: 0.04",
        )


def _gradient(health: OnlineHealth, _: int) -> Warnings:
    limits = health.limits
    last = health.last("grad_norm")
    if not last:
        return
    if min(last) > limits.large_gradient:
        yield (
            "large gradient",
            f"grad_norm is {last[-1]:.3g}, above {limits.large_gradient:g} for {_PATIENCE} logs: lower "
            "learning_rate, set max_grad_norm: 1.0, or make batches larger",
        )
    if 0 < max(last) < limits.small_gradient:
        yield (
            "small gradient",
            f"grad_norm is {last[-1]:.2g}, below {limits.small_gradient}: little is learned; look at the "
            "spread of the rewards, or raise learning_rate",
        )


def _cut(health: OnlineHealth, _: int) -> Warnings:
    limits = health.limits
    last = health.last("completions/clipped_ratio", _WINDOW // 2)
    if last and min(last) >= limits.cut_answers:
        yield (
            "cut answers",
            f"{last[-1]:.0%} of the answers are cut at trl.max_completion_length: raise it, ask for "
            "shorter answers, or check that the model's end of turn is its eos_token",
        )


def _clipped(health: OnlineHealth, _: int) -> Warnings:
    limits = health.limits
    last = health.last("clip_ratio/region_mean")
    if last and min(last) > limits.clipped_ratio:
        yield (
            "clipped ratio",
            f"{last[-1]:.0%} of the tokens have a clipped ratio: the policy moves too far between "
            "generations; lower learning_rate or trl.num_iterations",
        )


def _off_policy(health: OnlineHealth, _: int) -> Warnings:
    limits = health.limits
    last = health.last("sampling/importance_sampling_ratio/mean")
    if last and max(last) < limits.off_policy:
        yield (
            "off policy",
            f"the importance ratio to the sampler is {last[-1]:.2g}: its weights are old; lower "
            "trl.vllm_sync_interval or trl.prefetch_depth",
        )


RULES: tuple[Callable[[OnlineHealth, int], Warnings], ...] = (
    _low_reward,
    _no_spread,
    _unfilled,
    _entropy,
    _gradient,
    _cut,
    _clipped,
    _off_policy,
)
