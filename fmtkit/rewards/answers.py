r"""What a completion says in the end: its text, the answer that it marks, and the number that this is."""

import re
from collections.abc import Mapping
from fractions import Fraction
from typing import Any

_NUMBER = re.compile(
    r"(?<![\w.])[-+−]?[$€£]?(?:\d{1,3}(?:,\d{3})+(?:\.\d{1,100})?|\d{1,100}(?:\.\d{1,100})?|\.\d{1,100})"
    r"(?:[eE][-+]?\d{1,3})?(?:\s?/\s?\d{1,100})?(?!\d)"
)
_FRACTION = re.compile(r"\\d?frac\s*\{([^{}]*)\}\s*\{([^{}]*)\}")
_BRACE = re.compile(r"\\f?box(?:ed)?\s*\{|[{}]")


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
    r"""Return what the text marks as its answer by \boxed{}, #### or <answer>; None where nothing is."""
    boxed = _last_box(text)
    if boxed is not None:
        return boxed.strip()
    if "####" in text:
        return text.rpartition("####")[2].strip().partition("\n")[0].strip()
    end = text.rfind("</answer>")
    start = text.rfind("<answer>", 0, max(end, 0))
    return text[start + len("<answer>") : end].strip() if start >= 0 else None


def final_number(text: str) -> Fraction | None:
    """Return the number of the marked answer, or the last one of the text; None where there is none."""
    marked = final_answer(text)
    plain = _FRACTION.sub(r"\1/\2", text if marked is None else marked)
    found = _NUMBER.findall(plain)
    return number_of(found[-1]) if found else None


def number_of(text: str) -> Fraction | None:
    """Return the number that a text is, or None; 1,234.5, $3, 50%, 1/2 and -2e3 are numbers."""
    plain = _FRACTION.sub(r"\1/\2", text).strip().rstrip(".%").strip()
    if _NUMBER.fullmatch(plain) is None:
        return None
    digits = re.sub(r"[\s$€£,]", "", plain).replace("−", "-")
    above, slash, below = digits.partition("/")
    if slash and not int(below):
        return None
    return Fraction(above) / (int(below) if slash else 1)


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
    return None if found is None else text[found[0] : found[1]]


def _content(content: Any) -> str:
    """Return the text of a message, which may have it in parts."""
    if isinstance(content, list):
        return "".join(str(part.get("text", "")) for part in content if isinstance(part, Mapping))
    return content or ""
