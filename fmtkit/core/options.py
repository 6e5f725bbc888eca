"""Options: each is one field of a frozen dataclass, and everything else is made from that field.

The flag of the command line (`fmtkit.commands.flags`), the keyword of the library with its type and its
line of help, the check of the value and the JSON Schema follow from the declaration, so that an option
means the same everywhere:

    class ConvertOptions(Options):
        limit: int | None = option(COUNT, "Read the first N rows only.")
"""

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import MISSING, field, fields
from datetime import date, datetime
from functools import wraps
from inspect import Parameter, Signature, cleandoc, getdoc, signature
from pathlib import Path
from typing import Any, ClassVar, Self, TypeVar
from warnings import warn

from fmtkit.core.arguments import check_arguments
from fmtkit.core.data_classes import dataclass
from fmtkit.core.errors import OptionError, near_match

_METADATA = "fmtkit.option"
Function = TypeVar("Function", bound=Callable[..., Any])


@dataclass(frozen=True)
class Reader:
    """How the value of an option is read and written: the same for a flag and for a keyword.

    `flag` is what the command line hands over, `keyword` what the library takes, as source text for
    signatures and stubs. `read` is given either with the name of the flag, returns what is kept, and
    raises OptionError; a value that was read already is returned as it is.
    """

    flag: Any
    keyword: str
    read: Callable[[Any, str], Any]
    schema: Mapping[str, Any]
    words: str
    """Description of its values, for the list of keys."""
    metavar: str = "TEXT"
    """Placeholder of its value in `--help`."""


@dataclass(frozen=True)
class Option:
    """The metadata of an option besides its name, type and default."""

    reader: Reader
    help: str
    flags: tuple[str, ...] = ()
    """The flag, if it is not `--name`."""
    json_flag: str = ""
    """A second flag that takes the whole mapping as JSON."""
    choices: tuple[str, ...] = ()
    shown: str | None = None
    """The default as the command line writes it, if that is not its text."""
    former: tuple[str, ...] = ()
    """Former keyword names; each warns."""
    keys: tuple[str, ...] = ()
    """Keys of a config that set it; the first that is present counts: `datasets.limit` is in an entry of
    `datasets`, `limit` beside them. Empty if a config has no use for it, as for `overwrite`.
    """
    same_rows: bool = False
    """Whether the same rows are written whatever its value, such as `workers`."""

    @property
    def words(self) -> str:
        """Return in words which values it takes."""
        return f"one of {', '.join(self.choices)}" if self.choices else self.reader.words

    @property
    def schema(self) -> dict[str, Any]:
        """Return the JSON Schema of its value."""
        return {**self.reader.schema} | ({"enum": list(self.choices)} if self.choices else {})

    def read(self, value: Any, flag: str) -> Any:
        """Return a value as the option keeps it; raise OptionError for one that it does not take."""
        if value is None:
            return None
        found = self.reader.read(value, flag)
        if self.choices and found not in self.choices:
            raise OptionError(f"{flag} {found}: choose one of {', '.join(self.choices)}")
        return found


def option(reader: Reader, help: str, *, default: Any = None, **declared: Any) -> Any:
    """Declare a field of an Options class; `declared` are the further fields of Option."""
    metadata = {_METADATA: Option(reader, help, **declared)}
    if isinstance(default, Mapping):
        return field(default_factory=lambda: dict(default), metadata=metadata)
    return field(default=default, metadata=metadata)


