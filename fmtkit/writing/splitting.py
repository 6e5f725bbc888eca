"""Splitting: rows go to validation by a keyed hash, of the prompt's text or of the row's place.

By prompts a row's split depends on its prompt and the seed alone, so that no prompt is in two splits and
the split does not move when rows are added. By rows, exactly the given number is split off, as axolotl's
`val_set_size` does it; where a source row makes several, they stay together.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from functools import cached_property
from hashlib import blake2b
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
from polars import Expr

from fmtkit.core import buffers
from fmtkit.core.data_classes import dataclass
from fmtkit.core.errors import OptionError
from fmtkit.core.image_columns import IMAGES
from fmtkit.core.pickling import PickledByFields
from fmtkit.core.tables import SPLIT_KEY, final_rows, is_carried
from fmtkit.writing.common_schema import fitted
from fmtkit.writing.formats import Encoded, Format, encode, find

_STORED = pl.List(pl.Struct({"bytes": pl.Binary, "path": pl.String}))
TRAIN, VALIDATION = "train", "validation"
_SPACE = 2.0**64


@dataclass(frozen=True)
class Split:
    """Rows whose prompt, or whose place, hashes below `threshold` (of 2**64) are for validation."""

    threshold: int
    seed: int
    by: str = "prompts"
    salt: int = 0
    """Number of the dataset among those that are split together by rows."""

    def is_validation(self, frame: pl.DataFrame, places: np.ndarray | None = None) -> np.ndarray:
        """Return a boolean for each row of a frame (`frame_of`).

        `places` are source, block and place in the block of each row (int64, n x 3), for `by` rows.
        """
        if self.by == "rows":
            assert places is not None
            return place_hashes(places, self.seed, self.salt) < np.uint64(self.threshold)
        return prompt_hashes(frame, self.seed) < np.uint64(self.threshold)


def by_fraction(fraction: float, seed: int) -> Split:
    """Split off about this share of the prompts."""
    return Split(int(fraction * _SPACE), seed)


class LowestHashes:
    """The lowest hashes seen: those of the rows to split off, and the next one.

    If a number of rows is split off, no other row can be: what is kept does not grow with the input.
    """

    def __init__(self, rows: int) -> None:
        self._rows = rows
        self._values, self._counts = np.empty(0, np.uint64), np.empty(0, np.int64)

    def add(self, hashes: np.ndarray) -> None:
        """Add the hashes of some rows (uint64)."""
        together = np.concatenate([self._values, hashes])
        counts = np.concatenate([self._counts, np.ones(len(hashes), np.int64)])
        values, place = np.unique(together, return_inverse=True)
        total = np.bincount(place, weights=counts, minlength=len(values)).astype(np.int64)
        kept = int(np.searchsorted(np.cumsum(total), self._rows)) + 2
        self._values, self._counts = values[:kept], total[:kept]

    @property
    def counts(self) -> Counter[int]:
        """Return hash -> rows."""
        return Counter(dict(zip(self._values.tolist(), self._counts.tolist(), strict=True)))


def by_rows(hashes: Counter[int], rows: int, seed: int) -> Split:
    """Split off whole prompt groups, lowest hash first, until there are that many rows.

    `hashes` counts the rows of each prompt hash. Raises OptionError if all rows are asked for.
    """
    total = 0
    for value in sorted(hashes):
        if total >= rows:
            return Split(value, seed)
        total += hashes[value]
    if total > rows:
        are = "have one prompt" if len(hashes) == 1 else f"have {len(hashes)} prompts"
        raise OptionError(
            f"--val-size {rows}: {total} rows {are}, prompts are held out whole, and some must be left to "
            "train on; hold out single rows: --split-by rows"
        )
    raise OptionError(
        f"--val-size {rows}: only {total} rows are there, and some must be left to train on"
    )


def place_hashes(places: np.ndarray, seed: int, salt: int) -> np.ndarray:
    """Return the keyed hash (uint64) of each row's source, block and place in it (SplitMix64)."""
    found = np.full(len(places), seed & 0xFFFFFFFF, dtype=np.uint64)
    found = _mixed(found + np.uint64(salt << 32))
    for column in places.T:
        found = _mixed(found ^ column.astype(np.uint64))
    return found


