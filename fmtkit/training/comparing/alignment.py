"""Alignment: which row of one dataset is which of another, whatever their order.

Rows that are equal meet by their hashes; of the others those with the same text; then those that have the
most words in common. What is left was on one side only.
"""

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from hashlib import blake2b

import numpy as np
import numpy.typing as npt
import polars as pl

from fmtkit.training.comparing.spool import Hashes, Row, Spool

Numbers = npt.NDArray[np.int64]

_BUDGET = 4_000_000
"""Words that are kept of each side to find rows by: of larger datasets a sample."""
_LEAST = 8
"""Words that are kept of each row at least."""
_COMMON = 64
"""Rows that a word may be in to be of any use."""
_ENOUGH = 0.2
"""Share of the shorter row's words that two rows must have in common, and not less than two of them."""
_TOGETHER = (1, 2, 4)
"""Words that are looked at together: where few words are used, only their order distinguishes rows."""


@dataclass(frozen=True)
class Aligned:
    """Pairs of row numbers, theirs and ours, by how they met; and the rows that met no other."""

    equal: Numbers
    """Pairs with the same ids and labels, shape (n, 2)."""
    different: Numbers
    only_theirs: Numbers
    only_ours: Numbers


def align(
    theirs: Spool, ours: Spool, decode: Callable[[Sequence[int]], str], control: frozenset[int]
) -> Aligned:
    """Align two datasets; deterministic, in memory that grows by some bytes a row.

    Args:
        theirs: Rows of the one.
        ours: Rows of the other.
        decode: Makes ids a text, to find rows that were tokenized otherwise.
        control: Ids of control tokens, which say nothing of a row.
    """
    left = np.arange(len(theirs), dtype=np.int64), np.arange(len(ours), dtype=np.int64)
    equal = _met(*left, theirs.hashes["whole"], ours.hashes["whole"])
    left = _rest(left, equal)
    found = [_met(*left, theirs.hashes["ids"][left[0]], ours.hashes["ids"][left[1]])]
    left = _rest(left, found[-1])

    def texts(spool: Spool, numbers: Numbers) -> Hashes:
        made = (_text_hash(spool[int(n)], decode, control) for n in numbers)
        return np.fromiter(made, np.uint64, len(numbers))

    if len(left[0]) and len(left[1]):
        found.append(_met(*left, texts(theirs, left[0]), texts(ours, left[1])))
        left = _rest(left, found[-1])
    if len(left[0]) and len(left[1]):
        found.append(_likest(theirs, ours, left, decode, control))
        left = _rest(left, found[-1])
    different = np.concatenate(found)
    return Aligned(equal, different[np.argsort(different[:, 0], kind="stable")], *left)


def _met(a: Numbers, b: Numbers, of_a: Hashes, of_b: Hashes) -> Numbers:
    """Pair equal hashes, the first of each side with the first of the other and so on."""

    def frame(numbers: Numbers, hashes: Hashes, name: str) -> pl.DataFrame:
        made = pl.DataFrame({name: numbers, "hash": hashes})
        return made.with_columns(nth=pl.int_range(pl.len()).over("hash"))

    both = frame(a, of_a, "a").join(frame(b, of_b, "b"), on=["hash", "nth"]).sort("a")
    return both.select("a", "b").to_numpy().reshape(-1, 2).astype(np.int64)


def _rest(left: tuple[Numbers, Numbers], met: Numbers) -> tuple[Numbers, Numbers]:
    return np.setdiff1d(left[0], met[:, 0]), np.setdiff1d(left[1], met[:, 1])


def _text_hash(
    row: Row, decode: Callable[[Sequence[int]], str], control: frozenset[int]
) -> np.uint64:
    digest = blake2b(digest_size=8)
    for ids in row.ids:
        text = decode([i for i in ids if i not in control])
        digest.update(re.sub(r"\s+", "", text).encode(errors="replace") + b"\0")
    return np.uint64(int.from_bytes(digest.digest(), "little"))


def _likest(
    theirs: Spool,
    ours: Spool,
    left: tuple[Numbers, Numbers],
    decode: Callable[[Sequence[int]], str],
    control: frozenset[int],
) -> Numbers:
    """Pair the rows that share the most of their rarer words, the most similar first."""
    a, b = (
        _words_of(spool, numbers, decode, control)
        for spool, numbers in zip((theirs, ours), left, strict=True)
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
    """Return row and hash of each word and of several that follow each other, or of a sample of them."""
    tokens = sum(spool[int(n)].length for n in numbers)
    one_in = np.uint64(max(1, 2 * tokens // _BUDGET))
    rows: list[Numbers] = []
    words: list[Hashes] = []
    for number in numbers:
        found = np.unique(np.fromiter(_words(spool[int(number)], decode, control), np.uint64))
        kept = np.union1d(found[:_LEAST], found[found % one_in == 0])
        words.append(kept)
        rows.append(np.full(len(kept), number, dtype=np.int64))
    return pl.DataFrame({"row": np.concatenate(rows), "word": np.concatenate(words)})


def _words(
    row: Row, decode: Callable[[Sequence[int]], str], control: frozenset[int]
) -> Iterator[int]:
    for ids in row.ids:
        spaced = "".join(" " if not run else decode(run) for run in _runs(ids, control))
        words = re.findall(r"\w+", spaced.lower())
        for count in _TOGETHER:
            for place in range(len(words) - count + 1):
                yield _word_hash(" ".join(words[place : place + count]))


def _runs(ids: Sequence[int], control: frozenset[int]) -> Iterator[list[int]]:
    """Yield the runs of tokens between control tokens, and an empty one for each of those."""
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
