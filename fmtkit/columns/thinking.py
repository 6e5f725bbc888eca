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
"""The opening and closing tags of thinking that models write before an answer."""
TAG_TOKENS = frozenset({"<think>", "</think>"})
"""Tags that some tokenizers hold for control tokens, but that replies are meant to have."""


def _either(tags: tuple[str, ...]) -> str:
    return "|".join(tag.replace("|", r"\|") for tag in tags)


OPEN, CLOSE = (_either(kind) for kind in zip(*TAGS, strict=True))
BLOCK = "|".join(f"{_either((start,))}.*?{_either((end,))}" for start, end in TAGS)
BLOCK_OR_REST = rf"{BLOCK}|(?:{OPEN}).*\z"
"""A block, or an unclosed tag with all text after it, so that the search takes linear time."""
LEADING = "|".join(
    rf"\A\s*{_either((start,))}(?<r{i}>.*?){_either((end,))}(?<a{i}>.*)\z"
    for i, (start, end) in enumerate(TAGS)
)


def answer(text: Expr) -> Expr:
    """Return a reply without its blocks of thinking, trimmed; or the rest after an unopened closing tag.

    Null if a block is never closed, since the beginning of the answer is unknown.
    """
    rest = text.str.replace_all(f"(?s){BLOCK_OR_REST}", "")
    last = text.str.extract_all(f"(?s){BLOCK_OR_REST}").list.last().fill_null("")
    closed = (last == "") | last.str.contains(f"(?s)\\A(?:{BLOCK})")
    unclosed = rest.str.contains(OPEN) | ~closed
    after = rest.str.replace(f"(?s)\\A.*(?:{CLOSE})", "")
    return pl.when(~unclosed).then(after.str.strip_chars())


def blocks(text: str) -> Iterator[tuple[int, int]]:
    """Yield the start and end of each block of thinking that BLOCK matches, in linear time."""
    end_of = dict(TAGS)
    reached = 0
    for tag in re.finditer(OPEN, text):
        if tag.start() < reached or tag[0] not in end_of:
            continue
        place = text.find(end_of[tag[0]], tag.end())
        if place < 0:
            # No closing tag follows: none needs to be searched for the later tags of its kind.
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
    thought, answered = (pl.coalesce([groups.field(n) for n in kind]) for kind in names)
    split = thought.is_not_null()
    return (
        pl.when(split).then(thought.str.strip_chars()).otherwise(pl.lit("")),
        pl.when(split).then(answered.str.strip_chars()).otherwise(text),
    )


def is_inside(text: Expr) -> Expr:
    """Return whether a block of thinking is in a reply after other text."""
    return text.str.contains(f"(?s){BLOCK}") & ~text.str.contains(f"(?s)\\A\\s*(?:{BLOCK})")


def joined(thought: Expr, answered: Expr) -> Expr:
    """Return thinking and answer as one text, with the first pair of tags."""
    start, end = TAGS[0]
    return (
        pl.when(thought != "")
        .then(pl.format(f"{start}\n{{}}\n{end}\n\n{{}}", thought, answered))
        .otherwise(answered)
    )
