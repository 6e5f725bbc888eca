"""Filtering (`--where`): the rows of a source that meet a condition on its columns; the others are not read.

The columns are those of the source. A value has the type that it has in its row: text, a whole number, a
number, true or false, a list of these; of JSON lines an object is its JSON text. So whether a row is kept
depends on that row alone, also where a column holds a number in one row and a text in the next.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import field, replace
from functools import cached_property, singledispatch
from itertools import islice
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa

from fmtkit.columns.kinds import ListKind, OpenKind
from fmtkit.columns.read_spec import ReadSpec, spec_of
from fmtkit.core import buffers
from fmtkit.core.data_classes import dataclass
from fmtkit.core.errors import near_match
from fmtkit.core.pickling import PickledByFields
from fmtkit.reading import clean_lines
from fmtkit.reading.column_kinds import kinds_of_block, kinds_of_columns
from fmtkit.reading.where_expression import UNKNOWN, Condition, Path, Types, Unfit
from fmtkit.sources.blocks import ArrowRows, Block, CellRows, Records, Rows
from fmtkit.sources.canonical_json import canonical
from fmtkit.sources.filtered import Taken
from fmtkit.sources.marks import Duplicated, Fault, duplicate, faults
from fmtkit.sources.source import Source
from fmtkit.sources.strict import parse
from fmtkit.work.tasks import scan_blocks

_TRIED_ROWS = 200
"""Rows at the start of a source by which an expression is tried."""
_GREATEST = 2**63
_LISTED = 20
"""Columns that a message lists."""
_FOUND = "\0found"
"""In place of a key that was looked for."""


def keep_where(sources: Sequence[Source], where: str | None) -> list[Source]:
    """Return sources of which only the rows are read that meet a condition, all without one.

    Reads the first rows of each source; all rows, where these lack a column that the condition names.

    Raises:
        OptionError: if the expression is none, looks at more than one row, names a column that no row
            has, or fits none of the first rows.
        SourceError: if a source cannot be read.
    """
    if where is None:
        return list(sources)
    made = Where(Condition(where))
    _check_columns(made, sources)
    _check_values(made, sources)
    return [replace(source, row_filter=made) for source in sources]


def _first_blocks(sources: Iterable[Source]) -> Iterator[tuple[Source, Block]]:
    """Read the start of each source when it is asked for: there may be many."""
    for source in sources:
        if (block := source.first_block()) is not None:
            yield source, block


def _check_columns(where: "Where", sources: Sequence[Source]) -> None:
    """Raise OptionError where the condition names what no row has."""
    paths = where.condition.paths
    missing, names = {path[0] for path in paths}, dict[str, Any]()
    for _, block in _first_blocks(sources):
        names |= kinds_of_block(block)
        missing -= {*names}
        if not missing:
            break
    if missing and names:
        # A column of JSON rows may begin anywhere.
        names |= kinds_of_columns([one for one in sources if one.schema is None])
        for path in paths:
            _refuse_missing(where, path[:1], names, sources)
    for path in paths:
        if len(path) > 1 and path[0] in names:
            _check_keys(where, path, sources)


def _check_keys(where: "Where", path: Path, sources: Sequence[Source]) -> None:
    """Raise OptionError where no row has a value at a path inside of a column."""
    find = _Keys(path)
    keys = _first_and_all(find(block) for _, block in _first_blocks(sources))
    if _FOUND not in keys:
        later: dict[str, None] = scan_blocks(sources, None, find, _first_and_all)
        keys |= later
    if _FOUND not in keys:
        _refuse_missing(where, path, keys, sources)


def _refuse_missing(
    where: "Where", path: Path, known: Mapping[str, Any], sources: Sequence[Source]
) -> None:
    """Raise OptionError for a path whose last key is not among the known ones."""
    if path[-1] in known:
        return
    near = near_match(path[-1], known)
    within = ".".join(path[:-1])
    what = f"key {path[-1]} in column {within}" if within else f"column {path[-1]}"
    names = [*islice(known, _LISTED), *["..."] * (len(known) > _LISTED)]
    listed = f"the {'keys' if within else 'columns'} are {', '.join(names)}" if known else ""
    hint = f"did you mean {near}?" if near else listed or f"no row has an object in {within}"
    more = f" and {len(sources) - 1} more" if sources[1:] else ""
    where.condition.refuse(f"no {what} in {sources[0].name}{more}; {hint}")


def _check_values(where: "Where", sources: Iterable[Source]) -> None:
    """Raise OptionError where the condition can be tested on none of the first rows."""
    first: tuple[str, Unfit] | None = None
    for source, block in _first_blocks(sources):
        judged = where.judge(block.head(_TRIED_ROWS)[0].records())
        if judged.tested:
            return
        for unfit in judged.unfit.values():
            first = first or (source.name, unfit)
    if first is not None:
        where.condition.refuse(f"{first[0]}: {first[1].reason}")


@dataclass(frozen=True)
class _Keys:
    """Finds the keys beside the last one of a path in the rows of a block, or _FOUND where it is there."""

    path: Path

    def __call__(self, block: Block) -> dict[str, None]:
        records = block.records()
        if isinstance(records, ArrowRows):
            return self._of_type(records.batch.schema)
        found: dict[str, None] = {}
        for value, fault in records.values():
            holder = value if fault is None else None
            for key in self.path[:-1]:
                holder = holder.get(key) if isinstance(holder, Mapping) else None
            if isinstance(holder, Mapping):
                if self.path[-1] in holder:
                    return {_FOUND: None}
                found |= dict.fromkeys(holder)
        return found

    def _of_type(self, schema: pa.Schema) -> dict[str, None]:
        holder: Any = pa.struct(schema)
        for key in self.path[:-1]:
            place = holder.get_field_index(key) if pa.types.is_struct(holder) else -1
            if place < 0:
                return {}
            holder = holder.field(place).type
        names = [entry.name for entry in holder] if pa.types.is_struct(holder) else []
        return {_FOUND: None} if self.path[-1] in names else dict.fromkeys(names)


def _first_and_all(found: Iterable[dict[str, None]]) -> dict[str, None]:
    """Merge keys up to the block that has the one that is looked for."""
    keys: dict[str, None] = {}
    for one in found:
        keys |= one
        if _FOUND in one:
            break
    return keys


@dataclass
class Judged:
    """What a condition says of the records of a block."""

    mask: np.ndarray
    """Whether each record is read: it meets the condition, or cannot be parsed and is a bad row."""
    tested: int = 0
    """Records with a value in each column, for which the condition is true, false or NULL."""
    unfit: dict[int, Unfit] = field(default_factory=dict)
    """Records whose values do not fit the condition."""
    faults: dict[int, Fault] = field(default_factory=dict)
    """Records in which a column of the condition holds what is no value."""


@dataclass(frozen=True)
class Where(PickledByFields):
    """The filter of a condition."""

    condition: Condition

    def __call__(self, block: Block) -> Taken:
        """Return which records of a block to read."""
        records = block.records()
        judged = self.judge(records)
        bad = {
            record: Fault("type_error", unfit.column, f"where: {unfit.reason}")
            for record, unfit in judged.unfit.items()
        }
        bad |= judged.faults
        rejects = (
            records.reject(record, fault.code, fault.column, fault.message)
            for record, fault in sorted(bad.items())
        )
        return Taken(judged.mask, tuple(rejects))

    def judge(self, records: Rows) -> Judged:
        """Test the condition on every record."""
        cells = _cells(records, self)
        judged = Judged(np.zeros(len(records), bool), faults=cells.faults)
        judged.mask[cells.unparsed] = True
        for group in cells.groups:
            if not len(group.rows):
                continue
            meets, unfit = self.condition.test(group.columns, group.types)
            judged.mask[group.rows[meets.to_numpy()]] = True
            judged.unfit |= {int(group.rows[n]): why for n, why in unfit.items()}
            if not any(types == UNKNOWN for types in group.types):
                judged.tested += len(group.rows) - len(unfit)
        return judged

    @cached_property
    def spec(self) -> ReadSpec:
        """Return how JSON lines are read: each value as its JSON text."""
        paths = self.condition.paths
        columns = [(str(n), path, OpenKind(), False) for n, path in enumerate(paths)]
        return spec_of(columns, (), (), ())


@dataclass(frozen=True)
class Group:
    """Rows whose values have the same types, column by column."""

    rows: np.ndarray
    """The number of each among the records (int64)."""
    columns: list[pl.Series]
    types: list[Types]


@dataclass(frozen=True)
class Cells:
    """The values of a condition's columns in the records of a block."""

    groups: Iterable[Group]
    faults: dict[int, Fault] = field(default_factory=dict)
    unparsed: list[int] = field(default_factory=list)
    """Records that are no rows: the reading of the block says why."""


