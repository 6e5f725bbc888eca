"""The histograms of a survey as a picture: PNG or SVG, by matplotlib."""

from pathlib import Path

from fmtkit.errors import DependencyError, OptionError, WriteError
from fmtkit.reports.terminal import main_lengths
from fmtkit.surveying.survey_record import Survey

SUFFIXES = (".png", ".svg")


def check(path: str) -> None:
    """Raise OptionError for a suffix that is no picture's, before anything is read."""
    if Path(path).suffix.lower() not in SUFFIXES:
        raise OptionError(f"--plot {path}: give FILE.png or FILE.svg")


def write(survey: Survey, path: str) -> None:
    """Draw a histogram for each whole sequence and write it.

    Raises OptionError, DependencyError where matplotlib is missing, WriteError.
    """
    check(path)
    try:
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
    try:
        # No date within: the same survey gives the same bytes.
        nothing = {"Date": None} if path.lower().endswith(".svg") else {"Software": None}
        figure.savefig(path, dpi=120, metadata=nothing)
    except OSError as error:
        raise WriteError(f"{path} cannot be written: {error.strerror or error}") from error
