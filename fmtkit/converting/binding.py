"""Binding: a converter's parameters meet the columns that a source has.

The bound signature is the read schema. A kind that takes several shapes (text or messages) is bound to
the one that the first block shows; rows of another legal shape are read one by one, never rejected.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import polars as pl
import pyarrow as pa
from polars import Expr

from fmtkit.codes import PRECEDENCE
from fmtkit.columns import ABSENT, parameter
from fmtkit.kinds import Kind, RowKind, TextKind, absent
from fmtkit.message_kinds import DialogKind
from fmtkit.registry import Converter
from fmtkit.sources.strict import (
    Duplicated,
    Fault,
    NonFinite,
    NotText,
    Overflow,
    duplicate,
    faults_anywhere,
    is_unicode,
    marks,
)
from fmtkit.tables import Table

Row = Mapping[str, Any]
MEDIA = frozenset({"image", "images", "audio", "audios", "video", "videos"})


@dataclass(frozen=True)
class BoundColumn:
    """A parameter, where its column lies, and the shape in which the fast parser reads it."""

    name: str
    path: tuple[str, ...]
    """Empty for the whole row."""
    kind: Kind
    required: bool
    shape: str | None
    """None where the file's first block has no such column, or only rows of mixed shapes."""

    @property
    def label(self) -> str:
        """Return the column's name as the user knows it."""
        return ".".join(self.path)

    @property
    def top(self) -> str | None:
        """Return the column of the source that it lies in; None for the whole row."""
        return self.path[0] if self.path else None

    def lookup(self, row: Row) -> Any:
        """Return the value in a row; None if it is null or not there."""
        value: Any = row
        for key in self.path:
            if not isinstance(value, Mapping):
                return None
            value = value.get(key)
        return value

    def parsed(self) -> Expr:
        """Return the expression over what the fast parser read."""
        expression = pl.col(self.path[0])
        for key in self.path[1:]:
            expression = expression.struct.field(key)
        return expression


@dataclass(frozen=True)
class Binding:
    """A converter bound to a source: which columns to read, how, and what makes a row bad."""

    converter: Converter
    columns: tuple[BoundColumn, ...]
    options: Mapping[str, Any] = field(default_factory=dict)
    kept: tuple[BoundColumn, ...] = ()

    @property
    def every(self) -> tuple[BoundColumn, ...]:
        """Return the bound columns and the kept ones."""
        return (*self.columns, *self.kept)

    def schema(self) -> dict[str, pl.DataType]:
        """Return the dtypes of the frame that the converter sees."""
        return {c.name: c.kind.output() for c in self.every}

    def arguments(self) -> dict[str, Any]:
        """Return the converter's arguments over that frame; a column nobody has is ABSENT."""
        out: dict[str, Any] = {}
        for column in self.columns:
            out[column.name] = parameter(
                column.label, column.kind, required=column.required, value=pl.col(column.name)
            )
        for name in self.converter.takes:
            out.setdefault(name, ABSENT)
        return out | dict(self.options)

    @cached_property
    def made(self) -> Table:
        """Return what the converter makes of these arguments: expressions, the same for every block."""
        return self.converter.function(**self.arguments())

    def judge(self, row: Row) -> list[Fault]:
        """Return everything that is wrong with the shape of a row, the most telling code first."""
        found: list[Fault] = []
        for column in self.columns:
            found += _column_faults(column, row)
        for column in self.kept:
            found += _kept_faults(column, row)
        found += _group_faults(self, row)
        found += [
            Fault("unsupported", name, f"the row has {name}; fmtkit converts text only")
            for name in row
            if name in MEDIA and _is_something(row[name])
        ]
        found += _ignored_faults(row, {column.path for column in self.every})
        return sorted(found, key=lambda fault: PRECEDENCE[fault.code])

    def is_readable(self, row: Row) -> bool:
        """Tell whether nothing is wrong with the used columns but that a key stands twice."""
        found = [fault for column in self.columns for fault in _column_faults(column, row)]
        found += _group_faults(self, row)
        return all(fault.code == "duplicate_key" for fault in found)

    def frame(self, rows: Sequence[Row], numbers: Sequence[int]) -> pl.DataFrame:
        """Make the frame that the converter sees from sound rows."""
        data: dict[str, pl.Series] = {}
        for column in self.every:
            values = [column.lookup(row) for row in rows]
            data[column.name] = pl.Series(
                column.name,
                [None if value is None else column.kind.value(value) for value in values],
                dtype=column.kind.output(),
                strict=True,
            )
        data["__row"] = pl.Series("__row", list(numbers), dtype=pl.Int64)
        return pl.DataFrame(data)

    def is_plain(self, row: Row) -> bool:
        """Tell whether the fast parser reads this sound row just as `frame` would."""
        for column in self.every:
            value = column.lookup(row)
            if value is not None and (
                column.shape is None or column.kind.shape_of(value) != column.shape
            ):
                return False
        return True


def _is_something(media: Any) -> bool:
    """Tell whether a media column holds anything: [] and [null] do not."""
    return any(item is not None for item in media) if isinstance(media, list) else bool(media)