@singledispatch
def _cells(records: Rows, where: Where) -> Cells:
    """Return the values of a condition's columns."""
    found = _Strict(where.condition.paths)
    for record, (value, fault) in enumerate(records.values(written=True)):
        found.add(record, value, fault)
    return Cells(_groups(found.frame()), found.faults, found.unparsed)


@_cells.register
def _(records: Records, where: Where) -> Cells:
    read = clean_lines.read(records.data, where.spec)
    if read is None:
        return _cells.dispatch(object)(records, where)
    records.blank_lines = read.verdicts == clean_lines.BLANK
    verdicts = read.verdicts[~records.blank_lines]
    found = _Strict(where.condition.paths)
    for record in np.flatnonzero(verdicts == clean_lines.UNSURE).tolist():
        found.add(record, *records.value(record, written=True))
    numbers = pl.Series(_ROW, buffers.int64s(np.flatnonzero(verdicts == clean_lines.CLEAN)))
    frame = read.frame.with_columns(numbers)
    if found.rows:
        frame = pl.concat([frame, found.frame()])
    return Cells(_groups(frame), found.faults, found.unparsed)


@_cells.register
def _(records: CellRows, where: Where) -> Cells:
    """Every cell is a text, an empty one NULL."""
    columns = [
        pl.Series(
            [row.get(path[0]) if len(path) == 1 else None for row in records.rows], dtype=pl.String
        )
        for path in where.condition.paths
    ]
    return Cells([Group(np.arange(len(records)), columns, [(pl.String(),)] * len(columns))])


