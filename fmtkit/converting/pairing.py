"""Pairing: makes preference rows of a prompt with ranked replies, by a policy; and unpairing.

Ties make no pair. Rows without a pair are counted.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass
from hashlib import blake2b

import numpy as np
import polars as pl
from polars import Expr

from fmtkit.columns.dialog_pairs import same_dialog
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
    """Preference rows with `__row`, the rows without a pair, and counts of rankings.

    A source row may hold several rankings (`fmtkit.columns.expansion`): it is without a pair if none of them
    makes one; `some_without_pair` counts the rankings without a pair in the other rows.
    """

    frame: pl.DataFrame
    without_pair: pl.Series
    tied: int
    some_without_pair: int


def check_policy(policy: str) -> str:
    """Return the policy; raise UnknownNameError or OptionError if there is none of that name."""
    if policy in POLICIES or _MARGIN.fullmatch(policy):
        if policy == "margin:M":
            raise OptionError("pairs=margin:M: M is a number, as in margin:0.5")
        return policy
    raise UnknownNameError("pair policy", policy, POLICIES)


def pair_up(frame: pl.DataFrame, policy: str, seed: int = 0) -> Paired:
    """Make preference rows of a frame with prompt, replies (list of conversations), scores and `__row`.

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
        .with_columns(rank=pl.int_range(pl.len()).over(_RANKING), level=_level())
    )
    better = long.select(_RANKING, "rank", "level", "scores", chosen="replies")
    worse = long.select(
        _RANKING, rank_worse="rank", level_worse="level", scores_worse="scores", rejected="replies"
    )
    if policy in ("best-worst", "best-next", "best-random"):
        better = better.filter(pl.col("rank") == 0)
    candidates = (
        _neighbours(better, worse)
        if policy == "adjacent"
        else better.join(worse, on=_RANKING, how="inner", maintain_order="left_right")
    )
    pairs = candidates.filter(
        (pl.col("rank") < pl.col("rank_worse")) & (pl.col("scores") > pl.col("scores_worse"))
    )
    pairs = pairs.filter(~same_dialog(pl.col("chosen"), pl.col("rejected")))
    pairs = _CHOOSE[policy.partition(":")[0]](pairs, policy, seed)
    pairs = pairs.sort(_RANKING, "rank", "rank_worse")
    made = frame.select(*others, _RANKING).join(
        pairs.select(_RANKING, "chosen", "rejected"),
        on=_RANKING,
        how="inner",
        maintain_order="left_right",
    )
    rows = frame.get_column("__row").unique(maintain_order=True)
    without = rows.filter(~rows.is_in(made["__row"].implode()))
    empty = frame.filter(
        ~pl.col(_RANKING).is_in(made[_RANKING].implode())
        & ~pl.col("__row").is_in(without.implode())
    )
    tied = frame.select(
        (pl.col("scores").list.n_unique() < pl.col("scores").list.len()).sum()
    ).item()
    return Paired(made.drop(_RANKING), without, int(tied), empty.height)


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


def _reply_text(dialog: Expr) -> Expr:
    return dialog.list.last().struct.field("content").fill_null("")


def _first_of_each(pairs: pl.DataFrame, by: Expr) -> pl.DataFrame:
    ordered = pairs.sort(_RANKING, by, maintain_order=True)
    return ordered.unique(_RANKING, keep="first", maintain_order=True)


def _worst(pairs: pl.DataFrame, policy: str, seed: int) -> pl.DataFrame:  # noqa: ARG001
    return _first_of_each(pairs, -pl.col("rank_worse"))


def _next(pairs: pl.DataFrame, policy: str, seed: int) -> pl.DataFrame:  # noqa: ARG001
    return _first_of_each(pairs, pl.col("rank_worse"))


def _random(pairs: pl.DataFrame, policy: str, seed: int) -> pl.DataFrame:  # noqa: ARG001
    # The replies are hashed, so that the choice for a row depends only on that row.
    # blake2b, since polars' own hash may change with its version.
    texts = pairs.select(
        pl.concat_str(
            _reply_text(pl.col("chosen")), _reply_text(pl.col("rejected")), separator="\0"
        )
    )
    key = str(seed).encode()
    draws = [blake2b(t.encode(), digest_size=8, key=key).digest() for t in texts.to_series()]
    drawn = pairs.with_columns(draw=pl.Series(draws, dtype=pl.Binary))
    return _first_of_each(drawn, pl.col("draw")).drop("draw")


def _adjacent(pairs: pl.DataFrame, policy: str, seed: int) -> pl.DataFrame:  # noqa: ARG001
    neighbours = pairs.filter(pl.col("level_worse") == pl.col("level") + 1)
    return neighbours.unique([_RANKING, "level"], keep="first", maintain_order=True)


def _all(pairs: pl.DataFrame, policy: str, seed: int) -> pl.DataFrame:  # noqa: ARG001
    return pairs


def _margin(pairs: pl.DataFrame, policy: str, seed: int) -> pl.DataFrame:  # noqa: ARG001
    found = _MARGIN.fullmatch(policy)
    assert found is not None
    return pairs.filter(pl.col("scores") - pl.col("scores_worse") >= float(found[1]))


_CHOOSE: dict[str, Callable[[pl.DataFrame, str, int], pl.DataFrame]] = {
    "best-worst": _worst,
    "best-next": _next,
    "best-random": _random,
    "adjacent": _adjacent,
    "all": _all,
    "margin": _margin,
}
