"""Replies under names that differ in a number or a letter, and the columns that say which of them won.

`output_1`, `output_2` and `preference`: that there are two says nothing of which is better. A pair is
proposed only where the values of a column name a side, or each side has a score; options say which value
names which. Three replies and more are ranked by their scores; without any they are samples, if no column
judges them.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fmtkit.columns.kinds import NumberKind
from fmtkit.columns.strict_kinds import mark_of, unwrapped
from fmtkit.converting.known_words import LOWER_IS_BETTER, NEGATIONS, SCORE_WORDS
from fmtkit.converting.lost_turns import decoded, words_of
from fmtkit.converting.near_misses import side_of

Row = Mapping[str, Any]
COUNTERPARTS = (
    ("1", "2"), ("0", "1"), ("a", "b"), ("first", "second"), ("one", "two"), ("left", "right"),
)  # fmt: skip
"""The words in which two names differ."""
REPLIES = frozenset({
    "answer", "response", "output", "completion", "reply", "generation", "solution", "summary", "candidate",
    "assistant", "continuation", "option", "translation", "message", "text",
})  # fmt: skip
WINNERS = (
    "winner", "preference", "preferred", "choice", "chosen", "better", "best", "verdict", "judgment",
    "judgement", "decision", "selected", "vote", "label", "annotator", "annotation",
)  # fmt: skip
"""Words in the name of a column that says which reply won, the plainest first."""
TIES = frozenset({"tie", "ties", "tied", "both", "neither", "equal", "same", "draw", "none"})
MOST_VOTES = 5
SEVERAL, MOST = 3, 8
"""Replies of a row in columns of their own that are more than two sides, and how many types take."""


@dataclass(frozen=True)
class Sides:
    """Two columns whose names differ in one word, and that word in each."""

    names: tuple[str, str]
    words: tuple[str, str]


def proposals(sample: Sequence[Row]) -> Iterator[tuple[dict[str, str], dict[str, str]]]:
    """Yield columns and options of `two_replies` for the rows of a sample: by a winner, then by scores."""
    columns = {
        name: [row.get(name) for row in sample] for name in {n: 0 for r in sample for n in r}
    }
    every = list(_sides(columns))
    replies = _replies(every, columns)
    if replies is None:
        return
    read = {"response_a": replies.names[0], "response_b": replies.names[1]}
    paired = {name for one in every for name in one.names}
    beside = {name: held for name, held in columns.items() if name not in paired}
    for votes in _ballots(columns, beside):
        found = _named_sides([columns[name] for name in votes], replies)
        models = {} if found is not None else _models(columns[votes[0]], every, columns)
        if found is not None or models:
            params = (f"winner_{i}" if i > 1 else "winner" for i in range(1, len(votes) + 1))
            yield _renamed(read | dict(zip(params, votes, strict=True)) | models), found or {}
            return
    scores = [one for one in every if one.words == replies.words and _are_scores(one, columns)]
    if len(scores) == 1:
        [one] = scores
        yield _renamed(read | {"score_a": one.names[0], "score_b": one.names[1]}), {}


def are_judged(sample: Sequence[Row]) -> bool:
    """Return whether a column may say which of several replies is best."""
    columns = {
        name: [row.get(name) for row in sample] for name in {n: 0 for r in sample for n in r}
    }
    return next(_ballots(columns, columns), None) is not None


def several(sample: Sequence[Row]) -> dict[str, str] | None:
    """Return the columns of three replies or more, and of their scores; None where there are none.

    Nor where they have no score each, and another column may say which of them is best.
    """
    columns = {
        name: [row.get(name) for row in sample] for name in {n: 0 for r in sample for n in r}
    }
    runs = [run for run in _runs(columns) if SEVERAL <= len(run) <= MOST]
    replies = [
        run
        for run in runs
        if _stems(run[0]) & REPLIES
        and all(side_of(name) == 0 and _are_texts(columns[name]) for name in run)
    ]
    if len(replies) != 1:
        return None
    [said] = replies
    scores = [
        r
        for r in runs
        if len(r) == len(said) and _are_scores(Sides((r[0], r[-1]), ("", "")), columns)
    ]
    beside = {name: held for name, held in columns.items() if name not in said}
    if not scores and next(_ballots(columns, beside), None):
        return None
    read = {f"response_{place}": name for place, name in enumerate(said, start=1)}
    if len(scores) == 1:
        read |= {f"score_{place}": name for place, name in enumerate(scores[0], start=1)}
    return None if len(scores) > 1 else _renamed(read)


def _runs(columns: Mapping[str, Sequence[Any]]) -> Iterator[list[str]]:
    """Yield the columns whose names differ in a number only that counts from 0 or 1, in that order."""
    found: dict[tuple[str, ...], dict[int, str]] = {}
    for name in columns:
        words = words_of(name)
        for place in (i for i, word in enumerate(words) if word.isdigit()):
            stem = (*words[:place], "#", *words[place + 1 :])
            found.setdefault(stem, {})[int(words[place])] = name
    for numbered in found.values():
        places = sorted(numbered)
        if places[0] in (0, 1) and places == list(range(places[0], places[0] + len(places))):
            yield [numbered[place] for place in places]


def _renamed(read: Mapping[str, str]) -> dict[str, str]:
    """Return the columns that have another name than their parameter."""
    return {name: path for name, path in read.items() if name != path}


def _sides(columns: Mapping[str, Sequence[Any]]) -> Iterator[Sides]:
    """Yield the pairs of columns whose names differ in a number or a letter."""
    words = {name: words_of(name) for name in columns}
    for first, ours in words.items():
        for one, other in COUNTERPARTS:
            for place in (i for i, word in enumerate(ours) if word == one):
                theirs = [*ours[:place], other, *ours[place + 1 :]]
                for second in (name for name, found in words.items() if found == theirs):
                    yield Sides((first, second), (one, other))


def _replies(sides: Sequence[Sides], columns: Mapping[str, Sequence[Any]]) -> Sides | None:
    """Return the columns of replies: named so and texts; None where there are none, or a third one."""
    found = [
        one
        for one in sides
        if (_stems(one.names[0]) & REPLIES or _are_named_alone(one))
        and all(_are_texts(columns[name]) for name in one.names)
    ]
    if len(found) != 1 or any(_is_third(name, found[0], columns) for name in columns):
        return None
    return found[0]


def _are_named_alone(sides: Sides) -> bool:
    """Return whether the word in which two names differ is all that they say: `first` and `second`."""
    return [words_of(name) for name in sides.names] == [[word] for word in sides.words]


def _is_third(name: str, sides: Sides, columns: Mapping[str, Sequence[Any]]) -> bool:
    """Return whether a column is one more of the same: `response_3`."""
    ours, theirs = words_of(sides.names[0]), words_of(name)
    differ = [(one, other) for one, other in zip(ours, theirs, strict=False) if one != other]
    is_like = len(ours) == len(theirs) and len(differ) == 1 and differ[0][0] == sides.words[0]
    is_numbered = is_like and (differ[0][1].isdigit() or len(differ[0][1]) == 1)
    return is_numbered and name not in sides.names and _are_texts(columns[name])


def _stems(name: str) -> set[str]:
    return {word.removesuffix("s") for word in words_of(name)}


def _are_texts(values: Sequence[Any]) -> bool:
    there = [value for value in values if value is not None]
    return bool(there) and all(isinstance(v, str) and isinstance(decoded(v), str) for v in there)


def _are_scores(sides: Sides, columns: Mapping[str, Sequence[Any]]) -> bool:
    held = (unwrapped(NumberKind(), v) for name in sides.names for v in columns[name])
    there = [value for value in held if value is not None]
    are_numbers = all(isinstance(v, int | float) and not isinstance(v, bool) for v in there)
    words = _stems(sides.names[0])
    is_score = bool(words & SCORE_WORDS) and not words & LOWER_IS_BETTER
    return bool(there) and are_numbers and is_score


def _ballots(
    columns: Mapping[str, Sequence[Any]], beside: Mapping[str, Sequence[Any]]
) -> Iterator[list[str]]:
    """Yield the columns that may say who won, those of several judges together."""
    for word in WINNERS:
        several = [name for name in columns if words_of(name)[:-1] == [word] and name[-1].isdigit()]
        if 1 < len(several) <= MOST_VOTES:
            yield sorted(several)
        for name in beside:
            told = set(words_of(name))
            # `least_preferred` names the worse one.
            if word in told and not told & NEGATIONS and side_of(name) >= 0:
                yield [name]


def _named_sides(votes: Sequence[Sequence[Any]], replies: Sides) -> dict[str, str] | None:
    """Return by options which value names which reply; None where the values do not tell."""
    there = [v for held in votes for v in held if v is not None and v != ""]
    if not there or not all(isinstance(v, str | int | float) for v in there):
        return None
    marks = dict.fromkeys(mark_of(_plain(value)) for value in there)
    named = {mark: _side_of(mark, replies) for mark in marks}
    readings = [named, _counted(marks, ("1", "2"), "0"), _counted(marks, ("0", "1"), "2")]
    if replies.words == ("0", "1"):
        readings = [named, _counted(marks, ("0", "1"), "2")]
    fitting = [one for one in readings if one and None not in one.values()]
    # Where both sides win somewhere: of 0 and 1 beside columns 1 and 2, 0 is the first and not a tie.
    both = [one for one in fitting if {1, -1} <= set(one.values())]
    best = next(iter([*both, *fitting]), None)
    if best is None or not {1, -1} & set(best.values()):
        return None
    return _options(best)


def _plain(value: Any) -> Any:
    """Return a value as the type compares it: a text without white space, and without the .0 of a number."""
    return re.sub(r"^(-?\d+)\.0+$", r"\1", value.strip()) if isinstance(value, str) else value


def _side_of(mark: str, replies: Sides) -> int | None:
    """Return the side that a value names by the word in which the names of the replies differ."""
    words = set(words_of(mark))
    if (
        words & TIES
        or mark.lower().startswith("tie")
        or (words == {"c"} and replies.words[0] == "a")
    ):
        return 0
    first, second = (word in words for word in replies.words)
    others = {word.removesuffix("s") for word in words} - {*replies.words}
    if first == second or others - REPLIES - {"model"}:
        return None
    return 1 if first else -1


def _counted(marks: Mapping[str, Any], sides: tuple[str, str], tie: str) -> dict[str, int | None]:
    """Return the sides of numbers that count the replies from 1, or from 0."""
    known = {sides[0]: 1, sides[1]: -1, tie: 0}
    return {mark: 0 if set(words_of(mark)) & TIES else known.get(mark) for mark in marks}


def _options(named: Mapping[str, int | None]) -> dict[str, str] | None:
    """Return the options that say it; None where a side has two names that are no letters."""
    options: dict[str, str] = {}
    for option, side in (("a", 1), ("b", -1), ("tie", 0)):
        marks = [m for m, s in named.items() if s == side and not set(words_of(m)) & {*TIES, "c"}]
        if len(marks) > 1:
            return None
        if marks:
            options[option] = marks[0]
    return options if not _are_letters(options) else {}


def _are_letters(options: Mapping[str, str]) -> bool:
    """Return whether the type knows the values by itself."""
    return all(option in words_of(mark) for option, mark in options.items())


def _models(
    winners: Sequence[Any], sides: Sequence[Sides], columns: Mapping[str, Sequence[Any]]
) -> dict[str, str]:
    """Return the columns of the two models whose names the winners are."""
    for one in sides:
        first, second = (columns[name] for name in one.names)
        rows = [
            (won, pair)
            for won, *pair in zip(winners, first, second, strict=True)
            if isinstance(won, str) and not set(words_of(won)) & TIES
        ]
        if rows and all(won in pair for won, pair in rows):
            return {"model_a": one.names[0], "model_b": one.names[1]}
    return {}
