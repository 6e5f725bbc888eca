"""The images of a row that is shown: what each of them is, and where a text has its placeholder."""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from fmtkit.core.data_classes import dataclass
from fmtkit.core.errors import ImageError
from fmtkit.core.image_columns import IMAGES
from fmtkit.core.message_keys import IMAGE
from fmtkit.images.headers import read_file_header, read_header

BARE = "<image>"
"""What stands for an image in a text that no template wrote."""


@dataclass(frozen=True)
class ShownImage:
    """An image in a text."""

    start: int
    """Where its placeholder begins in the text, in characters."""
    end: int
    label: str
    """What it is: `image 640x480 png`."""


def labels_of(row: Mapping[str, Any]) -> tuple[str, ...]:
    """Return what each image of a row is."""
    return tuple(map(_label, row.get(IMAGES) or ()))


def _label(image: Mapping[str, Any]) -> str:
    data, path = image["bytes"], image["path"]
    try:
        header = read_header(data) if data is not None else read_file_header(Path(path or ""))
    except ImageError:
        return "image that cannot be read"
    return f"image {header.width}x{header.height} {header.format.lower()}"


def shown_in(text: str, written: str, labels: Sequence[str]) -> tuple[ShownImage, ...]:
    """Return the images of a text, which has `written` for each; none where the numbers differ."""
    if not written.strip() or not labels:
        return ()
    places = [found.span() for found in re.finditer(re.escape(written.strip()), text)]
    if len(places) != len(labels):
        return ()
    return tuple(ShownImage(*place, label) for place, label in zip(places, labels, strict=True))


def bare(text: str) -> str:
    """Return a text of a canonical row as it is shown without a template."""
    return text.replace(IMAGE, BARE)
