"""What a file is that should be an image and is none: a drawing, a page with an error, a video."""

import re

_HEIF = {
    **dict.fromkeys((b"avif", b"avis"), "an AVIF image"),
    **dict.fromkeys((b"heic", b"heix", b"heim", b"heis", b"hevc", b"hevx"), "a HEIC image"),
    **dict.fromkeys((b"mif1", b"msf1"), "a HEIF image"),
}
_STARTS = (
    (b"%PDF-", "a PDF document; render its pages as images"),
    (b"version https://git-lfs", "a pointer of Git LFS, not the file; run `git lfs pull`"),
    (b"\0\0\0\x0cjP  ", "a JPEG 2000 image; convert it to PNG, JPEG or WebP"),
    (b"\xff\x4f\xff\x51", "a JPEG 2000 image; convert it to PNG, JPEG or WebP"),
    (b"\0\0\0\x0cJXL ", "a JPEG XL image; convert it to PNG, JPEG or WebP"),
    (b"\xff\x0a", "a JPEG XL image; convert it to PNG, JPEG or WebP"),
    (b"8BPS", "a Photoshop document; convert it to PNG, JPEG or WebP"),
    (b"\0\0\1\0", "an icon (ICO); convert it to PNG"),
    (b"qoif", "a QOI image; convert it to PNG, JPEG or WebP"),
    (b"%!PS", "a PostScript document; render it as PNG"),
    (b"\x93NUMPY", "an array of NumPy; save it as PNG"),
    (b"PK\3\4", "a ZIP archive; unpack it"),
    (b"\x1f\x8b", "gzip-compressed; unpack it"),
    (b"\x1aE\xdf\xa3", "a video (Matroska or WebM)"),
    (b"{", "JSON text, perhaps the error of a server"),
    (b"[", "JSON text, perhaps the error of a server"),
    (b"data:", "a data URI as text, not the bytes of an image"),
    (b"/9j/", "base64 text of a JPEG image, not its bytes"),
    (b"iVBORw0KGgo", "base64 text of a PNG image, not its bytes"),
    (b"R0lGOD", "base64 text of a GIF image, not its bytes"),
    (b"UklGR", "base64 text of a WebP image, not its bytes"),
)
_NETPBM = re.compile(rb"P[1-7][ \t\r\n]")
_SVG = re.compile(rb"<svg[\s>]|<!DOCTYPE\s+svg", re.IGNORECASE)
_HTML = re.compile(rb"<(?:!doctype\s+html|html|head|body)\b", re.IGNORECASE)


def described(start: bytes) -> str:
    """Return what a file is that begins with these bytes (up to 4 KB count), with advice."""
    start = bytes(start[:4096])
    bare = start.removeprefix(b"\xef\xbb\xbf").lstrip()
    if start[4:8] == b"ftyp":
        return _of_boxes(start)
    if bare.startswith(b"<"):
        return _of_markup(bare)
    for begins, name in _STARTS:
        if start.startswith(begins) or bare.startswith(begins):
            return name
    if _NETPBM.match(start):
        return "a Netpbm image; convert it to PNG, JPEG or WebP"
    if not start.strip(b"\0"):
        return "zero bytes only, as of a download that failed" if start else "empty"
    return "none of PNG, JPEG, GIF, WebP, BMP and TIFF"


def _of_boxes(start: bytes) -> str:
    """Return which of the formats made of ISO boxes it is, by its brands."""
    brands = [start[8:12], *(start[at : at + 4] for at in range(16, 64, 4))]
    for brand in brands:
        if brand in _HEIF:
            return f"{_HEIF[brand]}; convert it to PNG, JPEG or WebP"
    return "a video (MP4 or QuickTime)"


def _of_markup(bare: bytes) -> str:
    if _SVG.search(bare):
        return "an SVG drawing, which has no pixels; render it as PNG"
    if _HTML.search(bare):
        return "an HTML page, perhaps the error of a server"
    return "XML text, perhaps the error of a server"
