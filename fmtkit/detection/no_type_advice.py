"""Why no type fits a source, and what to do: rows that cannot be read, rows within an object, near misses."""

import json
import shlex
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fmtkit.columns import image_values
from fmtkit.core.escaping import one_line
from fmtkit.detection import detection
from fmtkit.detection.near_misses import (
    SPEAKERS,
    contents_of,
    is_message,
    speakers,
    values_by_path,
)
from fmtkit.detection.numbered_replies import unjudged
from fmtkit.detection.suggestions import as_command
from fmtkit.detection.unread_columns import choices, is_spoken, parents
from fmtkit.options.convert_options import SourceOptions
from fmtkit.reading.bound_column import Row, is_media
from fmtkit.sources.kinds import SUFFIXES
from fmtkit.sources.wrapped import WRAPPERS

if TYPE_CHECKING:
    from fmtkit.sources.source import Source

SHOWN = 4
"""Speakers that an error names."""
BEGINNING = 40
"""Characters of a record that an error shows."""
LOOKED_AT = 5
"""Rows in which parts of messages are looked for that are media."""
SHOWN_PARTS = ("image", "audio", "video", "input_image", "input_audio")
"""How the types of parts begin that are images, sounds or videos."""
MANY = 3
"""Fewer values of one shape may be the columns of a row."""
DECOMPRESSING = {".gz": "gzip -dc", ".zst": "zstd -dc"}


def unfitting(
    paths: Sequence[str],
    samples: Sequence[Sequence[Row]],
    sources: Sequence["Source"],
    given: SourceOptions,
) -> str:
    """Describe rows that no type fits, and how to convert them.

    Args:
        paths: The sources as the user gave them, for commands.
        samples: The first valid rows of each source.
        sources: The sources themselves, for what could not be read of those without a valid row.
        given: The options of the command.
    """
    sample = [row for rows in samples for row in rows]
    if not sample:
        return unread(sources)
    media = _with_media(sample)
    if media:
        return f"{media}, in a form that no type reads"
    if all(map(is_message, sample)):
        return (
            'each row is a single message: write a conversation as one row, {"messages": [...]}, '
            "and not as a list of them"
        )
    for source, rows in zip(sources, samples, strict=True):
        within = wrapped(rows, source.name) or transposed(rows, source.name)
        if within is not None:
            return within
    followed = parents(sample)
    if followed:
        return (
            f"{followed[0]} names the row that a row follows, so that each row is a turn of a conversation: "
            'write a conversation as one row, {"messages": [...]}'
        )
    lettered = _lettered(sample) or _unjudged(sample)
    near = None if lettered else detection.nearest(sample)
    if near is not None:
        return f"no type fits; {near[0]} has the columns, but {near[1]}"
    told = lettered or _strangers(sample) or _transcribed(sample)
    if told:
        return told
    names = dict.fromkeys(name for row in sample for name in row)
    path = paths[0] if paths else "SOURCE"
    columns = {"question": "COLUMN", "answer": "COLUMN"}
    command = as_command(paths, given, {"type": "question_answer", "columns": columns})
    return (
        f"no type fits {path}, whose columns are {', '.join(names) or 'none'}: say which of them are "
        f"a question and its answer (`{command}`), or read them by a converter of your own "
        "(--plugin FILE.py; docs/add-a-format.md has a whole one)"
    )


def _with_media(sample: Sequence[Row]) -> str:
    """Say which columns hold media, themselves or in parts of messages; nothing if there are none."""
    found = {name for row in sample for name in row if is_media(name, row[name])}
    columns = sorted(found - {*image_values.COLUMNS})
    if columns:
        return f"the rows have {', '.join(columns)}"
    part = next((path for row in sample[:LOOKED_AT] for path in _media_within(row)), "")
    return part and f"the messages have media ({part})"


