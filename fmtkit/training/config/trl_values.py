"""Values in TRL's config files as its parser reads them: text in quotes is what the key takes, or JSON.

TRL gives argparse the text of a value, and transformers the JSON of a mapping. A value that is no text is
passed on as YAML reads it, so that a bare `no` is false, which no strategy is.
"""

import json
from collections.abc import Callable, Mapping
from typing import cast

from fmtkit.core.errors import OptionError
from fmtkit.core.runner import Runner
from fmtkit.training.config.class_arguments import REMOVED
from fmtkit.training.config.key import Key, takes
from fmtkit.training.config.keys import SECTION, aliases, arguments_of, find_key
from fmtkit.training.config.problems import Problems

_SWITCHES = {
    **dict.fromkeys(("yes", "true", "t", "y", "1"), True),
    **dict.fromkeys(("no", "false", "f", "n", "0"), False),
}
_NULLS = frozenset({"none", "null"})
_WORDS = {
    "eval_strategy": "no",
    "logging_strategy": "no",
    "report_to": "none",
    "save_strategy": "no",
}
"""Keys of a word that YAML reads as false where it has no quotes -> the word."""
_FORMER = ("evaluation_strategy", "max_seq_length")
"""Former names of TRL's arguments that are names of fmtkit's keys in other files."""
_KEPT = {"group_by_length": "", "torch_dtype": "dtype", "warmup_ratio": ""}
"""Former names of TRL's arguments that are keys of fmtkit itself, and their present names."""


def read(
    values: Mapping[str, object], chosen: Runner | None, problems: Problems, notes: list[str]
) -> dict[str, object]:
    """Return the keys of a TRL file with the values that its parser makes of them."""
    out = dict(values)
    for name, value in values.items():
        key = _key_of(name)
        with problems.collecting("value", name):
            if value is False and name in _WORDS:
                del out[name]
                raise OptionError(
                    f"{name}: YAML reads no and off as false where they have no quotes, and TRL refuses "
                    f'false; write {name}: "{_WORDS[name]}"'
                )
            if isinstance(value, str) and key is not None:
                # A text that is wrong has been told of, and is not read again.
                del out[name]
                out[name] = _meant(name, value, key, chosen)
    for name in _FORMER:
        with problems.collecting("unknown_key", name):
            if out.pop(name, None) is not None:
                raise OptionError(f"no key named {name!r}; {REMOVED[name]}")
    for name, present in _KEPT.items():
        if out.get(name) is not None:
            said = f"it is {present} now" if present else REMOVED[name]
            notes.append(
                f"{name} is a former name, which TRL refuses ({said}); it is read as it was meant"
            )
    return out


def _key_of(name: str) -> Key | None:
    """Return the key of a flat name in a TRL file."""
    if name == "use_peft":
        return Key(name, "bool", "fmtkit", "")
    if name == "dataset_kwargs":
        return Key(name, "object", "fmtkit", "")
    for one in (name, f"{SECTION}.{name}"):
        key = find_key(aliases().get(one, one))
        if key is not None:
            return key
    return None


def _meant(name: str, text: str, key: Key, chosen: Runner | None) -> object:
    """Return a text as what its key takes; the text itself where that is what it takes, or nothing is.

    Raises OptionError for a mapping that is no JSON.
    """
    if text.lstrip().startswith("{") and takes(key, {}):
        return _mapping(name, text)
    if takes(key, text) or key.kind.startswith("enum:"):
        return text
    if text.lower() in _NULLS and _is_optional(name, chosen):
        return None
    readers = cast("tuple[Callable[[str], object], ...]", (_switch, int, float))
    for reader in readers:
        try:
            value = reader(text)
        except (KeyError, ValueError):
            continue
        if takes(key, value):
            return value
    return text


def _switch(text: str) -> bool:
    return _SWITCHES[text.lower()]


def _mapping(name: str, text: str) -> object:
    try:
        return json.loads(text)
    except ValueError as error:
        raise OptionError(f"{name}: {text!r} is not JSON: {error}") from error


def _is_optional(name: str, chosen: Runner | None) -> bool:
    field = None if chosen is None else arguments_of(chosen).fields.get(name)
    return field is not None and field.types is not None and "None" in field.types
