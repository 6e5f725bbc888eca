"""Sections: groups of a configuration's keys, and the code that acts on them.

A section is one constant, SECTION: of a module `runners/sections/NAME.py` of fmtkit, or of what an entry
point in the group `fmtkit.sections` of an installed package names. Planning reads it too, so it imports
nothing heavy: the modules with its keys and its functions are named, and loaded when they are needed.
"""

import importlib
import pkgutil
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any, Literal

from fmtkit.core import plugins

GROUP = "fmtkit.sections"
"""Group of entry points by which an installed package adds sections."""
SHIPPED = "fmtkit.runners.sections"
"""fmtkit's own package of them."""
VERSION = 1
"""Of this protocol: a section that is made for another one is not taken."""

Hook = Literal[
    "derive",
    "datasets",
    "missing",
    "models",
    "lacking_device",
    "check",
    "remarks",
    "servers",
    "features",
    "environment",
]


@dataclass(frozen=True)
class Section:
    """Keys of a configuration that belong together, and the modules that act on them.

    The modules may define:

    - `derive(config, runner, resolution, launch)`: checks the keys and sets what follows from them;
    - `datasets(config)` and `missing(config)`: datasets in place of the run's, and the keys still to be set;
    - `features(config)`: the set keys that only fmtkit's own trainer honours;
    - `models(plan)`: the key and the name of each model that a key loads;
    - `lacking_device(plan)`: why the run would find no GPU that it needs;
    - `check(plan)`: before anything is converted; it raises what is wrong;
    - `remarks(plan)`: what is to be said of the converted rows;
    - `servers(plan)`: a context manager around the training processes;
    - `environment(job, tokenizer)`: in the training process, the rewards and conversations of an environment
      (`fmtkit.training.rl.dialogs.environment.ExternalEnvironment`), or None.

    Functions of these modules that `fmtkit.training.planning.check.check_config` declares check its keys.
    """

    name: str
    about: str
    """What its keys go to, for the page of keys."""
    modules: tuple[str, ...]
    """Where its functions are."""
    keys: str = ""
    """The module with its `KEYS`: `fmtkit.training.config.key.Key`s, under the names that users write."""
    methods: frozenset[str] = frozenset()
    """Methods that take it although their runners do not name it."""
    version: int = VERSION
    """The version of this protocol that it is made for."""

    def __post_init__(self) -> None:
        """Raise ValueError for a section that is made for another version of the protocol."""
        if self.version != VERSION:
            raise ValueError(
                f"section {self.name} is made for version {self.version} of sections, and this fmtkit has "
                f"{VERSION}"
            )

    def hooks(self, name: Hook) -> Iterator[Callable[..., Any]]:
        """Yield the functions of that name, in the order of its modules."""
        for module in self.modules:
            function = getattr(importlib.import_module(module), name, None)
            if function is not None:
                yield function


def unknown(given: Iterable[str]) -> set[str]:
    """Return which of these names no section has; packages are looked at where fmtkit has not all of them."""
    others = set(given).difference(_own_names())
    return others.difference(names()) if others else others


@cache
def names() -> tuple[str, ...]:
    """Return the names of all sections, fmtkit's own first, each part sorted; nothing of them is loaded."""
    own = _own_names()
    return (*own, *(name for name in plugins.installed(GROUP) if name not in own))


@cache
def _own_names() -> tuple[str, ...]:
    package = importlib.import_module(SHIPPED)
    return tuple(sorted(module.name for module in pkgutil.iter_modules(package.__path__)))


def is_added(name: str) -> bool:
    """Return whether a section is of another package."""
    return name not in _own_names()


@cache
def every() -> tuple[Section, ...]:
    """Return all sections: those that runners name, then those that say themselves which methods take them.

    Raises OptionError where two packages have one of a name, DependencyError where a package cannot be used.
    """
    # What acts on a method from outside acts last.
    return tuple(sorted(map(_find, names()), key=lambda one: bool(one.methods)))


def _find(name: str) -> Section:
    is_own = name in _own_names()
    point = plugins.named(GROUP, "section", name, shipped=is_own)
    if point is not None:
        return plugins.constant(point, "section", "SECTION", Section, "name")
    section: Section = importlib.import_module(f"{SHIPPED}.{name}").SECTION
    return section


def of_method(method: str) -> frozenset[str]:
    """Return the sections that a method takes although its runner does not name them."""
    return frozenset(section.name for section in every() if method in section.methods)
