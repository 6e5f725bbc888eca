"""Scripts: which alphabets a text is written in, by Unicode block; no guess at the language."""

from collections.abc import Iterable

import numpy as np

RANGES: tuple[tuple[int, int, str], ...] = (
    (0x0041, 0x024F, "Latin"),
    (0x0370, 0x03FF, "Greek"),
    (0x0400, 0x052F, "Cyrillic"),
    (0x0530, 0x058F, "Armenian"),
    (0x0590, 0x05FF, "Hebrew"),
    (0x0600, 0x077F, "Arabic"),
    (0x0900, 0x097F, "Devanagari"),
    (0x0980, 0x09FF, "Bengali"),
    (0x0A00, 0x0DFF, "other Indic"),
    (0x0E00, 0x0E7F, "Thai"),
    (0x10A0, 0x10FF, "Georgian"),
    (0x1100, 0x11FF, "Hangul"),
    (0x1E00, 0x1EFF, "Latin"),
    (0x1F00, 0x1FFF, "Greek"),
    (0x3040, 0x30FF, "Kana"),
    (0x3400, 0x9FFF, "Han"),
    (0xAC00, 0xD7AF, "Hangul"),
    (0x20000, 0x3FFFF, "Han"),
)
"""First and last code point of blocks of letters, and the script."""

_STARTS = np.array([first for first, _, _ in RANGES])
_ENDS = np.array([last for _, last, _ in RANGES])


def count_scripts(texts: Iterable[str]) -> dict[str, int]:
    """Count the letters of each script; characters of unknown scripts are left out."""
    points = np.frombuffer("".join(texts).encode("utf-32-le", "replace"), dtype=np.uint32)
    ascii_letters = ((points | 0x20) >= 0x61) & ((points | 0x20) <= 0x7A)
    wanted = points[ascii_letters | (points >= 0xC0)]
    place = np.searchsorted(_STARTS, wanted, side="right") - 1
    inside = place[(place >= 0) & (wanted <= _ENDS[place])]
    counts = np.bincount(inside, minlength=len(RANGES)).tolist()
    found: dict[str, int] = {}
    for (_, _, script), count in zip(RANGES, counts, strict=True):
        if count:
            found[script] = found.get(script, 0) + count
    return found
