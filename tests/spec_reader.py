"""Reads JSON lines by a ReadSpec alone, as `fmtkit.columns.read_spec` says it: slow, and nothing of the strict parser."""

import json
import re
from functools import singledispatch
from typing import Any

from fmtkit.columns import read_spec as spec

INT64 = range(-(2**63), 2**63)
LONE = re.compile("[\ud800-\udfff]")
EMPTY = (None, False, "", [], {})


class UnsureError(ValueError):
    """The line is for the strict parser."""


class Number(float):
    """A number with its token."""

    token: str


class Object(dict[str, Any]):
    """An object, and whether a key stands twice."""

    twice: frozenset[str] = frozenset()


class NotFinite:
    """NaN or Infinity."""


def _number(token: str) -> Number:
    made = Number(token)
    made.token = token
    return made


def _object(pairs: list[tuple[str, Any]]) -> Object:
    made = Object(pairs)
    keys = [key for key, _ in pairs]
    made.twice = frozenset(key for key in keys if keys.count(key) > 1)
    return made


def _sure(condition: object) -> None:
    if not condition:
        raise UnsureError


_DECODER = json.JSONDecoder(
    parse_int=_number,
    parse_float=_number,
    parse_constant=lambda _: NotFinite(),
    object_pairs_hook=_object,
)


def _decoded(text: str) -> Any:
    try:
        return _DECODER.decode(text)
    except (ValueError, RecursionError) as error:
        raise UnsureError from error


def _depth(value: Any) -> int:
    if isinstance(value, list | dict):
        items = value.values() if isinstance(value, dict) else value
        return 1 + max(map(_depth, items), default=0)
    return 0


def read_line(wanted: spec.ReadSpec, line: bytes) -> dict[str, Any]:
    """Return the columns of a line; raise UnsureError where it is not clean."""
    try:
        row = _decoded(line.decode())
    except UnicodeDecodeError as error:
        raise UnsureError from error
    _sure(isinstance(row, Object) and _depth(row) <= wanted.max_depth)
    paths = {column.path for column in wanted.columns}
    for key, value in row.items():
        _sure(not LONE.search(key))
        if (key,) not in paths:
            _check_unused(value)
        if key in wanted.media:
            items = value if isinstance(value, list) else [value]
            _sure(all(item is None for item in items) or value in EMPTY or value == 0)
    values = {column.name: _column(column, row) for column in wanted.columns}
    for column in wanted.watched:
        value = row.get(column.path[0])
        values[column.name] = None if value is None else made(column.node, value)
    _sure(all(any(values[name] is not None for name in group) for group in wanted.any_of))
    return values


def _column(column: spec.ReadColumn, row: Object) -> Any:
    value: Any = row
    for key in column.path:
        _sure(isinstance(value, Object) and key not in value.twice)
        value = value.get(key)
        if value is None:
            _sure(not column.required)
            return None
    _check_used(value)
    return made(column.node, value)


def _check_unused(value: Any) -> None:
    if isinstance(value, str):
        _sure(not LONE.search(value))
    elif isinstance(value, Number):
        digits, _, exponent = value.token.lower().partition("e")
        decimals = len(digits.partition(".")[2])
        _sure(abs(value) != float("inf") or not exponent or int(exponent) <= 308 + decimals)
    elif isinstance(value, list):
        for item in value:
            _check_unused(item)
    elif isinstance(value, Object):
        for key, item in value.items():
            _check_unused(key)
            _check_unused(item)


def _check_used(value: Any) -> None:
    _sure(not isinstance(value, NotFinite))
    if isinstance(value, str):
        _sure(not LONE.search(value))
    elif isinstance(value, Number):
        _sure(_is_int64(value.token) if _is_whole(value) else abs(value) != float("inf"))
    elif isinstance(value, list):
        for item in value:
            _check_used(item)
    elif isinstance(value, Object):
        _sure(not value.twice)
        for key, item in value.items():
            _check_used(key)
            _check_used(item)


def _is_int64(token: str) -> bool:
    return len(token) <= len(str(INT64[0])) and int(token) in INT64


def _is_whole(value: Number) -> bool:
    return value.token.lstrip("-").isdigit()


def _written(value: Any) -> str:
    if isinstance(value, Number):
        return value.token
    if isinstance(value, NotFinite):
        return "NaN"
    if isinstance(value, list):
        return f"[{','.join(map(_written, value))}]"
    if isinstance(value, dict):
        return f"{{{','.join(f'{_written(k)}:{_written(v)}' for k, v in value.items())}}}"
    return json.dumps(value, ensure_ascii=False)


@singledispatch
def made(node: Any, value: Any) -> Any:
    """Return what a value that is there and not null becomes."""
    raise NotImplementedError(node)


@made.register
def _(node: spec.TextNode, value: Any) -> str:
    _sure(isinstance(value, str) or (node.media and isinstance(value, list)))
    text = _content(node.media, value)
    assert text is not None
    return text


@made.register
def _(node: spec.BoolNode, value: Any) -> bool:
    texts = dict(node.texts)
    if isinstance(value, str):
        _sure(value in texts)
        return texts[value]
    _sure(
        isinstance(value, bool) or (node.numbers and isinstance(value, Number) and value in (0, 1))
    )
    return bool(value)


@made.register
def _(node: spec.IntNode, value: Any) -> int:
    _sure(isinstance(value, Number) and _is_whole(value))
    _sure(node.range is None or node.range[0] <= int(value.token) <= node.range[1])
    return int(value.token)


