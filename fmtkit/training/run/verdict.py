"""What a run's curves say: whether it learned, and if not, why, in a sentence and with what to try.

A curve has moved if the means of its first and of its last logs differ by more than chance lets them: three
standard errors, with the noise of single logs from the differences between neighbours, so that a slope is
no noise. It is a reading of training metrics: whether the model is any good, answers and evaluations say.
"""

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from statistics import fmean, median
from typing import Literal

from fmtkit.core.data_classes import dataclass

State = Literal["learned", "unclear", "not_learned", "diverged"]
Curve = Sequence[tuple[float, float | None]]
"""Step and value; None is a value that is no number."""

FEWEST = 5
"""Logs of a curve below which nothing is said."""
_PART, _MOST = 5, 50
"""The start and the end of a curve are a fifth of its logs each, and at most 50."""
_ERRORS = 3.0
_LEAST = 0.01
"""The smallest change of a loss that is called one, as a part of its start."""
_SIGMA = 0.6745 * math.sqrt(2)
"""The median of the differences of two normal values, in standard deviations of one."""
_ROSE = 1.5
"""How many times its start, or its first log, a loss is at the end of a run that diverged."""
_COLLAPSED = 10.0
"""How many times its first log a loss, or the log-probability of the chosen replies, is in a ruined model."""
_HIGH = 1.0
"""The least loss of a ruined model: one that began near 0, as of two equal models, may be many times that."""
_SILENT = 0.9
"""Share of groups without a spread of rewards from which on there is nothing to learn from."""
_REWARDS = ("reward", "objective/scores", "objective/rlhf_reward")
"""Metrics of the rewards of answers, as the trainers of TRL call them: the first that a run logs decides."""
_WORSE = 1.02
"""How many times its best an evaluation is at the end if it became worse."""


@dataclass(frozen=True)
class Move:
    """How a curve moved."""

    name: str
    start: float
    end: float
    error: float
    """Standard error of the difference."""
    logs: int
    first: float
    """The first log: a run may have been ruined within its first fifth."""
    noise: float
    """Standard error of a single log."""

    @property
    def left_its_beginning(self) -> bool:
        """Return whether it ends far above its first log, beyond chance."""
        if self.end < _HIGH:
            return False
        # The noise of a ruined run is as large as its loss.
        is_ruined = self.end > _COLLAPSED * abs(self.first)
        is_chance = self.end - self.first <= _ERRORS * self.noise
        return is_ruined or (not is_chance and self.end > _ROSE * abs(self.first))

    @property
    def rose(self) -> bool:
        """Return whether it is higher at its end, beyond chance."""
        return self.end - self.start > _ERRORS * self.error

    @property
    def fell(self) -> bool:
        """Return whether it is lower at its end, beyond chance."""
        return self.start - self.end > _ERRORS * self.error

    def __str__(self) -> str:
        return f"{self.name} {self.start:.4g} -> {self.end:.4g}"


@dataclass(frozen=True)
class Verdict:
    """Whether a run learned, in a sentence; and what to try, a sentence each."""

    state: State
    text: str
    advice: tuple[str, ...] = ()

    def as_dict(self) -> dict[str, object]:
        """Return it as `report.json` has it."""
        return {"state": self.state, "text": self.text, "advice": list(self.advice)}


@dataclass(frozen=True)
class Method:
    """What is to be known of a method to read its curves."""

    is_online: bool = False
    """Whether its loss says nothing, as of GRPO: what it learns shows in the rewards of answers."""
    has_pairs: bool = False


def verdict_of(curves: Mapping[str, Curve], method: Method, planned: int | None = None) -> Verdict:
    """Judge a run by its curves.

    Args:
        curves: Metric -> its logs, ascending by step.
        method: How its method learns.
        planned: The steps that it was to make, where they are known.
    """
    rewarded = next((name for name in _REWARDS if name in curves), None)
    method = replace(method, is_online=method.is_online or rewarded is not None)
    found = next(_without_learning(curves, method), None) or _by_movement(curves, method, rewarded)
    advice = [*found.advice, *_of_evaluation(curves), *_unfinished(curves, planned)]
    return Verdict(found.state, found.text, tuple(advice))


