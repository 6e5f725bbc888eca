"""Is the answer the reference? As numbers, as texts, or letter by letter."""

from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from typing import Any

from fmtkit.core.data_classes import dataclass
from fmtkit.core.errors import OptionError
from fmtkit.rewards.answers import final_answer, text_of
from fmtkit.rewards.equality import Quantity, is_same, last_number, quantity_of
from fmtkit.rewards.math_verifier import check_installed, value_of, verifies

REFERENCES = ("answer", "solution", "ground_truth", "reference", "target", "label")
"""Columns that may hold the reference, in this order, if none is named."""

VERIFIERS = ("builtin", "math_verify")
"""What compares answers: fmtkit alone, or also the package math-verify with sympy."""


@dataclass(frozen=True)
class _Referenced:
    """A reward that compares completions with the references of a column."""

    column: str = ""

    def check_columns(self, columns: Sequence[str]) -> None:
        """Raise OptionError if no column can be the reference."""
        reference_column(self.column, columns)

    def _compared(
        self,
        completions: Sequence[Any],
        columns: Mapping[str, Sequence[Any]],
        score: Callable[[str, str], float | None],
    ) -> list[float | None]:
        references = columns[reference_column(self.column, columns)]
        return [
            None if reference in (None, "") else score(text_of(completion), _text(reference))
            for completion, reference in zip(completions, references, strict=True)
        ]


@dataclass(frozen=True)
class accuracy(_Referenced):  # noqa: N801 - used as a function
    r"""1 where the final answer is the reference, else 0; numbers are compared as numbers.

    The final answer is what the last \boxed{} holds, what follows the last ####, what is in the
    last <answer>, what "the answer is", or a formula at the end; otherwise the last number, for a
    reference that is one, or the whole text. With `verifier="math_verify"` what is not the same as
    written is also compared by the package math-verify, which knows that \sqrt{12} is 2\sqrt{3}.

    Example:
        >>> accuracy()([r"so \boxed{\frac12}"], answer=["0.5"])
        [1.0]
    """

    verifier: str = "builtin"

    def __post_init__(self) -> None:
        """Raise ValueError for an unknown verifier, DependencyError for one that is not installed."""
        check_verifier(self.verifier)

    def __call__(self, completions: Sequence[Any], **columns: Any) -> list[float | None]:
        """Return a reward for each completion; None where the row has no reference."""

        def score(text: str, reference: str) -> float:
            if _is_right(text, reference):
                return 1.0
            computed = self.verifier == "math_verify"
            return float(computed and verifies(_final(text), _final(reference)))

        return self._compared(completions, columns, score)


@dataclass(frozen=True)
class exact_match(_Referenced):  # noqa: N801
    """1 if the completion equals the reference, except for white space around it, else 0."""

    ignore_case: bool = False

    def __call__(self, completions: Sequence[Any], **columns: Any) -> list[float | None]:
        """Return a reward for each completion; None where the row has no reference."""

        def score(text: str, reference: str) -> float:
            if self.ignore_case:
                return float(text.strip().casefold() == reference.strip().casefold())
            return float(text.strip() == reference.strip())

        return self._compared(completions, columns, score)


@dataclass(frozen=True)
class numeric_match(_Referenced):  # noqa: N801
    r"""1 where the final number is the reference's, else 0; within `tolerance` of it, relative to it.

    A number is the answer as a whole: 2\sqrt{3} is none, unless `verifier="math_verify"` computes it.

    Example:
        >>> numeric_match(tolerance=0.01)(["It is 3.14"], answer=["3.1416"])
        [1.0]
    """

    tolerance: float = 0.0
    verifier: str = "builtin"

    def __post_init__(self) -> None:
        """Raise ValueError for invalid options, DependencyError as accuracy does."""
        if not 0 <= self.tolerance < float("inf"):
            raise ValueError(f"tolerance: {self.tolerance}: takes a number from 0")
        check_verifier(self.verifier)

    def __call__(self, completions: Sequence[Any], **columns: Any) -> list[float | None]:
        """Return a reward for each completion; None where the row has no number to compare with."""

        def score(text: str, reference: str) -> float | None:
            wanted = self._quantity(reference)
            if wanted is None:
                return None
            found = self._quantity(text)
            return float(found is not None and found.is_near(wanted, Fraction(self.tolerance)))

        return self._compared(completions, columns, score)

    def _quantity(self, text: str) -> Quantity | None:
        found = final_quantity(text)
        if found is not None or self.verifier == "builtin":
            return found
        number = value_of(_final(text))
        return None if number is None else Quantity(number)


def check_verifier(name: str) -> None:
    """Raise ValueError for an unknown verifier, DependencyError for one that is not installed."""
    if name not in VERIFIERS:
        raise ValueError(f"verifier: {name!r}: takes {' or '.join(VERIFIERS)}")
    if name == "math_verify":
        check_installed()


def reference_column(named: str, columns: Sequence[str] | Mapping[str, Any]) -> str:
    """Return the column that holds the reference; raise OptionError where none does."""
    found = next((name for name in ([named] if named else REFERENCES) if name in columns), None)
    if found is None:
        wanted = f"{named!r} is not" if named else f"none of {', '.join(REFERENCES)} is"
        raise OptionError(
            f"the rows have no reference to compare with: {wanted} among their columns "
            f"({', '.join(sorted(columns))}); name one by the option `column`"
        )
    return found


def final_quantity(text: str) -> Quantity | None:
    """Return the number that the marked answer is, or the last one of a text that marks none."""
    marked = final_answer(text)
    whole = quantity_of(text if marked is None else marked)
    last = last_number(text) if whole is None and marked is None else None
    return whole if last is None else quantity_of(last)


def _is_right(text: str, reference: str) -> bool:
    found, wanted = final_answer(text), _final(reference)
    if found is None:
        is_number = quantity_of(wanted) is not None and quantity_of(text) is None
        found = last_number(text) if is_number else text
    return found is not None and is_same(found, wanted)


def _final(text: str) -> str:
    marked = final_answer(text)
    return text if marked is None else marked


def _text(reference: Any) -> str:
    """Return a reference as text: a number, a text, or messages."""
    return text_of(reference) if isinstance(reference, (str, list)) else str(reference)
