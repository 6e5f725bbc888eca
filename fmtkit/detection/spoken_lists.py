"""Turns by their values: objects with a text and one of a few speakers, in lists or in rows.

Who is the model is said by a word for it, or for the other side; where no word is known, whoever begins is
the user. Speakers that change from one conversation to the next are people, and no roles.
"""

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby, pairwise
from typing import Any

from fmtkit.columns.known_words import (
    ID_WORDS,
    INSTRUCTING,
    MODEL_WORDS,
    MODELS,
    NO_ANSWERS,
    TURN_WORDS,
    USERS,
)
from fmtkit.core.message_keys import ROLES
from fmtkit.detection.near_misses import asks, replies
from fmtkit.detection.value_columns import ValueColumns, fields_of, words
from fmtkit.reading.bound_column import EACH, Row
from fmtkit.reading.lost_turns import decoded, words_of

Proposal = tuple[str, dict[str, str], dict[str, str]]
MOST_SPEAKERS = 4
NO_CONVERSATIONS = NO_ANSWERS | frozenset({
    "response", "answer", "completion", "candidate", "reply", "generation", "output", "rating",
    "example", "demo", "shot", "case", "annotation",
})  # fmt: skip
"""Words in the names of lists of several replies to the same, and of tests."""
FEW_CONVERSATIONS = 4
"""Conversations from which on two names that all of them have are roles, and not people."""
ALTERNATING = 0.7
"""Share of turns that another speaker follows, from which on two speak in turn."""
LONGER = 1.5
"""How many times as many different texts as speakers a column of what was said has."""


def proposals(columns: ValueColumns) -> Iterator[Proposal]:
    """Yield the types that read lists of turns, their columns and options."""
    for path, held in columns.lists.items():
        is_told = EACH not in path and not words(path) & NO_CONVERSATIONS and len(held) > 1
        lists = held if is_told else []
        keys = fields_of(lists)
        turns = _turns(lists, keys)
        if turns is not None:
            yield "openai", {"messages": path, **_system(columns, path)}, turns
        asked = _exchanges(lists, keys) if turns is None else None
        if asked is not None:
            read = {"input": path + EACH + asked[0], "output": path + EACH + asked[1]}
            yield "exchanges", read | _system(columns, path), {}


def _system(columns: ValueColumns, conversation: str) -> dict[str, str]:
    """Return the column of a system prompt beside turns; none where it has its usual name."""
    found = [
        p for p in columns.paths if p != conversation and columns.texts(p) and "system" in words(p)
    ]
    return {"system": found[0]} if len(found) == 1 and found != ["system"] else {}


def _turns(lists: Sequence[Sequence[Any]], keys: Sequence[str]) -> dict[str, str] | None:
    """Return the options by which lists of objects are read as turns; None where they are none."""
    if not lists:
        return None
    named = [key for key in keys if not words(key) & MODEL_WORDS]
    speakers = {
        k: s for k in named if (s := _roles([[m[k] for m in d] for d in lists])) is not None
    }
    texts = {k: [m[k] for d in lists for m in d] for k in keys if k not in speakers}
    texts = {k: held for k, held in texts.items() if _are_texts(held)}
    if len(speakers) != 1 or not texts:
        return None
    [(role, roles)] = speakers.items()
    said = max(texts, key=lambda key: sum(map(len, texts[key])))
    return _options(role, said, roles)


def _options(role: str, said: str, roles: Mapping[str, str]) -> dict[str, str]:
    """Return the options that name the keys of a turn and its speakers, without what is usual."""
    named = {"message_field_role": role} if role != "role" else {}
    named |= {"message_field_content": said} if said != "content" else {}
    told: dict[str, list[str]] = {}
    for name, meant in roles.items():
        if ROLES.get(name) != meant:
            told.setdefault(meant, []).append(name)
    shown = json.dumps({key: told[key] for key in sorted(told)}, ensure_ascii=False)
    return named | ({"roles": shown} if told else {})


def _are_texts(held: Sequence[Any]) -> bool:
    return bool(held) and all(isinstance(text, str) for text in held) and len({*held}) > 2


def _roles(conversations: Sequence[Sequence[Any]]) -> dict[str, str] | None:
    """Return the role of each speaker; None where values are no speakers of conversations."""
    said = [name for conversation in conversations for name in conversation]
    if not all(isinstance(name, str) and name.strip() for name in said):
        return None
    names = [*dict.fromkeys(said)]
    if any(name.isdigit() for name in names):
        return None
    if not 1 < len(names) <= MOST_SPEAKERS or any(len(name.split()) > 3 for name in names):
        return None
    pairs = [(a, b) for conversation in conversations for a, b in pairwise(conversation)]
    if not pairs or sum(a != b for a, b in pairs) < ALTERNATING * len(pairs):
        return None
    return _meanings(names, conversations)


