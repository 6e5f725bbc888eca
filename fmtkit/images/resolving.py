"""Where the bytes of an image are that a row names: in the row, in a file, or at a URL.

Nothing is opened but what the source's owner put there: a path is one below the folder of the source file, or
below the folder that the user names (`image_folder`), with symbolic links followed; any other, absolute or by
`..`, is an error. So rows from elsewhere cannot make a conversion read files of the machine. URLs are not
fetched here (`fetching`).
"""

import base64
import binascii
import os
import re
import stat
from pathlib import Path
from urllib.parse import unquote, unquote_to_bytes

from fmtkit.core.credentials import public
from fmtkit.core.data_classes import dataclass
from fmtkit.core.errors import ImageError
from fmtkit.images.byte_ranges import missing

MOST_BYTES = 256 << 20
"""Bytes of one image."""
MISSING = "image_missing"
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+://")
# JPEG, PNG, GIF, WebP and TIFF, as the first bytes are written; "Qk" of BMP may begin a name.
_BASE64_IMAGES = ("/9j/", "iVBORw0KGgo", "R0lGOD", "UklGR", "SUkqA", "TU0AK")
_BASE64_TEXT = re.compile(r"[A-Za-z0-9+/_\s-]+={0,2}\s*")
_SHORTEST_BASE64 = 64
"""Characters of the base64 text of the smallest image; a shorter text is a path."""
_FROM_URL_SAFE = str.maketrans("-_", "+/", " \t\r\n")
_BLANKS = re.compile(r"\s+")


@dataclass(frozen=True)
class HeldImage:
    """An image whose bytes are in the row."""

    data: bytes | memoryview


@dataclass(frozen=True)
class StoredImage:
    """An image in a file that may be opened."""

    path: Path
    """Absolute, without symbolic links."""


@dataclass(frozen=True)
class RemoteImage:
    """An image at a URL."""

    url: str


ImageSource = HeldImage | StoredImage | RemoteImage


def resolve(reference: str, base_folder: Path, image_folder: Path | None = None) -> ImageSource:
    """Return where an image is that a row names.

    Args:
        reference: A data URI (base64 or percent-encoded), base64 text of an image, a URL or a path.
        base_folder: The folder of the source file, to which relative paths belong.
        image_folder: Another folder whose files may be opened, in which relative paths are looked up first.

    Raises:
        ImageError: With the code `image_missing` where nothing is named, or a file is not there or may not be
            opened; with `image_unreadable` where base64 is damaged.
    """
    text = reference.strip()
    if not text:
        raise ImageError("the reference is empty", MISSING)
    if text[:5].lower() == "data:":
        return HeldImage(_of_data_uri(text))
    if _is_base64(text):
        return HeldImage(_decoded(text))
    if text[:7].lower() == "file://":
        text = _of_file_uri(text)
    elif _SCHEME.match(text):
        return RemoteImage(text)
    return StoredImage(_allowed(text, base_folder, image_folder))


def public_reference(reference: str) -> str:
    """Return a reference as a message shows it: without a key in its URL, cut where it holds an image."""
    if reference[:5].lower() == "data:" or len(reference) > 200:
        return f"{reference[:40]}… ({len(reference):,} characters)"
    return public(reference)


def contents(source: HeldImage | StoredImage) -> bytes | memoryview:
    """Return the bytes of an image that is not at a URL.

    Raises:
        ImageError: The file cannot be read (`image_missing`), or is larger than MOST_BYTES.
    """
    if isinstance(source, HeldImage):
        return source.data
    try:
        # A pipe without a writer would block the process.
        file = os.open(source.path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0))
        try:
            state = os.fstat(file)
            if not stat.S_ISREG(state.st_mode):
                raise ImageError(f"{source.path} is no file", MISSING)
            if state.st_size > MOST_BYTES:
                raise ImageError(f"{source.path} is larger than {MOST_BYTES >> 20} MiB")
            with os.fdopen(file, "rb", closefd=False) as opened:
                return opened.read(MOST_BYTES)
        finally:
            os.close(file)
    except OSError as error:
        raise missing(source.path, error) from error


def _of_data_uri(text: str) -> bytes:
    about, comma, content = text[5:].partition(",")
    if not comma:
        raise ImageError("the data URI has no comma, and so no data")
    if about.rstrip().lower().endswith(";base64"):
        data = _decoded(unquote(content) if "%" in content else content)
    else:
        data = unquote_to_bytes(content)
    if not data:
        raise ImageError("the data URI is empty", MISSING)
    return data


def _is_base64(text: str) -> bool:
    return (
        len(text) >= _SHORTEST_BASE64
        and text.startswith(_BASE64_IMAGES)
        and _BASE64_TEXT.fullmatch(text) is not None
    )


def _decoded(text: str) -> bytes:
    """Return the bytes of base64 text, also with the alphabet of URLs, in lines, or without padding."""
    bare = _BLANKS.sub("", text).translate(_FROM_URL_SAFE).rstrip("=")
    try:
        return base64.b64decode(bare + "=" * (-len(bare) % 4), validate=True)
    except (binascii.Error, ValueError) as error:
        raise ImageError(f"its base64 text is damaged: {error}") from error


def _of_file_uri(text: str) -> str:
    host, slash, path = text[7:].partition("/")
    if host.lower() not in ("", "localhost"):
        raise ImageError(f"{text} names a file of another machine", MISSING)
    return unquote(slash + path)


def _allowed(text: str, base_folder: Path, image_folder: Path | None) -> Path:
    """Return the path of a file below one of the two folders."""
    folders = [folder for folder in (image_folder, base_folder) if folder is not None]
    outside: Path | None = None
    for folder in folders:
        try:
            root = folder.resolve()
            path = (root / text).resolve()
            is_there = path.exists()
        except (OSError, ValueError, RuntimeError) as error:
            # A name that is too long, one with NUL, a circle of links.
            said = error.strerror if isinstance(error, OSError) else str(error)
            raise ImageError(f"{public_reference(text)!r} is no path: {said}", MISSING) from error
        if not any(path.is_relative_to(other.resolve()) for other in folders):
            outside = path
        elif is_there:
            return path
    if outside is not None:
        raise ImageError(
            f"{public_reference(text)} is outside of the source's folder; --image-folder names another",
            MISSING,
        )
    raise ImageError(
        f"there is no file {public_reference(text)} in {' or '.join(map(str, folders))}", MISSING
    )
