"""Columns of strings as bytes: offsets, the bytes at the seam of two columns, and parts of strings."""

from collections.abc import Iterable, Iterator

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from fmtkit.core import buffers

Bytes = npt.NDArray[np.uint8]
Ints = npt.NDArray[np.int64]

EMPTY = buffers.texts([""]).cast(pa.large_string())[0]
"""An empty string, as an Arrow scalar."""


def blocks(texts: pa.LargeStringArray, size: int) -> Iterator[pa.LargeStringArray]:
    """Split an array into slices of about `size` bytes, each with at least one string."""
    borders = borders_of(texts)
    start = 0
    while start < len(texts):
        stop = int(np.searchsorted(borders, borders[start] + size, side="left"))
        stop = min(max(stop, start + 1), len(texts))
        yield texts.slice(start, stop - start)
        start = stop


def borders_of(texts: pa.LargeStringArray) -> Ints:
    """Return the offset of each string in the buffer, and the end of the last one."""
    offsets = np.frombuffer(texts.buffers()[1], dtype=np.int64)
    return offsets[texts.offset : texts.offset + len(texts) + 1]


def flat(texts: pa.LargeStringArray) -> tuple[Bytes, Ints]:
    """Return the bytes of all strings without a copy, the offset of each, and the end of the last one."""
    borders = borders_of(texts)
    buffer = texts.buffers()[2]
    if buffer is None:
        return np.zeros(0, dtype=np.uint8), borders
    data = np.frombuffer(buffer, dtype=np.uint8)[borders[0] : borders[-1]]
    return data, borders - borders[0]


def seams(left: pa.Array, right: pa.Array) -> Ints:
    """Return `256 * last byte of left + first byte of right`; an empty side counts as byte 0."""
    data, borders = flat(filled_in(left))
    other, starts = flat(filled_in(right))
    last = np.zeros(len(left), dtype=np.int64)
    filled = borders[1:] > borders[:-1]
    last[filled] = data[borders[1:][filled] - 1]
    first = np.zeros(len(right), dtype=np.int64)
    filled = starts[1:] > starts[:-1]
    first[filled] = other[starts[:-1][filled]]
    return 256 * last + first


def of_rows(texts: pa.Array, rows: Ints) -> pa.LargeStringArray:
    """Return the strings of some rows."""
    return filled_in(texts.take(buffers.int64s(rows)))


def filled_in(texts: pa.Array) -> pa.LargeStringArray:
    """Return the strings, with empty ones instead of nulls."""
    return pc.fill_null(texts.cast(pa.large_string()), EMPTY)


def large(texts: Iterable[str]) -> pa.LargeStringArray:
    """Return strings as an Arrow array with 64-bit offsets."""
    return buffers.texts(texts).cast(pa.large_string())


def joined(left: pa.Array, right: pa.Array) -> pa.LargeStringArray:
    """Return the strings of both arrays, concatenated row by row."""
    return pc.binary_join_element_wise(left, right, EMPTY)


def ends_of(texts: pa.LargeStringArray, sizes: Ints, *, from_end: bool) -> pa.LargeStringArray:
    """Return the first or the last bytes of each string."""
    values = texts.cast(pa.large_binary()).to_pylist()
    numbers = sizes.tolist()
    if from_end:
        cut = [value[-size:] for value, size in zip(values, numbers, strict=True)]
    else:
        cut = [value[:size] for value, size in zip(values, numbers, strict=True)]
    return large(value.decode() for value in cut)
