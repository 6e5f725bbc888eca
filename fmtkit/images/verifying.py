"""Decoding an image to know that it can be decoded (`--verify-images`), and small copies of it for a page.

Both need Pillow (`pip install 'fmtkit[images]'`), which gets only bytes whose header was read, as the one
format that it says. Decoding is bounded: in pixels by `headers.MOST_PIXELS`, and in time, which is looked at
whenever the decoder asks for more bytes. Between two such moments it decodes at most all pixels once, or, of
a progressive JPEG, as often as it has scans, whose number is bounded.
"""

import base64
import html
import io
import time
from typing import TYPE_CHECKING

from fmtkit.core.errors import DependencyError, ImageError
from fmtkit.images.headers import Header, read_header

if TYPE_CHECKING:
    from PIL.Image import Image

SECONDS = 20.0
"""For decoding one image."""
MOST_SCANS = 500
"""Scans of a JPEG, of which libraries write about ten; libjpeg-turbo's fuzzers stop at as many."""
MOST_SMALL = 32 << 10
"""Bytes of an original that stands on a page without Pillow."""
MOST_SIDE = 1024
"""Pixels of a thumbnail."""
_SHOWN_BY_BROWSERS = {"PNG": "png", "JPEG": "jpeg", "GIF": "gif", "WEBP": "webp", "BMP": "bmp"}


class _Overdue(Exception):  # noqa: N818
    """The time for decoding is over."""


class _Timed(io.BytesIO):
    """Bytes that can be read until a time is over."""

    def __init__(self, data: bytes, seconds: float) -> None:
        super().__init__(data)
        self._end = time.monotonic() + seconds

    def read(self, size: int | None = -1, /) -> bytes:
        if time.monotonic() > self._end:
            raise _Overdue
        return super().read(size)


def need_pillow(use: str) -> None:
    """Raise DependencyError, which names the use, where Pillow is not installed."""
    try:
        import PIL.Image  # noqa: F401
    except ImportError as error:
        raise DependencyError(f"{use} needs Pillow: pip install 'fmtkit[images]'") from error


def verify(data: bytes, *, seconds: float = SECONDS) -> Header:
    """Decode the image as `datasets` does, and return what its header says.

    Args:
        data: The bytes of its file.
        seconds: Limit for decoding it; about, since a decoder is not interrupted.

    Raises:
        ImageError: It is truncated or damaged, takes too long, or has another size than its header says.
        DependencyError: Pillow is not installed.
    """
    need_pillow("--verify-images")
    header = read_header(data)
    image = _decoded(data, header, seconds)
    if image.size not in (header.stored_size, (header.width, header.height)):
        raise ImageError(f"its pixels are {image.size}, and its header says {header.stored_size}")
    return header


def _decoded(data: bytes, header: Header, seconds: float, side: int = 0) -> "Image":
    """Return the first frame of an image, decoded; with a side a JPEG in the smallest size that has it."""
    from PIL import Image

    if header.format == "JPEG" and data.count(b"\xff\xda") > MOST_SCANS:
        raise ImageError(f"it is a JPEG of more than {MOST_SCANS} scans, which is not decoded")
    try:
        image = Image.open(_Timed(data, seconds), formats=[header.format])
        if side:
            image.draft(None, (side, side))
        image.load()
        image.getexif()
    except _Overdue as error:
        raise ImageError(f"decoding it takes longer than {seconds:g} seconds") from error
    except MemoryError as error:
        raise ImageError("decoding it takes more memory than there is") from error
    except Exception as error:
        # Any error: for damaged files Pillow's plugins raise of every type, from struct.error to IndexError.
        said = " ".join(str(error).split())[:120]
        raise ImageError(f"it cannot be decoded: {said or type(error).__name__}") from error
    return image


def thumbnail(data: bytes, side: int) -> str | None:
    """Return a data URI of a small copy of an image, upright, for the attribute of an element.

    With Pillow it is a JPEG, or a PNG where it is transparent, whose longer side is at most `side` pixels (1
    to MOST_SIDE). Without, it is the original, if a browser shows its format and it has at most MOST_SMALL
    bytes. None for anything that cannot be shown so. It has no character that HTML escapes, and is never SVG.
    """
    side = max(1, min(side, MOST_SIDE))
    try:
        header = read_header(data)
    except ImageError:
        return None
    try:
        need_pillow("a thumbnail")
    except DependencyError:
        is_small = len(data) <= MOST_SMALL and header.format in _SHOWN_BY_BROWSERS
        return _uri(data, _SHOWN_BY_BROWSERS[header.format]) if is_small else None
    try:
        return _reduced(data, header, side)
    except ImageError:
        return None


def _reduced(data: bytes, header: Header, side: int) -> str:
    from PIL import Image, ImageOps

    image = _decoded(data, header, SECONDS / 4, side)
    try:
        upright = ImageOps.exif_transpose(image)
        mode = "RGBA" if "A" in upright.getbands() or "transparency" in upright.info else "RGB"
        if upright.mode.startswith(("I", "F")):
            upright = _of_8_bits(upright)
        small = upright.convert(mode)
        small.thumbnail((side, side), Image.Resampling.BILINEAR)
        out = io.BytesIO()
        # Without its metadata, which may say where it was taken.
        small.info.clear()
        small.save(out, "PNG" if mode == "RGBA" else "JPEG", quality=80)
    except Exception as error:
        # Any error, as in decoding.
        raise ImageError(f"it cannot be reduced: {error}") from error
    return _uri(out.getvalue(), "png" if mode == "RGBA" else "jpeg")


def _of_8_bits(image: "Image") -> "Image":
    """Return an image of 16 or 32 bits with its range of values as grey, where convert("L") would cut it."""
    wide = image.convert("F")
    low, high = wide.getextrema()
    assert isinstance(low, float)
    assert isinstance(high, float)
    scale = 255 / (high - low) if high > low else 0.0
    return wide.point(lambda value: value * scale + -low * scale).convert("L")


def _uri(data: bytes, kind: str) -> str:
    return html.escape(f"data:image/{kind};base64,{base64.b64encode(data).decode()}")
