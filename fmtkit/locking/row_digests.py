"""Digests of rows: of their canonical columns, texts and ids, and of some rows' labels.

Labels follow from a row's columns, the texts that the template writes of it, its ids and the rule of the
masks. The first three are hashed here for every row, the rule by its settings. The labels of some rows show a
library that makes something else of the same.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field
from functools import cached_property
from hashlib import blake2b, sha256
from itertools import pairwise

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from fmtkit.core import buffers
from fmtkit.core.data_classes import dataclass
from fmtkit.findings.fingerprints import MIX
from fmtkit.findings.written_rows import Written
from fmtkit.inspection.row_observer import Counted
from fmtkit.masks.masked import Masked, digest_of

Ints = npt.NDArray[np.int64]
Hashes = npt.NDArray[np.uint64]

MOST_GROUPS = 2_000
"""Groups of rows whose digests a lock lists, of 9 bytes each, of rows and of texts."""
SHORT = 8
"""Hexadecimal digits of the digest of a group, or of one row's ids and labels."""
NOTHING = "-"


@dataclass
class RowDigests:
    """The hashes of rows in their order: 32 bytes each."""

    rows: list[Hashes] = field(default_factory=list)
    texts: list[Hashes] = field(default_factory=list)
    tokens: list[Hashes] = field(default_factory=list)
    records: list[Ints] = field(default_factory=list)
    """The rows of the sources that they were made of."""
    masks: dict[int, str] = field(default_factory=dict)
    """Row of the sources -> digest of its ids and labels, of some rows."""

    def absorb(self, other: "RowDigests", first: int) -> None:
        """Add the hashes of the rows that come next, whose row 0 is row `first` here."""
        self.rows += other.rows
        self.texts += other.texts
        self.tokens += other.tokens
        self.records += [records + first for records in other.records]
        self.masks |= {row + first: digest for row, digest in other.masks.items()}

    def add_masks(self, row: int, masked: Sequence[Masked]) -> None:
        """Add the digest of the ids and labels of a row."""
        self.masks[row] = f"{digest_of(masked):016x}"[:SHORT]

    def whole(self) -> "Digests":
        """Return the hashes in one piece."""
        rows, texts, tokens = (
            np.concatenate([np.zeros(0, np.uint64), *parts])
            for parts in (self.rows, self.texts, self.tokens)
        )
        records = np.concatenate([np.zeros(0, np.int64), *self.records])
        return Digests(rows, texts, tokens, records, dict(sorted(self.masks.items())))


@dataclass(frozen=True, eq=False)
class Digests:
    """The hashes of all rows."""

    rows: Hashes
    texts: Hashes
    tokens: Hashes
    records: Ints
    masks: Mapping[int, str]

    @cached_property
    def written(self) -> Hashes:
        """Return one hash of each row's texts and lengths."""
        mixed: Hashes = (self.texts * MIX) ^ self.tokens
        return mixed

    @property
    def size(self) -> int:
        """Count the rows."""
        return len(self.rows)

    def every(self) -> int:
        """Return how many rows share a digest, so that a lock stays small: 1, 10, 100, ..."""
        rows = 1
        while self.size > rows * MOST_GROUPS:
            rows *= 10
        return rows


def sum_of(hashes: Hashes) -> str:
    """Return the sum of hashes, which does not depend on their order."""
    return f"{int(hashes.sum(dtype=np.uint64)):016x}"


def groups_of(hashes: Hashes, every: int) -> list[str]:
    """Return the digest of each group of rows."""
    return [group_of(hashes, first, first + every) for first in range(0, len(hashes), every)]


def group_of(hashes: Hashes, first: int, last: int) -> str:
    """Return the digest of the rows from `first` to the one before `last`."""
    return digest_of_all(hashes[first:last])[:SHORT]


def digest_of_all(hashes: Hashes) -> str:
    """Return the digest of hashes in their order, the same on every machine."""
    return sha256(hashes.astype("<u8").tobytes()).hexdigest()


