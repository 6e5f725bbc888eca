"""A survey as a page (fmtkit.reports.page), with rows that can be browsed and searched.

Rows at even distances over the sources are shown, and those that findings name. Their texts and token
lengths go into gzipped chunks that the page unpacks when it shows or searches them; the index of all rows is
loaded with the page.
"""

import json
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from fmtkit.core.atomic import write_bytes
from fmtkit.core.data_classes import dataclass
from fmtkit.counting.lengths import Tally
from fmtkit.inspection.inspection import Inspection
from fmtkit.inspection.row_fetch import RowFetch
from fmtkit.inspection.shown_rows import RowViewer
from fmtkit.inspection.survey_making import show
from fmtkit.reports import page
from fmtkit.reports.page import CHUNK_ROWS, packed
from fmtkit.reports.page_rows import PicturedRow, entry_of, packed_row, title_of
from fmtkit.reports.thumbnails import Thumbnails
from fmtkit.writing.outputs import page_path

SUFFIXES = (".html", ".htm")
POINTS = 1500
"""Lengths at which the slider of the page knows exactly what is cut."""

MOST_ROWS = 10_000
MOST_ROWS_WITH_IMAGES = 500
"""Each of whose images is decoded to be shown small."""
MOST_BYTES = 20_000_000
"""Of the packed rows; the whole page stays under 25 MB."""

TRIAL_ROWS = 200
"""Rows by which the size of the others is estimated."""


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
    return page.render("survey", data, rows.chunks, scripts=("rows.js",))


def _curves(inspection: Inspection) -> dict[str, Any]:
    """Return for each column and length how many rows and tokens are beyond it."""
    if inspection.statistics is None:
        return {}
    return {name: curve(tally) for name, tally in inspection.statistics.tallies.items()}


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


@dataclass(frozen=True)
class PageRows:
    """Packed rows."""

    index: list[list[Any]]
    """For each row, its number, source, line, title, findings and sides; see page_rows.entry_of."""
    chunks: list[str]
    """CHUNK_ROWS rows each: JSON, gzipped, base64."""
    how: str
    """Which rows are shown, in words."""


def page_rows(inspection: Inspection) -> PageRows:
    """Choose and pack the rows that a page shows."""
    fetch, viewer = inspection.fetch, inspection.viewer
    if fetch is None or viewer is None or not fetch.rows:
        return PageRows([], [], "there are no rows to show")
    codes: dict[int, list[str]] = {}
    for found in inspection.survey.findings:
        for place in found.places:
            codes.setdefault(place.row, []).append(found.code)
    for bad in inspection.survey.bad_rows:
        codes.setdefault(bad.place.row, []).append(bad.code)
    count = _affordable(fetch, viewer)
    chosen = {*fetch.spread(count), *codes}
    index, chunks = _pack(_shown(fetch, viewer, chosen, Thumbnails()), codes)
    return PageRows(index, chunks, _how(fetch.size, count, len(index)))


def _how(rows: int, count: int, shown: int) -> str:
    if count >= rows:
        return f"all {shown:,} rows are shown" if shown > 1 else "the one row is shown"
    return (
        f"{shown:,} of {rows:,} rows are shown: {count:,} at even distances, and the first rows "
        "of each finding"
    )


def _shown(
    fetch: RowFetch, viewer: RowViewer, rows: Iterable[int], thumbnails: Thumbnails
) -> Iterator[PicturedRow]:
    for fetched in fetch.fetch(rows):
        images = thumbnails.of_row(fetched.row)
        yield PicturedRow(show(fetched, viewer)[0], title_of(fetched.row), images)


def _affordable(fetch: RowFetch, viewer: RowViewer) -> int:
    """Return how many rows fit in a page, by packing some of them."""
    if fetch.job.images is not None:
        return min(fetch.size, MOST_ROWS_WITH_IMAGES)
    if fetch.size <= TRIAL_ROWS:
        return fetch.size
    trial = _shown(fetch, viewer, fetch.spread(TRIAL_ROWS), Thumbnails())
    index, chunks = _pack(trial, {})
    size = sum(map(len, chunks)) + len(json.dumps(index))
    return min(MOST_ROWS, fetch.size, int(MOST_BYTES / max(size / max(len(index), 1), 1.0)))


def _pack(
    rows: Iterable[PicturedRow], codes: Mapping[int, list[str]]
) -> tuple[list[list[Any]], list[str]]:
    index: list[list[Any]] = []
    chunks: list[str] = []
    waiting: list[dict[str, Any]] = []
    for one in rows:
        index.append(entry_of(one, codes.get(one.row.place.row, [])))
        waiting.append(packed_row(one))
        if len(waiting) == CHUNK_ROWS:
            chunks.append(packed(waiting))
            waiting = []
    if waiting:
        chunks.append(packed(waiting))
    return index, chunks
