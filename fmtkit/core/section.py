"""Sections: groups of a configuration's keys, and the code that acts on them.

A section is a constant SECTION. It is in fmtkit's module `runners/NAME/section.py`, or in what an installed
package's entry point of the group `fmtkit.sections` names. Planning reads it too, so its module imports
nothing heavy: it names the modules with its keys and its functions, which are loaded when they are needed.
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
"""Version of this protocol; sections made for another version are rejected."""

Provided = Literal["datasets", "rewards", "answers"]
"""What an environment can supply instead of the run's configuration."""


@dataclass(frozen=True)
class Hook(Generic[F]):
    """The name of a function that a section's modules may define; `F` is the type of that function."""

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

    The types of `features` and `provides` are in `fmtkit.core.runner`, those of `health` and `environment` in
    the modules named above, all others in `fmtkit.training.planning.hooks`. Functions of these modules that
    are declared by `fmtkit.training.planning.check.check_config` check its keys.
    """

    name: str
    about: str
    """What its keys configure, for the page of keys."""
    modules: tuple[str, ...]
    """Where its functions are."""
    keys: str = ""
    """The module with its `KEYS`: `fmtkit.training.config.key.Key`s, under the names that users write."""
    needs: frozenset[str] = frozenset()
    """Sections whose code it uses: if one is missing, this one and the method in its folder are left out."""
    methods: frozenset[str] = frozenset()
    """Methods that have this section although their runners do not name it."""
    switch: str = ""
    """The key that turns it on, if its other keys have no effect without that one."""
    features: Mapping[str, object] = field(default_factory=dict)
    """Keys of `trl` on which its own trainers act -> the value that turns each off."""
    trainers: Mapping[str, Mapping[str, object]] = field(default_factory=dict)
    """Method -> the fields of its `Runner` that differ where a trainer of this section trains it."""
    rewards: frozenset[str] = frozenset()
    """Names in `trl.reward_funcs` for the reward that comes with its environment."""
    plugins: Mapping[str, str] = field(default_factory=dict)
    """Plugin classes of axolotl that a config may name, since these keys do the same -> a note, or empty."""
    version: int = VERSION
    """The version of this protocol for which it is made."""

    def __post_init__(self) -> None:
        """Raise ValueError for a section that is made for another version of the protocol."""
        if self.version != VERSION:
            raise ValueError(
                f"section {self.name} is made for version {self.version} of sections, and this fmtkit has "
                f"{VERSION}"
            )

    def hooks(self, hook: Hook[F]) -> Iterator[F]:
        """Yield its functions for a hook, in the order of its modules."""
        for module in self.load_modules():
            function: F | None = getattr(module, hook.name, None)
            if function is not None:
                yield guarded(self.name, function)

    def load_modules(self) -> list[ModuleType]:
        """Load its modules; raise DependencyError if a package's module cannot be loaded."""
        with _blaming(self.name):
            return [importlib.import_module(module) for module in self.modules]

    def load_keys(self) -> tuple[Any, ...]:
        """Load its keys; raise DependencyError if a package's module cannot be loaded."""
        if not self.keys:
            return ()
        with _blaming(self.name):
            return tuple(importlib.import_module(self.keys).KEYS)


def guarded(name: str, function: F) -> F:
    """Wrap a function of a package's section so that its errors name the package; leave fmtkit's own alone.

    A generator is read to its end at once. Of a context manager only the entry is guarded: an exception in
    its body is not the package's.
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


def unusable(name: str, why: str) -> Exception:
    """Return the error for a section that cannot be used: a package's, or fmtkit's own."""
    point = _point(name)
    if point is None:
        return ValueError(f"section {name}: {why}")
    return plugins.unusable(point, "section", why)


def read(
    kind: type[S], values: Mapping[str, object] | None, prefix: str = "", **defaults: Any
) -> S:
    """Return an instance of a section's settings dataclass, filled from the set keys that it has.

    Args:
        kind: The dataclass. If a field's metadata has `read`, that function converts the value.
        values: Keys of a plan or a job -> their values; keys that the class lacks are ignored.
        prefix: What each key begins with; the rest of the key is the field's name.
        defaults: Values of fields that no key sets.
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
    """Return the names that no section has; packages are searched only for names that fmtkit lacks."""
    others = set(given).difference(_own_names())
    return others.difference(names()) if others else others


def names() -> tuple[str, ...]:
    """Return the names of all sections, fmtkit's own first, both parts sorted; no package's code is run."""
    own = _own_names()
    return (*own, *(name for name in plugins.installed(GROUP) if name not in own))


def shipped() -> tuple[Section, ...]:
    """Return the sections of fmtkit itself, without those of packages."""
    return tuple(map(_shipped, _own_names()))


def _own_names() -> tuple[str, ...]:
    return folders("section")


@cache
def folders(part: str) -> tuple[str, ...]:
    """Return the names of the folders of `runners/` that hold a module of this name, sorted.

    A folder is left out if the section of another folder that it needs is missing.
    """
    return tuple(name for name in _folders_with(part) if not lacking(name))


def lacking(name: str) -> str:
    """Return a section that section `name` needs and that is missing, or lacks one itself; empty if none."""
    there = _folders_with("section")
    needs = sorted(_shipped(name).needs) if name in there else ()
    return next((one for one in needs if one not in there or lacking(one)), "")


@cache
def _folders_with(part: str) -> tuple[str, ...]:
    package = importlib.import_module(SHIPPED)
    found = [module.name for module in pkgutil.iter_modules(package.__path__) if module.ispkg]
    return tuple(name for name in sorted(found) if find_spec(f"{SHIPPED}.{name}.{part}"))


def is_added(name: str) -> bool:
    """Return whether a section is of another package."""
    return name not in _own_names()


def every() -> tuple[Section, ...]:
    """Return all sections: those that runners name, then those that name their methods.

    Raises OptionError if two packages have sections of one name, DependencyError if a package cannot be used.
    """
    return _sections(names())


@cache
def _sections(names: tuple[str, ...]) -> tuple[Section, ...]:
    # Sections that name their methods come after those that runners name.
    return tuple(sorted(map(_find, names), key=lambda one: bool(one.methods)))


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
    """Return the sections that a method has although its runner does not name them."""
    return frozenset(section.name for section in every() if method in section.methods)
