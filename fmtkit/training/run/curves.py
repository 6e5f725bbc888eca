"""Draws the curves of a run: metrics.jsonl as a picture."""

import json
from collections.abc import Callable, Sequence
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
    figure = Figure(figsize=(_WIDTH * _COLUMNS, _HEIGHT * rows), layout="constrained")
    panels = iter(figure.subplots(rows, _COLUMNS, squeeze=False).flat)
    for (name, points), panel in zip(curves.items(), panels, strict=False):
        _draw(panel, name, points)
    for panel in panels:
        panel.set_axis_off()
    path = run / PICTURE
    # Without the version of matplotlib, equal runs have equal pictures.
    figure.savefig(path, dpi=110, metadata={"Software": None})
    return path


def _draw(panel: Any, name: str, points: Sequence[tuple[float, float]]) -> None:
    """Draw one metric; values that are no numbers are gaps of its line."""
    panel.plot(*zip(*points, strict=True), linewidth=1.2)
    panel.set_title(name, fontsize=9)
    panel.tick_params(labelsize=7)
    panel.grid(color="0.8", linewidth=0.4)
    panel.xaxis.get_major_locator().set_params(integer=True, nbins=4)


def placed(own: Sequence[str]) -> Callable[[str], int]:
    """Return the place of a metric: the most informative are first; others keep their order."""
    order = (*_FIRST, *own, *_THEN)
    return lambda name: order.index(name) if name in order else len(order)
