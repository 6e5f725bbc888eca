"""Values of rows that were parsed strictly: what is wrong with them, and what they become.

Both follow from the kind alone. Faults are reported once for each code, the first of each: of a million
wrong items of a list one is enough to refuse the row.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import singledispatch
from typing import Any

from fmtkit.columns.image_values import UnreadableImageError, image_of_part
from fmtkit.columns.kinds import (
    ConversationKind,
    FlagKind,
    Kind,
    ListKind,
    MappedFlagKind,
    NumberKind,
    OpenKind,
    RecordKind,
    RowKind,
    TextKind,
    ToolsKind,
    TreeKind,
)
from fmtkit.core.errors import near_match
from fmtkit.core.message_keys import (
    CARRIED,
    MEDIA_PARTS,
    SILENT,
    MessageKey,
    is_image_part,
    text_of_part,
    texts_of,
)
from fmtkit.sources.canonical_json import canonical
from fmtkit.sources.marks import (
    Duplicated,
    Fault,
    NonFinite,
    Overflow,
    duplicate,
    fault_of_names,
    faults,
    kind_of,
    marks,
)
from fmtkit.sources.strict import parse

FirstFaults = dict[str, Fault]
"""The first fault of each code, in the order in which they were met."""
_LISTED = re.compile(r"\s*[\[{]")
_NUMBER = re.compile(r"-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][+-]?\d+)?\Z")
_PYTHON = re.compile(r"\s*(?:\[\s*)?(?:\{\s*)?'")
"""How a list or an object begins that Python wrote, and not JSON."""
_FILLED = re.compile(r"\S|[\x1c-\x1f]")
"""What is not blank (`fmtkit.columns.blank`): Python counts four separators as white space, polars none."""


def judge(kind: Kind, value: Any, path: str) -> list[Fault]:
    """Return what is wrong with a value that is not null, the first fault of each code."""
    found: FirstFaults = {}
    _judge(kind, value, path, found)
    return list(found.values())


@singledispatch
def holds(kind: Kind, value: Any) -> bool:  # noqa: ARG001
    """Return whether a value is of the kind, whatever is inside of it."""
    return isinstance(value, dict)


@holds.register
def _(kind: TextKind, value: Any) -> bool:
    return isinstance(value, str | list if kind.parts else str)


@holds.register
def _(kind: OpenKind, value: Any) -> bool:  # noqa: ARG001
    return True


@holds.register
def _(kind: ListKind, value: Any) -> bool:  # noqa: ARG001
    return isinstance(value, list)


@holds.register
def _(kind: ConversationKind, value: Any) -> bool:
    return form_of(value) in kind.accepts


@holds.register
def _(kind: FlagKind, value: Any) -> bool:
    if isinstance(value, str):
        return value in kind.texts
    if isinstance(value, bool):
        return True
    return kind.numbers and isinstance(value, int | float) and value in (0, 1)


@holds.register
def _(kind: MappedFlagKind, value: Any) -> bool:
    return mark_of(value) in kind.texts


def mark_of(value: Any) -> str:
    """Return how a label map names a value: a text as it is, a number or a boolean as JSON writes it."""
    if isinstance(value, str):
        return value
    if isinstance(value, bool) or not isinstance(value, int | float):
        return str(value).lower()
    return str(int(value)) if float(value).is_integer() else repr(float(value))


@holds.register
def _(kind: NumberKind, value: Any) -> bool:
    if isinstance(value, bool):
        return kind.booleans
    return isinstance(value, int if kind.whole else int | float)


class Cell(str):
    """A cell of a CSV: all of them are text, whatever it says."""

    __slots__ = ()


def unwrapped(kind: Kind, value: Any) -> Any:
    """Return what JSON text holds where a kind takes lists or objects and no text; other values as they are.

    Files whose columns have one type only keep lists of messages so, and so does what a CSV became. A cell of
    a CSV may be a number, too.
    """
    if isinstance(value, Cell) and isinstance(kind, NumberKind) and _NUMBER.match(value):
        return json_value(value)
    if not isinstance(value, str) or not isinstance(kind, ListKind | RecordKind | ConversationKind):
        return value
    return (
        json_value(value) if value.lstrip()[:1] in ("[", "{") and not holds(kind, value) else value
    )


def form_of(value: Any) -> str | None:
    """Return in which of its forms a value is a conversation; None where it is none."""
    if isinstance(value, str):
        return "text"
    if isinstance(value, dict):
        return "message"
    return "messages" if isinstance(value, list) else None


def absent(path: str, name: str, holder: Mapping[str, Any]) -> Fault:
    """Distinguish a key that is null from one that is missing, and name the key that was probably meant."""
    if name in holder:
        return Fault("null_field", path, f"{path} is null")
    near = near_match(name, [key for key in holder if isinstance(key, str)])
    return Fault(
        "missing_field", path, f"no {path}" + (f"; did you mean {near!r}?" if near else "")
    )


def _add(found: FirstFaults, fault: Fault | None) -> None:
    if fault is not None:
        found.setdefault(fault.code, fault)


def _add_absent(found: FirstFaults, path: str, name: str, holder: Mapping[str, Any]) -> None:
    # A near match is searched once, not in each record of a list.
    if ("null_field" if name in holder else "missing_field") not in found:
        _add(found, absent(path, name, holder))


def _wrong(kind: Kind, value: Any, path: str) -> Fault:
    if isinstance(value, str) and unwrapped(kind, value) is value and _LISTED.match(value):
        why = f"{path} holds text that begins as JSON and is none"
        hint = ": with single quotes it is Python's" if _PYTHON.match(value) else ""
        return Fault("type_error", path, f"{why}{hint}; {kind.words} is needed")
    return Fault("type_error", path, f"{path} holds {kind_of(value)}, not {kind.words}")


@singledispatch
def _judge(kind: Kind, value: Any, path: str, found: FirstFaults) -> None:
    """Add what is wrong with a value of this kind."""
    if not holds(kind, value):
        _add(found, _wrong(kind, value, path))
    _add(found, faults(value, path))


@_judge.register
def _(kind: TextKind, value: Any, path: str, found: FirstFaults) -> None:
    if not holds(kind, value):
        _add(found, _wrong(kind, value, path))
    for fault in part_faults(value, path, images=kind.images):
        _add(found, fault)
    _add(found, faults(_texts_only(value) if kind.images else value, path))


@_judge.register
def _(kind: NumberKind, value: Any, path: str, found: FirstFaults) -> None:
    if isinstance(value, NonFinite | Overflow):
        # A number all the same: not a type_error.
        for mark in marks(value, path):
            _add(found, mark)
    elif not holds(kind, value):
        _add(found, _wrong(kind, value, path))
        _add(found, faults(value, path))
    elif kind.range is not None and not kind.range[0] <= value <= kind.range[1]:
        low, high = kind.range
        _add(found, Fault("value_error", path, f"{path} is {value}, not from {low} to {high}"))


@_judge.register
def _(kind: RowKind, value: Any, path: str, found: FirstFaults) -> None:  # noqa: ARG001
    # A row has no path of its own: what is wrong is named by the column that it is in.
    for name, item in value.items():
        for mark in marks(item, name):
            _add(found, mark)
    _add(found, fault_of_names(value))
    for key in value.twice if isinstance(value, Duplicated) else ():
        _add(found, duplicate(key, key))


@_judge.register
def _(kind: ToolsKind, value: Any, path: str, found: FirstFaults) -> None:
    tools = _parsed(value)
    if tools is None or isinstance(tools, list):
        wrong = ((i, t) for i, t in enumerate(tools or ()) if not isinstance(t, dict))
        for i, item in wrong:
            _add(found, _wrong(kind, item, f"{path}[{i}]"))
        _add(found, faults(tools, path))
    elif isinstance(value, str):
        why = f"{path} is text, but not the JSON of a list of tools"
        _add(found, Fault("value_error", path, why))
    else:
        _add(found, _wrong(kind, value, path))


@_judge.register
def _(kind: ListKind, value: Any, path: str, found: FirstFaults) -> None:
    if not isinstance(value, list):
        _add(found, _wrong(kind, value, path))
        return
    judge_item = _judge.dispatch(type(kind.item))
    for i, item in enumerate(value):
        here = f"{path}[{i}]"
        if item is None:
            _add(found, Fault("null_field", here, f"{here} is null"))
        else:
            judge_item(kind.item, item, here, found)


@_judge.register
def _(kind: RecordKind, value: Any, path: str, found: FirstFaults) -> None:
    if not isinstance(value, dict):
        _add(found, _wrong(kind, value, path))
        return
    for name, inner in kind.fields.items():
        here = f"{path}.{name}"
        if value.get(name) is not None:
            _judge(inner, value[name], here, found)
        elif name not in kind.optional:
            _add_absent(found, here, name, value)
    rest = {key: item for key, item in value.items() if key not in kind.fields}
    _add(found, faults(_like(value, rest), path))


def _like(value: dict[str, Any], rest: dict[str, Any]) -> dict[str, Any]:
    """Keep the mark of a duplicated key on what is left of an object."""
    if type(value) is dict:
        return rest
    marked = type(value)(rest)
    marked.__dict__.update(value.__dict__)
    return marked


@_judge.register
def _(kind: TreeKind, value: Any, path: str, found: FirstFaults) -> None:
    _judge(kind.unfolded, value, path, found)


@_judge.register
def _(kind: ConversationKind, value: Any, path: str, found: FirstFaults) -> None:
    form = form_of(value)
    if form not in kind.accepts:
        _add(found, _wrong(kind, value, path))
    elif form == "text":
        _add(found, faults(value, path))
    elif form == "message":
        _judge_message(kind, value, path, found)
    else:
        for i, message in enumerate(value):
            here = f"{path}[{i}]"
            if message is None:
                _add(found, Fault("null_field", here, f"{here} is null"))
            elif not isinstance(message, dict):
                why = f"{here} is {kind_of(message)}, not a message"
                _add(found, Fault("type_error", here, why))
            else:
                _judge_message(kind, message, here, found)


def _judge_message(
    kind: ConversationKind, message: dict[str, Any], path: str, found: FirstFaults
) -> None:
    _add(found, faults(_without_images(kind, message), path))
    role, here = message.get(kind.role), f"{path}.{kind.role}"
    if role is None:
        _add_absent(found, here, kind.role, message)
    elif not isinstance(role, str):
        _add(found, _not_text(role, here))
    elif kind.speaker_of(role) is None:
        _add(found, Fault("unknown_role", here, f"no role {role!r}; map it by --option roles"))
    _judge_content(kind, message, f"{path}.{kind.content}", found)
    if kind.wide and isinstance(message.get("tool_calls"), str):
        _judge_written_calls(message, f"{path}.tool_calls", found)
    for one in kind.keys:
        if one.form == "spans":
            _judge_spans(one, message, path, found)
        elif one.form == "flag" and one.name in kind.names:
            _judge_flag(message, kind.names[one.name], path, found)
    if not kind.wide:
        carried = (k for k in message if k in CARRIED and message[k] not in (None, [], ""))
        for key in carried:
            why = f"the type cannot carry {key} in a message"
            _add(found, Fault("unsupported", f"{path}.{key}", why))


def _judge_content(
    kind: ConversationKind, message: dict[str, Any], path: str, found: FirstFaults
) -> None:
    content = message.get(kind.content)
    if content is None:
        # Typed columns cannot tell a null from a key that is not there.
        if not (_says_without_text(kind, message) or _is_silent(kind, message)):
            _add_absent(found, path, kind.content, message)
    elif isinstance(content, str):
        if kind.function_calls and message.get(kind.role) == kind.call_role:
            _judge_call(content, path, found)
    elif not isinstance(content, list):
        _add(found, _not_text(content, path))
    else:
        for fault in part_faults(content, path, images=kind.images):
            _add(found, fault)


def _says_without_text(kind: ConversationKind, message: Mapping[str, Any]) -> bool:
    return any(_is_held(key, message) for key in kind.keys if key.says)


def _is_held(key: MessageKey, message: Mapping[str, Any]) -> bool:
    if key.form == "calls":
        return bool(_called(message) or message.get("function_call"))
    text = _text(key, message)
    return text is not None and _FILLED.search(text) is not None


def _is_silent(kind: ConversationKind, message: Mapping[str, Any]) -> bool:
    """Return whether a message without content makes no turn; an empty one is for the template to judge."""
    role = message.get(kind.role)
    silent = isinstance(role, str) and kind.speaker_of(role) in SILENT
    return silent and message.get(kind.content) is None


def _without_images(kind: ConversationKind, message: dict[str, Any]) -> dict[str, Any]:
    """Return a message with null for each of its images, whose bytes are no text."""
    content = message.get(kind.content)
    if not kind.images or not isinstance(content, list):
        return message
    return _like(message, {**message, kind.content: _texts_only(content)})


def _texts_only(content: Any) -> Any:
    if not isinstance(content, list):
        return content
    return [None if is_image_part(part) else part for part in content]


def _not_text(value: Any, path: str) -> Fault:
    return Fault("type_error", path, f"{path} holds {kind_of(value)}, not text")


def part_faults(content: Any, path: str, *, images: bool = False) -> list[Fault]:
    """Return what is wrong with the parts of a content; nothing if the content is not a list."""
    parts = enumerate(content) if isinstance(content, list) else ()
    return [fault for i, part in parts for fault in _part_faults(part, f"{path}[{i}]", images)]


def _part_faults(part: Any, path: str, images: bool) -> list[Fault]:
    if isinstance(part, str):
        return []
    if not isinstance(part, dict):
        return [_not_text(part, path)]
    kind = part.get("type")
    if images and is_image_part(part):
        try:
            image_of_part(part)
        except UnreadableImageError:
            why = f"{path} names an image in a way that fmtkit does not read ({', '.join(part)})"
            return [Fault("unsupported", path, why)]
        return []
    if isinstance(kind, str) and kind.startswith(MEDIA_PARTS):
        return [
            Fault(
                "unsupported", path, f"{path} is of type {kind!r}, which rows of text do not hold"
            )
        ]
    if isinstance(part.get("text"), str):
        return []
    other = kind if isinstance(kind, str) else next(iter(part), None)
    if other in (None, "text", "type"):
        return [Fault("type_error", path, f"{path} is not a text part")]
    return [Fault("unsupported", path, f"{path} is of type {other!r}, neither text nor an image")]


def _judge_call(content: str, path: str, found: FirstFaults) -> None:
    if content:
        value, fault = parse(content.encode("utf-8", "surrogatepass"), written=True)
        if isinstance(value, dict):
            return
        if fault and fault.code == "not_an_object" and content.lstrip().startswith("["):
            return
    why = f"{path} is a function call, but not a JSON object"
    _add(found, Fault("value_error", path, why))


def _judge_written_calls(message: Mapping[str, Any], path: str, found: FirstFaults) -> None:
    calls = _called(message)
    if calls is None:
        why = f"{path} is text, but not the JSON of a list of calls"
        _add(found, Fault("value_error", path, why))
    else:
        _add(found, faults(calls, path))


def _judge_flag(message: Mapping[str, Any], name: str, path: str, found: FirstFaults) -> None:
    """Refuse a value that is no flag under a key that was named as one: ignoring it would change a mask."""
    value = message.get(name)
    if value is not None and not isinstance(value, bool | int | float):
        why = f"{path}.{name} holds {kind_of(value)}, not true or false"
        _add(found, Fault("type_error", f"{path}.{name}", why))


def _judge_spans(
    key: MessageKey, message: Mapping[str, Any], path: str, found: FirstFaults
) -> None:
    name = next((n for n in key.names if message.get(n) is not None), None)
    if name is None:
        return
    spans = _parsed(message[name])
    if not isinstance(spans, list) or not all(map(_is_span, spans)):
        why = f"{path}.{name} is not a list of objects of begin_offset, end_offset and train"
        _add(found, Fault("value_error", f"{path}.{name}", why))


def _is_span(span: Any) -> bool:
    if not isinstance(span, dict) or not isinstance(span.get("train"), bool):
        return False
    ends = [span.get(name) for name in ("begin_offset", "end_offset")]
    return all(isinstance(e, int) and not isinstance(e, bool) and e >= 0 for e in ends)


@singledispatch
def value_of(kind: Kind, value: Any) -> Any:  # noqa: ARG001
    """Return a sound value as converters see it."""
    return value


@value_of.register
def _(kind: TextKind, value: Any) -> str:
    return _joined(value) if kind.parts else value  # type: ignore[no-any-return]


@value_of.register
def _(kind: FlagKind, value: Any) -> bool:
    return kind.texts[value] if isinstance(value, str) else bool(value)


@value_of.register
def _(kind: MappedFlagKind, value: Any) -> bool:
    return kind.texts[mark_of(value)]


@value_of.register
def _(kind: NumberKind, value: Any) -> float:
    return int(value) if kind.whole else float(value)


@value_of.register
def _(kind: OpenKind, value: Any) -> str | None:  # noqa: ARG001
    return canonical(value)


@value_of.register
def _(kind: ToolsKind, value: Any) -> str | None:  # noqa: ARG001
    tools = _parsed(value)
    return canonical([_tool(tool) for tool in tools]) if tools else None


@value_of.register
def _(kind: ListKind, value: Any) -> list[Any]:
    made = value_of.dispatch(type(kind.item))
    return [made(kind.item, item) for item in value]


@value_of.register
def _(kind: RecordKind, value: Any) -> dict[str, Any]:
    return {
        name: None if value.get(name) is None else value_of(inner, value[name])
        for name, inner in kind.fields.items()
    }


@value_of.register
def _(kind: TreeKind, value: Any) -> list[dict[str, Any]]:
    out: list[dict[str, Any]] = []
    own, branches = kind.own, kind.branches
    waiting: list[tuple[Any, int | None]] = [(value, None)]
    while waiting:
        record, parent = waiting.pop()
        place = len(out)
        out.append(value_of(own, record) | {"parent": parent})
        held = [record.get(name) for name in branches]
        below = [one for each in held for one in (each if isinstance(each, list) else [each])]
        waiting += [(one, place) for one in reversed(below) if one is not None]
    return out


@value_of.register
def _(kind: ConversationKind, value: Any) -> list[dict[str, Any]]:
    form = form_of(value)
    if form == "text":
        return [_filled(kind, {"role": kind.speaker, "content": value})]
    messages = [value] if form == "message" else value
    return [_message(kind, message) for message in messages if not _is_silent(kind, message)]


def _message(kind: ConversationKind, message: dict[str, Any]) -> dict[str, Any]:
    content = _joined(message.get(kind.content))
    role = message[kind.role]
    out: dict[str, Any] = {"role": kind.speaker_of(role), "content": content}
    for key in kind.keys:
        out[key.name] = _FORMS[key.form](key, message)
    if "train_detail" in out:
        out["train_detail"] = _spans_of_parts(message.get(kind.content)) or out["train_detail"]
    if kind.function_calls and role == kind.call_role and kind.wide:
        calls = _calls(json_value(content or ""))
        out |= {"content": "", "tool_calls": canonical(calls) if calls else None}
    return out


def _joined(content: Any) -> Any:
    """Return the text of a content's parts; anything but a list stays as it is."""
    return "".join(texts_of(content)) if isinstance(content, list) else content


