"""Join Parquet files that were encoded side by side into one, by their footers, without decoding them.

pyarrow's writer is one thread, and encoding is most of a conversion. So each worker encodes its
rows to a whole file in memory; the row groups of all are then concatenated and the
footers become one, in which every offset is moved to where its bytes are now.
https://github.com/apache/parquet-format/blob/master/src/main/thrift/parquet.thrift

The joined footer is written while other workers hold the interpreter's lock, so of each footer no more is
looked at than the numbers that change: the schema and the rest are compared as bytes.
"""

from base64 import b64decode, b64encode
from collections.abc import Iterator, Mapping

import pyarrow as pa
import pyarrow.ipc

from fmtkit.writing import thrift
from fmtkit.writing.thrift import BINARY, I64, LIST, STRUCT, Field, Items, Struct, Value

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
_OTHER_SCHEMA = "the schema of the rows differs from that of the rows before them"


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
        self._schema = b""
        """The first footer up to the number of its rows, which is followed by its row groups."""
        self._rest = b""
        """What follows the row groups of the first footer."""
        self._groups: list[bytes] = []
        self._rows = 0

    def add(self, footer: bytes, position: int) -> None:
        """Take in the row groups of `footer`, whose bytes now begin at `position` of the file."""
        begin = self._checked_schema(footer)
        _, wire_type, at = thrift.field_at(footer, begin, _SCHEMA)
        at = thrift.skip(footer, at, wire_type)
        identifier, _, at = thrift.field_at(footer, at, _ROWS)
        if identifier != _ROW_GROUPS:
            raise ValueError("a Parquet footer has no row groups where they belong")
        count, at = thrift.list_at(footer, at)
        for _ in range(count):
            at = self._add_group(footer, at, position - len(MAGIC))
        self._check_rest(footer[at:])

    def _checked_schema(self, footer: bytes) -> int:
        """Return where the number of rows follows the schema, which is to be that of the first footer."""
        if self._schema and footer.startswith(self._schema):
            return len(self._schema)
        at = end = identifier = 0
        while identifier < _SCHEMA:
            identifier, wire_type, value = thrift.field_at(footer, at, identifier)
            at = end = thrift.skip(footer, value, wire_type)
        if self._schema:
            raise ValueError(_OTHER_SCHEMA)
        self._schema = footer[:end]
        return end

    def _add_group(self, footer: bytes, at: int, distance: int) -> int:
        """Take in the row group at `at`, and return where it ends."""
        found: list[int] = []

        def moved(offset: int) -> int:
            return offset + distance if offset else 0  # 0 means that there is none

        def noted(rows: int) -> int:
            found.append(rows)
            return rows

        meta: thrift.Change = dict.fromkeys((*_PAGE_OFFSETS, _BLOOM_OFFSET), moved)
        chunk = {**dict.fromkeys((_CHUNK_OFFSET, *_INDEX_OFFSETS), moved), _CHUNK_META: meta}
        changes: dict[int, thrift.Change] = {
            _COLUMNS: chunk,
            _GROUP_ROWS: noted,
            _GROUP_OFFSET: moved,
            _ORDINAL: lambda _: None,
        }
        group = bytearray()
        end = thrift.copy_struct(footer, at, changes, group)
        if found[0]:  # an empty table is one empty row group; its schema is all that counts
            self._rows += found[0]
            # The ordinal has 16 bits and is optional; without it readers count the groups.
            if len(self._groups) <= _LAST_ORDINAL:
                group[-1:] = thrift.write_last_integer(_ORDINAL, len(self._groups))
            self._groups.append(bytes(group))
        return end

    def _check_rest(self, rest: bytes) -> None:
        """Raise ValueError if the metadata of a footer are not those of the first one."""
        if not self._rest:
            self._rest = rest
        elif rest != self._rest and _key_values(rest) != _key_values(self._rest):
            raise ValueError(_OTHER_SCHEMA)

    def tail(self, metadata: Mapping[str, str]) -> bytes:
        """Return the end of the file: the footer with `metadata` added, its length, the magic."""
        if not self._schema:
            raise ValueError("a Parquet file needs a schema: add an empty table at least")
        rest = thrift.read_struct(self._rest, after=_ROW_GROUPS)
        rest[_KEY_VALUES] = _with_metadata(rest[_KEY_VALUES], metadata)
        footer = b"".join(
            (
                self._schema,
                bytes([1 << 4 | I64]),
                thrift.write_integer(self._rows),
                bytes([1 << 4 | LIST]),
                thrift.write_list_header(len(self._groups), STRUCT),
                *self._groups,
                thrift.write_struct(rest, after=_ROW_GROUPS),
            )
        )
        return footer + len(footer).to_bytes(4, "little") + MAGIC


def _key_values(rest: bytes) -> Field:
    """Return the metadata in what follows the row groups of a footer."""
    return thrift.read_struct(rest, after=_ROW_GROUPS)[_KEY_VALUES]


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


def _text(field: Field) -> str:
    assert isinstance(field.value, bytes)
    return field.value.decode()
