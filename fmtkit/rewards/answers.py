r"""What a completion says in the end: its text, and the answer that it marks."""

import re
from collections.abc import Mapping
from typing import Any

_BRACE = re.compile(r"\\f?box(?:ed)?\s*\{|[{}]")
_BARE_BOX = re.compile(r"\\f?box(?:ed)?\s+([^\s{}$\\.,]+)(?=[\s$.,]|$)")
_PHRASE = re.compile(r"\banswer\b[^.\n\d]{0,60}?(?:\bis\b|:)[\s*:]*(?P<said>[^\n]+)", re.IGNORECASE)
_SENTENCE_END = re.compile(
    r"[.!?](?=\s|\*|$)|,?\s(?:because|since|so|which|where|when|after|as)\s", re.IGNORECASE
)
_FORMULA = re.compile(
    r"(?P<before>\S*)\s*(?:\$\$(?P<a>[^$]+)\$\$|\$(?P<b>[^$]+)\$"
    r"|\\\((?P<c>(?:(?!\\\().)+?)\\\)|\\\[(?P<d>(?:(?!\\\[).)+?)\\\])[\s.*]*\Z",
    re.DOTALL,
)
_NEAR = 500
"""Characters of a string's end that a formula may fill."""
_CONTINUES = re.compile(r"(?:[-+*/^=<>,(]|and|or|not)\Z", re.IGNORECASE)


def text_of(completion: Any, *, thinking: bool = False) -> str:
    """Return a completion's text; of messages, what the assistant said last (with its thinking)."""
    if isinstance(completion, str):
        return completion
    own = [m for m in completion if m.get("role", "assistant") == "assistant"]
    if not own:
        return ""
    text = _content(own[-1].get("content"))
    thought = own[-1].get("reasoning_content") or own[-1].get("thinking")
    return f"<think>{thought}</think>{text}" if thinking and thought else text


def final_answer(text: str) -> str | None:
    r"""Return what the text marks as its answer; None where nothing is marked.

    The first of these that there is: the last \boxed{}, what follows the last ####, the last
    <answer>, what the last "answer is" (or "Answer:") says, a formula that the text ends with.
    """
    boxed = _last_box(text)
    if boxed is not None:
        return boxed.strip()
    if "####" in text:
        return text.rpartition("####")[2].strip().partition("\n")[0].strip()
    end = text.rfind("</answer>")
    start = text.rfind("<answer>", 0, max(end, 0))
    if start >= 0:
        return text[start + len("<answer>") : end].strip()
    return _phrase(text) or _formula(text)


def _last_box(text: str) -> str | None:
    r"""Return what the last complete \boxed{} holds, braces inside of it included."""
    found: tuple[int, int] | None = None
    waiting: list[tuple[int, bool]] = []
    for brace in _BRACE.finditer(text):
        if brace[0] != "}":
            waiting.append((brace.end(), len(brace[0]) > 1))
            continue
        start, is_box = waiting.pop() if waiting else (0, False)
        if is_box and (found is None or start > found[0]):
            found = start, brace.start()
    for bare in _BARE_BOX.finditer(text):
        if found is None or bare.start(1) > found[0]:
            found = bare.span(1)
    return None if found is None else text[found[0] : found[1]]


def _phrase(text: str) -> str | None:
    """Return what a sentence says that the answer is."""
    said = None
    for match in _PHRASE.finditer(text):
        said = match["said"]
    if said is None:
        return None
    end = _SENTENCE_END.search(said)
    return (said[: end.start()] if end else said).strip(" *") or None


def _formula(text: str) -> str | None:
    """Return the formula that ends a string, unless it is a part of something longer."""
    match = _FORMULA.search(text[-_NEAR:])
    if match is None or _CONTINUES.search(match["before"]):
        return None
    formula: str = next(filter(None, match.group("a", "b", "c", "d")))
    return formula.strip()


def _content(content: Any) -> str:
    """Return the text of a message, which may have it in parts."""
    if isinstance(content, list):
        return "".join(str(part.get("text", "")) for part in content if isinstance(part, Mapping))
    return content or ""
