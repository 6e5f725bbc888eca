"""When a message says nothing: one rule for the columns that are read, converted and written.

`field` gives a field of the messages by its name, such as `pl.element().struct.field`.
"""

from collections.abc import Callable, Collection
from functools import reduce

import polars as pl
from polars import Expr

from fmtkit.columns import blank
from fmtkit.core.messages import MAY_BE_EMPTY, SAYING


def says_without_text(field: Callable[[str], Expr], keys: Collection[str] = SAYING) -> Expr:
    """Return whether a message says something besides its text; `keys` are those that it can hold."""
    held = (field(name).is_not_null() for name in SAYING if name in keys)
    return reduce(Expr.or_, held, pl.lit(value=False))


def lacks_text(field: Callable[[str], Expr], keys: Collection[str] = SAYING) -> Expr:
    """Return whether a message has no text and says nothing else."""
    return field("content").is_null() & ~says_without_text(field, keys)


def is_blank(field: Callable[[str], Expr], keys: Collection[str] = SAYING) -> Expr:
    """Return whether a message's text is blank, it says nothing else, and its role has to say something.

    Null where the text is null.
    """
    may_be = field("role").is_in(sorted(MAY_BE_EMPTY)).fill_null(value=False)
    return blank(field("content")) & ~may_be & ~says_without_text(field, keys)


def is_empty(field: Callable[[str], Expr], keys: Collection[str] = SAYING) -> Expr:
    """Return whether a message says nothing, and its role has to: null is nothing from any role."""
    return lacks_text(field, keys) | is_blank(field, keys).fill_null(value=False)
