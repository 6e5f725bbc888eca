"""Alignment of two datasets: pairs the rows of one with those of the other, whatever their order.

Where one side prepared the very rows of the other, those of one row are paired. Of two conversions that left
nothing out those of one number are, if no more rows are equal in another order. Otherwise equal rows are
paired by their hashes; of the others those with the same ids; then those with the same text; then those that
have the most words in common. The rest are on one side only.
"""

import re
from collections.abc import Callable, Iterator, Sequence
from hashlib import blake2b

import numpy as np
import polars as pl

from fmtkit.core.data_classes import dataclass
from fmtkit.diffing.spool import Hashes, Numbers, Spool
from fmtkit.masks.masked import TokenRow

Keys = Hashes | Numbers

_BUDGET = 4_000_000
"""Words kept of each side; of larger datasets a sample of the words."""
_LEAST = 8
"""Words kept of each row, at least."""
_COMMON = 64
"""A word that is in more rows than this is ignored."""
_ENOUGH = 0.2
"""Share of the shorter row's words that two rows must have in common, and at least two words."""
_TOGETHER = (1, 2, 4)
"""Lengths of the word n-grams compared: of rows with few different words only the order differs."""


@dataclass(frozen=True)
class Aligned:
    """Pairs of row numbers, left and right, and the rows without a counterpart."""

    equal: Numbers
    """Pairs with the same ids and labels, shape (n, 2)."""
    different: Numbers
    only_left: Numbers
    only_right: Numbers


def align(
    left: Spool,
    right: Spool,
    decode: Callable[[Sequence[int]], str],
    control: frozenset[int],
    *,
    same_rows: bool,
) -> Aligned:
    """Align two datasets; deterministic, with a few bytes of memory per row.

    Args:
        left: Rows of the first dataset.
        right: Rows of the second dataset.
        decode: Decodes ids, to find rows that were tokenized differently.
        control: Ids of control tokens, which are not compared.
        same_rows: Whether the numbers of both count the same rows.
    """
    waiting = np.arange(len(left), dtype=np.int64), np.arange(len(right), dtype=np.int64)
    equal = _paired(*waiting, left.hashes["rows"], right.hashes["rows"])
    if left.numbers is not None and right.numbers is not None:
        by_number = _by_number(left, right, left.numbers, right.numbers)
        is_whole = not len(by_number.only_left) and not len(by_number.only_right)
        if same_rows or (is_whole and len(equal) <= len(by_number.equal)):
            return by_number
    waiting = _rest(waiting, equal)
    differing = [_paired(*waiting, left.hashes["ids"][waiting[0]], right.hashes["ids"][waiting[1]])]
    waiting = _rest(waiting, differing[-1])

    def text_hashes(spool: Spool, numbers: Numbers) -> Hashes:
        hashes = (_text_hash(spool[int(n)], decode, control) for n in numbers)
        return np.fromiter(hashes, np.uint64, len(numbers))

    if len(waiting[0]) and len(waiting[1]):
        hashed = text_hashes(left, waiting[0]), text_hashes(right, waiting[1])
        differing.append(_paired(*waiting, *hashed))
        waiting = _rest(waiting, differing[-1])
    if len(waiting[0]) and len(waiting[1]):
        differing.append(_most_similar(left, right, waiting, decode, control))
        waiting = _rest(waiting, differing[-1])
    different = np.concatenate(differing)
    return Aligned(equal, different[np.argsort(different[:, 0], kind="stable")], *waiting)


def _by_number(left: Spool, right: Spool, of_left: Numbers, of_right: Numbers) -> Aligned:
    """Pair what came from one row, its parts in their order."""
    every = np.arange(len(left), dtype=np.int64), np.arange(len(right), dtype=np.int64)
    pairs = _paired(*every, of_left, of_right)
    same = left.hashes["rows"][pairs[:, 0]] == right.hashes["rows"][pairs[:, 1]]
    return Aligned(pairs[same], pairs[~same], *_rest(every, pairs))


def _paired(a: Numbers, b: Numbers, of_a: Keys, of_b: Keys) -> Numbers:
    """Pair equal keys: the first of one side with the first of the other, and so on."""

    def frame(numbers: Numbers, keys: Keys, name: str) -> pl.DataFrame:
        keyed = pl.DataFrame({name: numbers, "hash": keys})
        return keyed.with_columns(nth=pl.int_range(pl.len()).over("hash"))

    both = frame(a, of_a, "a").join(frame(b, of_b, "b"), on=["hash", "nth"]).sort("a")
    return both.select("a", "b").to_numpy().reshape(-1, 2).astype(np.int64)


