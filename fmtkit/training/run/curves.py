"""Draws the curves of a run: metrics.jsonl as a picture."""

import json
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from fmtkit.training.building.callbacks import METRICS

_ALWAYS_OUT = frozenset({"step", "seconds", "epoch", "total_flos"})
PICTURE = "curves.png"
_COLUMNS = 3
_WIDTH, _HEIGHT = 4.0, 2.4
"""Size in inches of the panel of one metric."""
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
)


def read(run: Path) -> dict[str, list[tuple[float, float]]]:
    """Return each metric's points (step, value); metrics are in the order of their first line.

    A resumed run repeats the steps after its checkpoint: the last line of a step counts.
    """
    out: dict[str, dict[float, float]] = {}
    path = run / METRICS
    lines = path.read_text(encoding="utf-8").splitlines() if path.is_file() else []
    for line in lines:
        row = json.loads(line)
        for name, value in row.items():
            if name not in _ALWAYS_OUT and value is not None and not name.startswith("train_"):
                out.setdefault(name, {})[row["step"]] = value
    return {name: sorted(points.items()) for name, points in out.items()}


def draw(run: Path, own: Sequence[str] = ()) -> Path | None:
    """Draw the curves into the run folder; None without matplotlib or without two points.

    `own` are the metrics that show whether the method of the run learns anything.
    """
    drawable = {name: points for name, points in read(run).items() if len(points) > 1}
    curves = {name: drawable[name] for name in sorted(drawable, key=placed(own))}
    if not curves or find_spec("matplotlib") is None:
        return None
    from matplotlib.figure import Figure

    rows = -(-len(curves) // _COLUMNS)
    width, height = _WIDTH * _COLUMNS, _HEIGHT * rows
    figure = Figure(figsize=(width, height))
    # All panels share one Axes with inches as units: an Axes for each takes twice as long.
    axes = figure.add_axes((0, 0, 1, 1), xlim=(0, width), ylim=(0, height))
    axes.set_axis_off()
    for number, (name, points) in enumerate(curves.items()):
        row, column = divmod(number, _COLUMNS)
        _panel(axes, name, points, (column * _WIDTH, height - (row + 1) * _HEIGHT))
    path = run / PICTURE
    # Without the version of matplotlib, equal runs have equal pictures.
    figure.savefig(path, dpi=110, metadata={"Software": None})
    return path


def _panel(
    axes: Any, name: str, points: Sequence[tuple[float, float]], corner: tuple[float, float]
) -> None:
    """Draw one metric with its grid into a panel of _WIDTH · _HEIGHT inches from its lower left."""
    from matplotlib.collections import LineCollection

    finite = [point for point in points if math.isfinite(point[1])] or [(points[0][0], 0.0)]
    steps = [step for step, _ in finite]
    across = _Scale.of(steps, corner[0] + 0.55, _WIDTH - 0.7, integer=True)
    up = _Scale.of([value for _, value in finite], corner[1] + 0.3, _HEIGHT - 0.65)
    grid = [[(across.at(tick), up.low), (across.at(tick), up.high)] for tick in across.ticks]
    grid += [[(across.low, up.at(tick)), (across.high, up.at(tick))] for tick in up.ticks]
    axes.add_collection(LineCollection(grid, colors="0.8", linewidths=0.4))
    box = [(across.low, up.low), (across.low, up.high), (across.high, up.high)]
    box += [(across.high, up.low), (across.low, up.low)]
    line = [(across.at(step), up.at(value)) for step, value in finite]
    axes.add_collection(
        LineCollection([box, line], colors=["0.2", "C0"], linewidths=[0.8, 1.2], capstyle="round")
    )
    axes.text((across.low + across.high) / 2, up.high + 0.07, name, fontsize=9, ha="center")
    for tick in across.ticks:
        axes.text(across.at(tick), up.low - 0.15, f"{tick:g}", fontsize=7, ha="center")
    for tick in up.ticks:
        where = across.low - 0.05, up.at(tick)
        axes.text(*where, f"{tick:g}", fontsize=7, ha="right", va="center")


@dataclass(frozen=True)
class _Scale:
    """A scale of the plot: `first` at `low` inches, `last` at `high`."""

    first: float
    last: float
    low: float
    high: float
    ticks: tuple[float, ...]

    @classmethod
    def of(
        cls, values: Sequence[float], low: float, inches: float, *, integer: bool = False
    ) -> "_Scale":
        """Return the scale of these values, with a margin at both ends."""
        from matplotlib.ticker import MaxNLocator

        first, last = min(values), max(values)
        room = 0.05 * (last - first) or 0.05 * abs(first) or 1.0
        first, last = first - room, last + room
        ticks = [float(tick) for tick in MaxNLocator(4, integer=integer).tick_values(first, last)]
        inside = tuple(tick for tick in ticks if first <= tick <= last)
        return cls(first, last, low, low + inches, inside)

    def at(self, value: float) -> float:
        """Return the position of a value in inches."""
        return self.low + (value - self.first) / (self.last - self.first) * (self.high - self.low)


def placed(own: Sequence[str]) -> Callable[[str], int]:
    """Return the place of a metric: the most informative are first; others keep their order."""
    order = (*_FIRST, *own, *_THEN)
    return lambda name: order.index(name) if name in order else len(order)
