"""A survey as a page (fmtkit.reports.page)."""

from pathlib import Path
from typing import Any

import numpy as np

from fmtkit.core.atomic import write_bytes
from fmtkit.counting.lengths import Tally
from fmtkit.inspection.inspection import Inspection
from fmtkit.reports import page
from fmtkit.reports.page_rows import page_rows
from fmtkit.writing.outputs import page_path

SUFFIXES = (".html", ".htm")
POINTS = 1500
"""Lengths at which the slider of the page knows exactly what is cut."""


def target(path: str, *, overwrite: bool = False) -> Path:
    """Return where the page goes; raises what `fmtkit.writing.outputs.page_path` raises."""
    return page_path(path, "--html", suffixes=SUFFIXES, mark=page.MARK, overwrite=overwrite)


def write(inspection: Inspection, path: Path) -> None:
    """Write the page; raises WriteError where it cannot be written."""
    write_bytes(path, render(inspection).encode())


def render(inspection: Inspection) -> str:
    """Return the page."""
    rows = page_rows(inspection)
    survey = inspection.survey.as_dict()
    survey["shown"] = []
    data = {"survey": survey, "rows": rows.index, "how": rows.how, "curves": _curves(inspection)}
    return page.render("survey", data, rows.chunks)


def _curves(inspection: Inspection) -> dict[str, Any]:
    """Return of each column at which length how many rows and tokens are beyond it."""
    if inspection.look is None:
        return {}
    return {name: curve(tally) for name, tally in inspection.look.tallies.items()}


def curve(tally: Tally) -> list[list[int]]:
    """Return [length, rows longer, tokens beyond] for every length, or for POINTS of them."""
    values, times = tally.sorted()
    longer = times.sum() - np.cumsum(times)
    above = (values * times).sum() - np.cumsum(values * times)
    beyond = above - values * longer
    chosen = np.unique(np.linspace(0, len(values) - 1, POINTS).astype(np.int64))
    table = np.stack([values, longer, beyond], axis=1)[chosen]
    found: list[list[int]] = table.tolist()
    return found
