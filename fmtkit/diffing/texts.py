"""Parts of rendered texts that a difference is named by: turns, think blocks, JSON."""

import json
import re
from collections.abc import Iterator

ROLES = re.compile(
    r"\b(system(?:_prompt)?|developer|user|assistant|human|gpt|model|tool)\b", re.IGNORECASE
)
_THINK = re.compile(r"<think>(.*?)</think>", re.DOTALL)
_EMPTY = re.compile(r"<think>\s*</think>")
_DECODER = json.JSONDecoder()


def squeezed(text: str) -> str:
    """Return a text without its white space."""
    return re.sub(r"\s+", "", text)


def bare(text: str) -> str:
    """Return the text of a turn without the name of its role and white space."""
    return squeezed(ROLES.sub("", text, count=1))


def short(text: str) -> str:
    """Return the beginning of a text."""
    return text if len(text) <= 40 else text[:39] + "…"


def without_empty_think(text: str) -> str:
    """Return a text without its empty think blocks."""
    return _EMPTY.sub("", text)


def without_marks(text: str) -> str:
    """Return a text without marks such as </s>, also where only their ends are in it."""
    return re.sub(r"^[^<>\s]?>|<[^<>\s]*>|<\|?$", "", text)


def has_words(text: str) -> bool:
    """Return whether there is more than punctuation in a text."""
    return re.search(r"\w", text) is not None


def is_only_marks(text: str) -> bool:
    """Return whether a text says nothing: marks, or the name of a role."""
    left = without_marks(text)
    return not has_words(left) or ROLES.fullmatch(left.strip()) is not None


def thinking_rule(one: str, other: str) -> str | None:
    """Return the rule by which two texts differ in their think blocks alone."""
    if "<think>" not in one and "<think>" not in other:
        return None
    if squeezed(_EMPTY.sub("", one)) == squeezed(_EMPTY.sub("", other)):
        return "empty_think"
    if squeezed(_THINK.sub("", one)) != squeezed(_THINK.sub("", other)):
        return None
    # Other reasoning is another reply.
    counts = [len(_THINK.findall(_EMPTY.sub("", text))) for text in (one, other)]
    return "reasoning" if counts[0] != counts[1] else None


def json_rule(one: str, other: str) -> str | None:
    """Return the rule by which two texts differ in how their JSON is written alone."""
    if "{" not in one or "{" not in other:
        return None
    if _rewritten(one, in_order=False) != _rewritten(other, in_order=False):
        return None
    same_order = _rewritten(one, in_order=True) == _rewritten(other, in_order=True)
    return "json_text" if same_order else "key_order"


def same_but_for_json(one: str, other: str) -> bool:
    """Return whether two texts are the same, white space too, but for how their JSON is written."""
    return _respelled(one, in_order=True) == _respelled(other, in_order=True)


def _rewritten(text: str, *, in_order: bool) -> str:
    return squeezed(_respelled(text, in_order=in_order))


def _respelled(text: str, *, in_order: bool) -> str:
    """Return a text with its JSON written in one way."""
    return "".join(
        json.dumps(value, sort_keys=not in_order) if isinstance(value, dict) else written
        for written, value in _stretches(text)
    )


def json_in(text: str) -> str:
    """Return the JSON objects of a text as they are written."""
    return "".join(written for written, value in _stretches(text) if value is not None)


def _stretches(text: str) -> Iterator[tuple[str, dict[str, object] | None]]:
    """Yield the JSON objects in a text, as they are written and read, and the texts between them."""
    place = 0
    while (start := text.find("{", place)) >= 0:
        try:
            value, end = _DECODER.raw_decode(text, start)
        except ValueError:
            # No object begins here: perhaps behind it.
            yield text[place : start + 1], None
            place = start + 1
            continue
        except RecursionError:
            break
        yield text[place:start], None
        yield text[start:end], value
        place = end
    yield text[place:], None
