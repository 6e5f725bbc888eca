"""Which types the rows of a source fit, best first, as `fmtkit.detection.detection` ranks them."""

from collections.abc import Mapping, Sequence
from typing import Any

from fmtkit.core.data_classes import dataclass
from fmtkit.detection import certainty, detection
from fmtkit.detection import fits as fitting
from fmtkit.detection.fits import Fit
from fmtkit.detection.other_commands import Reading, readings
from fmtkit.detection.suggestions import convert_command
from fmtkit.detection.unread_columns import OpenColumn
from fmtkit.formats import registry
from fmtkit.options.convert_options import SourceOptions

Pairs = tuple[tuple[str, str], ...]

TRIED = 4
"""Guesses for which a command is made."""


@dataclass(frozen=True)
class Guess:
    """A type that fits."""

    type: str
    table: str
    reason: str
    sound: float
    """Share of the rows that it can take."""
    columns: Mapping[str, str]
    """The type's columns that have other names in the source, for --map."""
    options: Mapping[str, str]
    """Options of the type by which its messages are read, for --option."""
    certainty: str
    """How sure the first guess is: sure, likely or unsure; empty of the others."""
    command: str | None
    """A command that converts the source as this type, tried on its first rows."""
    open: tuple[OpenColumn, ...] = ()
    """Columns that the type does not read and that could hold something to train on."""
    readings: tuple[Reading, ...] = ()
    """Commands that do something about them; of the first guess only."""


def guess(
    sample: Sequence[Mapping[str, Any]],
    options: SourceOptions | None = None,
    *,
    paths: Sequence[str] = ("<memory>",),
) -> tuple[Guess, ...]:
    """Return the types that fit the rows of a sample, best first; each type and table once."""
    rows, given = list(sample), options or SourceOptions()
    return of_fits(detection.detect(rows, given.method), rows, given, paths=paths)


def of_fits(
    fits: Sequence[Fit],
    rows: Sequence[Mapping[str, Any]],
    given: SourceOptions,
    *,
    paths: Sequence[str],
) -> tuple[Guess, ...]:
    """Return the types of the fits of some rows, in their order; each type and table once."""
    found: dict[tuple[str, str], Guess] = {}
    for place, fit in enumerate(fits):
        name, table = fit.converter.name, fit.converter.table
        if (name, table) not in found:
            sure = certainty.certainty(fits, rows) if place == 0 else ""
            tried = len(found) < TRIED
            command = convert_command(paths, fit, rows, given) if tried else None
            others = readings(paths, fit, rows, given) if command and not found else ()
            found[name, table] = Guess(
                name,
                table,
                fit.reason,
                fit.sound,
                fit.mapping,
                fit.options,
                sure,
                command,
                fit.open,
                others,
            )
    return tuple(found.values())


def command_as(
    type_name: str,
    sample: Sequence[Mapping[str, Any]],
    *,
    paths: Sequence[str],
    options: SourceOptions,
) -> str | None:
    """Return the command that converts a source as one type, tried on the rows; None where it does not."""
    fits = (fitting.fit(one, sample) for one in registry.converters_named(type_name))
    best = max(fits, key=lambda found: found.sound)
    return convert_command(paths, best, sample, options) if best.is_good else None


def common(guesses: Sequence[Sequence[Guess]]) -> Guess | None:
    """Return the best guess that all sources share; sources without rows are ignored."""
    asked = [found for found in guesses if found]
    if not asked:
        return None
    shared = set.intersection(*({_key(g) for g in found} for found in asked))
    return next((g for g in asked[0] if _key(g) in shared), None)


def _key(found: Guess) -> tuple[str, str, Pairs, Pairs]:
    columns, options = (tuple(sorted(pairs.items())) for pairs in (found.columns, found.options))
    return found.type, found.table, columns, options
