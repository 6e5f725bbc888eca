"""A YAML file as its users read it: plain values, the line of every key, and what is wrong in plain words."""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import field
from pathlib import Path
from typing import Any, cast

import yaml

from fmtkit.core.data_classes import dataclass
from fmtkit.core.errors import OptionError
from fmtkit.training.config.problems import Problem, Problems, excerpt, with_excerpt

MAX_DEPTH = 100
"""The deepest nesting of mappings and lists; that of a row of JSON is the same."""

MAX_VALUES = 1_000_000
TOO_DEEP = f"more than {MAX_DEPTH} mappings or lists inside each other, or one inside itself"


class _Loader(yaml.SafeLoader):
    """YAML as its users read it: 1e-5 is a number, and a key may occur once."""

    def __init__(self, text: str) -> None:
        """Begin to read a text."""
        super().__init__(text)
        self.doubles: list[tuple[int, object]] = []
        """Line and name of every duplicate key."""


def _mapping(loader: _Loader, node: yaml.MappingNode) -> dict[object, object]:
    # What `<<` brings is put before them, and may be overridden.
    written = {id(key_node) for key_node, _ in node.value}
    loader.flatten_mapping(node)
    out: dict[object, object] = {}
    keys: set[object] = set()
    for key_node, value_node in node.value:
        key = loader.construct_object(key_node, deep=True)
        if key in keys and id(key_node) in written:
            loader.doubles.append((key_node.start_mark.line + 1, key))
        if id(key_node) in written:
            keys.add(key)
        out[key] = loader.construct_object(value_node, deep=True)
    return out


def _as_written(loader: _Loader, node: yaml.ScalarNode) -> str:
    return str(loader.construct_scalar(node))


_Loader.add_constructor(yaml.resolver.BaseResolver.DEFAULT_MAPPING_TAG, _mapping)
# YAML 1.1 wants a point in a float, so that `learning_rate: 1e-5` would be a string.
# Dates stay strings: no value of a config is a date, and JSON has none.
_Loader.add_constructor("tag:yaml.org,2002:timestamp", _as_written)
_Loader.add_implicit_resolver(
    "tag:yaml.org,2002:float",
    re.compile(r"^[-+]?[0-9][0-9_]*(?:\.[0-9_]*)?[eE][-+]?[0-9]+$"),
    list("-+0123456789"),
)


@dataclass(frozen=True)
class File:
    """What a file says, and the line of every key by its dotted name."""

    name: str
    values: Mapping[str, object]
    lines: Mapping[str, int] = field(default_factory=dict)
    problems: tuple[Problem, ...] = ()


def read(path: Path) -> File:
    """Read a file; raise OptionError for one that is not a mapping in YAML."""
    try:
        text = path.read_text(encoding="utf-8-sig")
    except OSError as error:
        raise OptionError(f"{path}: cannot be read: {error.strerror or error}") from error
    except UnicodeDecodeError as error:
        raise OptionError(f"{path}: cannot be read: {error}") from error
    values, doubles = parsed(text, str(path))
    return File(
        str(path), values, dict(_lines(yaml.compose(text, Loader=_Loader))), _twice(doubles)
    )


def _twice(doubles: Iterable[tuple[int, object]]) -> tuple[Problem, ...]:
    return tuple(
        Problem("value", f"duplicate key {key!r}; keep one", str(key), OptionError, line)
        for line, key in doubles
    )


def _lines(node: yaml.Node | None, above: str = "") -> Iterator[tuple[str, int]]:
    """Yield the dotted name and the line of every key and every item."""
    if isinstance(node, yaml.MappingNode):
        for key, value in node.value:
            name = f"{above}{key.value}"
            yield name, key.start_mark.line + 1
            yield from _lines(value, f"{name}.")
    elif isinstance(node, yaml.SequenceNode):
        for index, value in enumerate(node.value):
            yield f"{above}{index}", value.start_mark.line + 1
            yield from _lines(value, f"{above}{index}.")


def parse(text: str, name: str) -> dict[str, object]:
    """Return the mapping that a YAML text holds."""
    values, doubles = parsed(text, name)
    problems = Problems()
    problems.found += _twice(doubles)
    problems.check(name, {})
    return values


_SYNTAX: tuple[tuple[str, str], ...] = (
    ("'\\t' that cannot start", "a tab indents this line; YAML allows only spaces"),
    ("expected <block end>", "this line is not indented like the lines that belong with it"),
    ("mapping values are not allowed", "a colon too many; quote strings that contain one"),
    ("could not find expected ':'", "this line is not KEY: VALUE"),
    ("undefined alias", "an alias (*name) without its anchor (&name)"),
    ("special characters are not allowed", "this is not text, so it is not YAML"),
)
"""Message of PyYAML -> what is wrong, in plain words."""


def parsed(text: str, name: str) -> tuple[dict[str, object], list[tuple[int, object]]]:
    """Return the mapping that a YAML text holds, and line and name of every duplicate key."""
    try:
        # A SafeLoader: it makes plain values and no objects.
        loader = _Loader(text)
        raw = loader.get_single_data()
        size = _size(raw, 0, {})
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        where = f"{name}:{mark.line + 1}" if mark else name
        reason = getattr(error, "problem", None) or getattr(error, "reason", None) or "not YAML"
        problem = next((words for part, words in _SYNTAX if part in reason), reason)
        below = excerpt(name, mark.line + 1 if mark else None)
        raise with_excerpt(OptionError(f"{where}: {problem}"), below) from error
    except OptionError as error:
        raise OptionError(f"{name}: {error}") from error
    except RecursionError:
        raise OptionError(f"{name}: {TOO_DEEP}") from None
    except (TypeError, ValueError) as error:
        # A number of 5,000 digits, a list as a key.
        raise OptionError(f"{name}: a value that YAML cannot read: {error}") from error
    if size > MAX_VALUES:
        raise OptionError(f"{name}: its aliases (*name) expand to more than {MAX_VALUES:,} values")
    if raw is None:
        return {}, []
    if not isinstance(raw, dict):
        is_text = isinstance(raw, str)
        what = (
            "a list" if isinstance(raw, list) else "a string" if is_text else f"the value {raw!r}"
        )
        raise OptionError(
            f"{name}: a configuration is a mapping of keys, not {what}; write lines such as "
            "base_model: NAME"
        )
    return with_names(raw, name), loader.doubles


def with_names(raw: Mapping[Any, object], name: str) -> dict[str, object]:
    """Return the keys of a file or mapping; raise OptionError for one that is not text."""
    wrong = [key for key in raw if not isinstance(key, str)]
    if wrong:
        raise OptionError(f"{name}: the key {wrong[0]!r} is not a string; put it in quotes")
    return cast("dict[str, object]", dict(raw))


def _size(value: object, depth: int, known: dict[int, int]) -> int:
    """Count the values in a value, with aliases expanded; raise OptionError where it is too deep."""
    if not isinstance(value, dict | list):
        return 1
    if depth > MAX_DEPTH:
        raise OptionError(TOO_DEEP)
    if id(value) not in known:
        inner = value.values() if isinstance(value, dict) else value
        known[id(value)] = 1 + sum(_size(item, depth + 1, known) for item in inner)
    return known[id(value)]