@dataclass(frozen=True)
class Options:
    """Base of the options of a command; values are checked and made uniform on construction.

    Raises:
        OptionError: for a value that an option does not take.
    """

    panel: ClassVar[str] = "Options"
    """The heading under which `--help` lists the options that a class declares."""
    typed: frozenset[str] = field(default=frozenset(), kw_only=True, compare=False, repr=False)
    """Names of the options given on the command line, also those with their default value."""
    beside: tuple[str, ...] = field(default=(), kw_only=True, compare=False, repr=False)
    """Words of the command line that set no option, such as --fail-on CODE, for suggested commands."""

    def __post_init__(self) -> None:
        for name, declared in self.declared().items():
            value = getattr(self, name)
            if value is None:
                # None leaves an option out, also one whose default is something else.
                value = default_of(type(self), name)
            found = declared.read(value, flag_of(name, declared))
            if found is not getattr(self, name):
                object.__setattr__(self, name, found)

    @classmethod
    def declared(cls) -> dict[str, Option]:
        """Return the options of the class in their order; other fields are left out."""
        return {
            entry.name: entry.metadata[_METADATA]
            for entry in fields(cls)
            if _METADATA in entry.metadata
        }

    @classmethod
    def with_same_rows(cls) -> set[str]:
        """Return the names of the options that change no row."""
        return {name for name, declared in cls.declared().items() if declared.same_rows}

    @classmethod
    def beside_options(cls) -> set[str]:
        """Return the names of the fields that do not affect the output: how it was requested, and when."""
        return {entry.name for entry in fields(cls) if not entry.compare}

    @classmethod
    def panel_of(cls, name: str) -> str:
        """Return the panel of the class that declares an option."""
        return next(
            one.panel
            for one in cls.__mro__
            if issubclass(one, Options) and name in vars(one).get("__annotations__", {})
        )

    @classmethod
    def taken(cls, given: Mapping[str, Any], function: str) -> Self:
        """Make the options from keywords; TypeError with a did-you-mean for an unknown one."""
        former = {old: name for name, found in cls.declared().items() for old in found.former}
        values: dict[str, Any] = {}
        for name, value in given.items():
            if name in former:
                message = f"{function}({name}=) is {former[name]}= now"
                warn(message, DeprecationWarning, stacklevel=4)
            now = former.get(name, name)
            if now not in cls.declared():
                near = near_match(name, cls.declared())
                advice = f"; did you mean {near!r}?" if near else ""
                raise TypeError(f"{function}() got an unexpected keyword argument {name!r}{advice}")
            values[now] = value
        return cls(**values)

    def given(self) -> dict[str, Any]:
        """Return every option with its value, as keywords."""
        return {name: getattr(self, name) for name in self.declared()}

    def chosen(self) -> dict[str, Any]:
        """Return the options that were chosen: typed ones, and those that differ from the default."""
        defaults = vars(type(self)())
        compared = {entry.name for entry in fields(self) if entry.compare}
        return {
            name: value
            for name, value in vars(self).items()
            if name in compared and (name in self.typed or value != defaults[name])
        }

    def words(self, names: Iterable[str]) -> list[str]:
        """Return those of the named options that were chosen, as the command line takes them."""
        chosen, declared = self.chosen(), self.declared()
        return [
            word
            for name in names
            if name in declared and name in chosen
            for word in words_of(flag_of(name, declared[name]), declared[name], chosen[name])
        ]

    @classmethod
    def schema(cls) -> dict[str, Any]:
        """Return the JSON Schema of these options as an object of keywords."""
        return {
            "$schema": "https://json-schema.org/draft/2020-12/schema",
            "type": "object",
            "additionalProperties": False,
            "properties": {
                name: {"description": found.help, **found.schema}
                for name, found in cls.declared().items()
            },
        }


def flag_of(name: str, declared: Option) -> str:
    """Return an option as messages name it: the long flag."""
    return declared.flags[0] if declared.flags else "--" + name.rstrip("_").replace("_", "-")


def words_of(flag: str, declared: Option, value: Any) -> list[str]:
    """Return a value that an option keeps as words of a command line."""
    if isinstance(value, bool):
        return [flag] if value else []
    if isinstance(value, Mapping):
        pairs = (f"{key}={_word(one)}" for key, one in value.items())
        return [word for pair in pairs for word in (flag, pair)]
    if declared.reader is NAMES:
        return [flag, ",".join(value)] if value else []
    if isinstance(value, tuple):
        return [word for one in value for word in (flag, _word(one))]
    return [] if value is None else [flag, _word(value)]


def _word(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)


def keywords(
    options: type[Options], *, without: Sequence[str] = ()
) -> Callable[[Function], Function]:
    """Give a function of the library one keyword for each option, instead of `options`.

    `help()`, completion and `inspect.signature` see them all; a misspelled one is a TypeError at the
    call. `without` are options that the function takes as arguments of its own, or not at all.
    """

    def decorate(function: Function) -> Function:
        own = {n: p for n, p in signature(function).parameters.items() if n != "options"}
        taken = {name: d for name, d in options.declared().items() if name not in (*own, *without)}
        passed = [name for name in own if name in options.declared()]
        shown = Signature(
            [
                *own.values(),
                *(
                    Parameter(
                        name,
                        Parameter.KEYWORD_ONLY,
                        default=default_of(options, name),
                        annotation=keyword_type(declared),
                    )
                    for name, declared in taken.items()
                ),
            ],
            return_annotation=signature(function).return_annotation,
        )

        @wraps(function)
        def called(*positional: Any, **given: Any) -> Any:
            named = {name: given.pop(name) for name in [*given] if name in own}
            for name in set(given) & set(without):
                raise TypeError(f"{function.__name__}() takes no {name!r}")
            bound = Signature([*own.values()]).bind(*positional, **named)
            own_alone = {n: value for n, value in bound.arguments.items() if n not in passed}
            check_arguments(function.__name__, own, own_alone)
            bound.apply_defaults()
            rest = {name: bound.arguments[name] for name in passed}
            made = options.taken({**rest, **given}, function.__name__)
            return function(*bound.args, options=made, **bound.kwargs)

        called.__signature__ = shown  # type: ignore[attr-defined]
        called.__doc__ = _with_options(getdoc(function) or "", taken)
        return called  # type: ignore[return-value]

    return decorate


