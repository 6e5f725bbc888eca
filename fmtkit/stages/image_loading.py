"""Loading: an image as a row gives it becomes one as it is written, once its header is read."""

import hashlib
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from fmtkit.columns.image_values import RowImages
from fmtkit.core.data_classes import dataclass
from fmtkit.core.errors import ImageError, OptionError
from fmtkit.core.image_columns import StoredImage, subtype
from fmtkit.images import resolving
from fmtkit.images.headers import read_file_header, read_header
from fmtkit.images.resolving import ImageSource, RemoteImage
from fmtkit.options.convert_options import RowOptions
from fmtkit.sources.marks import Media

KEEP, EMBED, PATHS = "keep", "embed", "paths"
_FETCHED_BYTES = 1 << 20
"""Estimated bytes of an image at a URL, before it is fetched."""
Fetched = Mapping[str, bytes | ImageError]
"""URL -> the image, or why it could not be fetched."""


@dataclass(frozen=True)
class ImageLoader:
    """How the images of one source are read."""

    folder: Path
    """The folder of the source, to which paths are relative."""
    image_folder: Path | None = None
    """Another folder whose files may be opened; it is searched first."""
    mode: str = KEEP
    fetches: bool = False
    verifies: bool = False
    out: Path | None = None
    """In mode `paths`, where images that are no files are written."""

    @classmethod
    def of(cls, folder: Path, options: RowOptions) -> "ImageLoader":
        """Return what reads the images of a source in a folder as the options say.

        Raises:
            OptionError: if images are to be files, but there is no output next to which to write them.
            DependencyError: if they are to be decoded, and Pillow is not installed.
        """
        mode, out = options.images or KEEP, None
        if mode == PATHS:
            if not options.out or "://" in options.out:
                raise OptionError(
                    "--images paths writes files beside OUT, which is not a local one"
                )
            out = Path(options.out).absolute()
            out = out.with_name(f"{out.stem}.images")
        named = Path(options.image_folder).absolute() if options.image_folder else None
        if options.verify_images:
            from fmtkit.images.verifying import need_pillow

            need_pillow("--verify-images")
        return cls(folder, named, mode, options.fetch_images, options.verify_images, out)

    def size_of(self, images: RowImages) -> int:
        """Return about how many bytes the images of a row will have."""
        return sum(map(self._size_of, (*images.of_parts, *images.listed)))

    def _size_of(self, image: Media) -> int:
        if image.data is not None:
            return len(image.data)
        try:
            source = self._resolved(image)
        except ImageError:
            return 0
        if isinstance(source, resolving.StoredImage):
            return source.path.stat().st_size if self.mode == EMBED else 0
        return _FETCHED_BYTES if isinstance(source, RemoteImage) else len(source.data)

    def _resolved(self, image: Media) -> ImageSource:
        if image.data is not None:
            return resolving.HeldImage(image.data)
        return resolving.resolve(image.path or "", self.folder, self.image_folder)

    def fetched(self, images: Iterable[Media]) -> Fetched:
        """Fetch the images that are at URLs, if that is requested."""
        if not self.fetches:
            return {}
        from fmtkit.images.fetching import fetch_images

        urls = {image.path for image in images if image.path and image.data is None}
        return dict(fetch_images(sorted(url for url in urls if "://" in url[:16])))

    def load_all(self, images: Sequence[Media], fetched: Fetched) -> list[StoredImage] | ImageError:
        """Return the images of a row as `load` does, or which one cannot be read and why."""
        found: list[StoredImage] = []
        for number, image in enumerate(images, 1):
            try:
                found.append(self.load(image, fetched))
            except ImageError as error:
                name = resolving.public_reference(image.path) if image.path else f"image {number}"
                said = str(error)
                return error if name in said else ImageError(f"{name}: {said}", error.code)
        return found

    def load(self, image: Media, fetched: Fetched) -> StoredImage:
        """Return bytes and path of an image as it is written.

        Raises:
            ImageError: if it is missing, or is no supported image.
        """
        source = self._resolved(image)
        if isinstance(source, RemoteImage):
            found = fetched.get(source.url)
            if found is None:
                shown = resolving.public_reference(source.url)
                raise ImageError(f"{shown} is a URL: --fetch-images fetches it", "image_missing")
            if isinstance(found, ImageError):
                raise found
            source = resolving.HeldImage(found)
        if isinstance(source, resolving.HeldImage):
            read_header(source.data)
            self._verify(source.data)
            name = Path(image.path).name if image.data is not None and image.path else None
            return self._held(source.data, name)
        if self.mode != EMBED and not self.verifies:
            read_file_header(source.path)
            return None, str(source.path)
        data = resolving.contents(source)
        read_header(data)
        self._verify(data)
        return (data, source.path.name) if self.mode == EMBED else (None, str(source.path))

    def _verify(self, data: bytes | memoryview) -> None:
        if self.verifies:
            from fmtkit.images.verifying import verify

            verify(bytes(data))

    def _held(self, data: bytes | memoryview, name: str | None) -> StoredImage:
        """Return an image whose bytes are there: these, or the file that they are written to."""
        if self.out is None:
            return data, name
        path = self.out / f"{hashlib.sha256(data).hexdigest()[:32]}.{subtype(data)}"
        if not path.exists():
            self.out.mkdir(parents=True, exist_ok=True)
            # Other workers may write the same image: each has a name of its own until it is whole.
            with tempfile.NamedTemporaryFile(dir=self.out, delete=False) as file:
                file.write(data)
            Path(file.name).chmod(0o644)
            Path(file.name).replace(path)
        return None, str(path)
