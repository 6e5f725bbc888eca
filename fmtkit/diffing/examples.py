"""The rows that are shown for each rule: the text around the first difference, trained tokens in brackets."""

from collections.abc import Callable, Sequence

from fmtkit.diffing.result import Example
from fmtkit.diffing.rules import Difference
from fmtkit.masks.masked import NOT_TRAINED, TokenRow

_AROUND = 12
"""Tokens shown before the first that differs, and from it on."""


def number_of(row: TokenRow, place: int) -> int:
    """Return the number of the row that a prepared row was made of, or else its place."""
    return place if row.number is None else row.number


def example_of(
    found: Difference,
    numbers: tuple[int, int],
    rows: tuple[TokenRow, TokenRow],
    decode: Callable[[Sequence[int]], str],
) -> Example:
    """Return what is shown of two rows that differ."""
    side = 1 if found.side == "rejected" else 0
    at = found.token
    left, right = (marked(row, side, at, decode) for row in rows)
    before = decode(rows[0].sequences[side].ids[max(at - _AROUND, 0) : at].tolist())
    places = number_of(rows[0], numbers[0]), number_of(rows[1], numbers[1])
    return Example(found.rules, *places, found.side, at, found.detail, before, left, right)


def marked(row: TokenRow, side: int, at: int, decode: Callable[[Sequence[int]], str]) -> str:
    """Return the text from a token on, with [brackets] around each run of trained tokens."""
    parts: list[tuple[bool, list[int]]] = []
    run: list[int] = []
    was = False
    one = row.sequences[side]
    around = slice(at, at + _AROUND)
    for token, label in zip(one.ids[around].tolist(), one.labels[around].tolist(), strict=True):
        if run and (label != NOT_TRAINED) != was:
            parts.append((was, run))
            run = []
        was = label != NOT_TRAINED
        run.append(token)
    if run:
        parts.append((was, run))
    text = "".join(f"[{decode(r)}]" if trained else decode(r) for trained, r in parts)
    return text + ("…" if len(one.ids) > at + _AROUND else "")
