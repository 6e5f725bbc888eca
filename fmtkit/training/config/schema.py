"""The JSON Schema of a configuration, made from the table of keys and of the installed TRL.

`python -m fmtkit.training.config.schema` writes `schemas/config.schema.json`; a test compares them where the
TRL is installed that the shipped one was made from.
"""

import json
from functools import cache
from importlib.resources import files
from math import isfinite
from pathlib import Path
from typing import cast

from jsonschema import Draft202012Validator

from fmtkit.converting.convert_options import ConvertOptions
from fmtkit.core import runner
from fmtkit.core.errors import OptionError
from fmtkit.core.options import Option
from fmtkit.training.config.key import Key
from fmtkit.training.config.keys import aliases, dataset_table, table
from fmtkit.training.config.named_arguments import MARK, everywhere, find_key
from fmtkit.training.planning.trainer_source import installed

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
    "field_instruction",
    "field_input",
    "field_output",
    "system_prompt",
    "format",
    "no_input_format",
]

KINDS: dict[str, Schema] = {
    "any": {},
    "bool": {"type": "boolean"},
    "integer": {"type": "integer"},
    "count": {"type": "integer", "minimum": 1},
    "natural": {"type": "integer", "minimum": 0},
    "steps": {"anyOf": [{"type": "integer", "minimum": 1}, {"const": -1}]},
    "number": _NUMBER,
    "amount": {"type": "number", "minimum": 0},
    "fraction": {"type": "number", "minimum": 0, "maximum": 1},
    "text": _TEXT,
    "texts": _TEXTS,
    "list": {"type": "array"},
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
                "properties": {key: {"type": ["string", "null"]} for key in _TYPE_FIELDS},
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
    "list": "a list",
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
    option = option_of(kind)
    return WORDS[kind] if option is None else option.words


def option_of(kind: str) -> Option | None:
    """Return the option of `fmtkit convert` that a kind of key is; None for another kind."""
    name = kind.removeprefix("option:")
    return None if name == kind else ConvertOptions.declared()[name]


def takes(key: Key, value: object) -> bool:
    """Tell whether a value is of the kind that a key takes; null is, since it unsets the key."""
    if isinstance(value, float) and not isfinite(value):
        return False
    if key.kind == "method":
        return value is None or value in runner.names()
    option = option_of(key.kind)
    return _validator(key.kind).is_valid(value) and (option is None or _reads(option, value))


def _reads(option: Option, value: object) -> bool:
    try:
        option.read(value, "")
    except OptionError:
        return False
    return True


@cache
def _validator(kind: str) -> Draft202012Validator:
    return Draft202012Validator(_nullable(_inner(kind)))


def build() -> Schema:
    """Return the schema of a whole configuration, with the arguments of the installed TRL."""
    named = everywhere()
    properties: Schema = {}
    for name in (*table(), *aliases(), *named):
        key = find_key(aliases().get(name, name))
        section, _, last = name.rpartition(".")
        where = _section(properties, section) if section else properties
        if key is None:
            raise ValueError(f"{name} is no key")
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
    """Return the versions that the named arguments are read from."""
    return ", ".join(f"{name} {installed(name)}" for name in ("trl", "transformers"))


def _section(properties: Schema, name: str) -> Schema:
    empty: Schema = {"type": "object", "properties": {}, "additionalProperties": False}
    section = cast("Schema", properties.setdefault(name, _nullable(empty)))
    return cast("Schema", section["properties"])


def dumps() -> str:
    """Return the schema as the text of its file."""
    return json.dumps(build(), indent=1, ensure_ascii=False) + "\n"


def _property(key: Key) -> Schema:
    return {**_nullable(_inner(key.kind)), "description": key.about}


def _inner(kind: str) -> Schema:
    if kind == "datasets":
        entries = {
            name: _property(entry)
            for entry in dataset_table().values()
            for name in (entry.name, *entry.aliases)
        }
        item = {"type": "object", "properties": entries, "additionalProperties": False}
        return {"type": "array", "items": item}
    if kind == "method":
        return {"enum": [*runner.shipped_names()]}
    if kind.startswith("enum:"):
        choices: list[object] = [*kind.removeprefix("enum:").split("|")]
        # YAML reads a bare `no` as false.
        return {"enum": [*choices, False] if "no" in choices else choices}
    option = option_of(kind)
    return KINDS[kind] if option is None else option.schema


def _nullable(inner: Schema) -> Schema:
    """Let a key stand without a value: it then counts as unset."""
    if not inner:
        return {}
    if "enum" in inner:
        return {"enum": [*cast("list[object]", inner["enum"]), None]}
    if "anyOf" in inner:
        return {"anyOf": [*cast("list[object]", inner["anyOf"]), {"type": "null"}]}
    kinds = inner["type"]
    return {**inner, "type": [*(kinds if isinstance(kinds, list) else [kinds]), "null"]}


if __name__ == "__main__":
    target = Path(str(files("fmtkit.schemas").joinpath("config.schema.json")))
    target.write_text(dumps(), encoding="utf-8")