@_cells.register
def _(records: ArrowRows, where: Where) -> Cells:
    paths, batch = where.condition.paths, records.batch
    batch = batch.select(
        [name for name in dict.fromkeys(p[0] for p in paths) if name in batch.schema.names]
    )
    rows = np.arange(len(records))
    unparsed = _not_text(records, batch)
    if unparsed:
        rows = np.delete(rows, unparsed)
        batch = batch.take(pa.array(rows))
    names = {name: str(place) for place, name in enumerate(batch.schema.names)}
    frame = pl.from_arrow(pa.Table.from_arrays(batch.columns, names=[*names.values()]))
    assert isinstance(frame, pl.DataFrame)
    columns = [_within(frame, names, path, len(rows)) for path in paths]
    bad: dict[int, Fault] = {}
    for path, column in zip(paths, columns, strict=True):
        for place in _odd_numbers(column).tolist():
            fault = Fault(
                "json_nonfinite", ".".join(path), "NaN, Infinity or a number beyond 64 bits"
            )
            bad.setdefault(place, fault)
    sound = np.delete(np.arange(len(rows)), [*bad])
    kept = [column.gather(sound) for column in columns] if bad else columns
    # Numbers of JSON have 64 bits: arithmetic must not overflow sooner in a file of types.
    kept = [c.cast(pl.Int64) if c.dtype.is_integer() else c for c in kept]
    types = [UNKNOWN if c.null_count() == len(c) else (c.dtype,) for c in kept]
    kept = [c.cast(pl.Null) if t is UNKNOWN else c for c, t in zip(kept, types, strict=True)]
    faults_of = {int(rows[place]): fault for place, fault in bad.items()}
    return Cells([Group(rows[sound], kept, types)], faults_of, unparsed)


def _not_text(records: ArrowRows, batch: pa.Table) -> list[int]:
    """Return the records with a text that is not UTF-8, which polars must not get."""
    try:
        batch.validate(full=True)
    except pa.ArrowInvalid:
        return [n for n in range(len(records)) if records.value(n)[1] is not None]
    return []