def _column_faults(column: BoundColumn, row: Row) -> list[Fault]:
    holder: Any = row
    found: list[Fault] = []
    for i, key in enumerate(column.path):
        label = ".".join(column.path[: i + 1])
        if not isinstance(holder, Mapping):
            return [*found, Fault("type_error", label, f"{'.'.join(column.path[:i])} is no object")]
        if isinstance(holder, Duplicated) and key in holder.twice:
            found.append(duplicate(key, label))
        if holder.get(key) is None:
            return [*found, absent(label, key, holder)] if column.required else found
        holder = holder[key]
    return found + column.kind.faults(holder, column.label)


def _kept_faults(column: BoundColumn, row: Row) -> list[Fault]:
    """Return what is wrong with a kept value.

    Its kind was chosen to hold all of them, so that only a source that changes meanwhile can have
    others; NaN and what is like it had no say in the choice.
    """
    name = column.path[0]
    value = row.get(name)
    found = marks(value, name)
    if isinstance(row, Duplicated) and name in row.twice:
        found.append(duplicate(name, name))
    if not found and value is not None:
        return column.kind.faults(value, name)
    return found


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


def _ignored_faults(row: Row, used: set[tuple[str, ...]]) -> list[Fault]:
    """Return what is wrong where nobody looks: all that the fast parser refuses there too."""
    found = []
    for name, value in row.items():
        if (name,) not in used:
            found += faults_anywhere(value, name)
    # Keys of the row itself; those within a value are marks of the value.
    if not all(map(is_unicode, row)):
        found.append(Fault("invalid_unicode", None, "a key holds half a surrogate pair"))
    return found


def bind(
    converter: Converter,
    sample: Sequence[Row],
    *,
    mapping: Mapping[str, str],
    options: Mapping[str, Any],
    kinds: Mapping[str, Kind] = {},
    kept: Mapping[str, Kind] = {},
) -> Binding:
    """Bind a converter to the columns that the sample's rows show.

    `mapping` is parameter -> dotted path, `kinds` replaces the kind of a parameter, `kept` names the
    columns that are carried through, with the kind that holds all their values.
    """
    columns = []
    for name, kind in converter.takes.items():
        whole = isinstance(kind, RowKind)
        path = () if whole else tuple(mapping.get(name, converter.path(name)).split("."))
        bound = BoundColumn(name, path, kinds.get(name, kind), name in converter.required, None)
        columns.append(replace(bound, shape=_shape(bound, sample)))
    carried = []
    for name, kind in kept.items():
        bound = BoundColumn(name, (name,), kind, required=False, shape=None)
        # Media are read by the strict parser alone, which says that they are unsupported.
        shape = None if name in MEDIA else _shape(bound, sample)
        carried.append(replace(bound, name=f"__keep_{name}", shape=shape))
    return Binding(converter, tuple(columns), options, tuple(carried))


def _shape(column: BoundColumn, sample: Sequence[Row]) -> str | None:
    values = [value for row in sample if (value := column.lookup(row)) is not None]
    if not values:
        # A column that starts late is still read, unless only the strict parser could.
        simple = isinstance(column.kind, TextKind)
        return "plain" if simple else None
    if column.kind.open:
        return None
    shapes = Counter(shape for value in values if (shape := column.kind.shape_of(value)))
    if not shapes:
        return "plain" if isinstance(column.kind, TextKind) else None
    return shapes.most_common(1)[0][0]


