"""Code that goes to other processes by value: plugin files with their neighbours, and packages of plugins.

A worker on another machine need not have what the user gave with --plugin, nor the packages whose entry
points add formats, targets and outputs: it gets their files, and loads them from a folder of its own.
"""

import atexit
import importlib.util
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib.metadata import EntryPoint
from pathlib import Path, PurePosixPath

from fmtkit.core import plugins, user_modules
from fmtkit.core.errors import DependencyError

MOST_BYTES = 64 << 20
"""Of a package: a larger one has to be installed where it is used."""
GROUPS = ("fmtkit.converters", "fmtkit.targets", "fmtkit.outputs", "fmtkit.runners")
Files = Mapping[str, bytes]
"""Path within a folder of modules -> content."""


@dataclass(frozen=True)
class Package:
    """An installed package of plugins; without files where they are too many to carry."""

    name: str
    version: str
    module: str
    """What is imported of it."""
    files: Files = field(repr=False)


@dataclass(frozen=True)
class CarriedCode:
    """The code that a job needs besides fmtkit's own; can be pickled."""

    folders: tuple[Files, ...] = field(default=(), repr=False)
    """The folders of plugin files: these and their neighbours that were imported."""
    plugins: tuple[tuple[int, str], ...] = ()
    """Plugin files by folder and name, in the order in which they are loaded."""
    packages: tuple[Package, ...] = ()

    def __bool__(self) -> bool:
        """Tell whether there is any."""
        return bool(self.plugins or self.packages)

    def unpack(self) -> list[str]:
        """Make packages importable that this process has not imported; return plugin files to load."""
        missing = [p for p in self.packages if p.files and p.module not in sys.modules]
        if missing:
            sys.path.insert(0, str(_unpacked(_joined(missing))))
            importlib.invalidate_caches()
            plugins.forget()
        return [
            str(_unpacked(self.folders[folder]) / name)
            for folder, name in self.plugins
            if Path(name).stem not in sys.modules
        ]

    def missing(self, error: ImportError) -> DependencyError:
        """Return the error for code that cannot be loaded where it was unpacked."""
        left = [f"{p.name} {p.version}" for p in self.packages if not p.files]
        large = f"{', '.join(left)} is too large to be sent along" if left else ""
        said = "; ".join(filter(None, [" ".join(str(error).split()), large]))
        return DependencyError(
            f"--engine ray: a worker cannot load a plugin: {said}; install what is missing on all "
            "machines of the cluster"
        )


def carried(plugin_files: Sequence[str]) -> CarriedCode:
    """Return the code of plugin files that were loaded, and of the installed packages of plugins."""
    parents = list(dict.fromkeys(Path(file).absolute().parent for file in plugin_files))
    held: list[dict[str, bytes]] = [{} for _ in parents]
    named = []
    for file in plugin_files:
        path = Path(file).absolute()
        folder = parents.index(path.parent)
        held[folder][path.name] = path.read_bytes()
        named.append((folder, path.name))
    for path in _served():
        for parent, files in zip(parents, held, strict=True):
            if path.is_relative_to(parent):
                files[path.relative_to(parent).as_posix()] = path.read_bytes()
    return CarriedCode(tuple(held), tuple(named), _packages())


def _served() -> Iterator[Path]:
    """Yield the files of modules that plugins have imported from beside them."""
    tops = user_modules.FINDER.served
    for name, module in list(sys.modules.items()):
        file = getattr(module, "__file__", None)
        if name.partition(".")[0] in tops and file and Path(file).is_file():
            yield Path(file).absolute()


@cache
def _packages() -> tuple[Package, ...]:
    points = {
        point.dist.name: point
        for group in GROUPS
        for same in plugins.installed(group).values()
        for point in same
        if point.dist is not None
    }
    return tuple(_package(name, point) for name, point in sorted(points.items()))


def _package(name: str, point: EntryPoint) -> Package:
    root, files = _files_of(point.module)
    version = point.dist.version if point.dist else "0"
    if not files or sum(map(len, files.values())) > MOST_BYTES:
        return Package(name, version, root, {})
    info = f"{name.replace('-', '_')}-{version}.dist-info"
    lines = [line for group in GROUPS for line in (f"[{group}]", *_lines(group, name))]
    metadata = f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"
    told = {f"{info}/METADATA": metadata, f"{info}/entry_points.txt": "\n".join(lines) + "\n"}
    return Package(name, version, root, {**files, **{k: v.encode() for k, v in told.items()}})


def _lines(group: str, package: str) -> Iterator[str]:
    for same in plugins.installed(group).values():
        for point in same:
            if point.dist is not None and point.dist.name == package:
                yield f"{point.name} = {point.value}"


def _files_of(module: str) -> tuple[str, Files]:
    """Return the outermost module that is no namespace, and its files below the folder it is found in."""
    names = module.split(".")
    for depth in range(1, len(names) + 1):
        name = ".".join(names[:depth])
        spec = importlib.util.find_spec(name)
        if spec is None or spec.origin is None or not Path(spec.origin).is_file():
            if spec is not None and spec.submodule_search_locations and spec.origin is None:
                continue
            break
        inside = PurePosixPath(*names[: depth - 1])
        origin = Path(spec.origin)
        if spec.submodule_search_locations is None:
            return name, {(inside / origin.name).as_posix(): origin.read_bytes()}
        below = [
            p for p in origin.parent.rglob("*") if p.is_file() and "__pycache__" not in p.parts
        ]
        if sum(p.stat().st_size for p in below) > MOST_BYTES:
            return name, {}
        own = inside / names[depth - 1]
        return name, {
            (own / p.relative_to(origin.parent).as_posix()).as_posix(): p.read_bytes()
            for p in below
        }
    return module, {}


def _joined(packages: Sequence[Package]) -> Files:
    return {path: data for package in packages for path, data in package.files.items()}


_FOLDERS: dict[frozenset[tuple[str, bytes]], "tempfile.TemporaryDirectory[str]"] = {}


def _unpacked(files: Files) -> Path:
    """Return a folder of this process with these files."""
    key = frozenset(files.items())
    if key not in _FOLDERS:
        folder = tempfile.TemporaryDirectory(prefix="fmtkit-code-")
        atexit.register(folder.cleanup)
        for path, data in files.items():
            place = Path(folder.name) / path
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_bytes(data)
        _FOLDERS[key] = folder
    return Path(_FOLDERS[key].name)
