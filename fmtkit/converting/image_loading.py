"""Loading: an image as a row gives it becomes one as it is written, once its header is read."""

import base64
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from fmtkit.columns.image_values import RowImages, is_base64
from fmtkit.converting.convert_options import RowOptions
from fmtkit.core.errors import ImageError
from fmtkit.images.headers import read_file_header, read_header
from fmtkit.sources.marks import Media


@dataclass(frozen=True)
class ImageLoader:
    """How the images of one source are read."""

    folder: Path | None = None
    """Where paths begin: the folder of the source; None where it has none."""
    mode: str = "keep"

    @classmethod
    def of(cls, folder: Path, options: RowOptions) -> "ImageLoader":
        """Return what reads images as the options say."""
        return cls(folder, options.images or "keep")

    def size_of(self, images: RowImages) -> int:
        """Return about how many bytes the images of a row will have."""
        return sum(len(i.data or b"") for i in (*images.of_parts, *images.listed))

    def load_all(
        self, images: Sequence[Media]
    ) -> "list[tuple[bytes | None, str | None]] | ImageError":
        """Return the images of a row as `load` does, or why one cannot be read."""
        try:
            return [self.load(image) for image in images]
        except ImageError as error:
            return error

    def load(self, image: Media) -> tuple[bytes | None, str | None]:
        """Return bytes and path of an image as it is written.

        Raises:
            ImageError: if it is missing, or is no image that a model can be shown.
        """
        data, text = image.data, image.path or ""
        if data is None and (text.startswith("data:") or is_base64(text)):
            data, text = _decoded(text.partition(",")[2] or text), ""
        if data is not None:
            read_header(data)
            return data, text or None
        if "://" in text:
            raise ImageError(f"{text} is a URL, which --fetch-images fetches", "image_missing")
        path = (self.folder or Path()) / text
        if not path.is_file():
            raise ImageError(f"there is no file {text}", "image_missing")
        read_file_header(path)
        if self.mode == "embed":
            return path.read_bytes(), path.name
        return None, str(path)


def _decoded(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except ValueError as error:
        raise ImageError(f"its base64 is damaged ({error})") from error
