"""The card of a dataset (README.md): where its rows come from, how they were made, and what was lost.

Its metadata are the hub's: `load_dataset` finds the splits by them. The last line has a hash of what is
above, so that a card that somebody has edited is known; it is never replaced.
"""

import hashlib
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path, PurePath
from typing import Any

from fmtkit.core.credentials import public
from fmtkit.core.escaping import one_line

CARD = "README.md"
_MARK = re.compile(r"\n<!-- written by fmtkit; sha256 of the lines above: ([0-9a-f]{64}) -->\n\Z")
_SIZES = (
    *((10**3, "n<1K"), (10**4, "1K<n<10K"), (10**5, "10K<n<100K"), (10**6, "100K<n<1M")),
    *((10**7, "1M<n<10M"), (10**8, "10M<n<100M"), (10**9, "100M<n<1B")),
)
MOST_SOURCES = 50
"""Sources that are named; report.json has all."""
_ESCAPED = re.compile(r"[\\`*\[\]<>|#&]|(?<![A-Za-z0-9])_|_(?![A-Za-z0-9])")


def card_of(report: Mapping[str, Any], manifest: Mapping[str, Any]) -> str:
    """Return the card of a folder, by its report and its manifest; the folder's own name is not in it."""
    splits = rows_of(manifest)
    own = {split: f"data/{split}-*" for split in splits}
    head = ["---", "configs:", "- config_name: default", "  data_files:"]
    for split, path in own.items():
        head += [f"  - split: {json.dumps(split)}", f"    path: {json.dumps(path)}"]
    head += [f"{key}:\n- {value}" for key, value in metadata_of(report, manifest).items()]
    return marked("\n".join([*head, "---", "", body_of(_name_of(report), report, manifest)]))


def metadata_of(report: Mapping[str, Any], manifest: Mapping[str, Any]) -> dict[str, str]:
    """Return what the hub lists datasets by, apart from the splits."""
    rows = sum(rows_of(manifest).values())
    size = next((name for most, name in _SIZES if rows < most), "n>1B")
    has_images = "images" in report["schema"]
    return {
        "size_categories": size,
        "task_categories": "image-text-to-text" if has_images else "text-generation",
        "tags": "fmtkit",
    }


def body_of(name: str, report: Mapping[str, Any], manifest: Mapping[str, Any]) -> str:
    """Return the text of the card."""
    template = (
        f", rendered with the chat template {_text(report['template'])}"
        if report["template"]
        else ""
    )
    to = f", in the layout {_text(report['to'])}" if report.get("to") else ""
    parts = [
        f"# {_text(name)}",
        f"Rows of the table {_text(report['table'])}, converted with "
        f"fmtkit {_text(report['fmtkit'])} as {_text(report['type'])}{template}{to}.",
        _table(["split", "rows"], rows_of(manifest).items()),
        "## Where the rows come from",
        _table(["source", "rows", "sha256"], map(_source, report["sources"][:MOST_SOURCES])),
        _more(len(report["sources"]) - MOST_SOURCES, "source"),
        "## What became of them",
        _table(["", "rows"], _counts(report)),
    ]
    for title, meaning, counts in (
        ("bad rows", "code", report["reasons"]),
        ("not read", "column", report["unread_columns"]),
        ("written without", "field", report.get("losses", {})),
        ("rejected for", "field", report.get("no_place", {})),
    ):
        parts.append(_table([title, meaning], ((n, code) for code, n in counts.items())))
    parts += [
        "## Columns",
        _table(["column", "type"], report["schema"].items()),
        "`manifest.json` names each file with its size and hash; `report.json` accounts for every row that "
        "was read.",
    ]
    return "\n\n".join(filter(None, parts)) + "\n"


def rows_of(manifest: Mapping[str, Any]) -> dict[str, int]:
    """Return the rows of each split."""
    rows: dict[str, int] = {}
    for file in manifest["files"]:
        rows[file["split"]] = rows.get(file["split"], 0) + file["rows"]
    return rows


def marked(text: str) -> str:
    """Return a card with the hash by which it is known again."""
    text = _MARK.sub("\n", text).rstrip("\n") + "\n"
    digest = hashlib.sha256(text.encode()).hexdigest()
    return f"{text}\n<!-- written by fmtkit; sha256 of the lines above: {digest} -->\n"


def is_own(text: str) -> bool:
    """Return whether a card is as fmtkit wrote it."""
    return _MARK.search(text) is not None and marked(text) == text


def kept_card(folder: Path) -> Path | None:
    """Return the card of a folder that somebody wrote or edited; None where there is none."""
    path = folder / CARD
    try:
        text = path.read_text(encoding="utf-8", errors="surrogateescape")
    except (FileNotFoundError, NotADirectoryError):
        return None
    return None if is_own(text) else path


def _name_of(report: Mapping[str, Any]) -> str:
    """Return what a folder's rows are called: the same input gives the same bytes, wherever they lie."""
    first, *others = [str(_source(source)[0]) for source in report["sources"]] or ["rows"]
    return f"{first} and {len(others):,} more" if others else first


def _counts(report: Mapping[str, Any]) -> Iterable[tuple[str, int]]:
    terms = (
        "quarantined",
        "skipped",
        "filtered",
        "overlong_dropped",
        "no_pair",
        "joined",
        "unpaired",
    )
    yield "read", report["rows_read"]
    yield "converted", report["converted"]
    yield from ((term.replace("_", " "), report[term]) for term in terms if report.get(term))
    yield "written", report["rows_written"]


def _source(source: Mapping[str, Any]) -> tuple[object, ...]:
    path = public(str(source["path"]))
    # Of a file only its name: where it lay is nobody's business.
    shown = path if "://" in path else PurePath(path).name or path
    return shown, source["rows"], source["sha256"] or ""


def _more(count: int, noun: str) -> str:
    return f"and {count:,} more {noun}{'s' * (count != 1)}" if count > 0 else ""


def _table(heads: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    lines = [" | ".join(map(_text, row)) for row in rows]
    if not lines:
        return ""
    return "\n".join(
        f"| {line} |" for line in (" | ".join(heads), " | ".join("---" for _ in heads), *lines)
    )


def _text(value: object) -> str:
    """Return a value as text of Markdown, on one line, of which nothing is markup."""
    if type(value) is int:
        return f"{value:,}"
    return _ESCAPED.sub(lambda found: f"&#{ord(found[0])};", one_line(public(str(value))))
