"""A page: one file with everything in it, which loads nothing and runs only fmtkit's script.

Its content-security-policy names script and style by their hashes and allows nothing else; data is
in blocks that no browser runs, and reaches the page as text, never as markup. `page.html` is the frame,
`page.css` and `page.js` are what all pages share: the theme, and a list of rows next to the chosen one.
NAME.html and NAME.js are what one page has of its own, and `rows.js` is how pages of rows show one.
"""

import base64
import gzip
import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from importlib.resources import files
from typing import Any

from fmtkit.core.secret_keys import hidden
from fmtkit.reports.thumbnails import DataUri

MARK = b'<meta name="generator" content="fmtkit">'
CHUNK_ROWS = 100
"""Rows of a chunk; page.js knows the number too."""


def render(
    name: str,
    data: object,
    chunks: Iterable[str] = (),
    *,
    scripts: Sequence[str] = (),
    served: bool = False,
) -> str:
    """Return the page of that name; `chunks` are the rows that it unpacks when it shows or searches them.

    `scripts` are the assets that it shares with other pages. A page that is `served` may ask its server, and
    nothing else.
    """
    script = "".join(map(asset, ("page.js", *scripts, f"{name}.js")))
    style = asset("page.css")
    blocks = [
        _block("data", json.dumps(without_secrets(data), ensure_ascii=False, separators=(",", ":")))
    ]
    blocks += [
        f'<script type="application/gzip" id="chunk-{number}">{text}</script>'
        for number, text in enumerate(chunks)
    ]
    page = asset("page.html")
    # The data come last: nothing in them is read as a placeholder.
    for place, text in {
        "STYLE_HASH": _sha256(style),
        "SCRIPT_HASH": _sha256(script),
        "CONNECT": "connect-src 'self'; " if served else "",
        "STYLE": style,
        "BODY": asset(f"{name}.html"),
        "SCRIPT": script,
        "DATA": "\n".join(blocks),
    }.items():
        page = page.replace("{{" + place + "}}", text, 1)
    return page


def packed(rows: Sequence[dict[str, Any]]) -> str:
    """Return at most CHUNK_ROWS rows as JSON, gzipped, in base64."""
    text = json.dumps(without_secrets(rows), ensure_ascii=False, separators=(",", ":"))
    # Without a time within: the same rows give the same page.
    found = gzip.compress(text.encode("utf-8", "surrogatepass"), compresslevel=6, mtime=0)
    return base64.b64encode(found).decode()


def without_secrets(value: Any) -> Any:
    """Hide the secrets in all texts of a value."""
    if isinstance(value, DataUri):
        return str(value)
    if isinstance(value, str):
        return hidden(value)
    if isinstance(value, Mapping):
        return {key: without_secrets(item) for key, item in value.items()}
    # Numbers of tokens are most of a page.
    if isinstance(value, list | tuple) and not {*map(type, value)} <= {int}:
        return [without_secrets(item) for item in value]
    return value


def asset(name: str) -> str:
    """Return a file of this package."""
    return files("fmtkit.reports").joinpath(name).read_text(encoding="utf-8")


def _sha256(text: str) -> str:
    return base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


def _block(name: str, text: str) -> str:
    # Inside a script element only "<" can end or nest anything.
    safe = text.replace("<", "\\u003c").replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")
    return f'<script type="application/json" id="{name}">{safe}</script>'
