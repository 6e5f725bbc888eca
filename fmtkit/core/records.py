"""Records: the reports beside outputs, by which fmtkit knows what it wrote, and of which sources."""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any


def read_json(path: Path) -> dict[str, Any]:
    """Return the JSON object in a file; an empty one where there is none."""
    try:
        value = json.loads(path.read_bytes())
    except (FileNotFoundError, NotADirectoryError, IsADirectoryError, ValueError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}


def entries_of(report: Mapping[str, Any]) -> dict[str, dict[str, Any]] | None:
    """Return path -> entry of the files that a report names; None if it is not such a report."""
    files = report.get("files")
    if "fmtkit" not in report or not isinstance(report.get("output"), str):
        return None
    if not isinstance(files, list) or not all(map(_is_entry, files)):
        return None
    return {file["path"]: file for file in files}


def sources_of(report: Mapping[str, Any]) -> Iterator[tuple[str, str | None]]:
    """Yield path and hash of the sources that a report names; None of one that was not hashed."""
    sources = report.get("sources")
    for source in sources if isinstance(sources, list) else ():
        if isinstance(source, dict) and isinstance(source.get("path"), str):
            yield source["path"], source.get("sha256")


def _is_entry(file: object) -> bool:
    kinds = {"path": str, "bytes": int, "sha256": str}
    return isinstance(file, dict) and all(isinstance(file.get(k), t) for k, t in kinds.items())
