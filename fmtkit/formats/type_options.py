"""Options of a type: where its columns are, how its messages are spelled, and what its converter takes."""

import json
from collections.abc import Mapping
from dataclasses import field, replace
from typing import Any

from fmtkit.columns.kinds import ConversationKind, FlagKind, Kind, MappedFlagKind
from fmtkit.columns.strict_kinds import json_value
from fmtkit.core.data_classes import dataclass
from fmtkit.core.errors import OptionError, UnknownNameError
from fmtkit.core.image_columns import IMAGES
from fmtkit.core.message_keys import MESSAGE_KEYS, REASONING_KEYS, ROLES
from fmtkit.formats.registry import Converter

MESSAGE_OPTIONS = (
    "roles",
    "message_property_mappings",
    "message_field_role",
    "message_field_content",
    "message_field_training",
    "message_field_training_detail",
)
LABEL_OPTION = "label_map"
THINKING_OPTION = "field_thinking"
_RENAMED = tuple(key.name for key in MESSAGE_KEYS if key.form != "calls")
"""Keys of a message that a source may call otherwise; calls have their own shape."""
_TRUE = ("true", "1", "yes")
_FALSE = ("false", "0", "no")


@dataclass(frozen=True)
class TypeOptions:
    """What the options of a run say to a converter."""

    mapping: Mapping[str, str] = field(default_factory=dict)
    """Parameter -> dotted path of its column."""
    kinds: Mapping[str, Kind] = field(default_factory=dict)
    """Parameter -> its kind, where an option changes it."""
    values: Mapping[str, Any] = field(default_factory=dict)
    """Every option of the converter, with its value."""


def resolve(
    converter: Converter, columns: Mapping[str, str], given: Mapping[str, Any]
) -> TypeOptions:
    """Sort the options of a run into columns, kinds and values.

    `columns` is --map: canonical parameter -> the source's column. Raises OptionError or
    UnknownNameError with a did-you-mean.
    """
    mapping = {}
    for name, path in columns.items():
        if name not in converter.columns and not (name == IMAGES and converter.may_have_images):
            raise UnknownNameError(f"column of type {converter.name}", name, converter.columns)
        mapping[name] = path
    spelling: dict[str, Any] = {}
    values = dict(converter.options)
    kinds: dict[str, Kind] = {}
    for key, value in given.items():
        field_of = key.removeprefix("field_")
        if field_of != key and field_of in converter.columns:
            mapping[field_of] = _text(key, value)
        elif key == THINKING_OPTION:
            spelling = _with_names(spelling, _thinking(converter, value))
        elif key in MESSAGE_OPTIONS:
            changed = _spelling(key, value)
            spelling = _with_names(spelling, changed.pop("names", {})) | changed
        elif key == LABEL_OPTION:
            kinds |= _labels(converter, value)
        elif key in values:
            values[key] = _typed(key, value, converter)
        else:
            fields = [f"field_{name}" for name in converter.columns]
            raise UnknownNameError(
                f"option of type {converter.name}", key, [*values, *fields, *MESSAGE_OPTIONS]
            )
    if spelling:
        kinds |= {name: _spelled(kind, spelling) for name, kind in converter.takes.items()}
    return TypeOptions(mapping, kinds, values)


def _spelling(key: str, value: Any) -> dict[str, Any]:
    if key == "message_field_role":
        return {"role": _text(key, value)}
    if key == "message_field_content":
        return {"content": _text(key, value)}
    if key == "message_field_training":
        return {"names": {"train": _text(key, value)}}
    if key == "message_field_training_detail":
        return {"names": {"train_detail": _text(key, value)}}
    if key == "message_property_mappings":
        table = {name: _text(key, path) for name, path in _mapping(key, value).items()}
        known = ("role", "content", *_RENAMED)
        # A name that is the default needs no entry.
        unknown = {name for name in table if name not in known and table[name] != name}
        if unknown:
            raise UnknownNameError("message property", min(unknown), known)
        named = {name: path for name, path in table.items() if name in _RENAMED}
        return {n: p for n, p in table.items() if n in ("role", "content")} | {"names": named}
    return {"roles": _roles(key, _mapping(key, value))}


def _with_names(spelling: dict[str, Any], names: Mapping[str, str]) -> dict[str, Any]:
    both = {**spelling.get("names", {}), **names}
    return spelling | ({"names": both} if both else {})


