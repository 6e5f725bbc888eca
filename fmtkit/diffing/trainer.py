"""Declares a trainer to compare with: its pinned environment, and what its recorder is asked."""

from collections.abc import Callable, Mapping
from dataclasses import field, replace
from importlib import import_module
from pathlib import Path
from pkgutil import iter_modules

from fmtkit.core.data_classes import dataclass
from fmtkit.core.errors import UnknownNameError
from fmtkit.diffing.given_rows import GivenRows
from fmtkit.diffing.own_rows import OwnRows

Request = dict[str, object]


@dataclass(frozen=True)
class Trainer:
    """A trainer: the recorder runs its real preparation of rows, in the environment that it needs."""

    name: str
    """As `--against` takes it."""
    module: str
    """What is imported; whether a Python has the trainer is asked by it."""
    package: str
    """Its distribution, with the version that was tried."""
    needs: tuple[str, ...]
    """Requirements that are installed with their own requirements."""
    request: Callable[[OwnRows, "Asked", Path], tuple[Request, GivenRows | None]]
    """Makes what the recorder is asked, and the rows that it is given."""
    stubs: tuple[str, ...] = ()
    """Modules that the trainer imports, does not need for rows of text, and that are left empty."""
    left_out: str = ""
    """What its own requirements have that is not installed, and why nothing here needs it."""
    as_is: bool = False
    """Whether it can read a config and its datasets by itself."""
    is_exact: bool = False
    """Whether this very version was asked for, so that no other one is taken."""

    @property
    def distribution(self) -> str:
        """Return the name of its distribution."""
        return self.package.partition("==")[0]

    @property
    def version(self) -> str:
        """Return the version of its distribution."""
        return self.package.partition("==")[2]

    def in_version(self, version: str) -> "Trainer":
        """Return the trainer in another version, whose requirements are left as they are."""
        return replace(self, package=f"{self.distribution}=={version}", is_exact=True)


@dataclass(frozen=True)
class Asked:
    """What `fmtkit diff` was asked of another trainer."""

    settings: Mapping[str, object] = field(default_factory=dict)
    """Arguments of the trainer's own that are set beside those of the config (`--with`)."""
    as_is: bool = False
    """Whether it reads the config's datasets itself."""
    keys: Mapping[str, object] = field(default_factory=dict)
    """The config as it was written, for a trainer that reads it itself."""
    limit: int | None = None
    """How many rows of each dataset it reads then."""


def names() -> list[str]:
    """Return the names of the trainers."""
    return sorted(one.name for one in every())


def every() -> list[Trainer]:
    """Return the trainers."""
    folder = import_module("fmtkit.diffing.trainers")
    found = (
        import_module(f"{folder.__name__}.{one.name}") for one in iter_modules(folder.__path__)
    )
    return [module.TRAINER for module in found]


def find(name: str) -> Trainer:
    """Return a trainer; raise UnknownNameError where there is none of that name."""
    by_name = {one.name: one for one in every()}
    if name not in by_name:
        raise UnknownNameError("trainer", name, by_name)
    return by_name[name]
