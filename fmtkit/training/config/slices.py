"""Parts of splits, as a configuration writes them: `train[:500]`, `train[10%:20%]`, `train+test[-5:]`.

They mean what they mean in `datasets`, including the rounding; so do the shards of axolotl's `shards`.
"""

import math
import re
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from fmtkit.core.data_classes import dataclass
from fmtkit.core.errors import OptionError

if TYPE_CHECKING:
    from fmtkit.sources.picked import Choice, Mask

_PART = re.compile(
    r"(?P<name>\w+(?:[.-]\w+)*)"
    r"(?:\[(?P<from>-?\d+%?)?:(?P<to>-?\d+%?)?\](?P<rounding>\((?:closest|pct1_dropremainder)\))?)?"
)


@dataclass(frozen=True)
class Part:
    """A part of one split; bounds are rows, or percents, and count from the end where negative."""

    name: str
    start: int | None = None
    stop: int | None = None
    is_share: bool = False
    drops: bool = False
    """Whether a percent is a hundredth of the rows, rounded down, and the remainder is dropped."""

    def bounds(self, rows: int) -> tuple[int, int]:
        """Return the first row and the one after the last, for a number of rows."""
        start = 0 if self.start is None else self._place(self.start, rows)
        stop = rows if self.stop is None else self._place(self.stop, rows)
        start = max(rows + start, 0) if start < 0 else start
        stop = max(rows + stop, 0) if stop < 0 else stop
        return min(start, rows), max(min(stop, rows), min(start, rows))

    def _place(self, bound: int, rows: int) -> int:
        if not self.is_share:
            return bound
        return bound * math.trunc(rows / 100.0) if self.drops else round(bound * rows / 100.0)


@dataclass(frozen=True)
class Shard:
    """One of several equal parts of the rows in a random order, as with axolotl's `shards`."""

    count: int
    index: int
    seed: int

    def of(self, rows: int) -> list[int]:
        """Return the indices of its rows, as shuffle and shard of `datasets` choose them."""
        import numpy as np

        order = np.random.default_rng(self.seed).permutation(rows)
        size, more = divmod(rows, self.count)
        start = size * self.index + min(self.index, more)
        indices: list[int] = order[start : start + size + (self.index < more)].tolist()
        return indices


@dataclass(frozen=True)
class Slice:
    """The parts of splits whose rows are wanted, in their order, and which shard of these."""

    text: str
    parts: tuple[Part, ...]
    shard: Shard | None = None

    @property
    def name(self) -> str:
        """Return the name of the first split."""
        return self.parts[0].name

    @property
    def limit(self) -> int | None:
        """Return N if this is the first N rows of one split, else None."""
        one = self.parts[0]
        is_head = len(self.parts) == 1 and not one.is_share and one.start in {None, 0}
        is_head = is_head and self.shard is None
        return one.stop if is_head and one.stop is not None and one.stop > 0 else None

    @property
    def is_whole(self) -> bool:
        """Return whether this is all of one split."""
        return self.parts == (Part(self.name),) and self.shard is None


def slice_of(entry: Mapping[str, object], seed: object) -> Slice:
    """Return which rows an entry of `datasets` selects; `seed` is the run's, 42 if it sets none."""
    selection = parse_slice(str(entry.get("split", "train")))
    count, index = entry.get("shards"), entry.get("shards_idx", 0)
    if not isinstance(count, int) or not isinstance(index, int):
        return selection
    return replace(selection, shard=Shard(count, index, seed if isinstance(seed, int) else 42))


def parse_slice(text: str) -> Slice:
    """Read `train`, `train[:500]`, `train[10%:20%]` or several of these with a plus between them."""
    parts = tuple(_part(text, one.strip()) for one in text.split("+"))
    return Slice(text, parts)


def _part(text: str, written: str) -> Part:
    match = _PART.fullmatch(written)
    if match is None:
        raise OptionError(
            f"split: {text!r}: write a name, or a slice such as train[:500] or train[10%:20%]"
        )
    bounds = [bound for bound in (match["from"], match["to"]) if bound]
    shares = {bound.endswith("%") for bound in bounds}
    if len(shares) > 1:
        raise OptionError(f"split: {text!r}: count both ends in rows, or both in percent")
    numbers = [int(b.rstrip("%")) if b else None for b in (match["from"], match["to"])]
    is_share = True in shares
    if is_share and any(abs(number or 0) > 100 for number in numbers):
        raise OptionError(f"split: {text!r}: a percentage is at most 100")
    start, stop = numbers
    both_ways = start is not None and stop is not None and (start < 0) != (stop < 0)
    if stop is not None and not both_ways and stop <= (start or 0) and (stop >= 0 or start):
        raise OptionError(f"split: {text!r}: ends before or where it begins, so it has no rows")
    drops = (match["rounding"] or "").startswith("(pct1")
    return Part(match["name"], start, stop, is_share, drops)


def choice(parts: tuple[tuple[Part, int], ...], shard: Shard | None) -> "Choice":
    """Return the function that chooses the rows of sources; each part comes with its number of sources."""
    return partial(_choose, parts=parts, shard=shard)


def _choose(
    counts: list[int], *, parts: tuple[tuple[Part, int], ...], shard: Shard | None
) -> "list[Mask]":
    import numpy as np

    masks: list[Mask] = []
    for part, sources in parts:
        sizes = counts[len(masks) : len(masks) + sources]
        start, stop = part.bounds(sum(sizes))
        places = np.arange(sum(sizes))
        mask = (places >= start) & (places < stop)
        masks += np.split(mask, np.cumsum(sizes)[:-1]) if sizes else []
    if shard is None:
        return masks
    selected = np.concatenate(masks) if masks else np.zeros(0, dtype=np.bool_)
    there = np.flatnonzero(selected)
    kept = np.zeros(len(selected), dtype=np.bool_)
    kept[there[shard.of(len(there))]] = True
    return list(np.split(kept, np.cumsum(counts)[:-1]))
