"""Small images for tests, made at run time: of each format, and those that a dataset should not have.

`GOOD` are images that a trainer's processor takes, each with its size as it is shown (after EXIF); `BAD` are
files that are named in an error. The makers below them take sizes. Pillow writes what it can write.
"""

import base64
import io
import random
import struct
import zlib
from collections.abc import Callable
from typing import Any

from PIL import Image

_NOISE = random.Random(33)
ORIENTATION = 0x0112
"""The tag of EXIF and TIFF that says how an image is turned; 5 to 8 swap width and height."""


def picture(width: int = 32, height: int = 24, mode: str = "RGB", seed: int = 0) -> Image.Image:
    """Return a picture whose pixels differ from each other, and from those of another seed."""
    values = [(x * 7 + y * 13 + seed * 29) % 256 for y in range(height) for x in range(width)]
    grey = Image.frombytes("L", (width, height), bytes(values))
    if mode in ("1", "L"):
        return grey.convert(mode)
    if mode == "I;16":
        wide = b"".join(struct.pack("<H", value * 257) for value in values)
        return Image.frombytes("I;16", (width, height), wide)
    turned = [grey, grey.transpose(Image.Transpose.FLIP_LEFT_RIGHT), grey.rotate(180)]
    coloured = Image.merge("RGB", turned)
    if mode in ("RGBA", "LA", "PA"):
        coloured = coloured.convert("RGBA")
        coloured.putalpha(grey)
    return coloured.convert(mode)


def written(image: Image.Image, form: str, **options: Any) -> bytes:
    """Return an image as the bytes of a file that Pillow writes."""
    file = io.BytesIO()
    image.save(file, form, **options)
    return file.getvalue()


def png(width: int = 32, height: int = 24, mode: str = "RGB", seed: int = 0) -> bytes:
    return written(picture(width, height, mode, seed), "PNG")


def jpeg(width: int = 32, height: int = 24, mode: str = "RGB", seed: int = 0, **opt: Any) -> bytes:
    return written(picture(width, height, mode, seed), "JPEG", **opt)


def exif(orientation: int) -> bytes:
    """Return the EXIF block with one tag."""
    tags = Image.Exif()
    tags[ORIENTATION] = orientation
    return tags.tobytes()


def oriented(form: str, orientation: int, width: int = 32, height: int = 24) -> bytes:
    """Return a picture of that stored size, to be turned as the orientation says."""
    if form == "TIFF":
        tags = Image.Exif()
        tags[ORIENTATION] = orientation
        return written(picture(width, height), form, exif=tags)
    return written(picture(width, height), form, exif=exif(orientation))


def animated(form: str = "GIF", frames: int = 3) -> bytes:
    """Return an animation of pictures of 32 x 24 pixels that differ."""
    first, *others = [picture(seed=number) for number in range(frames)]
    return written(first, form, save_all=True, append_images=others, duration=100)


def random_bytes(size: int) -> bytes:
    """Return noise, another at each call, the same in each run."""
    return _NOISE.randbytes(size)


def png_chunk(name: bytes, data: bytes) -> bytes:
    """Return a chunk of a PNG file with its length and checksum."""
    return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))


def png_header(width: int, height: int, depth: int = 8, colour: int = 2) -> bytes:
    """Return a PNG file of some dozen bytes that declares a size; its pixels are missing."""
    head = struct.pack(">IIBBBBB", width, height, depth, colour, 0, 0, 0)
    pixels = png_chunk(b"IDAT", zlib.compress(b"\0" * 64))
    return b"\x89PNG\r\n\x1a\n" + png_chunk(b"IHDR", head) + pixels + png_chunk(b"IEND", b"")


def jpeg_of_bits(bits: int) -> bytes:
    """Return a JPEG whose header says that a sample has so many bits; Pillow reads those of 8 only."""
    made = bytearray(jpeg())
    made[made.index(b"\xff\xc0") + 4] = bits
    return bytes(made)


def data_uri(data: bytes, media_type: str = "image/png") -> str:
    return f"data:{media_type};base64,{base64.b64encode(data).decode()}"


