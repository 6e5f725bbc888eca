"""What an image is, from the first bytes of its file: format, size as it is shown, colours, frames.

Nothing is decoded and Pillow is not needed: bytes in memory take 7 to 40 µs (a GIF of 160 KB 200), and of a
file a few KB are read. What Pillow, and so `datasets` and transformers, cannot open is one ImageError with a
reason in plain words. Pixels may still be damaged, which only `verifying` tells.

What is taken is what processors take, which convert each image to 8 bits of red, green and blue;
`findings.traps` names what that loses: frames, 16 bits, transparency. Other formats that Pillow may open
(AVIF, JPEG 2000, Netpbm, icons) are named and refused.
"""

import re
import struct
import zlib
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Literal

from fmtkit.core.data_classes import dataclass
from fmtkit.core.errors import ImageError
from fmtkit.images import orientation, other_files, tiff
from fmtkit.images.byte_ranges import CutShortError, FileBytes, HeldBytes, Ranges

Format = Literal["PNG", "JPEG", "GIF", "WEBP", "BMP", "TIFF"]
"""As Pillow names them."""
Colours = Literal["grey", "rgb", "palette", "cmyk", "ycbcr", "lab"]

MOST_PIXELS = 2 * (1024 * 1024 * 1024 // 4 // 3)
"""Width times height, at most: twice Pillow's MAX_IMAGE_PIXELS, beyond which `Image.open` raises."""
MOST_STEPS = 4096
"""Segments, chunks or blocks of a file that are looked at."""
MOST_TEXT = 1 << 20
"""Bytes of compressed metadata, as Pillow limits them."""


@dataclass(frozen=True, slots=True)
class Header:
    """What the header of an image says."""

    format: Format
    width: int
    """Pixels from left to right as the image is shown: after the orientation."""
    height: int
    orientation: int = 1
    """1 to 8 as in EXIF: 3 is upside down, 6 to be turned by 90° clockwise."""
    colours: Colours = "rgb"
    bits: int = 8
    """Of one sample of a pixel; of a palette's index."""
    has_alpha: bool = False
    is_animated: bool = False
    """Whether it has more than one frame or page; trainers see the first one."""

    @property
    def stored_size(self) -> tuple[int, int]:
        """Return width and height in pixels before the orientation."""
        if self.orientation in orientation.SWAPPING:
            return self.height, self.width
        return self.width, self.height


def read_header(data: bytes | bytearray | memoryview) -> Header:
    """Return what the header of an image says; its bytes may be cut anywhere behind it.

    Raises:
        ImageError: The bytes are no image that Pillow opens, end within the header, or declare a size of 0 or
            of more than MOST_PIXELS.
    """
    return _of_ranges(HeldBytes(data))


def read_file_header(path: Path) -> Header:
    """Return what the header of a file says, of which at most 4 MiB are read.

    Raises:
        ImageError: As `read_header` does; with the code `image_missing` if there is no such file.
    """
    with FileBytes(path) as data:
        return _of_ranges(data)


def _of_ranges(data: Ranges) -> Header:
    start = data.some(0, 16)
    for begins, name, parse in _FORMATS:
        if begins(start):
            try:
                found = parse(data)
            except CutShortError as error:
                raise ImageError(f"the file is a {name} that ends within its header") from error
            check_size(found.width, found.height)
            return _turned(found)
    raise ImageError(f"the file is {other_files.described(data.some(0, 4096))}")


def check_size(width: int, height: int) -> None:
    """Raise ImageError for a size in pixels that no image has, or that only a bomb has."""
    if width <= 0 or height <= 0:
        raise ImageError(f"its header says {width} x {height} pixels")
    if width * height > MOST_PIXELS:
        raise ImageError(
            f"its header says {width} x {height} pixels, above the limit of {MOST_PIXELS:,} "
            "(a decompression bomb)"
        )


def _turned(header: Header) -> Header:
    if header.orientation in orientation.SWAPPING:
        return replace(header, width=header.height, height=header.width)
    return header


_PROFILE = b"Raw profile type exif\0"
_XMP = b"XML:com.adobe.xmp\0"
_CHUNK_NAME = re.compile(rb"\w{4}", re.ASCII)
_PNG_COLOURS: dict[int, Colours] = {0: "grey", 2: "rgb", 3: "palette", 4: "grey", 6: "rgb"}
_PNG_DEPTHS = {0: (1, 2, 4, 8, 16), 2: (8, 16), 3: (1, 2, 4, 8), 4: (8, 16), 6: (8, 16)}


def _png(data: Ranges) -> Header:
    header: Header | None = None
    frames, alpha = 0, False
    metadata: dict[str, bytes] = {}
    at = 8
    for _ in range(MOST_STEPS):
        size, name = struct.unpack(">L4s", data.exactly(at, 8))
        if name == b"IDAT":
            break
        if name == b"IEND":
            raise ImageError("the file is a PNG without pixels")
        content = data.exactly(at + 8, size) if size <= MOST_TEXT else b""
        _check_chunk(name, content, data.exactly(at + 8 + size, 4), is_read=size <= MOST_TEXT)
        if name == b"IHDR":
            header = _png_size(content)
        elif name == b"acTL" and size >= 8:
            [frames] = struct.unpack_from(">L", content)
        elif name == b"tRNS":
            alpha = True
        _png_metadata(name, content, metadata)
        at += size + 12
    else:
        raise ImageError(f"the file is a PNG with more than {MOST_STEPS} chunks before its pixels")
    if header is None:
        raise ImageError("the file is a PNG without its size (IHDR)")
    is_animated = 1 < frames <= 0x8000_0000
    _png_metadata_after_pixels(data, at, metadata, is_animated=is_animated)
    return replace(
        header,
        orientation=_png_orientation(metadata),
        has_alpha=header.has_alpha or alpha,
        is_animated=is_animated,
    )


def _check_chunk(name: bytes, content: bytes, checksum: bytes, *, is_read: bool) -> None:
    if not _CHUNK_NAME.fullmatch(name):
        raise ImageError(f"the file is a damaged PNG: {name!r} is no name of a chunk")
    if is_read and zlib.crc32(content, zlib.crc32(name)) != int.from_bytes(checksum, "big"):
        raise ImageError(
            f"the file is a damaged PNG: the checksum of its chunk {name.decode()} is wrong"
        )


def _png_size(content: bytes) -> Header:
    if len(content) < 13:
        raise ImageError("the file is a damaged PNG: its IHDR is too short")
    width, height, depth, colour, _, filtering = struct.unpack_from(">LLBBBB", content)
    if depth not in _PNG_DEPTHS.get(colour, ()) or filtering:
        raise ImageError(f"the file is a damaged PNG: depth {depth} with colours {colour}")
    return Header(
        "PNG", width, height, colours=_PNG_COLOURS[colour], bits=depth, has_alpha=colour in (4, 6)
    )


def _png_metadata(name: bytes, content: bytes, found: dict[str, bytes]) -> None:
    """Keep what Pillow reads an orientation from, the last of each; it is unpacked once, at the end."""
    if name == b"eXIf":
        found["exif"] = content
    elif name in (b"tEXt", b"zTXt") and content.startswith(_PROFILE):
        found["profile"] = name + content[len(_PROFILE) :]
    elif name == b"iTXt" and content.startswith(_XMP):
        found["xmp"] = content[len(_XMP) :]


def _png_orientation(found: dict[str, bytes]) -> int:
    """Return the orientation in a chunk of EXIF, ImageMagick's text of one, or XMP."""
    if not found:
        return 1
    kind, text = found.get("profile", b"")[:4], found.get("profile", b"")[4:]
    profile = _unhexed(_inflated(text[1:]) if kind == b"zTXt" else text)
    xmp = found.get("xmp", b"")
    # Whether and how it is packed, a language, and the name in it.
    *_, text = xmp[2:].split(b"\0", 2)
    xmp = _inflated(text) if xmp[:1] == b"\1" else text
    return orientation.of_blocks(found.get("exif") or profile, xmp)


def _inflated(text: bytes) -> bytes:
    try:
        return zlib.decompressobj().decompress(text, MOST_TEXT)
    except zlib.error:
        return b""


def _unhexed(text: bytes) -> bytes:
    """Return the bytes in a raw profile: a line of its name, one of its length, and hexadecimal lines."""
    try:
        return bytes.fromhex("".join(text.decode("latin-1").split("\n")[3:]))
    except ValueError:
        return b""


def _png_metadata_after_pixels(
    data: Ranges, at: int, metadata: dict[str, bytes], *, is_animated: bool
) -> None:
    for _ in range(MOST_STEPS):
        try:
            size, name = struct.unpack(">L4s", data.exactly(at, 8))
            if name == b"IEND" or (name == b"fcTL" and is_animated):
                return
            if name in (b"eXIf", b"tEXt", b"zTXt", b"iTXt") and size <= MOST_TEXT:
                _png_metadata(name, data.exactly(at + 8, size), metadata)
        except CutShortError:  # only decoding tells
            return
        at += size + 12


_FRAMES_OF_JPEG = frozenset(range(0xC0, 0xD0)) - {0xC4, 0xC8, 0xCC} | {0xDE}
_WITHOUT_LENGTH = frozenset({0xC8, *range(0xD0, 0xDA), *range(0xF0, 0xFE)})
_COLOURS_OF_JPEG: dict[int, Colours] = {1: "grey", 3: "rgb", 4: "cmyk"}
_XMP_PREFIX = b"http://ns.adobe.com/xap/1.0/\0"


def _jpeg(data: Ranges) -> Header:
    header: Header | None = None
    exif, xmp, says_density = b"", b"", False
    for marker, at, size in _jpeg_segments(data):
        if marker in _FRAMES_OF_JPEG:
            header = _jpeg_size(data.exactly(at, size))
        elif marker == 0xE1:
            block = data.exactly(at, size)
            if block.startswith(orientation.EXIF_PREFIX):
                exif = _joined_exif(exif, block)
            elif block.startswith(_XMP_PREFIX):
                xmp = block[len(_XMP_PREFIX) :]
        elif marker == 0xE0 and size >= 12 and data.some(at, 4) == b"JFIF":
            says_density = data.exactly(at + 7, 1) in (b"\1", b"\2")
    if header is None:
        raise ImageError("the file is a JPEG without its size")
    try:
        found = orientation.of_blocks(exif, xmp)
    except ImageError:
        # Where the density is missing Pillow looks for it there, and passes over what is no EXIF.
        if says_density:
            raise
        found = 1
    return replace(header, orientation=found)


def _joined_exif(first: bytes, block: bytes) -> bytes:
    if len(first) > MOST_TEXT:
        return first
    return first + block[len(orientation.EXIF_PREFIX) :] if first else block


def _jpeg_segments(data: Ranges) -> Iterator[tuple[int, int, int]]:
    """Yield the marker, place and size of each segment before the first scan."""
    at = 2
    for _ in range(MOST_STEPS):
        marker, at = _jpeg_marker(data, at)
        if marker in _WITHOUT_LENGTH:
            continue
        size = max(int.from_bytes(data.exactly(at, 2), "big"), 2)
        if marker == 0xDA:
            return
        yield marker, at + 2, size - 2
        at += size
    raise ImageError(f"the file is a JPEG with more than {MOST_STEPS} segments")


def _jpeg_marker(data: Ranges, at: int) -> tuple[int, int]:
    """Return the next marker and the place behind it; like Pillow, pass over filling and what is none."""
    for _ in range(MOST_STEPS):
        first, second = data.exactly(at, 2)
        if first != 0xFF or second == 0xFF:
            at += 1
        elif second == 0:
            at += 2
        elif second < 0xC0:
            break
        else:
            return second, at + 2
    raise ImageError("the file is a damaged JPEG: no marker is where one should be")


def _jpeg_size(content: bytes) -> Header:
    if len(content) < 6:
        raise ImageError("the file is a damaged JPEG: its frame is too short")
    bits, height, width, layers = struct.unpack_from(">BHHB", content)
    if bits != 8:
        raise ImageError(f"the file is a JPEG of {bits} bits, which Pillow does not read")
    if layers not in _COLOURS_OF_JPEG:
        raise ImageError(f"the file is a JPEG of {layers} layers, which Pillow does not read")
    return Header("JPEG", width, height, colours=_COLOURS_OF_JPEG[layers])


def _gif(data: Ranges) -> Header:
    width, height, flags, _ = struct.unpack("<HHBH", data.exactly(6, 7))
    at, alpha, repeats = _gif_picture(data, 13 + _palette_size(flags))
    if at is None:
        raise ImageError("the file is a GIF without a picture")
    x, y, wide, high, flags = struct.unpack("<HHHHB", data.exactly(at, 9))
    at += 9 + _palette_size(flags) + 1
    data.exactly(at - 1, 1)
    try:
        after = _after_blocks(data, at)
        # Where it has more blocks than are looked at, its loop must do.
        is_animated = repeats if after is None else _gif_picture(data, after)[0] is not None
    except CutShortError:
        is_animated = False
    size = max(width, x + wide), max(height, y + high)
    return Header("GIF", *size, 1, "palette", 8, alpha, is_animated)


def _palette_size(flags: int) -> int:
    return 3 << (flags & 7) + 1 if flags & 128 else 0


def _gif_picture(data: Ranges, at: int) -> tuple[int | None, bool, bool]:
    """Return where the next picture is described, if any, if it is transparent, and if the file repeats."""
    alpha = repeats = False
    for _ in range(MOST_STEPS):
        kind = data.exactly(at, 1)
        at += 1
        if kind == b",":
            return at, alpha, repeats
        if kind == b";":
            break
        if kind == b"!":
            label, size = data.exactly(at, 2)
            block = data.some(at + 2, size)
            alpha |= label == 0xF9 and bool(block) and bool(block[0] & 1)
            repeats |= label == 0xFF and block.startswith(b"NETSCAPE2.0")
            after = _after_blocks(data, at + 1)
            if after is None:
                break
            at = after
    return None, alpha, repeats


def _after_blocks(data: Ranges, at: int) -> int | None:
    """Return the place behind a list of blocks; None if it has more than MOST_STEPS."""
    for _ in range(MOST_STEPS):
        [size] = data.exactly(at, 1)
        at += size + 1
        if size == 0:
            return at
    return None


def _webp(data: Ranges) -> Header:
    [kind] = struct.unpack("4s", data.exactly(12, 4))
    start = data.exactly(20, 5 if kind == b"VP8L" else 10)
    if kind == b"VP8L":
        sides = int.from_bytes(start[1:5], "little")
        if start[0] != 0x2F:
            raise ImageError("the file is a damaged WebP: its lossless data begin wrongly")
        width, height = (sides & 0x3FFF) + 1, (sides >> 14 & 0x3FFF) + 1
        return Header("WEBP", width, height, has_alpha=bool(sides >> 28 & 1))
    if kind == b"VP8 ":
        if start[0] & 1 or start[3:6] != b"\x9d\x01\x2a":
            raise ImageError("the file is a damaged WebP: its lossy data begin wrongly")
        width, height = struct.unpack_from("<HH", start, 6)
        return Header("WEBP", width & 0x3FFF, height & 0x3FFF)
    if kind == b"VP8X":
        return _extended_webp(data, start)
    raise ImageError(f"the file is a damaged WebP: {kind!r} is none of its kinds")


def _extended_webp(data: Ranges, start: bytes) -> Header:
    flags = start[0]
    width = int.from_bytes(start[4:7], "little") + 1
    height = int.from_bytes(start[7:10], "little") + 1
    found = {b"EXIF": b"", b"XMP ": b""}
    # Decoders pass over chunks that the flags do not announce.
    wanted = {name for name, bit in ((b"EXIF", 8), (b"XMP ", 4)) if flags & bit}
    frames = 0
    for name, at, size in _webp_chunks(data):
        frames += name == b"ANMF"
        if name in wanted and size <= MOST_TEXT:
            found[name] = data.some(at, size)
            wanted.discard(name)
        if frames > 1 and not wanted:
            break
    turned = orientation.of_blocks(found[b"EXIF"], found[b"XMP "])
    is_animated = bool(flags & 2) and frames > 1
    return Header("WEBP", width, height, turned, "rgb", 8, bool(flags & 16), is_animated)


def _webp_chunks(data: Ranges) -> Iterator[tuple[bytes, int, int]]:
    """Yield the name, place and size of each chunk behind the first, as far as there are bytes."""
    [size] = struct.unpack("<L", data.exactly(16, 4))
    at = 20 + size + size % 2
    for _ in range(MOST_STEPS):
        try:
            name, size = struct.unpack("<4sL", data.exactly(at, 8))
        except CutShortError:
            return
        yield name, at + 8, size
        at += 8 + size + size % 2


_BITS_OF_BMP = {1: 1, 4: 4, 8: 8, 16: 5, 24: 8, 32: 8}


def _bmp(data: Ranges) -> Header:
    [size] = struct.unpack("<L", data.exactly(14, 4))
    if size == 12:
        width, height, _, bits = struct.unpack("<HHHH", data.exactly(18, 8))
        compression = 0
    elif size in (40, 52, 56, 64, 108, 124):
        content = data.exactly(18, size - 4)
        width, height, _, bits, compression = struct.unpack_from("<LLHHL", content)
        # From the top down.
        height = 2**32 - height if content[7] == 0xFF else height
    else:
        raise ImageError(
            f"the file is a BMP with a header of {size} bytes, which Pillow does not read"
        )
    if bits not in _BITS_OF_BMP or compression > 3:
        raise ImageError(
            f"the file is a BMP of {bits} bits, compression {compression}, which Pillow does not read"
        )
    has_alpha = compression == 3 and bits == 32 and size >= 56 and any(content[48:52])
    colours: Colours = "palette" if bits <= 8 else "rgb"
    return Header("BMP", width, height, 1, colours, _BITS_OF_BMP[bits], has_alpha)


_COLOURS_OF_TIFF: dict[int, Colours] = {
    0: "grey",
    1: "grey",
    2: "rgb",
    3: "palette",
    5: "cmyk",
    6: "ycbcr",
    8: "lab",
}
_WIDTH, _HEIGHT, _BITS, _PHOTOMETRIC, _SAMPLES, _EXTRA = 256, 257, 258, 262, 277, 338


def _tiff(data: Ranges) -> Header:
    wanted = (_WIDTH, _HEIGHT, _BITS, _PHOTOMETRIC, _SAMPLES, _EXTRA, tiff.ORIENTATION)
    found = tiff.first_directory(data, wanted)
    tags = found.first
    if _WIDTH not in tags or _HEIGHT not in tags:
        if not found.is_whole:
            raise CutShortError
        raise ImageError("the file is a TIFF without its size")
    photometric = tags.get(_PHOTOMETRIC, 0)
    if photometric not in _COLOURS_OF_TIFF:
        raise ImageError(f"the file is a TIFF of colours {photometric}, which Pillow does not read")
    turned = tags.get(tiff.ORIENTATION, 1)
    return Header(
        "TIFF",
        tags[_WIDTH],
        tags[_HEIGHT],
        turned if 1 <= turned <= 8 else 1,
        _COLOURS_OF_TIFF[photometric],
        tags.get(_BITS, 1),
        has_alpha=tags.get(_EXTRA, 0) in (1, 2),
        is_animated=found.next_at != 0,
    )


_FORMATS: tuple[tuple[Callable[[bytes], bool], str, Callable[[Ranges], Header]], ...] = (
    (lambda start: start.startswith(b"\xff\xd8\xff"), "JPEG", _jpeg),
    (lambda start: start.startswith(b"\x89PNG\r\n\x1a\n"), "PNG", _png),
    (lambda start: start.startswith(b"RIFF") and start[8:12] == b"WEBP", "WebP", _webp),
    (lambda start: start.startswith((b"GIF87a", b"GIF89a")), "GIF", _gif),
    (tiff.begins, "TIFF", _tiff),
    (lambda start: start.startswith(b"BM"), "BMP", _bmp),
)
"""How a file of a format begins, its name, and what reads its header."""
