"""Repeated rows and prompts, by 64-bit hash, in memory that does not grow with the input.

Two of ten million different rows have the same hash in one of 400,000 runs. Many hashes go to
temporary files, divided by their first bits, so that each file can be searched by itself.
"""

import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import field
from hashlib import blake2b
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc

from fmtkit.core.data_classes import dataclass
from fmtkit.core.message_keys import MARKS
from fmtkit.counting.visual_counts import images_of

Ints = npt.NDArray[np.int64]
Hashes = npt.NDArray[np.uint64]

IN_MEMORY = 2_000_000
"""Rows kept in memory before they go to files: 32 bytes each."""

FILES = 64
ENTRY = np.dtype([("row_hash", "u8"), ("prompt_hash", "u8"), ("row", "i8"), ("split", "i8")])
Entries = npt.NDArray[np.void]

ROLE, TURN = "\x1f", "\x1e"
"""Separators of what is hashed: between role and content, and between messages."""


@dataclass
class Fingerprints:
    """Collect the hashes of rows and of their prompts."""

    splits: list[str] = field(default_factory=list)
    waiting: list[Entries] = field(default_factory=list)
    size: int = 0
    folder: "tempfile.TemporaryDirectory[str] | None" = None

    def add(self, row_hashes: Hashes, prompt_hashes: Hashes | None, rows: Ints, split: str) -> None:
        """Add a batch, kept in memory; `prompt_hashes` is None where rows have no prompt."""
        if split not in self.splits:
            self.splits.append(split)
        entries = np.zeros(len(rows), dtype=ENTRY)
        entries["row_hash"] = row_hashes
        entries["prompt_hash"] = 0 if prompt_hashes is None else prompt_hashes
        entries["row"], entries["split"] = rows, self.splits.index(split)
        self.waiting.append(entries)
        self.size += len(entries)

    def absorb(self, other: "Fingerprints", first: int) -> None:
        """Add the rows of a block's collection, whose row 0 is row `first` here; many go to files."""
        for split in other.splits:
            if split not in self.splits:
                self.splits.append(split)
        numbers = np.array([self.splits.index(split) for split in other.splits], dtype=np.int64)
        for found in other.waiting:
            # Arrays from another process may be in shared memory, which cannot be written.
            entries = found.copy()
            entries["row"] += first
            entries["split"] = numbers[entries["split"]]
            self.waiting.append(entries)
            self.size += len(entries)
        if self.size >= IN_MEMORY:
            self._spill()

    def __getstate__(self) -> dict[str, Any]:
        """Pickle all that was collected: files stay with the process that wrote them."""
        entries = [*self._parts("row_hash")]
        return {**vars(self), "waiting": entries, "size": sum(map(len, entries)), "folder": None}

    def _spill(self) -> None:
        if self.folder is None:
            self.folder = tempfile.TemporaryDirectory(prefix="fmtkit-")
        entries = np.concatenate(self.waiting)
        for key in ("row_hash", "prompt_hash"):
            place = (entries[key] >> np.uint64(58)).astype(np.int64)
            order = np.argsort(place, kind="stable")
            borders = np.searchsorted(place[order], np.arange(FILES + 1))
            for number in range(FILES):
                part = entries[order[borders[number] : borders[number + 1]]]
                with (Path(self.folder.name) / f"{key}-{number}").open("ab") as file:
                    part.tofile(file)
        self.waiting, self.size = [], 0

    def _parts(self, key: str) -> Iterator[Entries]:
        """Yield entries such that equal hashes are in one part."""
        if self.folder is None:
            yield np.concatenate([np.zeros(0, dtype=ENTRY), *self.waiting])
            return
        if self.waiting:
            self._spill()
        for number in range(FILES):
            yield np.fromfile(Path(self.folder.name) / f"{key}-{number}", dtype=ENTRY)

    def copies(self) -> Ints:
        """Return the rows that repeat an earlier one, ascending."""
        found = []
        for part in self._parts("row_hash"):
            order = np.lexsort((part["row"], part["row_hash"]))
            hashes = part["row_hash"][order]
            again = np.append(False, hashes[1:] == hashes[:-1])[: len(hashes)]
            found.append(part["row"][order][again])
        return np.sort(np.concatenate(found))

    def shared(self) -> Ints:
        """Return the rows whose prompt is in another split too, ascending."""
        if len(self.splits) < 2:
            return np.zeros(0, dtype=np.int64)
        found = []
        for everything in self._parts("prompt_hash"):
            part = everything[everything["prompt_hash"] != 0]
            _, group = np.unique(part["prompt_hash"], return_inverse=True)
            if len(group) == 0:
                continue
            first = np.full(group.max() + 1, len(self.splits), dtype=np.int64)
            last = np.full(group.max() + 1, -1, dtype=np.int64)
            np.minimum.at(first, group, part["split"])
            np.maximum.at(last, group, part["split"])
            found.append(part["row"][(first != last)[group]])
        return np.sort(np.concatenate(found)) if found else np.zeros(0, dtype=np.int64)


MIX = np.uint64(0x9E3779B97F4A7C15)
"""2 ** 64 divided by the golden ratio: multiplying by it makes the order of columns count."""


def hash_columns(table: pa.Table, names: tuple[str, ...]) -> Hashes:
    """Hash columns of a canonical table row by row; equal rows have equal hashes in one process."""
    return mixed([hash_column(table[name]) for name in names])


def mixed(columns: Sequence[Hashes]) -> Hashes:
    """Make one hash of those of several columns; their order counts."""
    total = columns[0]
    for hashes in columns[1:]:
        turned = total * MIX
        total = (turned ^ (turned >> np.uint64(29))) + hashes
    return total


def hash_column(column: pa.ChunkedArray) -> Hashes:
    """Hash one column row by row; null is a value like any other."""
    texts = pl.from_arrow(_as_text(column.combine_chunks()))
    assert isinstance(texts, pl.Series)
    hashes: Hashes = texts.hash(0).to_numpy()
    return hashes


def hash_images(images: pa.Array) -> Hashes:
    """Hash the images of each row (`core.image_columns`): their bytes, or their paths."""
    rows: list[list[str]] = [[] for _ in range(len(images))]
    for row, data, path in images_of(images):
        rows[row].append(path or "" if data is None else blake2b(data, digest_size=16).hexdigest())
    hashes: Hashes = pl.Series([TURN.join(row) for row in rows], dtype=pl.String).hash(0).to_numpy()
    return hashes


def _as_text(column: pa.Array) -> pa.Array:
    """Write a column as text: messages by role and content, lists by their items."""
    kind = column.type
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        items = _as_text(pc.list_flatten(column)).fill_null("\x00")
        offsets = pa.array(
            np.append(0, np.cumsum(pc.list_value_length(column).fill_null(0).to_numpy()))
        )
        lists = pa.LargeListArray.from_arrays(offsets.cast(pa.int64()), items)
        return pc.binary_join(lists, pa.scalar(TURN, pa.large_string()))
    if pa.types.is_struct(kind):
        parts = [
            _as_text(column.field(i))
            for i in range(kind.num_fields)
            if kind.field(i).name not in MARKS
        ]
        return pc.binary_join_element_wise(
            *parts,
            pa.scalar(ROLE, pa.large_string()),
            null_handling="replace",
            null_replacement="\x00",
        )
    return column.cast(pa.large_string())
