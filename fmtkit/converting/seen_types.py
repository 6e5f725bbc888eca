"""The Arrow types of columns, as far as rows have shown them."""

from typing import Any

import pyarrow as pa

from fmtkit.converting.bound_column import Row
from fmtkit.sources.marks import NonFinite, NotText, Overflow, is_unicode


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
