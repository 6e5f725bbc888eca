"""Modules of the user's own folders: imported by the configured name and by each other, by no other code.

A configuration names `rewards.accuracy`; rewards.py is next to it, often with files called trl.py or
polars.py. The folder is therefore never on `sys.path`, where any package that looks for an optional
dependency would find them. A finder after all others serves three kinds of import instead: of a module
that was named, any that a served module makes itself (its neighbours), and those of pickles, which
name the modules of the functions that they carry.
"""

import pickle
import sys
from collections.abc import Iterable, Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path
from traceback import extract_tb
from types import FrameType, ModuleType
from typing import Any

_PICKLES = frozenset({__name__, "pickle", "multiprocessing", "concurrent"})
"""Modules, or their packages, that load pickles."""


def describe(error: BaseException, file: str | Path) -> str:
    """Return in one line what a user's code raised, and on which line of their file."""
    own = Path(file).resolve()
    frames = [f for f in extract_tb(error.__traceback__) if Path(f.filename).resolve() == own]
    line = frames[-1].lineno if frames else getattr(error, "lineno", None)
    where = f" ({Path(file).name}:{line})" if line else ""
    reason = " ".join(str(error).split())
    return f"{type(error).__name__}: {reason}{where}" if reason else type(error).__name__ + where


class Finder(MetaPathFinder):
    """Import finder for modules of the user's folders, for code that may import them."""

    def __init__(self) -> None:
        """Start without a folder."""
        self.folders: list[str] = []
        self.named: set[str] = set()
        self.served: set[str] = set()

    def find_spec(
        self,
        fullname: str,
        path: Sequence[str] | None = None,
        target: ModuleType | None = None,
    ) -> ModuleSpec | None:
        """Find a top-level module for code that may import it; packages find their own modules."""
        del target
        if path is not None or not self.folders:
            return None
        if fullname not in self.named and not self._may_ask(_importer()):
            return None
        found = PathFinder.find_spec(fullname, self.folders)
        if found is not None:
            self.served.add(fullname)
        return found

    def _may_ask(self, importer: str) -> bool:
        top = importer.partition(".")[0]
        return bool({top, importer} & (self.served | self.named | _PICKLES))


FINDER = Finder()


def serve(folders: Iterable[str | Path], *named: str) -> None:
    """Serve the modules of these folders to each other, the first folder first.

    `named` are the modules (or packages) that any code may import from there.
    """
    ahead = [str(Path(folder).absolute()) for folder in folders]
    FINDER.folders = [*ahead, *(f for f in FINDER.folders if f not in ahead)]
    FINDER.named.update(name.partition(".")[0] for name in named)
    if FINDER not in sys.meta_path:
        sys.meta_path.append(FINDER)


def unpickle(data: bytes, folders: Iterable[str | Path] = ()) -> Any:
    """Load a pickle of a process of fmtkit; the modules of its functions may be in these folders."""
    serve(folders)
    return pickle.loads(data)  # noqa: S301


def child_path() -> list[str]:
    """Return `sys.path` for a subprocess: without the working directory that Python put there.

    `python -m` and `python -c` begin it with the working directory. What PYTHONPATH names stays.
    """
    entries = _entries()
    home = home_of_a_clone()
    return entries if home is None else [home, *entries]


def home_of_a_clone() -> str | None:
    """Return the folder that contains this fmtkit, if `sys.path` would not find it."""
    found = installed("fmtkit")
    package = Path(__file__).resolve().parents[1]
    if found is not None and found.origin and Path(found.origin).resolve().parent == package:
        return None
    return str(package.parent)


def installed(name: str) -> ModuleSpec | None:
    """Find a top-level module as any code would, without the working directory."""
    for finder in sys.meta_path:
        if finder is FINDER:
            continue
        found = finder.find_spec(name, _entries() if finder is PathFinder else None)
        if found is not None:
            return found
    return None


def _entries() -> list[str]:
    implied = "" if sys.flags.safe_path or not sys.path else sys.path[0]
    first = 1 if not sys.flags.safe_path and Path(implied or ".").absolute() == Path.cwd() else 0
    return [entry for entry in sys.path[first:] if entry]


def _importer() -> str:
    """Return the name of the module whose code asks for an import."""
    # Above this function are the finder and the import machinery.
    frame: FrameType | None = sys._getframe(2)
    while frame is not None:
        name = str(frame.f_globals.get("__name__", ""))
        if name.partition(".")[0] not in {"importlib", "_frozen_importlib"}:
            return name
        frame = frame.f_back
    return ""
