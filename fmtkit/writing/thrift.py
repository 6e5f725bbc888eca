"""Read and write Thrift's compact protocol, knowing nothing of what the fields mean.

Parquet's footer is such a struct. What is read and written again is equal byte for byte, fields
that no one here knows included. Maps and sets are refused: Parquet has none.
https://github.com/apache/thrift/blob/master/doc/specs/thrift-compact-protocol.md
"""

import struct
from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar, TypeAlias

TRUE, FALSE, BYTE, I16, I32, I64, DOUBLE, BINARY, LIST, _SET, _MAP, STRUCT = range(1, 13)
"""The wire types. A boolean field has no bytes of its own: its type is its value."""

_LONG_LIST = 15


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


def read_struct(data: bytes) -> Struct:
    """Return the struct that `data` begins with; raise ValueError where it is none."""
    try:
        return _Reader(data).struct()
    except (IndexError, struct.error) as error:
        raise ValueError("the bytes end inside a Thrift struct") from error


def write_struct(fields: Struct) -> bytes:
    """Return the bytes of `fields`, the inverse of `read_struct`."""
    out = bytearray()
    _write_struct(out, fields)
    return bytes(out)


class _Reader:
    """A place in the bytes, and the reading of one value from there."""

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

    def struct(self) -> Struct:
        fields: Struct = {}
        identifier = 0
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
            raise ValueError(f"Thrift type {wire_type} has no place in a Parquet footer")
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


def _write_struct(out: bytearray, fields: Struct) -> None:
    previous = 0
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
    count = len(items.values)
    out.append(min(count, _LONG_LIST) << 4 | items.type)
    if count >= _LONG_LIST:
        _write_varint(out, count)
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
