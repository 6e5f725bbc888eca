"""Tool calls as columns: the keys of each call, and a column of values for each key.

The shape of a call has a path and a kind for each value (`function.name` is a string); the values are in one
column per path. Arguments are kept as `tojson` writes them.
"""

import json
from typing import Any

import numpy as np

from fmtkit.core.buffers import Int64s, texts
from fmtkit.core.data_classes import dataclass
from fmtkit.rendering.jinja_environment import write_json
from fmtkit.rendering.text_columns import TextColumn, text_column
from fmtkit.rendering.unknowns import OBJECT, TEXT, UNKNOWN, Calls

NO_CALLS, ODD_CALLS = -1, -2

_decode = json.JSONDecoder().raw_decode


@dataclass
class CallColumns:
    """The calls of a column of messages, in order.

    `shape` and `first` have a value per message: the index of its shape, and of its first call. `columns` has
    for each path the values, and for each call the index of its value.
    """

    shapes: list[Calls]
    shape: Int64s
    first: Int64s
    columns: dict[str, tuple[TextColumn, Int64s]]

    def of(self, message: int) -> Calls | None:
        """Return the shape of a message's calls; None if it has none."""
        number = int(self.shape[message])
        return self.shapes[number] if number >= 0 else None

    def places(self, key: tuple[int, str], messages: Int64s) -> Int64s:
        """Return the indices in its column of a value of these messages."""
        number, path = key
        found: Int64s = self.columns[path][1][self.first[messages] + number]
        return found


class OddCallsError(ValueError):
    """Calls of a form that can only be rendered row by row."""


class _Reading:
    """Reads calls, and collects their values by path."""

    def __init__(self) -> None:
        self.values: dict[str, tuple[list[str], list[int]]] = {}
        self.count = 0
        self._paths: dict[tuple[str, str], str] = {}

    def read(self, text: str) -> Calls:
        """Read the calls of one message."""
        try:
            calls, end = _decode(text)
        except (ValueError, RecursionError):
            raise OddCallsError from None
        if type(calls) is not list or end != len(text):
            raise OddCallsError
        made = [self._flat(call) for call in calls]
        # A column cannot hold half a surrogate pair, which a JSON escape can be.
        if "\\u" in text and not all(is_encodable(v) for flat in made for _, _, v in flat):
            raise OddCallsError
        for flat in made:
            for path, kind, value in flat:
                if kind in UNKNOWN:
                    values, callers = self.values.get(path) or self.values.setdefault(
                        path, ([], [])
                    )
                    values.append(value)
                    callers.append(self.count)
            self.count += 1
        return tuple([tuple([(path, kind) for path, kind, _ in flat]) for flat in made])

    def _flat(self, call: Any) -> list[tuple[str, str, str]]:
        """Return path, kind and text of the values of a call."""
        if type(call) is not dict:
            raise OddCallsError
        found = []
        for key, value in call.items():
            if key == "function" and type(value) is dict and value:
                for name, inner in value.items():
                    found.append((self._path(key, name), *_kind(name, inner)))
            else:
                found.append((self._path("", key), *_kind(key, value)))
        return found

    def _path(self, parent: str, key: str) -> str:
        path = self._paths.get((parent, key))
        if path is None:
            if "." in key:
                raise OddCallsError
            path = f"{parent}.{key}" if parent else key
            self._paths[parent, key] = path
        return path


def _kind(key: str, value: Any) -> tuple[str, str]:
    """Return the kind of a value of a call, and its text unless the kind determines it."""
    if type(value) is str:
        # It is the same in all calls, and a template may test it.
        return (TEXT, value) if key != "type" or value != "function" else ('"function"', "")
    if type(value) is dict:
        return OBJECT, write_json(value)
    if type(value) is list:
        raise OddCallsError
    return write_json(value), ""


def is_encodable(text: str) -> bool:
    """Return whether a string can be in a column: half a surrogate pair cannot."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def call_columns(calls: TextColumn) -> CallColumns:
    """Read a column of tool calls, as canonical JSON text."""
    reading = _Reading()
    shapes: dict[Calls, int] = {}
    shape = np.full(len(calls), NO_CALLS, np.int64)
    first = np.zeros(len(calls), np.int64)
    for message in np.flatnonzero(calls.present).tolist():
        first[message] = reading.count
        try:
            found = reading.read(calls.text(message))
        except OddCallsError:
            shape[message] = ODD_CALLS
            continue
        shape[message] = shapes.setdefault(found, len(shapes))
    return CallColumns(list(shapes), shape, first, _columns(reading))


def _columns(reading: _Reading) -> dict[str, tuple[TextColumn, Int64s]]:
    made = {}
    for path, (values, callers) in reading.values.items():
        where = np.zeros(reading.count, np.int64)
        where[callers] = np.arange(len(values))
        made[path] = text_column(texts(values)), where
    return made