def _filled(kind: ConversationKind, message: dict[str, Any]) -> dict[str, Any]:
    return message | {key.name: None for key in kind.keys}


def _text(key: MessageKey, message: Mapping[str, Any]) -> str | None:
    # An empty one is kept where no other name has more to say: a template may ask for it.
    texts = [message[name] for name in key.names if isinstance(message.get(name), str)]
    return next(filter(None, texts), texts[0] if texts else None)


def _flag(key: MessageKey, message: Mapping[str, Any]) -> bool | None:
    for name in key.names:
        if isinstance(message.get(name), bool | int | float):
            return bool(message[name])
    return None


def _written_spans(key: MessageKey, message: Mapping[str, Any]) -> str | None:
    """Return the parts of a content and whether they are trained on, as JSON text."""
    name = next((n for n in key.names if message.get(n) is not None), None)
    if name is None:
        return None
    spans = _parsed(message[name])
    return canonical(
        [{n: span[n] for n in ("begin_offset", "end_offset", "train")} for span in spans]
    )


def _spans_of_parts(content: Any) -> str | None:
    """Return the same for a content in parts, of which one has `train` or `weight`."""
    parts = content if isinstance(content, list) else []
    flags = [
        None if isinstance(part, str) else part.get("train", part.get("weight")) for part in parts
    ]
    if not any(isinstance(flag, bool | int | float) for flag in flags):
        return None
    made, at = [], 0
    for part, flag in zip(parts, flags, strict=True):
        size = len(text_of_part(part))
        is_trained = flag is None or bool(flag)
        if size:
            made.append({"begin_offset": at, "end_offset": at + size - 1, "train": is_trained})
        at += size
    return canonical(made)


