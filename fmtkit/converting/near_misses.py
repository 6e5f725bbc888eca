"""Near misses: columns that a converter could read under another name, told by name and by what they hold.

`instructions` for `instruction`, `chosenResponse` for `chosen_response`, `meta.question` for `question`,
`reply` for `response`: whatever is proposed here is tried on rows before anyone sees it.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from fmtkit.converting.unread_turns import head_of, looks_like_turns, words_of
from fmtkit.errors import near_match
from fmtkit.kinds import DialogKind, Kind
from fmtkit.registry import Converter
from fmtkit.strict_kinds import judge

Row = Mapping[str, Any]
ROWS = 20
"""Rows whose values are compared with a kind."""
SOUND = 0.5
"""Share of a column's values that must be of the kind."""
CLOSE = 0.8
"""Likeness from which on a column may fill a parameter that nobody needs."""
SYNONYMS = (
    frozenset({"question", "query", "prompt", "instruction", "input", "human", "problem", "task"}),
    frozenset({"answer", "response", "output", "completion", "solution", "assistant", "reply"}),
    frozenset({"message", "conversation", "dialog", "dialogue", "chat", "turn"}),
    frozenset({"context", "passage", "document", "article"}),
    frozenset({"label", "liked", "thumb", "is_good"}),
    frozenset({"tool", "function"}),
    frozenset({"text", "content", "document"}),
)
SIDES = {
    "chosen": 1, "preferred": 1, "better": 1, "best": 1, "winner": 1, "accepted": 1, "positive": 1,
    "good": 1, "liked": 1, "win": 1, "rejected": -1, "dispreferred": -1, "worse": -1, "worst": -1,
    "loser": -1, "negative": -1, "bad": -1, "disliked": -1, "lose": -1, "nonpreferred": -1,
    "reject": -1, "choose": 1,
}  # fmt: skip
"""Words that say which side of a pair a column is."""


INNER = frozenset({"text", "content", "value"})
"""Keys within an object that say nothing: `question.text` is the question."""


def proposal(converter: Converter, sample: Sequence[Row]) -> dict[str, str] | None:
    """Return parameter -> path of another column for what the rows lack; None where nothing fits.

    Each required column must be found; optional ones are filled where a column with turns, answers
    or a system text would be left unread.
    """
    columns = values_by_path(sample)
    there = {
        name
        for name, kind in converter.columns.items()
        if _holds(kind, columns.get(converter.path(name), ()))
    }
    own = {converter.path(name).partition(".")[0] for name in there}
    free = {path: held for path, held in columns.items() if path.partition(".")[0] not in own}
    groups: list[tuple[str, ...]] = [
        (name,) for name in converter.columns if name in converter.required - there
    ]
    groups += [group for group in converter.any_of if not there.intersection(group)]
    found: dict[str, str] = {}
    for group in groups:
        best = _best(converter.columns, group, free, least=0.0)
        if best is None:
            return None
        found[best[0]] = best[1]
        free.pop(best[1])
    grouped = {name for group in converter.any_of for name in group}
    optional = tuple(n for n in converter.columns if n not in converter.required | there | grouped)
    unread = {path: held for path, held in free.items() if looks_like_turns(path, held)}
    while optional and (best := _best(converter.columns, optional, unread, least=CLOSE)):
        found[best[0]] = best[1]
        unread.pop(best[1])
        optional = tuple(name for name in optional if name != best[0])
    return found or None


def values_by_path(sample: Sequence[Row]) -> dict[str, list[Any]]:
    """Return the values of each column that are not null, and of the columns within objects."""
    found: dict[str, list[Any]] = {}
    for row in sample[:ROWS]:
        for path, value in _paths(row):
            if value is not None:
                found.setdefault(path, []).append(value)
    return found


def _paths(row: Row) -> Iterator[tuple[str, Any]]:
    for name, value in row.items():
        if "." in name:
            continue
        yield name, value
        if isinstance(value, Mapping):
            yield from ((f"{name}.{key}", item) for key, item in value.items() if "." not in key)


def _best(
    kinds: Mapping[str, Kind],
    names: Sequence[str],
    columns: Mapping[str, Sequence[Any]],
    *,
    least: float,
) -> tuple[str, str] | None:
    """Return the parameter and the column that are most alike, if the column holds its kind.

    Of two columns that are as much alike nobody knows which is meant: then it is none.
    """
    alike = [
        (close, name, path)
        for name in names
        for path in columns
        if (close := likeness(name, path)) > 0
        and close >= least
        and _holds(kinds[name], columns[path])
    ]
    if not alike:
        return None if least else _dialog(kinds, names, columns)
    closest = max(close for close, _, _ in alike)
    best = [(name, path) for close, name, path in alike if close == closest]
    return best[0] if len({path for _, path in best}) == 1 else None


def _dialog(
    kinds: Mapping[str, Kind], names: Sequence[str], columns: Mapping[str, Sequence[Any]]
) -> tuple[str, str] | None:
    """Return the one column that holds messages, whatever its name, for the first that wants them."""
    wanted = next((n for n in names if isinstance(kinds[n], DialogKind)), None)
    if wanted is None:
        return None
    lists = {path: held for path, held in columns.items() if isinstance(held[0], list) and held[0]}
    found = [path for path, held in lists.items() if _holds(kinds[wanted], held)]
    return (wanted, found[0]) if len(found) == 1 else None


def _holds(kind: Kind, values: Sequence[Any]) -> bool:
    sound = sum(not judge(kind, value, "") for value in values)
    return bool(values) and sound >= SOUND * len(values)


def likeness(name: str, path: str) -> float:
    """Tell how much a column's name is like a parameter's, from 0 to 1.

    >>> likeness("chosen_response", "chosenResponses"), likeness("prompt", "prompt_id")
    (1.0, 0.0)
    """
    *outer, last = path.split(".")
    if outer and last in INNER:
        last = outer[-1]
    ours, theirs = _singular(name), _singular(last)
    if not theirs or _marks(ours) != _marks(theirs):
        return 0.0
    nested = 0.95 if outer else 1.0
    if ours == theirs:
        return nested
    one, other = _one(head_of(name)), _one(head_of(last))
    if one == other or (_marks(ours)[0] and {one, other} & SIDES.keys()):
        return 0.8 * nested
    if any({one, other} <= synonyms for synonyms in SYNONYMS):
        return 0.6 * nested
    return 0.5 * nested if near_match(name, [last]) and len(name) > 4 else 0.0


def _singular(name: str) -> tuple[str, ...]:
    return tuple(_one(word) for word in words_of(name))


def _one(word: str) -> str:
    return word[:-1] if word.endswith("s") and not word.endswith("ss") else word


def _marks(words: Sequence[str]) -> tuple[int, bool]:
    """Return which side of a pair words speak of, and whether of a system text: these must agree."""
    side = next((SIDES[word] for word in words if word in SIDES), 0)
    return (-side if {"non", "not"} & set(words) else side), "system" in words