@made.register
def _(node: spec.DoubleNode, value: Any) -> float:
    _sure(isinstance(value, Number) or (node.booleans and isinstance(value, bool)))
    _sure(node.range is None or node.range[0] <= value <= node.range[1])
    return float(value)


@made.register
def _(node: spec.RawNode, value: Any) -> str | None:
    if node.form != "tools":
        return _written(value)
    if isinstance(value, str):
        value = _json_text(value) if value.strip() else None
    tools = [] if value is None else value
    _sure(isinstance(tools, list) and all(isinstance(tool, Object) for tool in tools))
    wrapped = [_tool(tool) for tool in tools]
    return _written(wrapped) if wrapped else None


def _tool(tool: Object) -> dict[str, Any]:
    if "function" in tool or "name" not in tool:
        return tool
    entry = {key: value for key, value in tool.items() if key != "type"}
    return {"type": "function", "function": entry}


def _json_text(text: str) -> Any:
    value = _decoded(text)
    _sure(_depth(value) < 100)
    _check_used(value)
    return value


@made.register
def _(node: spec.ListNode, value: Any) -> list[Any]:
    _sure(isinstance(value, list) and None not in value)
    return [made(node.item, item) for item in value]


@made.register
def _(node: spec.RecordNode, value: Any) -> dict[str, Any]:
    return _record(node.fields, value)


def _record(fields: tuple[spec.Field, ...], value: Any) -> dict[str, Any]:
    _sure(isinstance(value, Object))
    _sure(all(value.get(f.key) is not None for f in fields if f.required))
    return {f.key: None if value.get(f.key) is None else made(f.node, value[f.key]) for f in fields}


@made.register
def _(node: spec.TreeNode, value: Any) -> list[dict[str, Any]]:
    out: list[dict[str, Any]] = []
    _grow(node, value, None, out)
    return out


def _grow(node: spec.TreeNode, value: Any, parent: int | None, out: list[dict[str, Any]]) -> None:
    place = len(out)
    out.append(_record(node.fields, value) | {"parent": parent})
    for name in node.branches:
        below = value.get(name)
        _sure(below is not None or name not in node.required)
        _sure(below is None or isinstance(below, list) == (name in node.lists))
        for one in below if isinstance(below, list) else [] if below is None else [below]:
            _grow(node, one, place, out)


@made.register
def _(node: spec.ConversationNode, value: Any) -> list[dict[str, Any]]:
    form = {str: "text", Object: "message", list: "messages"}.get(type(value))
    _sure(form in node.forms)
    if form == "text":
        none = {key.name: None for key in node.keys}
        return [{"role": node.speaker, "content": value} | none]
    messages = [_message(node, one) for one in (value if form == "messages" else [value])]
    return [one for one in messages if one is not None]


def _message(node: spec.ConversationNode, message: Any) -> dict[str, Any] | None:
    _sure(isinstance(message, Object) and isinstance(message.get(node.role), str))
    speaker = message[node.role]
    is_call = speaker == node.call_role
    role = "assistant" if is_call else dict(node.roles).get(speaker)
    _sure(role is not None)
    _sure(all(message.get(key) in (None, [], "") for key in node.refused))
    out = {"role": role, "content": _content(node.media, message.get(node.content))}
    out |= {key.name: _key(key, message) for key in node.keys}
    if message.get(node.content) is None:
        calls = node.keys and (out["tool_calls"] or message.get("function_call"))
        _sure(calls or role in node.silent)
        if role in node.silent:
            return None
    if is_call:
        _sure(isinstance(message.get(node.content), str))
        call = _json_text(message[node.content])
        _sure(isinstance(call, Object | list))
        if node.keys:
            made_calls = [_call(one) for one in (call if isinstance(call, list) else [call])]
            out |= {"content": "", "tool_calls": _written(made_calls) if made_calls else None}
    return out


def _content(media: tuple[str, ...], content: Any) -> str | None:
    if not isinstance(content, list):
        _sure(content is None or isinstance(content, str))
        return content
    texts = []
    for part in content:
        if isinstance(part, Object):
            kind = part.get("type")
            _sure(not (isinstance(kind, str) and kind.startswith(media)))
            part = part.get("text")  # noqa: PLW2901
        _sure(isinstance(part, str))
        texts.append(part)
    return "".join(texts)


@made.register
def _(node: spec.TextsNode, value: Any) -> list[str]:
    is_there = (
        value.strip() not in node.nothing if isinstance(value, str) else value not in ([], {})
    )
    return [*_texts(node, value), *([spec.MARK] if node.is_label and is_there else [])]


def _texts(node: spec.TextsNode, value: Any) -> list[str]:
    if isinstance(value, str):
        return [value]
    if isinstance(value, list):
        return [text for item in value for text in _texts(node, item)]
    if not isinstance(value, Object):
        return []
    return [t for key, item in value.items() if key not in node.without for t in _texts(node, item)]


def _key(key: spec.KeyNode, message: Object) -> Any:
    held = [message.get(name) for name in key.names]
    if key.form == "text":
        texts = [value for value in held if isinstance(value, str)]
        return next(filter(None, texts), texts[0] if texts else None)
    if key.form == "flag":
        flags = [bool(value) for value in held if isinstance(value, bool | Number)]
        return flags[0] if flags else None
    calls, call = held
    if isinstance(calls, str):
        calls = _json_text(calls) if calls.strip() else None
        _sure(isinstance(calls, list) or calls in EMPTY or calls == 0)
    if not (calls in EMPTY or calls == 0):
        return _written(calls)
    return _written([_call(call)]) if isinstance(call, Object) else None


def _call(call: Any) -> Any:
    _sure(isinstance(call, Object))
    return call if "function" in call else {"type": "function", "function": call}