def _media_within(value: Any, path: str = "") -> Iterator[str]:
    """Yield the paths of the parts of messages in a value that are images, sounds or videos."""
    if isinstance(value, Mapping):
        kind = value.get("type")
        if isinstance(kind, str) and kind.startswith(SHOWN_PARTS) and len(value) > 1:
            yield path
        for key, item in value.items():
            yield from _media_within(item, f"{path}.{key}" if path else str(key))
    elif isinstance(value, list):
        for item in value:
            yield from _media_within(item, f"{path}[]")


def _lettered(sample: Sequence[Row]) -> str:
    """Say that answers are letters of choices in another column."""
    found = choices(sample)
    if found is None:
        return ""
    is_letter = any(isinstance(row.get(found[0]), str) for row in sample)
    sign = "letter" if is_letter else "place"
    return (
        f"{found[0]} holds {sign}s of the choices in {found[1]}, and means nothing without them: write a "
        f"question that has its choices, and the answer that the {sign} stands for"
    )


def _unjudged(sample: Sequence[Row]) -> str:
    """Say that two columns are replies to the same, and that nothing judges them."""
    found = unjudged(sample)
    if found is None:
        return ""
    return (
        f"{found[0]} and {found[1]} are two replies, of which no column says which is better: add one "
        "with the winner (a or b) or a score of each, or convert one of them (--type question_answer "
        "--map answer="
        f"{found[0]})"
    )


def _strangers(sample: Sequence[Row]) -> str:
    """Say that messages are by speakers of whom nobody knows which is the model."""
    for path, held in values_by_path(sample).items():
        named = {name for value in held for name in speakers(value)}
        keys = {key for value in held for key in contents_of(value)}
        strange = sorted(name for name in named if name.lower() not in SPEAKERS)
        if strange:
            shown = ", ".join(strange[:SHOWN]) + ", ..." * (len(strange) > SHOWN)
            said = "".join(f"--option message_field_content={key} " for key in keys - {"content"})
            roles = json.dumps({"assistant": ["NAME"], "user": ["NAME"]})
            return (
                f"the speakers of {path} are {shown}: say who is the model, with --type openai --map "
                f"messages={path} {said}--option 'roles={roles}'"
            )
    return ""


def _transcribed(sample: Sequence[Row]) -> str:
    """Say that a column holds conversations as text."""
    for name in dict.fromkeys(name for row in sample for name in row):
        held = [row[name] for row in sample if isinstance(row.get(name), str)]
        if held and all(map(is_spoken, held)):
            return (
                f"{name} holds whole conversations as text: write each as messages, or begin their turns "
                f"with USER: and ASSISTANT: (--type transcript --map text={name})"
            )
    return ""


def unread(sources: Sequence["Source"], codes: str = "") -> str:
    """Say why sources have no row that can be read: where the first record is, and what it is instead.

    `codes` are those of all their bad rows, with counts.
    """
    for source in sources:
        block = source.first_block()
        if block is None:
            continue
        records = block.records()
        if len(records):
            value, fault = records.value(0)
            raw, line = records.raw(0), records.line(0)
            reason = fault.message if fault else f"a row with {value!r:.20}"
        elif block.rejects:
            first = block.rejects[0]
            raw, line, reason = first.raw, first.line, first.message
        else:
            continue
        return f"no row could be read{codes}: {_first(source, raw, line, reason)}"
    names = ", ".join(source.name for source in sources[:2]) + ", ..." * (len(sources) > 2)
    if all(source.size == 0 for source in sources):
        return f"{names} {'is' if len(sources) < 2 else 'are'} empty: there are no rows"
    return f"there are no rows in {names}, only blank lines or a header"


def _first(source: "Source", raw: bytes, line: int | None, reason: str) -> str:
    place = source.name if line is None else f"{source.name}:{line}"
    begins = one_line(raw[: 4 * BEGINNING].decode("utf-8", "replace")[:BEGINNING])
    said = f"{place} begins with {begins!r}: {reason}"
    value = _value(raw)
    if isinstance(value, list | str):
        return said + _as_objects(value, source)
    if raw.lstrip().startswith(b"{"):
        return said
    suffixes = ", ".join(suffix for suffix, layout in SUFFIXES.items() if layout != "lines")
    return f"{said}; if it is not JSON, give the file the suffix of its format ({suffixes})"


