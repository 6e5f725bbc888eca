"""Kinds of typed columns: how Arrow reads a column, what polars makes of it, and which rows are wrong.

Where a source keeps to one shape (`shape_of`) its column is read as one Arrow type and becomes what the
strict parser's values would be (`strict_kinds`), so that a row means the same with both parsers. What types
cannot guarantee is checked on whole columns: `doubts` before, `parameter` after.
"""

from collections.abc import Iterator
from functools import reduce, singledispatch
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
from polars import Expr

from fmtkit.columns import blank
from fmtkit.columns.kinds import (
    INT64_END,
    ConversationKind,
    FlagKind,
    Kind,
    ListKind,
    NumberKind,
    RecordKind,
    TextKind,
    TreeKind,
)
from fmtkit.columns.message_rules import NARROW, WIDE, message_of, turn_flaws
from fmtkit.columns.problems import Column, Problem
from fmtkit.columns.strict_kinds import form_of, holds
from fmtkit.columns.turn_sources import Blank, Flawed, Messages, Null, Rule, TurnFlaw
from fmtkit.core import buffers
from fmtkit.core.data_classes import dataclass
from fmtkit.core.message_keys import ROW_PATH, SILENT

# What converters see.


@singledispatch
def dtype_of(kind: Kind) -> pl.DataType:  # noqa: ARG001
    """Return the dtype of the column that converters see."""
    return pl.String()


@dtype_of.register
def _(kind: FlagKind) -> pl.DataType:  # noqa: ARG001
    return pl.Boolean()


@dtype_of.register
def _(kind: NumberKind) -> pl.DataType:
    return pl.Int64() if kind.whole else pl.Float64()


@dtype_of.register
def _(kind: ListKind) -> pl.DataType:
    return pl.List(dtype_of(kind.item))


@dtype_of.register
def _(kind: RecordKind) -> pl.DataType:
    return pl.Struct({name: dtype_of(inner) for name, inner in kind.fields.items()})


@dtype_of.register
def _(kind: TreeKind) -> pl.DataType:
    fields = {name: dtype_of(inner) for name, inner in kind.own.fields.items()}
    return pl.List(pl.Struct(fields | {"parent": pl.Int64()}))


@dtype_of.register
def _(kind: ConversationKind) -> pl.DataType:
    return pl.List(WIDE if kind.wide else NARROW)


# The shape of a value, and the Arrow type of a column that holds nothing else.


@singledispatch
def shape_of(kind: Kind, value: Any) -> str | None:
    """Return which of the kind's shapes a sound value has; None if only row by row."""
    return "plain" if holds(kind, value) else None


@shape_of.register
def _(kind: TextKind, value: Any) -> str | None:  # noqa: ARG001
    return "plain" if isinstance(value, str) else None


@shape_of.register
def _(kind: FlagKind, value: Any) -> str | None:
    if isinstance(value, bool) or not holds(kind, value):
        return "plain" if isinstance(value, bool) else None
    return "text" if isinstance(value, str) else "number"


@shape_of.register
def _(kind: NumberKind, value: Any) -> str | None:
    if not holds(kind, value):
        return None
    return "number" if kind.booleans and not isinstance(value, bool) else "plain"


@shape_of.register
def _(kind: ListKind, value: Any) -> str | None:
    if not isinstance(value, list):
        return None
    # Looked up once: a list may hold thousands of numbers.
    of_item = shape_of.dispatch(type(kind.item))
    shapes = {of_item(kind.item, item) for item in value if item is not None}
    return shapes.pop() if len(shapes) == 1 else (None if shapes else "plain")


@shape_of.register
def _(kind: RecordKind, value: Any) -> str | None:
    if not isinstance(value, dict):
        return None
    plain = all(
        value.get(name) is None or shape_of(inner, value[name]) == "plain"
        for name, inner in kind.fields.items()
    )
    return "plain" if plain else None


@shape_of.register
def _(kind: ConversationKind, value: Any) -> str | None:
    form = form_of(value)
    if form is None or form not in kind.accepts:
        return None
    if form == "text":
        return "text"
    messages = [value] if form == "message" else value
    return form if all(_is_plain(kind, message) for message in messages) else None


def _is_plain(kind: ConversationKind, message: Any) -> bool:
    return (
        isinstance(message, dict)
        and isinstance(message.get(kind.role), str)
        and message[kind.role] != kind.call_role
        and isinstance(message.get(kind.content), str)
        and all(message.get(key) is None for key in kind.row_path if key in message)
    )


@singledispatch
def arrow_type(kind: Kind, shape: str) -> pa.DataType:  # noqa: ARG001
    """Return the type of a typed column that reads as this kind without a check of each value."""
    return pa.string()


@arrow_type.register
def _(kind: FlagKind, shape: str) -> pa.DataType:  # noqa: ARG001
    return {"plain": pa.bool_(), "number": pa.float64(), "text": pa.string()}[shape]


@arrow_type.register
def _(kind: NumberKind, shape: str) -> pa.DataType:
    if kind.booleans and shape == "plain":
        return pa.bool_()
    return pa.int64() if kind.whole else pa.float64()


