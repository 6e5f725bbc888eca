"""Near misses: columns that a converter could read under a different name, found by name and by values.

`instructions` for `instruction`, `chosenResponse` for `chosen_response`, `meta.question` for `question`,
`reply` for `response`, `{speaker, text}` for `{role, content}`: whatever is proposed here is tried on
rows before anyone sees it.
"""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from difflib import get_close_matches
from typing import Any

from fmtkit.columns.kinds import ConversationKind, Kind, ListKind
from fmtkit.columns.known_words import BAD, GOLD, GOOD, LOWER_IS_BETTER, NEGATIONS, NO_ANSWERS
from fmtkit.columns.strict_kinds import judge, unwrapped
from fmtkit.core.message_keys import REASONING_KEYS, SPEAKER_KEYS
from fmtkit.core.tables import Preference, Ranking
from fmtkit.formats import type_options
from fmtkit.formats.registry import Converter
from fmtkit.reading.bound_column import top_of
from fmtkit.reading.lost_turns import (
    LABELS,
    decoded,
    head_of,
    looks_like_turns,
    names_people,
    words_of,
)

Row = Mapping[str, Any]
ROWS = 20
"""Rows whose values are compared with a kind."""
SOUND = 0.5
"""Share of a column's values that must be of the kind."""
SAME = 0.95
"""Similarity of names that differ in case or number only."""
ALIKE = 0.6
"""Similarity from which on two names mean the same."""
CLOSE = 0.8
"""Similarity from which on a column may fill an optional parameter."""
_ASKED = frozenset({
    "question", "query", "prompt", "instruction", "input", "human", "problem", "task", "user", "source",
    "goal",
})  # fmt: skip
_SAID = frozenset({
    "answer", "response", "output", "completion", "solution", "assistant", "reply", "bot", "target",
    "summary", "highlight", "gpt",
})  # fmt: skip
_SPEAKING = frozenset({"user", "human", "assistant", "bot", "gpt"})
_MESSAGES = frozenset({"message", "msg", "turn", "utterance", "text", "content", "input", "reply"})
_GIVEN = frozenset(
    {"context", "passage", "document", "article", "knowledge", "evidence", "paragraph", "story"}
)
GIVEN_WORDS = 5
"""Words on average from which on such a column is what a question is about, and not the name of a topic."""
SYNONYMS = (
    (0.6, _ASKED),
    (0.6, _SAID),
    (0.6, frozenset({"message", "conversation", "dialog", "dialogue", "chat", "turn"})),
    (CLOSE, _GIVEN),
    (0.6, frozenset({"label", "liked", "thumb", "is_good"})),
    (CLOSE, frozenset({"tool", "function"})),
    (0.6, frozenset({"text", "content", "document"})),
    # The text to summarise takes the place of a question.
    (0.55, _ASKED | _GIVEN | {"dialogue", "post"}),
    # These say what a text is, and not what it is for: beside a question or an answer it is the other one.
    (0.5, _ASKED | {"text", "statement"}),
    (0.5, _SAID | {"text", "code", "patch", "sql"}),
)
"""Synonyms, and how similar they make two names."""
SIDES = {
    "chosen": 1, "preferred": 1, "better": 1, "best": 1, "winner": 1, "accepted": 1, "positive": 1,
    "good": 1, "liked": 1, "win": 1, "selected": 1, "picked": 1, "favored": 1,
    "favoured": 1, "rejected": -1, "dispreferred": -1, "worse": -1, "worst": -1,
    "loser": -1, "losing": -1, "lost": -1, "lose": -1, "negative": -1, "bad": -1, "disliked": -1,
    "nonpreferred": -1, "reject": -1, "choose": 1, "other": -1, "hallucinated": -1, "incorrect": -1,
    "wrong": -1, "unsafe": -1, "flawed": -1, "corrupted": -1, "noisy": -1,
}  # fmt: skip
"""Words that say which side of a pair a column is."""
LATER = frozenset({"edited", "revised", "revision", "improved", "refined", "corrected", "final"})
"""Words of the reply that takes the place of an earlier one."""
FIRST = frozenset({"init", "initial", "original"})
"""Words of the question that was asked first, and of the reply that a later one takes the place of."""
THOUGHTS = frozenset({"cot", "reasoning", "thinking", "thought", "thoughts"})
"""Words of what was thought before a reply."""
TRUE = frozenset({"right", "correct", "factual", "truthful", "safe"})
"""Words of a column that is the better side beside one that is wrong, and simply the answer without one."""
_SHORT = {
    "q": "question", "ques": "question", "a": "answer", "ans": "answer", "resp": "response",
    "instr": "instruction", "src": "source", "tgt": "target", "pos": "positive", "neg": "negative",
}  # fmt: skip
"""Short forms of words; one letter only where it is the whole name."""

