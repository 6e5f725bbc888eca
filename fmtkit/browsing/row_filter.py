"""Which rows a page shows: by their finding, a role, a text and their length."""

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from fmtkit.browsing.row_book import Looked
from fmtkit.browsing.row_lengths import characters
from fmtkit.core.data_classes import dataclass

Bools = npt.NDArray[np.bool_]
Ints = npt.NDArray[np.int64]


@dataclass(frozen=True)
class RowFilter:
    """What rows have in common that are shown; empty: all rows."""

    text: str = ""
    """In any of their texts, or in those of `role`, whatever its case."""
    code: str = ""
    """A finding, or why a row is bad."""
    role: str = ""
    at_least: int | None = None
    """Characters, or tokens (`in_tokens`), which whoever shows the rows looks at."""
    at_most: int | None = None
    in_tokens: bool = False

    @property
    def is_empty(self) -> bool:
        """Return whether all rows pass."""
        return self == RowFilter(in_tokens=self.in_tokens)

    def has_length(self, size: int) -> bool:
        """Return whether a length is one that is shown."""
        return (self.at_least is None or size >= self.at_least) and (
            self.at_most is None or size <= self.at_most
        )

    def records(self, looked: Looked) -> Ints:
        """Return the records of a block that pass, ascending."""
        found = looked.records
        if self.is_empty or not len(found):
            return found
        if self.code:
            with_code = [r for r, codes in looked.codes.items() if self.code in codes]
            found = found[np.isin(found, with_code)]
        if self.text or self.role or self._limits_characters:
            found = found[np.isin(found, [*self._of_rows(looked)])]
        return found

    @property
    def _limits_characters(self) -> bool:
        return not self.in_tokens and (self.at_least is not None or self.at_most is not None)

    def _of_rows(self, looked: Looked) -> Iterator[int]:
        """Yield the records whose rows pass; a bad row passes if its bytes contain the text."""
        for table, records in looked.tables():
            yield from records[self._passing(table)].tolist()
        if self.text and not self.role and not self._limits_characters:
            words = self.text.lower()
            for record, reject in looked.rejects.items():
                if words in reject.raw.decode("utf-8", "replace").lower():
                    yield record

    def _passing(self, table: pa.Table) -> Bools:
        passing = np.ones(table.num_rows, np.bool_)
        if self._limits_characters:
            sizes = characters(table)
            passing &= sizes >= (self.at_least or 0)
            passing &= sizes <= (self.at_most if self.at_most is not None else sizes)
        if self.role:
            passing &= self._spoken(table)
        elif self.text:
            passing &= _any(
                ((_matching(texts, self.text), rows) for texts, rows in _texts_of(table)),
                table.num_rows,
            )
        return passing

    def _spoken(self, table: pa.Table) -> Bools:
        """Return the rows in which the role speaks, and says the text."""

        def found() -> Iterator[tuple[Bools, Ints]]:
            for messages, rows in _messages_of(table):
                by_role = _flags(pc.equal(pc.struct_field(messages, "role"), self.role))
                if self.text:
                    own = np.arange(len(messages))
                    by_role &= _any(
                        ((_matching(texts, self.text), at) for texts, at in _texts(messages, own)),
                        len(messages),
                    )
                yield by_role, rows

        return _any(found(), table.num_rows)


def _any(found: "Iterator[tuple[Bools, Ints]]", size: int) -> Bools:
    passing = np.zeros(size, np.bool_)
    for flags, rows in found:
        passing[rows[flags]] = True
    return passing


def _matching(texts: pa.Array, words: str) -> Bools:
    return _flags(pc.match_substring(texts, words, ignore_case=True))


def _flags(found: pa.Array) -> Bools:
    flags: Bools = pc.fill_null(found, False).to_numpy(zero_copy_only=False)
    return flags


def _columns(table: pa.Table) -> Iterator[pa.Array]:
    for column in table.columns:
        yield column.combine_chunks()


def _texts_of(table: pa.Table) -> Iterator[tuple[pa.Array, Ints]]:
    for column in _columns(table):
        yield from _texts(column, np.arange(len(column)))


def _texts(array: pa.Array, rows: Ints) -> Iterator[tuple[pa.Array, Ints]]:
    """Yield the texts in an array, whatever they are in, and the row of each; roles apart."""
    kind = array.type
    if isinstance(array, pa.ExtensionArray):
        array, kind = array.storage, array.storage.type
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        yield array, rows
    elif pa.types.is_list(kind) or pa.types.is_large_list(kind):
        parents = pc.list_parent_indices(array).to_numpy(zero_copy_only=False)
        yield from _texts(pc.list_flatten(array), rows[parents])
    elif pa.types.is_struct(kind):
        for name in (kind.field(i).name for i in range(kind.num_fields)):
            if name != "role":
                yield from _texts(pc.struct_field(array, name), rows)


def _messages_of(table: pa.Table) -> Iterator[tuple[pa.Array, Ints]]:
    for column in _columns(table):
        yield from _messages(column, np.arange(len(column)))


def _messages(array: pa.Array, rows: Ints) -> Iterator[tuple[pa.Array, Ints]]:
    """Yield the messages in an array, and the row of each."""
    kind = array.type
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        parents = pc.list_parent_indices(array).to_numpy(zero_copy_only=False)
        yield from _messages(pc.list_flatten(array), rows[parents])
    elif pa.types.is_struct(kind) and kind.get_field_index("role") >= 0:
        yield array, rows
