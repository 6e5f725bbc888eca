"""The JSON Schema of a configuration, made from the table of keys.

`python -m fmtkit.training.schema` writes `schemas/config.schema.json`; a test compares them.
"""

import json
from importlib.resources import files
from pathlib import Path
from typing import cast

from fmtkit import runner
from fmtkit.training.keys import Key, aliases, sections, table
from fmtkit.training.keys_data import DATASET_KEYS

Schema = dict[str, object]

_TEXT: Schema = {"type": "string"}
_NUMBER: Schema = {"type": "number"}
_TEXTS: Schema = {"type": "array", "items": _TEXT}
_TYPE_FIELDS = [
    "field_prompt",
    "field_system",
    "field_chosen",
    "field_rejected",
    "field_completion",
    "field_label",
    "prompt_format",
    "chosen_format",
    "rejected_format",
    "completion_format",
    "system_format",
]

KINDS: dict[str, Schema] = {
    "any": {},
    "bool": {"type": "boolean"},
    "integer": {"type": "integer"},
    "count": {"type": "integer", "minimum": 1},
    "natural": {"type": "integer", "minimum": 0},
    "steps": {"type": "integer", "anyOf": [{"minimum": 1}, {"const": -1}]},
    "number": _NUMBER,
    "amount": {"type": "number", "minimum": 0},
    "fraction": {"type": "number", "minimum": 0, "maximum": 1},
    "text": _TEXT,
    "texts": _TEXTS,
    "numbers": {"type": "array", "items": _NUMBER},
    "object": {"type": "object"},
    "objects": {"type": "array", "items": {"type": "object"}},
    "text or texts": {"anyOf": [_TEXT, _TEXTS]},
    "functions": {
        "anyOf": [
            _TEXT,
            {"type": "array", "items": {"anyOf": [_TEXT, {"type": "object", "maxProperties": 1}]}},
        ]
    },
    "text or object": {"anyOf": [_TEXT, {"type": "object"}]},
    "bool or text": {"anyOf": [{"type": "boolean"}, _TEXT]},
    "bool or auto": {"anyOf": [{"type": "boolean"}, {"const": "auto"}]},
    "bool or text or texts": {"anyOf": [{"type": "boolean"}, _TEXT, _TEXTS]},
    "type": {
        "anyOf": [
            _TEXT,
            {
                "type": "object",
                "properties": dict.fromkeys(_TYPE_FIELDS, _TEXT),
                "additionalProperties": False,
            },
        ]
    },
}

WORDS: dict[str, str] = {
    "any": "anything",
    "bool": "true or false",
    "integer": "a whole number",
    "count": "a whole number from 1",
    "natural": "a whole number from 0",
    "steps": "a whole number from 1, or -1 for none",
    "number": "a number",
    "amount": "a number from 0",
    "fraction": "a number from 0 to 1",
    "text": "a text",
    "texts": "a list of texts",
    "numbers": "a list of numbers",
    "object": "a mapping",
    "objects": "a list of mappings",
    "text or texts": "a text or a list of texts",
    "functions": "a name, or a list of names and of {name: {option: value}}",
    "text or object": "a text or a mapping",
    "bool or text": "true, false or a text",
    "bool or auto": "true, false or auto",
    "bool or text or texts": "true, false, a text or a list of texts",
    "type": "a name, or a mapping of field_… and …_format",
    "datasets": "a list of entries",
}


def words(kind: str) -> str:
    """Say what a kind of key takes."""
    if kind.startswith("enum:"):
        return "one of " + ", ".join(kind.removeprefix("enum:").split("|"))
    if kind == "method":
        return "one of " + ", ".join(runner.names())
    return WORDS[kind]


def build() -> Schema:
    """Return the schema of a whole configuration."""
    properties: Schema = {}
    for section, names in sections().items():
        inside = {
            name: _property(table()[f"{section}.{name}" if section else name]) for name in names
        }
        if section:
            properties[section] = _nullable(
                {"type": "object", "properties": inside, "additionalProperties": False}
            )
        else:
            properties |= inside
    for alias, name in aliases().items():
        section, _, last = alias.rpartition(".")
        where = properties
        if section:
            where = cast("Schema", cast("Schema", properties[section])["properties"])
        where[last] = _property(table()[name])
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "A configuration of fmtkit train",
        "type": "object",
        "properties": properties,
        "additionalProperties": False,
    }


def dumps() -> str:
    """Return the schema as the text of its file."""
    return json.dumps(build(), indent=1, ensure_ascii=False) + "\n"


def _property(key: Key) -> Schema:
    if key.kind == "datasets":
        inner: Schema = {
            "type": "array",
            "items": {
                "type": "object",
                "properties": {
                    name: _property(entry)
                    for entry in DATASET_KEYS
                    for name in (entry.name, *entry.aliases)
                },
                "additionalProperties": False,
            },
        }
    elif key.kind == "method":
        inner = {"enum": [*runner.shipped_names()]}
    elif key.kind.startswith("enum:"):
        choices: list[object] = [*key.kind.removeprefix("enum:").split("|")]
        # YAML reads a bare `no` as false.
        inner = {"enum": [*choices, False] if "no" in choices else choices}
    else:
        inner = KINDS[key.kind]
    return {**_nullable(inner), "description": key.about}


def _nullable(inner: Schema) -> Schema:
    """Let a key stand without a value: it then counts as unset."""
    if not inner:
        return {}
    if "enum" in inner:
        return {"enum": [*cast("list[object]", inner["enum"]), None]}
    if "anyOf" in inner:
        return {"anyOf": [*cast("list[object]", inner["anyOf"]), {"type": "null"}]}
    return {**inner, "type": [inner["type"], "null"]}


if __name__ == "__main__":
    target = Path(str(files("fmtkit.schemas").joinpath("config.schema.json")))
    target.write_text(dumps(), encoding="utf-8")
