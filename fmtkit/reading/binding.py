"""Binding: the parameters of a converter are matched to the columns of a source.

The bound signature is the read schema. A kind that takes several shapes (text or messages) is bound to
the one that the first block shows; rows of a different legal shape are read one by one, and not rejected.
"""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import field, replace
from functools import cached_property
from typing import Any, Literal

import polars as pl

from fmtkit.columns import ABSENT, filled_keys, image_values
from fmtkit.columns.image_values import RowImages
from fmtkit.columns.kinds import (
    ConversationKind,
    Kind,
    ListKind,
    RecordKind,
    RowKind,
    TextKind,
    ToolsKind,
    with_images,
)
from fmtkit.columns.problems import Column
from fmtkit.columns.read_spec import ReadSpec, spec_of
from fmtkit.columns.strict_kinds import absent, contents, unwrapped, value_of
from fmtkit.columns.typed_kinds import dtype_of, parameter, shape_of
from fmtkit.core.codes import PRECEDENCE
from fmtkit.core.data_classes import dataclass
from fmtkit.core.pickling import PickledByFields
from fmtkit.core.tables import Table
from fmtkit.formats.registry import Converter
from fmtkit.reading import row_images
from fmtkit.reading.bound_column import (
    MEDIA,
    BoundColumn,
    Row,
    column_faults,
    is_media,
    kept_faults,
    top_of,
)
from fmtkit.reading.lost_turns import CarriedKind
from fmtkit.reading.table_program import Program
from fmtkit.rendering.content_parts import Cuts, cuts_of
from fmtkit.sources.marks import Fault, fault_of_names, faults_anywhere


