"""Replies under names that differ in one word, and the columns that say which of them won.

`output_1`, `output_2` and `preference`: that there are two says nothing of which is better. A pair is
proposed only where the values of a column name a side, or each side has a score; options say which value
names which. Three replies and more are ranked by their scores; without any they are samples, if no column
judges them.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from fmtkit.columns.kinds import NumberKind
from fmtkit.columns.known_words import GOLD, LOWER_IS_BETTER, NEGATIONS, SCORE_WORDS
from fmtkit.columns.strict_kinds import mark_of, unwrapped
from fmtkit.columns.winners import BETWEEN_MARKS
from fmtkit.core.data_classes import dataclass
from fmtkit.detection.near_misses import asks, side_of
from fmtkit.reading.lost_turns import decoded, words_of

Row = Mapping[str, Any]
COUNTERPARTS = (
    ("1", "2"), ("0", "1"), ("a", "b"), ("first", "second"), ("one", "two"), ("left", "right"),
)  # fmt: skip
"""The words in which two names differ."""
REPLIES = frozenset({
    "answer", "response", "output", "completion", "reply", "generation", "solution", "summary",
    "candidate", "assistant", "continuation", "option", "translation", "message", "text", "out",
    "sample", "rollout", "draft", "result",
})  # fmt: skip
NO_VERDICTS = GOLD | frozenset(
    [
        "loser",
        "worse",
        "worst",
        "losing",
        "rejected",
        "answer",
        "key",
        "solution",
        "target",
        "id",
        "category",
    ]
)
"""Words in the names of columns that name no winner, whatever their values."""
SAID = frozenset({
    "answer", "response", "output", "completion", "reply", "generation", "candidate",
})  # fmt: skip
"""Those of them that say what a model replied."""
WINNERS = (
    "winner", "preference", "preferred", "choice", "chosen", "better", "best", "verdict", "judgment",
    "judgement", "decision", "selected", "vote", "label", "annotator", "annotation",
)  # fmt: skip
"""Words in the name of a column that says which reply won, the plainest first."""
TIES = frozenset({
    "tie", "ties", "tied", "both", "neither", "equal", "same", "draw", "none",
})  # fmt: skip
MOST_VOTES = 5
MOST_MARKS, LONGEST_MARK = 9, 40
"""Most values that name a side, and most characters of one."""
GRADES = frozenset({
    "model", "i", "is", "better", "the", "win", "wins", "won", "preferred", "best", "slightly",
    "much", "significantly", "strongly", "clearly", "far", "system", "side",
})  # fmt: skip
"""Words beside a side's name that say how much better it is: `A is much better`."""
RATED = SCORE_WORDS | frozenset({
    "grade", "quality", "elo", "point", "upvote", "vote", "like", "ranking", "helpfulness", "stars",
    "votes",
})  # fmt: skip
"""Words in the names of the scores of two replies."""
_COMPARED = re.compile(r"\W*([ab12])\s*([>≻=~≈]+)\s*([ab12])\W*$")
FEW_LETTERS = 8
"""Letters on average from which on a text under any name may be a reply."""
MOST_FIELDS = 12
"""Fields of an object up to which each may be a column."""
SEVERAL, MOST = 3, 8
"""Replies of a row in columns of their own that are more than two sides, and how many types take."""


@dataclass(frozen=True)
class Sides:
    """Two columns whose names differ in one word, and that word in each."""

    names: tuple[str, str]
    words: tuple[str, str]


def proposals(sample: Sequence[Row]) -> Iterator[tuple[dict[str, str], dict[str, str]]]:
    """Yield columns and options of `two_replies` for the rows of a sample: by a winner, then by scores."""
    columns = _columns(sample)
    every = [*_sides(columns)]
    known = _replies(every, columns)
    others = [one for one in _unlike(columns) if known is None or one.names != known.names]
    replying = [one for one in others if _are_replies(one, columns)]
    for replies in [*([known] if known else []), *replying]:
        read = {"response_a": replies.names[0], "response_b": replies.names[1]}
        sides = [*every, *others]
        found = _judged(replies, sides, columns, is_named=replies is known)
        if found is not None:
            yield _renamed(read | found[0]), found[1]
            return


def _columns(sample: Sequence[Row]) -> dict[str, list[Any]]:
    """Return the values of each column, and of the fields of objects, in the order of the rows."""
    names = {n: 0 for r in sample for n in r}
    found: dict[str, list[Any]] = {}
    for name in names:
        held = [row.get(name) for row in sample]
        found[name] = held
        inner = {
            k: 0 for value in held if isinstance(value, Mapping) for k in value if "." not in k
        }
        for key in inner if len(inner) < MOST_FIELDS and "." not in name else ():
            found[f"{name}.{key}"] = [
                value.get(key) if isinstance(value, Mapping) else None for value in held
            ]
    return found


