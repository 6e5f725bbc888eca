"""The nulls with which Arrow fills structs: tools and calls of a table have the keys of all others.

Parquet, Arrow, polars and `datasets` store a list of objects as structs of one type. So a tool gets the
properties of every other tool, as nulls, and a call the arguments of every other call.
"""

from collections.abc import Iterable, Mapping
from typing import Any

from fmtkit.columns.strict_kinds import json_value

Names = Mapping[str, frozenset[str]]
"""Name of a tool -> the arguments that it defines."""


def without_filled_tools(tools: Any) -> Any:
    """Return tools without null keys."""
    return _without_nulls(tools) if isinstance(tools, list) else tools


def listed(tools: Any) -> list[Any]:
    """Return the tools of a list, also of one that is the text of its JSON."""
    value = json_value(tools) if isinstance(tools, str) else tools
    return value if isinstance(value, list) else []


def arguments_of(tools: Iterable[Any]) -> Names:
    """Return the arguments that each tool defines."""
    found = {}
    for tool in tools:
        function = tool.get("function", tool) if isinstance(tool, dict) else None
        if isinstance(function, dict) and isinstance(name := function.get("name"), str):
            parameters = function.get("parameters")
            known = parameters.get("properties", parameters) if isinstance(parameters, dict) else {}
            found[name] = frozenset(known if isinstance(known, dict) else ())
    return found


def without_filled_calls(messages: Any, defined: Names) -> Any:
    """Return messages whose calls have no null keys but arguments that the called tool defines."""
    if not isinstance(messages, list):
        return messages
    return [_message(one, defined) if isinstance(one, dict) else one for one in messages]


def _message(message: Mapping[str, Any], defined: Names) -> Any:
    made = message
    calls = message.get("tool_calls")
    if isinstance(calls, list):
        made = {**made, "tool_calls": [_call(call, defined) for call in calls]}
    if isinstance(call := message.get("function_call"), dict):
        made = {**made, "function_call": _call(call, defined)}
    return message if made == message else made


def _call(call: Any, defined: Names) -> Any:
    if not isinstance(call, dict):
        return call
    function = call.get("function")
    if isinstance(function, dict):
        return _without_nulls({**call, "function": None}) | {
            "function": _function(function, defined)
        }
    return _function(call, defined)


def _function(function: Mapping[str, Any], defined: Names) -> dict[str, Any]:
    arguments, bare = function.get("arguments"), _without_nulls(function)
    if isinstance(arguments, dict):
        known = defined.get(str(function.get("name")), frozenset())
        bare["arguments"] = {
            key: _without_nulls(value)
            for key, value in arguments.items()
            if value is not None or key in known
        }
    made: dict[str, Any] = {key: bare[key] for key in function if key in bare}
    return made


def _without_nulls(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_nulls(item) for key, item in value.items() if item is not None}
    return [_without_nulls(item) for item in value] if isinstance(value, list) else value