def _within(frame: pl.DataFrame, names: Mapping[str, str], path: Path, rows: int) -> pl.Series:
    """Return the values at a path: nulls where no row has one."""
    if path[0] not in names:
        return pl.repeat(None, rows, eager=True)
    column = frame.get_column(names[path[0]])
    for key in path[1:]:
        if not isinstance(column.dtype, pl.Struct) or key not in column.struct.fields:
            return pl.repeat(None, rows, eager=True)
        column = column.struct.field(key)
    return column


def _odd_numbers(column: pl.Series) -> np.ndarray:
    """Return the rows with a number that JSON does not have."""
    if column.dtype.is_float():
        odd = ~column.is_finite()
    elif column.dtype == pl.UInt64:
        odd = column >= _GREATEST
    else:
        return np.zeros(0, np.int64)
    return np.flatnonzero(odd.fill_null(value=False).to_numpy())


class _Strict:
    """Values of rows that were parsed one by one, as JSON text."""

    def __init__(self, paths: Sequence[Path]) -> None:
        self.paths = paths
        self.rows: list[int] = []
        self.texts: list[list[str | None]] = [[] for _ in paths]
        self.faults: dict[int, Fault] = {}
        self.unparsed: list[int] = []

    def add(self, record: int, row: Any, fault: Fault | None) -> None:
        """Add a row, or the fault for which it is none."""
        if fault is not None:
            self.unparsed.append(record)
            return
        values = [_looked_up(row, path) for path in self.paths]
        found = next((value for value in values if isinstance(value, Fault)), None)
        if found is not None:
            self.faults[record] = found
            return
        self.rows.append(record)
        for texts, value in zip(self.texts, values, strict=True):
            texts.append(None if value is None else canonical(value))

    def frame(self) -> pl.DataFrame:
        """Return the texts, and the number of each row."""
        columns = [pl.Series(str(n), texts, pl.String) for n, texts in enumerate(self.texts)]
        return pl.DataFrame([*columns, pl.Series(_ROW, self.rows, pl.Int64)])


def _looked_up(row: Any, path: Path) -> Any:
    """Return the value at a path, None where there is none, or its fault."""
    value = row
    for depth, key in enumerate(path, start=1):
        if not isinstance(value, Mapping):
            return None
        if isinstance(value, Duplicated) and key in value.twice:
            return duplicate(key, ".".join(path[:depth]))
        value = value.get(key)
    return faults(value, ".".join(path)) or value


_ROW = "row"
_NULL, _TEXT, _LIST, _OBJECT, _BOOL, _INTEGER, _NUMBER = range(7)
_EMPTY, _TEXTS, _BOOLS, _INTEGERS, _NUMBERS, _VALUES = range(7, 13)
"""Lists, by what they hold."""
_OF_KIND: Mapping[int, Types] = {
    _NULL: UNKNOWN,
    _TEXT: (pl.String(),),
    _OBJECT: (pl.String(),),
    _BOOL: (pl.Boolean(),),
    _INTEGER: (pl.Int64(),),
    _NUMBER: (pl.Float64(),),
    _EMPTY: (pl.List(pl.String()), pl.List(pl.Int64()), pl.List(pl.Boolean())),
    _TEXTS: (pl.List(pl.String()),),
    _BOOLS: (pl.List(pl.Boolean()),),
    _INTEGERS: (pl.List(pl.Int64()),),
    _NUMBERS: (pl.List(pl.Float64()),),
    _VALUES: (pl.List(pl.String()),),
}
_ELEMENTS = {_TEXTS: _TEXT, _BOOLS: _BOOL, _INTEGERS: _INTEGER, _NUMBERS: _NUMBER}
_LISTS = spec_of([("value", ("value",), ListKind(OpenKind()), False)], (), (), ())