def _rest(left: tuple[Numbers, Numbers], pairs: Numbers) -> tuple[Numbers, Numbers]:
    return np.setdiff1d(left[0], pairs[:, 0]), np.setdiff1d(left[1], pairs[:, 1])


def _text_hash(
    row: TokenRow, decode: Callable[[Sequence[int]], str], control: frozenset[int]
) -> np.uint64:
    digest = blake2b(digest_size=8)
    for one in row.sequences:
        text = decode([i for i in one.ids.tolist() if i not in control])
        digest.update(re.sub(r"\s+", "", text).encode(errors="replace") + b"\0")
    return np.uint64(int.from_bytes(digest.digest(), "little"))


def _most_similar(
    left: Spool,
    right: Spool,
    waiting: tuple[Numbers, Numbers],
    decode: Callable[[Sequence[int]], str],
    control: frozenset[int],
) -> Numbers:
    """Pair the rows that share the most of their rarer words, the most similar first."""
    a, b = (
        _words_of(spool, numbers, decode, control)
        for spool, numbers in zip((left, right), waiting, strict=True)
    )
    sizes = [f.group_by("row").agg(size=pl.len()) for f in (a, b)]
    rare = [
        f.with_columns(df=pl.len().over("word")).filter(pl.col("df") <= _COMMON) for f in (a, b)
    ]
    shared = (
        rare[0]
        .join(rare[1], on="word", suffix="_b")
        .with_columns(weight=1 / (pl.col("df") * pl.col("df_b")))
        .group_by("row", "row_b")
        .agg(shared=pl.len(), weight=pl.col("weight").sum())
        .join(sizes[0], on="row")
        .join(sizes[1], left_on="row_b", right_on="row", suffix="_b")
        .filter(pl.col("shared") >= _ENOUGH * pl.min_horizontal("size", "size_b"))
        .filter(pl.col("shared") >= pl.min_horizontal(pl.max_horizontal("size", "size_b"), 2))
        .sort(["weight", "row", "row_b"], descending=[True, False, False])
    )
    taken_a: set[int] = set()
    taken_b: set[int] = set()
    pairs = []
    for one, other in shared.select("row", "row_b").iter_rows():
        if one not in taken_a and other not in taken_b:
            taken_a.add(one)
            taken_b.add(other)
            pairs.append((one, other))
    return np.array(pairs, dtype=np.int64).reshape(-1, 2)


def _words_of(
    spool: Spool,
    numbers: Numbers,
    decode: Callable[[Sequence[int]], str],
    control: frozenset[int],
) -> pl.DataFrame:
    """Return row number and hash of each word n-gram, or of a sample of them."""
    tokens = sum(spool[int(n)].length for n in numbers)
    one_in = np.uint64(max(1, 2 * tokens // _BUDGET))
    rows: list[Numbers] = []
    words: list[Hashes] = []
    for number in numbers:
        hashes = np.unique(np.fromiter(_words(spool[int(number)], decode, control), np.uint64))
        kept = np.union1d(hashes[:_LEAST], hashes[hashes % one_in == 0])
        words.append(kept)
        rows.append(np.full(len(kept), number, dtype=np.int64))
    return pl.DataFrame({"row": np.concatenate(rows), "word": np.concatenate(words)})


def _words(
    row: TokenRow, decode: Callable[[Sequence[int]], str], control: frozenset[int]
) -> Iterator[int]:
    for one in row.sequences:
        runs = _runs(one.ids.tolist(), control)
        spaced = "".join(" " if not run else decode(run) for run in runs)
        words = re.findall(r"\w+", spaced.lower())
        for count in _TOGETHER:
            for place in range(len(words) - count + 1):
                yield _word_hash(" ".join(words[place : place + count]))


def _runs(ids: Sequence[int], control: frozenset[int]) -> Iterator[list[int]]:
    """Yield the runs of tokens between control tokens, and an empty run for each control token."""
    run: list[int] = []
    for one in ids:
        if one in control:
            yield run
            yield []
            run = []
        else:
            run.append(one)
    yield run


def _word_hash(word: str) -> int:
    return int.from_bytes(blake2b(word.encode(errors="replace"), digest_size=8).digest(), "little")
