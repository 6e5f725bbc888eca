"""Who of two won: what a judge wrote, as the side that it names."""

from collections.abc import Mapping

import polars as pl

from fmtkit.columns.problems import Column

SIDE = (
    r"""^[\s"'\[(*]*(?:(?:model|response|assistant|answer|output|completion|option)[\s_-]*)?{}"""
    r"""(?:\s*[>≻]+\s*{})?[\s"'\]).*]*$"""
)
"""How a winner names a side by its letter: `a`, `A`, `model_a`, `[[A]]`, `Response A`, `A>>B`; c is a tie."""
BETWEEN_MARKS = "|"
TIE = (
    r"""\b(?:tied?|ties|both|neither|equal|equally|same|draw|none)\b|^(?:tie|both)"""
    r"""|^[\s"'\[(*]*(?:a\s*[=~≈]+\s*b|b\s*[=~≈]+\s*a)[\s"'\]).*]*$"""
)


def word_of(winner: Column) -> pl.Expr:
    """Return a winner in small letters, without JSON's quotes, outer blanks and the .0 of a whole number."""
    text = winner.value.str.replace(r'^"(.*)"$', "$1")
    text = text.str.replace_all(r"\\[nrt]", " ").str.replace_all(r'\\"', '"').str.strip_chars()
    return text.str.to_lowercase().str.replace(r"^(-?\d+)\.0+$", "$1")


def marks_of(told: str) -> list[str]:
    """Return the values that an option names, in small letters: `A is better|A is much better` are two."""
    return [mark.strip().lower() for mark in told.split(BETWEEN_MARKS) if mark.strip()]


def side_of(word: pl.Expr, told: Mapping[str, str], models: tuple[Column, Column]) -> pl.Expr:
    """Return 1 where the first reply won, -1 where the second did, 0 for a tie; null for anything else.

    Args:
        word: What the judge wrote, made by `word_of`.
        told: What stands for `a`, for `b` and for `tie`; where it is empty, the letter does, or a word for
            it.
        models: The columns with the names of the two models.
    """
    first, second = (
        (word == one.value.str.strip_chars().str.to_lowercase()).fill_null(value=False)
        for one in models
    )
    if told["a"] or told["b"]:
        is_a, is_b = (word.is_in(marks_of(told[side])) for side in ("a", "b"))
    else:
        is_a, is_b = (word.str.contains(SIDE.format(*pair)) for pair in ("ab", "ba"))
    is_tie = word.str.contains(TIE) | word.str.contains(SIDE.format("c", "c"))
    if told["tie"]:
        is_tie |= word.is_in(marks_of(told["tie"]))
    by_word = (
        pl.when(is_tie.fill_null(value=False))
        .then(0)
        .when(is_a.fill_null(value=False))
        .then(1)
        .when(is_b.fill_null(value=False))
        .then(-1)
    )
    # A model may be called Tiefighter; one that is called b and is the first reply says nothing.
    by_name = pl.when(first & ~second).then(1).when(second & ~first).then(-1)
    differ = (by_word * by_name == -1).fill_null(value=False)
    return pl.when(~differ).then(pl.coalesce(by_name, by_word))
