"""A survey as a page: one file with everything in it, which loads nothing and runs only our script.

The page's content-security-policy names script and style by their hashes and allows nothing else;
data stands in blocks that no browser runs, and reaches the page as text, never as markup.
"""

import base64
import hashlib
import json
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np

from fmtkit.atomic import write_bytes
from fmtkit.counting.lengths import Tally
from fmtkit.reports.page_rows import page_rows
from fmtkit.surveying.inspection import Inspection
from fmtkit.writing.outputs import page_path

SUFFIXES = (".html", ".htm")
_MARK = b'<meta name="generator" content="fmtkit">'
POINTS = 1500
"""Lengths at which the slider of the page knows exactly what is cut."""


def target(path: str, *, overwrite: bool = False) -> Path:
    """Return where the page goes; raises what `fmtkit.writing.outputs.page_path` raises."""
    return page_path(path, "--html", suffixes=SUFFIXES, mark=_MARK, overwrite=overwrite)


def write(inspection: Inspection, path: Path) -> None:
    """Write the page; raises WriteError where it cannot be written."""
    write_bytes(path, render(inspection).encode())


def render(inspection: Inspection) -> str:
    """Return the page."""
    rows = page_rows(inspection)
    style, script = _asset("page.css"), _asset("page.js")
    survey = inspection.survey.as_dict()
    survey["shown"] = []
    data = {"survey": survey, "rows": rows.index, "how": rows.how, "curves": _curves(inspection)}
    blocks = [_block("data", json.dumps(data, ensure_ascii=False, separators=(",", ":")))]
    blocks += [
        f'<script type="application/gzip" id="chunk-{number}">{text}</script>'
        for number, text in enumerate(rows.chunks)
    ]
    page = _asset("page.html")
    for name, text in {
        "STYLE_HASH": _sha256(style),
        "SCRIPT_HASH": _sha256(script),
        "STYLE": style,
        "SCRIPT": script,
        "DATA": "\n".join(blocks),
    }.items():
        page = page.replace("{{" + name + "}}", text, 1)
    return page


def _asset(name: str) -> str:
    return files("fmtkit.reports").joinpath(name).read_text(encoding="utf-8")


def _sha256(text: str) -> str:
    return base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


def _block(name: str, text: str) -> str:
    # Inside a script element only "<" can end or nest anything.
    safe = text.replace("<", "\\u003c").replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")
    return f'<script type="application/json" id="{name}">{safe}</script>'


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
