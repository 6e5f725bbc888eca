"""Which types the rows of a source speak for, best first, as `fmtkit.converting.detection` ranks them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fmtkit.converting import detection


@dataclass(frozen=True)
class Guess:
    """A type that fits."""

    type: str
    table: str
    reason: str
    sound: float
    """Share of the rows that it can take."""


def guess(sample: Sequence[Mapping[str, Any]], method: str | None = None) -> tuple[Guess, ...]:
    """Return the types that fit the rows of a sample, best first; each type and table once."""
    found: dict[tuple[str, str], Guess] = {}
    for fit in detection.detect(list(sample), method):
        name, table = fit.converter.name, fit.converter.makes.name()
        found.setdefault((name, table), Guess(name, table, fit.reason, fit.sound))
    return tuple(found.values())


def common(guesses: Sequence[Sequence[Guess]]) -> Guess | None:
    """Return the best guess that all sources share; sources without rows have no say."""
    asked = [found for found in guesses if found]
    if not asked:
        return None
    shared = set.intersection(*({(g.type, g.table) for g in found} for found in asked))
    return next((g for g in asked[0] if (g.type, g.table) in shared), None)
