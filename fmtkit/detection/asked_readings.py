"""Questions and answers by their values: logs of APIs, revisions, earlier turns, instructions, tasks."""

from collections.abc import Iterator, Mapping
from itertools import chain
from typing import Any

from fmtkit.columns.known_words import GOLD, NO_ANSWERS
from fmtkit.detection.listed_replies import NO_REPLIES
from fmtkit.detection.near_misses import FIRST, LATER, SIDES, asks, replies, tells_of_reply
from fmtkit.detection.unread_columns import is_spoken
from fmtkit.detection.value_columns import ValueColumns, words
from fmtkit.reading.lost_turns import decoded

Proposal = tuple[str, dict[str, str], dict[str, str]]
DRAFTS = FIRST | {"draft", "before", "base", "unedited", "raw"}
REVISIONS = LATER | {"edit", "rewrite", "rewritten", "fixed", "after", "revise"}
RESULTS = frozenset({"result", "expected", "desired", "ideal", "reply", "resolution", "rewrite"})
CRITIQUES = frozenset({"critique", "critic", "feedback", "review", "comment", "reason", "note"})
"""Words in the name of what was said of a reply."""
WORSE = frozenset(word for word, side in SIDES.items() if side < 0)
"""Words in the name of a reply that is not to be given."""


def proposals(columns: ValueColumns) -> Iterator[Proposal]:
    """Yield types, with columns and options, for columns of texts in which one answers the others."""
    yield from _instructed(columns)
    yield from _prompts(columns)


def logged(columns: ValueColumns) -> Iterator[Proposal]:
    """Yield types, columns and options of logs, revisions and earlier turns, which values show."""
    yield from _calls(columns)
    yield from _revised(columns)
    yield from _after_history(columns)


def _calls(columns: ValueColumns) -> Iterator[Proposal]:
    """Yield the type that reads messages that a user ends, and what an API said, in two places."""
    asked = [path for path in columns.paths if columns.is_asked(path)]
    if len(asked) != 1:
        return
    [messages] = asked
    read = {"messages": messages} if messages != "request.messages" else {}
    choices = [
        p for p, held in columns.lists.items() if all(map(_is_choice, chain.from_iterable(held)))
    ]
    tools = messages.rpartition(".")[0] + ".tools"
    if len(choices) == 1:
        read |= {"choices": choices[0]} if choices[0] != "response.choices" else {}
        read |= {"tools": tools} if tools in columns.paths and tools != "request.tools" else {}
        yield "api_calls", read, {}
        return
    said = [p for p, held in columns.paths.items() if all(map(_is_reply, held))]
    said = said or [p for p in columns.paths if columns.texts(p) and _tells(p)]
    if len(said) == 1:
        yield "completion", {"prompt": messages, "completion": said[0]}, {}


def _tells(path: str) -> bool:
    """Return whether a field of an object is what was said: `response.content`, `output.text`."""
    top, _, last = path.rpartition(".")
    said = replies(last) or words(last) <= {"content", "text", "message"}
    return bool(top) and said and replies(top) and not words(path) & GOLD


def _is_choice(item: Any) -> bool:
    return isinstance(item, Mapping) and _is_reply(item.get("message"))


def _is_reply(value: Any) -> bool:
    """Return whether a value is a message of the model."""
    return isinstance(value, Mapping) and value.get("role") == "assistant" and "content" in value


def _revised(columns: ValueColumns) -> Iterator[Proposal]:
    """Yield the type of a reply and its revision, where names say which of two texts is which."""
    texts = [path for path in columns.paths if columns.texts(path) and not asks(_last(path))]
    texts = [path for path in texts if not words(path) & CRITIQUES]
    first = [path for path in texts if words(path) & DRAFTS]
    later = [path for path in texts if words(path) & REVISIONS and path not in first]
    if len(first) != 1 or len(later) != 1:
        return
    beside = [path for path in columns.paths if words(path) & CRITIQUES]
    asked = columns.prompt([*first, *later, *beside])
    if asked is not None:
        read = {"prompt": asked, "original": first[0], "revised": later[0]}
        yield "revised_reply", read, {}


def _after_history(columns: ValueColumns) -> Iterator[Proposal]:
    """Yield the type that reads pairs of earlier turns before a question and its answer."""
    pairs = [path for path, held in columns.paths.items() if _are_pairs(held)]
    texts = [path for path in columns.paths if columns.texts(path)]
    asked = [path for path in texts if asks(_last(path))]
    said = [path for path in texts if replies(_last(path)) and path not in asked]
    if len(pairs) == len(asked) == len(said) == 1:
        read = {"question": asked[0], "answer": said[0], "history": pairs[0]}
        yield "question_answer", read, {}


def _are_pairs(held: list[Any]) -> bool:
    lists = [decoded(value) for value in held if value is not None]
    items = [item for value in lists if isinstance(value, list) for item in value]
    is_pair = (
        isinstance(item, list) and len(item) == 2 and all(isinstance(t, str) for t in item)
        for item in items
    )
    return bool(items) and all(isinstance(value, list) for value in lists) and all(is_pair)


def _instructed(columns: ValueColumns) -> Iterator[Proposal]:
    """Yield the type that reads two texts as what was asked and answered, in the order of the columns.

    An instruction that is the same in all rows stands before them.
    """
    texts = [p for p in columns.open_texts if p in columns.paths and columns.texts(p)]
    if len(texts) != 2 or any(
        is_spoken(text) for path in texts for text in columns.texts(path) or ()
    ):
        return
    first, second = texts
    if (asks(second) and not asks(first)) or (replies(first) and not replies(second)):
        first, second = second, first
    is_named = asks(_last(first)) or tells_of_reply(_last(second)) or words(second) & RESULTS
    if (
        words(second) & (NO_ANSWERS | NO_REPLIES | WORSE)
        or words(first) & CRITIQUES
        or not is_named
    ):
        return
    shared = [path for path in columns.paths if path not in texts and columns.is_shared(path)]
    if len(shared) == 1:
        yield "question_answer", {"instruction": shared[0], "input": first, "output": second}, {}
    elif not words(first) & NO_ANSWERS or asks(first):
        yield "question_answer", {"question": first, "answer": second}, {}


def _prompts(columns: ValueColumns) -> Iterator[Proposal]:
    """Yield prompts alone, where one text is a task, and tests or starter code beside it answer nothing."""
    if not any(words(path) & NO_ANSWERS for path in columns.paths):
        return
    texts = [path for path in columns.paths if "." not in path and columns.texts(path)]
    given = [path for path in columns.open_texts if not words(path) & NO_ANSWERS]
    asked = [path for path in texts if asks(path) and path in columns.open_texts]
    if not asked and len(given) < len(columns.open_texts):
        # Beside starter code or a formal statement, the only other text is the task.
        asked = given
    others = [p for p in columns.open_texts if p not in asked and not words(p) & NO_ANSWERS]
    answered = [p for p in texts if p not in asked and tells_of_reply(p)]
    answered = [p for p in answered if not words(p) & NO_ANSWERS and p in columns.open_texts]
    if len(asked) == 1 and not answered and not [p for p in others if p in texts]:
        yield "passthrough", {"prompt": asked[0]} if asked != ["prompt"] else {}, {}


def _last(path: str) -> str:
    return path.rpartition(".")[2]
