"""Thinking inside a reply: blocks between tags, taken off or told apart from the answer."""

import polars as pl
from polars import Expr

TAGS = (
    ("<think>", "</think>"),
    ("<reasoning>", "</reasoning>"),
    ("<|begin_of_thought|>", "<|end_of_thought|>"),
)
"""How models open and close what they think before they answer."""


def _either(tags: tuple[str, ...]) -> str:
    return "|".join(tag.replace("|", r"\|") for tag in tags)


OPEN, CLOSE = (_either(kind) for kind in zip(*TAGS, strict=True))
BLOCK = "|".join(f"{_either((start,))}.*?{_either((end,))}" for start, end in TAGS)
LEADING = "|".join(
    rf"\A\s*{_either((start,))}(?<r{i}>.*?){_either((end,))}(?<a{i}>.*)\z"
    for i, (start, end) in enumerate(TAGS)
)


def answer(text: Expr) -> Expr:
    """Return a reply without its blocks of thinking, trimmed; what follows a lone closing tag.

    Null where a block is never closed: nobody can say where the answer begins.
    """
    rest = text.str.replace_all(f"(?s){BLOCK}", "")
    unclosed = rest.str.contains(OPEN)
    after = rest.str.replace(f"(?s)\\A.*(?:{CLOSE})", "")
    return pl.when(~unclosed).then(after.str.strip_chars())


def leading(text: Expr) -> tuple[Expr, Expr]:
    """Return the thinking that a reply begins with and the rest, trimmed; else "" and the reply."""
    groups = text.str.extract_groups(f"(?s){LEADING}").struct
    names = [f"r{i}" for i in range(len(TAGS))], [f"a{i}" for i in range(len(TAGS))]
    thought, said = (pl.coalesce([groups.field(n) for n in kind]) for kind in names)
    split = thought.is_not_null()
    return (
        pl.when(split).then(thought.str.strip_chars()).otherwise(pl.lit("")),
        pl.when(split).then(said.str.strip_chars()).otherwise(text),
    )


def is_inside(text: Expr) -> Expr:
    """Tell whether a block of thinking stands in a reply behind other text."""
    return text.str.contains(f"(?s){BLOCK}") & ~text.str.contains(f"(?s)\\A\\s*(?:{BLOCK})")


def joined(thought: Expr, said: Expr) -> Expr:
    """Return thinking and answer as one text, with the first pair of tags."""
    start, end = TAGS[0]
    return (
        pl.when(thought != "")
        .then(pl.format(f"{start}\n{{}}\n{end}\n\n{{}}", thought, said))
        .otherwise(said)
    )