MISSPELT = 0.8
"""Similarity of the letters of a misspelt name: `repo_name` is no `response`."""
INNER = frozenset({"text", "content", "value"})
"""Last words of keys within an object that add no meaning: `question.full_text` is the question."""
CONTENT_KEYS = ("content", "value", "text", "message", "utterance", "body")
SPEAKERS = {
    "user": "user", "human": "user", "prompter": "user", "customer": "user", "client": "user",
    "assistant": "assistant", "gpt": "assistant", "ai": "assistant", "bot": "assistant",
    "chatbot": "assistant", "model": "assistant", "agent": "assistant", "chatgpt": "assistant",
    "llm": "assistant", "system": "system", "tool": "tool", "function": "tool",
    "observation": "tool", "tool-response": "tool", "tool_response": "tool", "tool_result": "tool",
    "tool_output": "tool", "environment": "tool", "ipython": "tool",
}  # fmt: skip
"""Other names for the keys and roles of messages, in lower case."""


def spelled(converter: Converter, options: Mapping[str, Any]) -> Converter:
    """Return the converter that reads messages as options of its type spell them."""
    if not options:
        return converter
    kinds = type_options.resolve(converter, {}, options).kinds
    return replace(converter, takes={**converter.takes, **kinds})


def spelling(converter: Converter, sample: Sequence[Row]) -> dict[str, str]:
    """Return the options by which a type reads the messages of a sample; none where it does anyway.

    Messages that name their speakers or contents in two ways, a speaker that is unknown, or a label
    that a more specific type may read, need no option.
    """
    conversations = [
        kind for kind in converter.columns.values() if isinstance(kind, ConversationKind)
    ]
    columns = values_by_path(sample).values() if conversations else ()
    messages = [m for held in columns for value in held for m in _messages(value)]
    keys = {key for m in messages for key in m if key in (*SPEAKER_KEYS, *CONTENT_KEYS)}
    role, *others = [key for key in SPEAKER_KEYS if key in keys] or [""]
    content, *further = [key for key in CONTENT_KEYS if key in keys] or [""]
    named = [m.get(role) for m in messages]
    said = {name for name in named if isinstance(name, str)}
    labelled = any(key in LABELS and m[key] is not None for m in messages for key in m)
    unclear = others or further or not role or not content or labelled
    if unclear or not all(isinstance(name, str) for name in named):
        return {}
    options: dict[str, str] = {}
    if any(kind.role != role for kind in conversations):
        options["message_field_role"] = role
    if any(kind.content != content for kind in conversations):
        options["message_field_content"] = content
    strange = sorted(s for s in said if any(kind.speaker_of(s) is None for kind in conversations))
    roles: dict[str, list[str]] = {}
    for name in strange:
        if name.lower() not in SPEAKERS:
            return {}
        roles.setdefault(SPEAKERS[name.lower()], []).append(name)
    return options | ({"roles": json.dumps(roles)} if roles else {})


