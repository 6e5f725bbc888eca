"""Decoding tells damaged pixels within bounds; thumbnails are small, upright and safe in HTML."""

import base64
import html
import io
import struct
import sys
import time
import zlib

import image_samples as samples
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from fmtkit.core.errors import DependencyError, ImageError
from fmtkit.images import verifying
from fmtkit.images.headers import read_header
from fmtkit.images.verifying import thumbnail, verify


@pytest.mark.parametrize("name", samples.GOOD)
def test_good_images_are_decoded(name):
    data = samples.GOOD[name][0]()
    assert verify(data) == read_header(data)


@pytest.mark.parametrize("name", samples.CUT)
def test_a_truncated_image_has_a_header_and_no_pixels(name):
    data = samples.CUT[name]()
    assert read_header(data).width == 128
    with pytest.raises(ImageError, match="cannot be decoded") as caught:
        verify(data)
    assert caught.value.code == "image_unreadable"
    assert str(caught.value).isprintable()


@pytest.mark.parametrize("name", samples.BAD)
def test_what_has_no_header_is_not_given_to_pillow(name, monkeypatch):
    monkeypatch.setattr(Image, "open", None)
    with pytest.raises(ImageError) as caught:
        verify(samples.BAD[name]())
    assert "NoneType" not in str(caught.value)


def large_png(side: int) -> bytes:
    """Return a PNG of noise in many chunks."""
    rows = b"".join(b"\0" + samples.random_bytes(side) for _ in range(side))
    head = struct.pack(">IIBBBBB", side, side, 8, 0, 0, 0, 0)
    packed = zlib.compress(rows, 1)
    chunks = [packed[at : at + 8192] for at in range(0, len(packed), 8192)]
    data = b"".join(samples.png_chunk(b"IDAT", chunk) for chunk in chunks)
    start = b"\x89PNG\r\n\x1a\n" + samples.png_chunk(b"IHDR", head)
    return start + data + samples.png_chunk(b"IEND", b"")


def test_decoding_ends_when_its_time_is_over():
    data = large_png(1500)
    assert verify(data).width == 1500
    began = time.monotonic()
    with pytest.raises(ImageError, match="takes longer than 0 seconds"):
        verify(data, seconds=0)
    assert time.monotonic() - began < 5


def test_a_jpeg_of_endless_scans_is_not_decoded():
    data = samples.jpeg(progressive=True)
    at = data.index(b"\xff\xda")
    with pytest.raises(ImageError, match="more than 500 scans"):
        verify(data[:at] + data[at:-2] * 600 + data[-2:])


def test_without_pillow_the_command_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "PIL.Image", None)
    with pytest.raises(DependencyError, match=r"pip install 'fmtkit\[images\]'"):
        verify(samples.png())


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_damaged_pixels_raise_nothing_else(data):
    made = data.draw(st.sampled_from(sorted(samples.GOOD)))
    image = bytearray(samples.GOOD[made][0]())
    for _ in range(data.draw(st.integers(1, 4))):
        image[data.draw(st.integers(0, len(image) - 1))] = data.draw(st.integers(0, 255))
    try:
        verify(bytes(image))
    except ImageError as error:
        said = str(error)
        assert said.isprintable()
    told = thumbnail(bytes(image), 16)
    assert told is None or told.startswith("data:image/")


def opened(uri: str) -> Image.Image:
    kind, _, text = uri.partition(";base64,")
    image = Image.open(io.BytesIO(base64.b64decode(text, validate=True)))
    assert kind == f"data:image/{image.format.lower()}"
    return image


@pytest.mark.parametrize("name", samples.GOOD)
def test_a_thumbnail_is_small_upright_and_without_what_html_escapes(name):
    make, (width, height) = samples.GOOD[name]
    uri = thumbnail(make(), 16)
    assert html.escape(uri, quote=True) == uri
    image = opened(uri)
    assert max(image.size) <= 16
    assert (image.width > image.height) == (width > height)
    assert not image.getexif()


def test_a_thumbnail_is_never_larger_than_the_image_or_than_the_limit():
    assert opened(thumbnail(samples.png(20, 10), 500)).size == (20, 10)
    assert opened(thumbnail(samples.jpeg(3000, 300), 10_000)).size == (1024, 102)
    assert opened(thumbnail(samples.png(20, 10), 0)).size == (1, 1)


def test_a_thumbnail_of_16_bits_is_not_white():
    image = opened(thumbnail(samples.png(64, 64, "I;16"), 64)).convert("L")
    low, high = image.getextrema()
    assert (low, high) == pytest.approx((0, 255), abs=12)
    grey = samples.picture(64, 64, "L")
    differing = [abs(a - b) for a, b in zip(image.tobytes(), grey.tobytes(), strict=True)]
    assert sum(differing) / len(differing) < 4


def test_transparency_is_kept_and_metadata_are_not():
    assert opened(thumbnail(samples.png(mode="RGBA"), 16)).mode == "RGBA"
    assert b"Exif" not in base64.b64decode(thumbnail(samples.oriented("JPEG", 6), 16).split(",")[1])


@pytest.mark.parametrize("name", samples.BAD)
def test_what_is_no_image_has_no_thumbnail(name):
    assert thumbnail(samples.BAD[name](), 64) is None


def test_without_pillow_a_small_original_is_shown_and_a_large_one_is_not(monkeypatch):
    small, tiff = samples.png(), samples.written(samples.picture(), "TIFF")
    large = large_png(300)
    assert thumbnail(large, 64) is not None
    monkeypatch.setitem(sys.modules, "PIL.Image", None)
    assert thumbnail(small, 4) == samples.data_uri(small)
    assert thumbnail(large, 64) is None
    assert len(large) > verifying.MOST_SMALL
    assert thumbnail(tiff, 64) is None
    assert thumbnail(samples.SVG, 64) is None
