"""Paths in suggested commands: sources as the user gave them, and a name for the output."""

from collections.abc import Sequence
from glob import glob
from pathlib import Path, PurePosixPath

FEW = 3
"""Up to so many files are all named; of more, a glob stands for those that it finds, if there is one."""


def fitted(paths: Sequence[str]) -> list[str]:
    """Return paths for a command: each once, and a glob for many files of a folder that are all it finds."""
    names = list(dict.fromkeys(paths))
    if len(names) <= FEW:
        return names
    groups: dict[str, list[str]] = {}
    for name in names:
        path = PurePosixPath(name)
        groups.setdefault(str(path.parent / f"*{path.suffix}"), []).append(name)
    return [one for pattern, held in groups.items() for one in _as_glob(pattern, held)]


def _as_glob(pattern: str, names: list[str]) -> list[str]:
    found = sorted(str(PurePosixPath(path)) for path in glob(pattern))  # noqa: PTH207 - as it is typed
    same = found == [str(PurePosixPath(name)) for name in names]
    return [pattern] if len(names) > FEW and same else names


def output_for(paths: Sequence[str]) -> str:
    """Return a name for the output of sources, one that no file has."""
    first = PurePosixPath(paths[0]).name if paths and paths[0] != "-" else ""
    stem = first.partition(".")[0] if not set("*?[") & set(first) else ""
    stem = stem or "converted"
    names = (f"{stem}{ending}.parquet" for ending in ("", *(f".{n}" for n in range(1, 100))))
    return next((name for name in names if not Path(name).exists()), f"{stem}.new.parquet")
