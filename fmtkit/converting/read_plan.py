"""The plan by which the fast parser reads a source: its mode, and the explicit schema."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from threading import Lock

import polars as pl
import pyarrow as pa

from fmtkit.converting.binding import Binding
from fmtkit.converting.bound_column import MEDIA, BoundColumn, Row
from fmtkit.converting.seen_types import MOST_KEYS, learn
from fmtkit.typed_kinds import arrow_type, dtype_of, read

_LEARNING = Lock()


@dataclass(frozen=True)
class ReadPlan:
    """How the fast parser reads a source.

    mode `ignore`: flat columns only, unknown keys are skipped. `error`: an unknown key is a suspicion,
    since a duplicate key or a number may hide in it. `strict`: only the strict parser can read it.
    """

    binding: Binding
    mode: str
    seen: Mapping[str, pa.DataType | None] = field(default_factory=dict)
    """The columns of the first block, with the types that their values show."""
    is_closed: bool = True
    """No unknown key was met there: nothing nests deeper than the schema, or pyarrow stops at once."""
    natively: bool = True
    """The kernel reads it where there is one; what else is said here is for pyarrow's parser."""

    @classmethod
    def of(cls, binding: Binding, sample: Iterable[Row]) -> "ReadPlan":
        """Plan the reading of a source from the rows of its first block."""
        extra: dict[str, pa.DataType | None] = {}
        for row in sample:
            learn(extra, row)
        columns = binding.every
        if any(
            column.kind.open and (not column.path or column.path[0] in extra) for column in columns
        ):
            return cls(binding, "strict", extra)
        if all(
            len(column.path) == 1
            and not column.kind.nested
            and not column.kind.open
            and (column.shape or column.path[0] not in extra)
            for column in columns
        ):
            is_closed = set(extra) <= {column.path[0] for column in columns}
            return cls(binding, "ignore", extra, is_closed)
        return cls(binding, "error", extra)

    @property
    def ignored(self) -> tuple[str, ...]:
        """Return the columns of the first block that the type does not use."""
        if self.binding.converter.takes_rows:
            return ()
        used = {column.top for column in (*self.binding.columns, *self.binding.kept)}
        return tuple(name for name in self.seen if name not in used)

    def select(self, parsed: pl.DataFrame, numbers: pl.Series) -> pl.DataFrame:
        """Turn what the fast parser read into the frame that the converter sees."""
        expressions = []
        absent = {name for name, dtype in parsed.schema.items() if dtype == pl.Null}
        for column in self.binding.every:
            if column in self.binding.watched and column.path[0] in absent:
                expressions.append(pl.lit([], dtype=dtype_of(column.kind)).alias(column.name))
            elif column.shape is None:
                expressions.append(pl.lit(None, dtype=dtype_of(column.kind)).alias(column.name))
            else:
                seen = read(column.kind, column.parsed(), column.shape)
                expressions.append(seen.alias(column.name))
        frame = parsed.select(expressions) if expressions else pl.DataFrame()
        if frame.height != len(numbers):
            frame = parsed.with_columns(expressions).select(c.name for c in self.binding.every)
        return frame.with_columns(numbers.alias("__row"))


class ReadState:
    """What reading a source has shown so far: it makes the next block quicker, and changes no row.

    Workers of one process share it; the plan itself stays as it is.
    """

    def __init__(self, plan: ReadPlan) -> None:
        self.plan = plan
        self.extra = dict(plan.seen)
        """The types of the columns met so far; None where no type holds a column's values."""
        self.is_closed = plan.is_closed
        self.last_was_clean = True
        """The block that was parsed last, by whichever worker, had no suspicious unit."""

    @classmethod
    def of(cls, plans: Iterable[ReadPlan]) -> "tuple[ReadState, ...]":
        """Return the state of each plan; sources that share a plan share what is learnt."""
        states: dict[int, ReadState] = {}
        return tuple(states.setdefault(id(plan), cls(plan)) for plan in plans)

    def learn(self, row: Row) -> None:
        """Add what a sound row shows, where unknown keys are a suspicion; else of watched columns.

        There no key of a nested value may be skipped: such a column stays one that stops the parser.
        """
        if self.plan.mode == "ignore":
            names = {column.path[0] for column in self.plan.binding.watched}
            row = {n: v for n, v in row.items() if n in names and not isinstance(v, list | dict)}
        if self.plan.mode != "strict":
            with _LEARNING:
                learn(self.extra, row)

    @property
    def mixed(self) -> list[str]:
        """Return the columns that nobody uses and no type holds: they are cut out of the rows."""
        if self.plan.mode != "error":
            return []
        others = MEDIA | {column.top for column in self.plan.binding.every}
        return [
            name for name, dtype in dict(self.extra).items() if dtype is None and name not in others
        ]

    def schema(self) -> pa.Schema | None:
        """Return the explicit schema of the fast parser; None where it cannot read this source."""
        if self.plan.mode == "strict" or (
            self.plan.mode == "error" and len(self.extra) > MOST_KEYS
        ):
            return None
        types: dict[str, pa.DataType] = {}
        if self.plan.mode == "error":
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
        for column in self.plan.binding.every:
            top = column.path[0]
            if column.shape is None and self.plan.mode == "ignore":
                # A column that starts late: a value there stops the fast parser.
                types[top] = pa.null()
            elif column.shape is None:
                types.pop(top, None)
            else:
                watched = column in self.plan.binding.watched
                types[top] = _nest(column, self.extra.get(top) if watched else types.get(top))
        return pa.schema(list(types.items()))


def _nest(column: BoundColumn, known: pa.DataType | None) -> pa.DataType:
    def within(path: tuple[str, ...], dtype: pa.DataType | None) -> pa.DataType:
        if not path:
            assert column.shape is not None
            return arrow_type(column.kind, column.shape, dtype)
        fields = {}
        if dtype is not None and pa.types.is_struct(dtype):
            fields = {dtype.field(i).name: dtype.field(i).type for i in range(dtype.num_fields)}
        fields[path[0]] = within(path[1:], fields.get(path[0]))
        return pa.struct(list(fields.items()))

    return within(column.path[1:], known)
