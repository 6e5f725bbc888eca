"""JSON Schemas of the rows that a type takes, made of its columns' kinds.

A row that the strict judge accepts is valid. What no schema can say is left to it: duplicate keys,
half surrogate pairs, numbers beyond 64 bits, and JSON inside of texts.
"""

from collections.abc import Sequence
from functools import singledispatch
from typing import Any

from fmtkit.columns.kinds import (
    ConversationKind,
    FlagKind,
    Kind,
    ListKind,
    NumberKind,
    OpenKind,
    RecordKind,
    TextKind,
    ToolsKind,
    TreeKind,
)
from fmtkit.core.message_keys import CARRIED, IMAGE_PARTS, MEDIA_PARTS, SILENT
from fmtkit.formats.registry import Converter
from fmtkit.formats.table_schemas import DRAFT

Schema = dict[str, Any]
NULL: Schema = {"type": "null"}
EMPTY: tuple[object, ...] = (None, False, 0, "", [], {})
"""Values of a message's calls that are none."""


def source_schema(converter: Converter) -> Schema:
    """Return the JSON Schema of a row that a converter takes."""
    defs: Schema = {}
    row = _object()
    grouped = {name for group in converter.any_of for name in group}
    for name, kind in converter.columns.items():
        path, required = converter.path(name).split("."), name in converter.required
        value = _or_written(kind, schema_of(kind, defs))
        _put(row, path, value, required=required and name not in grouped)
    groups = [
        {"anyOf": [_there(converter.path(name).split(".")) for name in group]}
        for group in converter.any_of
    ]
    head = {"$schema": DRAFT, "title": converter.name, "description": converter.summary}
    return head | row | ({"allOf": groups} if groups else {}) | ({"$defs": defs} if defs else {})


def _object() -> Schema:
    return {"type": "object", "properties": {}, "required": []}


def _put(row: Schema, path: list[str], value: Schema, *, required: bool) -> None:
    """Place a value's schema under its path; what leads to an optional one may be null."""
    first, *rest = path
    if required and first not in row["required"]:
        row["required"].append(first)
    if not rest:
        row["properties"][first] = value if required else _or_null(value)
        return
    inner = row["properties"].setdefault(first, _object() | {"type": ["object", "null"]})
    if required:
        inner["type"] = "object"
    _put(inner, rest, value, required=required)


def _there(path: list[str], nothing: Sequence[object] = (None,)) -> Schema:
    """Return the schema of a row that has a value under a path, and not one that is nothing."""
    first, *rest = path
    inner = _there(rest, nothing) if rest else {"not": {"enum": list(nothing)}}
    return {"required": [first], "properties": {first: inner}}


def _or_written(kind: Kind, value: Schema) -> Schema:
    """Return the schema of a column, of which a list or an object may be its JSON text."""
    if not isinstance(kind, ListKind | RecordKind):
        return value
    return {"anyOf": [value, {"type": "string", "pattern": r"^\s*[\[{]"}]}


def _or_null(value: Schema) -> Schema:
    return {"anyOf": [value, NULL]} if value else {}


@singledispatch
def schema_of(kind: Kind, defs: Schema) -> Schema:  # noqa: ARG001
    """Return the schema of a value of a kind; what it refers to is put into `defs`."""
    return {"type": "object"}


@schema_of.register
def _(kind: TextKind, defs: Schema) -> Schema:  # noqa: ARG001
    text = {"type": "string"}
    return {"anyOf": [text, _parts(images=kind.images)]} if kind.parts else text


@schema_of.register
def _(kind: FlagKind, defs: Schema) -> Schema:  # noqa: ARG001
    return {"enum": [True, False, *((0, 1) if kind.numbers else ()), *kind.texts]}


@schema_of.register
def _(kind: NumberKind, defs: Schema) -> Schema:  # noqa: ARG001
    number: Schema = {"type": "integer" if kind.whole else "number"}
    if kind.range is not None:
        number |= {"minimum": kind.range[0], "maximum": kind.range[1]}
    return {"anyOf": [{"type": "boolean"}, number]} if kind.booleans else number


