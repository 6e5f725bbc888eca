"""Thrift's compact protocol, in which Parquet footers are written: read, written, and copied with changes.

A struct that is read and written again is equal byte for byte, including fields that nobody here knows. Maps
and sets are refused: Parquet has none.
https://github.com/apache/thrift/blob/master/doc/specs/thrift-compact-protocol.md
"""

import struct
from collections.abc import Callable, Mapping
from typing import ClassVar, TypeAlias

from fmtkit.core.data_classes import dataclass

TRUE, FALSE, BYTE, I16, I32, I64, DOUBLE, BINARY, LIST, _SET, _MAP, STRUCT = range(1, 13)
"""The wire types. A boolean field has no bytes of its own: its type is its value."""

_LONG_LIST = 15
_SIZES = {TRUE: 0, FALSE: 0, BYTE: 1, DOUBLE: 8}
"""Bytes of the values of fields that have always as many."""


@dataclass(slots=True)
class Field:
    """One value and its wire type."""

    type: int
    value: "Value"


@dataclass(slots=True)
class Items:
    """A list, and the wire type of its items."""

    type: int
    values: list["Value"]


Struct: TypeAlias = dict[int, Field]
"""Field id -> field, in the order of the wire."""

Value: TypeAlias = bool | int | float | bytes | Items | Struct


def read_struct(data: bytes, after: int = 0) -> Struct:
    """Return the struct that `data` begins with, or what follows its field with the id `after`.

    Raises ValueError if it is not a struct.
    """
    try:
        return _Reader(data).struct(after)
    except (IndexError, struct.error) as error:
        raise ValueError("the bytes end inside a Thrift struct") from error


def write_struct(fields: Struct, after: int = 0) -> bytes:
    """Return the bytes of `fields`, the inverse of `read_struct`, after a field with the id `after`."""
    out = bytearray()
    _write_struct(out, fields, after)
    return bytes(out)


