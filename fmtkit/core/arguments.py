"""Arguments of public functions, checked against the annotations of their parameters."""

import os
from collections.abc import Callable, Mapping, Sequence
from functools import wraps
from inspect import Parameter, signature
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, Literal, TypeVar, Union, get_args, get_origin

from fmtkit.core.errors import OptionError

Function = TypeVar("Function", bound=Callable[..., Any])
_WORDS = {
    str: "text",
    Path: "a path",
    bool: "true or false",
    Mapping: "a mapping",
    Sequence: "a list",
    list: "a list",
    Callable: "a function",
}


def checked(function: Function) -> Function:
    """Raise OptionError at a call with an argument that is not of its parameter's annotation.

    What is missing or has an unknown name stays Python's own TypeError. Annotations that are written as
    text, `object` and `Any` say nothing.
    """
    declared = signature(function)

    @wraps(function)
    def called(*positional: Any, **named: Any) -> Any:
        try:
            given = declared.bind(*positional, **named).arguments
        except TypeError:
            given = {}  # the call says what is missing, with the function's name
        check_arguments(function.__name__, declared.parameters, given)
        return function(*positional, **named)

    return called  # type: ignore[return-value]


def check_arguments(
    function: str, parameters: Mapping[str, Parameter], given: Mapping[str, Any]
) -> None:
    """Raise OptionError for the first argument that is not of its parameter's annotation."""
    for name, value in given.items():
        wanted = parameters[name].annotation
        if not _fits(value, wanted):
            words = dict.fromkeys(_words(one) for one in _either(wanted) if one is not NoneType)
            raise OptionError(f"{function}: {name} is {_shown(value)}; give {' or '.join(words)}")


def _either(wanted: Any) -> tuple[Any, ...]:
    return (
        get_args(wanted)
        if isinstance(wanted, UnionType) or get_origin(wanted) is Union
        else (wanted,)
    )


def _fits(value: object, wanted: Any) -> bool:
    if wanted in (Any, object, Parameter.empty) or isinstance(wanted, str):
        return True
    if len(_either(wanted)) > 1:
        return any(_fits(value, one) for one in _either(wanted))
    if get_origin(wanted) is Literal:
        return value in get_args(wanted)
    kind = get_origin(wanted) or wanted
    if getattr(kind, "_is_protocol", False):
        return callable(value) or "__call__" not in vars(kind)
    if kind is Path:
        return isinstance(value, os.PathLike)
    if isinstance(value, str | bytes) and kind not in (str, bytes):
        return False
    return not isinstance(kind, type) or isinstance(value, kind)


def _words(wanted: Any) -> str:
    if get_origin(wanted) is Literal:
        return " or ".join(map(repr, get_args(wanted)))
    kind = get_origin(wanted) or wanted
    return _WORDS.get(kind, f"a {getattr(kind, '__name__', kind)}")


def _shown(value: object) -> str:
    """Return a value with its type."""
    if value is None:
        return "None"
    text = repr(value)
    kind = type(value).__name__
    article = "an" if kind[0].lower() in "aeiou" else "a"
    return f"{article} {kind}" + ("" if " at 0x" in text else f", {text:.40}")
