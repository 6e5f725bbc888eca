"""Replies in lists, and what judges each of them: scores, ranks, flags, or the place of the best.

The values decide: a list of texts and a list of as many numbers in each row. Names say only what is no reply
(passages, choices, steps), what is no score (lengths, places), and that the lower number is better.
"""

from collections.abc import Iterator, Sequence
from typing import Any

from fmtkit.columns.known_words import (
    ID_WORDS,
    LENGTH_WORDS,
    LOWER_IS_BETTER,
    NEGATIONS,
    SCORE_WORDS,
    SUCCESS_WORDS,
    TIME_WORDS,
)
from fmtkit.detection.value_columns import ValueColumns, words
from fmtkit.reading.bound_column import EACH

Proposal = tuple[dict[str, str], dict[str, str]]
NO_REPLIES = frozenset({
    "passage", "context", "document", "doc", "chunk", "paragraph", "sentence", "choice", "option",
    "keyword", "tag", "step", "hint", "test", "url", "link", "id", "name", "model", "source",
    "question", "query", "prompt", "topic", "category", "label", "entity", "token", "skill", "role",
    "fact", "citation", "reference", "image", "title", "tool", "function", "criterion", "rubric",
    "constraint", "turn", "message", "utterance", "distractor", "evidence", "ctx", "generator",
    "author", "user", "language", "split", "instruction", "kwarg", "type", "subject",
    "input",
})  # fmt: skip
"""Words in the names of lists of texts that are no replies to one prompt."""
JUDGING = SCORE_WORDS | frozenset({
    "score", "rating", "rank", "ranking", "grade", "quality", "vote", "upvote", "up",
    "like", "value", "point", "preference", "verdict", "correct", "right", "pass", "passed",
    "passe", "success", "valid", "good", "best", "chosen", "preferred", "winner", "accepted",
    "accept", "selected", "label", "feedback", "helpful", "helpfulnes", "elo", "star", "karma",
    "is_best", "win", "won",
})  # fmt: skip
"""Words in the names of what judges a reply."""
NO_SCORES = (ID_WORDS | LENGTH_WORDS | TIME_WORDS) - {"number"} | frozenset(
    [
        "temperature",
        "position",
        "latency",
        "ms",
        "second",
        "price",
        "cost",
        "start",
        "end",
        "turn",
        "step",
        "logprob",
        "advantage",
    ]
)
MOST_KEYS = 8
BEST = frozenset(
    [
        "best",
        "winner",
        "chosen",
        "choice",
        "preferred",
        "preference",
        "selected",
        "top",
        "pick",
        "picked",
        "better",
    ]
)
"""Words in the name of the place of the best reply."""


def proposals(columns: ValueColumns) -> Iterator[Proposal]:
    """Yield columns and options of `judged_replies`, but for the prompt."""
    texts = [path for path, held in columns.lists.items() if _are_replies(path, held)]
    for path in _longest_first(texts, columns):
        judges = [p for p in columns.lists if _judges(p, path, columns)]
        named = [p for p in judges if words(p) & (JUDGING | LOWER_IS_BETTER | SUCCESS_WORDS)]
        for judge in named or (judges if len(judges) == 1 and EACH in path else []):
            yield _by_list(path, judge, columns.lists[judge])
        yield from _by_place(path, columns)


def by_key(columns: ValueColumns) -> Iterator[Proposal]:
    """Yield the columns of replies by the names of models, as fields of an object, and of their scores."""
    texts, numbers = _by_keys(columns, is_text=True), _by_keys(columns, is_text=False)
    for outer, replies in texts.items():
        if words(outer[0] or outer[1]) & NO_REPLIES or not 2 <= len(replies) <= MOST_KEYS:
            continue
        rated = [o for o, held in numbers.items() if held.keys() == replies.keys()]
        rated = [o for o in rated if words(f"{o[0]}.{o[1]}" if o[1] else o[0]) & JUDGING]
        if len(rated) != 1 or words(rated[0][1] or rated[0][0]) & LOWER_IS_BETTER:
            continue
        keys = [*replies]
        names = [("response_a", "score_a"), ("response_b", "score_b")]
        if len(keys) > 2:
            names = [(f"response_{place}", f"score_{place}") for place in range(1, len(keys) + 1)]
        yield (
            {
                parameter: path
                for (said, score), key in zip(names, keys, strict=True)
                for parameter, path in ((said, replies[key]), (score, numbers[rated[0]][key]))
            },
            {},
        )


