"""Headers of images agree with Pillow, and whatever is damaged is one error in plain words."""

import io
import os
import struct
import subprocess
import sys
import time
import warnings
import zlib
from pathlib import Path

import image_samples as samples
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image, ImageOps

from fmtkit.core.errors import ImageError
from fmtkit.images import headers, other_files
from fmtkit.images.headers import Header, read_file_header, read_header

MODES = {
    "PNG": ("1", "L", "P", "RGB", "RGBA", "LA", "I;16"),
    "JPEG": ("1", "L", "RGB", "CMYK", "YCbCr"),
    "GIF": ("1", "L", "P", "RGB"),
    "WEBP": ("L", "RGB", "RGBA"),
    "BMP": ("1", "L", "P", "RGB", "RGBA"),
    "TIFF": ("1", "L", "P", "RGB", "RGBA", "LA", "I;16", "CMYK", "YCbCr", "I", "F"),
}
COLOURS = {
    "1": "grey",
    "L": "grey",
    "LA": "grey",
    "I;16": "grey",
    "I": "grey",
    "F": "grey",
    "P": "palette",
    "RGB": "rgb",
    "RGBA": "rgb",
    "CMYK": "cmyk",
    "YCbCr": "ycbcr",
}
BITS = {"1": 1, "I;16": 16, "I": 32, "F": 32}


