"""Does the completion have the requested form? By tags, or by a pattern."""

import re
from collections.abc import Sequence
from typing import Any

from fmtkit.core.data_classes import dataclass
from fmtkit.rewards.answers import text_of


@dataclass(frozen=True)
class tags:  # noqa: N801
    """1 where the completion is made of these tags in this order, each once and not empty, else 0."""

    tags: Sequence[str] = ("think", "answer")

    def __call__(self, completions: Sequence[Any], **_: Any) -> list[float]:
        """Return a reward for each completion."""
        return [float(self._fits(text_of(c, thinking=True))) for c in completions]

    def _fits(self, text: str) -> bool:
        place = 0
        for name in self.tags:
            opening, closing = f"<{name}>", f"</{name}>"
            start, end = text.find(opening), text.find(closing)
            inside = text[start + len(opening) : end]
            once = text.count(opening) == 1 == text.count(closing)
            if not once or text[place:start].strip() or end < start or not inside.strip():
                return False
            place = end + len(closing)
        return not text[place:].strip()


@dataclass(frozen=True)
class pattern:  # noqa: N801
    """1 where the regular expression matches the whole completion (anywhere, with `search`), else 0."""

    pattern: str
    search: bool = False

    def __post_init__(self) -> None:
        """Raise an error if the pattern is not a regular expression."""
        try:
            re.compile(self.pattern)
        except re.error as error:
            raise ValueError(f"pattern: {self.pattern!r}: {error}") from error

    def __call__(self, completions: Sequence[Any], **_: Any) -> list[float]:
        """Return a reward for each completion."""
        compiled = re.compile(self.pattern, re.DOTALL)
        match = compiled.search if self.search else compiled.fullmatch
        return [float(match(text_of(c, thinking=True).strip()) is not None) for c in completions]