def _by_keys(columns: ValueColumns, *, is_text: bool) -> dict[tuple[str, str], dict[str, str]]:
    """Return the paths of texts, or of numbers, that differ in one key, by what is before and after it."""
    found: dict[tuple[str, str], dict[str, str]] = {}
    for path, held in columns.paths.items():
        there = [value for value in held if value is not None]
        is_number = bool(there) and all(isinstance(v, int | float) for v in there)
        parts = path.split(".")
        if (is_text and not columns.texts(path)) or (not is_text and not is_number):
            continue
        if len(parts) == 2:
            found.setdefault((parts[0], ""), {})[parts[1]] = path
        elif len(parts) == 3:
            found.setdefault((parts[0], parts[2]), {})[parts[1]] = path
    return found


def _longest_first(paths: Sequence[str], columns: ValueColumns) -> list[str]:
    size = {p: sum(len(t) for held in columns.lists[p] for t in held) for p in paths}
    return sorted(paths, key=lambda path: -size[path])


def _are_replies(path: str, held: Sequence[Sequence[Any]]) -> bool:
    """Return whether lists hold texts that could be replies: several in most rows, of which some differ."""
    outer, _, field = path.partition(EACH)
    if words(field or outer) & NO_REPLIES or words(outer) & NO_REPLIES:
        return False
    texts = [item for value in held for item in value]
    if not all(isinstance(text, str) for text in texts):
        return False
    several = sum(len(value) > 1 for value in held)
    varied = len({*texts}) > max(2, len(held) // 2) or len(held) == 1
    spaced = sum(" " in text.strip() or len(text) > 12 for text in texts)
    return 2 * several > len(held) and varied and 2 * spaced > len(texts)


def _judges(path: str, replies: str, columns: ValueColumns) -> bool:
    """Return whether lists hold a number or a flag for each of the replies, which tell some of them apart."""
    held, texts = columns.lists[path], columns.lists[replies]
    if path == replies or (words(path) & NO_SCORES and not words(path) & JUDGING):
        return False
    if words(path) & NEGATIONS or [*map(len, held)] != [*map(len, texts)]:
        return False
    if EACH in path and EACH in replies and path.partition(EACH)[0] != replies.partition(EACH)[0]:
        return False
    numbers = [item for value in held for item in value]
    are_numbers = all(isinstance(number, int | float) for number in numbers)
    return are_numbers and any(len({*value}) > 1 for value in held)


def _by_list(replies: str, judge: str, held: Sequence[Sequence[Any]]) -> Proposal:
    """Return the columns of replies and of what judges each of them."""
    is_rank = bool(words(judge) & LOWER_IS_BETTER)
    if not is_rank and all(item in (0, 1) for value in held for item in value):
        return {"replies": replies, "right": judge}, {}
    return {"replies": replies, "scores": judge}, {"lower": "true"} if is_rank else {}


def _by_place(replies: str, columns: ValueColumns) -> Iterator[Proposal]:
    """Yield the columns of replies and of the place of the best, where it is seen from where it counts."""
    sizes = [len(value) for value in columns.lists[replies]]
    for path, held in columns.paths.items():
        if not words(path) & BEST or len(sizes) != len(held):
            continue
        if not all(isinstance(n, int) and not isinstance(n, bool) for n in held):
            continue
        for first in (0, 1):
            inside = all(first <= n < size + first for n, size in zip(held, sizes, strict=True))
            ends = [n == (0 if first == 0 else size) for n, size in zip(held, sizes, strict=True)]
            if inside and any(ends):
                yield {"replies": replies, "best": path}, {"first": "1"} if first else {}
                return
