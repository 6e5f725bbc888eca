"""What a maximum length costs: rows and tokens lost, and rows that are no longer worth training on.

Three ways to deal with a row that is too long: drop it, cut its start, cut its end. Cutting the end
takes the end of turn first, then the reply, then the difference between two replies; cutting the
start takes the prompt. All figures but those of pairs that become equal follow from histograms, for any
length.
"""

from collections.abc import Sequence
from dataclasses import field

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from fmtkit.core.data_classes import dataclass
from fmtkit.counting.lengths import RowLengths, Tally
from fmtkit.masks.masked import common_prefix
from fmtkit.tokenizers.tokens import Tokenizer

Ints = npt.NDArray[np.int64]

LADDER = (256, 512, 1024, 2048, 4096, 8192, 16384, 32768, 65536, 131072)
WAYS = ("drop", "truncate-start", "truncate-end")
EXAMPLES = 20
EVERYTHING = 1 << 40


@dataclass(frozen=True)
class Cut:
    """What one way costs at one length."""

    max_length: int
    way: str
    rows_lost: int
    """Rows that are gone: dropped for their length, or without a token left to learn from."""
    rows_cut: int
    tokens_lost: int
    rows_equal: int
    """Pairs whose sides are the same tokens afterwards."""
    rows_empty: int
    """Rows that lost their whole reply (cut at the end) or prompt (cut at the start)."""
    rows_without_end: int
    """Rows in which a side lost its end of turn, so that the model does not learn to stop there."""
    equal_rows: tuple[int, ...] = ()
    """The first rows that become equal, by number."""


@dataclass(frozen=True)
class Cutting:
    """The whole report."""

    rows: int
    tokens: int
    cuts: tuple[Cut, ...]
    loss_budget: float
    """Share of the rows that may be lost."""
    smallest_max_length: int
    """The smallest length that drops no more rows than the budget allows."""


