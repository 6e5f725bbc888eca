"""How an image is to be turned before it is shown: the orientation in its EXIF or XMP block.

`datasets.Image` turns an image as it decodes it (`decode_example`), and so does transformers' `load_image`:
processors get it turned. Orientations 5 to 8 swap width and height. The rules are those of `Image.getexif` of
Pillow: EXIF counts, XMP where EXIF has no orientation, and where a block of EXIF does not begin as TIFF does
it raises, so that the image cannot be loaded.
"""

import re

from fmtkit.core.errors import ImageError
from fmtkit.images import tiff
from fmtkit.images.byte_ranges import CutShortError, HeldBytes

SWAPPING = frozenset({5, 6, 7, 8})
"""Orientations in which the width that is stored is the height that is shown."""
EXIF_PREFIX = b"Exif\0\0"
_IN_XMP = re.compile(rb'tiff:Orientation(?:="|>)([0-9])')


def of_blocks(exif: bytes, xmp: bytes) -> int:
    """Return the orientation, 1 to 8, that the metadata of an image give; 1 where they give none.

    Raises:
        ImageError: The block of EXIF is none.
    """
    found = _of_exif(exif)
    if found is None and (said := _IN_XMP.search(xmp)):
        found = int(said[1])
    return found if found is not None and 1 <= found <= 8 else 1


def _of_exif(block: bytes) -> int | None:
    while block.startswith(EXIF_PREFIX):
        block = block[len(EXIF_PREFIX) :]
    if not block:
        return None
    if tiff.begins(block):
        try:
            return tiff.first_directory(HeldBytes(block), (tiff.ORIENTATION,)).first.get(
                tiff.ORIENTATION
            )
        except CutShortError:
            pass
    raise ImageError("its EXIF block is damaged, which Pillow refuses; store it without EXIF")
