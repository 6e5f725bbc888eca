"""Canonical JSON text: no spaces, source key order, minimal escapes, numbers as they were written."""

import json
from decimal import Decimal
from json.encoder import encode_basestring
from typing import Any

from fmtkit.sources.marks import WrittenFloat, WrittenInt


def number_of(decimal: Decimal) -> int | float:
    """Return the number that a decimal stands for, which remembers all of its digits."""
    token = f"{decimal:f}"
    out = WrittenFloat(token) if "." in token else WrittenInt(token)
    out.token = token
    return out


def canonical(value: Any) -> str:
    """Return canonical JSON text: no spaces, source key order, minimal escapes, numbers as written."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return encode_basestring(value)
    if isinstance(value, WrittenInt | WrittenFloat):
        return value.token
    if isinstance(value, int | float):
        return json.dumps(value)
    if isinstance(value, list):
        return "[" + ",".join(canonical(item) for item in value) + "]"
    if isinstance(value, dict):
        return (
            "{" + ",".join(f"{encode_basestring(k)}:{canonical(v)}" for k, v in value.items()) + "}"
        )
    raise TypeError(f"not a JSON value: {type(value).__name__}")
