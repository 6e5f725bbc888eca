"""The curves of a run: metrics.jsonl by metric, for its verdict and its page."""

import json
from collections.abc import Callable, Sequence
from pathlib import Path

from fmtkit.training.building.callbacks import METRICS
from fmtkit.training.run.verdict import Curve

_ALWAYS_OUT = frozenset({"step", "seconds", "epoch", "total_flos"})
_FIRST = (
    "loss",
    "eval_loss",
    "rewards/margins",
    "rewards/accuracies",
    "reward",
)
_THEN = (
    "frac_reward_zero_std",
    "reward_std",
    "entropy",
    "grad_norm",
    "learning_rate",
)


def read(run: Path) -> dict[str, Curve]:
    """Return each metric's points (step, value); metrics are in the order of their first line.

    A resumed run repeats the steps after its checkpoint: the last line of a step counts. None is a value that
    was no number. A half line, the last one of a run that was killed, is left out.
    """
    out: dict[str, dict[float, float | None]] = {}
    path = run / METRICS
    lines = path.read_text(encoding="utf-8").split("\n")[:-1] if path.is_file() else []
    for line in lines:
        row = json.loads(line)
        for name, value in row.items():
            if name not in _ALWAYS_OUT and not name.startswith("train_"):
                out.setdefault(name, {})[row["step"]] = value
    return {name: sorted(points.items()) for name, points in out.items()}


def thinned(curve: Curve, most: int) -> Curve:
    """Return at most about so many points of a curve: of each part the lowest and the highest value.

    So a spike stays, and a value that is no number too. First and last point are kept.
    """
    if len(curve) <= most:
        return curve
    size = -(-2 * len(curve) // most)
    kept = {0, len(curve) - 1}
    for start in range(0, len(curve), size):
        part = range(start, min(start + size, len(curve)))
        numbers = [(value, i) for i in part if (value := curve[i][1]) is not None]
        kept.update(i for _, i in ([min(numbers), max(numbers)] if numbers else []))
        kept.update(next(([i] for i in part if curve[i][1] is None), []))
    return [curve[i] for i in sorted(kept)]


def placed(own: Sequence[str]) -> Callable[[str], int]:
    """Return the place of a metric: the most informative are first; others keep their order."""
    order = (*_FIRST, *own, *_THEN)
    return lambda name: order.index(name) if name in order else len(order)
