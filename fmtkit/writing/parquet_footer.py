"""Join Parquet files that were encoded side by side into one, without decoding them.

pyarrow's writer is one thread, and encoding is most of a conversion. So each worker encodes its
rows to a whole file in memory; the row groups of all are then laid one after the other and the
footers become one, in which every offset is moved to where its bytes lie now.
https://github.com/apache/parquet-format/blob/master/src/main/thrift/parquet.thrift
"""

from base64 import b64decode, b64encode
from collections.abc import Iterator, Mapping

import pyarrow as pa
import pyarrow.ipc

from fmtkit.writing.thrift import (
    BINARY,
    I16,
    I64,
    LIST,
    STRUCT,
    Field,
    Items,
    Struct,
    Value,
    read_struct,
    write_struct,
)

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
            raise ValueError("the rows have another schema than those before them")
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
    # The ordinal is 16 bits and optional; beyond them readers count for themselves.
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
    """Add to the key-value pairs, and to the Arrow schema among them: pyarrow reads only that."""
    pairs = {_text(pair[1]): _text(pair[2]) for pair in _structs(field)} | dict(metadata)
    schema = pa.ipc.read_schema(pa.py_buffer(b64decode(pairs[_ARROW_SCHEMA])))
    whole = (schema.with_metadata(dict(metadata)) if metadata else schema).serialize()
    pairs[_ARROW_SCHEMA] = b64encode(whole).decode()
    added: list[Value] = [
        {1: Field(BINARY, key.encode()), 2: Field(BINARY, value.encode())}
        for key, value in pairs.items()
    ]
    return Field(LIST, Items(STRUCT, added))


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
