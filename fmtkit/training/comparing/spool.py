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

_BATCH = 512
"""Rows of a record batch: as many are read for one row."""
_IDS = pa.list_(pa.int32())
_SCHEMA = pa.schema([("ids", pa.list_(_IDS)), ("labels", pa.list_(_IDS)), ("label", pa.bool_())])


@dataclass(frozen=True)
class Row:
    """The sequences of one row: one, or those of the chosen and the rejected reply."""

    ids: tuple[list[int], ...]
    labels: tuple[list[int], ...]
    """For each token, its id if it is trained on or the label of a step; else -100."""
    label: bool | None = None
    """The label of an unpaired reply."""

    @property
    def length(self) -> int:
        """Return the number of tokens of the longest sequence."""
        return max((len(ids) for ids in self.ids), default=0)

    @property
    def has_loss(self) -> bool:
        """Return whether any token is trained on."""
        return any(label != -100 for labels in self.labels for label in labels)


class Spool:
    """Rows in an Arrow file, with two hashes of each in memory (16 bytes a row)."""

    def __init__(self, file: Path, hashes: dict[str, Hashes]) -> None:
        self._file = file
        self.hashes = hashes

    @classmethod
    def write(cls, file: Path, rows: Iterable[Row]) -> Self:
        """Write the rows, and hash them: by `ids` only, and with their labels as `rows`."""
        ids: list[int] = []
        complete: list[int] = []
        waiting: list[Row] = []
        with pa.OSFile(str(file), "wb") as sink, pa.ipc.new_file(sink, _SCHEMA) as writer:
            for row in rows:
                waiting.append(row)
                ids.append(_hash(*row.ids))
                complete.append(_hash(*row.ids, *row.labels, [row.label is True]))
                if len(waiting) == _BATCH:
                    writer.write_batch(_batch(waiting))
                    waiting = []
            if waiting:
                writer.write_batch(_batch(waiting))
        lists = {"ids": ids, "rows": complete}
        return cls(file, {name: np.array(h, dtype=np.uint64) for name, h in lists.items()})

    def __len__(self) -> int:
        return len(self.hashes["rows"])

    def __getitem__(self, number: int) -> Row:
        batch, place = divmod(number, _BATCH)
        row = self._reader.get_batch(batch).slice(place, 1)
        ids, labels, label = (row.column(name)[0].as_py() for name in _SCHEMA.names)
        return Row(tuple(ids), tuple(labels), label)

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
