"""Thinking inside a reply: blocks between tags, removed, or separated from the answer."""

import re
from collections.abc import Iterator

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
BLOCK_OR_REST = rf"{BLOCK}|(?:{OPEN}).*\z"
"""A block, or a tag that none closes with all after it: each block after it was a search to the end."""
LEADING = "|".join(
    rf"\A\s*{_either((start,))}(?<r{i}>.*?){_either((end,))}(?<a{i}>.*)\z"
    for i, (start, end) in enumerate(TAGS)
)


def answer(text: Expr) -> Expr:
    """Return a reply without its blocks of thinking, trimmed; what follows a lone closing tag.

    Null where a block is never closed: where the answer begins is unknown.
    """
    rest = text.str.replace_all(f"(?s){BLOCK_OR_REST}", "")
    last = text.str.extract_all(f"(?s){BLOCK_OR_REST}").list.last().fill_null("")
    closed = (last == "") | last.str.contains(f"(?s)\\A(?:{BLOCK})")
    unclosed = rest.str.contains(OPEN) | ~closed
    after = rest.str.replace(f"(?s)\\A.*(?:{CLOSE})", "")
    return pl.when(~unclosed).then(after.str.strip_chars())


def blocks(text: str) -> Iterator[tuple[int, int]]:
    """Yield where blocks of thinking begin and end, in order, as BLOCK finds them in linear time."""
    end_of = dict(TAGS)
    reached = 0
    for tag in re.finditer(OPEN, text):
        if tag.start() < reached or tag[0] not in end_of:
            continue
        place = text.find(end_of[tag[0]], tag.end())
        if place < 0:
            # Nothing closes it from here on: the next tag of its kind need not look.
            del end_of[tag[0]]
            continue
        reached = place + len(end_of[tag[0]])
        yield tag.start(), reached


def without_blocks(text: str) -> str:
    """Return a string without its blocks of thinking."""
    kept, reached = [], 0
    for start, end in blocks(text):
        kept.append(text[reached:start])
        reached = end
    return "".join([*kept, text[reached:]])


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
    """Return whether a block of thinking is in a reply after other text."""
    return text.str.contains(f"(?s){BLOCK}") & ~text.str.contains(f"(?s)\\A\\s*(?:{BLOCK})")


def joined(thought: Expr, said: Expr) -> Expr:
    """Return thinking and answer as one text, with the first pair of tags."""
    start, end = TAGS[0]
    return (
        pl.when(thought != "")
        .then(pl.format(f"{start}\n{{}}\n{end}\n\n{{}}", thought, said))
        .otherwise(said)
    )
