"""JSON Schemas of canonical rows, derived from the Arrow schemas, so that the two cannot differ.

Tool calls and tools are JSON text in a table, and values in a file (`tables.stored_schema`): a schema
takes both.

The files in schemas/ are this module's output; a test compares them.
"""

from typing import Any

import pyarrow as pa

from fmtkit.core.image_columns import IMAGES
from fmtkit.core.message_keys import CANONICAL_ROLES, SAYING
from fmtkit.core.tables import (
    CONVERSATION_COLUMNS,
    IMAGE_TABLES,
    SEGMENT,
    STORED_MESSAGE,
    TABLES,
    Table,
    stored_schema,
)

DRAFT = "https://json-schema.org/draft/2020-12/schema"

DESCRIPTIONS = {
    "messages": "The whole conversation.",
    "text": "The whole conversation as text.",
    "prompt": "What the reply answers: messages, or their text up to the reply.",
    "completion": "The reply: messages, or what the template adds after the prompt.",
    "chosen": "The better reply: messages, or what the template adds after the prompt.",
    "rejected": "The worse reply: messages, or what the template adds after the prompt.",
    "label": "Whether the reply is desirable.",
    "margin": "By how much the chosen reply is better.",
    "tools": "Tool definitions, in a table as canonical JSON text.",
    "answer": "The answer that a reward function compares with.",
    "nemo_gym_row": "The row of a NeMo Gym as canonical JSON text, numbers as written.",
    "nemo_gym_server": "The resources server that judges the answer.",
    "nemo_gym_agent": "The agent that runs the conversation.",
    "images": "The images that the parts of type image show, in their order.",
    "replies": "Several replies to the prompt.",
    "scores": "A score for each reply; higher is better.",
    "segments": "Parts of a text in their order; `label` says whether a part is trained on.",
    "ends": "none: the text is whole; closed: BOS and EOS go around it; document: long ones are cut.",
    "completions": "The steps of one solution, in order.",
    "labels": "Of each step whether it is right; of tokens their labels, -100 where nothing is trained on.",
    "ground_truth": "The text that a good answer resembles.",
    "remaining_turns": "The turns that follow the answer.",
    "input_ids": "Token ids.",
    "attention_mask": "1 for a token, 0 for padding.",
    "prompt_length": "Tokens before the first that is trained on.",
    "anchor_mask": "1 where a generated block may begin.",
}


PART_SCHEMA = {
    "type": "object",
    "required": ["type"],
    "properties": {"type": {"enum": ["text", "image"]}, "text": {"type": ["string", "null"]}},
    "additionalProperties": False,
}
"""A part of a content, in rows that may have images."""
IMAGES_SCHEMA = {
    "type": "array",
    "items": {
        "anyOf": [
            {"type": "string"},
            {"type": "object", "required": ["bytes", "path"], "additionalProperties": True},
        ]
    },
}
"""Paths and data URIs in JSON lines; in other files objects of bytes and a path."""


def message_schema() -> dict[str, Any]:
    """Return the schema of a message; keys besides role and content only where the source has them."""
    fields = [STORED_MESSAGE.field(i) for i in range(STORED_MESSAGE.num_fields)]
    properties: dict[str, Any] = {f.name: _or_null(_type(f.type)) for f in fields}
    properties["role"] = {"enum": [*CANONICAL_ROLES]}
    properties["content"] = {
        "anyOf": [
            _or_null({"type": "string"}),
            {"type": "array", "items": {"$ref": "#/$defs/part"}},
        ]
    }
    return {
        "type": "object",
        "required": ["role"],
        # The content of a message that says something without a text is null, which JSON lines leave out.
        "anyOf": [{"required": [name]} for name in ("content", *SAYING)],
        "properties": properties,
        "additionalProperties": False,
    }


def row_schema(table: type[Table]) -> dict[str, Any]:
    """Return the JSON Schema of a canonical row; further columns are those that were kept."""
    schema = stored_schema(table.schema(None, wide=True, text=False))
    properties = {f.name: _column(table, f) for f in schema}
    for name, entry in properties.items():
        if name in table.optional:
            entry.update(_or_null(entry))
    if table.name() in IMAGE_TABLES:
        properties[IMAGES] = {"description": DESCRIPTIONS[IMAGES], **IMAGES_SCHEMA}
    required = [name for name in table.column_names() if name not in table.optional]
    out: dict[str, Any] = {
        "$schema": DRAFT,
        "title": table.name(),
        "description": (table.__doc__ or "").strip().splitlines()[0],
        "type": "object",
        "required": required,
        "properties": properties,
        "$defs": {
            "message": message_schema(),
            "conversation": {"type": "array", "items": {"$ref": "#/$defs/message"}},
            "part": PART_SCHEMA,
        },
    }
    if "messages" in properties:
        properties["text"] = {"description": DESCRIPTIONS["text"], "type": "string"}
        out["required"] = [name for name in required if name != "messages"]
        out["anyOf"] = [{"required": ["messages"]}, {"required": ["text"]}]
    return out


def _column(table: type[Table], entry: pa.Field) -> dict[str, Any]:
    described = {"description": DESCRIPTIONS[entry.name]}
    if entry.name in CONVERSATION_COLUMNS and entry.name not in table.others:
        return described | {"anyOf": [{"$ref": "#/$defs/conversation"}, {"type": "string"}]}
    if entry.name == "replies":
        return described | {"type": "array", "items": {"$ref": "#/$defs/conversation"}}
    if entry.name == "labels" and table.name() == "Stepwise":
        soft = {"type": "array", "items": {"type": "number", "minimum": 0, "maximum": 1}}
        return described | {"anyOf": [{"type": "array", "items": {"type": "boolean"}}, soft]}
    if entry.name == "ends":
        return described | {"enum": ["none", "closed", "document"]}
    return described | _type(entry.type)


def _type(dtype: pa.DataType) -> dict[str, Any]:
    if pa.types.is_list(dtype):
        return {"type": "array", "items": _type(dtype.value_type)}
    if dtype == SEGMENT:
        text, label = ({"type": kind} for kind in ("string", "boolean"))
        named = {"text": text, "label": label}
        return {"type": "object", "required": [*named], "properties": named}
    if pa.types.is_struct(dtype):
        return {"$ref": "#/$defs/message"}
    if dtype == pa.json_():
        return {"type": ["array", "string"]}
    return {"type": _scalar(dtype)}


def _scalar(dtype: pa.DataType) -> str:
    if pa.types.is_boolean(dtype):
        return "boolean"
    if pa.types.is_integer(dtype):
        return "integer"
    return "number" if pa.types.is_floating(dtype) else "string"


def _or_null(entry: dict[str, Any]) -> dict[str, Any]:
    kinds = entry.get("type", [])
    return {"type": [*([kinds] if isinstance(kinds, str) else kinds), "null"]} if kinds else {}


def file_names() -> dict[str, type[Table]]:
    """Return the name of each table's file in schemas/."""
    return {f"{name.lower()}.schema.json": table for name, table in TABLES.items()}
