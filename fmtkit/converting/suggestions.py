"""Suggestions: commands that convert sources as a fit reads them, and words for rows that no type fits."""

import shlex
from collections.abc import Sequence
from pathlib import Path, PurePosixPath

from fmtkit.converting import detection
from fmtkit.converting.bound_column import Row, is_media
from fmtkit.converting.detection import Fit
from fmtkit.converting.near_misses import is_message
from fmtkit.core import runner
from fmtkit.core.errors import ColumnMismatchError, OptionError


def convert_command(
    paths: Sequence[str],
    found: Fit,
    sample: Sequence[Row],
    *,
    delimiter: str | None = None,
) -> str | None:
    """Return the command that converts sources as a fit reads them, tried on the rows of the sample.

    None where no command does: rows in memory, or a type that takes a tokenizer.
    """
    if detection.needs_tokenizer(found) or any(path.startswith("<") for path in paths):
        return None
    methods = (None, *methods_for(found.converter.table))
    chosen = next((m for m in methods if _chooses(found, sample, m)), "")
    if chosen == "":
        return None
    words = ["fmtkit", "convert", *paths, "-t", found.converter.name]
    words += ["--method", chosen] if chosen else []
    words += [w for name, path in found.mapping.items() for w in ("--map", f"{name}={path}")]
    words += [w for name, value in found.options.items() for w in ("--option", f"{name}={value}")]
    words += ["--delimiter", delimiter] if delimiter is not None else []
    return shlex.join([*words, "-o", output_for(paths)])


def unfitting(paths: Sequence[str], sample: Sequence[Row]) -> str:
    """Describe rows that no type fits, and how to convert them."""
    if not sample:
        return "there are no rows that could be read"
    media = sorted({name for row in sample for name in row if is_media(name, row[name])})
    if media:
        return f"the rows have {', '.join(media)}: fmtkit converts text only"
    if all(map(is_message, sample)):
        return (
            'each row is a single message: write a conversation as one row, {"messages": [...]}, '
            "and not as a list of them"
        )
    near = detection.nearest(sample)
    if near is not None:
        return f"no type fits; {near[0]} has the columns, but {near[1]}"
    names = dict.fromkeys(name for row in sample for name in row)
    path = paths[0] if paths else "SOURCE"
    words = ["fmtkit", "convert", *paths, "-t", "question_answer"]
    words += ["--map", "question=COLUMN", "--map", "answer=COLUMN", "-o", output_for(paths)]
    return (
        f"no type fits {path}, whose columns are {', '.join(names) or 'none'}: say which of them are "
        f"a question and its answer (`{shlex.join(words)}`), or read them by a converter of your own "
        "(--plugin FILE.py; docs/add-a-format.md has a whole one)"
    )


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


def output_for(paths: Sequence[str]) -> str:
    """Return a name for the output of sources, one that no file has."""
    first = PurePosixPath(paths[0]).name if paths and paths[0] != "-" else ""
    stem = first.partition(".")[0] if "*" not in first else ""
    stem = stem or "converted"
    names = (f"{stem}{ending}.parquet" for ending in ("", *(f".{n}" for n in range(1, 100))))
    return next((name for name in names if not Path(name).exists()), f"{stem}.new.parquet")