@dataclass
class CuttingTally:
    """Collect what `report` needs, batch by batch."""

    ladder: tuple[int, ...] = LADDER
    sides: Tally = field(default_factory=Tally)
    longest: Tally = field(default_factory=Tally)
    tokens: dict[int, int] = field(default_factory=dict)
    prompts: Tally = field(default_factory=Tally)
    replies: Tally = field(default_factory=Tally)
    equal: dict[tuple[int, str], list[int]] = field(default_factory=dict)
    equal_count: dict[tuple[int, str], int] = field(default_factory=dict)

    def add(
        self,
        lengths: RowLengths,
        texts: dict[str, pa.Array],
        rows: Ints,
        tokenizer: Tokenizer,
        before: Ints | None = None,
    ) -> None:
        """Add a batch; `rows` are the numbers of its rows in the input.

        `before` are the tokens of images and of BOS before each: the lengths include them, the texts do not.
        """
        longest, sides = lengths.longest, [lengths.columns[side] for side in lengths.sides]
        total = np.sum(sides, axis=0)
        for side in sides:
            self.sides.add(side)
        self.longest.add(longest)
        values, where = np.unique(longest, return_inverse=True)
        sums = np.bincount(where, weights=total).astype(np.int64)
        for value, number in zip(values.tolist(), sums.tolist(), strict=True):
            self.tokens[value] = self.tokens.get(value, 0) + number
        prompt = lengths.columns.get("prompt")
        if prompt is not None and lengths.sides != ("prompt",):
            self.prompts.add(prompt)
            self.replies.add(np.min([side - prompt for side in sides], axis=0))
        if "chosen" in texts:
            before = np.zeros(len(rows), np.int64) if before is None else before
            self._add_equal(lengths, texts, rows, tokenizer, before)

    def absorb(self, other: "CuttingTally", first: int) -> None:
        """Add the rows of another tally, whose row 0 is row `first` here."""
        for mine, its in (
            (self.sides, other.sides),
            (self.longest, other.longest),
            (self.prompts, other.prompts),
            (self.replies, other.replies),
        ):
            mine.absorb(its)
        for value, number in other.tokens.items():
            self.tokens[value] = self.tokens.get(value, 0) + number
        for key, count in other.equal_count.items():
            self.equal_count[key] = self.equal_count.get(key, 0) + count
            kept = self.equal.setdefault(key, [])
            kept.extend(row + first for row in other.equal[key][: EXAMPLES - len(kept)])

    def _add_equal(
        self,
        lengths: RowLengths,
        texts: dict[str, pa.Array],
        rows: Ints,
        tokenizer: Tokenizer,
        before: Ints,
    ) -> None:
        """Find pairs that become equal: those that agree in at least this many first or last tokens."""
        prompt, chosen, rejected = (texts[name] for name in ("prompt", "chosen", "rejected"))
        shorter = np.min([lengths.columns[side] for side in lengths.sides], axis=0)
        for way in ("truncate-end", "truncate-start"):
            shared = _shared_bytes(chosen, rejected, way)
            # A token has at least one byte, which bounds the number of tokens that can agree.
            context = lengths.columns["prompt"] if way == "truncate-end" else 0
            bound = np.minimum(shorter, context + shared)
            sure = lengths.columns["prompt"] if way == "truncate-end" else np.zeros_like(shorter)
            open_rows = [
                i for i in np.flatnonzero(bound > sure).tolist() if self._between(sure[i], bound[i])
            ]
            agree = np.minimum(sure, shorter)
            for i in open_rows:
                asked = prompt[i].as_py()
                one, other = (asked + side[i].as_py() for side in (chosen, rejected))
                agree[i] = _agreement(tokenizer, one, other, way)
                # Both sides begin with the prompt, and with what is before it.
                agree[i] += before[i] if way == "truncate-end" else 0
            for limit in self.ladder:
                equal = rows[(agree >= limit) & (shorter >= limit)]
                key = (limit, way)
                self.equal_count[key] = self.equal_count.get(key, 0) + len(equal)
                kept = self.equal.setdefault(key, [])
                kept.extend(equal[: EXAMPLES - len(kept)].tolist())

    def _between(self, low: int, high: int) -> bool:
        return any(low < limit <= high for limit in self.ladder)

    def report(self, loss_budget: float = 0.01) -> Cutting | None:
        """Make the report; None where no row was added."""
        values, times = self.longest.sorted()
        if len(values) == 0:
            return None
        rows, tokens = int(times.sum()), sum(self.tokens.values())
        # The longest rows go first: as many as the budget allows are above the length.
        kept = np.searchsorted(np.cumsum(times), rows - int(loss_budget * rows))
        cuts = [self._cut(limit, way) for limit in self._useful(int(values[-1])) for way in WAYS]
        return Cutting(rows, tokens, tuple(cuts), loss_budget, int(values[kept]))

    def _useful(self, longest: int) -> Sequence[int]:
        """Leave out lengths that cut nothing, except for the first of them."""
        whole = [limit for limit in self.ladder if limit >= longest]
        return [limit for limit in self.ladder if limit < longest] + whole[:1]

    def _cut(self, limit: int, way: str) -> Cut:
        long_rows = self.longest.longer_than(limit)
        if way == "drop":
            lost = sum(tokens for length, tokens in self.tokens.items() if length > limit)
            return Cut(limit, way, long_rows, 0, lost, 0, 0, 0)
        lost = self.sides.beyond(limit)
        equal = self.equal_count.get((limit, way), 0)
        examples = tuple(self.equal.get((limit, way), ()))
        if way == "truncate-start":
            # The prompt goes first: it is gone if the reply itself fills the length.
            gone = self.replies.longer_than(limit - 1)
            return Cut(limit, way, 0, long_rows, lost, equal, gone, 0, examples)
        gone = self.prompts.longer_than(limit - 1)
        return Cut(limit, way, gone, long_rows - gone, lost, equal, gone, long_rows, examples)


def _agreement(tokenizer: Tokenizer, left: str, right: str, way: str) -> int:
    """Count the first or last tokens that two texts have in common."""
    one, other = (tokenizer.encode(text).ids for text in (left, right))
    if way == "truncate-start":
        one, other = one[::-1], other[::-1]
    return common_prefix(one, other)


def _shared_bytes(left: pa.Array, right: pa.Array, way: str) -> Ints:
    """Bound the bytes that the rest of two texts has in common once the other end is cut off."""
    pairs = zip(left.to_pylist(), right.to_pylist(), strict=True)
    return np.array([_agree(a.encode(), b.encode(), way) for a, b in pairs], dtype=np.int64)


def _agree(one: bytes, other: bytes, way: str) -> int:
    if way == "truncate-start":
        one, other = one[::-1], other[::-1]
    size = min(len(one), len(other))
    if one[:size] == other[:size]:
        # From the end, the prompt before the shorter text may agree with the longer one too.
        return EVERYTHING if way == "truncate-start" else size
    step = 1
    # Doubling, then halving: most replies differ within a few bytes.
    while one[:step] == other[:step]:
        step *= 2
    low, high = step // 2, min(step, size)
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if one[:middle] == other[:middle] else (low, middle - 1)
    return low
