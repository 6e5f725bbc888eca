"""A request: what a run was asked for, before it meets its sources."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class Request:
    """What a run was asked for, as the flags of `fmtkit convert` say it."""

    type: str
    form: str | None = None
    """text, messages or tokens; None for what the type speaks for."""
    method: str | None = None
    chat_template: str | None = None
    tokenizer: str | None = None
    columns: Mapping[str, str] = field(default_factory=dict)
    options: Mapping[str, Any] = field(default_factory=dict)
    keep: tuple[str, ...] = ()
    max_length: int | None = None
    on_overlong: str = "keep"
    seed: int = 0
    limit: int | None = None
    places: tuple[Path, ...] = ()
    """Plugin files and folders of configs, in which a type may name a user's function."""
    config: Mapping[str, Any] = field(default_factory=dict)
    """What user functions are called with."""
