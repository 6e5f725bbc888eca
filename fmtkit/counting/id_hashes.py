"""Hashes of ids: of a string they follow from those of its pieces, wherever it is split.

The hash of ids x0, x1, ... is the sum of mixed(xi) * BASE**i modulo 2**64, so that the hash of a string is
that of its beginning, and BASE to the power of its tokens times that of the rest.
"""

from collections.abc import Iterable, Sequence
from functools import lru_cache
from itertools import chain

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int64]
Hashes = npt.NDArray[np.uint64]

BASE = 0x9E3779B97F4A7C15
"""Odd, so that it has an inverse."""
_INVERSE = pow(BASE, -1, 2**64)
_FACTORS = (0xBF58476D1CE4E5B9, 0x94D049BB133111EB)
"""The finalizer of splitmix64 (https://prng.di.unimi.it/splitmix64.c), which is public domain."""


def of(ids: Iterable[Sequence[int]], sizes: Sequence[int]) -> Hashes:
    """Return the hash of the ids of each text; `sizes` are their numbers."""
    counts = np.array(sizes, np.int64)
    total = np.concatenate(([0], np.cumsum(counts)))
    flat = np.fromiter(chain.from_iterable(ids), np.uint64, int(total[-1]))
    places = np.arange(len(sizes), dtype=np.int64)
    every = np.arange(len(flat) + 1, dtype=np.int64)
    return joined(mixed(flat), every, total[places], total[places + 1])


def mixed(values: Hashes) -> Hashes:
    """Return numbers of which each bit depends on all bits of the given ones."""
    found = values + np.uint64(BASE)
    for shift, factor in zip((30, 27), _FACTORS, strict=True):
        found = (found ^ (found >> np.uint64(shift))) * np.uint64(factor)
    return found ^ (found >> np.uint64(31))


def joined(hashes: Hashes, total: Ints, first: Ints, last: Ints) -> Hashes:
    """Return the hashes of strings that are the pieces from `first` to the one before `last`.

    `total` are the tokens before each piece, and of all pieces.
    """
    if not len(hashes):
        return np.zeros(len(first), np.uint64)
    sums = np.zeros(len(hashes) + 1, np.uint64)
    np.cumsum(hashes * _first_powers(int(total[-1]))[total[:-1]], out=sums[1:])
    found: Hashes = (sums[last] - sums[first]) * _powers(_INVERSE, total[first])
    return found


def _first_powers(count: int) -> Hashes:
    """Return at least so many powers of BASE."""
    return _table(1 << max(count, 1).bit_length())


@lru_cache(maxsize=32)
def _table(count: int) -> Hashes:
    powers = np.full(count, BASE, np.uint64)
    powers[0] = 1
    return np.cumprod(powers, dtype=np.uint64)


def _powers(base: int, exponents: Ints) -> Hashes:
    found = np.ones(len(exponents), np.uint64)
    left = exponents.astype(np.uint64)
    while left.any():
        odd = (left & np.uint64(1)).astype(bool)
        found[odd] *= np.uint64(base)
        base = base * base % 2**64
        left >>= np.uint64(1)
    return found


def in_order(hashes: Hashes, rows: Ints, count: int) -> Hashes:
    """Return one hash of each row's strings in their order; `rows` says which row each is of, ascending."""
    last = np.searchsorted(rows, np.arange(count), side="right")
    first = np.concatenate(([0], last[:-1])).astype(np.int64)
    every = np.arange(len(hashes) + 1, dtype=np.int64)
    return joined(mixed(hashes), every, first, last)
