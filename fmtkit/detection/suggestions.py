"""Suggestions: commands that convert sources as a fit reads them, and words for rows that no type fits."""

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from fmtkit.core import runner
from fmtkit.core.errors import ColumnMismatchError, OptionError
from fmtkit.core.options import flag_of, words_of
from fmtkit.detection.command_paths import fitted, output_for
from fmtkit.detection.detection import choose
from fmtkit.detection.fits import Fit, needs_tokenizer
from fmtkit.formats import target_registry
from fmtkit.options.convert_options import ConvertOptions, RowOptions, SourceOptions
from fmtkit.reading.bound_column import Row


def convert_command(
    paths: Sequence[str],
    found: Fit,
    sample: Sequence[Row],
    given: SourceOptions,
    *,
    keep: Sequence[str] = (),
    ignore: Sequence[str] = (),
) -> str | None:
    """Return the user's command with a type: it reads sources as a fit does, as tried on the sample.

    Columns of `keep` and `ignore` are kept and ignored too. None where no command does: rows in memory,
    a type that takes a tokenizer, or a layout (--to) that does not hold its rows.
    """
    if any(path.startswith("<") for path in paths):
        return None
    made = options_for(found, sample, given, keep=keep, ignore=ignore)
    return None if made is None else as_command(paths, given, made)


def options_for(
    found: Fit,
    sample: Sequence[Row],
    given: SourceOptions,
    *,
    keep: Sequence[str] = (),
    ignore: Sequence[str] = (),
) -> dict[str, Any] | None:
    """Return the options of a conversion with which it reads sources as a fit does; None where none do."""
    if needs_tokenizer(found):
        return None
    if why_not_to(found, given):
        return None
    mapping = {**found.mapping, **given.columns}
    options = {**found.options, **given.options}
    found = replace(found, mapping=mapping, options=options)
    taking = (
        (None, *methods_for(found.converter.table)) if given.method is None else (given.method,)
    )
    chosen = next((m for m in taking if _chooses(found, sample, m)), "")
    if chosen == "":
        return None
    made: dict[str, Any] = {"type": found.converter.name, "method": chosen}
    made |= {"columns": mapping, "options": options}
    made["ignore"] = (*given.ignore, *ignore)
    made["keep"] = (*_option(given, "keep", ()), *keep)
    return made


def as_command(paths: Sequence[str], given: SourceOptions, made: Mapping[str, Any]) -> str:
    """Return the command line of options with some of them changed: the only place that writes one.

    An inspection is followed by a conversion, with its options of sources; what it looks at, and how it runs,
    is left out: what a survey says does not depend on its workers.
    """
    command = _option(given, "command", "convert")
    takes: type[SourceOptions] = RowOptions if command == "validate" else ConvertOptions
    declared, kept = takes.declared(), {*given.declared()}
    if not isinstance(given, RowOptions):
        kept = {*SourceOptions.declared()} - given.with_same_rows()
    values = {n: v for n, v in given.chosen().items() if n in kept and n in declared}
    values |= made
    words = ["fmtkit", command, *fitted(paths)]
    first = ("type", "method", "columns", "options")
    for name in (*first, *(name for name in declared if name not in first)):
        flag = _SHORT.get(name) or flag_of(name, declared[name])
        words += words_of(flag, declared[name], values.get(name))
    words += given.beside if isinstance(given, RowOptions) else ()
    if command == "convert":
        words += ["-o", _option(given, "out", "") or output_for(paths)]
    return shlex.join(words)


_SHORT = {"type": "-t"}


def _option(given: SourceOptions, name: str, default: Any) -> Any:
    """Return what an inspection has no option for."""
    return getattr(given, name) if isinstance(given, RowOptions) else default


def is_kept(name: str, given: SourceOptions) -> bool:
    """Return whether a column is carried through as the command is."""
    return bool({name, "all"} & {*_option(given, "keep", ())})


def to_of(given: SourceOptions) -> str | None:
    """Return the layout that is to be written (--to)."""
    found: str | None = _option(given, "to", None)
    return found


def why_not_to(found: Fit, given: SourceOptions) -> str:
    """Return why the layout of --to does not hold the rows of a fit; empty where it does."""
    to = to_of(given)
    if to is None:
        return ""
    try:
        target_registry.find(to, found.converter.makes, text=found.converter.text)
    except OptionError as error:
        return str(error)
    return ""


def methods_for(table: str) -> tuple[str, ...]:
    """Return the methods that take a table, first the one that the table suggests."""
    taking = [one.method for one in runner.shipped() if table in one.tables]
    first = runner.guess({table})
    return tuple(sorted(taking, key=lambda method: (method != first, len(method), method)))


def _chooses(found: Fit, sample: Sequence[Row], method: str | None) -> bool:
    """Return whether the type's name, the columns and the method choose just this converter."""
    try:
        chosen = choose(
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
