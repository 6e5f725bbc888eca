"""Ignoring: source columns that the user says are not needed (`--ignore`)."""

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from fmtkit.converting.type_options import TypeOptions
from fmtkit.core.errors import OptionError, near_match
from fmtkit.formats.registry import Converter

if TYPE_CHECKING:
    from fmtkit.converting.convert_options import RowOptions

Row = Mapping[str, Any]


def without(rows: Iterable[Row], ignored: Sequence[str]) -> list[Row]:
    """Return the rows without ignored columns, for finding a type; a type that is named reads no less."""
    if not ignored:
        return list(rows)
    return [{name: value for name, value in row.items() if name not in ignored} for row in rows]


def check_ignored(
    settings: "RowOptions",
    converters: Sequence[Converter],
    resolved: Sequence[TypeOptions],
    samples: Sequence[Sequence[Row]],
) -> None:
    """Raise OptionError where --ignore names a column that no row has, or that is kept or read."""
    seen = dict.fromkeys(name for sample in samples for row in sample for name in row)
    for name in settings.ignore:
        if seen and name not in seen:
            near = near_match(name, seen)
            hint = f"did you mean {near!r}?" if near else f"the columns are {', '.join(seen)}"
            raise OptionError(f"--ignore {name}: no row has that column; {hint}")
        if name in settings.keep:
            raise OptionError(f"--ignore {name}: --keep names the same column; give one of them")
        for converter, options in zip(converters, resolved, strict=True):
            paths = {p: options.mapping.get(p, converter.path(p)) for p in converter.columns}
            if any(path.partition(".")[0] == name for path in paths.values()):
                raise OptionError(
                    f"--ignore {name}: type {converter.name} reads that column; choose a type that "
                    "does not, or leave --ignore out"
                )
