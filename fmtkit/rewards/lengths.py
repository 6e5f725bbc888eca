"""Rewards for the length of a completion: near a target, or below a cap."""

from collections.abc import Sequence
from typing import Any, ClassVar

from fmtkit.core.data_classes import dataclass
from fmtkit.core.errors import OptionError
from fmtkit.rewards.answers import text_of

_UNITS = ("tokens", "words", "characters")


@dataclass(frozen=True)
class length_target:  # noqa: N801
    """1 at `target` tokens, falling linearly with the distance to 0 at no tokens and at twice the target."""

    target: int
    unit: str = "tokens"
    is_shaping: ClassVar[bool] = True

    def __post_init__(self) -> None:
        """Refuse options that make no sense."""
        _check_length(self.target, "target", self.unit)

    def __call__(
        self, completions: Sequence[Any], completion_ids: Any = None, **_: Any
    ) -> list[float]:
        """Return a reward for each completion."""
        counts = _lengths(completions, completion_ids, self.unit)
        return [max(0.0, 1.0 - abs(count - self.target) / self.target) for count in counts]


@dataclass(frozen=True)
class length_cap:  # noqa: N801
    """0 up to `cap - buffer` tokens, then falling to -1 at `cap` and beyond.

    The soft overlong punishment of https://arxiv.org/abs/2503.14476, equation 13.
    """

    cap: int
    buffer: int = 0
    unit: str = "tokens"
    is_shaping: ClassVar[bool] = True

    def __post_init__(self) -> None:
        """Refuse options that make no sense."""
        _check_length(self.cap, "cap", self.unit)
        if not 0 <= self.buffer <= self.cap:
            raise ValueError(f"buffer: {self.buffer}: takes a number from 0 to cap ({self.cap})")

    def __call__(
        self, completions: Sequence[Any], completion_ids: Any = None, **_: Any
    ) -> list[float]:
        """Return a reward for each completion."""
        return [self._of(count) for count in _lengths(completions, completion_ids, self.unit)]

    def _of(self, count: int) -> float:
        if count <= self.cap - self.buffer:
            return 0.0
        return -1.0 if count > self.cap else (self.cap - self.buffer - count) / self.buffer


def _check_length(value: int, name: str, unit: str) -> None:
    if value < 1:
        raise ValueError(f"{name}: {value}: takes a whole number from 1")
    if unit not in _UNITS:
        raise ValueError(f"unit: {unit!r}: takes {', '.join(_UNITS)}")


def _lengths(completions: Sequence[Any], ids: Any, unit: str) -> list[int]:
    if unit == "tokens":
        if ids is None:
            raise OptionError("unit: tokens: this trainer passes no completion_ids; use words")
        return [len(one) for one in ids]
    texts = [text_of(completion, thinking=True) for completion in completions]
    return [len(text) if unit == "characters" else len(text.split()) for text in texts]
