"""What may be wrong with the images of a dataset, told from headers, bytes and boxes, without decoding.

These are data for findings of `inspect`; none of them makes a row a bad one.
"""

import hashlib
import math
from collections.abc import Iterable, Sequence
from dataclasses import field
from typing import Literal

from fmtkit.core.data_classes import dataclass
from fmtkit.core.errors import ImageError
from fmtkit.images.headers import Header
from fmtkit.images.visual_tokens import Rule

Trap = Literal["animated", "clipped_bits", "alpha", "cmyk", "turned", "huge", "thin", "small"]
TRAPS: dict[Trap, str] = {
    "animated": "it has several frames or pages; only the first one is seen",
    "clipped_bits": "it is grey of 16 or 32 bits; converted to RGB, values above 255 become white",
    "alpha": "it is transparent; it is seen on white, by older versions without its transparency",
    "cmyk": "it has the colours of print (CMYK); converted to RGB without its profile, they are shifted",
    "turned": "EXIF turns it; boxes and points may be of the image before that",
    "huge": "it has more pixels than Pillow opens without a warning",
    "thin": "one side is more than 200 times the other; Qwen's processor refuses that, others make it vast",
    "small": "a side is shorter than 28 pixels, a patch of Qwen's; it is enlarged, by older versions refused",
}
"""Code -> what is meant, as processors of transformers 5.23 with Pillow have it. All are taken: the row is
trained on, as the sentence says."""
THIN = 200
SMALL = 28
HUGE = 1024 * 1024 * 1024 // 4 // 3
"""Pixels from which on Pillow warns (MAX_IMAGE_PIXELS)."""


def traps(header: Header) -> tuple[Trap, ...]:
    """Return the codes, of TRAPS, of what an image loses or risks when a processor takes it."""
    long, short = max(header.width, header.height), min(header.width, header.height)
    found: dict[Trap, bool] = {
        "animated": header.is_animated,
        # Pillow makes 8 bits of grey with transparency, as of colours, when it opens it.
        "clipped_bits": header.colours == "grey" and header.bits > 8 and not header.has_alpha,
        "alpha": header.has_alpha,
        "cmyk": header.colours == "cmyk",
        "turned": header.orientation != 1,
        "huge": header.width * header.height > HUGE,
        "thin": long > THIN * short,
        "small": short < SMALL,
    }
    return tuple(code for code, is_found in found.items() if is_found)


def refusal(rule: Rule, header: Header) -> str | None:
    """Return why the processor of a model refuses an image of that size; None if it takes it."""
    try:
        rule.count(header.width, header.height)
    except ImageError as error:
        return str(error)
    return None


@dataclass
class SameImages:
    """Whether all images of a dataset are the same bytes: a placeholder, a broken export."""

    count: int = 0
    """Images so far."""
    _first: bytes = field(default=b"", repr=False)
    _differ: bool = False

    def add(self, data: bytes | memoryview) -> None:
        """Look at one more image; once two differ nothing more is read."""
        self.count += 1
        if self._differ:
            return
        digest = hashlib.blake2b(data, digest_size=16).digest()
        if self.count == 1:
            self._first = digest
        self._differ = digest != self._first

    def absorb(self, other: "SameImages") -> None:
        """Add the images that another has looked at."""
        if self.count and other.count:
            self._differ |= other._differ or self._first != other._first
        elif other.count:
            self._first, self._differ = other._first, other._differ
        self.count += other.count

    @property
    def are_equal(self) -> bool:
        """Return whether there are two images or more, and no two differ."""
        return self.count > 1 and not self._differ


Frame = Literal["pixels", "relative", "thousand"]
"""What the numbers of a box count: pixels, parts of the side (0 to 1), or thousandths of it (0 to 1000)."""
_SIDES: dict[Frame, tuple[float, float] | None] = {
    "pixels": None,
    "relative": (1.0, 1.0),
    "thousand": (1000.0, 1000.0),
}


@dataclass(frozen=True, slots=True)
class BadBox:
    """A box that is not within its image."""

    place: int
    """Of the box in the list, from 0."""
    reason: str


def boxes_outside(
    boxes: Iterable[Sequence[float]], frame: Frame, size: tuple[int, int], *, slack: float = 0.0
) -> list[BadBox]:
    """Return the boxes `[x1, y1, x2, y2]` that are none, or reach out of their image.

    Args:
        boxes: Left, top, right and bottom of each, in the frame.
        frame: What the numbers count.
        size: Width and height of the image in pixels, before or after its orientation as the boxes are.
        slack: How far out a box may reach, in the frame.
    """
    wide, high = _SIDES[frame] or size
    found = []
    for place, box in enumerate(boxes):
        reason = _wrong_with(box, (wide, high), slack)
        if reason:
            found.append(BadBox(place, reason))
    return found


def _wrong_with(box: Sequence[float], sides: tuple[float, float], slack: float) -> str | None:
    if len(box) != 4 or not all(_is_number(value) for value in box):
        return "it is not four numbers"
    left, top, right, bottom = box
    if right < left or bottom < top:
        return "its end is before its beginning; perhaps it is x, y, width, height"
    if min(left, top) < -slack or right > sides[0] + slack or bottom > sides[1] + slack:
        return f"it reaches out of {sides[0]:g} x {sides[1]:g}"
    return None


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def frames_of(boxes: Iterable[Sequence[float]], size: tuple[int, int]) -> tuple[Frame, ...]:
    """Return the frames of reference in which all boxes lie inside of an image of that size.

    Boxes of small pictures fit several; none means that they are of another image, or of another size of it.
    """
    held = list(boxes)
    return tuple(frame for frame in _SIDES if not boxes_outside(held, frame, size))
