"""The images of rows: whether a type's rows may have some, in which columns, and what is wrong with them."""

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from fmtkit.columns import image_values
from fmtkit.columns.image_values import REJECTED, RowImages, UnreadableImageError, images_of
from fmtkit.columns.strict_kinds import contents, has_image_part, texts_of
from fmtkit.converting.bound_column import BoundColumn, Row, is_media
from fmtkit.core.image_columns import IMAGES
from fmtkit.core.message_keys import IMAGE
from fmtkit.core.tables import IMAGE_TABLES
from fmtkit.formats.registry import Converter
from fmtkit.sources.marks import Fault, Media, kind_of


def may_have_images(converter: Converter) -> bool:
    """Return whether the rows of a converter may have images: those of messages may."""
    return converter.table in IMAGE_TABLES and not converter.text and not converter.takes_rows


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
    if not may_have_images(converter):
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
    path = tuple(mapping.get(name, converter.path(name)).split("."))
    return BoundColumn(name, path, converter.takes[name], name in converter.required, None)


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
    if not may_have_images(converter):
        return f"type {converter.name} makes rows of text only"
    return f"rows of messages may have them, where the first rows do, or by --map {IMAGES}={name}"


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
    return RowImages(listed, tuple(filter(None, found)), is_marked)


def _is_marked(content: Any) -> bool:
    texts = (t for t in texts_of(content)) if isinstance(content, list) else [content]
    return any(isinstance(text, str) and text is not IMAGE and IMAGE in text for text in texts)