@arrow_type.register
def _(kind: ListKind, shape: str) -> pa.DataType:
    return pa.list_(arrow_type(kind.item, shape))


@arrow_type.register
def _(kind: RecordKind, shape: str) -> pa.DataType:  # noqa: ARG001
    return pa.struct([(name, arrow_type(inner, "plain")) for name, inner in kind.fields.items()])


@arrow_type.register
def _(kind: ConversationKind, shape: str) -> pa.DataType:
    if shape == "text":
        return pa.string()
    message = pa.struct([(kind.role, pa.string()), (kind.content, pa.string())])
    return message if shape == "message" else pa.list_(message)


def _is_list(dtype: pa.DataType) -> bool:
    return bool(pa.types.is_list(dtype) or pa.types.is_large_list(dtype))


def _fields_of(dtype: pa.DataType | None) -> dict[str, pa.DataType]:
    if dtype is None or not pa.types.is_struct(dtype):
        return {}
    return {dtype.field(i).name: dtype.field(i).type for i in range(dtype.num_fields)}


def may_carry(dtype: pa.DataType, keys: frozenset[str] = ROW_PATH) -> bool:
    """Return whether messages of this type have keys that change what a turn says."""
    if _is_list(dtype):
        return may_carry(dtype.value_type, keys)
    return bool(_fields_of(dtype).keys() & keys)


# What was read becomes what converters see.


@singledispatch
def read(kind: Kind, parsed: Expr, shape: str) -> Expr:  # noqa: ARG001
    """Turn a typed column into what converters see."""
    return parsed


@read.register
def _(kind: FlagKind, parsed: Expr, shape: str) -> Expr:
    if shape == "text":
        return parsed.replace_strict(dict(kind.texts), default=None, return_dtype=pl.Boolean)
    return parsed.cast(pl.Boolean)


@read.register
def _(kind: NumberKind, parsed: Expr, shape: str) -> Expr:
    return parsed.cast(pl.Float64) if kind.booleans and shape == "plain" else parsed


@read.register
def _(kind: ListKind, parsed: Expr, shape: str) -> Expr:
    inner = read(kind.item, pl.element(), shape)
    # For items that are read unchanged, the expression would only make a copy.
    return parsed if inner.meta.eq(pl.element()) else parsed.list.eval(inner)


@read.register
def _(kind: RecordKind, parsed: Expr, shape: str) -> Expr:
    return pl.when(parsed.is_not_null()).then(
        pl.struct(
            read(inner, parsed.struct.field(name), shape).alias(name)
            for name, inner in kind.fields.items()
        )
    )


@read.register
def _(kind: ConversationKind, parsed: Expr, shape: str) -> Expr:
    if shape == "text":
        message = _message(kind, pl.lit(kind.speaker), parsed)
        return pl.when(parsed.is_not_null()).then(pl.concat_list(message))
    if shape == "message":
        fields = parsed.struct
        message = _message(kind, _role(kind, fields.field(kind.role)), fields.field(kind.content))
        return pl.when(parsed.is_not_null()).then(pl.concat_list(message))
    turn = pl.element().struct
    role, content = _role(kind, turn.field(kind.role)), turn.field(kind.content)
    message = pl.when(pl.element().is_not_null()).then(_message(kind, role, content))
    # Not is_in, which takes longer for a name or two.
    silent = reduce(Expr.or_, (role == name for name in sorted(SILENT))) & content.is_null()
    return parsed.list.eval(message.filter(~silent.fill_null(value=False)))


def _role(kind: ConversationKind, role: Expr) -> Expr:
    return role.replace_strict(dict(kind.roles), default=None, return_dtype=pl.String)


def _message(kind: ConversationKind, role: Expr, content: Expr) -> Expr:
    return message_of(WIDE if kind.wide else NARROW, role, content)


# What the types of parsed values leave open.


@singledispatch
def doubts(kind: Kind, values: pa.Array, shape: str) -> bool:  # noqa: ARG001
    """Return whether parsed values hold any that the strict parser would refuse."""
    return False


@doubts.register
def _(kind: FlagKind, values: pa.Array, shape: str) -> bool:
    if shape == "text":
        return bool(set(values.unique().to_pylist()) - {None, *kind.texts})
    if shape == "plain":
        return False
    found = _numbers(values)
    return bool(((found != 0) & (found != 1)).any())


@doubts.register
def _(kind: NumberKind, values: pa.Array, shape: str) -> bool:
    if kind.whole or (kind.booleans and shape == "plain"):
        return False
    found = _numbers(values)
    if kind.range is not None:
        return bool((~((found >= kind.range[0]) & (found <= kind.range[1]))).any())
    return bool((~(np.abs(found) < INT64_END)).any())


@doubts.register
def _(kind: ListKind, values: pa.Array, shape: str) -> bool:
    return doubts(kind.item, values.flatten(), shape)


