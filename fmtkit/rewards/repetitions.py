"""Does the completion repeat itself?"""

from collections.abc import Sequence
from typing import Any, ClassVar

from fmtkit.core.data_classes import dataclass
from fmtkit.rewards.answers import text_of


@dataclass(frozen=True)
class repetition:  # noqa: N801
    """-`penalty` times the share of n-grams of words that occurred before; 0 if none is repeated.

    After the repetition penalty of https://arxiv.org/abs/2502.03373, as one number for a completion.
    """

    n: int = 3
    penalty: float = 1.0
    is_shaping: ClassVar[bool] = True

    def __post_init__(self) -> None:
        """Raise ValueError for invalid options."""
        if self.n < 1:
            raise ValueError(f"n: {self.n}: takes a whole number from 1")
        if self.penalty < 0:
            raise ValueError(
                f"penalty: {self.penalty}: takes a number from 0; the reward is its negative"
            )

    def __call__(self, completions: Sequence[Any], **_: Any) -> list[float]:
        """Return a reward for each completion."""
        return [-self.penalty * self._share(text_of(c).lower().split()) for c in completions]

    def _share(self, words: Sequence[str]) -> float:
        grams = [tuple(words[start : start + self.n]) for start in range(len(words) - self.n + 1)]
        return 1.0 - len(set(grams)) / len(grams) if grams else 0.0
