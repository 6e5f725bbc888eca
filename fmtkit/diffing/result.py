"""The result of `fmtkit diff`: who prepared rows, how many are equal, and by which rules others differ."""

from collections.abc import Mapping
from dataclasses import asdict, field
from typing import Any

from fmtkit.core.data_classes import dataclass
from fmtkit.diffing.rules import ONLY, RULES


@dataclass(frozen=True)
class Example:
    """A row that differs, or that is on one side only."""

    rules: tuple[str, ...]
    left_row: int | None
    """Number of the row among the converted rows, or its place in a prepared dataset."""
    right_row: int | None
    side: str
    token: int | None
    detail: str
    before: str
    """Text before the first token that differs."""
    left: str
    """Text from that token on, with [brackets] around trained tokens."""
    right: str


@dataclass(frozen=True)
class Side:
    """One of the two sides: who prepared the rows, and of what."""

    name: str
    trainer: str
    config: str
    versions: Mapping[str, str] = field(default_factory=dict)
    trained_tokens: int = 0


@dataclass(frozen=True)
class Diff:
    """The result of `fmtkit.diff`: how many rows are equal, and by which rules the others differ."""

    left: Side
    right: Side
    method: str
    rows: dict[str, int]
    """`left` = equal + different + only_left, `right` = equal + different + only_right."""
    rules: dict[str, int]
    """Rule -> rows that differ by it; a row may differ by several."""
    shares: dict[str, float]
    """Rule -> share of the trained tokens of both sides that differ in rows with this rule."""
    only_left: dict[str, int]
    """Why rows are on the left side only -> how many."""
    only_right: dict[str, int]
    ledger: dict[str, int]
    """The ledger of fmtkit's conversion: rows of the sources by outcome."""
    reasons: dict[str, int]
    """Rows that fmtkit has quarantined, by code."""
    refused: dict[str, int]
    """What the other trainer, or its format, said of rows that it refused -> how many."""
    moved: int
    """Aligned rows whose position differs, since datasets are shuffled."""
    allowed: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    examples: tuple[Example, ...] = field(default=())

    @property
    def is_equal(self) -> bool:
        """Return whether both hold the same rows, in any order."""
        rows = self.rows
        return not (rows["different"] or rows["only_left"] or rows["only_right"])

    @property
    def not_allowed(self) -> tuple[str, ...]:
        """Return the rules and reasons that were found and not allowed."""
        found = dict.fromkeys((*self.rules, *self.only_left, *self.only_right))
        return tuple(one for one in found if one not in self.allowed)

    @staticmethod
    def meaning(code: str) -> str:
        """Return what a rule means, or why a row is on one side only."""
        return {**RULES, **ONLY}[code]

    @property
    def exit_code(self) -> int:
        """Return 0 if both are equal, or differ by what is allowed alone; else 1."""
        return 1 if self.not_allowed else 0

    def as_dict(self) -> dict[str, Any]:
        """Return plain values that schemas/diff.schema.json describes."""
        return {
            **asdict(self),
            "equal": self.is_equal,
            "exit_code": self.exit_code,
            "allowed": list(self.allowed),
            "notes": list(self.notes),
            "examples": [asdict(one) | {"rules": list(one.rules)} for one in self.examples],
        }
