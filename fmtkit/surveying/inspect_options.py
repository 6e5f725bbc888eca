"""The options of an inspection; each is the flag of the same name."""

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any

from fmtkit.errors import OptionError, UnknownNameError
from fmtkit.surveying.cutting import LADDER

RENAMED = {"map": "columns", "row": "rows"}


@dataclass(frozen=True)
class InspectOptions:
    """What an inspection was asked for."""

    type: str | None = None
    tokenizer: str | None = None
    chat_template: str | None = None
    method: str | None = None
    columns: Mapping[str, str] = field(default_factory=dict)
    options: Mapping[str, Any] = field(default_factory=dict)
    max_length: tuple[int, ...] = ()
    loss_budget: float = 0.01
    """Share of the rows that may be lost."""
    sample: int | None = None
    show_mask: int = 0
    rows: tuple[int, ...] = ()
    assistant_only: bool = False
    train_on_inputs: bool = False
    ebft: Mapping[str, object] = field(default_factory=dict)
    """Keys of a config's `ebft:` that place anchors."""
    limit: int | None = None
    workers: int | None = None
    plugins: tuple[str, ...] = ()

    @classmethod
    def of(cls, type: str | None, options: Mapping[str, Any]) -> "InspectOptions":
        """Take the options of the library: single values where the flags may be repeated."""
        given = {RENAMED.get(name, name): value for name, value in options.items()}
        known = [entry.name for entry in fields(cls)]
        for name in given:
            if name not in known:
                raise UnknownNameError("option", name, known)
        for name in ("max_length", "rows", "plugins"):
            value = given.get(name, ())
            given[name] = tuple(value) if isinstance(value, list | tuple) else (value,)
        return cls(type=type, **given)

    @property
    def ladder(self) -> tuple[int, ...]:
        """Return the lengths that the cutting report is about."""
        return tuple(sorted(set(self.max_length))) or LADDER


def parse_share(text: str) -> float:
    """Read `P%` or a fraction; OptionError where it is neither."""
    try:
        share = float(text.removesuffix("%")) / (100 if text.endswith("%") else 1)
    except ValueError:
        share = -1.0
    if not 0 <= share < 1:
        raise OptionError(f"--loss-budget {text}: give a share such as 1% or 0.01")
    return share
