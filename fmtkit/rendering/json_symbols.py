"""JSON values that are not known yet: the arguments of tool calls, and tools, while a template is traced.

An `UnknownJson` stands for a value of a known kind, by the symbol of the text that `tojson` writes of
it. Its members become unknown values when a template asks for them; its kind, its size and whether a key
exists are questions. Anything else raises Untraceable.
"""

import json
from collections.abc import Iterator
from typing import Any, NoReturn

from fmtkit.rendering.jinja_environment import tojson
from fmtkit.rendering.symbols import ACTIVE, Length, Parts, Symbol, Untraceable, plain
from fmtkit.rendering.unknowns import Derived, expand, kind_of

MAX_MEMBERS = 64
"""Members of one value that a trace distinguishes; a template that asks for more is rendered by rows."""

METHODS = ("items", "keys", "values", "get")
_ATTRIBUTES = frozenset(dir(dict))
SEPARATORS = (None, (", ", ": "), (",", ":"))

KINDS_BY_TEST = {
    "mapping": {"object"},
    "iterable": {"object", "array"},
    "sequence": {"object", "array"},
    "number": {"number"},
    "defined": {"object", "array", "number"},
}
"""Tests -> the kinds of unknown value that pass them."""
NEVER = frozenset({"string", "none", "undefined", "boolean", "true", "false", "callable"})
"""Tests that no unknown value passes: texts are symbols, and the other scalars are known."""


class UnknownJson:  # noqa: PLW1641 - hashing is refused below
    """An object, an array or a number that is not known."""

    __slots__ = ("_kind", "_text")

    def __init__(self, text: str, kind: str) -> None:
        self._text, self._kind = plain(text), kind

    @property
    def kind(self) -> str:
        """Return what it is: object, array or number."""
        return self._kind

    @property
    def text(self) -> str:
        """Return the characters of its text."""
        return self._text

    def __str__(self) -> str:
        return _derived("printed", self._text)

    def __bool__(self) -> bool:
        if self._kind == "number":
            raise Untraceable("whether a number is zero")
        empty = "{}" if self._kind == "object" else "[]"
        return not ACTIVE.get().ask("equals", self._text, empty)

    def __eq__(self, other: object) -> bool:
        if isinstance(other, UnknownJson) and other._text == self._text:
            return True
        if type(other) is bool and self._kind == "number":
            raise Untraceable("a number compared with true or false, which 1 and 0 equal")
        if other is None or isinstance(other, (str, bool)):
            return False
        if type(other) in (dict, list) and not other:
            return (type(other) is dict) == (self._kind == "object") and not self
        raise Untraceable("a JSON value compared with another one")

    def __ne__(self, other: object) -> bool:
        return not self == other

    def __len__(self) -> int:
        if self._kind == "number":
            raise TypeError("object of type 'number' has no len()")
        trace = ACTIVE.get()
        size = len(json.loads(_real(self._text)))
        if size > MAX_MEMBERS:
            raise Untraceable("a JSON value with many members")
        trace.ask("members", self._text, size)
        return size

    def __iter__(self) -> Iterator[Any]:
        if self._kind == "number":
            raise TypeError("'number' object is not iterable")
        return iter(self.keys() if self._kind == "object" else self._values("element"))

    def __contains__(self, key: object) -> bool:
        if self._kind != "object" or not isinstance(key, str):
            raise Untraceable("something looked for in a JSON value")
        return ACTIVE.get().ask("has", self._text, key)

    def __getitem__(self, key: Any) -> Any:
        if self._kind == "object" and isinstance(key, str):
            if key not in self:
                # What is not a key may be an attribute: `value['items']`.
                if isinstance(key, Symbol) or key in _ATTRIBUTES or key.startswith("_"):
                    raise Untraceable("an attribute of a JSON value")
                raise KeyError(key)
            return known_kind(_derived("member", self._text, plain(key)))
        if self._kind == "array" and type(key) is int:
            return self._values("element")[key]
        raise Untraceable("a member of a JSON value")

    def lookup(self, name: str) -> Any:
        """Return what `value.name` is: a method of a dict, or a member; raises LookupError."""
        if self._kind != "object":
            raise Untraceable("an attribute of a JSON value")
        if name in METHODS:
            return getattr(self, name)
        if name in _ATTRIBUTES or name.startswith("_"):
            raise Untraceable("an attribute of a JSON value")
        return self[name]

    def get(self, key: Any, default: Any = None) -> Any:
        """Return a member of an object, or something else."""
        return self[key] if key in self else default  # noqa: SIM401 - it is this one

    def keys(self) -> list[Any]:
        """Return the keys of an object."""
        return [_derived("key", self._text, number) for number in range(len(self))]

    def values(self) -> list[Any]:
        """Return the values of an object."""
        return self._values("value")

    def items(self) -> list[tuple[Any, Any]]:
        """Return the keys of an object, each with its value."""
        if self._kind != "object":
            raise Untraceable("members of a JSON value that is not an object")
        return list(zip(self.keys(), self.values(), strict=True))

    def in_order(self) -> list[tuple[Any, Any]]:
        """Return the members of an object as the filter `dictsort` does."""
        if self._kind != "object":
            raise Untraceable("members of a JSON value that is not an object")
        values = self._values("sorted value")
        return [(_derived("sorted key", self._text, n), value) for n, value in enumerate(values)]

    def _values(self, operation: str) -> list[Any]:
        found = (_derived(operation, self._text, number) for number in range(len(self)))
        return [known_kind(symbol) for symbol in found]

    def _refuse(self, *_: Any, **__: Any) -> NoReturn:
        raise Untraceable("an operation on a JSON value that has no columnar form")

    __hash__ = __repr__ = __format__ = _refuse
    __lt__ = __le__ = __gt__ = __ge__ = __reversed__ = _refuse
    __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = __neg__ = __or__ = __ror__ = (
        _refuse
    )
    __mod__ = __rmod__ = __floordiv__ = __rfloordiv__ = __truediv__ = __rtruediv__ = _refuse
    __pow__ = __rpow__ = __int__ = __float__ = __index__ = _refuse