def _written_calls(key: MessageKey, message: Mapping[str, Any]) -> str | None:  # noqa: ARG001
    calls = _called(message)
    if not calls and isinstance(message.get("function_call"), dict):
        calls = _calls(message["function_call"])
    return canonical(calls) if calls else None


_FORMS: dict[str, Callable[[MessageKey, Mapping[str, Any]], Any]] = {
    "text": _text,
    "flag": _flag,
    "calls": _written_calls,
    "spans": _written_spans,
}


def _called(message: Mapping[str, Any]) -> Any:
    """Return the calls of a message, also of one that has them as JSON text; None where it is not a list."""
    calls = message.get("tool_calls")
    if not isinstance(calls, str):
        return calls or []
    value = _parsed(calls) or []
    return value if isinstance(value, list) else None


def _calls(value: Any) -> list[dict[str, Any]]:
    calls = value if isinstance(value, list) else [value]
    return [
        call if "function" in call else {"type": "function", "function": call} for call in calls
    ]


def written_calls(texts: Sequence[str]) -> str | None:
    """Return the calls that JSON texts hold, an object or a list each, as one list; None if one is wrong."""
    values = [json_value(text) for text in texts]
    calls = [call for value in values for call in (value if isinstance(value, list) else [value])]
    if not all(isinstance(call, dict) for call in calls) or faults(calls, "") is not None:
        return None
    return canonical(_calls(calls))