def _with_options(doc: str, taken: Mapping[str, Option]) -> str:
    """Add the options to the Args of a docstring."""
    lines = [f"    {name}: {found.help}" for name, found in taken.items()]
    head, mark, tail = cleandoc(doc).partition("\n\nReturns:")
    return "\n".join((head, *lines)) + mark + tail


def default_of(options: type[Options], name: str) -> Any:
    """Return the default of an option."""
    found = options.__dataclass_fields__[name]
    return found.default if found.default_factory is MISSING else found.default_factory()


def keyword_type(declared: Option) -> str:
    """Return the type of an option's keyword, as source text."""
    if declared.choices:
        listed = ", ".join(f'"{choice}"' for choice in declared.choices)
        return declared.reader.keyword.replace("str", f"Literal[{listed}]", 1)
    return declared.reader.keyword


def refuse_empty(value: object, name: str) -> None:
    """Raise OptionError for an empty text, which as a path would be the current folder."""
    if value == "":
        raise OptionError(f"{name} is empty: leave it out, or set the variable that it comes from")


def _text(value: Any, flag: str) -> str:
    if isinstance(value, str | Path):
        refuse_empty(value, flag)
        return str(value)
    raise OptionError(f"{flag} {value!r}: give a string")


def _count(least: int) -> Callable[[Any, str], int]:
    def read(value: Any, flag: str) -> int:
        if isinstance(value, int) and not isinstance(value, bool) and value >= least:
            return value
        raise OptionError(f"{flag} {value!r}: give a whole number of at least {least}")

    return read


def _number(value: Any, flag: str) -> int:
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    raise OptionError(f"{flag} {value!r}: give a whole number")


def _switch(value: Any, flag: str) -> bool:
    if isinstance(value, bool):
        return value
    raise OptionError(f"{flag} {value!r}: give true or false")


def _date(value: Any, flag: str) -> str:
    # A date of YAML, whose text has no time, is the beginning of that day.
    text = value.isoformat() if isinstance(value, date) else value
    try:
        return datetime.fromisoformat(_text(text, flag)).isoformat()
    except ValueError:
        raise OptionError(
            f"{flag} {value}: give a date such as 2026-07-26, or 2026-07-26T14:30"
        ) from None


def _sequence(value: Any, single: type | tuple[type, ...]) -> tuple[Any, ...]:
    if isinstance(value, single) or not isinstance(value, Sequence | set | frozenset):
        return (value,)
    return tuple(value)


def _names(value: Any, flag: str) -> tuple[str, ...]:
    parts = value.split(",") if isinstance(value, str) else _sequence(value, str)
    return tuple(_text(part, flag) for part in parts if part != "")


def _texts(value: Any, flag: str) -> tuple[str, ...]:
    return tuple(_text(item, flag) for item in _sequence(value, str))


def _counts(least: int) -> Callable[[Any, str], tuple[int, ...]]:
    read = _count(least)
    return lambda value, flag: tuple(read(item, flag) for item in _sequence(value, ()))


def _mapping(value: Any, flag: str) -> Mapping[str, Any]:
    if isinstance(value, Mapping):
        for key in value:
            if not isinstance(key, str):
                raise OptionError(f"{flag} {key!r}: give names as text")
        return value
    if not isinstance(value, list | tuple):
        raise OptionError(f"{flag} {value!r}: give a mapping")
    out: dict[str, str] = {}
    for pair in value:
        key, equals, text = str(pair).partition("=")
        if not equals or not key:
            raise OptionError(f"{flag} {pair!r}: write it as KEY=VALUE")
        out[key] = text
    return out


def _columns(value: Any, flag: str) -> Mapping[str, str]:
    found = _mapping(value, flag)
    for name, path in found.items():
        if not isinstance(path, str):
            raise OptionError(f"{flag} {name}={path!r}: give the path of a column as text")
    return found


def _rows_or_percent(value: Any, flag: str) -> str:
    text = str(value).strip()
    number = text.removesuffix("%")
    try:
        sound = float(number) >= 0 if text.endswith("%") else int(number) >= 0
    except ValueError:
        sound = False
    if isinstance(value, bool) or not sound:
        raise OptionError(f"{flag} {text}: give a number of rows or a percentage such as 1%")
    return text


