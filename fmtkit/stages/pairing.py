"""Pairing: makes preference rows of a prompt with ranked replies, by a policy; and unpairing.

Ties make no pair. Rows without a pair are counted.
"""

import re
from bisect import bisect_right
from collections.abc import Callable
from functools import cached_property
from hashlib import blake2b
from itertools import pairwise
from typing import Any

import numpy as np
import polars as pl
from polars import Expr

from fmtkit.columns.shared_turns import distinct_conversations
from fmtkit.core.buffers import Int64s
from fmtkit.core.buffers import ends as ends_of
from fmtkit.core.data_classes import dataclass
from fmtkit.core.errors import OptionError, UnknownNameError

POLICIES = {
    "best-worst": "the best reply against the worst",
    "best-next": "the best reply against the best of the rest",
    "best-random": "the best reply against one of the rest, chosen by a hash keyed with --seed",
    "adjacent": "each reply against the next one down",
    "all": "every better reply against every worse one",
    "margin:M": "every pair whose scores differ by at least M",
    "none": "keep the ranking as it is",
}
_RANKING = "__ranking"
"""The number of a ranking; `__row` is that of the source row, which may hold several rankings."""
_MARGIN = re.compile(r"margin:(\d+(?:\.\d+)?)")


@dataclass(frozen=True)
class Paired:
    """The pairs of rankings, as places of their replies: a pair's rows are made where they are used.

    All pairs of n replies are n * n / 2 rows. So they are kept as ranges: entry i stands for one better reply
    against each of the replies from `begins[i]` to `ends[i]`, without those that say the same.

    A source row may hold several rankings (`fmtkit.columns.expansion`): it is without a pair if none of them
    makes one; `some_without_pair` counts the rankings without a pair in the other rows.
    """

    rankings: pl.DataFrame
    """The other columns, with `__row`: a row for each ranking."""
    replies: pl.Series
    """The replies of all rankings, the best of each first."""
    words: Int64s
    """A number for each reply: equal numbers, equal replies."""
    ranking: Int64s
    """The ranking of each entry."""
    better: Int64s
    begins: Int64s
    ends: Int64s
    without_pair: pl.Series
    tied: int
    some_without_pair: int
    count: int
    """The number of pairs."""

    @property
    def frame(self) -> pl.DataFrame:
        """Return the rows of all pairs, with `__row`."""
        return self.rows(0, int(self._firsts[-1]))

    def rows(self, first: int, stop: int) -> pl.DataFrame:
        """Return the rows of some pairs; places count replies that say the same, too."""
        places = np.arange(first, stop)
        entries = np.searchsorted(self._firsts, places, side="right") - 1
        better = self.better[entries]
        worse = self.begins[entries] + places - self._firsts[entries]
        differ = self.words[better] != self.words[worse]
        rankings = self.rankings.select(pl.all().gather(self.ranking[entries][differ]))
        return rankings.with_columns(
            self.replies.gather(better[differ]).alias("chosen"),
            self.replies.gather(worse[differ]).alias("rejected"),
        )

    @cached_property
    def _firsts(self) -> Int64s:
        """The place at which each entry begins, and the end of the last."""
        return ends_of(self.ends - self.begins)

    @cached_property
    def _sizes(self) -> tuple[Int64s, Int64s]:
        """The bytes of each reply, added up, and those of what is repeated in every pair of an entry."""
        replies = _text_bytes(self.replies.alias("reply").to_frame())
        others = _text_bytes(self.rankings.drop("__row"))
        return ends_of(replies), ROW_BYTES + others[self.ranking] + replies[self.better]

    def nbytes(self, place: int) -> int:
        """Return the bytes of text of the pairs before a place."""
        entry = int(np.searchsorted(self._firsts, place, side="right")) - 1
        before = int(self._bytes_before[entry])
        if entry == len(self.better):
            return before
        replies, each = self._sizes
        begin, pairs = int(self.begins[entry]), place - int(self._firsts[entry])
        return before + pairs * int(each[entry]) + int(replies[begin + pairs] - replies[begin])

    @cached_property
    def _bytes_before(self) -> Int64s:
        replies, each = self._sizes
        return ends_of((self.ends - self.begins) * each + replies[self.ends] - replies[self.begins])

    def parts(self, size: int, most: int) -> "list[Part]":
        """Cut the pairs between source rows into parts of about `size` bytes.

        A row of more than `most` bytes is in parts of its own, cut where they have `size` bytes.
        """
        rows = self.rankings.get_column("__row").to_numpy()[self.ranking]
        if not len(rows):
            return [Part(0, 0)]
        entries = np.flatnonzero(np.diff(rows, prepend=rows[0] - 1))
        bounds = [*self._firsts[entries].tolist(), int(self._firsts[-1])]
        made: list[Part] = []
        number = -1
        for entry, (first, stop) in zip(entries.tolist(), pairwise(bounds), strict=True):
            begin = self.nbytes(first)
            if self.nbytes(stop) - begin > most:
                made += [
                    Part(*cut, int(rows[entry])) for cut in pairwise(self._cuts(first, stop, size))
                ]
                number = -1
            elif begin // size == number:
                made[-1] = Part(made[-1].first, stop)
            else:
                made.append(Part(first, stop))
                number = begin // size
        return made

    def _cuts(self, first: int, stop: int, size: int) -> list[int]:
        cuts = [first]
        while cuts[-1] < stop:
            at = cuts[-1]
            end = bisect_right(range(at, stop), self.nbytes(at) + size, key=self.nbytes) + at - 1
            cuts.append(min(max(end, at + 1), stop))
        return cuts