def _derived(operation: str, text: str, *arguments: Any) -> Symbol:
    return ACTIVE.get().derive(Derived(operation, text, arguments))


def _real(text: str) -> str:
    """Return the text of a string in the traced row; code that decides by it must also ask a question."""
    trace = ACTIVE.get()
    return expand(text, trace.unknowns, trace.row)


def known_kind(text: Symbol) -> Any:
    """Return the value of a JSON text: its kind becomes known by a question."""
    kind = kind_of(_real(plain(text)))
    ACTIVE.get().ask("kind", text, kind)
    if kind == "string":
        return _derived("text", plain(text))
    if kind in _SCALARS:
        return _SCALARS[kind]
    return UnknownJson(text, kind)


_SCALARS = {"null": None, "true": True, "false": False}


def passes(value: UnknownJson, test: str) -> bool:
    """Answer a test without arguments."""
    if test in NEVER:
        return False
    if test not in KINDS_BY_TEST:
        raise Untraceable(f"the test {test} on a JSON value")
    return value.kind in KINDS_BY_TEST[test]


def write_json(
    value: Any,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> Symbol:
    """Write a value in which something is unknown as `tojson` would."""
    text = _written(value)
    options = (ensure_ascii, indent, tuple(separators) if separators else None, sort_keys)
    if options == (False, None, None, False):
        return Symbol(text)
    simple = type(ensure_ascii) is bool and type(indent) in (int, type(None))
    if not simple or options[2] not in SEPARATORS or type(sort_keys) is not bool:
        raise Untraceable("JSON written in an unusual way")
    return _derived("rewritten", text, *options)


def _written(value: Any) -> str:
    if isinstance(value, Symbol):
        return plain(_derived("json", plain(value)))
    if isinstance(value, UnknownJson):
        return value.text
    if type(value) is list or type(value) is tuple:
        return "[" + ", ".join(map(_written, value)) + "]"
    if type(value) is dict and all(type(key) is str for key in value):
        members = (f"{tojson(key)}: {_written(item)}" for key, item in value.items())
        return "{" + ", ".join(members) + "}"
    if value is None or type(value) in (str, bool, int, float):
        return tojson(value)
    raise Untraceable("JSON of something else than JSON values")


def unknown(value: object, depth: int = 10) -> bool:
    """Return whether a value holds, at any depth, text that is not known."""
    if isinstance(value, (Symbol, UnknownJson, Parts, Length)):
        return True
    if depth and isinstance(value, dict):
        return any(unknown(item, depth - 1) for item in value.values())
    if depth and isinstance(value, (list, tuple)):
        return any(unknown(item, depth - 1) for item in value)
    return False