def _thinking(converter: Converter, value: Any) -> dict[str, str]:
    """Return the name of the thinking if it is not one of the default names."""
    wide = any(
        isinstance(kind, ConversationKind) and kind.wide for kind in converter.takes.values()
    )
    if not wide:
        raise OptionError(
            f"option {THINKING_OPTION}: type {converter.name} carries no thinking; leave it out"
        )
    return {} if value in REASONING_KEYS else {"reasoning_content": _text(THINKING_OPTION, value)}


def _roles(key: str, table: Mapping[str, Any]) -> dict[str, str]:
    """Turn axolotl's {canonical: [names]} into {name: canonical}, besides the default names."""
    roles: dict[str, str] = {}
    for canonical, names in table.items():
        if canonical not in set(ROLES.values()):
            raise UnknownNameError("role", canonical, set(ROLES.values()))
        for name in names if isinstance(names, list | tuple) else [names]:
            roles[_text(key, name)] = canonical
    return roles


def _mapping(key: str, value: Any) -> dict[str, Any]:
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except (ValueError, RecursionError) as error:
            raise OptionError(f"option {key}: not JSON ({error})") from error
    if not isinstance(value, dict):
        raise OptionError(f"option {key}: give a JSON object")
    return value


def _labels(converter: Converter, value: Any) -> dict[str, Kind]:
    texts = {str(text): flag for text, flag in _mapping(LABEL_OPTION, value).items()}
    wrong = [text for text, flag in texts.items() if not isinstance(flag, bool)]
    if wrong:
        raise OptionError(f"option {LABEL_OPTION}: {wrong[0]!r} must map to true or false")
    flags = {n: k for n, k in converter.takes.items() if isinstance(k, FlagKind)}
    if not flags:
        raise OptionError(f"option {LABEL_OPTION}: type {converter.name} has no label")
    is_text = not any(text in ("true", "false") or _is_number(text) for text in texts)
    return {
        name: replace(kind, texts=texts) if is_text else MappedFlagKind(texts=texts)
        for name, kind in flags.items()
    }


def _is_number(text: str) -> bool:
    return isinstance(json_value(text), int | float)


def _text(key: str, value: Any) -> str:
    if not isinstance(value, str):
        raise OptionError(f"option {key}={value!r}: give text")
    return value


_WORDS = {str: "text", bool: "true or false", int: "a whole number", float: "a number"}


def _typed(key: str, value: Any, converter: Converter) -> Any:
    """Read an option's value as the type that the converter declares, or else as that of its default.

    The null of a config leaves the option out.
    """
    default = converter.options[key]
    types = converter.option_types.get(key) or (() if default is None else (type(default),))
    if value is None:
        return default
    if not types or any(_is_of(value, wanted) for wanted in types):
        return value
    read = [_as(value, wanted) for wanted in types] if isinstance(value, str) else []
    if found := [one for one in read if one is not None]:
        return found[0]
    words = " or ".join(_WORDS.get(wanted, wanted.__name__) for wanted in types)
    raise OptionError(f"option {key}={value!r}: give {words}")


def is_true(options: Mapping[str, Any], name: str) -> bool:
    """Return whether an option is true; the type has refused other values than true and false."""
    return str(options.get(name)).lower() in _TRUE


def _is_of(value: Any, wanted: type) -> bool:
    if wanted in (int, float) and isinstance(value, bool):
        return False
    return isinstance(value, int | float if wanted is float else wanted)


def _as(text: str, wanted: type) -> Any:
    """Read a flag's text as a value; None if it is none of that type."""
    if wanted is bool:
        lower = text.lower()
        return True if lower in _TRUE else False if lower in _FALSE else None
    try:
        return wanted(text) if wanted in (int, float) else None
    except ValueError:
        return None


def _spelled(kind: Kind, options: Mapping[str, Any]) -> Kind:
    """Give a conversation kind the source's names of role and content, and of the speakers."""
    if not isinstance(kind, ConversationKind):
        return kind
    changes = {key: options[key] for key in ("role", "content", "names") if key in options}
    if "roles" in options:
        changes["roles"] = {**kind.roles, **options["roles"]}
    return replace(kind, **changes) if changes else kind