def _judged(
    replies: Sides, every: Sequence[Sides], columns: Mapping[str, Sequence[Any]], *, is_named: bool
) -> tuple[dict[str, str], dict[str, str]] | None:
    """Return the columns that judge two replies, and the options by which their values are read."""
    paired = {name for one in every if one.words == replies.words for name in one.names}
    beside = {name: held for name, held in columns.items() if name not in paired}
    rated = [one for one in every if one.words == replies.words and one != replies]
    flags = [one for one in rated if _are_flags(one, columns)]
    if len(flags) == 1:
        return _ticked(flags[0], columns), {}
    for votes in _ballots(columns, beside):
        found = _named_sides([columns[name] for name in votes], replies)
        models = {} if found is not None else _models(columns[votes[0]], every, columns)
        if found is not None or models:
            params = (f"winner_{i}" if i > 1 else "winner" for i in range(1, len(votes) + 1))
            return dict(zip(params, votes, strict=True)) | models, found or {}
    scores = [one for one in rated if _are_scores(one, columns)]
    if len(scores) == 1:
        [one] = scores
        is_lower = bool(_stems(one.names[0]) & LOWER_IS_BETTER)
        found_scores = {"score_a": one.names[0], "score_b": one.names[1]}
        return found_scores, {"lower": "true"} if is_lower else {}
    for name in beside:
        if {*words_of(name)} & NEGATIONS or side_of(name) < 0 or {*words_of(name)} & NO_VERDICTS:
            continue
        told = _told(columns[name], replies, is_named=is_named)
        models = {} if told is not None else _models(columns[name], every, columns)
        if told is not None or models:
            return {"winner": name} | models, told or {}
    return None


def _told(values: Sequence[Any], replies: Sides, *, is_named: bool) -> dict[str, str] | None:
    """Return by options how the values of a column under any name say who won; None where they do not.

    Both sides must win somewhere, and numbers say nothing. Letters name the sides only where `is_named`.
    """
    there = [v for v in values if v is not None and v != ""]
    if not there or not all(isinstance(v, str) and len(v) <= LONGEST_MARK for v in there):
        return None
    marks = dict.fromkeys(value.strip() for value in there)
    if len(marks) > MOST_MARKS or all(mark.lstrip("+-").isdigit() for mark in marks):
        return None
    named = {mark: _side_of(mark, replies) for mark in marks}
    if None in named.values() and is_named:
        named = {mark: _lettered(mark) for mark in marks}
    if None in named.values() or not {1, -1} <= {*named.values()}:
        return None
    return _options(named)


def _lettered(mark: str) -> int | None:
    """Return the side that a letter names, or two letters compare."""
    compared = _COMPARED.match(mark.lower())
    if compared:
        one, sign, other = compared.groups()
        if one == other:
            return None
        return (1 if one in "a1" else -1) if sign[0] in ">≻" else 0
    words = set(words_of(mark))
    if words & TIES or mark.lower().startswith("tie") or words == {"c"}:
        return 0
    if len(words & {"a", "b"}) != 1 or words - {"a", "b"} - REPLIES - GRADES:
        return None
    return 1 if "a" in words else -1


def _are_flags(sides: Sides, columns: Mapping[str, Sequence[Any]]) -> bool:
    """Return whether two columns are flags of who won, of which at most one is set in a row."""
    rows = [*zip(*(columns[name] for name in sides.names), strict=True)]
    flags = [value for row in rows for value in row]
    words = {word for name in sides.names for word in _stems(name)}
    is_said = bool(words & {*WINNERS, "win", "won", "is_best", "best"})
    are = all(_flag(value) is not None for value in flags)
    return is_said and are and not any(_flag(a) and _flag(b) for a, b in rows)


def _flag(value: Any) -> bool | None:
    """Return the flag that a value is, as text too: a CSV has nothing else."""
    text = str(value).strip().lower()
    return {"true": True, "1": True, "1.0": True, "false": False, "0": False, "0.0": False}.get(
        text
    )


def _ticked(flags: Sides, columns: Mapping[str, Sequence[Any]]) -> dict[str, str]:
    """Return the columns of flags, and of that for a tie."""
    stem = {*words_of(flags.names[0])} - {*flags.words}
    ties = [n for n in columns if {*words_of(n)} & TIES and stem & {*words_of(n)}]
    ties = [n for n in ties if all(_flag(v) is not None for v in columns[n])]
    return {"a_won": flags.names[0], "b_won": flags.names[1]} | (
        {"tied": ties[0]} if len(ties) == 1 else {}
    )


