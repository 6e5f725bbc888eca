"""Pickling for other processes: a value takes along what it declares, not what it has cached."""

from dataclasses import fields
from typing import Any


class PickledByFields:
    """Base of dataclasses with cached properties, which every process makes for itself."""

    def __getstate__(self) -> dict[str, Any]:
        return {entry.name: getattr(self, entry.name) for entry in fields(self)}  # type: ignore[arg-type]
