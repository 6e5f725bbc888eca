"""Rows with ids, labels and origins, in a file that gives random access to them."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any, Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from fmtkit.masks.masked import Masked, TokenRow, digest_of, given, id_digest
from fmtkit.masks.origins import Origins

Hashes = npt.NDArray[np.uint64]
Numbers = npt.NDArray[np.int64]

_BATCH = 512
"""Rows of a record batch: as many are read for one row."""
_ORIGINS = {
    "kinds": pa.list_(pa.int8()),
    "messages": pa.list_(pa.int32()),
    "parts": pa.list_(pa.int32()),
    "roles": pa.list_(pa.string()),
    "by": pa.string(),
}
_IDS = pa.list_(pa.int32())
_SEQUENCE = pa.struct({"side": pa.string(), "ids": _IDS, "labels": _IDS, **_ORIGINS})
_SCHEMA = pa.schema({"sequences": pa.list_(_SEQUENCE), "label": pa.bool_(), "number": pa.int64()})


class Spool:
    """Rows in an Arrow file, with two hashes and the number of each in memory (24 bytes a row)."""

    def __init__(
        self, file: Path, hashes: dict[str, Hashes], numbers: Numbers | None, trained: int
    ) -> None:
        self._file = file
        self.hashes = hashes
        self.numbers = numbers
        """The row that each was made of; None where one of them is not known."""
        self.trained = trained
        """Trained tokens of all rows."""

    @classmethod
    def write(cls, file: Path, rows: Iterable[TokenRow]) -> Self:
        """Write the rows, and hash them: by `ids` only, and with their labels as `rows`."""
        ids: list[int] = []
        complete: list[int] = []
        numbers: list[int | None] = []
        trained = 0
        waiting: list[TokenRow] = []
        with pa.OSFile(str(file), "wb") as sink, pa.ipc.new_file(sink, _SCHEMA) as writer:
            for row in rows:
                waiting.append(row)
                numbers.append(row.number)
                trained += row.trained
                ids.append(id_digest(row.sequences))
                complete.append(digest_of(row.sequences, row.label))
                if len(waiting) == _BATCH:
                    writer.write_batch(_batch(waiting))
                    waiting = []
            if waiting:
                writer.write_batch(_batch(waiting))
        lists = {"ids": ids, "rows": complete}
        known = None if None in numbers else np.array(numbers, dtype=np.int64)
        hashes = {name: np.array(h, dtype=np.uint64) for name, h in lists.items()}
        return cls(file, hashes, known, trained)

    def __len__(self) -> int:
        return len(self.hashes["rows"])

    def __getitem__(self, number: int) -> TokenRow:
        batch, place = divmod(number, _BATCH)
        row = self._reader.get_batch(batch).slice(place, 1)
        sequences, label, made_of = (row.column(name)[0].as_py() for name in _SCHEMA.names)
        return TokenRow(tuple(map(_read, sequences)), label, made_of)

    @cached_property
    def _reader(self) -> Any:
        return pa.ipc.open_file(pa.memory_map(str(self._file)))


def _batch(rows: Sequence[TokenRow]) -> pa.RecordBatch:
    columns: dict[str, list[Any]] = {
        "sequences": [[_stored(one) for one in row.sequences] for row in rows],
        "label": [row.label for row in rows],
        "number": [row.number for row in rows],
    }
    return pa.RecordBatch.from_pydict(columns, schema=_SCHEMA)


def _stored(one: Masked) -> dict[str, Any]:
    origins = one.origins
    known = {} if origins is None else {name: getattr(origins, name) for name in _ORIGINS}
    return {"side": one.side, "ids": one.ids, "labels": one.labels, **known}


def _read(stored: Mapping[str, Any]) -> Masked:
    one = given(stored["ids"], stored["labels"], stored["side"])
    if stored["by"] is None:
        return one
    origins = Origins(
        np.array(stored["kinds"], np.int8),
        np.array(stored["messages"], np.int32),
        np.array(stored["parts"], np.int32),
        tuple(stored["roles"]),
        stored["by"],
    )
    return replace(one, origins=origins)
