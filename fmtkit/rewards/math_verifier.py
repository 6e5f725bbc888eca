"""Comparison of answers as expressions by the package math-verify, in a process with limits.

Expressions come from a model: a comparison that takes too long is stopped, and counts as not equal.
"""

import json
from collections.abc import Mapping
from fractions import Fraction
from functools import cache
from importlib.util import find_spec
from typing import Any

from fmtkit.core.errors import DependencyError
from fmtkit.core.worker import Limits, Overrun, Serve, Worker
from fmtkit.rewards.equality import expression, expressions

_TARGET = "fmtkit.rewards.math_verifier:serve"
SECONDS = 10.0
_LONGEST = 4000
"""Characters of the longest expression that is compared; longer ones are not equal to any."""
_DIGITS = 30


def check_installed() -> None:
    """Raise DependencyError if math-verify is not installed."""
    if find_spec("math_verify") is None:
        raise DependencyError(
            "verifier: math_verify: math-verify is not installed; pip install 'fmtkit[math]', or "
            "leave out the verifier"
        )


def verifies(answer: str, reference: str) -> bool:
    """Return whether math-verify finds an answer equal to the reference; False after the time limit."""
    pair = expressions(answer, reference)
    return pair is not None and _asked("same", *pair) is True


def value_of(text: str) -> Fraction | None:
    """Return the real value of an expression, exact if it is rational; None if it has none."""
    written = expression(text)
    found = None if written is None else _asked("number", written)
    return Fraction(found) if isinstance(found, str) else None


def _asked(what: str, *texts: str) -> object:
    if any(len(text) > _LONGEST for text in texts):
        return None
    (answer,) = _worker(SECONDS).answer([json.dumps([what, *texts]).encode()])
    return None if isinstance(answer, Overrun) else json.loads(answer)


@cache
def _worker(seconds: float) -> Worker:
    return Worker(_TARGET, {}, Limits(seconds=seconds))


def serve(setup: Mapping[str, Any]) -> Serve:
    """Load math-verify; return the function for items ["same", answer, reference] or ["number", text]."""
    del setup
    import logging

    from math_verify import parse, verify

    logging.disable(logging.CRITICAL)

    def parsed(text: str) -> list[Any]:
        # math-verify's own time limit would replace the alarm that ends an orphaned worker.
        found: list[Any] = parse(f"\\boxed{{{text}}}", parsing_timeout=None)
        return found

    def answer(item: bytes) -> bytes:
        what, *texts = json.loads(item)
        values = [parsed(text) for text in texts]
        if not all(values):
            return b"null"
        if what == "number":
            return json.dumps(_number(values[0][0])).encode()
        return json.dumps(bool(verify(values[1], values[0], timeout_seconds=None))).encode()

    return answer


def _number(value: Any) -> str | None:
    """Return a value of sympy as a fraction or a decimal number; None if it is not a real number."""
    if not getattr(value, "is_number", False) or not value.is_real or not value.is_finite:
        return None
    return str(value if value.is_Rational else value.evalf(_DIGITS))
