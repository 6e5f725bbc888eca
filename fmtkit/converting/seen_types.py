"""The Arrow types of columns, as far as rows have shown them."""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import count
from typing import Any

import pyarrow as pa

from fmtkit.converting.bound_column import Row
from fmtkit.sources.marks import NotText, is_unicode

MOST_KEYS = 256
"""Of a source, and of one of its columns: more are data, and the fast parser fills in a null for each."""


def learn(extra: dict[str, pa.DataType | None], row: Row) -> bool:
    """Add what a row shows to the types of the columns; tell whether something was new.

    None is the type of a column whose values no single Arrow type holds. Once there are too many
    columns nothing more is learnt.
    """
    grew = False
    if len(extra) > MOST_KEYS:
        return grew
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
    """Values that no single Arrow type holds, or only one of too many keys."""


@dataclass(slots=True)
class _Seen:
    """What was seen at one place inside a value; it grows in place, so that each value counts once."""

    leaf: pa.DataType | None = None
    item: "_Seen | None" = None
    keys: "dict[str, _Seen] | None" = None

    def type(self) -> pa.DataType:
        if self.item is not None:
            return pa.list_(self.item.type())
        if self.keys is not None:
            return pa.struct([(key, inner.type()) for key, inner in self.keys.items()])
        return pa.null() if self.leaf is None else self.leaf


def _type_of(value: Any) -> pa.DataType:
    seen = _Seen()
    _see(value, seen, count(1))
    return seen.type()


def _see(value: Any, seen: _Seen, keys: Iterator[int]) -> None:
    """Add a value to what was seen; `keys` counts those that were met for the first time."""
    if isinstance(value, list):
        if seen.leaf is not None or seen.keys is not None:
            raise _MixedError
        seen.item = seen.item or _Seen()
        for item in value:
            _see(item, seen.item, keys)
    elif isinstance(value, dict):
        if seen.leaf is not None or seen.item is not None:
            raise _MixedError
        seen.keys = {} if seen.keys is None else seen.keys
        _see_members(value, seen.keys, keys)
    elif value is not None:
        leaf = _leaf(value)
        if seen.item is not None or seen.keys is not None or seen.leaf not in (None, leaf):
            raise _MixedError
        seen.leaf = leaf


def _see_members(value: dict[str, Any], seen: dict[str, _Seen], keys: Iterator[int]) -> None:
    for key, item in value.items():
        if not is_unicode(key):
            continue
        if key not in seen:
            if next(keys) > MOST_KEYS:
                raise _MixedError
            seen[key] = _Seen()
        _see(item, seen[key], keys)


def _leaf(value: Any) -> pa.DataType:
    if isinstance(value, bool):
        return pa.bool_()
    return pa.string() if isinstance(value, str | NotText) else pa.float64()


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
        if len(fields) > MOST_KEYS:
            raise _MixedError
        return pa.struct(list(fields.items()))
    raise _MixedError