class _Reader:
    """A position in the bytes, and methods that read the value there."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.position = 0

    def byte(self) -> int:
        self.position += 1
        return self.data[self.position - 1]

    def take(self, count: int) -> bytes:
        start, self.position = self.position, self.position + count
        if self.position > len(self.data):
            raise IndexError
        return self.data[start : self.position]

    def varint(self) -> int:
        value = shift = 0
        while True:
            byte = self.byte()
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value
            shift += 7

    def zigzag(self) -> int:
        value = self.varint()
        return (value >> 1) ^ -(value & 1)

    def struct(self, identifier: int = 0) -> Struct:
        fields: Struct = {}
        while header := self.byte():
            delta, wire_type = header >> 4, header & 0x0F
            identifier = identifier + delta if delta else self.zigzag()
            is_boolean = wire_type in {TRUE, FALSE}
            value = wire_type == TRUE if is_boolean else self.value(wire_type)
            fields[identifier] = Field(wire_type, value)
        return fields

    def items(self) -> Items:
        header = self.byte()
        count, wire_type = header >> 4, header & 0x0F
        if count == _LONG_LIST:
            count = self.varint()
        return Items(wire_type, [self.value(wire_type) for _ in range(count)])

    def value(self, wire_type: int) -> Value:
        if wire_type not in self._READ:
            raise ValueError(f"Thrift type {wire_type} does not occur in Parquet footers")
        return self._READ[wire_type](self)

    _READ: ClassVar[dict[int, Callable[["_Reader"], Value]]] = {
        TRUE: lambda reader: reader.byte() == TRUE,  # in a list a boolean is one byte
        BYTE: lambda reader: int.from_bytes(reader.take(1), signed=True),
        I16: zigzag,
        I32: zigzag,
        I64: zigzag,
        DOUBLE: lambda reader: float(struct.unpack("<d", reader.take(8))[0]),
        BINARY: lambda reader: reader.take(reader.varint()),
        LIST: items,
        STRUCT: struct,
    }


def _write_varint(out: bytearray, value: int) -> None:
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)


def _write_zigzag(out: bytearray, value: int) -> None:
    _write_varint(out, value << 1 if value >= 0 else ~value << 1 | 1)


def _write_struct(out: bytearray, fields: Struct, previous: int = 0) -> None:
    for identifier, field in fields.items():
        delta = identifier - previous
        previous = identifier
        if 0 < delta < 16:
            out.append(delta << 4 | field.type)
        else:
            out.append(field.type)
            _write_zigzag(out, identifier)
        if field.type not in {TRUE, FALSE}:
            _write_value(out, field.type, field.value)
    out.append(0)


def _write_items(out: bytearray, items: Items) -> None:
    out += write_list_header(len(items.values), items.type)
    for value in items.values:
        _write_value(out, items.type, value)


def _write_value(out: bytearray, wire_type: int, value: Value) -> None:
    match value:
        case bool():
            out.append(TRUE if value else FALSE)
        case int() if wire_type == BYTE:
            out += value.to_bytes(1, signed=True)
        case int():
            _write_zigzag(out, value)
        case float():
            out += struct.pack("<d", value)
        case bytes():
            _write_varint(out, len(value))
            out += value
        case Items():
            _write_items(out, value)
        case dict():
            _write_struct(out, value)


def write_integer(value: int) -> bytes:
    """Return the bytes of an integer of 16 bits or more."""
    out = bytearray()
    _write_zigzag(out, value)
    return bytes(out)


def write_last_integer(identifier: int, value: int) -> bytes:
    """Return the bytes of a field of 16 bits and of the end of its struct, whatever field is before it."""
    out = bytearray([I16])
    _write_zigzag(out, identifier)
    _write_zigzag(out, value)
    out.append(0)
    return bytes(out)


Change: TypeAlias = "Callable[[int], int | None] | Mapping[int, Change]"
"""What becomes of a field: a function of its integer, or changes inside of its struct or list of structs."""


def copy_struct(data: bytes, at: int, changes: Mapping[int, Change], out: bytearray) -> int:
    """Copy a struct to `out` with some fields changed; the others are not decoded.

    Args:
        data: Bytes that have a struct at `at`.
        at: Where the struct begins.
        changes: Field id -> what becomes of it. A function that returns None leaves the last field out.
        out: Where the struct is appended.

    Returns:
        Where the struct ends in `data`.

    Raises:
        ValueError: if the bytes end inside the struct, or are none, or a field is left out before others.
    """
    try:
        return _copy_struct(data, at, changes, out)
    except IndexError as error:
        raise ValueError("the bytes end inside a Thrift struct") from error


def _copy_struct(data: bytes, at: int, changes: Mapping[int, Change], out: bytearray) -> int:
    begun, identifier = at, 0
    while header := data[at]:
        head, wire_type = at, header & 0x0F
        identifier, at = _field_id(data, at, identifier)
        change = changes.get(identifier)
        if change is None or wire_type in (TRUE, FALSE):
            at = skip(data, at, wire_type)
            continue
        if callable(change):
            raw, end = _varint(data, at)
            changed = change((raw >> 1) ^ -(raw & 1))
            if changed is None:
                if data[end]:
                    raise ValueError("a field of a struct is left out before others")
                out += data[begun:head]
            else:
                out += data[begun:at]
                _write_zigzag(out, changed)
            begun = at = end
            continue
        count = 1
        if wire_type == LIST:
            count, _, at = _list_header(data, at)
        out += data[begun:at]
        for _ in range(count):
            at = _copy_struct(data, at, change, out)
        begun = at
    at += 1
    out += data[begun:at]
    return at


def _field_id(data: bytes, at: int, before: int) -> tuple[int, int]:
    """Return the id of the field whose header is at `at`, and where its value begins."""
    delta = data[at] >> 4
    if delta:
        return before + delta, at + 1
    raw, at = _varint(data, at + 1)
    return (raw >> 1) ^ -(raw & 1), at


def field_at(data: bytes, at: int, before: int) -> tuple[int, int, int]:
    """Return id, wire type and begin of the value of the field that follows the field `before`; id 0 ends."""
    if not data[at]:
        return 0, 0, at + 1
    wire_type = data[at] & 0x0F
    identifier, at = _field_id(data, at, before)
    return identifier, wire_type, at


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while (byte := data[at]) > 0x7F:
        value |= (byte & 0x7F) << shift
        shift += 7
        at += 1
    return value | byte << shift, at + 1


def _list_header(data: bytes, at: int) -> tuple[int, int, int]:
    """Return count and wire type of the items of a list, and where they begin."""
    count, wire_type = data[at] >> 4, data[at] & 0x0F
    if count == _LONG_LIST:
        count, at = _varint(data, at + 1)
        return count, wire_type, at
    return count, wire_type, at + 1


def list_at(data: bytes, at: int) -> tuple[int, int]:
    """Return the count of the items of a list at `at`, and where they begin."""
    count, _, at = _list_header(data, at)
    return count, at


def write_list_header(count: int, wire_type: int) -> bytes:
    """Return the bytes before the items of a list."""
    out = bytearray([min(count, _LONG_LIST) << 4 | wire_type])
    if count >= _LONG_LIST:
        _write_varint(out, count)
    return bytes(out)


def skip(data: bytes, at: int, wire_type: int) -> int:
    """Return where the value of a field ends that begins at `at`."""
    if wire_type in (I16, I32, I64):
        while data[at] > 0x7F:
            at += 1
        return at + 1
    if wire_type in _SIZES:
        return at + _SIZES[wire_type]
    if wire_type == BINARY:
        size, at = _varint(data, at)
        return at + size
    if wire_type == STRUCT:
        identifier = 0
        while header := data[at]:
            identifier, at = _field_id(data, at, identifier)
            at = skip(data, at, header & 0x0F)
        return at + 1
    if wire_type == LIST:
        count, wire_type, at = _list_header(data, at)
        if wire_type in (TRUE, FALSE):
            return at + count  # in a list a boolean is one byte
        for _ in range(count):
            at = skip(data, at, wire_type)
        return at
    raise ValueError(f"Thrift type {wire_type} does not occur in Parquet footers")
