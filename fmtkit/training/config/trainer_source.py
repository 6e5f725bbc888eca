"""Classes of installed packages, read from their source files and never imported.

Importing TRL takes seconds and loads torch. What a plan needs is in the source: the fields of its
config classes, and the checks that a config class and its trainer make on them.
"""

import ast
import sys
from collections.abc import Iterable, Iterator
from functools import cache
from importlib.util import find_spec
from pathlib import Path

from fmtkit.core import distributions
from fmtkit.core.data_classes import dataclass

_LAZY = "transformers"
"""Its `__init__` imports names lazily, so they are looked up in the files with training classes."""
_TRAINING_FILES = (
    "training_args.py",
    "trainer.py",
    "trainer_utils.py",
    "trainer_callback.py",
    "utils/generic.py",
)


class _Unknown:
    """A value that the source does not determine, or that a plan does not know."""


UNKNOWN = _Unknown()


@dataclass(frozen=True, eq=False)
class Module:
    """A file of an installed package, with its syntax tree."""

    file: Path
    package: str
    tree: ast.Module

    @property
    def inside(self) -> tuple[str, ...]:
        """Return the names of the packages that the file is in, outermost first."""
        root = next((one for one in _roots(self.package) if self.file.is_relative_to(one)), None)
        parts = self.file.relative_to(root).parts[:-1] if root else ()
        return (*self.package.split("."), *parts)


@dataclass(frozen=True, eq=False)
class Class:
    """A class and the module that defines it."""

    node: ast.ClassDef
    module: Module

    @property
    def name(self) -> str:
        """Return the class's name."""
        return self.node.name

    def bases(self) -> Iterator["Class"]:
        """Yield the base classes that can be found, in order."""
        for base in self.node.bases:
            class_ = class_named(self.module, ast.unparse(base).rpartition(".")[2])
            if class_ is not None:
                yield class_

    def lineage(self) -> tuple["Class", ...]:
        """Return the class and its bases, each before its own bases (single inheritance in TRL)."""
        return _lineage(self)

    def method(self, name: str) -> ast.FunctionDef | None:
        """Return a method that the class itself defines."""
        methods = (n for n in self.node.body if isinstance(n, ast.FunctionDef) and n.name == name)
        return next(methods, None)

    @property
    def is_enum(self) -> bool:
        """Return whether the class is an enumeration of strings."""
        named = {ast.unparse(base).rpartition(".")[2] for base in self.node.bases}
        return bool(named & {"Enum", "StrEnum", "ExplicitEnum"})

    def members(self) -> dict[str, str]:
        """Return the members of an enumeration with their values."""
        return {
            ast.unparse(node.targets[0]): node.value.value
            for node in self.node.body
            if isinstance(node, ast.Assign)
            and isinstance(node.value, ast.Constant)
            and isinstance(node.value.value, str)
        }


def statements(body: Iterable[ast.stmt]) -> Iterator[ast.stmt]:
    """Yield every statement of a body, nested ones included, but no expressions."""
    for node in body:
        yield node
        for name in ("body", "orelse", "finalbody"):
            yield from statements(getattr(node, name, ()))
        for handler in getattr(node, "handlers", ()):
            yield from statements(handler.body)


@cache
def _lineage(owner: Class) -> tuple[Class, ...]:
    out = [owner]
    for base in owner.bases():
        out += [c for c in _lineage(base) if all(c.node is not o.node for o in out)]
    return tuple(out)


def installed(package: str) -> str | None:
    """Return the version of the distribution that provides a package, or None."""
    return _installed(package, tuple(sys.path))


@cache
def _installed(package: str, _: tuple[str, ...]) -> str | None:
    return distributions.version_of(package)


@cache
def find_class(path: str) -> Class | None:
    """Return the class that a runner names ("trl:DPOTrainer"), or None if it is not installed."""
    dotted, _, name = path.partition(":")
    package = dotted.partition(".")[0]
    if dotted == _LAZY:
        return _among_training_files(name)
    file = _file(dotted)
    return None if file is None else class_named(_module(file, package), name)


def module_named(dotted: str) -> Module | None:
    """Return a module of an installed package, or None if there is none."""
    file = _file(dotted)
    return None if file is None else _module(file, dotted.partition(".")[0])


@cache
def class_named(module: Module, name: str) -> Class | None:
    """Return the class that a name refers to in a module: defined there, or imported."""
    return _class_named(module, name, ())


def _class_named(module: Module, name: str, seen: tuple[Path, ...]) -> Class | None:
    if module.file in seen:
        return None
    node = _definition(module, name)
    if node is not None:
        return Class(node, module)
    for file, package, original in _imported(module, name):
        if package == _LAZY and file.name == "__init__.py":
            return _among_training_files(original)
        class_ = _class_named(_module(file, package), original, (*seen, module.file))
        if class_ is not None:
            return class_
    return None


def _definition(module: Module, name: str) -> ast.ClassDef | None:
    classes = (n for n in module.tree.body if isinstance(n, ast.ClassDef) and n.name == name)
    return next(classes, None)


@cache
def _among_training_files(name: str) -> Class | None:
    files = (root / relative for root in _roots(_LAZY) for relative in _TRAINING_FILES)
    for file in files:
        if file.is_file() and f"class {name}" in _text(file):
            module = _module(file, _LAZY)
            node = _definition(module, name)
            if node is not None:
                return Class(node, module)
    return None


def _imported(module: Module, name: str) -> Iterator[tuple[Path, str, str]]:
    """Yield the files from which a module may take a name, with the name it has there."""
    for dotted, original in _imports(module).get(name, ()):
        file = _file(dotted)
        if file is not None:
            yield file, dotted.partition(".")[0], original


def imported_modules(module: Module, name: str) -> Iterator[tuple[Module, str]]:
    """Yield the modules from which a module takes a name, with the name it has there."""
    for file, package, original in _imported(module, name):
        yield _module(file, package), original


@cache
def _imports(module: Module) -> dict[str, list[tuple[str, str]]]:
    """Return every name that a module imports from another: that module, and the name there."""
    out: dict[str, list[tuple[str, str]]] = {}
    for node in statements(module.tree.body):
        for alias in node.names if isinstance(node, ast.ImportFrom) else ():
            dotted = node.module or "" if isinstance(node, ast.ImportFrom) else ""
            if isinstance(node, ast.ImportFrom) and node.level:
                inside = module.inside[: len(module.inside) - node.level + 1]
                dotted = ".".join([*inside, *([dotted] if dotted else [])])
            out.setdefault(alias.asname or alias.name, []).append((dotted, alias.name))
    return out


@cache
def _roots(package: str) -> tuple[Path, ...]:
    """Return the folders of a package: a clone of fmtkit has more than one."""
    spec = find_spec(package)
    return tuple(map(Path, (spec and spec.submodule_search_locations) or ()))


@cache
def _file(dotted: str) -> Path | None:
    """Return the file of a module, without importing it or its packages."""
    package, *rest = dotted.split(".")
    paths = [root.joinpath(*rest) for root in _roots(package)]
    candidates = [
        file
        for path in paths
        for file in (path / "__init__.py", *([path.with_name(f"{path.name}.py")] if rest else []))
    ]
    return next((file for file in candidates if file.is_file()), None)


@cache
def _module(file: Path, package: str) -> Module:
    return Module(file, package, ast.parse(_text(file)))


@cache
def _text(file: Path) -> str:
    return file.read_text(encoding="utf-8")