SVG = (
    b'<?xml version="1.0"?>\n<!-- drawn by hand -->\n'
    b'<svg xmlns="http://www.w3.org/2000/svg" width="10" height="10"><script>alert(1)</script></svg>'
)
HTML = b"<!DOCTYPE html>\n<html><head><title>403 Forbidden</title></head></html>"
BOMB = png_header(60_000, 60_000)
"""A PNG of 69 bytes that declares 60,000 x 60,000 pixels."""

GOOD: dict[str, tuple[Callable[[], bytes], tuple[int, int]]] = {
    "png": (png, (32, 24)),
    "png grey": (lambda: png(mode="L"), (32, 24)),
    "png black and white": (lambda: png(mode="1"), (32, 24)),
    "png palette": (lambda: png(mode="P"), (32, 24)),
    "png alpha": (lambda: png(mode="RGBA"), (32, 24)),
    "png grey alpha": (lambda: png(mode="LA"), (32, 24)),
    "png 16 bit grey": (lambda: png(mode="I;16"), (32, 24)),
    "png exif": (lambda: oriented("PNG", 6), (24, 32)),
    "jpeg": (jpeg, (32, 24)),
    "jpeg progressive": (lambda: jpeg(progressive=True), (32, 24)),
    "jpeg grey": (lambda: jpeg(mode="L"), (32, 24)),
    "jpeg cmyk": (lambda: jpeg(mode="CMYK"), (32, 24)),
    "jpeg exif 3": (lambda: oriented("JPEG", 3), (32, 24)),
    "jpeg exif 6": (lambda: oriented("JPEG", 6), (24, 32)),
    "gif": (lambda: written(picture(mode="P"), "GIF"), (32, 24)),
    "gif animated": (animated, (32, 24)),
    "webp lossy": (lambda: written(picture(), "WEBP"), (32, 24)),
    "webp lossless": (lambda: written(picture(), "WEBP", lossless=True), (32, 24)),
    "webp alpha": (lambda: written(picture(mode="RGBA"), "WEBP"), (32, 24)),
    "webp animated": (lambda: animated("WEBP"), (32, 24)),
    "webp exif": (lambda: oriented("WEBP", 8), (24, 32)),
    "bmp": (lambda: written(picture(), "BMP"), (32, 24)),
    "tiff": (lambda: written(picture(), "TIFF"), (32, 24)),
    "tiff exif": (lambda: oriented("TIFF", 5), (24, 32)),
    "tiff two pages": (
        lambda: written(picture(), "TIFF", save_all=True, append_images=[picture(seed=1)]),
        (32, 24),
    ),
    "one pixel": (lambda: png(1, 1), (1, 1)),
    "long and thin": (lambda: png(900, 3), (900, 3)),
}
"""Name -> how the file is made, and its width and height in pixels as it is shown."""

BAD: dict[str, Callable[[], bytes]] = {
    "empty": lambda: b"",
    "png cut in its header": lambda: png()[:20],
    "jpeg cut in its header": lambda: jpeg()[:120],
    "bomb": lambda: BOMB,
    "png without a side": lambda: png_header(0, 24),
    "svg": lambda: SVG,
    "html": lambda: HTML,
    "json": lambda: b'{"error": "not found"}',
    "pdf": lambda: b"%PDF-1.7\n%\xe2\xe3\xcf\xd3\n",
    "avif": lambda: written(picture(), "AVIF"),
    "heic": lambda: struct.pack(">I", 24) + b"ftypheic\0\0\0\0mif1heic" + bytes(40),
    "pointer": lambda: b"version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 12345\n",
    "noise": lambda: bytes(range(1, 256)),
}
"""Files of which the header alone says that no image can be had."""

CUT: dict[str, Callable[[], bytes]] = {
    "jpeg": lambda: jpeg(128, 96)[:-600],
    "png": lambda: png(128, 96)[:-600],
    "webp": lambda: written(picture(128, 96), "WEBP")[:-100],
}
"""Truncated files: their header is whole, so that only decoding tells (`--verify-images`)."""
