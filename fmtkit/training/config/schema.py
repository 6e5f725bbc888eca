"""The JSON Schema of a configuration, made from the table of keys and the installed TRL.

`python -m fmtkit.training.config.schema` writes `schemas/config.schema.json`; a test compares it with the
table if the installed TRL is the one that it was made from.
"""

import json
from importlib.resources import files
from pathlib import Path
from typing import cast

from fmtkit.training.config.key import Key, Schema, nullable, schema_of
from fmtkit.training.config.keys import (
    MARK,
    aliases,
    arguments_by_name,
    dataset_table,
    find_key,
    table,
)
from fmtkit.training.config.trainer_source import installed


def build() -> Schema:
    """Return the schema of a configuration, with the arguments of the installed TRL."""
    named = arguments_by_name()
    properties: Schema = {}
    for name in (*table(), *aliases(), *named):
        key = find_key(aliases().get(name, name))
        section, _, last = name.rpartition(".")
        where = _section(properties, section) if section else properties
        if key is None:
            raise ValueError(f"{name} is not a key")
        where[last] = _property(key)
        if name in named:
            where[last] = {**_property(key), MARK: list(named[name].methods)}
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "A configuration of fmtkit train",
        "description": f"Arguments of trainers are those of {made_from()}.",
        "type": "object",
        "properties": properties,
        "additionalProperties": False,
    }


def made_from() -> str:
    """Return the versions from which the trainers' arguments are read."""
    return ", ".join(f"{name} {installed(name)}" for name in ("trl", "transformers"))


def _section(properties: Schema, name: str) -> Schema:
    empty: Schema = {"type": "object", "properties": {}, "additionalProperties": False}
    section = cast("Schema", properties.setdefault(name, nullable(empty)))
    return cast("Schema", section["properties"])


def dumps() -> str:
    """Return the schema as the text of its file."""
    return json.dumps(build(), indent=1, ensure_ascii=False) + "\n"


def _property(key: Key) -> Schema:
    return {**nullable(_inner(key)), "description": key.about}


def _inner(key: Key) -> Schema:
    if key.kind != "datasets":
        return schema_of(key.kind)
    entries = {
        name: _property(entry)
        for entry in dataset_table().values()
        for name in (entry.name, *entry.aliases)
    }
    item = {"type": "object", "properties": entries, "additionalProperties": False}
    return {"type": "array", "items": item}


if __name__ == "__main__":
    target = Path(str(files("fmtkit.schemas").joinpath("config.schema.json")))
    target.write_text(dumps(), encoding="utf-8")
