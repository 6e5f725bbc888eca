"""Boxes of a row's images as ms-swift has them, in a column `objects`: which rows have one out of its image.

`bbox` are `[x1, y1, x2, y2]` in pixels, or in parts of the sides with `bbox_type: norm1`; `image_id` says
which image each is in, else all are in the first one.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from fmtkit.images.findings import Frame, boxes_outside
from fmtkit.images.headers import Header
from fmtkit.sources.blocks import ArrowRows, Block

COLUMN, BOXES = "objects", "bbox"
OUTSIDE = "boxes_outside"
_FRAMES: dict[str, Frame] = {"real": "pixels", "norm1": "relative"}
_SLACK = 1.0
"""Pixels that a box may reach out: some count the last one, some what is after it."""

Objects = Mapping[int, Mapping[str, Any]]
"""Record -> its objects."""


def has_boxes(sample: Sequence[Mapping[str, Any]]) -> bool:
    """Return whether rows have boxes of their images."""
    held = (row.get(COLUMN) for row in sample)
    return any(isinstance(value, Mapping) and bool(value.get(BOXES)) for value in held)


def read_objects(block: Block) -> Objects:
    """Return the objects of each sound record of a block, by its number in the block."""
    records = block.records()
    values: Iterator[Any]
    if isinstance(records, ArrowRows):
        held = COLUMN in records.batch.schema.names
        values = iter(records.batch.column(COLUMN).to_pylist() if held else ())
    else:
        found = (value for value, _ in records.values())
        values = (row.get(COLUMN) if isinstance(row, Mapping) else None for row in found)
    places = block.places(len(records)).tolist()
    pairs = zip(places, values, strict=False)
    return {place: value for place, value in pairs if isinstance(value, Mapping)}


def reasons_outside(objects: Mapping[str, Any], headers: Sequence[Header]) -> list[str]:
    """Return for each box of a row that is out of its image, or no box, why; points have two numbers."""
    boxes = objects.get(BOXES)
    if not isinstance(boxes, list):
        return []
    frame = _FRAMES.get(str(objects.get("bbox_type") or "real"))
    named = objects.get("image_id")
    places = named if isinstance(named, list) and len(named) == len(boxes) else [0] * len(boxes)
    reasons = []
    for box, place in zip(boxes, places, strict=True):
        is_known = isinstance(place, int) and 0 <= place < len(headers)
        if not isinstance(box, list) or len(box) == 2 or frame is None or not is_known:
            continue
        reasons += _outside(box, frame, headers[place])
    return reasons


def _outside(box: list[Any], frame: Frame, header: Header) -> list[str]:
    """Return why a box is outside of an image, both as shown and as stored, since EXIF may turn it."""
    slack = _SLACK if frame == "pixels" else 0.0
    sizes = {(header.width, header.height), header.stored_size}
    found = [boxes_outside([box], frame, size, slack=slack) for size in sorted(sizes)]
    return [found[0][0].reason] if all(found) else []
