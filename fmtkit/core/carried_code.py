"""Code that is sent to other processes by value: plugin files with their imports, and packages of plugins.

A worker on a different machine may lack the files of --plugin, and the packages whose entry points add
formats, targets and outputs. It gets their files, and loads them from a temporary folder.
"""

import ast
import atexit
import importlib.util
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field
from functools import cache
from importlib.metadata import EntryPoint
from pathlib import Path, PurePosixPath

from fmtkit.core import plugins, user_modules
from fmtkit.core.data_classes import dataclass
from fmtkit.core.errors import DependencyError

MOST_BYTES = 64 << 20
"""Size of the largest package that is sent; larger ones must be installed on each machine."""
GROUPS = (
    "fmtkit.converters",
    "fmtkit.targets",
    "fmtkit.outputs",
    "fmtkit.runners",
    "fmtkit.sections",
)
Files = Mapping[str, bytes]
"""Path within a folder of modules -> content."""


@dataclass(frozen=True)
class Package:
    """An installed package of plugins; `files` is empty if it is too large to be sent."""

    name: str
    version: str
    module: str
    """The module that is imported."""
    files: Files = field(repr=False)


@dataclass(frozen=True)
class CarriedCode:
    """The code that a job needs besides fmtkit's own; can be pickled."""

    folders: tuple[tuple[str, Files], ...] = field(default=(), repr=False)
    """The folders of plugin files: the path, and those files with the neighbouring files that they import."""
    plugins: tuple[tuple[int, str], ...] = ()
    """Plugin files by folder and name, in the order in which they are loaded."""
    packages: tuple[Package, ...] = ()

    def __bool__(self) -> bool:
        """Return whether there is any code."""
        return bool(self.plugins or self.packages)

    def unpack(self) -> list[str]:
        """Make the packages importable that are not imported yet; return the plugin files to load."""
        missing = [p for p in self.packages if p.files and p.module not in sys.modules]
        if missing:
            sys.path.insert(0, str(_unpacked(_joined(missing))))
            importlib.invalidate_caches()
            plugins.forget()
        return [
            str(place / name)
            for (folder, name), place in zip(self.plugins, self._places(), strict=True)
            if self._is_new(place, name, self.folders[folder][1])
        ]

    def _is_new(self, place: Path, name: str, files: Files) -> bool:
        """Return whether a plugin file must be loaded; unload an earlier one of its name."""
        module = Path(name).stem
        known = _LOADED.get(module)
        if known is None and module in sys.modules:
            return False  # loaded by the process that made the job
        if known == (place, files):
            return False
        if known is not None:
            of_it = {PurePosixPath(path).parts[0].removesuffix(".py") for path in (name, *known[1])}
            for loaded in [m for m in sys.modules if m.partition(".")[0] in of_it]:
                del sys.modules[loaded]
        _LOADED[module] = place, files
        return True

    def files(self) -> list[str]:
        """Return the paths of the plugin files: the original ones if they are unchanged, or unpacked ones."""
        named = zip(self.plugins, self._places(), strict=True)
        return [str(place / name) for (_, name), place in named]

    def _places(self) -> list[Path]:
        """Return the folder of each plugin file."""
        places = [
            Path(place) if _is_there(Path(place), files) else _unpacked(files)
            for place, files in self.folders
        ]
        return [places[folder] for folder, _ in self.plugins]

    def missing(self, error: ImportError) -> DependencyError:
        """Return the error for code that cannot be loaded where it was unpacked."""
        left = [f"{p.name} {p.version}" for p in self.packages if not p.files]
        large = f"{', '.join(left)} is too large to be sent along" if left else ""
        reason = "; ".join(filter(None, [" ".join(str(error).split()), large]))
        return DependencyError(
            f"--engine ray: a worker cannot load a plugin: {reason}; install what is missing on all "
            "machines of the cluster"
        )


def carried(plugin_files: Sequence[str]) -> CarriedCode:
    """Return the code of plugin files, and of the installed packages of plugins."""
    held: dict[Path, dict[str, bytes]] = {}
    named = []
    for file in plugin_files:
        path = Path(file).absolute()
        files = held.setdefault(path.parent, {})
        files |= {p.relative_to(path.parent).as_posix(): p.read_bytes() for p in _together(path)}
        named.append(([*held].index(path.parent), path.name))
    folders = tuple((str(folder), files) for folder, files in held.items())
    return CarriedCode(folders, tuple(named), _packages())


def _together(file: Path) -> Iterator[Path]:
    """Yield a file, and the Python files next to it that it imports, or that these import."""
    found, waiting = {file}, [file]
    while waiting:
        path = waiting.pop()
        yield path
        for top in _imported(path):
            if user_modules.installed(top) is not None:
                continue
            package, module = file.parent / top, file.parent / f"{top}.py"
            # As in Python, a file comes before a folder of the same name without __init__.py.
            is_package = (package / "__init__.py").is_file() or not module.is_file()
            beside = [*package.rglob("*.py")] if is_package else [module]
            new = [p for p in beside if p not in found and p.is_file()]
            found.update(new)
            waiting += new


def _imported(file: Path) -> set[str]:
    """Return the top-level names of all modules that a file imports."""
    try:
        nodes = [*ast.walk(ast.parse(file.read_bytes()))]
    except (SyntaxError, ValueError):
        return set()
    whole = [alias.name for n in nodes if isinstance(n, ast.Import) for alias in n.names]
    parts = [n.module for n in nodes if isinstance(n, ast.ImportFrom) and not n.level and n.module]
    return {name.partition(".")[0] for name in (*whole, *parts)}


def _is_there(folder: Path, files: Files) -> bool:
    return all(
        (folder / path).is_file() and (folder / path).read_bytes() == data
        for path, data in files.items()
    )


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
    metadata_files = {
        f"{info}/METADATA": metadata,
        f"{info}/entry_points.txt": "\n".join(lines) + "\n",
    }
    return Package(
        name, version, root, {**files, **{k: v.encode() for k, v in metadata_files.items()}}
    )


def _lines(group: str, package: str) -> Iterator[str]:
    for same in plugins.installed(group).values():
        for point in same:
            if point.dist is not None and point.dist.name == package:
                yield f"{point.name} = {point.value}"


def _files_of(module: str) -> tuple[str, Files]:
    """Return the outermost package that is not a namespace package, and its files by relative path."""
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


_LOADED: dict[str, tuple[Path, Files]] = {}
"""Plugin files that this process has loaded for a job: module -> folder and files."""


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
