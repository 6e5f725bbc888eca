"""The rows that are shown for each rule: the text around the first difference, trained tokens in brackets."""

from collections.abc import Callable, Sequence

from fmtkit.diffing.result import Example
from fmtkit.diffing.rules import Difference
from fmtkit.diffing.spool import Row

_AROUND = 12
"""Tokens shown before the first that differs, and from it on."""


def number_of(row: Row, place: int) -> int:
    """Return the number of the row that a prepared row came from, or else its place."""
    return place if row.origin is None else row.origin


def example_of(
    found: Difference,
    numbers: tuple[int, int],
    rows: tuple[Row, Row],
    decode: Callable[[Sequence[int]], str],
) -> Example:
    """Return what is shown of two rows that differ."""
    side = 1 if found.side == "rejected" else 0
    at = found.token
    left, right = (marked(row, side, at, decode) for row in rows)
    before = decode(rows[0].ids[side][max(at - _AROUND, 0) : at])
    places = number_of(rows[0], numbers[0]), number_of(rows[1], numbers[1])
    return Example(found.rules, *places, found.side, at, found.detail, before, left, right)


def marked(row: Row, side: int, at: int, decode: Callable[[Sequence[int]], str]) -> str:
    """Return the text from a token on, with [brackets] around each run of trained tokens."""
    parts: list[tuple[bool, list[int]]] = []
    run: list[int] = []
    was = False
    tokens = zip(row.ids[side][at : at + _AROUND], row.labels[side][at : at + _AROUND], strict=True)
    for token, label in tokens:
        if run and (label != -100) != was:
            parts.append((was, run))
            run = []
        was = label != -100
        run.append(token)
    if run:
        parts.append((was, run))
    text = "".join(f"[{decode(r)}]" if trained else decode(r) for trained, r in parts)
    return text + ("…" if len(row.ids[side]) > at + _AROUND else "")
