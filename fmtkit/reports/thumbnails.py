"""Small copies of the images of the rows on a page, within bounds for each and for the page."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fmtkit.core.errors import ImageError
from fmtkit.core.image_columns import IMAGES
from fmtkit.images import resolving
from fmtkit.images.verifying import thumbnail

SIDES = (160, 96, 48)
"""Pixels of the longer side: the first of which the copy is small enough."""
MOST_BYTES = 12_000
"""Of a copy, as a data URI."""
MOST_OF_ROW = 8
"""Images of a row that are shown; of the others the page says what they are."""
MOST_OF_PAGE = 6_000_000
"""Bytes of all copies."""


class DataUri(str):
    """An image as a data URI: not a text in which secrets could be."""

    __slots__ = ()


class Thumbnails:
    """Makes copies until a page has enough of them."""

    def __init__(self) -> None:
        self.left = MOST_OF_PAGE

    def of_row(self, row: Mapping[str, Any] | None) -> list[DataUri | None]:
        """Return a copy of each image of a row; None for one that is not shown."""
        images = (row or {}).get(IMAGES) or []
        first = [self._of(image) for image in images[:MOST_OF_ROW]]
        return [*first, *[None] * (len(images) - len(first))]

    def _of(self, image: Mapping[str, Any]) -> DataUri | None:
        data = image["bytes"]
        if self.left <= 0:
            return None
        if data is None:
            try:
                data = resolving.contents(resolving.StoredImage(Path(image["path"] or "")))
            except ImageError:
                return None
        for side in SIDES:
            uri = thumbnail(data, side)
            if uri is None:
                return None
            if len(uri) <= min(MOST_BYTES, self.left):
                self.left -= len(uri)
                return DataUri(uri)
        return None
