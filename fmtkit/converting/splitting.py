"""Splitting: whole prompt groups go to validation, by a keyed hash of the prompt's text.

A row's split depends on its prompt and the seed alone, so that no prompt is in two splits and the
split does not move when rows are added.
"""

from collections import Counter
from dataclasses import dataclass
from hashlib import blake2b

import numpy as np
import polars as pl
import pyarrow as pa
from polars import Expr

from fmtkit.errors import OptionError

TRAIN, VALIDATION = "train", "validation"
_SPACE = 2.0**64


@dataclass(frozen=True)
class Split:
    """Rows whose prompt hashes below `threshold` (of 2**64) are for validation."""

    threshold: int
    seed: int

    def is_validation(self, frame: pl.DataFrame) -> np.ndarray:
        """Return a boolean for each row of a canonical frame (messages or text)."""
        return prompt_hashes(frame, self.seed) < np.uint64(self.threshold)


def by_fraction(fraction: float, seed: int) -> Split:
    """Split off about this share of the prompts."""
    return Split(int(fraction * _SPACE), seed)


def by_rows(hashes: Counter[int], rows: int, seed: int) -> Split:
    """Split off whole prompt groups, lowest hash first, until there are that many rows.

    `hashes` counts the rows of each prompt hash. All rows are asked for: OptionError.
    """
    total = 0
    for value in sorted(hashes):
        if total >= rows:
            return Split(value, seed)
        total += hashes[value]
    raise OptionError(
        f"--val-size {rows}: only {total} rows are there, and some must be left to train on"
    )


def prompt_hashes(frame: pl.DataFrame, seed: int) -> np.ndarray:
    """Return the keyed hash (uint64) of each row's prompt."""
    texts = frame.select(_prompt_text(frame)).to_series().to_list()
    key = str(seed).encode()
    digests = b"".join(blake2b(text.encode(), digest_size=8, key=key).digest() for text in texts)
    return np.frombuffer(digests, dtype="<u8")


def _prompt_text(frame: pl.DataFrame) -> Expr:
    name = next(n for n in ("prompt", "messages", "text", "input_ids") if n in frame.columns)
    column = pl.col(name)
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


def frame_of(table: pa.Table) -> pl.DataFrame:
    """Return a table as the frame whose prompts are hashed."""
    frame = pl.from_arrow(table)
    assert isinstance(frame, pl.DataFrame)
    return frame
