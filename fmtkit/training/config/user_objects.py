"""Loads the user's objects that a configuration names as `module.attribute`: rewards, rollouts, tools.

All keys with such a name load it here, so that a name means the same for all of them:

    places = places_of(config.source)                    # its folder, then the current one
    check("trl.reward_funcs", "rewards.accuracy", places)  # before a run; runs none of the user's code
    load("trl.environment_factory", "game.Board", places)  # in the training process; any object
    load_function("trl.rollout_func", "game.play", places) # the same, and it can be called
    is_dotted("rewards.accuracy")   # True; a folder or a hub id of a reward model: False

A named module is looked for in the folders of `places` before the installed packages. The folders are
not on `sys.path`: the user's module imports its neighbours, and nothing else does (`user_modules`).
"""

import ast
import sys
import traceback
from collections.abc import Callable, Sequence
from importlib import import_module
from importlib.machinery import ModuleSpec, PathFinder
from importlib.util import resolve_name
from pathlib import Path
from typing import Any

from fmtkit.core import user_modules
from fmtkit.core.errors import OptionError, near_match
from fmtkit.training.config.trainer_source import Module

_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
_IMPORTS = 8
"""Modules through which an imported name is followed; one that imports itself has no end."""


def places_of(source: str | Path) -> tuple[Path, ...]:
    """Return the folders where a configuration's modules are looked for."""
    here = Path.cwd()
    file = Path(source)
    return (file.resolve().parent, here) if file.is_file() else (here,)


def is_dotted(name: str) -> bool:
    """Return whether a name can be `module.attribute`; paths and hub ids cannot."""
    return "." in name and all(part.isidentifier() for part in name.split("."))


def check(key: str, name: str, places: Sequence[Path]) -> None:
    """Raise OptionError unless the module exists and its source defines the attribute."""
    spec = _spec(key, name, places)
    attribute = name.rpartition(".")[2]
    if spec.origin is None or not spec.origin.endswith(".py"):
        return
    defined = _defined(_tree(key, name, spec.origin))
    if defined is not None and attribute not in defined:
        raise OptionError(_absent(key, attribute, spec.origin, defined))


def definition(
    key: str, name: str, places: Sequence[Path]
) -> ast.FunctionDef | ast.AsyncFunctionDef | None:
    """Return the source of the function that a name means; None where only running the module tells.

    Decorators change what a function takes, and a name that is bound twice may be either: both are None.
    Raises OptionError where the module does not exist or is not Python.
    """
    for _ in range(_IMPORTS):
        spec = _spec(key, name, places)
        if spec.origin is None or not spec.origin.endswith(".py"):
            return None
        attribute = name.rpartition(".")[2]
        node = _only_binding(_tree(key, name, spec.origin), attribute)
        if not isinstance(node, ast.ImportFrom):
            return node if isinstance(node, _FUNCTIONS) and not node.decorator_list else None
        module = resolve_name("." * node.level + (node.module or ""), spec.parent)
        original = next(a.name for a in node.names if (a.asname or a.name) == attribute)
        name = f"{module}.{original}"
    return None


def source(key: str, name: str, places: Sequence[Path]) -> Module | None:
    """Return the source of the module of a name; None where it is not Python."""
    spec = _spec(key, name, places)
    if spec.origin is None or not spec.origin.endswith(".py"):
        return None
    package = name.partition(".")[0]
    return Module(Path(spec.origin), package, _tree(key, name, spec.origin))


def _only_binding(tree: ast.Module, name: str) -> ast.AST | None:
    """Return the statement of a module that gives a name its value, if it is the only one."""
    if _defined(tree) is None:
        return None
    binding = [node for node in ast.walk(tree) if name in _bound(node)]
    # TRL's packages import lazily; what they hold is imported under `if TYPE_CHECKING`.
    guarded = (inner for node in tree.body if isinstance(node, ast.If) for inner in node.body)
    imported = [node for node in guarded if isinstance(node, ast.ImportFrom)]
    return binding[0] if len(binding) == 1 and binding[0] in [*tree.body, *imported] else None


