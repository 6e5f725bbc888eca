"""Is the answer the reference? As numbers, as texts, or letter by letter."""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from fmtkit.errors import OptionError
from fmtkit.rewards.answers import final_answer, final_number, number_of, text_of

REFERENCES = ("answer", "solution", "ground_truth", "reference", "target", "label")
"""Columns that a reference is looked for in, in this order, where none is named."""

_IGNORED = re.compile(r"[\s$]+")


@dataclass(frozen=True)
class accuracy:  # noqa: N801 - used as a function
    r"""1 where the final answer is the reference, else 0; numbers are compared as numbers.

    The final answer is what the last \boxed{} holds, what follows the last ####, or what is in the
    last <answer>; otherwise the last number, for a reference that is one, or the whole text.
    """

    column: str = ""

    def __call__(self, completions: Sequence[Any], **columns: Any) -> list[float | None]:
        """Return a reward for each completion; None where the row has no reference."""
        return _compared(completions, self._references(columns), _is_right)

    def check_columns(self, columns: Sequence[str]) -> None:
        """Raise OptionError if no column can be the reference."""
        reference_column(self.column, columns)

    def _references(self, columns: Mapping[str, Sequence[Any]]) -> Sequence[Any]:
        return columns[reference_column(self.column, columns)]


@dataclass(frozen=True)
class exact_match(accuracy):  # noqa: N801
    """1 where the completion is the reference and nothing else, but for space around it, else 0."""

    ignore_case: bool = False

    def __call__(self, completions: Sequence[Any], **columns: Any) -> list[float | None]:
        """Return a reward for each completion; None where the row has no reference."""

        def same(text: str, reference: str) -> bool:
            if self.ignore_case:
                return text.strip().casefold() == reference.strip().casefold()
            return text.strip() == reference.strip()

        return _compared(completions, self._references(columns), same)


@dataclass(frozen=True)
class numeric_match(accuracy):  # noqa: N801
    """1 where the final number is the reference's, else 0; within `tolerance` of it, relative to it."""

    tolerance: float = 0.0

    def __call__(self, completions: Sequence[Any], **columns: Any) -> list[float | None]:
        """Return a reward for each completion; None where the row has no reference."""

        def near(text: str, reference: str) -> bool:
            found, wanted = final_number(text), final_number(reference)
            if found is None or wanted is None:
                return False
            return abs(found - wanted) <= abs(wanted) * Fraction(self.tolerance)

        return _compared(completions, self._references(columns), near)


def reference_column(named: str, columns: Sequence[str] | Mapping[str, Any]) -> str:
    """Return the column that holds the reference; raise OptionError where none does."""
    found = next((name for name in ([named] if named else REFERENCES) if name in columns), None)
    if found is None:
        wanted = repr(named) if named else f"none of {', '.join(REFERENCES)}"
        raise OptionError(
            f"the rows have no reference to compare with: {wanted} is not among their columns "
            f"({', '.join(sorted(columns))}); name one by the option `column`"
        )
    return found


def _compared(
    completions: Sequence[Any], references: Sequence[Any], fits: Callable[[str, str], bool]
) -> list[float | None]:
    return [
        None if reference in (None, "") else float(fits(text_of(completion), _text(reference)))
        for completion, reference in zip(completions, references, strict=True)
    ]


def _is_right(text: str, reference: str) -> bool:
    marked = final_answer(reference)
    wanted = reference if marked is None else marked
    number = number_of(wanted)
    if number is not None:
        return final_number(text) == number
    found = final_answer(text)
    return _plain(text if found is None else found) == _plain(wanted)


def _plain(text: str) -> str:
    return _IGNORED.sub(" ", text).strip().strip(".").strip().casefold()


def _text(reference: Any) -> str:
    """Return a reference as text: a number, a text, or messages."""
    return text_of(reference) if isinstance(reference, (str, list)) else str(reference)
