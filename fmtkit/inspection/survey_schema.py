"""The JSON Schema of a survey, derived from its dataclasses, so that the two cannot differ.

schemas/survey.schema.json is this module's output; a test compares them.
"""

from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from types import NoneType, UnionType
from typing import Any, get_args, get_origin, get_type_hints

from fmtkit.formats.table_schemas import DRAFT
from fmtkit.inspection.survey_record import Survey
from fmtkit.inspection.verdicts import Verdict

SCALARS = {str: "string", int: "integer", float: "number", bool: "boolean", NoneType: "null"}


def survey_schema() -> dict[str, Any]:
    """Return the schema."""
    definitions: dict[str, Any] = {}
    verdict = _schema(Verdict, definitions)
    own = _object(Survey, definitions)
    own["required"].insert(0, "verdict")
    own["properties"] = {"verdict": verdict, **own["properties"]}
    return {
        "$schema": DRAFT,
        "title": "survey",
        "description": "What `fmtkit inspect --json` prints.",
        **own,
        "$defs": dict(sorted(definitions.items())),
    }


def _object(record: type, definitions: dict[str, Any]) -> dict[str, Any]:
    hints = get_type_hints(record)
    names = [entry.name for entry in fields(record)]
    return {
        "type": "object",
        "required": names,
        "properties": {name: _schema(hints[name], definitions) for name in names},
        "additionalProperties": False,
    }


def _schema(hint: Any, definitions: dict[str, Any]) -> dict[str, Any]:
    if hint in SCALARS:
        return {"type": SCALARS[hint]}
    if is_dataclass(hint) and isinstance(hint, type):
        if hint.__name__ not in definitions:
            definitions[hint.__name__] = {}
            definitions[hint.__name__] = _object(hint, definitions)
        return {"$ref": f"#/$defs/{hint.__name__}"}
    arguments = get_args(hint)
    if isinstance(hint, UnionType):
        return {"anyOf": [_schema(argument, definitions) for argument in arguments]}
    if get_origin(hint) is tuple:
        return _array(arguments, definitions)
    if get_origin(hint) is Mapping:
        values = {} if arguments[1] is Any else _schema(arguments[1], definitions)
        return {"type": "object", "additionalProperties": values}
    return {}


def _array(arguments: tuple[Any, ...], definitions: dict[str, Any]) -> dict[str, Any]:
    if arguments[-1] is Ellipsis:
        return {"type": "array", "items": _schema(arguments[0], definitions)}
    items = [_schema(argument, definitions) for argument in arguments]
    return {"type": "array", "prefixItems": items, "minItems": len(items), "maxItems": len(items)}
