"""The first directory of TIFF, as a file and as the block in which EXIF stands."""

import struct
from collections.abc import Collection

from fmtkit.core.data_classes import dataclass
from fmtkit.images.byte_ranges import Ranges

ORIENTATION = 0x0112
MOST_ENTRIES = 1024
"""More entries of a directory are not looked at; cameras write some sixty."""

_BYTE_ORDERS = {
    b"II*\0": ("<", False),
    b"MM\0*": (">", False),
    b"II+\0": ("<", True),
    b"MM\0+": (">", True),
    # Wrong, but Pillow takes them.
    b"II\0*": ("<", False),
    b"MM*\0": (">", False),
}
"""How TIFF begins -> the byte order as struct writes it, and whether offsets have 64 bits (BigTIFF)."""
_INTEGERS = {1: "B", 3: "H", 4: "L", 6: "b", 8: "h", 9: "l", 13: "L", 16: "Q", 17: "q", 18: "Q"}
"""Types of values that are read; the others are texts and fractions."""


def begins(start: bytes) -> bool:
    """Return whether bytes begin as TIFF does."""
    return start[:4] in _BYTE_ORDERS


@dataclass(frozen=True)
class Directory:
    """The tags of a directory that were asked for, and where the next one is."""

    first: dict[int, int]
    """Tag -> the first of its values; 0 for one that is no integer."""
    counts: dict[int, int]
    """Tag -> how many values it has."""
    next_at: int
    """Where the next directory begins; 0 if there is none."""
    is_whole: bool
    """Whether the bytes go on to its end."""


def first_directory(data: Ranges, wanted: Collection[int]) -> Directory:
    """Read the directory that the first bytes point to; entries beyond the end of the bytes are left out.

    Raises:
        CutShortError: The bytes end within the first 8 (BigTIFF: 16).
    """
    order, is_big = _BYTE_ORDERS[data.exactly(0, 4)]
    count_form, offset_form = (f"{order}Q", f"{order}Q") if is_big else (f"{order}H", f"{order}L")
    width = 8 if is_big else 4
    [at] = struct.unpack(offset_form, data.exactly(width, width))
    counted = data.some(at, struct.calcsize(count_form))
    first: dict[int, int] = {}
    counts: dict[int, int] = {}
    if len(counted) < struct.calcsize(count_form):
        return Directory(first, counts, 0, is_whole=False)
    [total] = struct.unpack(count_form, counted)
    at += len(counted)
    entry = struct.Struct(f"{order}HH{offset_form[1]}{width}s")
    block = data.some(at, min(total, MOST_ENTRIES) * entry.size)
    for place in range(0, len(block) - entry.size + 1, entry.size):
        tag, kind, many, value = entry.unpack_from(block, place)
        if tag not in wanted or not many:
            continue
        number = _first_value(data, order, (kind, many, value))
        if number is not None:
            first[tag], counts[tag] = number, many
    after = data.some(at + total * entry.size, width)
    next_at = struct.unpack(offset_form, after)[0] if len(after) == width else 0
    return Directory(first, counts, next_at, is_whole=len(block) >= total * entry.size)


def _first_value(data: Ranges, order: str, stored: tuple[int, int, bytes]) -> int | None:
    """Return the first of an entry's values; None where the bytes end before the last of them."""
    kind, many, value = stored
    if kind not in _INTEGERS:
        return 0
    one = struct.Struct(order + _INTEGERS[kind])
    if one.size * many > len(value):
        [at] = struct.unpack(order + ("Q" if len(value) == 8 else "L"), value)
        if not data.some(at + one.size * many - 1, 1):
            return None
        value = data.some(at, one.size)
        if len(value) < one.size:
            return None
    return int(one.unpack_from(value)[0])