def _meanings(
    names: Sequence[str], conversations: Sequence[Sequence[str]]
) -> dict[str, str] | None:
    """Return what the speakers are: by words that are known, by the other side, or by which one begins."""
    meant = {name: role for name in names if (role := _known(name)) is not None}
    left = [name for name in names if name not in meant]
    sides = {"user", "assistant"} - {*meant.values()}
    if len(left) == 1 and len(sides) == 1:
        meant[left[0]] = sides.pop()
    elif len(left) == 2 and len(sides) == 2 and len(conversations) >= FEW_CONVERSATIONS:
        begins = Counter(next(n for n in d if n in left) for d in conversations if {*d} & {*left})
        [(first, times), *_] = begins.most_common()
        if times < ALTERNATING * sum(begins.values()) or not all(
            {*left} <= {*d} for d in conversations
        ):
            return None
        meant |= {name: "user" if name == first else "assistant" for name in left}
    is_whole = len(meant) == len(names) and {"user", "assistant"} <= {*meant.values()}
    return meant if is_whole else None


def _known(name: str) -> str | None:
    """Return the role that a speaker's name says in any of several languages."""
    said = {name.strip().lower(), *words_of(name)}
    for role, known in (("system", INSTRUCTING), ("assistant", MODELS), ("user", USERS)):
        if said & known:
            return role
    return "tool" if said & {"tool", "function", "observation", "environment"} else None


def _exchanges(lists: Sequence[Sequence[Any]], keys: Sequence[str]) -> tuple[str, str] | None:
    """Return the fields of a question and its answer in each object of lists; None without such names."""
    texts = [k for k in keys if all(isinstance(m[k], str) for d in lists for m in d)]
    if any("system" in words(k) for k in _keys(lists)):
        return None
    if any(len({m[k] for d in lists for m in d}) > MOST_SPEAKERS for k in texts if _is_unread(k)):
        return None
    asking = [key for key in texts if asks(key) or words(key) & USERS]
    saying = [key for key in texts if (replies(key) or words(key) & MODELS) and key not in asking]
    return (asking[0], saying[0]) if len(asking) == len(saying) == 1 else None


def _keys(lists: Sequence[Sequence[Any]]) -> set[str]:
    """Return the keys of the objects in lists."""
    return {key for d in lists for m in d if isinstance(m, Mapping) for key in m}


def _is_unread(key: str) -> bool:
    """Return whether a field of an exchange is neither what was asked nor what was answered."""
    known = asks(key) or replies(key) or bool(words(key) & (USERS | MODELS))
    return not known and not words(key) & ID_WORDS


def of_rows(rows: Sequence[Row]) -> Iterator[Proposal]:
    """Yield the type that reads rows as turns, by the columns of their conversations and speakers."""
    names = [*dict.fromkeys(name for row in rows for name in row)]
    columns = {name: [decoded(row.get(name)) for row in rows] for name in names}
    for group, held in columns.items():
        runs = [[*run] for _, run in groupby(range(len(held)), key=held.__getitem__)]
        if not _are_groups(held, runs):
            continue
        turns = {n: [[v[i] for i in run] for run in runs] for n, v in columns.items() if n != group}
        roles = {name: found for name, d in turns.items() if (found := _roles(d)) is not None}
        texts = {n: columns[n] for n in turns if n not in roles and _are_texts(columns[n])}
        if len(roles) != 1 or not texts or not all(map(_is_in_order, _places(turns))):
            continue
        [(role, meant)] = roles.items()
        said = max(texts, key=lambda name: sum(map(len, texts[name])))
        yield "message_rows", {}, {"rows_by": group, **_options(role, said, meant)}
        return


def _are_groups(held: Sequence[Any], runs: Sequence[Sequence[int]]) -> bool:
    """Return whether a column names groups of adjacent rows: each name has one run, most of several rows."""
    if any(value is None or isinstance(value, list | Mapping | float | bool) for value in held):
        return False
    several = sum(len(run) > 1 for run in runs)
    is_once = len(runs) == len({*held})
    return len(runs) > 1 and is_once and several > len(runs) * ALTERNATING


def _places(turns: Mapping[str, Sequence[Sequence[Any]]]) -> list[Sequence[Sequence[Any]]]:
    """Return the columns that are named as the place of a turn."""
    return [
        held
        for name, held in turns.items()
        if {*words_of(name)} & TURN_WORDS
        if all(str(value).isdigit() for run in held for value in run)
    ]


def _is_in_order(runs: Sequence[Sequence[Any]]) -> bool:
    return all(int(a) <= int(b) for run in runs for a, b in pairwise(run))