@dataclass(frozen=True)
class Part:
    """Some pairs, as places in `Paired`; `row` is the source row that is too large for one part."""

    first: int
    stop: int
    row: int | None = None


ROW_BYTES = 64
"""What a row takes beside its text: offsets, lengths, roles."""


def _text_bytes(frame: pl.DataFrame) -> Int64s:
    """Return the bytes of text in each row of a frame."""
    total = np.zeros(frame.height, np.int64)
    for name, dtype in frame.schema.items():
        size = _size_of(pl.col(name), dtype)
        if size is not None:
            total += frame.select(size.fill_null(0).cast(pl.Int64)).to_series().to_numpy()
    return total


def _size_of(value: Expr, dtype: Any) -> Expr | None:
    """Return the bytes of text in a value; None for values without text."""
    if dtype == pl.String:
        return value.str.len_bytes()
    if isinstance(dtype, pl.List):
        inner = _size_of(pl.element(), dtype.inner)
        return None if inner is None else value.list.eval(inner).list.sum()
    if isinstance(dtype, pl.Struct):
        fields = (_size_of(value.struct.field(f.name), f.dtype) for f in dtype.fields)
        known = [size.fill_null(0) for size in fields if size is not None]
        return pl.sum_horizontal(known) if known else None
    return None


def check_policy(policy: str) -> str:
    """Return the policy; raise UnknownNameError or OptionError if there is none of that name."""
    if policy in POLICIES or _MARGIN.fullmatch(policy):
        if policy == "margin:M":
            raise OptionError("pairs=margin:M: M is a number, as in margin:0.5")
        return policy
    raise UnknownNameError("pair policy", policy, POLICIES)