@dataclass(frozen=True)
class Binding(PickledByFields):
    """A converter bound to a source: which columns are read, how, and what makes a row bad."""

    converter: Converter
    columns: tuple[BoundColumn, ...]
    options: Mapping[str, Any] = field(default_factory=dict)
    kept: tuple[BoundColumn, ...] = ()
    watched: tuple[BoundColumn, ...] = ()
    """Columns that no output uses but that carry turns (`fmtkit.reading.lost_turns`)."""
    carried: Mapping[str, CarriedKind] = field(default_factory=dict)
    """The same for columns that are kept implicitly, by name."""
    images: tuple[str, ...] | None = None
    """Columns with the images of a row, of which one counts; None where rows may not have images."""

    @property
    def every(self) -> tuple[BoundColumn, ...]:
        """Return the bound columns, the kept and the watched ones."""
        return (*self.columns, *self.kept, *self.watched)

    @cached_property
    def schema(self) -> dict[str, pl.DataType]:
        """Return the dtypes of the frame that the converter sees."""
        return {c.name: dtype_of(c.kind) for c in self.every}

    @cached_property
    def spec(self) -> ReadSpec:
        """Return the ReadSpec by which JSON lines become the frame that the converter sees."""
        bound = {column.name for column in self.columns}
        groups = [tuple(name for name in group if name in bound) for group in self.converter.any_of]
        columns = [column.read_from for column in (*self.columns, *self.kept)]
        watched = [column.read_from for column in self.watched]
        return spec_of(columns, watched, groups, sorted({*MEDIA, *(self.images or ())}))

    def arguments(self) -> dict[str, Any]:
        """Return the converter's arguments over that frame; a column that the source lacks is ABSENT."""
        out: dict[str, Any] = {}
        for column in self.columns:
            out[column.name] = _of_each(
                column,
                parameter(column.label, column.kind, required=column.required, bound=column.name),
            )
        for name in self.converter.takes:
            out.setdefault(name, ABSENT)
        return out | dict(self.options)

    @cached_property
    def made(self) -> Table:
        """Return what the converter makes of these arguments: expressions, the same for every block."""
        return self.converter.make(self.arguments())

    @cached_property
    def program(self) -> Program:
        """Return what is computed of a block for it."""
        kept = [column.name for column in self.kept]
        return Program.of(self.made, kept, text=self.converter.text)

    def is_like(self, other: "Binding") -> bool:
        """Return whether both convert in the same way; they may read different shapes."""
        if self is other:
            return True
        return (
            self.converter is other.converter
            and self.options == other.options
            and self.carried == other.carried
            and self.images == other.images
            and [column.read_from for column in self.every]
            == [column.read_from for column in other.every]
        )

    def judge(self, row: Row) -> list[Fault]:
        """Return everything that is wrong with the shape of a row, the most specific code first."""
        found: list[Fault] = []
        for column in self.columns:
            found += column_faults(column, row)
        for column in self.kept:
            found += kept_faults(column, row)
        found += _group_faults(self, row)
        found += [
            Fault(
                "unsupported",
                name,
                f"the row has {name}; {row_images.refusal(name, self.converter)}",
            )
            for name in row
            if name not in self._shown and is_media(name, row[name])
        ]
        found += row_images.faults(self.images or (), row)
        found += _ignored_faults(row, self._used)
        return sorted(found, key=lambda fault: PRECEDENCE[fault.code])

    def images_of(self, row: Row) -> RowImages | None:
        """Return the images of a sound row; None where it has none, or may have none."""
        return None if self.images is None else row_images.of_row(self.images, self.columns, row)

    @cached_property
    def _shown(self) -> tuple[str, ...]:
        """Return the columns of media that are images of the row."""
        return () if self.images is None else (*self.images, image_values.REJECTED)

    @cached_property
    def _used(self) -> frozenset[str]:
        """Return the columns of the row that are used as a whole."""
        used = (column.path for column in (*self.columns, *self.kept))
        whole = (path[0] for path in used if len(path) == 1)
        return frozenset((*whole, *self._shown))

    def unwrapped(self, row: Row) -> Row:
        """Return a row with what the JSON text in its columns of lists and objects holds, parsed once."""
        # A row with a key twice is marked as such by its type; its columns are parsed where they are read.
        for column in self._wrapping if type(row) is dict else ():
            held = row.get(column.path[0])
            if isinstance(held, str) and (value := unwrapped(column.kind, held)) is not held:
                row = _replaced(row, column.path, value)
        return row

    @cached_property
    def _wrapping(self) -> tuple[BoundColumn, ...]:
        """Return the columns whose values may be JSON text."""
        kinds = ListKind | RecordKind | ConversationKind
        return tuple(c for c in self.columns if len(c.path) == 1 and isinstance(c.kind, kinds))

    def is_readable(self, row: Row) -> bool:
        """Return whether the columns in use have no fault other than duplicate keys."""
        found = [fault for column in self.columns for fault in column_faults(column, row)]
        found += _group_faults(self, row)
        return all(fault.code == "duplicate_key" for fault in found)

    def frame(self, rows: Sequence[Row], numbers: Sequence[int]) -> pl.DataFrame:
        """Make the frame that the converter sees from valid rows."""
        data: dict[str, pl.Series] = {}
        for column in self.every:
            kind, becomes = column.kind, value_of.dispatch(type(column.kind))
            values = [column.lookup(row) for row in rows]
            data[column.name] = pl.Series(
                column.name,
                [None if value is None else becomes(kind, value) for value in values],
                dtype=self.schema[column.name],
                strict=True,
            )
        data["__row"] = pl.Series("__row", list(numbers), dtype=pl.Int64)
        return pl.DataFrame(data)

    def without_filled_keys(self, row: Row) -> Row:
        """Return a sound row of a table without the keys that only its other rows have.

        The row itself is returned where there are none.
        """
        tools = [column for column in self.every if isinstance(column.kind, ToolsKind)]
        found = [(column, filled_keys.without_filled_tools(column.lookup(row))) for column in tools]
        defined = filled_keys.arguments_of(
            tool for _, value in found for tool in filled_keys.listed(value)
        )
        found += [
            (column, _without_filled_calls(column.kind, column.lookup(row), defined))
            for column in self.every
            if column not in tools
        ]
        for column, value in found:
            if value != column.lookup(row):
                row = _replaced(row, column.path, value)
        return row

    def cuts(self, row: Row) -> Cuts:
        """Return the parts of those contents of a sound row that came in parts."""
        values = [(column.kind, column.lookup(row)) for column in self.columns]
        return cuts_of(
            content
            for kind, value in values
            if value is not None
            for content in contents(kind, value)
        )


def _of_each(column: BoundColumn, value: Column) -> Column:
    """Return the field of each object of a list where a column is one, else the value as it is."""
    if not column.field:
        return value
    return value.with_value(value.value.list.eval(pl.element().struct.field(column.field)))


def _without_filled_calls(kind: Kind, value: Any, defined: filled_keys.Names) -> Any:
    if isinstance(kind, ListKind) and isinstance(value, list):
        return [_without_filled_calls(kind.item, item, defined) for item in value]
    if isinstance(kind, ConversationKind) and kind.wide:
        return filled_keys.without_filled_calls(value, defined)
    return value