def _unlike(columns: Mapping[str, Sequence[Any]]) -> Iterator[Sides]:
    """Yield the pairs of columns whose names differ in one word of any kind, first those of text."""
    words = {name: words_of(name) for name in columns}
    pairs = [
        (first, second, [(a, b) for a, b in zip(ours, theirs, strict=True) if a != b])
        for number, (first, ours) in enumerate(words.items())
        for second, theirs in [*words.items()][number + 1 :]
        if len(ours) == len(theirs)
    ]
    found = [
        Sides((first, second), differ[0])
        for first, second, differ in pairs
        if len(differ) == 1 and (len(words[first]) > 1 or _are_fields(first, second))
        if differ[0] not in COUNTERPARTS and not side_of(first) and not side_of(second)
    ]
    yield from sorted(found, key=lambda one: not all(_are_texts(columns[n]) for n in one.names))


def _are_replies(sides: Sides, columns: Mapping[str, Sequence[Any]]) -> bool:
    """Return whether two columns may be replies: texts, of several words, no questions, and no third one."""
    held = [[v for v in columns[name] if v is not None] for name in sides.names]
    if not all(_are_texts(values) for values in held) or any(map(asks, sides.names)):
        return False
    if not all(sum(len(v) for v in values) >= FEW_LETTERS * len(values) for values in held):
        return False
    words = [words_of(name) for name in sides.names]
    place = [a == b for a, b in zip(*words, strict=True)].index(False)
    stem = [*words[0][:place], *words[0][place + 1 :]]
    alike = (
        words_of(n) for n, values in columns.items() if n not in sides.names and _are_texts(values)
    )
    return not any(len(w) == len(words[0]) and [*w[:place], *w[place + 1 :]] == stem for w in alike)


def _are_fields(first: str, second: str) -> bool:
    return first.partition(".")[0] == second.partition(".")[0] and "." in first


def unjudged(sample: Sequence[Row]) -> tuple[str, str] | None:
    """Return two columns that are named as replies to the same, of which no column says which is better."""
    columns = _columns(sample)
    every = [*_sides(columns)]
    replies = _replies(every, columns)
    if replies is None or not _stems(replies.names[0]) & SAID:
        return None
    judged = _judged(replies, [*every, *_unlike(columns)], columns, is_named=True)
    return (
        replies.names if judged is None and next(_ballots(columns, columns), None) is None else None
    )


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
        if not _stems(r[0]) & LOWER_IS_BETTER
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
    is_score = bool(words & (RATED | LOWER_IS_BETTER)) and not words & NEGATIONS
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
    if mark.strip().lower() in (name.lower() for name in replies.names):
        return 1 if mark.strip().lower() == replies.names[0].lower() else -1
    if compared := _lettered(mark) if _COMPARED.match(mark.lower()) else None:
        return compared if replies.words in COUNTERPARTS else None
    if (
        words & TIES
        or mark.lower().startswith("tie")
        or (words == {"c"} and replies.words[0] == "a")
    ):
        return 0
    first, second = (word in words for word in replies.words)
    others = {word.removesuffix("s") for word in words} - {*replies.words}
    if first == second or others - REPLIES - GRADES:
        return None
    return 1 if first else -1


def _counted(marks: Mapping[str, Any], sides: tuple[str, str], tie: str) -> dict[str, int | None]:
    """Return the sides of numbers that count the replies from 1, or from 0."""
    known = {sides[0]: 1, sides[1]: -1, tie: 0}
    return {mark: 0 if set(words_of(mark)) & TIES else known.get(mark) for mark in marks}


def _options(named: Mapping[str, int | None]) -> dict[str, str] | None:
    """Return the options that say it; None where a side has two names that are no letters."""
    options: dict[str, str] = {}
    if all(_lettered(mark) == side and not re.search(r"\d", mark) for mark, side in named.items()):
        return {}
    for option, side in (("a", 1), ("b", -1), ("tie", 0)):
        marks = [m for m, s in named.items() if s == side and not set(words_of(m)) & {*TIES, "c"}]
        if any(BETWEEN_MARKS in mark for mark in marks):
            return None
        if marks:
            options[option] = BETWEEN_MARKS.join(marks)
    return options if not _are_letters(options) else {}


def _are_letters(options: Mapping[str, str]) -> bool:
    """Return whether the type knows the values by itself."""
    marks = (
        (option, mark) for option, held in options.items() for mark in held.split(BETWEEN_MARKS)
    )
    return all(_lettered(mark) == {"a": 1, "b": -1, "tie": 0}[option] for option, mark in marks)


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