def seen(data: bytes, form: str | None = None) -> tuple[Image.Image, Image.Image]:
    """Return an image as Pillow opens it and as `datasets` shows it."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        image = Image.open(io.BytesIO(data), formats=[form] if form else None)
        image.load()
        turned = image
        if image.getexif().get(samples.ORIENTATION) is not None:
            turned = ImageOps.exif_transpose(image)
    return image, turned


@pytest.mark.parametrize(("form", "mode"), [(f, m) for f in MODES for m in MODES[f]])
@pytest.mark.parametrize("size", [(1, 1), (3, 517), (640, 33)])
def test_a_header_says_what_pillow_opens(form, mode, size):
    data = samples.written(samples.picture(*size, mode), form)
    image, turned = seen(data)
    found = read_header(data)
    assert (found.format, found.width, found.height) == (image.format, *turned.size)
    assert found.stored_size == image.size == size
    if form == "GIF" or (form == "BMP" and mode in ("1", "L")):
        assert found.colours == "palette"  # all grey or not, it is one
    else:
        assert found.colours == COLOURS[image.mode]
        assert found.bits == BITS.get(image.mode, 8)
    assert found.has_alpha == (image.mode in ("RGBA", "LA"))
    assert not found.is_animated


@pytest.mark.parametrize("form", ["PNG", "JPEG", "WEBP", "TIFF"])
@pytest.mark.parametrize("orientation", range(10))
def test_width_and_height_are_those_after_exif(form, orientation):
    data = samples.oriented(form, orientation, 40, 30)
    _, turned = seen(data)
    found = read_header(data)
    assert (found.width, found.height) == turned.size
    assert found.stored_size == (40, 30)
    assert found.orientation == (orientation if 1 <= orientation <= 8 else 1)


XMP = b'<x:xmpmeta><rdf:Description tiff:Orientation="6"/></x:xmpmeta>'


def with_chunk(chunk: bytes, *, at_end: bool = False) -> bytes:
    data = samples.png()
    at = len(data) - 12 if at_end else 33
    return data[:at] + chunk + data[at:]


def profile(orientation: int) -> bytes:
    """Return EXIF as ImageMagick writes it into a PNG."""
    block = samples.exif(orientation)
    return b"\nexif\n%8d\n%s\n" % (len(block), block.hex().encode())


EXIF_CASES = {
    "jpeg xmp": samples.jpeg(xmp=XMP),
    "webp xmp": samples.written(samples.picture(), "WEBP", xmp=XMP),
    "png xmp": with_chunk(samples.png_chunk(b"iTXt", b"XML:com.adobe.xmp\0\0\0\0\0" + XMP)),
    "png packed xmp": with_chunk(
        samples.png_chunk(b"iTXt", b"XML:com.adobe.xmp\0\1\0\0\0" + zlib.compress(XMP))
    ),
    "exif before xmp": samples.jpeg(xmp=XMP, exif=samples.exif(3)),
    "exif without orientation": samples.jpeg(xmp=XMP, exif=Image.Exif().tobytes()),
    "behind the pixels": with_chunk(samples.png_chunk(b"eXIf", samples.exif(6)[6:]), at_end=True),
    "raw profile": with_chunk(samples.png_chunk(b"tEXt", b"Raw profile type exif\0" + profile(5))),
    "packed raw profile": with_chunk(
        samples.png_chunk(b"zTXt", b"Raw profile type exif\0\0" + zlib.compress(profile(8)))
    ),
    "two directories in a row": samples.jpeg(exif=b"Exif\0\0" + samples.exif(6)),
    "no exif in jpeg": samples.jpeg(exif=b"Exif\0\0garbage!"),
    "big-endian": samples.jpeg(
        exif=b"Exif\0\0MM\0*\0\0\0\x08\0\1\1\x12\0\3\0\0\0\1\0\6\0\0\0\0\0\0"
    ),
    "long": samples.jpeg(exif=b"Exif\0\0II*\0\x08\0\0\0\1\0\x12\1\4\0\1\0\0\0\6\0\0\0\0\0\0\0"),
    "text": samples.jpeg(exif=b"Exif\0\0II*\0\x08\0\0\0\1\0\x12\1\2\0\2\0\0\x006\0\0\0\0\0\0\0"),
    "cut": samples.jpeg(exif=samples.exif(6)[:20]),
    "empty": samples.jpeg(exif=b"Exif\0\0"),
}


@pytest.mark.parametrize("name", EXIF_CASES)
def test_metadata_are_read_as_pillow_reads_them(name):
    _, turned = seen(EXIF_CASES[name])
    found = read_header(EXIF_CASES[name])
    assert (found.width, found.height) == turned.size


@pytest.mark.parametrize(
    "data",
    [
        samples.written(samples.picture(), "PNG", exif=b"Exif\0\0garbage!"),
        samples.written(samples.picture(), "WEBP", exif=b"Exif\0\0MM"),
        samples.jpeg(exif=b"Exif\0\0garbage!", dpi=(72, 72)),
    ],
)
def test_an_image_whose_exif_pillow_refuses_is_an_error(data):
    with pytest.raises((SyntaxError, struct.error)):
        seen(data)
    with pytest.raises(ImageError, match="EXIF"):
        read_header(data)


@pytest.mark.slow
def test_datasets_and_transformers_turn_images_as_the_header_does(tmp_path):
    datasets = pytest.importorskip("datasets")
    image_utils = pytest.importorskip("transformers.image_utils")
    for form in ("JPEG", "PNG", "WEBP", "TIFF"):
        for orientation in range(1, 9):
            data = samples.oriented(form, orientation)
            found = read_header(data)
            shown = datasets.Image().decode_example({"bytes": data, "path": None})
            assert (found.width, found.height) == shown.size
            path = tmp_path / f"{orientation}.{form}"
            path.write_bytes(data)
            assert (found.width, found.height) == image_utils.load_image(str(path)).size


@pytest.mark.parametrize("form", ["GIF", "WEBP", "PNG", "TIFF"])
def test_frames_beyond_the_first_are_told(form):
    data = samples.animated(form)
    assert Image.open(io.BytesIO(data)).n_frames == 3
    found = read_header(data)
    assert found.is_animated
    assert (found.width, found.height) == (32, 24)


def test_a_frame_larger_than_the_screen_of_a_gif_counts():
    data = bytearray(samples.written(samples.picture(mode="P"), "GIF"))
    data[6:10] = struct.pack("<HH", 8, 8)
    assert Image.open(io.BytesIO(bytes(data))).size == (32, 24)
    assert read_header(bytes(data)).stored_size == (32, 24)


def test_a_long_gif_is_animated_if_it_says_that_it_repeats(monkeypatch):
    monkeypatch.setattr(headers, "MOST_STEPS", 3)
    assert read_header(samples.animated()).is_animated is False
    first, *others = (samples.picture(seed=number) for number in range(3))
    data = samples.written(first, "GIF", save_all=True, append_images=others, loop=0)
    assert read_header(data).is_animated is True


@pytest.mark.parametrize("name", samples.GOOD)
def test_every_sample_is_read_from_memory_and_from_a_file(name, tmp_path):
    make, size = samples.GOOD[name]
    data = make()
    _, turned = seen(data)
    assert turned.size == size
    (tmp_path / "x").write_bytes(data)
    found = read_header(data)
    assert (found.width, found.height) == size
    assert read_header(memoryview(data)) == read_header(bytearray(data)) == found
    assert read_file_header(tmp_path / "x") == found


SAID = {
    "empty": "empty",
    "png cut in its header": "PNG that ends within its header",
    "jpeg cut in its header": "JPEG that ends within its header",
    "bomb": "60000 x 60000 pixels, above the limit of 178,956,970",
    "png without a side": "0 x 24 pixels",
    "svg": "SVG",
    "html": "HTML page",
    "json": "JSON text",
    "pdf": "PDF",
    "avif": "AVIF",
    "heic": "HEIC",
    "pointer": "git lfs pull",
    "noise": "none of PNG, JPEG",
}


@pytest.mark.parametrize("name", samples.BAD)
def test_what_is_no_image_is_named(name, tmp_path):
    data = samples.BAD[name]()
    with pytest.raises(ImageError, match=SAID[name]) as caught:
        read_header(data)
    assert caught.value.code == "image_unreadable"
    (tmp_path / "x").write_bytes(data)
    with pytest.raises(ImageError) as of_file:
        read_file_header(tmp_path / "x")
    assert str(of_file.value) == str(caught.value)


@pytest.mark.parametrize(
    ("start", "said"),
    [
        (b"\xef\xbb\xbf <svg xmlns='x'>", "SVG"),
        (b"<?xml version='1.0'?><Error><Code>AccessDenied</Code></Error>", "XML text"),
        (b"\n\n<html>", "HTML page"),
        (b"/9j/4AAQSkZJRg", "base64 text of a JPEG"),
        (b"iVBORw0KGgoAAAA", "base64 text of a PNG"),
        (b"data:image/png;base64,iVBOR", "data URI"),
        (b"\0\0\0\x1cftypisom", "video"),
        (b"\0\0\0\x1cftypmif1\0\0\0\0mif1avif", "HEIF"),
        (b"PK\3\4", "ZIP"),
        (b"\x93NUMPY\1\0", "NumPy"),
        (bytes(100), "zero bytes only"),
        (b"P6\n2 2\n255\n", "Netpbm"),
        (b"PNG is a format", "none of"),
    ],
)
def test_other_files_are_told_by_their_beginning(start, said):
    assert said in other_files.described(start)


def test_a_jpeg_of_12_bits_and_one_of_2_layers_are_named_as_pillow_refuses_them():
    data = samples.jpeg_of_bits(12)
    with pytest.raises(Image.UnidentifiedImageError):
        Image.open(io.BytesIO(data))
    with pytest.raises(ImageError, match="JPEG of 12 bits"):
        read_header(data)
    layers = bytearray(samples.jpeg())
    layers[layers.index(b"\xff\xc0") + 9] = 2
    with pytest.raises(ImageError, match="2 layers"):
        read_header(bytes(layers))


def test_a_file_that_is_missing_a_folder_or_a_pipe_is_image_missing(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path / "none.png", tmp_path, tmp_path / "pipe", Path("a\0b")):
        with pytest.raises(ImageError) as caught:
            read_file_header(path)
        assert caught.value.code == "image_missing"


def test_little_is_read_of_a_large_file(tmp_path, monkeypatch):
    path = tmp_path / "large.jpg"
    path.write_bytes(samples.jpeg(exif=samples.exif(6)) + bytes(50 << 20))
    read = []
    original = os.read
    monkeypatch.setattr(os, "read", lambda file, size: read.append(size) or original(file, size))
    assert read_file_header(path).orientation == 6
    assert sum(read) <= 32 << 10


def test_a_header_of_endless_segments_ends(tmp_path):
    comment = b"\xff\xfe\0\x04ab"
    data = b"\xff\xd8" + comment * 100_000 + samples.jpeg()[2:]
    (tmp_path / "x").write_bytes(data)
    for read, given_ in ((read_header, data), (read_file_header, tmp_path / "x")):
        with pytest.raises(ImageError, match="JPEG"):
            read(given_)


def test_metadata_that_grow_cost_no_more_than_their_bytes():
    bomb = zlib.compress(bytes(1 << 20))
    chunk = samples.png_chunk(b"zTXt", b"Raw profile type exif\0\0" + bomb)
    segment = b"\xff\xe1\xff\xff" + b"Exif\0\0" + bytes(65_527)
    began = time.process_time()
    assert read_header(with_chunk(chunk * 4000)).width == 32
    jpeg = samples.jpeg(exif=samples.exif(6))
    assert read_header(jpeg[:2] + jpeg[2:20] + segment * 1000 + jpeg[20:]).stored_size == (32, 24)
    assert time.process_time() - began < 2


LIGHT = ["headers", "resolving", "visual_tokens", "findings", "fetching", "verifying"]


def test_importing_them_loads_no_package_that_is_heavy_or_optional():
    script = "".join(f"import fmtkit.images.{name}\n" for name in LIGHT)
    script += "import sys; print(*{name.partition('.')[0] for name in sys.modules})"
    done = subprocess.run(
        [sys.executable, "-c", script], check=True, capture_output=True, text=True
    )
    heavy = {"PIL", "torch", "transformers", "numpy", "pyarrow", "polars", "fsspec", "aiohttp"}
    assert not heavy & set(done.stdout.split())


EVERY = [make() for make, _ in samples.GOOD.values()] + [make() for make in samples.BAD.values()]


def check(data: bytes) -> Header | None:
    """Read a header and return it; None for the one error that is allowed."""
    try:
        found = read_header(data)
    except ImageError as error:
        said = str(error)
    else:
        assert 0 < found.width * found.height <= headers.MOST_PIXELS
        return found
    assert said.isprintable()
    assert len(said) < 200
    return None


@settings(max_examples=600, deadline=None)
@given(st.data())
def test_damaged_bytes_raise_nothing_else(data):
    image = bytearray(data.draw(st.sampled_from(EVERY)))
    for _ in range(data.draw(st.integers(1, 4))):
        # Most of it in the header.
        at = data.draw(st.integers(0, min(len(image), data.draw(st.sampled_from((40, 5000))))))
        kind = data.draw(st.sampled_from(("set", "cut", "insert", "remove")))
        some = data.draw(st.binary(min_size=1, max_size=8))
        if kind == "cut":
            del image[at:]
        elif kind == "remove":
            del image[at : at + len(some)]
        elif kind == "insert":
            image[at:at] = some
        else:
            image[at : at + len(some)] = some
    check(bytes(image))


@pytest.mark.parametrize("name", samples.GOOD)
def test_a_truncated_file_keeps_its_size_or_is_an_error(name):
    make, _ = samples.GOOD[name]
    data = make()
    whole = read_header(data)
    told = [check(data[:end]) for end in range(len(data))]
    for found in filter(None, told):
        # EXIF and frames may be behind what is left.
        assert sorted((found.width, found.height)) == sorted((whole.width, whole.height))
        assert found.format == whole.format
    if whole.format != "TIFF":  # its directory is at the end
        assert sum(map(bool, told)) > len(data) / 10 or len(data) < 100


@settings(max_examples=300, deadline=None)
@given(
    st.binary(max_size=200),
    st.sampled_from([b"\xff\xd8\xff", b"\x89PNG\r\n\x1a\n", b"GIF89a", b"BM", b"II*\0", b"MM\0+"]),
)
def test_bytes_behind_a_magic_number_raise_nothing_else(noise, magic):
    check(magic + noise)
    check(b"RIFF\0\0\0\0WEBPVP8X" + noise)


@settings(max_examples=200, deadline=None)
@given(st.data())
def test_where_pillow_opens_a_damaged_image_its_size_is_the_same_or_it_is_an_error(data):
    form = data.draw(st.sampled_from(["PNG", "JPEG", "GIF", "BMP"]))
    image = bytearray(samples.written(samples.picture(mode="P" if form == "GIF" else "RGB"), form))
    for _ in range(data.draw(st.integers(1, 3))):
        image[data.draw(st.integers(8, len(image) - 1))] = data.draw(st.integers(0, 255))
    found = check(bytes(image))
    try:
        _, turned = seen(bytes(image), form)
    except Exception:  # noqa: BLE001 - whatever Pillow raises
        return
    assert found is not None
    assert (found.width, found.height) == turned.size
