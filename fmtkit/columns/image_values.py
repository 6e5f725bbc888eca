"""Images as rows give them: in a column of their own, or as parts of a content.

Sources write an image as bytes, a path, a URL, a data URI or bare base64, alone or under one of a few
keys. Here they become `Media`, bytes or the text that says where they are; what that text means is found
when the image is read (`fmtkit.images`).
"""

import re
from collections.abc import Iterator, Mapping
from typing import Any

from fmtkit.core.data_classes import dataclass
from fmtkit.core.message_keys import is_image_part
from fmtkit.sources.marks import Media, NotText


@dataclass(frozen=True)
class RowImages:
    """The images of a row: those that a column lists, and those of the parts of each other column.

    A row that has this may have no image: a part may stand for one that is not there.
    """

    listed: tuple[Media, ...] = ()
    parts: tuple[tuple[Media, ...], ...] = ()
    are_shown: bool = False
    """Whether parts of contents say where images are."""
    is_marked: bool = False
    """Whether a text has the character that stands for an image (`core.message_keys.IMAGE`)."""

    @property
    def of_parts(self) -> tuple[Media, ...]:
        """Return the images of the parts, once where a conversation begins as another does."""
        found: tuple[Media, ...] = ()
        for images in self.parts:
            if images[: len(found)] == found:
                found = images
            elif found[: len(images)] != images:
                found += images
        return found


COLUMNS = ("images", "image")
"""Columns of a source that hold the images of a row, the one that counts first."""
REJECTED = "rejected_images"
"""ms-swift's column of the images of a worse reply."""
PLACEHOLDER = "<image>"
"""What stands for an image in the texts of most layouts."""
_KEYS = ("image_url", "image", "url", "path", "base64", "data", "source", "bytes")
"""Keys under which an image is, the usual one first; OpenAI's `image_url` is an object with a URL."""
_BESIDE = frozenset({"type", "text", "detail", "cache_control", "format", "media_type", "index"})
"""Keys of a part that say nothing about which image it is; those for its size begin with _SIZES."""
_SIZES = ("min_", "max_", "resized_")
_NAMED = re.compile(
    r"data:image/|[^\n]*\.(?:png|jpe?g|jfif|gif|webp|bmp|tiff?|avif|heic|svg)(?:[?#].*)?\Z",
    re.IGNORECASE,
)
_ENCODED = re.compile(r"(?:iVBORw0KGgo|/9j/|R0lGOD|UklGR|Qk[0-9A-Za-z+/]{2})[A-Za-z0-9+/\s]{24}")
"""How the base64 of an image begins: PNG, JPEG, GIF, WebP, BMP."""


_SIGNATURES = (b"\x89PNG", b"\xff\xd8\xff", b"GIF8", b"BM", b"II*\0", b"MM\0*")


class UnreadableImageError(ValueError):
    """A value that names an image in a form that fmtkit does not read."""


def images_of(value: Any) -> list[Media]:
    """Return the images that a column holds; null, "", false, 0, {}, [] and [null] are none.

    Raises UnreadableImageError for a value that is no image.
    """
    if not value:
        return []
    if isinstance(value, list):
        return [image for item in value for image in images_of(item)]
    found = _image_of(value)
    if found is None:
        raise UnreadableImageError
    return [found]


def _image_of(value: Any) -> Media | None:
    """Return the image that a value is; None where it names none."""
    if isinstance(value, Media):
        return value
    if isinstance(value, str):
        return Media(None, value) if value.strip() else None
    if isinstance(value, NotText):
        return Media(value.data)
    if not isinstance(value, Mapping):
        raise UnreadableImageError
    there = [key for key in _KEYS if value.get(key) not in (None, "")]
    if "bytes" in there and isinstance(path := value.get("path"), str):
        held = _image_of(value["bytes"])
        return None if held is None else Media(held.data, held.path if held.data is None else path)
    if there:
        return _image_of(value[there[0]])
    others = (k for k, held in value.items() if held is not None and k not in _BESIDE)
    if any(not key.startswith(_SIZES) and key not in _KEYS for key in others):
        raise UnreadableImageError
    return None


def image_of_part(part: Mapping[str, Any]) -> Media | None:
    """Return the image of such a part; None where it stands for the next image of the row.

    Raises UnreadableImageError where it says which image it is in another way, such as the id of a file.
    """
    return _image_of(part)


def images_in(content: Any) -> Iterator[Media | None]:
    """Yield the image of each such part of a content."""
    for part in content if isinstance(content, list) else ():
        if is_image_part(part):
            yield image_of_part(part)


def is_like_images(value: Any) -> bool:
    """Return whether the value of a column is images beyond doubt: a name alone may be that of anything."""
    if isinstance(value, list):
        held = [item for item in value if item is not None]
        return bool(held) and all(map(is_like_images, held))
    if isinstance(value, Media | NotText):
        return True
    if isinstance(value, str):
        # The end of a path or a URL says what it is; of bytes in base64 it is the beginning.
        begun, end = value[:64].lstrip(), value[-256:].rstrip()
        return any(map(bool, (_NAMED.match(begun), _ENCODED.match(begun), _NAMED.match(end))))
    if isinstance(value, Mapping):
        held = [value[key] for key in _KEYS if value.get(key) is not None]
        return bool(held) and is_like_images(held[0])
    return False


def is_stored(value: Any) -> bool:
    """Return whether a value is images that a column stores whole, whatever its name."""
    if isinstance(value, list):
        return bool(value) and all(map(is_stored, value))
    if isinstance(value, Media):
        data = bytes((value.data or b"")[:12])
        is_webp = data.startswith(b"RIFF") and data[8:12] == b"WEBP"
        return is_webp or data.startswith(_SIGNATURES) or (not data and is_like_images(value.path))
    return isinstance(value, str) and value.startswith("data:image/")


def is_base64(text: str) -> bool:
    """Return whether a text is the base64 of an image, without a media type before it."""
    return _ENCODED.match(text) is not None