def _groups(frame: pl.DataFrame) -> Iterator[Group]:
    """Group rows by what their JSON texts hold."""
    texts = [frame.get_column(str(n)) for n in range(frame.width - 1)]
    kinds, lists = [], []
    for column in texts:
        kind = column.to_frame().select(_kind(pl.col(column.name))).to_series()
        places = (kind == _LIST).arg_true()
        items = _items(column.gather(places))
        if len(places):
            kind = kind.scatter(places, _kinds_of_lists(items))
        kinds.append(kind.alias(column.name))
        lists.append((places, items))
    rows = frame.get_column(_ROW).to_numpy()
    keys = pl.DataFrame(kinds)
    for key, group in keys.with_row_index("place").group_by(keys.columns, maintain_order=True):
        places = group.get_column("place")
        columns = [
            _typed(kind, column, own, places)
            for kind, column, own in zip(key, texts, lists, strict=True)
        ]
        types = [_OF_KIND[kind] for kind in key]
        yield Group(rows[places.to_numpy()], columns, types)


def _kind(text: pl.Expr) -> pl.Expr:
    """Return the kind of a canonical JSON text."""
    first = text.str.head(1)
    return (
        pl.when(text.is_null())
        .then(_NULL)
        .when(first == '"')
        .then(_TEXT)
        .when(first == "[")
        .then(_LIST)
        .when(first == "{")
        .then(_OBJECT)
        .when(first.is_in(["t", "f"]))
        .then(_BOOL)
        .when(text.str.contains("[.eE]"))
        .then(_NUMBER)
        .otherwise(_INTEGER)
        .cast(pl.UInt8)
    )


def _items(texts: pl.Series) -> pl.Series:
    """Return the JSON texts of the items of lists, nulls as nulls."""
    lines = "".join(f'{{"value":{text}}}\n' for text in texts).encode()
    read = clean_lines.read(lines, _LISTS)
    if read is not None and read.frame.height == len(texts):
        items = read.frame.get_column("value")
    else:
        made = [[canonical(item) for item in _list_of(text)] for text in texts]
        items = pl.Series(made, dtype=pl.List(pl.String))
    item = pl.element()
    return items.list.eval(pl.when(item != "null").then(item))


def _list_of(text: str) -> list[Any]:
    value, _ = parse(f'{{"value":{text}}}'.encode(), written=True)
    items: list[Any] = value["value"]
    return items


def _kinds_of_lists(items: pl.Series) -> pl.Series:
    kinds = items.list.eval(_kind(pl.element()))
    held = {kind: kinds.list.contains(kind) for kind in range(7)}
    is_number = held[_NUMBER] | held[_INTEGER]
    is_other = held[_LIST] | held[_OBJECT]
    frame = pl.DataFrame(
        {
            "text": held[_TEXT],
            "bool": held[_BOOL],
            "number": is_number,
            "other": is_other,
            "real": held[_NUMBER],
        }
    )
    several = pl.sum_horizontal("text", "bool", "number", "other")
    return frame.select(
        pl.when(several == 0)
        .then(_EMPTY)
        .when((several > 1) | pl.col("other"))
        .then(_VALUES)
        .when("text")
        .then(_TEXTS)
        .when("bool")
        .then(_BOOLS)
        .when("real")
        .then(_NUMBERS)
        .otherwise(_INTEGERS)
        .cast(pl.UInt8)
    ).to_series()


def _typed(
    kind: int, texts: pl.Series, lists: tuple[pl.Series, pl.Series], places: pl.Series
) -> pl.Series:
    """Return the values of one kind at some places."""
    if kind == _NULL:
        return pl.repeat(None, len(places), eager=True)
    if kind < _EMPTY:
        frame = texts.gather(places).to_frame()
        return frame.select(_value(kind, pl.col(texts.name))).to_series()
    all_places, items = lists
    chosen = items.gather(all_places.search_sorted(places))
    if kind in _ELEMENTS:
        return chosen.list.eval(_value(_ELEMENTS[kind], pl.element()))
    return chosen if kind == _VALUES else chosen.list.eval(pl.lit(None, pl.String))


def _value(kind: int, text: pl.Expr) -> pl.Expr:
    """Return the value of a JSON text of this kind."""
    if kind == _TEXT:
        return text.str.json_decode(pl.String)
    if kind == _BOOL:
        return text == "true"
    if kind == _OBJECT:
        return text
    return text.cast(pl.Int64 if kind == _INTEGER else pl.Float64)