@schema_of.register
def _(kind: OpenKind, defs: Schema) -> Schema:  # noqa: ARG001
    return {"type": ["object", "array", "string", "number", "boolean"]}


@schema_of.register
def _(kind: ToolsKind, defs: Schema) -> Schema:  # noqa: ARG001
    return {"anyOf": [{"type": "array", "items": {"type": "object"}}, {"type": "string"}]}


@schema_of.register
def _(kind: ListKind, defs: Schema) -> Schema:
    return {"type": "array", "items": schema_of(kind.item, defs)}


@schema_of.register
def _(kind: RecordKind, defs: Schema) -> Schema:
    out = _object()
    for name, inner in kind.fields.items():
        _put(out, [name], schema_of(inner, defs), required=name not in kind.optional)
    return out


@schema_of.register
def _(kind: TreeKind, defs: Schema) -> Schema:
    again = {"$ref": f"#/$defs/{kind.name}"}
    made = schema_of(kind.own, defs)
    for name in kind.branches:
        is_list = isinstance(kind.record.fields[name], ListKind)
        held = {"type": "array", "items": again} if is_list else again
        _put(made, [name], held, required=name not in kind.record.optional)
    defs[kind.name] = made
    return again


@schema_of.register
def _(kind: ConversationKind, defs: Schema) -> Schema:
    forms: list[Schema] = []
    if "text" in kind.accepts:
        forms.append({"type": "string"})
    message = _defined("message", _message(kind), defs)
    if "message" in kind.accepts:
        forms.append(message)
    if "messages" in kind.accepts:
        forms.append({"type": "array", "items": message})
    return forms[0] if len(forms) == 1 else {"anyOf": forms}


def _defined(name: str, made: Schema, defs: Schema) -> Schema:
    """Return a reference to a definition, under a name that no other one has."""
    number, free = 1, name
    while defs.setdefault(free, made) != made:
        number += 1
        free = f"{name}{number}"
    return {"$ref": f"#/$defs/{free}"}


def _parts(*, images: bool) -> Schema:
    """Return the schema of a list of parts of text, or of text and images."""
    media = {"type": "string", "pattern": f"^({'|'.join(MEDIA_PARTS)})"}
    part = _object() | {"properties": {"text": {"type": "string"}, "type": {"not": media}}}
    forms: list[Schema] = [{"type": "string"}, part | {"required": ["text"]}]
    if images:
        named = {"type": "string", "pattern": f"^({'|'.join(IMAGE_PARTS)})"}
        forms.append({"type": "object", "required": ["type"], "properties": {"type": named}})
        bare = {"type": {"type": "null"}, "text": {"type": "null"}, "image": {"not": NULL}}
        forms.append({"type": "object", "required": ["image"], "properties": bare})
    return {"type": "array", "items": {"anyOf": forms}}


def _message(kind: ConversationKind) -> Schema:
    calls = (kind.call_role,) if kind.function_calls else ()
    silent = [name for name, role in kind.roles.items() if role in SILENT]
    properties: Schema = {
        kind.role: {"enum": [*kind.roles, *calls]},
        kind.content: {"anyOf": [{"type": "string"}, _parts(images=kind.images), NULL]},
    }
    if not kind.wide:
        properties |= {name: {"enum": [None, [], ""]} for name in sorted(CARRIED)}
    spoken = [_there([kind.content]), {"properties": {kind.role: {"enum": silent}}}]
    spoken += [
        _there([name], EMPTY)
        if key.form == "calls"
        else {"required": [name], "properties": {name: {"type": "string", "pattern": r"\S"}}}
        for key in kind.keys
        if key.says
        for name in key.names
    ]
    return {"type": "object", "required": [kind.role], "properties": properties, "anyOf": spoken}
