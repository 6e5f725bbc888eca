"""Pickling for other processes: a value includes its declared fields, not cached properties."""

from dataclasses import fields
from typing import Any


class PickledByFields:
    """Base of dataclasses with cached properties, which every process computes for itself."""

    def __getstate__(self) -> dict[str, Any]:
        return {entry.name: getattr(self, entry.name) for entry in fields(self)}  # type: ignore[arg-type]
