"""Which types the rows of a source speak for, and which one is meant most likely.

The registry's detection ranks the converters by how well they fit. Where that leaves several, the
one whose columns hardly another converter knows is the better guess, and one that takes a whole
conversation before one that takes a part of it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fmtkit import detection, registry
from fmtkit.detection import Fit

GENERIC = ("default", "passthrough", "user_defined.default")
"""Converters that fit nearly everything."""

PARTIAL = {"Reference": 1, "Tokens": 2}
"""Tables that take a part of what the row holds: a target, the tokens of one trainer."""


@dataclass(frozen=True)
class Guess:
    """A type that fits."""

    type: str
    table: str
    reason: str
    sound: float
    """Share of the rows that it can take."""


def guess(
    sample: Sequence[Mapping[str, Any]], method: str | None = None, source: str = ""
) -> tuple[Guess, ...]:
    """Return the types that fit the rows of a sample, best first; each type and table once.

    Of types that fit equally well the one that stands in the source's name comes first.
    """
    fits = sorted(detection.detect(list(sample), method), key=_order(_known_by(), source))
    found = {(fit.converter.name, fit.converter.makes.name()): fit for fit in reversed(fits)}
    guesses = [
        Guess(name, table, fit.reason, fit.sound) for (name, table), fit in reversed(found.items())
    ]
    return tuple(guesses)


def common(guesses: Sequence[Sequence[Guess]]) -> Guess | None:
    """Return the best guess that all sources share; sources without rows have no say."""
    asked = [found for found in guesses if found]
    if not asked:
        return None
    shared = set.intersection(*({(g.type, g.table) for g in found} for found in asked))
    return next((g for g in asked[0] if (g.type, g.table) in shared), None)


def _known_by() -> dict[str, int]:
    """Count the converters that know a column of each name."""
    counts: dict[str, int] = {}
    for converter in registry.converters():
        for column in {_first(converter.path(name)) for name in converter.takes}:
            counts[column] = counts.get(column, 0) + 1
    return counts


def _first(path: str) -> str:
    return path.partition(".")[0]


def _order(known_by: Mapping[str, int], source: str) -> Any:
    def key(fit: Fit) -> tuple[Any, ...]:
        converter = fit.converter
        paths = [converter.path(name) for name in converter.takes if name in converter.required]
        paths += [converter.path(group[0]) for group in converter.any_of]
        names = {_first(path) for path in paths}
        special = [1 / known_by[name] for name in names]
        return (
            -round(fit.sound, 2),
            converter.name in GENERIC,
            PARTIAL.get(converter.makes.name(), 0) * (converter.name not in GENERIC),
            -max((path.count(".") for path in paths), default=0),
            -round(max(special, default=0.0), 3),
            fit.foreign,
            -fit.used,
            -round(sum(special), 3),
            _first(converter.name) not in source,
            converter.name.count("."),
            converter.name,
        )

    return key
