"""`unfrozen_parameters`: which weights train, as axolotl reads it."""

import re
from collections.abc import Sequence
from typing import Any

from fmtkit.core.data_classes import dataclass
from fmtkit.core.errors import OptionError

_ROWS = re.compile(r"(?P<name>.+)\[(?P<start>\d*)(?P<colon>:)?(?P<stop>\d*)\]")
# A point separates the parts of a name; before a plus it is any character.
_POINT = re.compile(r"(?<!\\)\.(?!\+)")


@dataclass(frozen=True)
class Chosen:
    """Weights by the beginning of their name, and which of their rows; all where `stop` is None."""

    name: re.Pattern[str]
    start: int = 0
    stop: int | None = None

    @property
    def is_whole(self) -> bool:
        """Return whether every row trains."""
        return self.start == 0 and self.stop is None


def read(text: str) -> Chosen:
    """Read a regular expression, with or without rows after it: `^model.embed_tokens.weight$[:32000]`.

    Raises OptionError for what is not a regular expression, or names no row.
    """
    match = _ROWS.fullmatch(text)
    name, start, stop = text, 0, None
    if match is not None and (match["colon"] or match["start"]):
        name = match["name"]
        start = int(match["start"] or 0)
        stop = int(match["stop"]) if match["stop"] else None
        stop = stop if match["colon"] else start + 1
        if stop is not None and stop <= start:
            raise OptionError(f"unfrozen_parameters: {text!r}: no row is in [{start}:{stop}]")
    try:
        return Chosen(re.compile(_POINT.sub(r"\\.", name)), start, stop)
    except re.error as error:
        raise OptionError(
            f"unfrozen_parameters: {text!r} is not a regular expression: {error}"
        ) from None


def freeze(model: Any, patterns: Sequence[object], source: str) -> None:
    """Unfreeze the weights, or some of their rows, that a pattern names; raise OptionError for none."""
    every = [read(str(pattern)) for pattern in patterns]
    trained = 0
    for name, weight in model.named_parameters():
        chosen = [one for one in every if one.name.match(name)]
        weight.requires_grad = bool(chosen)
        trained += bool(chosen)
        if chosen and not any(one.is_whole for one in chosen):
            weight.register_hook(_Rows(chosen))
    if not trained:
        raise OptionError(f"unfrozen_parameters: {list(patterns)} match no parameter of {source}")


@dataclass(frozen=True)
class _Rows:
    """A hook that keeps the gradients of some rows of a weight, and sets the others to zero."""

    chosen: Sequence[Chosen]

    def __call__(self, gradient: Any) -> Any:
        import torch

        kept = torch.zeros_like(gradient)
        for one in self.chosen:
            kept[one.start : one.stop] = gradient[one.start : one.stop]
        return kept
