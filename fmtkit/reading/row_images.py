"""The images of rows: whether a type's rows may have some, in which columns, and what is wrong with them."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa

from fmtkit.columns import image_values
from fmtkit.columns.image_values import REJECTED, RowImages, UnreadableImageError, images_of
from fmtkit.columns.strict_kinds import contents, has_image_part
from fmtkit.core.buffers import ends, offsets_of, validity, whole
from fmtkit.core.data_classes import dataclass
from fmtkit.core.image_columns import IMAGE_TYPE, IMAGES
from fmtkit.core.message_keys import IMAGE, texts_of
from fmtkit.formats.registry import Converter
from fmtkit.reading.bound_column import BoundColumn, Row, is_media
from fmtkit.sources.marks import Fault, Media, kind_of


def columns_of(
    converter: Converter,
    sample: Sequence[Row],
    mapping: Mapping[str, str],
    ignored: Collection[str],
    *,
    wanted: bool = False,
) -> tuple[str, ...] | None:
    """Return the columns with images, of which a row has at most one; None where rows have none.

    Args:
        converter: What the rows are read by.
        sample: The first rows.
        mapping: Parameter -> path; `images` names the column of images.
        ignored: Columns that are taken for absent.
        wanted: Whether rows have images even if those of the sample have not.
    """
    if not converter.may_have_images:
        return None
    if IMAGES in mapping:
        return (mapping[IMAGES],)
    columns = [_column(converter, name, mapping) for name in converter.takes]
    there = dict.fromkeys(name for row in sample for name in row)
    taken = {*ignored, *(column.top for column in columns)}
    free = [name for name in there if name not in taken]
    found = [name for name in free if _holds_images(name, [row.get(name) for row in sample])]
    usual = tuple(name for name in image_values.COLUMNS if name in found)
    if found or wanted or any(has_image_part(c.kind, c.lookup(r)) for c in columns for r in sample):
        return usual or tuple(found[:1]) or tuple(n for n in image_values.COLUMNS if n not in taken)
    return None


def _column(converter: Converter, name: str, mapping: Mapping[str, str]) -> BoundColumn:
    path, kind = mapping.get(name, converter.path(name)), converter.takes[name]
    return BoundColumn.at(name, path, kind, required=name in converter.required)


def _holds_images(name: str, values: Sequence[Any]) -> bool:
    """Return whether a column holds images: under another name than theirs, nothing but stored ones."""
    held = [value for value in values if value not in (None, "", [], [None])]
    if name in image_values.COLUMNS:
        return any(map(image_values.is_like_images, held))
    return bool(held) and all(map(image_values.is_stored, held))


def refusal(name: str, converter: Converter) -> str:
    """Say why a row with media in a column is not converted."""
    if name not in image_values.COLUMNS:
        return "fmtkit converts text and images"
    if not converter.may_have_images:
        return f"type {converter.name} makes rows of text only"
    return (
        f"no image is seen in the first rows, or the rows become text: --map {IMAGES}={name} reads images "
        "into rows of messages"
    )


def faults(names: Sequence[str], row: Row) -> list[Fault]:
    """Return what is wrong with how a row gives its images in these columns."""
    found = []
    for name in names:
        try:
            images_of(row.get(name))
        except UnreadableImageError:
            why = f"{name} holds {kind_of(row[name])}, not images: paths, URLs or bytes"
            found.append(Fault("type_error", name, why))
    if (worse := row.get(REJECTED)) is not None and is_media(IMAGES, worse):
        same = any(row.get(name) == worse for name in names)
        why = f"{REJECTED} are other images than those of the row, of which a pair has one list"
        found += [] if same else [Fault("unsupported", REJECTED, why)]
    there = [name for name in names if is_media(name, row.get(name))]
    if len(there) > 1 and row[there[0]] != row[there[1]]:
        why = f"{' and '.join(there)} have different images"
        found.append(Fault("ambiguous_fields", there[1], why))
    return found


def of_row(names: Sequence[str], columns: Sequence[BoundColumn], row: Row) -> RowImages | None:
    """Return the images of a sound row; None where it has none, and no place for one."""
    listed = tuple(next(filter(None, (images_of(row.get(name)) for name in names)), []))
    found: list[tuple[Media, ...]] = []
    are_shown = is_marked = False
    for column in columns:
        value = column.lookup(row)
        held = [] if value is None else [*contents(column.kind, value)]
        images = [image for content in held for image in image_values.images_in(content)]
        are_shown |= bool(images)
        is_marked |= any(map(_is_marked, held))
        found.append(tuple(image for image in images if image is not None))
    if not (listed or are_shown or is_marked):
        return None
    return RowImages(listed, tuple(filter(None, found)), are_shown, is_marked)


_NOTHING = Media()
"""What a row has in the place of an image that it has not."""


@dataclass(frozen=True)
class BatchImages:
    """The images of a batch of a typed source, by the columns that are nothing but stored images."""

    columns: Mapping[str, pa.Array]

    def of_rows(self) -> dict[int, RowImages]:
        """Return the images of those rows that have some, by their places."""
        found: dict[int, RowImages] = {}
        for array in self.columns.values():
            for row, listed in enumerate(_stored(array)):
                media = tuple(image for image in listed if image != _NOTHING)
                if media:
                    found[row] = RowImages(media)
        return found


def of_batch(names: Sequence[str] | None, batch: pa.Table) -> BatchImages | None:
    """Return the images of a batch in these columns; None if each of its rows is to be read by itself."""
    there = [name for name in names or () if name in batch.schema.names]
    if not there:
        return BatchImages({})
    if len(there) > 1 or REJECTED in batch.schema.names:
        return None
    [name] = there
    dtype = batch.schema.field(name).type
    stored = dtype.value_type if pa.types.is_list(dtype) else dtype
    if not stored.equals(IMAGE_TYPE):
        return None
    return BatchImages({name: whole(batch.column(name))})


def _stored(array: pa.Array) -> Iterator[Sequence[Media]]:
    """Yield the images of each row of a column of stored ones, or of lists of them, in its memory."""
    is_listed = pa.types.is_list(array.type)
    data, paths = (array.flatten() if is_listed else array).flatten()
    held = memoryview(data.buffers()[2] or b"").cast("B")
    images = [
        Media(held[start:end] if is_there else None, path)
        for (start, end), is_there, path in zip(
            pairwise(offsets_of(data).tolist()),
            validity(data).tolist(),
            paths.to_pylist(),
            strict=True,
        )
    ]
    sizes = np.diff(offsets_of(array)) * validity(array) if is_listed else np.ones(len(array))
    for start, end in pairwise(ends(sizes.astype(np.int64)).tolist()):
        yield images[start:end]


def _is_marked(content: Any) -> bool:
    texts = (t for t in texts_of(content)) if isinstance(content, list) else [content]
    return any(isinstance(text, str) and text is not IMAGE and IMAGE in text for text in texts)
