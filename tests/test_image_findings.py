"""What images lose in a processor, and boxes outside of them, are told without decoding."""

import io
import json
import struct
import zlib

import image_samples as samples
import pytest
from PIL import Image

from fmtkit.images import findings
from fmtkit.images.findings import SameImages, boxes_outside, frames_of, refusal, traps
from fmtkit.images.headers import Header, read_header
from fmtkit.images.visual_tokens import rule_of

WANTED = {
    "png 16 bit grey": ("clipped_bits",),
    "png alpha": ("alpha",),
    "png grey alpha": ("alpha",),
    "png exif": ("turned",),
    "jpeg cmyk": ("cmyk",),
    "jpeg exif 3": ("turned",),
    "jpeg exif 6": ("turned",),
    "gif animated": ("animated",),
    "webp alpha": ("alpha",),
    "webp animated": ("animated",),
    "webp exif": ("turned",),
    "tiff exif": ("turned",),
    "tiff two pages": ("animated",),
    "long and thin": ("thin",),
}


@pytest.mark.parametrize("name", samples.GOOD)
def test_what_a_processor_loses_is_named(name):
    header = read_header(samples.GOOD[name][0]())
    small = ("small",) if min(header.width, header.height) < 28 else ()
    assert traps(header) == (*WANTED.get(name, ()), *small)


def test_sizes_are_told_at_their_bounds():
    assert traps(Header("PNG", 28 * 200, 28)) == ()
    assert traps(Header("PNG", 28 * 200 + 1, 28)) == ("thin",)
    assert traps(Header("PNG", 27, 28)) == ("small",)
    assert traps(Header("PNG", 10_000, 8_947)) == ()
    assert traps(Header("PNG", 10_000, 8_948)) == ("huge",)
    assert all(findings.TRAPS[code] for code in findings.TRAPS)


def of_16_bits(colour: int, samples_of_pixel: int) -> bytes:
    """Return a PNG of one value, 0x1234, in all samples."""
    head = struct.pack(">IIBBBBB", 32, 32, 16, colour, 0, 0, 0)
    rows = (b"\0" + b"\x12\x34" * 32 * samples_of_pixel) * 32
    start = b"\x89PNG\r\n\x1a\n" + samples.png_chunk(b"IHDR", head)
    return start + samples.png_chunk(b"IDAT", zlib.compress(rows)) + samples.png_chunk(b"IEND", b"")


@pytest.mark.parametrize(("colour", "count"), [(0, 1), (2, 3), (4, 2), (6, 4)])
def test_pillow_makes_white_of_grey_of_16_bits_and_of_nothing_else(colour, count):
    data = of_16_bits(colour, count)
    seen = Image.open(io.BytesIO(data)).convert("RGB").getpixel((0, 0))
    assert (seen == (255, 255, 255)) == ("clipped_bits" in traps(read_header(data)))
    assert seen in ((255, 255, 255), (0x12, 0x12, 0x12))


@pytest.mark.slow
def test_processors_see_the_first_frame_of_an_animation():
    transformers = pytest.importorskip("transformers")
    for form in ("GIF", "WEBP"):
        data = samples.animated(form)
        image = Image.open(io.BytesIO(data))
        first = image.copy().convert("RGB")
        images = transformers.Qwen2VLImageProcessorPil(max_pixels=28 * 28 * 4)
        seen, alone = (images(one)["pixel_values"] for one in (image, first))
        assert (seen == alone).all()


@pytest.mark.slow
def test_processors_see_transparency_on_white_and_grey_of_16_bits_as_white():
    transformers = pytest.importorskip("transformers")
    images = transformers.Qwen2VLImageProcessorPil(max_pixels=28 * 28 * 4)
    white = images(Image.new("RGB", (56, 56), "white"))["pixel_values"]
    hidden = Image.new("RGBA", (56, 56), (200, 10, 10, 0))
    assert (images(hidden)["pixel_values"] == white).all()
    grey = Image.new("I;16", (56, 56), 0x1234)
    assert (images(grey)["pixel_values"] == white).all()


def test_a_size_that_a_processor_refuses_is_told(tmp_path):
    config = {"processor_class": "Qwen2VLProcessor"}
    (tmp_path / "processor_config.json").write_text(json.dumps(config))
    rule = rule_of(tmp_path)
    assert refusal(rule, Header("PNG", 100, 100)) is None
    assert "201 times" in refusal(rule, Header("PNG", 201, 1))


def test_images_that_are_all_the_same_are_told():
    same = SameImages()
    assert not same.are_equal
    same.add(samples.png())
    assert not same.are_equal
    same.add(memoryview(samples.png()))
    assert same.are_equal
    same.add(samples.png(seed=1))
    same.add(samples.png())
    assert not same.are_equal
    assert same.count == 4


def test_boxes_outside_of_their_image_are_told_in_each_frame():
    size = (640, 480)
    assert boxes_outside([[0, 0, 640, 480], (10.5, 20, 30, 40)], "pixels", size) == []
    assert boxes_outside([[0, 0, 1, 1]], "relative", size) == []
    assert boxes_outside([[0, 0, 1000, 1000]], "thousand", size) == []
    found = boxes_outside([[1, 1, 2, 2], [0, 0, 641, 480], [-1, 0, 5, 5]], "pixels", size)
    assert [(box.place, box.reason) for box in found] == [
        (1, "it reaches out of 640 x 480"),
        (2, "it reaches out of 640 x 480"),
    ]
    assert boxes_outside([[0, 0, 641, 480]], "pixels", size, slack=1) == []
    [box] = boxes_outside([[100, 100, 50, 60]], "pixels", size)
    assert "width, height" in box.reason
    for wrong in ([], [1, 2, 3], ["1", 2, 3, 4], [True, 0, 1, 1], [0, 0, float("nan"), 1]):
        [box] = boxes_outside([wrong], "pixels", size)
        assert box.reason == "it is not four numbers"


def test_the_frames_that_boxes_fit_are_told():
    assert frames_of([[0.1, 0.1, 0.9, 0.9]], (640, 480)) == ("pixels", "relative", "thousand")
    assert frames_of([[10, 10, 600, 400]], (640, 480)) == ("pixels", "thousand")
    assert frames_of([[10, 10, 900, 900]], (640, 480)) == ("thousand",)
    assert frames_of([[10, 10, 1500, 400]], (2000, 1000)) == ("pixels",)
    assert frames_of([[10, 10, 1500, 400]], (640, 480)) == ()