def is_message(value: Any) -> bool:
    """Return whether a value is one message, whatever its keys are called."""
    keys = value.keys() if isinstance(value, Mapping) else set()
    return not keys.isdisjoint(SPEAKER_KEYS) and not keys.isdisjoint(CONTENT_KEYS)


def _messages(value: Any) -> list[Mapping[str, Any]]:
    """Return the messages of a list of them, whatever their keys are called; else none."""
    given = decoded(value)
    listed = given if isinstance(given, list) else []
    spoken = (isinstance(m, Mapping) and not m.keys().isdisjoint(SPEAKER_KEYS) for m in listed)
    return listed if all(spoken) else []


def speakers(value: Any) -> set[str]:
    """Return the names of those who speak in a list of messages; none where it is something else."""
    messages = _messages(value)
    keys = [key for key in SPEAKER_KEYS if any(key in message for message in messages)][:1]
    return {m[key] for m in messages for key in keys if isinstance(m.get(key), str)}


def contents_of(value: Any) -> list[str]:
    """Return the key under which a list of messages has what was said."""
    messages = _messages(value)
    return [key for key in CONTENT_KEYS if any(key in message for message in messages)][:1]


def are_asked(value: Any) -> bool:
    """Return whether a value is a list of messages that ends with the user's and has no reply."""
    said = [m.get("role") for m in _messages(value)]
    return bool(said) and said[-1] == "user" and "assistant" not in said


def proposal(
    converter: Converter, sample: Sequence[Row], given: Mapping[str, str] = {}
) -> dict[str, str] | None:
    """Return parameter -> path of a column to read instead of the one that rows lack; None if none fits.

    Each required column must be found but those that are `given`; optional ones are filled where a column
    with turns, answers or a system prompt would be left unread.
    """
    columns = values_by_path(sample)
    verdicts = _verdicts(sample, columns)
    judging = {n for n in converter.columns if replies(n) and converter.path(n) in verdicts}
    there = {
        name
        for name, kind in converter.columns.items()
        if name not in judging and _holds(kind, columns.get(converter.path(name), ()))
    }
    there |= given.keys()
    own = {top_of(given.get(name, converter.path(name))) for name in there}
    free = {
        path: held
        for path, held in columns.items()
        if path.partition(".")[0] not in own
        and path not in verdicts
        and not names_people(path, held)
    }
    groups: list[tuple[str, ...]] = [
        (name,) for name in converter.columns if name in converter.required - there
    ]
    groups += [group for group in converter.any_of if not there.intersection(group)]
    found = dict(given)
    for group in groups:
        best = _best(converter.columns, group, free, least=0.0) or _said_after(group, free, columns)
        if best is None or not _has_evidence(converter, *best):
            return None
        found[best[0]] = best[1]
        free.pop(best[1])
    grouped = {name for group in converter.any_of for name in group}
    optional = tuple(n for n in converter.columns if n not in converter.required | there | grouped)
    unread = {
        path: held
        for path, held in free.items()
        if looks_like_turns(path, held) or is_given(path, held) or is_thinking(path, held)
    }
    while optional and (best := _best(converter.columns, optional, unread, least=CLOSE)):
        found[best[0]] = best[1]
        unread.pop(best[1])
        optional = tuple(name for name in optional if name != best[0])
    return found


def _said_after(
    group: Sequence[str], free: Mapping[str, Sequence[Any]], columns: Mapping[str, Sequence[Any]]
) -> tuple[str, str] | None:
    """Return `content` as the answer beside what was thought before it, as APIs name the two."""
    thought = any(
        head_of(path) in REASONING_KEYS or path == "reasoning_content" for path in columns
    )
    is_said = thought and "answer" in group and _are_long(free.get("content", ()))
    return ("answer", "content") if is_said else None


def is_thinking(path: str, held: Sequence[Any]) -> bool:
    """Return whether a column is named as what was thought before a reply, and holds texts of some words."""
    return is_thought(path) and _are_long(held)


