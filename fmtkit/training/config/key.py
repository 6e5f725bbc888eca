"""A key of a training configuration: its values, where they go, and the plan's notes on it."""

import contextlib
from collections.abc import Mapping
from dataclasses import field, replace
from functools import cache
from math import isfinite
from typing import cast

from jsonschema import Draft202012Validator

from fmtkit.core import runner, section
from fmtkit.core.data_classes import dataclass
from fmtkit.core.errors import OptionError
from fmtkit.core.options import Option
from fmtkit.options.convert_options import ConvertOptions
from fmtkit.training.config.yaml_file import parsed

DESTINATIONS = {
    "trainer": "an argument of the trainer's config class (TRL or transformers)",
    "model": "an argument of `from_pretrained`",
    "peft": "an argument of peft's `LoraConfig`",
    "quantization": "an argument of `BitsAndBytesConfig`",
    "teacher": "an argument of the teacher's `from_pretrained`",
    "launch": "how the training processes are started",
    "environment": "an environment variable of the training processes",
    "fmtkit": "fmtkit itself",
    "nothing": "only a note in the plan: the key changes only speed or memory, or has no effect",
    "refused": "cannot be honoured",
}


def destinations() -> dict[str, str]:
    """Return what a key may go to, with a line on each: the sections as well.

    Raises DependencyError for a package whose section has the name of something else.
    """
    sections = {one.name: one.about for one in section.every()}
    for name in DESTINATIONS.keys() & sections.keys():
        raise section.unusable(name, f"{name} is where other keys go")
    return DESTINATIONS | sections


@dataclass(frozen=True, slots=True)
class Key:
    """A key of the configuration and where its value goes.

    `argument` is its name at the destination, if that differs. `values` translates single values, and to None
    those that set nothing; `remarks` are notes on single values. `idle` are the values of a refused key that
    have no effect and are accepted. A `speed_only` key is only a note if the trainer's class has no such
    argument. `axolotl` says what axolotl does with the key, if `about` does not.
    """

    name: str
    kind: str
    to: str
    about: str
    argument: str = ""
    aliases: tuple[str, ...] = ()
    values: Mapping[object, object] = field(default_factory=dict)
    idle: tuple[object, ...] = (False, None)
    remarks: Mapping[object, str] = field(default_factory=dict)
    speed_only: bool = False
    axolotl: str = ""
    acts_with: str = ""
    """The key without which it has no effect."""
    option: str = ""
    """The option of datasets' types that it sets, for the types that take it."""
    is_path: bool = False
    """Whether it may name a file or a folder: `~` and $VARIABLES in its value are expanded."""

    @property
    def target(self) -> str:
        """Return the key's name at its destination."""
        return self.argument or self.name.rpartition(".")[2]

    @property
    def is_conditional(self) -> bool:
        """Return whether it may change nothing: beside other keys, by its value, or for some methods."""
        return self.speed_only or self.to == "nothing" or bool(self.remarks or self.acts_with)

    def translate(self, value: object) -> object:
        """Return the value as its destination expects it."""
        if isinstance(value, (str, bool)):
            return self.values.get(value, value)
        return value

    def remark(self, value: object) -> str | None:
        """Return the plan's note on a value; None if there is none, or the value is idle."""
        if self.to == "nothing":
            if value is False:
                return None
            does = f" (axolotl {self.axolotl})" if self.axolotl else ""
            return f"{self.name} changes nothing: {self.about}{does}"
        if not isinstance(value, (str, bool)) or value not in self.remarks:
            return None
        return f"{self.name}: {value}: {self.remarks[value]}"

    def refusal(self, value: object) -> str | None:
        """Return why the value cannot be honoured, or None."""
        if self.to != "refused" or any(value is idle or value == idle for idle in self.idle):
            return None
        return f"{self.name}: {value!r} cannot be honoured: {self.about}"