def move(name: str, curve: Curve) -> Move | None:
    """Return how a curve moved; None with too few numbers."""
    values = [value for _, value in curve if value is not None]
    if len(values) < FEWEST:
        return None
    part = min(max(len(values) // _PART, 1), _MOST)
    steps = [abs(after - before) for before, after in itertools.pairwise(values)]
    noise = median(steps) / _SIGMA
    start, end = fmean(values[:part]), fmean(values[-part:])
    error = noise * math.sqrt(2 / part)
    return Move(name, start, end, error, len(values), values[0], noise)


def _values(curves: Mapping[str, Curve], name: str) -> list[float]:
    return [value for _, value in curves.get(name, ()) if value is not None]


def _without_learning(curves: Mapping[str, Curve], method: Method) -> Iterator[Verdict]:
    """Yield why nothing can have been learned, or what was learned was lost: the plainest reason first."""
    for name in ("loss", "grad_norm"):
        lost = [step for step, value in curves.get(name, ()) if value is None]
        if lost and name == "loss" and lost[0] == curves[name][0][0]:
            yield Verdict(
                "diverged",
                f"Nothing was learned: the loss is no number from the first log on (step {lost[0]:g})",
                (
                    "look whether any token is trained on: fmtkit inspect --show-mask 3",
                    "with fp16, set bf16: true",
                ),
            )
        if lost:
            yield Verdict(
                "diverged",
                f"It diverged: {name} is no number at step {lost[0]:g}",
                (_SLOWER,),
            )
    rates = _values(curves, "learning_rate")
    if rates and not any(rates):
        yield Verdict(
            "not_learned",
            "Nothing was learned: learning_rate is 0 in every log",
            ("set learning_rate, and look at lr_scheduler and warmup_steps in plan.json",),
        )
    norms = _values(curves, "grad_norm")
    if norms and not any(norms):
        yield _without_gradient(curves, method)
    silent = _values(curves, "frac_reward_zero_std")
    if method.is_online and silent and fmean(silent) >= _SILENT:
        yield Verdict(
            "not_learned",
            f"Hardly anything was learned: in {fmean(silent):.0%} of the groups all answers had one "
            "reward, from which nothing follows",
            (
                "choose prompts that the model solves sometimes, or rewards with more than two values",
                "raise temperature or trl.num_generations",
            ),
        )
    loss = move("loss", curves.get("loss", ()))
    if loss and not method.is_online and loss.rose and loss.end > _ROSE * abs(loss.start):
        yield Verdict("diverged", f"It diverged: {loss}", (_SLOWER,))
    if loss and not method.is_online and loss.left_its_beginning:
        at_first = f"loss {loss.first:.4g} at its first log, {loss.end:.4g} at its end"
        yield Verdict("diverged", f"It diverged: {at_first}", (_SLOWER,))
    # With a broken model a loss of pairs may be 0, and their margin huge: both replies are impossible to it.
    chosen = move("logps/chosen", curves.get("logps/chosen", ()))
    if chosen and chosen.first < 0 and chosen.end < _COLLAPSED * chosen.first:
        fall = f"logps/chosen {chosen.first:.4g} at its first log, {chosen.end:.4g} at its end"
        yield Verdict(
            "diverged",
            f"It diverged: the model no longer knows the chosen replies, {fall}",
            (_SLOWER, "raise rl_beta, which holds the model to what it was"),
        )


_SLOWER = "lower learning_rate (a tenth), set max_grad_norm: 1.0 and warmup_steps"


def _without_gradient(curves: Mapping[str, Curve], method: Method) -> Verdict:
    """Return the verdict on a run whose gradient was zero in each log."""
    if method.is_online:
        why = "all answers to each prompt had one reward"
        advice = "try the rewards on rows: fmtkit rewards test CONFIG"
    elif method.has_pairs and not any(_values(curves, "rewards/margins")):
        why = "chosen and rejected have the same log-probability in each pair"
        advice = "look at pairs: fmtkit inspect -c CONFIG (chosen_equals_rejected)"
    else:
        why = "no token is trained on"
        advice = "look at the masks: fmtkit inspect -c CONFIG --show-mask 3"
    return Verdict(
        "not_learned", f"Nothing was learned: the gradient is 0 in every log; {why}", (advice,)
    )


def _by_movement(curves: Mapping[str, Curve], method: Method, rewarded: str | None) -> Verdict:
    """Judge by the curve that shows whether the method learns."""
    loss = move("loss", curves.get("loss", ()))
    if not any(_values(curves, name) for name in curves):
        return Verdict(
            "unclear",
            "Nothing was logged: the run ended before its first log, or has not come to it",
            (
                "fmtkit train CONFIG says in one line why it ends",
                "look whether any token is trained on: fmtkit inspect -c CONFIG --show-mask 3",
            ),
        )
    if method.is_online and rewarded is None and "loss" in curves:
        return Verdict(
            "unclear", "Not judged: no reward was logged, and the loss says nothing here"
        )
    margins = "rewards/margins" if method.has_pairs and "rewards/margins" in curves else "loss"
    name = rewarded or margins
    main = move(name, curves.get(name, ()))
    if main is None:
        logs = len(_values(curves, name))
        steps = [step for step, _ in curves.get(name, ())]
        # Logs of each step are as many as there can be.
        is_every = len(steps) > 1 and steps[-1] - steps[0] == len(steps) - 1
        return Verdict(
            "unclear",
            f"Too early to say: {logs} log{'s' * (logs != 1)} with {name}, and {FEWEST} are needed",
            (
                "train for more steps"
                if is_every
                else "train for more steps, or set logging_steps: 1",
            ),
        )
    is_loss = main.name == "loss"
    enough = not is_loss or abs(main.end - main.start) >= _LEAST * abs(main.start)
    right, wrong = (main.fell, main.rose) if is_loss else (main.rose, main.fell)
    beside = f"; {loss}" if loss is not None and not is_loss and not method.is_online else ""
    if right and enough:
        return Verdict("learned", f"It learned: {main}{beside}")
    if wrong:
        return Verdict(
            "not_learned",
            f"It became worse: {main}{beside}",
            (_SLOWER, "look at the data: fmtkit inspect -c CONFIG"),
        )
    return Verdict(
        "not_learned",
        f"No learning is seen: {main}, which is within its noise{beside}",
        ("raise learning_rate, train for longer, or look at the data: fmtkit inspect -c CONFIG",),
    )


def _of_evaluation(curves: Mapping[str, Curve]) -> Iterator[str]:
    """Yield what the evaluation says beside it."""
    points = [(step, value) for step, value in curves.get("eval_loss", ()) if value is not None]
    if len(points) < 2:
        return
    best_step, best = min(points, key=lambda point: point[1])
    step, last = points[-1]
    if best > 0 and last > _WORSE * best and best_step != step:
        yield (
            f"eval_loss was best at step {best_step:g} ({best:.4g}) and is {last:.4g} at step {step:g}: take "
            "that checkpoint (load_best_model_at_end: true), or train for fewer epochs"
        )


def _unfinished(curves: Mapping[str, Curve], planned: int | None) -> Iterator[str]:
    """Yield how far a run came that was to make more steps."""
    last = max((curve[-1][0] for curve in curves.values() if curve), default=0)
    if planned is not None and 0 < last < planned:
        yield f"it ended at step {last:g} of {planned}: fmtkit train CONFIG --resume continues it"
