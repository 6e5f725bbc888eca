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
from pathlib import Path
from typing import Any

from fmtkit.core import user_modules
from fmtkit.core.errors import OptionError, near_match


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
    try:
        tree = ast.parse(Path(spec.origin).read_bytes(), spec.origin)
    except SyntaxError as error:
        raise OptionError(f"{key}: {name}: {_located(error, spec.origin)}") from error
    defined = _defined(tree)
    if defined is not None and attribute not in defined:
        raise OptionError(_absent(key, attribute, spec.origin, defined))


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


def _defined(tree: ast.Module) -> set[str] | None:
    """Return the names that a module's source defines; None if it may define others dynamically."""
    names: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and any(alias.name == "*" for alias in node.names):
            return None
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            names.add(node.name)
        elif isinstance(node, (ast.Import, ast.ImportFrom)):
            names.update((alias.asname or alias.name).partition(".")[0] for alias in node.names)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            names.add(node.id)
    return None if names & {"__getattr__"} or "globals()" in ast.unparse(tree) else names


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
