"""The curves of a run: metrics.jsonl as a picture."""

import json
from importlib.util import find_spec
from pathlib import Path

from fmtkit.training.life import METRICS

_ALWAYS_OUT = frozenset({"step", "seconds", "epoch", "total_flos"})
PICTURE = "curves.png"
_FIRST = (
    "loss",
    "eval_loss",
    "rewards/margins",
    "rewards/accuracies",
    "reward",
    "frac_reward_zero_std",
    "reward_std",
    "entropy",
    "grad_norm",
)


def read(run: Path) -> dict[str, list[tuple[float, float]]]:
    """Return each metric's points (step, value), in the order in which they first came.

    A resumed run does steps again that came after its checkpoint: the later line holds.
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


def draw(run: Path) -> Path | None:
    """Draw the curves into the run folder; None without matplotlib or without two points."""
    found = {name: points for name, points in read(run).items() if len(points) > 1}
    curves = {name: found[name] for name in sorted(found, key=place)}
    if not curves or find_spec("matplotlib") is None:
        return None
    from matplotlib.figure import Figure

    columns = 3
    rows = -(-len(curves) // columns)
    width, height = 4 * columns, 2.4 * rows
    figure = Figure(figsize=(width, height))
    # Margins in inches: a layout that matplotlib solves takes twice the time of the whole picture.
    figure.subplots_adjust(
        left=0.5 / width,
        right=1 - 0.1 / width,
        bottom=0.3 / height,
        top=1 - 0.3 / height,
        wspace=0.25,
        hspace=0.4,
    )
    for number, (name, points) in enumerate(curves.items(), start=1):
        axes = figure.add_subplot(rows, columns, number)
        axes.plot([step for step, _ in points], [value for _, value in points], linewidth=1.2)
        axes.set_title(name, fontsize=9)
        axes.tick_params(labelsize=7)
        axes.grid(visible=True, linewidth=0.3)
    path = run / PICTURE
    # A fixed date keeps equal runs equal in bytes.
    figure.savefig(path, dpi=110, metadata={"Software": None})
    return path


def place(name: str) -> int:
    """Put the metrics that tell most first; others keep their order."""
    return _FIRST.index(name) if name in _FIRST else len(_FIRST)