def _share(value: Any, flag: str) -> float:
    text = str(value)
    try:
        share = float(text.removesuffix("%")) / (100 if text.endswith("%") else 1)
    except ValueError:
        share = -1.0
    if not 0 <= share < 1:
        raise OptionError(f"{flag} {text}: give a share such as 1% or 0.01")
    return share


def _amount(value: Any, flag: str) -> float:
    try:
        found = float(value)
    except (TypeError, ValueError):
        found = -1.0
    if isinstance(value, bool) or not 0 <= found < float("inf"):
        raise OptionError(f"{flag} {value}: give a number from 0, such as 0.7")
    return found


def _size(value: Any, flag: str) -> float | int:
    try:
        number = float(value)
    except (TypeError, ValueError) as error:
        raise OptionError(
            f"{flag} {value}: give a fraction such as 0.05 or a number of rows"
        ) from error
    if not 0 < number < float("inf") or (number >= 1 and number != int(number)):
        raise OptionError(f"{flag} {value}: give a fraction between 0 and 1 or a number of rows")
    return number if number < 1 else int(number)


_STRING = {"type": "string"}
_LIST = {"type": "array", "items": _STRING}
TEXT = Reader(str | None, "str | None", _text, _STRING, "a text")
PATH = Reader(str | None, "str | Path | None", _text, _STRING, "a text", "PATH")
CHOICE = Reader(str, "str", _text, _STRING, "a text")
OPTIONAL_CHOICE = Reader(str | None, "str | None", _text, _STRING, "a text")
COUNT = Reader(
    int | None,
    "int | None",
    _count(1),
    {"type": "integer", "minimum": 1},
    "a whole number from 1",
    "N",
)
NATURAL = Reader(
    int, "int", _count(0), {"type": "integer", "minimum": 0}, "a whole number from 0", "N"
)
NUMBER = Reader(int, "int", _number, {"type": "integer"}, "a whole number", "N")
SWITCH = Reader(bool, "bool", _switch, {"type": "boolean"}, "true or false")
NAMES = Reader(
    str | None,
    "str | Sequence[str]",
    _names,
    {"anyOf": [_STRING, _LIST]},
    "names: A,B or a list",
    "A,B",
)
PATHS = Reader(
    list[str] | None,
    "str | Path | Sequence[str | Path]",
    _texts,
    {"anyOf": [_STRING, _LIST]},
    "a string or a list of strings",
    "PATH",
)
TEXTS = Reader(
    list[str] | None,
    "str | Sequence[str]",
    _texts,
    {"anyOf": [_STRING, _LIST]},
    "a string or a list of strings",
)
COUNTS = Reader(
    list[int] | None,
    "int | Sequence[int]",
    _counts(1),
    {"type": ["integer", "array"], "minimum": 1, "items": {"type": "integer", "minimum": 1}},
    "a whole number from 1, or a list of them",
    "N",
)
NATURALS = Reader(
    list[int] | None,
    "int | Sequence[int]",
    _counts(0),
    {"type": ["integer", "array"], "minimum": 0, "items": {"type": "integer", "minimum": 0}},
    "a whole number from 0, or a list of them",
    "N",
)
PAIRS = Reader(
    list[str] | None, "Mapping[str, Any]", _mapping, {"type": "object"}, "a mapping", "KEY=VALUE"
)
COLUMNS = Reader(
    list[str] | None,
    "Mapping[str, str]",
    _columns,
    {"type": "object", "additionalProperties": _STRING},
    "a mapping of strings",
    "COLUMN=PATH",
)
DATE = Reader(
    str | None,
    "str | date | None",
    _date,
    _STRING,
    "a date such as 2026-07-26, or 2026-07-26T14:30",
    "DATE",
)
ROWS_OR_PERCENT = Reader(
    str | None,
    "int | str | None",
    _rows_or_percent,
    {"anyOf": [{"type": "integer", "minimum": 0}, {"type": "string", "pattern": "^[0-9.]+%?$"}]},
    "a number of rows, or a percentage such as 1%",
    "N or P%",
)
SHARE = Reader(
    str,
    "float | str",
    _share,
    {"type": ["number", "string"]},
    "a share such as 1% or 0.01",
    "SHARE or P%",
)
AMOUNT = Reader(
    str, "float", _amount, {"type": "number", "minimum": 0}, "a number from 0, such as 0.7"
)
SIZE = Reader(
    str | None,
    "float | str | None",
    _size,
    {"anyOf": [{"type": "number", "exclusiveMinimum": 0}, _STRING]},
    "a fraction below 1 or a number of rows",
    "N or SHARE",
)
