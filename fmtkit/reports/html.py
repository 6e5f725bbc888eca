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
from fmtkit.core.message_keys import IMAGE
from fmtkit.core.secret_keys import beginning
from fmtkit.counting.lengths import Tally
from fmtkit.inspection.inspection import Inspection
from fmtkit.inspection.row_fetch import RowFetch
from fmtkit.inspection.shown_images import bare
from fmtkit.inspection.shown_rows import RowViewer, ShownRow, ShownSide
from fmtkit.inspection.survey_making import show
from fmtkit.reports import page
from fmtkit.reports.page import CHUNK_ROWS, packed
from fmtkit.reports.thumbnails import DataUri, Thumbnails
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

TEXT_SHOWN = 40_000
"""Characters of a sequence that the page shows."""

TITLE = 90


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
    """For each row, its number, source, line, title, findings and sides; see _entry."""
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


@dataclass(frozen=True)
class _Pictured:
    """A row as it is shown, with its title and small copies of its images."""

    row: ShownRow
    title: str
    images: list[DataUri | None]


def _shown(
    fetch: RowFetch, viewer: RowViewer, rows: Iterable[int], thumbnails: Thumbnails
) -> Iterator[_Pictured]:
    for fetched in fetch.fetch(rows):
        images = thumbnails.of_row(fetched.row)
        yield _Pictured(show(fetched, viewer)[0], title_of(fetched.row), images)


def title_of(row: Mapping[str, Any] | None) -> str:
    """Return what names a row in a list: the beginning of its last question."""
    dialog = (
        (row or {}).get("prompt") or (row or {}).get("messages") or (row or {}).get("text") or ""
    )
    if isinstance(dialog, str):
        return _words(dialog)
    asked = [m["content"] for m in dialog if m["role"] == "user" and m["content"]]
    said = asked[-1] if asked else dialog[-1]["content"] or ""
    return _words(said.replace(IMAGE, " ")) or _words(bare(said))


def _opening(side: ShownSide) -> str:
    """Return the beginning of what a row of tokens trains."""
    reply_start = side.offsets[side.prompt_length : side.prompt_length + 1]
    return _words(side.text[reply_start[0][0] if reply_start else 0 :])


def _words(text: str) -> str:
    return " ".join(beginning(text, 4 * TITLE).split())[:TITLE]


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
    rows: Iterable[_Pictured], codes: Mapping[int, list[str]]
) -> tuple[list[list[Any]], list[str]]:
    index: list[list[Any]] = []
    chunks: list[str] = []
    waiting: list[dict[str, Any]] = []
    for one in rows:
        index.append(_entry(one.row, one.title, codes.get(one.row.place.row, [])))
        waiting.append(_packed(one))
        if len(waiting) == CHUNK_ROWS:
            chunks.append(packed(waiting))
            waiting = []
    if waiting:
        chunks.append(packed(waiting))
    return index, chunks


def _entry(row: ShownRow, title: str, codes: list[str]) -> list[Any]:
    """Return number, source, row and line there, title, findings, and of each side its size.

    A size is a number, how much of it is trained, and its unit: sides without ids count characters.
    """
    sizes = [
        [len(side.ids), side.trained_tokens, "tokens"]
        if side.ids
        else [len(side.text), 0, "characters"]
        for side in row.sides
    ]
    place = row.place
    return [
        place.row,
        place.source,
        place.source_row,
        place.line,
        title or row.problem or "".join(map(_opening, row.sides[:1])),
        codes,
        sizes,
    ]


def _packed(one: _Pictured) -> dict[str, Any]:
    row = one.row
    return {
        "sides": [_packed_side(side) for side in row.sides],
        "problem": row.problem,
        "details": dict(row.details),
        "images": [list(pair) for pair in zip(row.images, one.images, strict=False)],
    }


def _packed_side(side: ShownSide) -> dict[str, Any]:
    text = side.text[:TEXT_SHOWN]
    return {
        "side": side.side,
        "text": text,
        "cut": len(side.text) - len(text),
        "steps": _steps(side, text),
        "trained": side.trained,
        "prompt": side.prompt_length,
        "why": side.why,
        "labels": side.labels,
        "windows": side.windows,
        "notes": side.notes,
        "images": _places(side, text),
    }


def _places(side: ShownSide, text: str) -> list[int]:
    """Return where the placeholder of each image begins, in UTF-16 units, within the text that is shown."""
    starts = (image.start for image in side.images if image.start < len(text))
    return [len(text[:start].encode("utf-16-le", "surrogatepass")) // 2 for start in starts]


def _steps(side: ShownSide, text: str) -> list[int]:
    """Return how far each token's end is from the one before, in UTF-16 units as in JavaScript."""
    if not side.offsets:
        return []
    ends = np.minimum([end for _, end in side.offsets], len(text))
    points = np.frombuffer(text.encode("utf-32-le", "surrogatepass"), dtype=np.uint32)
    units = np.concatenate(([0], np.cumsum(1 + (points > 0xFFFF))))
    at = units[np.maximum.accumulate(ends)]
    steps: list[int] = np.diff(np.concatenate(([0], at))).tolist()
    return steps