def pair_up(frame: pl.DataFrame, policy: str, seed: int = 0) -> Paired:
    """Pair the replies of a frame with prompt, replies (list of conversations), scores and `__row`.

    Each row of the frame is one ranking, and both sides of a pair are replies of that ranking. Its pairs
    are in the order of the better reply, then of the worse; equal scores keep the order of the source. Two
    equal replies make no pair.
    """
    others = [name for name in frame.columns if name not in ("replies", "scores")]
    frame = frame.with_columns(pl.int_range(pl.len()).alias(_RANKING))
    long = (
        frame.select(_RANKING, "replies", "scores")
        .explode("replies", "scores", empty_as_null=True)
        .with_columns(place=pl.int_range(pl.len()).over(_RANKING))
        .sort(_RANKING, pl.col("scores"), "place", descending=[False, True, False], nulls_last=True)
        .with_columns(
            rank=pl.int_range(pl.len()).over(_RANKING), level=_level(), place=pl.int_range(pl.len())
        )
    )
    replies = long.get_column("replies")
    words = distinct_conversations(replies)
    long = long.drop("replies").with_columns(words=pl.Series(words))
    name = policy.partition(":")[0]
    better, begins, ends = (
        _ranges(long, _least(policy))
        if name in ("all", "margin")
        else _picked(long, replies, name, seed)
    )
    ranking = long.get_column(_RANKING).to_numpy()[better]
    pairs = ends - begins - _same(words, better, begins, ends)
    paired = np.zeros(frame.height, np.bool_)
    paired[ranking[pairs > 0]] = True
    rows = frame.get_column("__row")
    with_pair = rows.is_in(rows.filter(pl.Series(paired, dtype=pl.Boolean)).implode())
    tied = frame.select(
        (pl.col("scores").list.n_unique() < pl.col("scores").list.len()).sum()
    ).item()
    return Paired(
        rankings=frame.select(others),
        replies=replies,
        words=words,
        ranking=ranking,
        better=better,
        begins=begins,
        ends=ends,
        without_pair=rows.filter(~with_pair).unique(maintain_order=True),
        tied=int(tied),
        some_without_pair=int((with_pair.to_numpy() & ~paired).sum()),
        count=int(pairs.sum()),
    )


def _least(policy: str) -> float | None:
    """Return the least difference of scores that a policy asks for."""
    found = _MARGIN.fullmatch(policy)
    return float(found[1]) if found else None


def _ranges(long: pl.DataFrame, margin: float | None) -> tuple[Int64s, Int64s, Int64s]:
    """Return each reply that is better than others, and the range of those."""
    level = long.get_column("level").fill_null(0).to_numpy().astype(np.int64)
    ranking = long.get_column(_RANKING).to_numpy()
    # The replies of a ranking without a score come last.
    new = np.diff(ranking, prepend=-1) != 0
    starts = np.flatnonzero(new | (np.diff(level, prepend=-1) != 0))
    sizes = np.diff(np.append(starts, len(level)))
    begins = np.repeat(starts + sizes, sizes)
    firsts = np.flatnonzero(new)
    lengths = np.diff(np.append(firsts, len(level)))
    scored = np.add.reduceat(level > 0, firsts) if len(firsts) else lengths
    ends = np.repeat(firsts + scored, lengths)
    if margin is not None:
        scores = long.get_column("scores").fill_null(0.0).to_numpy()
        begins = _far_enough(scores, begins, ends, margin)
    better = np.flatnonzero((level > 0) & (begins < ends))
    return better, begins[better], ends[better]


def _far_enough(scores: Any, begins: Int64s, ends: Int64s, margin: float) -> Int64s:
    """Move the begin of each range of falling scores to the first that is lower by at least the margin."""
    low, high = begins.copy(), np.maximum(begins, ends)
    own = np.arange(len(scores))
    while (open_ := low < high).any():
        middle = (low + high) // 2
        far = np.zeros(len(scores), np.bool_)
        far[open_] = scores[own[open_]] - scores[middle[open_]] >= margin
        high = np.where(open_ & far, middle, high)
        low = np.where(open_ & ~far, middle + 1, low)
    return low


def _same(words: Int64s, better: Int64s, begins: Int64s, ends: Int64s) -> Int64s:
    """Count the replies of each range that say the same as the better one."""
    size = len(words) + 1
    keys = np.sort(words * size + np.arange(len(words)))
    own = words[better] * size
    found: Int64s = np.searchsorted(keys, own + ends) - np.searchsorted(keys, own + begins)
    return found


def _picked(
    long: pl.DataFrame, replies: pl.Series, policy: str, seed: int
) -> tuple[Int64s, Int64s, Int64s]:
    """Return the pairs of policies that take a few of each ranking."""
    better = long.select(_RANKING, "rank", "level", "place", "words")
    worse = long.select(
        _RANKING,
        rank_worse="rank",
        level_worse="level",
        place_worse="place",
        words_worse="words",
    )
    candidates = (
        _neighbours(better, worse)
        if policy == "adjacent"
        else better.filter(pl.col("rank") == 0).join(
            worse, on=_RANKING, how="inner", maintain_order="left_right"
        )
    )
    pairs = candidates.filter(
        (pl.col("rank") < pl.col("rank_worse"))
        & (pl.col("level") < pl.col("level_worse"))
        & (pl.col("words") != pl.col("words_worse"))
    )
    if policy == "best-random":
        pairs = pairs.with_columns(draw=_draws(pairs, replies, seed))
    pairs = _CHOOSE[policy](pairs).sort(_RANKING, "rank", "rank_worse")
    places = pairs.get_column("place_worse").to_numpy().astype(np.int64)
    return pairs.get_column("place").to_numpy().astype(np.int64), places, places + 1


