"""Plugins: entry points of installed packages, found by their metadata, loaded when they are named.

The groups are `fmtkit.converters`, `fmtkit.runners` (training methods), `fmtkit.sections` (groups of keys)
and `fmtkit.outputs` (formats of written files). Whatever a package's code does, it is one error that names
the package.
"""

import traceback
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from importlib.metadata import EntryPoint, distribution, distributions
from typing import Any, TypeVar

from fmtkit.core.errors import DependencyError, FmtkitError, OptionError

T = TypeVar("T")
_GROUPS = "fmtkit."
"""What the names of all groups begin with."""


@cache
def installed(group: str) -> Mapping[str, tuple[EntryPoint, ...]]:
    """Return the entry points of a group by name, sorted: no code of a package is run for that.

    A name has several where several packages claim it.
    """
    found: dict[str, dict[str, EntryPoint]] = {}
    for point in _every():
        if point.group != group:
            continue
        found.setdefault(point.name, {})[point.value] = point
    return {name: tuple(points.values()) for name, points in sorted(found.items())}


@cache
def _every() -> tuple[EntryPoint, ...]:
    """Read the entry points of all packages that name one of fmtkit's groups.

    `importlib.metadata.entry_points` takes those of all packages apart: with 200 of them 6 ms of CPU, not 3.
    """
    owners = [
        one for one in distributions() if f"[{_GROUPS}" in (one.read_text("entry_points.txt") or "")
    ]
    # Of a package that is there twice the first counts, as in an import; damaged metadata have no name.
    names = [one.metadata["Name"] for one in owners]
    firsts = {n: distribution(n) if n else one for n, one in zip(names, owners, strict=True)}
    return tuple(point for one in firsts.values() for point in one.entry_points)


def forget() -> None:
    """Read the metadata of packages again, after some were added to the path."""
    installed.cache_clear()
    _every.cache_clear()


def entry_point_named(group: str, what: str, name: str, *, shipped: bool) -> EntryPoint | None:
    """Return the entry point of a name; None where there is none.

    Raises OptionError where two packages, or one and fmtkit, have something of that name.
    """
    points = installed(group).get(name, ())
    if len(points) + shipped > 1:
        owners = [*(["fmtkit"] if shipped else []), *map(_package, points)]
        raise OptionError(f"{what} {name}: {' and '.join(owners)} both have it; uninstall one")
    return points[0] if points else None


def constant(point: EntryPoint, what: str, name: str, kind: type[T], key: str) -> T:
    """Return what an entry point names: an object of a kind, or a module with one under that name.

    Its attribute `key` is the name of the entry point. Raises DependencyError for anything else.
    """
    found = load(point, what)
    found = found if isinstance(found, kind) else getattr(found, name, None)
    package = f"{what} {point.name}: the package {_package(point)}"
    if not isinstance(found, kind):
        raise DependencyError(
            f"{package} has no {name} in {point.value}; it is a {kind.__module__}.{kind.__name__}"
        )
    own = getattr(found, key)
    if own != point.name:
        raise DependencyError(
            f"{package} names its {name} {own!r}; the name of the entry point and {name}.{key} are "
            "the same"
        )
    return found


@cache
def load(point: EntryPoint, what: str) -> Any:
    """Load an entry point; DependencyError, with the place in its code, for whatever it raises."""
    try:
        return point.load()
    except (Exception, SystemExit) as error:
        raise _raised(point, what, error) from error


@contextmanager
def blaming(point: EntryPoint, what: str) -> Iterator[None]:
    """Turn what a package's code raises into a DependencyError with the place in it; fmtkit's errors pass."""
    try:
        yield
    except FmtkitError:
        raise
    except (Exception, SystemExit) as error:
        raise _raised(point, what, error) from error


def _raised(point: EntryPoint, what: str, error: BaseException) -> DependencyError:
    message = " ".join(str(error).split())
    frames = traceback.extract_tb(error.__traceback__)
    where = f" ({frames[-1].filename}:{frames[-1].lineno})" if frames else ""
    return unusable(point, what, f"{type(error).__name__}{': ' if message else ''}{message}{where}")


def unusable(point: EntryPoint, what: str, why: str) -> DependencyError:
    """Return the error for a package that cannot be used."""
    return DependencyError(
        f"{what} {point.name}: the package {_package(point)} cannot be used: {why}"
    )


def _package(point: EntryPoint) -> str:
    """Return the name and version of the package that an entry point is of."""
    return f"{point.dist.name} {point.dist.version}" if point.dist else point.value