def _value(raw: bytes) -> Any:
    from json import loads

    try:
        return loads(raw)
    except (ValueError, RecursionError):
        return None


def _as_objects(value: list[Any] | str, source: "Source") -> str:
    """Return how rows that are lists or texts become objects with a column that a type reads."""
    column = "text" if isinstance(value, str) else "data"
    if isinstance(value, list) and value:
        if all(isinstance(item, Mapping) and is_message(item) for item in value):
            column = "messages"
        elif all(isinstance(item, str) for item in value):
            column = "turns"
    each = ".[] | " if getattr(source.reader, "layout", "") == "array" else ""
    command = jq(f"{each}{{{column}: .}}", source.name)
    return f"; give the {'text' if column == 'text' else 'list'} a name: {command}"


def wrapped(rows: Sequence[Row], name: str) -> str | None:
    """Return how the rows in a list of the only object of a source become its rows: `{"data": [...]}`.

    None where there is no such list: one in a column of another name may be part of a row.
    """
    if len(rows) != 1:
        return None
    [row] = rows
    lists = [key for key, value in row.items() if _is_rows(value)]
    lists = [key for key in lists if key.lower() in WRAPPERS or len(row) == 1]
    if not lists:
        return None
    inner = ".row" if all(isinstance(item.get("row"), Mapping) for item in row[lists[0]]) else ""
    several = f" (and others in {', '.join(lists[1:])})" if lists[1:] else ""
    command = jq(f".{_key(lists[0])}[]{inner}", name)
    return f"the rows are in {lists[0]!r} of the one object of {name}{several}: {command}"


def transposed(rows: Sequence[Row], name: str) -> str | None:
    """Return how the only object of a source becomes rows: objects by their ids, or a table as columns."""
    values = list(rows[0].values()) if len(rows) == 1 else []
    if len(values) < 2:
        return None
    if all(isinstance(value, list) and len(value) == len(values[0]) >= MANY for value in values):
        return _columns(name)
    fields = values[0].keys() if isinstance(values[0], Mapping) else set()
    if not all(isinstance(value, Mapping) and value.keys() == fields for value in values):
        return None
    if len(fields) >= MANY and all(field.isdigit() for field in fields):
        return _columns(name)
    if len(values) >= MANY and len(fields) > 1:
        return f"the rows are the values of the one object of {name}: {jq('.[]', name)}"
    return None


def _is_rows(value: object) -> bool:
    """Return whether a value is a list of objects that are not the messages of a conversation."""
    return (
        isinstance(value, list)
        and bool(value)
        and all(isinstance(item, Mapping) and not is_message(item) for item in value)
    )


def _columns(name: str) -> str:
    read = f"pandas.read_json({name!r}).to_json({_beside(name)!r}, orient='records', lines=True)"
    return f"{name} is one object with a list for each column, not rows: {read} writes rows"


def _key(name: str) -> str:
    return name if name.isascii() and name.isidentifier() else f'["{name}"]'


def jq(expression: str, name: str) -> str:
    """Return the command that writes what an expression of jq makes of a source as JSON lines."""
    words = ["jq", "-c", expression]
    if not Path(name).is_file():
        return f"`{shlex.join(words)}` writes rows"
    path = Path(name)
    packed = DECOMPRESSING.get(path.suffix)
    given = "" if packed else f" {shlex.quote(name)}"
    piped = f"{packed} {shlex.quote(name)} | " if packed else ""
    return f"`{piped}{shlex.join(words)}{given} > {shlex.quote(_beside(name))}` writes rows"


def _beside(name: str) -> str:
    """Return a name for the rows of a file."""
    return Path(name).name.partition(".")[0] + ".rows.jsonl"
