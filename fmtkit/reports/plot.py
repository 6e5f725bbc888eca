"""The histograms of a survey as a picture: PNG or SVG, by matplotlib."""

import io
from pathlib import Path

from fmtkit.core.atomic import write_bytes
from fmtkit.core.errors import DependencyError, OptionError
from fmtkit.inspection.survey_record import Survey
from fmtkit.reports.terminal import main_lengths
from fmtkit.writing.outputs import page_path

_MARKS = {".png": b"Software\0fmtkit", ".svg": b"<dc:title>fmtkit</dc:title>"}
"""Suffix -> what a picture written by fmtkit has near its beginning."""


def target(path: str, *, overwrite: bool = False) -> Path:
    """Return where the picture goes; raises what `fmtkit.writing.outputs.page_path` raises."""
    mark = _MARKS.get(Path(path).suffix.lower(), b"")
    return page_path(path, "--plot", suffixes=tuple(_MARKS), mark=mark, overwrite=overwrite)


def write(survey: Survey, path: Path) -> None:
    """Draw a histogram for each whole sequence and write it.

    Raises OptionError, DependencyError where matplotlib is missing, WriteError.
    """
    try:
        from matplotlib import rc_context
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError as error:
        raise DependencyError("--plot needs matplotlib: pip install 'fmtkit[plot]'") from error
    shown = main_lengths(survey.lengths)
    if not shown:
        raise OptionError("--plot: there are no lengths to draw, since no row was read")
    figure = Figure(figsize=(8, 2.6 * len(shown)), layout="constrained")
    FigureCanvasAgg(figure)
    for axes, figures in zip(figure.subplots(len(shown), squeeze=False)[:, 0], shown, strict=True):
        starts = [entry.start for entry in figures.bins]
        widths = [entry.end - entry.start for entry in figures.bins]
        axes.bar(
            starts, [entry.rows for entry in figures.bins], widths, align="edge", color="#4c78a8"
        )
        for name, value in (("p50", figures.p50), ("p95", figures.p95), ("max", figures.max)):
            axes.axvline(value, color="#e45756", linewidth=0.8)
            axes.annotate(
                f"{name} {value:,}", (value, 1), xycoords=("data", "axes fraction"), fontsize=7
            )
        if figures.logarithmic:
            axes.set_xscale("log")
        axes.set_title(figures.name, fontsize=9, pad=12)
        axes.set_xlabel(survey.unit)
        axes.set_ylabel("rows")
    # No date and no random names within: the same survey gives the same bytes.
    is_svg = path.suffix.lower() == ".svg"
    named = {"Date": None, "Creator": "fmtkit"} if is_svg else {"Software": "fmtkit"}
    picture = io.BytesIO()
    with rc_context({"svg.hashsalt": "fmtkit"}):
        figure.savefig(picture, format="svg" if is_svg else "png", dpi=120, metadata=named)
    write_bytes(path, picture.getvalue())
