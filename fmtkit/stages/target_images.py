"""Images of rows in the layouts of `--to`: beside the messages, or inside of their contents."""

from collections.abc import Callable, Sequence

import polars as pl
import pyarrow as pa

from fmtkit.columns.image_values import PLACEHOLDER
from fmtkit.core import buffers
from fmtkit.core.buffers import Bools
from fmtkit.core.image_columns import IMAGES_FIELD, image_texts
from fmtkit.core.message_keys import IMAGE, in_parts
from fmtkit.formats.target_registry import Target
from fmtkit.sources.canonical_json import canonical
from fmtkit.stages.turn_table import TurnTable

SHOWS = pl.col("content").str.contains(IMAGE, literal=True)
Refuse = Callable[[str, Bools, str], None]
"""Refuses rows: the field that is at fault, which rows, and what the layout has no place for."""


def has_some(images: pa.ChunkedArray) -> Bools:
    """Return which rows have images."""
    lists = buffers.whole(images)
    return (buffers.offsets_of(lists)[1:] > buffers.offsets_of(lists)[:-1]) & buffers.validity(
        lists
    )


def without(turns: TurnTable) -> TurnTable:
    """Return conversations without the marks of their images."""
    return turns.replaced(content=pl.col("content").str.replace_all(IMAGE, "", literal=True))


def with_images_shown(
    target: Target, turns: TurnTable, images: pa.ChunkedArray, refuse: Refuse
) -> TurnTable:
    """Return conversations with their images as a target shows them; refuse rows that it cannot show."""
    if target.images == "stored":
        return turns
    if target.images == "parts":
        return _in_parts(target, turns, image_texts(buffers.whole(images)).to_pylist())
    taken = turns.where(pl.col("content").str.contains(PLACEHOLDER, literal=True))
    refuse(
        "content",
        turns.rows_with(taken) & has_some(images),
        f"the text {PLACEHOLDER} beside images",
    )
    written = pl.col("content").str.replace_all(IMAGE, PLACEHOLDER, literal=True)
    return turns.replaced(content=written)


def _in_parts(
    target: Target, turns: TurnTable, images: Sequence[Sequence[str] | None]
) -> TurnTable:
    """Return contents as JSON: text, or parts of which some are images, in the order of a row's images."""
    assert target.image_part is not None
    left = [list(found or ()) for found in images]
    contents: list[str | None] = []
    texts = turns.messages.get_column("content").to_list()
    for row, text in zip(turns.rows.tolist(), texts, strict=True):
        if text is None or IMAGE not in text:
            contents.append(None if text is None else canonical(text))
            continue
        parts = [
            target.image_part(left[row].pop(0))
            if piece is IMAGE
            else {"type": "text", "text": piece}
            for piece in in_parts(text)
        ]
        contents.append(canonical(parts))
    return turns.replaced(content=pl.lit(pl.Series("content", contents, dtype=pl.String)))


def column(target: Target, images: pa.ChunkedArray) -> pa.ChunkedArray | None:
    """Return the column of images that a target writes; None where they are in the messages."""
    if target.images == "stored":
        return images
    if target.images == "parts":
        return None
    return pa.chunked_array([image_texts(buffers.whole(images))])


def field_of(target: Target) -> pa.Field | None:
    """Return the field of that column."""
    if target.images == "stored":
        return IMAGES_FIELD
    return None if target.images == "parts" else pa.field(IMAGES_FIELD.name, pa.list_(pa.string()))


def without_files(images: pa.ChunkedArray) -> Bools:
    """Return which rows have images that are no files."""
    rows = buffers.whole(images).to_pylist()
    found = [any(one["bytes"] is not None for one in row or ()) for row in rows]
    return buffers.truths(buffers.values_of(found, pa.bool_()))
