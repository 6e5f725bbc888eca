"""Ignoring: source columns, and keys of messages, that the user does not need (`--ignore`, `--select`)."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeVar

from fmtkit.columns.kinds import ConversationKind
from fmtkit.core.errors import OptionError, near_match
from fmtkit.core.message_keys import MESSAGE_KEYS
from fmtkit.formats.registry import Converter
from fmtkit.formats.type_options import TypeOptions
from fmtkit.reading.bound_column import EACH, top_of

if TYPE_CHECKING:
    from fmtkit.options.convert_options import RowOptions, SourceOptions

Row = Mapping[str, Any]
_Options = TypeVar("_Options", bound="SourceOptions")

OF_MESSAGES = EACH
"""Between a column of messages and a key of them, as in `messages[].rating`."""


def selected(settings: _Options, samples: Iterable[Sequence[Row]]) -> _Options:
    """Return the options with every column ignored that `select` does not name.

    Raises OptionError where it names what no row has.
    """
    if not settings.select:
        return settings
    seen = dict.fromkeys(name for rows in samples for row in rows for name in row)
    for name in settings.select:
        if seen and name not in seen:
            near = near_match(name, seen)
            hint = f"did you mean {near!r}?" if near else f"the columns are {', '.join(seen)}"
            raise OptionError(f"--select {name}: no row has that column; {hint}")
    others = [name for name in seen if name not in {*settings.select, *settings.ignore}]
    return replace(settings, ignore=(*settings.ignore, *others))


def absent_columns(
    settings: "RowOptions", converter: Converter, options: TypeOptions
) -> tuple[str, ...]:
    """Return the columns that are taken for absent: with `select` those too that only later rows have."""
    if not settings.select:
        return settings.ignore
    paths = (options.mapping.get(name, converter.path(name)) for name in converter.columns)
    read = dict.fromkeys(top for path in paths if (top := _column(path)))
    others = (name for name in read if name not in {*settings.select, *settings.ignore})
    return (*settings.ignore, *others)


def without(rows: Iterable[Row], ignored: Sequence[str]) -> list[Row]:
    """Return the rows without what is ignored, for finding a type; a type that is named reads no less."""
    if not ignored:
        return list(rows)
    keys: dict[str, set[str]] = {}
    for name in ignored:
        column, mark, key = name.partition(OF_MESSAGES)
        if mark:
            keys.setdefault(column, set()).add(key)
    return [
        {
            name: _without_keys(value, keys[name]) if name in keys else value
            for name, value in row.items()
            if name not in ignored
        }
        for row in rows
    ]


def _without_keys(messages: Any, keys: set[str]) -> Any:
    if not isinstance(messages, list):
        return messages
    return [
        {key: value for key, value in message.items() if key not in keys}
        if isinstance(message, Mapping)
        else message
        for message in messages
    ]


def check_ignored(
    settings: "RowOptions",
    converters: Sequence[Converter],
    resolved: Sequence[TypeOptions],
    samples: Sequence[Sequence[Row]],
) -> None:
    """Raise OptionError where --ignore names what no row has, or what is kept or needed, as --select may."""
    rows = [row for sample in samples for row in sample]
    seen = dict.fromkeys(name for row in rows for name in row)
    for name in settings.ignore:
        column = name.partition(OF_MESSAGES)[0]
        if name not in seen and column != name and column in seen:
            _check_key(name, _keys_in(rows, column), _read_keys(column, converters, resolved))
            continue
        if seen and name not in seen:
            near = near_match(name, seen)
            hint = f"did you mean {near!r}?" if near else f"the columns are {', '.join(seen)}"
            raise OptionError(f"--ignore {name}: no row has that column; {hint}")
        if settings.select and name not in settings.select:
            _check_unselected(name, settings, converters, resolved)
            continue
        if name in settings.keep:
            raise OptionError(f"--ignore {name}: --keep names the same column; give one of them")
        mapped = next((p for p, path in settings.columns.items() if _column(path) == name), None)
        if mapped is not None:
            raise OptionError(
                f"--ignore {name}: --map {mapped}={settings.columns[mapped]} reads that column; give one "
                "of them"
            )
        needing = _needing(name, converters, resolved)
        if needing is not None:
            raise OptionError(
                f"--ignore {name}: type {needing} needs that column; choose a type that does not, or leave "
                "--ignore out"
            )


def _check_unselected(
    name: str,
    settings: "RowOptions",
    converters: Sequence[Converter],
    resolved: Sequence[TypeOptions],
) -> None:
    """Raise OptionError where a column is kept or needed that --select does not name."""
    mapped = next((p for p, path in settings.columns.items() if _column(path) == name), None)
    needing = _needing(name, converters, resolved)
    if name in settings.keep:
        why = f"--keep names {name}"
    elif mapped is not None:
        why = f"--map {mapped}={settings.columns[mapped]} reads {name}"
    elif needing is not None:
        why = f"type {needing} needs {name}"
    else:
        return
    raise OptionError(f"--select {','.join(settings.select)}: {why}; add it to --select")


def _needing(
    name: str, converters: Sequence[Converter], resolved: Sequence[TypeOptions]
) -> str | None:
    """Return the type that needs a column; None if none does."""
    for converter, options in zip(converters, resolved, strict=True):
        needed = {*converter.required, *(p for group in converter.any_of for p in group)}
        # What takes whole rows would read the column all the same.
        needed |= {*converter.columns} if converter.takes_rows else set()
        paths = (
            options.mapping.get(p, converter.path(p)) for p in converter.columns if p in needed
        )
        if any(_column(path) == name for path in paths):
            return converter.name
    return None


def _column(path: str) -> str:
    """Return the column of the source that a path begins with."""
    return top_of(path)


def _check_key(name: str, held: Mapping[str, None], read: Collection[str]) -> None:
    key = name.partition(OF_MESSAGES)[2]
    if held and key not in held:
        near = near_match(key, held)
        hint = f"did you mean {near!r}?" if near else f"the keys are {', '.join(held)}"
        raise OptionError(f"--ignore {name}: no message has that key; {hint}")
    if key in read:
        raise OptionError(f"--ignore {name}: the type reads that key; leave it out of --ignore")


def _keys_in(rows: Iterable[Row], column: str) -> dict[str, None]:
    lists = (row.get(column) for row in rows)
    messages = (m for messages in lists if isinstance(messages, list) for m in messages)
    return dict.fromkeys(key for m in messages if isinstance(m, Mapping) for key in m)


def _read_keys(
    column: str, converters: Sequence[Converter], resolved: Sequence[TypeOptions]
) -> set[str]:
    """Return the keys of the messages in a column that a converter reads."""
    read: set[str] = set()
    for converter, options in zip(converters, resolved, strict=True):
        for parameter, kind in {**converter.columns, **options.kinds}.items():
            path = options.mapping.get(parameter, converter.path(parameter))
            if isinstance(kind, ConversationKind) and path == column:
                read |= {kind.role, kind.content}
                if converter.wide:
                    read |= {name for key in MESSAGE_KEYS for name in key.names}
    return read