def unpair(frame: pl.DataFrame) -> pl.DataFrame:
    """Make two rows of each pair: its chosen reply with label true, then its rejected one, false.

    The rows are those of TRL's `unpair_preference_dataset`; every other column is repeated.
    """
    others = pl.exclude("chosen", "rejected")
    sides = [
        frame.select(others, completion=side, label=pl.lit(value=label))
        for side, label in (("chosen", True), ("rejected", False))
    ]
    turns = np.arange(2 * frame.height).reshape(2, frame.height).T.ravel()
    return pl.concat(sides)[turns]


def _level() -> Expr:
    """Return the rank of each score among the distinct scores of its ranking, best first."""
    return pl.col("scores").rank("dense", descending=True).over(_RANKING)


def _neighbours(better: pl.DataFrame, worse: pl.DataFrame) -> pl.DataFrame:
    """Pair adjacent levels: the first reply of each with all replies of the other.

    The first pair with different replies is among these; all pairs would be too many if a ranking has only
    two levels (right and wrong).
    """
    below = worse.with_columns(level=pl.col("level_worse") - 1)
    firsts = pl.col("rank") == pl.col("rank").min().over(_RANKING, "level")
    first_below = pl.col("rank_worse") == pl.col("rank_worse").min().over(_RANKING, "level")
    joined = [
        left.join(right, on=[_RANKING, "level"], how="inner")
        for left, right in ((better.filter(firsts), below), (better, below.filter(first_below)))
    ]
    pairs = pl.concat(joined).unique([_RANKING, "rank", "rank_worse"])
    return pairs.sort(_RANKING, "rank", "rank_worse")


def _draws(pairs: pl.DataFrame, replies: pl.Series, seed: int) -> pl.Series:
    """Return a number for each pair of a best reply with one of the rest, drawn by a hash of both texts.

    So the choice for a row depends only on that row. blake2b, since polars' own hash may change with its
    version; the best reply is hashed once, however many others there are.
    """
    texts = replies.to_frame("reply").select(_reply_text(pl.col("reply"))).to_series()
    draws, held, begun = [], -1, blake2b()
    for place, other in pairs.select("place", "place_worse").iter_rows():
        if place != held:
            held, begun = place, blake2b(digest_size=8, key=str(seed).encode())
            begun.update(texts[place].encode() + b"\0")
        drawn = begun.copy()
        drawn.update(texts[other].encode())
        draws.append(drawn.digest())
    return pl.Series(draws, dtype=pl.Binary)


def _reply_text(conversation: Expr) -> Expr:
    return conversation.list.last().struct.field("content").fill_null("")


def _first_of_each(pairs: pl.DataFrame, by: Expr) -> pl.DataFrame:
    ordered = pairs.sort(_RANKING, by, maintain_order=True)
    return ordered.unique(_RANKING, keep="first", maintain_order=True)


def _worst(pairs: pl.DataFrame) -> pl.DataFrame:
    return _first_of_each(pairs, -pl.col("rank_worse"))


def _next(pairs: pl.DataFrame) -> pl.DataFrame:
    return _first_of_each(pairs, pl.col("rank_worse"))


def _random(pairs: pl.DataFrame) -> pl.DataFrame:
    return _first_of_each(pairs, pl.col("draw"))


def _adjacent(pairs: pl.DataFrame) -> pl.DataFrame:
    neighbours = pairs.filter(pl.col("level_worse") == pl.col("level") + 1)
    return neighbours.unique([_RANKING, "level"], keep="first", maintain_order=True)


_CHOOSE: dict[str, Callable[[pl.DataFrame], pl.DataFrame]] = {
    "best-worst": _worst,
    "best-next": _next,
    "best-random": _random,
    "adjacent": _adjacent,
}