@dataclass(frozen=True)
class RowDigester:
    """Hashes every row of an inspection (an `inspection.row_observer.RowObserver`)."""

    def empty(self) -> RowDigests:
        """Return the hashes of no row."""
        return RowDigests()

    def view(
        self, table: pa.Table, written: Written, counted: Counted, records: Ints
    ) -> RowDigests:
        """Hash a batch of a canonical table."""
        rows = hash_columns({name: table[name] for name in table.column_names})
        texts, tokens = np.zeros((2, table.num_rows), np.uint64)
        if written.texts or written.lists:
            texts[written.kept] = hash_columns({**written.texts, **written.lists})
        for what, columns in (("", counted.lengths), ("ids ", counted.ids)):
            for name, numbers in sorted(columns.items()):
                key = blake2b(f"{what}{name}".encode(), digest_size=8).digest()
                named = np.uint64(int.from_bytes(key) | 1)
                tokens[written.kept] = (
                    tokens[written.kept] * MIX + numbers.astype(np.uint64) * named
                )
        return RowDigests([rows], [texts], [tokens], [np.asarray(records, np.int64)])


def hash_columns(columns: Mapping[str, pa.Array | pa.ChunkedArray]) -> Hashes:
    """Hash rows by the names and values of their columns, in the order of the names."""
    lines = _named((name, spelled(column)) for name, column in sorted(columns.items()))
    count = len(lines)
    data = memoryview(lines.buffers()[2] or b"")
    ends = buffers.numbers(lines.buffers()[1], np.int64, lines.offset, count + 1).tolist()
    hashes = b"".join(
        blake2b(data[a:b], digest_size=8).digest() for a, b in pairwise(ends[: count + 1])
    )
    return np.frombuffer(hashes, "<u8").astype(np.uint64)


def spelled(column: pa.Array | pa.ChunkedArray) -> pa.LargeBinaryArray:
    """Write each value of a column as bytes, so that different values have different bytes.

    A text is its length and itself, a list its length and its items, a struct its fields with their names
    without those that are null: the same row has the same bytes in a table with more columns.
    """
    array = buffers.whole(column)
    kind = array.type
    if pa.types.is_dictionary(kind):
        return spelled(array.dictionary_decode())
    if pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind):
        return _present(array, _with_size(pc.list_value_length(array), _joined_items(array)))
    if pa.types.is_struct(kind):
        fields = sorted((kind.field(i).name, i) for i in range(kind.num_fields))
        if not fields:
            return _present(array, pa.array([b";"] * len(array), pa.large_binary()))
        return _present(
            array, _named((name, spelled(pc.struct_field(array, [i]))) for name, i in fields)
        )
    if not (pa.types.is_binary(kind) or pa.types.is_large_binary(kind)):
        array = array.cast(pa.large_string())
    said = array.cast(pa.large_binary())
    return _present(said, _with_size(pc.binary_length(said), said))


def _named(columns: Iterable[tuple[str, pa.Array]]) -> pa.Array:
    """Join values with their names; a null is as if its column were not there."""
    parts = []
    for name, said in columns:
        is_null = pc.equal(said, _bytes(NOTHING))
        if not pc.any(is_null).as_py():
            # All texts are written once.
            parts += [_bytes(f"{name}="), said]
            continue
        with_name = pc.binary_join_element_wise(_bytes(f"{name}="), said, _bytes(""))
        parts.append(pc.if_else(is_null, _bytes(""), with_name))
    return pc.binary_join_element_wise(*parts, _bytes(";"), _bytes(""))


def _bytes(text: str) -> pa.Scalar:
    return pa.scalar(text.encode(), pa.large_binary())


def _with_size(sizes: pa.Array, said: pa.Array) -> pa.Array:
    """Write a size before each value."""
    texts = pc.fill_null(sizes, -1).cast(pa.large_string()).cast(pa.large_binary())
    return pc.binary_join_element_wise(texts, pc.fill_null(said, b""), _bytes(":"))


def _joined_items(lists: pa.Array) -> pa.Array:
    items = spelled(pc.list_flatten(lists))
    sizes = pc.fill_null(pc.list_value_length(lists), 0).to_numpy(zero_copy_only=False)
    offsets = pa.array(np.append(0, np.cumsum(sizes)).astype(np.int64))
    nested = pa.LargeListArray.from_arrays(offsets, items)
    return pc.binary_join(nested, _bytes(""))


def _present(values: pa.Array, said: pa.Array) -> pa.Array:
    """Write null values as a mark that no other value is written as."""
    if not values.null_count:
        return said
    return pc.if_else(pc.is_valid(values), said, _bytes(NOTHING))