def _tool(tool: dict[str, Any]) -> dict[str, Any]:
    """Wrap a bare function, as templates expect it; other tools stay as they are."""
    if "function" in tool or "name" not in tool:
        return tool
    function = {key: value for key, value in tool.items() if key != "type"}
    return {"type": "function", "function": function}


def _parsed(value: Any) -> Any:
    """Return tools or calls, of which all or each may be JSON text."""
    found = value
    if isinstance(value, str):
        found = json_value(value) if value.strip() else None
    if not isinstance(found, list) or not any(isinstance(item, str) for item in found):
        return found
    return [json_value(item) if isinstance(item, str) else item for item in found]


def json_value(text: str) -> Any:
    """Parse a string as JSON, keeping how numbers were written; return the string if it is none."""
    value, fault = parse(b'{"v":' + text.encode("utf-8", "surrogatepass") + b"}", written=True)
    # `1,"w":2` would be two members: a text that is JSON only here.
    is_one = fault is None and list(value) == ["v"] and not isinstance(value, Duplicated)
    return value["v"] if is_one else text


@singledispatch
def contents(kind: Kind, value: Any) -> Iterator[Any]:  # noqa: ARG001
    """Yield the content of every message in a sound value, as it was written."""
    return iter(())


@contents.register
def _(kind: ListKind, value: Any) -> Iterator[Any]:
    return (content for item in value for content in contents(kind.item, item))


@contents.register
def _(kind: RecordKind, value: Any) -> Iterator[Any]:
    for name, inner in kind.fields.items():
        if value.get(name) is not None:
            yield from contents(inner, value[name])


@contents.register
def _(kind: ConversationKind, value: Any) -> Iterator[Any]:
    form = form_of(value)
    for message in value if form == "messages" else [value] if form == "message" else []:
        yield message.get(kind.content)


def has_image_part(kind: Kind, value: Any) -> bool:
    """Return whether a part of a content in a value, which may be unsound, is an image."""
    if isinstance(kind, ListKind):
        return isinstance(value, list) and any(has_image_part(kind.item, item) for item in value)
    if isinstance(kind, RecordKind):
        inner = kind.fields.items() if isinstance(value, dict) else ()
        return any(has_image_part(one, value.get(name)) for name, one in inner)
    if isinstance(kind, ConversationKind):
        messages = [value] if isinstance(value, dict) else value if isinstance(value, list) else []
        held = (message.get(kind.content) for message in messages if isinstance(message, dict))
        return any(
            is_image_part(part) for parts in held if isinstance(parts, list) for part in parts
        )
    if isinstance(kind, TextKind) and kind.parts:
        return isinstance(value, list) and any(map(is_image_part, value))
    return False
