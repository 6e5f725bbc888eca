"""Files that fmtkit ships beside its code, by name."""

import json
from importlib.resources import files
from typing import Any

from fmtkit.core import runner, section
from fmtkit.core.errors import UnknownNameError

_SUFFIX = ".schema.json"


def schema_names() -> list[str]:
    """Return the names of the shipped JSON Schemas."""
    entries = (entry.name for entry in files("fmtkit.schemas").iterdir())
    return sorted(name.removesuffix(_SUFFIX) for name in entries if name.endswith(_SUFFIX))


def schema(name: str) -> dict[str, Any]:
    """Return a JSON Schema as it holds here: that of a configuration knows installed methods and sections.

    An installed section is an object whose keys are left open. Raises UnknownNameError.
    """
    found: dict[str, Any] = json.loads(schema_text(name))
    if name == "config":
        for key in ("rl", "method"):
            found["properties"][key]["enum"] = [*runner.names(), None]
        for one in section.every():
            if section.is_added(one.name):
                left_open = {"type": ["object", "null"], "description": one.about}
                found["properties"].setdefault(one.name, left_open)
    return found


def schema_text(name: str) -> str:
    """Return a shipped JSON Schema; UnknownNameError if there is none of that name."""
    if name not in schema_names():
        raise UnknownNameError("schema", name, schema_names())
    return files("fmtkit.schemas").joinpath(name + _SUFFIX).read_text(encoding="utf-8")