def _replaced(row: Row, path: Sequence[str], value: Any) -> Row:
    """Return a copy of a row with another value at a path."""
    name, *rest = path
    return {**row, name: _replaced(row[name], rest, value) if rest else value}


def _group_faults(binding: Binding, row: Row) -> list[Fault]:
    found = []
    labels = {column.name: column for column in binding.columns}
    for group in binding.converter.any_of:
        columns = [labels[name] for name in group if name in labels]
        if any(column.lookup(row) is not None for column in columns):
            continue
        names = [column.label for column in columns]
        there = [name for name in names if name in row]
        if there:
            found.append(Fault("null_field", there[0], f"{there[0]} is null"))
        else:
            missing = absent(names[-1], names[-1], row)
            found.append(
                replace(missing, message=f"{missing.message} (none of {', '.join(names)})")
            )
    return found


def _ignored_faults(row: Row, used: frozenset[str]) -> list[Fault]:
    """Return the faults of columns that are not in use: half a surrogate pair, or a number too large."""
    found = []
    for name, value in row.items():
        if name not in used:
            found += faults_anywhere(value, name)
    of_names = fault_of_names(row)
    return found if of_names is None else [*found, of_names]


_NOWHERE = "\0ignored: "
"""Prefix of the name under which an ignored column is looked for: no source has it."""


def bind(
    converter: Converter,
    sample: Sequence[Row],
    *,
    mapping: Mapping[str, str],
    options: Mapping[str, Any],
    kinds: Mapping[str, Kind] = {},
    kept: Mapping[str, Kind] = {},
    watched: Mapping[str, CarriedKind] = {},
    ignored: Collection[str] = (),
    images: tuple[str, ...] | Literal["sample"] | None = "sample",
) -> Binding:
    """Bind a converter to the columns that the sample's rows show.

    `mapping` is parameter -> dotted path, `kinds` replaces the kind of a parameter, `kept` names the
    columns that are carried through, with the kind that holds all their values, `watched` those that
    are only compared with what is read, `ignored` optional ones that are taken for absent, `images` those
    with the images of rows, which the sample shows where nothing is said; None says that there are none.
    """
    columns = []
    for name, kind in converter.takes.items():
        whole = isinstance(kind, RowKind)
        path = mapping.get(name, converter.path(name))
        if not whole and top_of(path) in ignored:
            path = _NOWHERE + name
        held, required = kinds.get(name, kind), name in converter.required
        bound = (
            BoundColumn(name, (), held, required, None)
            if whole
            else BoundColumn.at(name, path, held, required=required)
        )
        columns.append(bound.shaped(_shape(bound, sample)))
    if images == "sample":
        images = row_images.columns_of(converter, sample, mapping, ignored)
    if images is not None:
        columns = [replace(column, kind=with_images(column.kind)) for column in columns]
    carried = []
    # By number: a source's column may have any name, NUL in it too, which Arrow does not take from polars.
    for number, (name, kind) in enumerate(kept.items()):
        bound = BoundColumn(name, (name,), kind, required=False, shape=None)
        # Media are read only by the strict parser, which reports that they are unsupported.
        shape = None if name in MEDIA else _shape(bound, sample)
        carried.append(replace(bound, name=f"__keep_{number}", shape=shape))
    made = Binding(converter, tuple(columns), options, tuple(carried), images=images)
    return watching(made, watched)


def watching(binding: Binding, watched: Mapping[str, CarriedKind]) -> Binding:
    """Return the binding with these columns to compare with what is read."""
    kept = {column.label for column in binding.kept}
    columns = tuple(
        BoundColumn(f"__watch_{number}", (name,), kind, required=False, shape="plain")
        for number, (name, kind) in enumerate(watched.items())
        if name not in kept
    )
    carried = {name: kind for name, kind in watched.items() if name in kept}
    return replace(binding, watched=columns, carried=carried)


def _shape(column: BoundColumn, sample: Sequence[Row]) -> str | None:
    values = [value for row in sample if (value := column.lookup(row)) is not None]
    if not values:
        # A column that starts late is still read, unless only the strict parser could.
        simple = isinstance(column.kind, TextKind)
        return "plain" if simple else None
    if column.kind.open:
        return None
    shapes = Counter(shape for value in values if (shape := shape_of(column.kind, value)))
    if not shapes:
        return "plain" if isinstance(column.kind, TextKind) else None
    return shapes.most_common(1)[0][0]
