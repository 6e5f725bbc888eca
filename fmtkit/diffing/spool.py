"""Rows as the ids and labels that a trainer receives, in a file that gives random access to them."""

from collections.abc import Iterable, Sequence
from functools import cached_property
from hashlib import blake2b
from pathlib import Path
from typing import Any, Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from fmtkit.core.data_classes import dataclass

Hashes = npt.NDArray[np.uint64]
Numbers = npt.NDArray[np.int64]

_BATCH = 512
"""Rows of a record batch: as many are read for one row."""
_IDS = pa.list_(pa.int32())
_SCHEMA = pa.schema(
    {"ids": pa.list_(_IDS), "labels": pa.list_(_IDS), "label": pa.bool_(), "origin": pa.int64()}
)


@dataclass(frozen=True)
class Row:
    """The sequences of one row: one, or those of the chosen and the rejected reply."""

    ids: tuple[list[int], ...]
    labels: tuple[list[int], ...]
    """For each token, its id if it is trained on or the label of a step; else -100."""
    label: bool | None = None
    """The label of an unpaired reply."""
    origin: int | None = None
    """Number of the row that it came from; None where that is not known."""

    @property
    def length(self) -> int:
        """Return the number of tokens of the longest sequence."""
        return max((len(ids) for ids in self.ids), default=0)

    @property
    def trained(self) -> int:
        """Return the number of tokens that are trained on."""
        return sum(label != -100 for labels in self.labels for label in labels)


class Spool:
    """Rows in an Arrow file, with two hashes and the origin of each in memory (24 bytes a row)."""

    def __init__(
        self, file: Path, hashes: dict[str, Hashes], origins: Numbers | None, trained: int
    ) -> None:
        self._file = file
        self.hashes = hashes
        self.origins = origins
        """The row that each came from; None where one of them is not known."""
        self.trained = trained
        """Trained tokens of all rows."""

    @classmethod
    def write(cls, file: Path, rows: Iterable[Row]) -> Self:
        """Write the rows, and hash them: by `ids` only, and with their labels as `rows`."""
        ids: list[int] = []
        complete: list[int] = []
        origins: list[int | None] = []
        trained = 0
        waiting: list[Row] = []
        with pa.OSFile(str(file), "wb") as sink, pa.ipc.new_file(sink, _SCHEMA) as writer:
            for row in rows:
                waiting.append(row)
                origins.append(row.origin)
                trained += row.trained
                ids.append(_hash(*row.ids))
                complete.append(_hash(*row.ids, *row.labels, [row.label is True]))
                if len(waiting) == _BATCH:
                    writer.write_batch(_batch(waiting))
                    waiting = []
            if waiting:
                writer.write_batch(_batch(waiting))
        lists = {"ids": ids, "rows": complete}
        known = None if None in origins else np.array(origins, dtype=np.int64)
        hashes = {name: np.array(h, dtype=np.uint64) for name, h in lists.items()}
        return cls(file, hashes, known, trained)

    def __len__(self) -> int:
        return len(self.hashes["rows"])

    def __getitem__(self, number: int) -> Row:
        batch, place = divmod(number, _BATCH)
        row = self._reader.get_batch(batch).slice(place, 1)
        ids, labels, label, origin = (row.column(name)[0].as_py() for name in _SCHEMA.names)
        return Row(tuple(ids), tuple(labels), label, origin)

    @cached_property
    def _reader(self) -> Any:
        return pa.ipc.open_file(pa.memory_map(str(self._file)))


def _batch(rows: Sequence[Row]) -> pa.RecordBatch:
    columns = {name: [getattr(row, name) for row in rows] for name in _SCHEMA.names}
    return pa.RecordBatch.from_pydict(columns, schema=_SCHEMA)


def _hash(*sequences: Sequence[int]) -> int:
    digest = blake2b(digest_size=8)
    for sequence in sequences:
        digest.update(len(sequence).to_bytes(8, "little"))
        digest.update(np.asarray(sequence, dtype=np.int64).tobytes())
    return int.from_bytes(digest.digest(), "little")