@dataclass
class ReadPlan:
    """How the fast parser reads a source; `extra` grows as ignored columns are met.

    mode `ignore`: flat columns only, unknown keys are skipped. `error`: an unknown key is a suspicion,
    since a duplicate key or a number may hide in it. `strict`: only the strict parser can read it.
    """

    binding: Binding
    mode: str
    extra: dict[str, pa.DataType | None]
    seen: tuple[str, ...] = ()
    """The columns of the first block."""
    is_closed: bool = True
    """No unknown key was met: nothing nests deeper than the schema, or pyarrow stops at once."""
    last_was_clean: bool = True
    """The block that was parsed last, by whichever worker, had no suspicious unit."""

    @classmethod
    def of(cls, binding: Binding, sample: Iterable[Row]) -> "ReadPlan":
        """Plan the reading of a source from the rows of its first block."""
        extra: dict[str, pa.DataType | None] = {}
        for row in sample:
            learn(extra, row)
        plan = cls(binding, "error", extra, tuple(extra))
        columns = binding.every
        if any(
            column.kind.open and (not column.path or column.path[0] in extra) for column in columns
        ):
            plan.mode = "strict"
        elif all(
            len(column.path) == 1
            and not column.kind.nested
            and not column.kind.open
            and column.shape
            for column in columns
        ):
            plan.mode = "ignore"
            plan.is_closed = set(extra) <= {column.path[0] for column in columns}
        return plan

    @property
    def ignored(self) -> tuple[str, ...]:
        """Return the columns of the first block that the type does not use."""
        if self.binding.converter.takes_rows:
            return ()
        used = {column.top for column in self.binding.every}
        return tuple(name for name in self.seen if name not in used)

    @property
    def mixed(self) -> list[str]:
        """Return the columns that nobody uses and no type holds: they are cut out of the rows."""
        if self.mode != "error":
            return []
        others = MEDIA | {column.top for column in self.binding.every}
        return [
            name for name, dtype in dict(self.extra).items() if dtype is None and name not in others
        ]

    def schema(self) -> pa.Schema | None:
        """Return the explicit schema of the fast parser; None where it cannot read this source."""
        if self.mode == "strict":
            return None
        types: dict[str, pa.DataType] = {}
        if self.mode == "error":
            # A copy: other workers learn meanwhile.
            mixed = self.mixed
            for name, dtype in dict(self.extra).items():
                if name not in mixed:
                    types[name] = pa.null() if dtype is None else dtype
        for name in MEDIA:
            # Read as null, so that a value under such a name stops the fast parser: [] is no value.
            seen = types.get(name, self.extra.get(name))
            is_list = seen is not None and pa.types.is_list(seen)
            types[name] = pa.list_(pa.null()) if is_list else pa.null()
        for column in self.binding.every:
            if column.shape is None:
                types.pop(column.path[0], None)
                continue
            types[column.path[0]] = _nest(column, types.get(column.path[0]))
        return pa.schema(list(types.items()))

    def select(self, parsed: pl.DataFrame, numbers: pl.Series) -> pl.DataFrame:
        """Turn what the fast parser read into the frame that the converter sees."""
        expressions = []
        for column in self.binding.every:
            if column.shape is None:
                expressions.append(pl.lit(None, dtype=column.kind.output()).alias(column.name))
            else:
                read = column.kind.read(column.parsed(), column.shape)
                expressions.append(read.alias(column.name))
        frame = parsed.select(expressions) if expressions else pl.DataFrame()
        if frame.height != len(numbers):
            frame = parsed.with_columns(expressions).select(c.name for c in self.binding.every)
        return frame.with_columns(numbers.alias("__row"))


def _nest(column: BoundColumn, known: pa.DataType | None) -> pa.DataType:
    def within(path: tuple[str, ...], dtype: pa.DataType | None) -> pa.DataType:
        if not path:
            assert column.shape is not None
            return column.kind.read_type(column.shape, dtype)
        fields = {}
        if dtype is not None and pa.types.is_struct(dtype):
            fields = {dtype.field(i).name: dtype.field(i).type for i in range(dtype.num_fields)}
        fields[path[0]] = within(path[1:], fields.get(path[0]))
        return pa.struct(list(fields.items()))

    return within(column.path[1:], known)


def learn(extra: dict[str, pa.DataType | None], row: Row) -> bool:
    """Add what a row shows to the types of the columns; tell whether something was new.

    None is the type of a column whose values no single Arrow type holds.
    """
    grew = False
    for name, value in row.items():
        if (name in extra and extra[name] is None) or not is_unicode(name):
            continue
        try:
            seen = _type_of(value)
            merged = _merge(extra[name], seen) if name in extra else seen
        except _MixedError:
            merged = None
        if name not in extra or merged != extra[name]:
            extra[name] = merged
            grew = True
    return grew


class _MixedError(ValueError):
    """Values that no single Arrow type holds."""


def _type_of(value: Any) -> pa.DataType:
    if value is None:
        return pa.null()
    if isinstance(value, bool):
        return pa.bool_()
    if isinstance(value, str | NotText):
        return pa.string()
    if isinstance(value, int | float | NonFinite | Overflow):
        return pa.float64()
    if isinstance(value, list):
        inner = pa.null()
        for item in value:
            inner = _merge(inner, _type_of(item))
        return pa.list_(inner)
    return pa.struct([(key, _type_of(item)) for key, item in value.items() if is_unicode(key)])


def _merge(one: pa.DataType | None, other: pa.DataType) -> pa.DataType:
    if one is None:
        raise _MixedError
    if one == other or pa.types.is_null(other):
        return one
    if pa.types.is_null(one):
        return other
    if pa.types.is_list(one) and pa.types.is_list(other):
        return pa.list_(_merge(one.value_type, other.value_type))
    if pa.types.is_struct(one) and pa.types.is_struct(other):
        fields = {one.field(i).name: one.field(i).type for i in range(one.num_fields)}
        for i in range(other.num_fields):
            entry = other.field(i)
            fields[entry.name] = (
                _merge(fields[entry.name], entry.type) if entry.name in fields else entry.type
            )
        return pa.struct(list(fields.items()))
    raise _MixedError


def configure(kind: Kind, options: Mapping[str, Any]) -> Kind:
    """Give a dialog kind the source's names of role and content, and of the speakers."""
    if not isinstance(kind, DialogKind):
        return kind
    changes = {key: options[key] for key in ("role", "content") if key in options}
    if "roles" in options:
        changes["roles"] = {**kind.roles, **options["roles"]}
    return replace(kind, **changes) if changes else kind