def _are_long(held: Sequence[Any]) -> bool:
    texts = [text for text in held if isinstance(text, str)]
    words = sum(len(text.split()) for text in texts)
    return bool(texts) and len(texts) == len(held) and words >= GIVEN_WORDS * len(texts)


def is_given(path: str, held: Sequence[Any]) -> bool:
    """Return whether a column is named as what a question is about, and holds texts."""
    return _head(path.rpartition(".")[2]) in _GIVEN and _are_long(held)


def _verdicts(sample: Sequence[Row], columns: Mapping[str, Sequence[Any]]) -> set[str]:
    """Return the columns with the same word of praise or blame in all of several rows that differ.

    They judge the rows, as `accept` does, and answer none.
    """
    rows = sample[:ROWS]
    if len(rows) < 2 or all(row == rows[0] for row in rows[1:]):
        return set()
    one = {p: held[0] for p, held in columns.items() if all(v == held[0] for v in held[1:])}
    return {p for p, v in one.items() if isinstance(v, str) and v.strip().lower() in GOOD | BAD}


def _has_evidence(converter: Converter, name: str, path: str) -> bool:
    """Return whether a column may be read as one of two replies: its name must say which of the two it is.

    Likeness alone makes `solution` the better of an answer and a solution, or the worse one.
    """
    if isinstance(converter.columns[name], ListKind):
        # Passages that are positive or negative are what a search finds, and no replies.
        found = {*_singular(path.rpartition(".")[2])} & {"positive", "negative"}
        return not found and likeness(name, path) >= ALIKE
    if head_of(name) not in _SAID:
        return True
    if NO_ANSWERS & {*words_of(path)} and path != name:
        return False
    if converter.makes in (Preference, Ranking):
        return _marks(_singular(name))[0] != 0 or likeness(name, path) >= SAME
    groups = [{name} for name in converter.required] + [{*group} for group in converter.any_of]
    count = sum(all(head_of(one) in _SAID for one in group) for group in groups)
    return count < 2 or likeness(name, path) >= CLOSE


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
    """Return the parameter and the column that are most similar, if the column holds its kind.

    Two equally similar columns are ambiguous: neither is returned.
    """
    alike = [
        (close, name, path)
        for name in names
        for path in columns
        if (close := likeness(name, path)) > 0
        and close >= least
        and _holds(kinds[name], columns[path])
    ]
    alike = _meant(alike)
    if not alike:
        return None if least else _conversation(kinds, names, columns)
    # Of `patch` and `test_patch` the first is the patch.
    ranked = [((close, -len(words_of(path))), name, path) for close, name, path in alike]
    closest = max(rank for rank, _, _ in ranked)
    best = [(name, path) for rank, name, path in ranked if rank == closest]
    return best[0] if len({path for _, path in best}) == 1 else None


def _meant(alike: list[tuple[float, str, str]]) -> list[tuple[float, str, str]]:
    """Leave out what is not meant where there is something else: a result to compare with, an earlier reply.

    Of several questions the first is meant, and of several replies the last.
    """
    asking = [one for one in alike if head_of(one[1]) in _ASKED]
    wanted = FIRST if len(asking) == len(alike) else LATER
    named = [one for one in alike if wanted & {*words_of(one[2])}]
    if len(named) == 1 and len(alike) > 1:
        return named
    saying = all(head_of(name) in _SAID for _, name, _ in alike)
    others = [one for one in alike if not GOLD & {*words_of(one[2])}]
    return others if saying and others else alike


def is_thought(path: str) -> bool:
    """Return whether a column is named as what was thought before a reply: `Complex_CoT`."""
    last = path.rpartition(".")[2]
    return bool(THOUGHTS & {*words_of(last), *re.split(r"[^a-z]+", last.lower())})