def inside(section: str, *keys: Key) -> tuple[Key, ...]:
    """Return keys with a section before their names, as users write them: `trl.beta`.

    Args:
        section: The section, such as `trl`.
        *keys: Keys with their names inside of the section.
    """
    return tuple(replace(key, name=f"{section}.{key.name}") for key in keys)


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
    "seed": {"type": "integer", "minimum": 0, "maximum": 2**32 - 1},
    "steps": {"anyOf": [{"type": "integer", "minimum": 1}, {"const": -1}]},
    "number": _NUMBER,
    "amount": {"type": "number", "minimum": 0},
    "positive": {"type": "number", "exclusiveMinimum": 0},
    "fraction": {"type": "number", "minimum": 0, "maximum": 1},
    "text": _TEXT,
    "texts": _TEXTS,
    "list": {"type": "array"},
    "numbers": {"type": "array", "items": _NUMBER},
    "object": {"type": "object"},
    "datasets": {"type": "array"},
    "objects": {"type": "array", "items": {"type": "object"}},
    "text or texts": {"anyOf": [_TEXT, _TEXTS]},
    "functions": {
        "anyOf": [
            _TEXT,
            {"type": "array", "items": {"anyOf": [_TEXT, {"type": "object", "maxProperties": 1}]}},
        ]
    },
    "text or object": {"anyOf": [_TEXT, {"type": "object"}]},
    "callbacks": {
        "anyOf": [
            _TEXT,
            {
                "type": "array",
                "items": {
                    "anyOf": [
                        _TEXT,
                        {
                            "type": "object",
                            "properties": {"class": _TEXT, "kwargs": {"type": "object"}},
                            "required": ["class"],
                            "additionalProperties": False,
                        },
                    ]
                },
            },
        ]
    },
    "bool or text": {"anyOf": [{"type": "boolean"}, _TEXT]},
    "image size": {
        "anyOf": [
            {"type": "integer", "minimum": 1},
            {
                "type": "array",
                "items": {"type": "integer", "minimum": 1},
                "minItems": 2,
                "maxItems": 2,
            },
        ]
    },
    "bool or auto": {"anyOf": [{"type": "boolean"}, {"const": "auto"}]},
    "bool or count": {"anyOf": [{"type": "boolean"}, {"type": "integer", "minimum": 1}]},
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
    "seed": "a whole number from 0 to 4294967295",
    "steps": "a whole number from 1, or -1 for none",
    "number": "a number",
    "amount": "a number from 0",
    "positive": "a number above 0",
    "fraction": "a number from 0 to 1",
    "text": "a string",
    "texts": "a list of strings",
    "list": "a list",
    "numbers": "a list of numbers",
    "object": "a mapping",
    "objects": "a list of mappings",
    "text or texts": "a string or a list of strings",
    "functions": "a name, or a list of names and of {name: {option: value}}",
    "text or object": "a string or a mapping",
    "callbacks": "a name, or a list of names and of {class: module.Class, kwargs: {name: value}}",
    "bool or text": "true, false or a string",
    "image size": "a whole number from 1, or [width, height]",
    "bool or auto": "true, false or auto",
    "bool or count": "true, false or a whole number from 1",
    "bool or text or texts": "true, false, a string or a list of strings",
    "type": "a name, or a mapping of field_… and …_format",
    "datasets": "a list of entries",
}


def words(kind: str) -> str:
    """Return in words which values a kind of key takes."""
    if kind.startswith("enum:"):
        return "one of " + ", ".join(kind.removeprefix("enum:").split("|"))
    if kind == "method":
        return "one of " + ", ".join(runner.names())
    option = option_of(kind)
    return WORDS[kind] if option is None else option.words


def is_kind(kind: str) -> bool:
    """Return whether a key may have values of this kind."""
    if kind.startswith("option:"):
        return kind.removeprefix("option:") in ConvertOptions.declared()
    return kind == "method" or kind.startswith("enum:") or kind in KINDS


def option_of(kind: str) -> Option | None:
    """Return the option of `fmtkit convert` that is the kind of a key; None for other kinds."""
    name = kind.removeprefix("option:")
    return None if name == kind else ConvertOptions.declared()[name]


def takes(key: Key, value: object) -> bool:
    """Return whether a key takes a value; every key takes null, which unsets it."""
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


def quoted(key: Key, value: object) -> str:
    """Return the advice for a number or a switch in quotes, and for the old form of `tokens`."""
    if key.name == "tokens" and isinstance(value, Mapping):
        return "; axolotl takes no mapping either: write special_tokens for one of names"
    if not isinstance(value, str):
        return ""
    with contextlib.suppress(OptionError):
        bare = parsed(f"value: {value}", "value")[0].get("value")
        if not isinstance(bare, str) and bare is not None and takes(key, bare):
            return "; it is a string there: remove the quotes"
    return ""


@cache
def _validator(kind: str) -> Draft202012Validator:
    return Draft202012Validator(nullable(schema_of(kind)))


def schema_of(kind: str) -> Schema:
    """Return the JSON Schema of the values of a kind of key."""
    if kind == "method":
        return {"enum": [*runner.shipped_names()]}
    if kind.startswith("enum:"):
        choices: list[object] = [*kind.removeprefix("enum:").split("|")]
        # YAML reads a bare `no` as false.
        return {"enum": [*choices, False] if "no" in choices else choices}
    option = option_of(kind)
    return KINDS[kind] if option is None else option.schema


def nullable(inner: Schema) -> Schema:
    """Return a schema that also allows null, with which a key counts as unset."""
    if not inner:
        return {}
    if "enum" in inner:
        return {"enum": [*cast("list[object]", inner["enum"]), None]}
    if "anyOf" in inner:
        return {"anyOf": [*cast("list[object]", inner["anyOf"]), {"type": "null"}]}
    kinds = inner["type"]
    return {**inner, "type": [*(kinds if isinstance(kinds, list) else [kinds]), "null"]}
