"""Map files: the columns of a source under a type's names, as JSON or YAML, also LLaMA-Factory's own.

A plain file is an object {COLUMN: PATH}. A `dataset_info.json` holds such an object, `columns`, for each
dataset, under LLaMA-Factory's names, and `tags` for the keys and the roles of messages.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import field
from pathlib import Path, PurePosixPath
from typing import Any

from fmtkit.core.data_classes import dataclass
from fmtkit.core.errors import OptionError, near_match
from fmtkit.formats import registry

WORDS = {
    "prompt": ("instruction", "question", "prompt", "query"),
    "query": ("input", "context", "query"),
    "response": ("output", "answer", "response", "completion"),
    "messages": ("conversations", "messages", "conversation"),
    "kto_tag": ("kto_tag", "label"),
}
"""LLaMA-Factory's name for a column -> what a type may call it; other names are the same."""
ROLE_TAGS = {
    "user_tag": "user",
    "assistant_tag": "assistant",
    "observation_tag": "tool",
    "system_tag": "system",
}


@dataclass(frozen=True)
class MapFile:
    """What a map file says: columns for --map and options of the type."""

    columns: Mapping[str, str] = field(default_factory=dict)
    options: Mapping[str, Any] = field(default_factory=dict)


def read(path: str, type_name: str, sources: Sequence[str]) -> MapFile:
    """Read a map file for the sources of a type.

    Args:
        path: The file, JSON or YAML; of a dataset_info.json PATH#NAME takes one dataset.
        type_name: The source of the type (`intel` of `chatml.intel`), whose columns may be named.
        sources: The names of the sources, to find their dataset in a dataset_info.json.

    Raises:
        OptionError: It cannot be read, or a name in it is not a column of the type.
    """
    file, _, dataset = path.partition("#")
    table = _object(_loaded(file), file)
    if not table or not all(isinstance(entry, Mapping) for entry in table.values()):
        return MapFile(_columns(table, type_name, file))
    entry = _entry(table, dataset, sources, file)
    columns = _object(entry.get("columns", {}), f"{file}: columns")
    tags = _object(entry.get("tags", {}), f"{file}: tags")
    return MapFile(_columns(columns, type_name, file), _options(tags, file))


def _loaded(file: str) -> Any:
    try:
        text = Path(file).read_text(encoding="utf-8-sig")
        if file.endswith((".yaml", ".yml")):
            import yaml

            try:
                return yaml.safe_load(text)
            except yaml.YAMLError as error:
                raise ValueError(" ".join(str(error).split())) from error
        return json.loads(text)
    except (OSError, ValueError, RecursionError) as error:
        raise OptionError(f"--map-file {file}: cannot be read ({error})") from error


def _object(value: Any, where: str) -> Mapping[str, Any]:
    if not isinstance(value, Mapping) or not all(isinstance(key, str) for key in value):
        raise OptionError(f"--map-file {where}: must be an object (names and values)")
    return value


def _entry(
    table: Mapping[str, Any], dataset: str, sources: Sequence[str], file: str
) -> Mapping[str, Any]:
    """Return the dataset that was named, or whose file is a source, or the only one."""
    if dataset:
        if dataset not in table:
            near = near_match(dataset, table)
            advice = f"did you mean {near!r}?" if near else f"it has {', '.join(table)}"
            raise OptionError(f"--map-file {file}: no dataset {dataset!r}; {advice}")
        return _object(table[dataset], file)
    names = {PurePosixPath(source).name for source in sources}
    found = [
        entry
        for entry in table.values()
        if PurePosixPath(str(entry.get("file_name", ""))).name in names
    ]
    found = found or (list(table.values()) if len(table) == 1 else [])
    if len(found) != 1:
        raise OptionError(
            f"--map-file {file}: which dataset is meant? Write {file}#NAME, with one of "
            f"{', '.join(table)}"
        )
    return _object(found[0], file)


def _columns(given: Mapping[str, Any], type_name: str, file: str) -> dict[str, str]:
    known = {name for found in registry.converters_named(type_name) for name in found.columns}
    columns = {}
    for word, column in given.items():
        if not isinstance(column, str):
            raise OptionError(f"--map-file {file}: {word}: give the path of a column as text")
        name = word if word in known else next((w for w in WORDS.get(word, ()) if w in known), None)
        if name is None:
            raise OptionError(
                f"--map-file {file}: {word} is not a column of type {type_name}, which has "
                f"{', '.join(sorted(known))}"
            )
        columns[name] = column
    return columns


def _options(tags: Mapping[str, Any], file: str) -> dict[str, Any]:
    options: dict[str, Any] = {}
    roles: dict[str, str] = {}
    for tag, value in tags.items():
        if tag == "role_tag":
            options["message_field_role"] = value
        elif tag == "content_tag":
            options["message_field_content"] = value
        elif tag in ROLE_TAGS:
            roles[ROLE_TAGS[tag]] = value
        elif (tag, value) != ("function_tag", "function_call"):
            raise OptionError(f"--map-file {file}: tags: {tag} {value!r} is not supported")
    return options | ({"roles": roles} if roles else {})