def _conversation(
    kinds: Mapping[str, Kind], names: Sequence[str], columns: Mapping[str, Sequence[Any]]
) -> tuple[str, str] | None:
    """Return the only column of messages, whatever its name, for the first parameter that needs them."""
    wanted = next((n for n in names if isinstance(kinds[n], ConversationKind)), None)
    if wanted is None:
        return None
    lists = {path: held for path, held in columns.items() if isinstance(held[0], list) and held[0]}
    found = [path for path, held in lists.items() if _holds(kinds[wanted], held)]
    return (wanted, found[0]) if len(found) == 1 else None


def _holds(kind: Kind, values: Sequence[Any]) -> bool:
    sound = sum(not judge(kind, unwrapped(kind, value), "") for value in values)
    return bool(values) and sound >= SOUND * len(values)


def likeness(name: str, path: str) -> float:
    """Return how similar a column's name is to a parameter's, from 0 to 1.

    >>> likeness("chosen_response", "chosenResponses"), likeness("prompt", "prompt_id")
    (1.0, 0.0)
    """
    *outer, last = path.split(".")
    if outer and words_of(last)[-1:] and words_of(last)[-1] in INNER:
        last = outer[-1]
    ours, theirs = _singular(name), _singular(last)
    if _marks(ours)[0] == 1 and TRUE & {*theirs}:
        theirs = ("chosen", *(word for word in theirs if word not in TRUE))
    if not theirs or _marks(ours) != _marks(theirs):
        return 0.0
    if head_of(name) in REASONING_KEYS or name == "reasoning_content":
        return CLOSE if is_thought(last) else 0.0
    nested = 0.95 if outer else 1.0
    if ours == theirs:
        return nested
    if _marks(ours)[1]:
        return 0.9 * nested
    one, other = _head(name), _head(last)
    if one == other or (_marks(ours)[0] and {one, other} <= SIDES.keys() | _SAID | INNER):
        return 0.8 * nested
    alike = [close for close, words in SYNONYMS if {one, other} <= words]
    if alike:
        return max(alike) * nested
    is_misspelt = bool(get_close_matches(name, [last], cutoff=MISSPELT))
    return 0.5 * nested if is_misspelt and len(name) > 4 else 0.0


def asks(name: str) -> bool:
    """Return whether a column is named as what somebody asks: a question, a prompt, a problem."""
    return _head(name) in _ASKED and "system" not in words_of(name)


def tells_of_reply(name: str) -> bool:
    """Return whether any word of a name is one for what somebody answers: `answer_that_matches`."""
    return any(_one(word, is_whole=False) in _SAID for word in words_of(name))


def replies(name: str) -> bool:
    """Return whether a column is named as what somebody answers: a response, a summary."""
    return _head(name) in _SAID


def _singular(name: str) -> tuple[str, ...]:
    words = words_of(name)
    return tuple(_one(word, is_whole=len(words) == 1) for word in words)


def _head(name: str) -> str:
    """Return the word that says what a column is, in full and without the s of a plural.

    Of `user_message` it is who speaks.
    """
    said = words_of(name)
    speaker = next((word for word in said[:-1] if word in _SPEAKING), "")
    if speaker and said[-1] in _MESSAGES:
        return speaker
    return _one(head_of(name) or name.lower())


def _one(word: str, *, is_whole: bool = True) -> str:
    if word in _SHORT and (is_whole or len(word) > 1):
        return _SHORT[word]
    return word[:-1] if word.endswith("s") and not word.endswith("ss") else word


def side_of(name: str) -> int:
    """Return which side of a pair a name says: 1 the better one, -1 the worse one, 0 for neither."""
    return _marks(_singular(name))[0]


def _marks(words: Sequence[str]) -> tuple[int, bool, bool]:
    """Return which side of a pair the words name, whether a system prompt, and whether lower is better.

    All of it must agree where a column is read under another name.
    """
    side = next((SIDES[word] for word in words if word in SIDES), 0)
    told = set(words)
    side = -side if NEGATIONS & told else side
    return side, "system" in told, bool(LOWER_IS_BETTER & told)
