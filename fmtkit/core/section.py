"""Sections: groups of a configuration's keys, and the code that acts on them.

A section is one constant, SECTION: of a module `runners/NAME/section.py` of fmtkit, or of what an entry
point in the group `fmtkit.sections` of an installed package names. Planning reads it too, so it imports
nothing heavy: the modules with its keys and its functions are named, and loaded when they are needed.
"""

import importlib
import pkgutil
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import field, fields
from functools import cache, wraps
from importlib.metadata import EntryPoint
from importlib.util import find_spec
from types import ModuleType
from typing import Any, Generic, Literal, TypeVar, cast

from fmtkit.core import plugins
from fmtkit.core.data_classes import dataclass

F = TypeVar("F", bound=Callable[..., Any])
S = TypeVar("S")

GROUP = "fmtkit.sections"
"""Group of entry points by which an installed package adds sections."""
SHIPPED = "fmtkit.runners"
"""fmtkit's own package of sections, and of methods."""
VERSION = 1
"""Of this protocol: a section that is made for another one is not taken."""

Provided = Literal["datasets", "rewards", "answers"]
"""What an environment can have in place of the run's own."""


@dataclass(frozen=True)
class Hook(Generic[F]):
    """A function that modules of a section may define, by its name; its type is the parameter."""

    name: str


@dataclass(frozen=True)
class Section:
    """Keys of a configuration that belong together, and the modules that act on them.

    The modules may define:

    - `derive(plan)`: checks the keys and sets what follows from them in `plan.arguments`;
    - `datasets(config)` and `missing(config)`: datasets in place of the run's, and the keys still to be set;
    - `features(config)`: the set keys that only fmtkit's own trainer honours;
    - `provides(config)`: which of the run's datasets, rewards and answers it has instead (`Provided`);
    - `types(config)`: names of datasets' types that mean a different one in the run;
    - `whole_groups(config)`: the keys that need all answers to a prompt in one process;
    - `models(plan)`: the key and the name of each model that a key loads;
    - `lacking_device(plan)`: why the run would find no GPU that it needs;
    - `check(plan)`: before anything is converted; it raises what is wrong;
    - `remarks(plan)`: what is to be said of the converted rows;
    - `servers(plan)`: a context manager around the training processes;
    - `health(logs, step)`: in the training process, warnings of what the logs say, each with a name
      (`fmtkit.training.building.online_health.Rule`);
    - `environment(job, tokenizer)`: in the training process, the rewards and conversations of an environment
      (`fmtkit.training.online.conversations.environment.ExternalEnvironment`), or None.

    Their types are in `fmtkit.training.planning.hooks`, those of a configuration alone in
    `fmtkit.core.runner`. Functions of these modules that `fmtkit.training.planning.check.check_config`
    declares check its keys.
    """

    name: str
    about: str
    """What its keys go to, for the page of keys."""
    modules: tuple[str, ...]
    """Where its functions are."""
    keys: str = ""
    """The module with its `KEYS`: `fmtkit.training.config.key.Key`s, under the names that users write."""
    needs: frozenset[str] = frozenset()
    """Sections on whose code it is built: without one of them it is not there, nor the method beside it."""
    methods: frozenset[str] = frozenset()
    """Methods that take it although their runners do not name it."""
    switch: str = ""
    """The key that turns it on, where all others have no effect without it."""
    features: Mapping[str, object] = field(default_factory=dict)
    """Keys of `trl` on which its own trainers act -> the value that turns each off."""
    trainers: Mapping[str, Mapping[str, object]] = field(default_factory=dict)
    """Method -> the fields of its `Runner` that differ where a trainer of this section trains it."""
    rewards: frozenset[str] = frozenset()
    """Names in `trl.reward_funcs` for the reward that comes with its environment."""
    plugins: Mapping[str, str] = field(default_factory=dict)
    """Classes of axolotl's plugins that a config may name, since its keys do the same -> a note, if any."""
    version: int = VERSION
    """The version of this protocol that it is made for."""

    def __post_init__(self) -> None:
        """Raise ValueError for a section that is made for another version of the protocol."""
        if self.version != VERSION:
            raise ValueError(
                f"section {self.name} is made for version {self.version} of sections, and this fmtkit has "
                f"{VERSION}"
            )

    def hooks(self, hook: Hook[F]) -> Iterator[F]:
        """Yield its functions for a hook, in the order of its modules."""
        for module in self.loaded():
            function: F | None = getattr(module, hook.name, None)
            if function is not None:
                yield guarded(self.name, function)

    def loaded(self) -> list[ModuleType]:
        """Load its modules; raise DependencyError for those of a package that cannot be used."""
        with _blaming(self.name):
            return [importlib.import_module(module) for module in self.modules]

    def load_keys(self) -> tuple[Any, ...]:
        """Load its keys; raise DependencyError for those of a package that cannot be used."""
        if not self.keys:
            return ()
        with _blaming(self.name):
            return tuple(importlib.import_module(self.keys).KEYS)


