"""The curves of a run: metrics.jsonl as a picture, and the run's page."""

import html
import json
from base64 import b64encode
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path

from fmtkit.training.life import METRICS
from fmtkit.training.rl.grpo import samples_page

_ALWAYS_OUT = frozenset({"step", "seconds", "epoch", "total_flos"})
_PICTURE = "curves.png"
_FIRST = (
    "loss",
    "eval_loss",
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
    curves = {name: found[name] for name in sorted(found, key=_place)}
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
    for place, (name, points) in enumerate(curves.items(), start=1):
        axes = figure.add_subplot(rows, columns, place)
        axes.plot([step for step, _ in points], [value for _, value in points], linewidth=1.2)
        axes.set_title(name, fontsize=9)
        axes.tick_params(labelsize=7)
        axes.grid(visible=True, linewidth=0.3)
    path = run / _PICTURE
    # A fixed date keeps equal runs equal in bytes.
    figure.savefig(path, dpi=110, metadata={"Software": None})
    return path


def _place(name: str) -> int:
    """Put the metrics that tell most first; others keep their order."""
    return _FIRST.index(name) if name in _FIRST else len(_FIRST)


def write_page(run: Path, report: Mapping[str, object]) -> Path:
    """Write the run's page: its report as a table, and the curves, in one file."""
    picture = run / _PICTURE
    image = ""
    if picture.is_file():
        data = b64encode(picture.read_bytes()).decode("ascii")
        image = f'<img alt="Curves of the run" src="data:image/png;base64,{data}">'
    rows = "".join(
        f"<tr><th>{html.escape(str(name))}</th><td>{html.escape(_words(value))}</td></tr>"
        for name, value in report.items()
    )
    page = (
        "<!doctype html><html lang=en><meta charset=utf-8>"
        f"<title>{html.escape(run.name)}</title>"
        "<style>body{font:15px system-ui;margin:2em;max-width:70em}img{max-width:100%}"
        "th{text-align:left;padding-right:1em;vertical-align:top}td{white-space:pre-wrap}"
        "table.answers{border-collapse:collapse}.answers td,.answers th{border:1px solid #ccc;"
        "padding:.3em;font-size:13px;vertical-align:top}"
        f"</style><h1>{html.escape(run.name)}</h1><table>{rows}</table>{image}"
        f"{samples_page.section(run)}</html>\n"
    )
    path = run / "report.html"
    path.write_text(page, encoding="utf-8")
    return path


def _words(value: object) -> str:
    return (
        value
        if isinstance(value, str)
        else json.dumps(value, ensure_ascii=False, indent=1, default=str)
    )
