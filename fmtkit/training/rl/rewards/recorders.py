"""log_extra and log_metric for a call whose logs must wait: they are written down and replayed."""

from collections.abc import Mapping, Sequence
from typing import Any

NAMES = ("log_extra", "log_metric")

Logged = tuple[str, tuple[Any, ...], Mapping[str, Any]]


class Recorder:
    """Stands in for one of the two; what it is called with goes to a list."""

    def __init__(self, name: str, logged: list[Logged]) -> None:
        """Write down under this name."""
        self._name = name
        self._logged = logged

    def __call__(self, *arguments: Any, **named: Any) -> None:
        """Write down a call."""
        self._logged.append((self._name, arguments, named))


def recording(context: Mapping[str, Any]) -> tuple[dict[str, Any], list[Logged]]:
    """Return the context with recorders in the place of what logs, and what they will write down."""
    logged: list[Logged] = []
    stand_ins = {name: Recorder(name, logged) for name in NAMES if name in context}
    return {**context, **stand_ins}, logged


def replay(context: Mapping[str, Any], logged: Sequence[Logged]) -> None:
    """Log what was written down."""
    for name, arguments, named in logged:
        context[name](*arguments, **named)