def _mixed(numbers: np.ndarray) -> np.ndarray:
    found = numbers + np.uint64(0x9E3779B97F4A7C15)
    found = (found ^ (found >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    found = (found ^ (found >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    mixed: np.ndarray = found ^ (found >> np.uint64(31))
    return mixed


def prompt_hashes(frame: pl.DataFrame, seed: int) -> np.ndarray:
    """Return the keyed hash (uint64) of each row's prompt."""
    texts = prompt_texts(frame).to_list()
    key = str(seed).encode()
    digests = b"".join(blake2b(text.encode(), digest_size=8, key=key).digest() for text in texts)
    return np.frombuffer(digests, dtype="<u8")


_PROMPTED = ("prompt", "messages", "text", "segments", "input_ids")
"""Columns that hold what comes before a reply: each table has one of them."""


def frame_of(table: pa.Table) -> pl.DataFrame:
    """Return what fmtkit made of a table, as a frame: nothing that is carried is hashed."""
    names = [name for name in table.schema.names if not is_carried(name)]
    frame = pl.from_arrow(table.select(names))
    assert isinstance(frame, pl.DataFrame)
    return frame


def prompt_texts(frame: pl.DataFrame) -> pl.Series:
    """Return the text by which each row's prompt, with its images, is told from others."""
    texts = frame.select(_prompt_text(frame).alias(SPLIT_KEY)).to_series()
    if SPLIT_KEY in frame.columns or frame.schema.get(IMAGES) != _STORED:
        return texts
    shown = [_digest_of(images or ()) for images in frame.get_column(IMAGES).to_list()]
    return (
        pl.select(pl.concat_str(texts, pl.Series(shown, dtype=pl.String)))
        .to_series()
        .alias(SPLIT_KEY)
    )


def _digest_of(images: Iterable[Mapping[str, Any]]) -> str:
    """Return what tells the images of a row from others: nothing for a row without any."""
    found = blake2b(digest_size=16)
    is_empty = True
    for image in images:
        is_empty = False
        found.update(image["bytes"] if image["bytes"] is not None else str(image["path"]).encode())
    return "" if is_empty else found.hexdigest()


def _prompt_text(frame: pl.DataFrame) -> Expr:
    name = next(n for n in (SPLIT_KEY, *_PROMPTED) if n in frame.columns)
    column = pl.col(name)
    if name == "segments":
        return _before_trained(column)
    if frame.schema[name] == pl.String:
        return column
    if name == "input_ids":
        ids = column.list.head(pl.col("prompt_length"))
        return ids.list.eval(pl.element().cast(pl.String)).list.join(" ")
    turn = pl.element().struct
    said = column.list.eval(
        pl.concat_str(turn.field("role"), turn.field("content").fill_null(""), separator="\x1f")
    )
    if name == "messages":
        answered = turn.field("role") == "assistant"
        first = column.list.eval(answered).list.arg_max()
        said = said.list.head(
            pl.when(column.list.eval(answered).list.any()).then(first).otherwise(column.list.len())
        )
    return said.list.join("\x1e")


def _before_trained(segments: Expr) -> Expr:
    """Return the text before the first segment that is trained on; all of it if nothing is before it."""
    part = pl.element().struct
    texts, trained = (segments.list.eval(part.field(name)) for name in ("text", "label"))
    before = texts.list.head(trained.list.arg_max()).list.join("")
    return pl.when(trained.list.any() & (before != "")).then(before).otherwise(texts.list.join(""))


@dataclass(frozen=True)
class Encoding(PickledByFields):
    """Splits and encodes rows, on a worker."""

    split: Split | None
    format: str
    compression: str
    schema: pa.Schema
    """The schema of the file, which may have the rows of others too."""

    @cached_property
    def _written_as(self) -> Format:
        return find(self.format)

    def __call__(self, table: pa.Table, places: np.ndarray) -> list[tuple[str, Encoded]]:
        """Return the rows of each split that has any."""
        parts = [(TRAIN, table)]
        if self.split is not None and table.num_rows:
            mask = buffers.booleans(self.split.is_validation(frame_of(table), places))
            parts = [
                (TRAIN, table.filter(pa.compute.invert(mask))),
                (VALIDATION, table.filter(mask)),
            ]
        return [
            (split, encode(self._fitted(rows), self._written_as, self.compression))
            for split, rows in parts
            if rows.num_rows
        ]

    def _fitted(self, table: pa.Table) -> pa.Table:
        rows = final_rows(table)
        return rows if rows.schema == self.schema else fitted(rows, self.schema)
