"""Keeping: source columns that are carried through unchanged, each in the one type that holds it.

A first pass finds each kept column's JSON kind over the whole source: all text, all bool, all int64,
floats where they are exact; anything else is kept as canonical JSON text.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import field

import pyarrow as pa

from fmtkit.columns.kinds import BoolKind, IntegerKind, Kind, NumberKind, OpenKind, TextKind
from fmtkit.core.data_classes import dataclass
from fmtkit.core.errors import OptionError, near_match
from fmtkit.core.tables import carried
from fmtkit.formats.registry import Converter
from fmtkit.formats.type_options import TypeOptions
from fmtkit.reading.column_kinds import kinds_of_columns
from fmtkit.sources.blocks import Readable
from fmtkit.work.engines import Engine

MOST_KEPT = 1000
"""Columns that are kept without being named: each row holds all of them."""
JSON_FIELD = {b"fmtkit:json": b"1"}
"""Metadata of a field whose text is canonical JSON."""


@dataclass(frozen=True)
class Kept:
    """The kept columns with the kind that holds all their values, and the Arrow fields of them as carried."""

    kinds: Mapping[str, Kind] = field(default_factory=dict)
    fields: tuple[pa.Field, ...] = ()


_ARROW = {
    TextKind: pa.string(),
    BoolKind: pa.bool_(),
    IntegerKind: pa.int64(),
    NumberKind: pa.float64(),
}


def find_kept(
    sources: Sequence[Readable],
    converters: Sequence[Converter],
    resolved: Sequence[TypeOptions],
    keep: tuple[str, ...],
    reserved: Collection[str],
    engine: Engine | None = None,
    ignored: Collection[str] = (),
) -> Kept:
    """Find the columns to keep and their kinds; reads the sources once if there are any.

    `reserved` are the columns that are written besides, `ignored` those that are not among all.
    Raises OptionError for a column that no row has, or one that the table makes itself.
    """
    wanted = keep or (("all",) if any(c.keeps for c in converters) else ())
    if not wanted:
        return Kept()
    seen = kinds_of_columns(sources, engine)
    if not seen:
        # There are no rows, or --where leaves all out: the run says so.
        return Kept()
    made = {name for c in converters for name in c.table_columns()}
    # What is called `text` or `tools` in a table means that to whatever reads it.
    made |= {*reserved, "text", "tools"}
    used = {
        # If only a field of a column is used, the column is kept too, unless the converter takes whole rows.
        path.partition(".")[0] if c.takes_rows else path
        for c, options in zip(converters, resolved, strict=True)
        for path in (options.mapping.get(p, c.path(p)) for p in c.columns)
    }
    if "all" in wanted:
        left = made | used | {*ignored}
        names = [name for name in seen if name not in left]
        if len(names) > MOST_KEPT:
            raise OptionError(
                f"--keep all: the rows have {len(names)} columns besides those of the type, and each "
                f"row of the table would hold all of them (at most {MOST_KEPT}); name those to keep"
            )
    else:
        names = _named(wanted, seen, made)
    kinds = {name: kind_for(seen[name]) for name in names}
    return Kept(kinds, tuple(_field(name, kind) for name, kind in kinds.items()))


def _named(wanted: Sequence[str], seen: Mapping[str, set[str]], made: set[str]) -> list[str]:
    for name in wanted:
        if name not in seen:
            near = near_match(name, seen)
            hint = f"; did you mean {near!r}?" if near else f"; the columns are {', '.join(seen)}"
            raise OptionError(f"--keep {name}: no row has that column{hint}")
        if name in made:
            raise OptionError(
                f"--keep {name}: the table has a column of that name; rename it in the source"
            )
    return list(dict.fromkeys(wanted))


def kind_for(seen: set[str]) -> Kind:
    """Return the kind that holds values of all these kinds."""
    kinds = seen - {"null", "refused"}
    if kinds == {"text"} or not kinds:
        return TextKind()
    if kinds == {"bool"}:
        return BoolKind()
    if kinds <= {"integer", "long integer"}:
        return IntegerKind()
    return NumberKind() if kinds <= {"integer", "float"} else OpenKind()


def _field(name: str, kind: Kind) -> pa.Field:
    if isinstance(kind, OpenKind):
        return pa.field(carried(name), pa.string(), metadata=JSON_FIELD)
    return pa.field(carried(name), _ARROW[type(kind)])
