"""Which rows changed, as far as the digests of groups of rows can tell: between which rows, and how."""

from collections import Counter
from collections.abc import Sequence
from difflib import SequenceMatcher

import numpy as np
import numpy.typing as npt

from fmtkit.core.data_classes import dataclass
from fmtkit.locking.row_digests import Hashes, group_of, groups_of, sum_of
from fmtkit.locking.row_files import Shorts, short


@dataclass(frozen=True)
class Moved:
    """What is known of the rows that are not as they were; rows are numbered as they are now."""

    words: str
    first: int | None
    """The first row that changed, was added or moved, or stands where one is missing; None past the end."""
    last: int
    """The last row that may be the first: equal to `first` where it is known exactly."""
    kind: str
    """changed, added, removed or reordered."""


def moved(old: Sequence[str], every: int, rows: int, total: str, new: Hashes) -> Moved:
    """Compare the digests of groups of `every` rows of the past with the hashes of the rows of today.

    There were `rows` rows, and the sum of their hashes was `total`.
    """
    if every == 1:
        return _compared(old, groups_of(new, 1), 0, new)
    more = len(new) - rows
    same = _same_groups(old, every, rows, new)
    begin = same * every
    if more > 0 and begin >= rows:
        return _made(f"{_rows(more)} added at the end", rows, rows, new, "added")
    if more < 0 and begin + every > len(new):
        return _removed_at_end(-more, begin, new)
    tail = _same_tail(old, every, rows, new)
    end = min(max(begin + 1, (len(old) - tail) * every + more), len(new))
    if more == 0:
        return _replaced(old, every, begin, end, total, new)
    if more > 0:
        place = _added_row(total, begin, end, new) if more == 1 else None
        if place is not None:
            return _made("1 row was added", place, place, new, "added")
        words = f"{_rows(more)} added, and others may have changed"
        return _made(words, begin, max(end - 1, begin), new, "added")
    words = f"{_rows(-more)} removed, and others may have changed"
    return _made(words, begin, max(end - 1, begin), new, "removed")


MOST_COMPARED = 4_000
"""Rows between the first and the last that differ, up to which those that moved are told from others."""


def moved_exactly(old: Shorts, new: Hashes) -> Moved:
    """Compare the digests of all rows of the past with the rows of today."""
    now = short(new)
    size = min(len(old), len(now))
    begin = _first_true(old[:size] != now[:size])
    tail = _first_true(old[::-1][: size - begin] != now[::-1][: size - begin])
    before, after = old[begin : len(old) - tail], now[begin : len(now) - tail]
    if max(len(before), len(after)) <= MOST_COMPARED or len(old) == len(now):
        return _compared(before.tolist(), after.tolist(), begin, new)
    more = len(now) - len(old)
    words = f"{_rows(abs(more))} {'added' if more > 0 else 'removed'}, and others were changed"
    return _made(words, begin, begin, new, "changed")


def _first_true(flags: npt.NDArray[np.bool_]) -> int:
    """Return the place of the first true value; the size where there is none."""
    return int(np.argmax(flags)) if flags.any() else len(flags)


def _compared(old: Sequence[object], now: Sequence[object], begin: int, new: Hashes) -> Moved:
    """Compare rows one by one; the first of them is row `begin`."""
    if len(old) == len(now):
        places = [i for i, (a, b) in enumerate(zip(old, now, strict=True)) if a != b]
        place = begin + places[0]
        if Counter(old) == Counter(now):
            words = f"the same rows are in another order ({_rows(len(places))} moved)"
            return _made(words, place, place, new, "reordered")
        if len(old) > MOST_COMPARED or len(places) <= max(1, len(now) // 2):
            return _made(f"{_rows(len(places))} changed", place, place, new, "changed")
    found = SequenceMatcher(None, old, now, autojunk=False).get_opcodes()
    steps = [step for step in found if step[0] != "equal"]
    added = sum(end - first for _, _, _, first, end in steps)
    removed = sum(end - first for _, first, end, _, _ in steps)
    both = min(added, removed)
    said = (
        f"{_rows(count)} {word}"
        for count, word in ((both, "changed"), (added - both, "added"), (removed - both, "removed"))
        if count
    )
    kind = "changed" if both else "added" if added else "removed"
    place = begin + steps[0][3]
    return _made(", ".join(said), place, place, new, kind)


def _same_groups(old: Sequence[str], every: int, rows: int, new: Hashes) -> int:
    """Count the groups at the beginning that are as they were."""
    for number, digest in enumerate(old):
        last = min((number + 1) * every, rows)
        if last > len(new) or group_of(new, number * every, last) != digest:
            return number
    return len(old)


def _same_tail(old: Sequence[str], every: int, rows: int, new: Hashes) -> int:
    """Count the groups at the end that are as they were, at their distance from the end."""
    more = len(new) - rows
    for count, number in enumerate(reversed(range(len(old)))):
        first, last = number * every + more, min((number + 1) * every, rows) + more
        if first < 0 or group_of(new, first, last) != old[number]:
            return count
    return len(old)


def _replaced(
    old: Sequence[str], every: int, begin: int, end: int, total: str, new: Hashes
) -> Moved:
    if sum_of(new) == total:
        words = "the same rows are in another order"
        return _made(words, begin, min(begin + every, end) - 1, new, "reordered")
    differ = sum(a != b for a, b in zip(old, groups_of(new, every), strict=True))
    groups = f"in {differ} of {len(old)} groups of {every:,}" if differ > 1 else "in one group"
    words = f"rows changed {groups}" + (f" of {every:,}" if differ == 1 else "")
    return _made(words, begin, min(begin + every, end) - 1, new, "changed")


def _added_row(total: str, begin: int, end: int, new: Hashes) -> int | None:
    """Return the row that was added, if it is the only difference: its hash is the difference of the sums."""
    hashed = np.uint64((int(sum_of(new), 16) - int(total, 16)) % 2**64)
    found = np.flatnonzero(new[begin : end + 1] == hashed)
    return begin + int(found[0]) if len(found) else None


def _removed_at_end(count: int, begin: int, new: Hashes) -> Moved:
    words = f"{_rows(count)} removed, at the end or among the last"
    return _made(words, begin, max(len(new) - 1, begin), new, "removed")


def _made(words: str, first: int, last: int, new: Hashes, kind: str) -> Moved:
    if first >= len(new):
        return Moved(words, None, len(new), kind)
    return Moved(words, first, min(last, len(new) - 1), kind)


def _rows(count: int) -> str:
    return "1 row was" if count == 1 else f"{count:,} rows were"
