"""Join Parquet files that were encoded side by side into one, by their footers, without decoding them.

pyarrow's writer is one thread, and encoding is most of a conversion. So each worker encodes its
rows to a whole file in memory; the row groups of all are then concatenated and the
footers become one, in which every offset is moved to where its bytes are now.
https://github.com/apache/parquet-format/blob/master/src/main/thrift/parquet.thrift

A footer is a struct in Thrift's compact protocol. A footer that is read and written again is equal byte
for byte, including fields that this module does not know. Maps and sets are refused: Parquet has none.
https://github.com/apache/thrift/blob/master/doc/specs/thrift-compact-protocol.md
"""

import struct
from base64 import b64decode, b64encode
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import ClassVar, TypeAlias

import pyarrow as pa
import pyarrow.ipc

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
    """Return the struct that `data` begins with; raise ValueError if it is not a struct."""
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


MAGIC = b"PAR1"

# Field ids of parquet.thrift.
_SCHEMA, _ROWS, _ROW_GROUPS, _KEY_VALUES = 2, 3, 4, 5
_COLUMNS, _GROUP_ROWS, _GROUP_OFFSET, _ORDINAL = 1, 3, 5, 7
_CHUNK_OFFSET, _CHUNK_META = 2, 3
_INDEX_OFFSETS = (4, 6)
_PAGE_OFFSETS = (9, 10, 11)
_BLOOM_OFFSET = 14

_ARROW_SCHEMA = "ARROW:schema"
_LAST_ORDINAL = 2**15 - 1


def split_file(file: memoryview) -> tuple[memoryview, bytes]:
    """Return the bytes of a file's row groups (from offset 4 on) and those of its footer."""
    if bytes(file[:4]) != MAGIC or bytes(file[-4:]) != MAGIC:
        raise ValueError("not a Parquet file")
    start = len(file) - 8 - int.from_bytes(file[-8:-4], "little")
    return file[4:start], bytes(file[start:-8])


class JoinedFooter:
    """The footer of all row groups so far.

    Raises:
        ValueError: from `add`, if the schema differs from that of the row groups before.
    """

    def __init__(self) -> None:
        self._first: Struct | None = None
        self._groups: list[Struct] = []
        self._rows = 0

    def add(self, footer: bytes, position: int) -> None:
        """Take in the row groups of `footer`, whose bytes now begin at `position` of the file."""
        fields = read_struct(footer)
        if self._first is None:
            self._first = fields
        elif any(self._first[key] != fields[key] for key in (_SCHEMA, _KEY_VALUES)):
            raise ValueError("the schema of the rows differs from that of the rows before them")
        for group in _structs(fields[_ROW_GROUPS]):
            rows = _integer(group[_GROUP_ROWS])
            if rows:  # an empty table is one empty row group; its schema is all that counts
                self._rows += rows
                self._groups.append(_moved(group, position - len(MAGIC), len(self._groups)))

    def tail(self, metadata: Mapping[str, str]) -> bytes:
        """Return the end of the file: the footer with `metadata` added, its length, the magic."""
        if self._first is None:
            raise ValueError("a Parquet file needs a schema: add an empty table at least")
        fields = dict(self._first)
        fields[_ROWS] = Field(I64, self._rows)
        fields[_ROW_GROUPS] = Field(LIST, Items(STRUCT, list(self._groups)))
        fields[_KEY_VALUES] = _with_metadata(fields[_KEY_VALUES], metadata)
        footer = write_struct(fields)
        return footer + len(footer).to_bytes(4, "little") + MAGIC


def _moved(group: Struct, distance: int, ordinal: int) -> Struct:
    """Move every offset of a row group, in place."""
    _move(group, _GROUP_OFFSET, distance)
    # The ordinal has 16 bits and is optional; without it readers count the groups.
    if ordinal <= _LAST_ORDINAL:
        group[_ORDINAL] = Field(I16, ordinal)
    else:
        group.pop(_ORDINAL, None)
    for chunk in _structs(group[_COLUMNS]):
        _move(chunk, _CHUNK_OFFSET, distance)
        for key in _INDEX_OFFSETS:
            _move(chunk, key, distance)
        meta = chunk[_CHUNK_META].value
        assert isinstance(meta, dict)
        for key in (*_PAGE_OFFSETS, _BLOOM_OFFSET):
            _move(meta, key, distance)
    return group


def _move(fields: Struct, key: int, distance: int) -> None:
    """Add `distance` to an offset; 0 means that there is none."""
    if key in fields and (offset := _integer(fields[key])):
        fields[key] = Field(I64, offset + distance)


def _with_metadata(field: Field, metadata: Mapping[str, str]) -> Field:
    """Add key-value pairs to the footer, and to the Arrow schema in it, from which pyarrow reads them."""
    pairs = {_text(pair[1]): _text(pair[2]) for pair in _structs(field)} | dict(metadata)
    schema = pa.ipc.read_schema(pa.py_buffer(b64decode(pairs[_ARROW_SCHEMA])))
    pairs[_ARROW_SCHEMA] = b64encode(with_more(schema, metadata).serialize()).decode()
    added: list[Value] = [
        {1: Field(BINARY, key.encode()), 2: Field(BINARY, value.encode())}
        for key, value in pairs.items()
    ]
    return Field(LIST, Items(STRUCT, added))


def with_more(schema: pa.Schema, metadata: Mapping[str, str]) -> pa.Schema:
    """Return a schema with metadata added to its own."""
    added = {key.encode(): value.encode() for key, value in metadata.items()}
    return schema.with_metadata({**(schema.metadata or {}), **added}) if added else schema


def _structs(field: Field) -> Iterator[Struct]:
    assert isinstance(field.value, Items)
    for value in field.value.values:
        assert isinstance(value, dict)
        yield value


def _integer(field: Field) -> int:
    assert isinstance(field.value, int)
    return field.value


def _text(field: Field) -> str:
    assert isinstance(field.value, bytes)
    return field.value.decode()