def guarded(name: str, function: F) -> F:
    """Return a function of a section whose errors name the section's package; fmtkit's own is left as it is.

    What the function yields is taken at once. A context manager is guarded until it is entered: what is
    raised in its body is not the package's.
    """
    point = _point(name)
    if point is None:
        return function

    @wraps(function)
    def call(*given: Any, **named: Any) -> Any:
        with _blaming(name):
            found = function(*given, **named)
            if isinstance(found, AbstractContextManager):
                return _entered(name, found)
            return tuple(found) if isinstance(found, Iterator) else found

    return cast("F", call)


@contextmanager
def _entered(name: str, manager: AbstractContextManager[Any]) -> Iterator[Any]:
    with ExitStack() as stack:
        with _blaming(name):
            found = stack.enter_context(manager)
        yield found


def _blaming(name: str) -> AbstractContextManager[None]:
    point = _point(name)
    return nullcontext() if point is None else plugins.blaming(point, "section")


def wrong(name: str, why: str) -> Exception:
    """Return the error for a declaration that cannot be used: of a package, or of fmtkit itself."""
    point = _point(name)
    if point is None:
        return ValueError(f"section {name}: {why}")
    return plugins.unusable(point, "section", why)


def read(
    kind: type[S], values: Mapping[str, object] | None, prefix: str = "", **defaults: Any
) -> S:
    """Make the settings of a section, a dataclass: of its keys those that are set and that the class has.

    Args:
        kind: The dataclass. A field whose metadata has `read` takes what that function makes of a value.
        values: Keys of a plan or a job -> their values; other parts may read other keys of them.
        prefix: How the keys begin, which have the name of a field after it.
        defaults: Fields that hold if no key sets them.
    """
    named = {one.name: one.metadata.get("read") for one in fields(cast("Any", kind))}
    set_keys = {name: value for name, value in (values or {}).items() if value is not None}
    given = {n.removeprefix(prefix): v for n, v in set_keys.items() if n.startswith(prefix)}
    known = {name: value for name, value in given.items() if name in named}
    made = {name: make(value) if (make := named[name]) else value for name, value in known.items()}
    return kind(**{**defaults, **made})


def texts(value: object) -> tuple[str, ...]:
    """Read a text, or a list of them, as a tuple of texts."""
    return tuple(map(str, value if isinstance(value, (list, tuple)) else [value]))


def unknown(given: Iterable[str]) -> set[str]:
    """Return the names that no section has; installed packages are searched only if fmtkit lacks one."""
    others = set(given).difference(_own_names())
    return others.difference(names()) if others else others


def names() -> tuple[str, ...]:
    """Return the names of all sections, fmtkit's own first, each part sorted; no package's code is run."""
    own = _own_names()
    return (*own, *(name for name in plugins.installed(GROUP) if name not in own))


def shipped() -> tuple[Section, ...]:
    """Return the sections of fmtkit itself; packages are not looked at."""
    return tuple(map(_shipped, _own_names()))


def _own_names() -> tuple[str, ...]:
    return folders("section")


@cache
def folders(part: str) -> tuple[str, ...]:
    """Return the names of the folders of `runners/` that hold a module of this name, sorted.

    Those that need a folder that is not there are left out.
    """
    return tuple(name for name in _with(part) if not lacking(name))


def lacking(name: str) -> str:
    """Return a section that is not there and that the one in this folder needs; empty if none is missing."""
    there = _with("section")
    needs = sorted(_shipped(name).needs) if name in there else ()
    return next((one for one in needs if one not in there or lacking(one)), "")


@cache
def _with(part: str) -> tuple[str, ...]:
    package = importlib.import_module(SHIPPED)
    found = [module.name for module in pkgutil.iter_modules(package.__path__) if module.ispkg]
    return tuple(name for name in sorted(found) if find_spec(f"{SHIPPED}.{name}.{part}"))


def is_added(name: str) -> bool:
    """Return whether a section is of another package."""
    return name not in _own_names()


def every() -> tuple[Section, ...]:
    """Return all sections: those that runners name, then those that say themselves which methods take them.

    Raises OptionError where two packages have one of a name, DependencyError where a package cannot be used.
    """
    return _all(names())


@cache
def _all(of: tuple[str, ...]) -> tuple[Section, ...]:
    # What acts on a method from outside acts last.
    return tuple(sorted(map(_find, of), key=lambda one: bool(one.methods)))


def _point(name: str) -> EntryPoint | None:
    """Return the entry point of an added section; None for fmtkit's own."""
    return (
        plugins.entry_point_named(GROUP, "section", name, shipped=False) if is_added(name) else None
    )


def _find(name: str) -> Section:
    point = plugins.entry_point_named(GROUP, "section", name, shipped=not is_added(name))
    if point is None:
        return _shipped(name)
    found = plugins.constant(point, "section", "SECTION", Section, "name")
    for one in sorted(found.needs.difference(names())):
        raise plugins.unusable(point, "section", f"it needs the section {one}, which is not there")
    return found


def _shipped(name: str) -> Section:
    section: Section = importlib.import_module(f"{SHIPPED}.{name}.section").SECTION
    return section


def of_method(method: str) -> frozenset[str]:
    """Return the sections that a method takes although its runner does not name them."""
    return frozenset(section.name for section in every() if method in section.methods)
