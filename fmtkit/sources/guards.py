"""Guards: what must be true of bytes before the fast JSON parser may see them.

pyarrow's parser crashes on deep nesting and on `null` lines, stores bytes that are not UTF-8 and takes
two objects on one line. A hit here is a suspicion, not a verdict: the strict parser then judges each
line of that unit.
"""

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from fmtkit.sources.strict import MAX_DEPTH
from fmtkit.sources.structure import deepest

NEWLINE, RETURN, OPEN, CLOSE = 10, 13, 123, 125
_SPACES = (9, 13, 32)


@dataclass(frozen=True, slots=True)
class Lines:
    """Where the records of a block lie: offsets of their first and past-last bytes, blank lines apart.

    `numbers` are the 0-based physical lines within the block. CR before LF is outside the record.
    """

    starts: np.ndarray
    ends: np.ndarray
    numbers: np.ndarray
    blank: int


def find_lines(data: np.ndarray) -> Lines:
    """Find the records in a block of bytes (uint8) that ends at the end of a line."""
    ends = np.flatnonzero(data == NEWLINE)
    if len(data) and (len(ends) == 0 or ends[-1] != len(data) - 1):
        ends = np.append(ends, len(data))
    starts = np.empty_like(ends)
    if len(ends):
        starts[0] = 0
        starts[1:] = ends[:-1] + 1
    numbers = np.arange(len(ends))
    returns = (ends > starts) & (data[np.maximum(ends, 1) - 1] == RETURN)
    ends = ends - returns
    kept = ends > starts
    first = data[np.minimum(starts, max(len(data) - 1, 0))] if len(data) else starts
    for i in np.flatnonzero(kept & np.isin(first, _SPACES)):
        kept[i] = bool(bytes(data[starts[i] : ends[i]]).strip(b" \t\r"))
    blank = int(len(kept) - kept.sum())
    return Lines(starts[kept], ends[kept], numbers[kept], blank)


def is_utf8(buffer: pa.Buffer) -> bool:
    """Tell whether the bytes are UTF-8 as a whole."""
    offsets = pa.py_buffer(np.array([0, buffer.size], dtype=np.int64))
    try:
        pa.LargeStringArray.from_buffers(1, offsets, buffer).validate(full=True)
    except pa.ArrowInvalid:
        return False
    return True


def look_like_objects(data: np.ndarray, lines: Lines) -> bool:
    """Tell whether every record begins with `{` and ends with `}`."""
    return bool((data[lines.starts] == OPEN).all() and (data[lines.ends - 1] == CLOSE).all())


def is_shallow(data: np.ndarray, lines: Lines) -> bool:
    """Tell whether no record nests deeper than the limit."""
    # `[` and `{` differ in one bit: two passes over the bytes, and few hits to count by line.
    opened = np.flatnonzero((data | 0x20) == OPEN)
    if len(opened) - len(lines.starts) < MAX_DEPTH:
        return True
    if np.diff(np.searchsorted(opened, lines.starts), append=len(opened)).max() <= MAX_DEPTH:
        return True
    # Formulas and programs hold many brackets: tell those inside of strings apart.
    return deepest(data.tobytes()) <= MAX_DEPTH