@doubts.register
def _(kind: ConversationKind, values: pa.Array, shape: str) -> bool:  # noqa: ARG001
    """A turn may be a call: who speaks says so."""
    messages = values.flatten() if _is_list(values.type) else values
    if not kind.function_calls or kind.role not in _fields_of(messages.type):
        return False
    calls = pc.equal(pc.struct_field(messages, kind.role), kind.call_role)
    return bool(pc.any(calls, min_count=0).as_py())


@doubts.register
def _(kind: RecordKind, values: pa.Array, shape: str) -> bool:
    there = values.drop_null()
    return any(
        doubts(inner, there.field(name), shape)
        for name, inner in kind.fields.items()
        if there.type.get_field_index(name) >= 0
    )


def holds_strange_numbers(values: pa.Array) -> bool:
    """Return whether a number in parsed values, under a key that nobody uses, is NaN or beyond int64."""
    dtype = values.type
    if pa.types.is_floating(dtype):
        return bool((~(np.abs(_numbers(values)) < INT64_END)).any())
    if not _has_floats(dtype):
        return False
    parts = values.flatten()
    return any(map(holds_strange_numbers, parts if pa.types.is_struct(dtype) else [parts]))


def _has_floats(dtype: pa.DataType) -> bool:
    if _is_list(dtype):
        return _has_floats(dtype.value_type)
    return any(map(_has_floats, _fields_of(dtype).values())) or bool(pa.types.is_floating(dtype))


def _numbers(values: pa.Array) -> np.ndarray:
    """Return the numbers that are there, as floats: NaN, infinity and beyond int64 stay visible."""
    found = values.drop_null().cast(pa.float64(), safe=False)
    # Not to_numpy(): it imports pandas where that is installed.
    return buffers.numbers(found.buffers()[1], np.float64, found.offset, len(found))


# Which rows of what converters see are wrong.


def parameter(name: str, kind: Kind, *, required: bool, bound: str) -> Column:
    """Make the column of a converter's parameter, with the problems that its kind can have.

    `name` is what messages call it, `bound` the column of the frame.
    """
    value = pl.col(bound)
    problems = [Problem("null_field", name, Null(bound), f"{name} is null")] if required else []
    if isinstance(kind, ConversationKind):
        keys = tuple(key.name for key in kind.keys)
        problems += (
            Problem(f.code, name + f.path, Flawed(bound, f, keys), f"{name}{f.path} {f.words}")
            for f in TurnFlaw
            if required or f is not TurnFlaw.NO_MESSAGES
        )
        return Column(value, tuple(problems), turns=Messages(bound))
    # A null inside an optional column is a problem too; an empty value there counts as absent.
    flaws = [flaw for flaw in flaws_of(kind, value) if required or flaw.code == "null_field"]
    # An optional text has no flaw.
    rule = Blank(bound) if isinstance(kind, TextKind) else None
    problems += (flaw.problem(name, rule) for flaw in flaws)
    return Column(value, tuple(problems), bound=bound)


@dataclass(frozen=True)
class Flaw:
    """A problem of a value somewhere within a column; `path` is where, such as `[].answer`."""

    code: str
    path: str
    when: Expr
    words: str

    def problem(self, name: str, rule: Rule | None = None) -> Problem:
        """Make it the problem of a column; `rule` is the same condition, where there is one."""
        words = f"{name}{self.path} {self.words}"
        return Problem(self.code, name + self.path, rule or self.when, words)

    def inside(self, path: str, when: Expr) -> "Flaw":
        """Return the same flaw of what holds the value."""
        return Flaw(self.code, path + self.path, when, self.words)


@singledispatch
def flaws_of(kind: Kind, value: Expr) -> Iterator[Flaw]:  # noqa: ARG001
    """Yield what may be wrong with a value: typed columns and the kernel let nulls and blanks through."""
    yield from ()


@flaws_of.register
def _(kind: TextKind, value: Expr) -> Iterator[Flaw]:  # noqa: ARG001
    yield Flaw("empty_field", "", blank(value), "is empty or blank")


@flaws_of.register
def _(kind: RecordKind, value: Expr) -> Iterator[Flaw]:
    for name, inner in kind.fields.items():
        if name in kind.optional:
            continue
        held = value.struct.field(name)
        yield Flaw("null_field", f".{name}", value.is_not_null() & held.is_null(), "is null")
        for flaw in flaws_of(inner, held):
            yield flaw.inside(f".{name}", flaw.when)


@flaws_of.register
def _(kind: ListKind, value: Expr) -> Iterator[Flaw]:
    yield Flaw("empty_field", "", value.list.len() == 0, "is an empty list")
    null = Flaw("null_field", "", pl.element().is_null(), "is null")
    for flaw in (null, *flaws_of(kind.item, pl.element())):
        yield flaw.inside("[]", value.list.eval(flaw.when).list.any())


@flaws_of.register
def _(kind: ConversationKind, value: Expr) -> Iterator[Flaw]:
    found = turn_flaws([key.name for key in kind.keys])
    whens = {flaw: value.list.eval(when).list.any() for flaw, when in found.items()}
    for flaw, when in (whens | {TurnFlaw.NO_MESSAGES: value.list.len() == 0}).items():
        yield Flaw(flaw.code, flaw.path, when, flaw.words)