def load(key: str, name: str, places: Sequence[Path]) -> Any:
    """Import the module and return the attribute; raise OptionError if either cannot be loaded."""
    spec = _spec(key, name, places)
    module_name, _, attribute = name.rpartition(".")
    _make_room(module_name, places)
    user_modules.serve(places, module_name)
    origin = spec.origin or module_name
    try:
        module = import_module(module_name)
    except Exception as error:
        raise OptionError(f"{key}: {name}: {_located(error, origin)}") from error
    if not hasattr(module, attribute):
        raise OptionError(_absent(key, attribute, origin, vars(module)))
    return getattr(module, attribute)


def load_function(key: str, name: str, places: Sequence[Path]) -> Callable[..., Any]:
    """Load a callable: a function, a class, or an object with `__call__`."""
    function = load(key, name, places)
    if not callable(function):
        raise OptionError(
            f"{key}: {name} is of type {type(function).__name__}; it must be a function"
        )
    return function  # type: ignore[no-any-return]


def _spec(key: str, name: str, places: Sequence[Path]) -> ModuleSpec:
    """Find the module without importing it or its packages."""
    if not is_dotted(name):
        raise OptionError(f"{key}: {name!r} is not of the form module.function")
    module_name = name.rpartition(".")[0]
    parts = module_name.split(".")
    spec = _top(key, parts[0], places)
    for depth in range(1, len(parts)):
        if spec is None:
            break
        path = list(spec.submodule_search_locations or ())
        spec = PathFinder.find_spec(".".join(parts[: depth + 1]), path)
    if spec is None:
        file = Path(*parts).with_suffix(".py")
        looked = ", ".join(dict.fromkeys(map(str, places)))
        raise OptionError(f"{key}: {name}: no {file} in {looked}, and no installed {module_name}")
    return spec


def _top(key: str, name: str, places: Sequence[Path]) -> ModuleSpec | None:
    """Find a top-level module in the places, else among what is installed; raise if it is in both."""
    ours = PathFinder.find_spec(name, [str(place) for place in places])
    other = user_modules.installed(name)
    if ours is None or ours.origin is None or other is None or other.origin is None:
        return ours or other
    if Path(ours.origin).resolve() != Path(other.origin).resolve():
        raise OptionError(
            f"{key}: {ours.origin} has the name of the installed module {name}; rename it"
        )
    return ours


def _make_room(module_name: str, places: Sequence[Path]) -> None:
    """Forget a module of the same name that was loaded from a different folder."""
    top = module_name.partition(".")[0]
    loaded = sys.modules.get(top)
    wanted = PathFinder.find_spec(top, [str(place) for place in places])
    if loaded is None or wanted is None or wanted.origin is None:
        return
    origin = getattr(loaded, "__file__", None)
    if origin is not None and Path(origin).resolve() == Path(wanted.origin).resolve():
        return
    for other in [name for name in sys.modules if name == top or name.startswith(f"{top}.")]:
        del sys.modules[other]


def _tree(key: str, name: str, origin: str) -> ast.Module:
    try:
        return ast.parse(Path(origin).read_bytes(), origin)
    except SyntaxError as error:
        raise OptionError(f"{key}: {name}: {_located(error, origin)}") from error


def _defined(tree: ast.Module) -> set[str] | None:
    """Return the names that a module's source defines; None if it may define others dynamically."""
    names = {name for node in ast.walk(tree) for name in _bound(node)}
    return None if names & {"__getattr__", "*"} or "globals()" in ast.unparse(tree) else names


def _bound(node: ast.AST) -> list[str]:
    """Return the names that a node of the syntax tree gives a value."""
    if isinstance(node, (*_FUNCTIONS, ast.ClassDef)):
        return [node.name]
    if isinstance(node, (ast.Import, ast.ImportFrom)):
        return [(alias.asname or alias.name).partition(".")[0] for alias in node.names]
    return [node.id] if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store) else []


def _absent(key: str, attribute: str, origin: str, known: Any) -> str:
    near = near_match(attribute, [name for name in known if not name.startswith("_")])
    return f"{key}: {origin} has no {attribute!r}" + (f"; did you mean {near!r}?" if near else "")


def _located(error: Exception, origin: str) -> str:
    """Return the error in the user's file, and its line."""
    frames = [f for f in traceback.extract_tb(error.__traceback__) if f.filename == origin]
    line = error.lineno if isinstance(error, SyntaxError) else frames[-1].lineno if frames else None
    where = f"{origin}:{line}" if line else origin
    words = error.msg if isinstance(error, SyntaxError) else str(error)
    return f"{where} cannot be loaded: {type(error).__name__}: {words}"
