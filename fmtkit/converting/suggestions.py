"""Suggestions: commands that convert sources as a fit reads them, and words for rows that no type fits."""

import shlex
from collections.abc import Sequence

from fmtkit.converting import detection
from fmtkit.converting.bound_column import Row
from fmtkit.converting.command_paths import fitted, output_for
from fmtkit.converting.detection import Fit
from fmtkit.core import runner
from fmtkit.core.errors import ColumnMismatchError, OptionError


def convert_command(
    paths: Sequence[str],
    found: Fit,
    sample: Sequence[Row],
    *,
    delimiter: str | None = None,
    command: str = "convert",
) -> str | None:
    """Return the command that converts (or validates) sources as a fit reads them, tried on the sample.

    None where no command does: rows in memory, or a type that takes a tokenizer.
    """
    if detection.needs_tokenizer(found) or any(path.startswith("<") for path in paths):
        return None
    methods = (None, *methods_for(found.converter.table))
    chosen = next((m for m in methods if _chooses(found, sample, m)), "")
    if chosen == "":
        return None
    words = ["fmtkit", command, *fitted(paths), "-t", found.converter.name]
    words += ["--method", chosen] if chosen else []
    words += [w for name, path in found.mapping.items() for w in ("--map", f"{name}={path}")]
    words += [w for name, value in found.options.items() for w in ("--option", f"{name}={value}")]
    words += ["--delimiter", delimiter] if delimiter is not None else []
    return shlex.join(words + (["-o", output_for(paths)] if command == "convert" else []))


def methods_for(table: str) -> tuple[str, ...]:
    """Return the methods that take a table, first the one that the table suggests."""
    taking = [one.method for one in runner.shipped() if table in one.tables]
    first = runner.guess({table})
    return tuple(sorted(taking, key=lambda method: (method != first, len(method), method)))


def _chooses(found: Fit, sample: Sequence[Row], method: str | None) -> bool:
    """Return whether the type's name, the columns and the method choose just this converter."""
    try:
        chosen = detection.choose(
            found.converter.name,
            sample,
            method=method,
            mapping=found.mapping,
            source="",
            options=found.options,
        )
    except (OptionError, ColumnMismatchError):
        return False
    return chosen is found.converter
