"""Kinds of column that hold a dialog: a list of messages, one message, or the text of one."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

import polars as pl
import pyarrow as pa
from polars import Expr

from fmtkit.kinds import Kind, OpenKind, absent
from fmtkit.sources.canonical_json import canonical
from fmtkit.sources.marks import Duplicated, Fault, faults, kind_of
from fmtkit.sources.strict import parse

ROLES: dict[str, str] = {
    "system": "system",
    "developer": "developer",
    "user": "user",
    "assistant": "assistant",
    "tool": "tool",
    "function": "tool",
}
"""What sources call the speakers -> what templates call them; OpenAI once said `function`."""
SHAREGPT_ROLES: dict[str, str] = {
    "system": "system",
    "human": "user",
    "user": "user",
    "gpt": "assistant",
    "assistant": "assistant",
    "bing": "assistant",
    "chatgpt": "assistant",
    "tool": "tool",
    "observation": "tool",
}
"""The speakers of ShareGPT; `function_call` is a turn of the assistant, not a speaker."""

NARROW = pl.Struct({"role": pl.String, "content": pl.String})
WIDE = pl.Struct(
    {
        "role": pl.String,
        "content": pl.String,
        "name": pl.String,
        "reasoning_content": pl.String,
        "tool_calls": pl.String,
        "tool_call_id": pl.String,
        "train": pl.Boolean,
    }
)
REASONING = ("reasoning_content", "reasoning", "thinking")
"""Names under which sources keep what a model thought before it spoke; the first is ours."""
CARRIED = frozenset({*REASONING, "tool_calls", "function_call"})
"""Keys that change what a turn says: a row is not cut short where a message cannot hold them."""
FLAGS = ("train", "training", "weight")
"""Names under which sources say whether a message is learnt; the first is ours."""
ROW_PATH = frozenset({*CARRIED, *FLAGS, "name", "tool_call_id"})
"""Keys that must not be overlooked: whoever has one is read row by row."""
_MEDIA = ("image", "audio", "video", "input_image", "input_audio", "file")


@dataclass(frozen=True)
class DialogKind(Kind):
    """Messages, one message, or text, whichever `accepts` names; becomes a list of messages."""

    accepts: frozenset[str] = frozenset({"messages"})
    role: str = "role"
    content: str = "content"
    speaker: str = "assistant"
    """The role of a message that is only text."""
    roles: Mapping[str, str] = field(default_factory=lambda: ROLES)
    wide: bool = False
    function_calls: bool = False
    """Whether a turn of role `function_call` is a tool call of the assistant (ShareGPT)."""
    nested: ClassVar[bool] = True

    @property
    def letter(self) -> str:  # type: ignore[override]
        letters = {"messages": "M", "message": "message", "text": "T"}
        return " or ".join(
            letters[name] for name in ("text", "message", "messages") if name in self.accepts
        )

    @property
    def words(self) -> str:  # type: ignore[override]
        names = {"text": "text", "message": "a message", "messages": "a list of messages"}
        return " or ".join(word for name, word in names.items() if name in self.accepts)

    def output(self) -> pl.DataType:
        return pl.List(WIDE if self.wide else NARROW)

    def holds(self, value: Any) -> bool:
        return _form(value) in self.accepts

    def faults(self, value: Any, path: str) -> list[Fault]:
        form = _form(value)
        if form not in self.accepts:
            return [self._wrong(value, path)]
        if form == "text":
            marks = faults(value, path)
            return [marks] if marks else []
        if form == "message":
            return self._message_faults(value, path)
        found: list[Fault] = []
        for i, message in enumerate(value):
            here = f"{path}[{i}]"
            if message is None:
                found.append(Fault("null_field", here, f"{here} is null"))
            elif not isinstance(message, dict):
                found.append(
                    Fault("type_error", here, f"{here} is {kind_of(message)}, not a message")
                )
            else:
                found += self._message_faults(message, here)
        return found

    def _message_faults(self, message: dict[str, Any], path: str) -> list[Fault]:
        marks = faults(message, path)
        found = [marks] if marks else []
        role = message.get(self.role)
        if role is None:
            found.append(absent(f"{path}.{self.role}", self.role, message))
        elif not isinstance(role, str):
            found.append(_not_text(role, f"{path}.{self.role}"))
        elif self._role(role) is None:
            found.append(
                Fault(
                    "unknown_role",
                    f"{path}.{self.role}",
                    f"no role {role!r}; map it by --option roles",
                )
            )
        found += self._content_faults(message, path)
        if self.wide and isinstance(message.get("tool_calls"), str):
            found += _written_call_faults(message, f"{path}.tool_calls")
        carried = [key for key in message if key in CARRIED and message[key] not in (None, [], "")]
        if carried and not self.wide:
            found.append(
                Fault(
                    "unsupported",
                    f"{path}.{carried[0]}",
                    f"the type cannot carry {carried[0]} in a message",
                )
            )
        return found

    def _content_faults(self, message: dict[str, Any], path: str) -> list[Fault]:
        here = f"{path}.{self.content}"
        content = message.get(self.content)
        if content is None:
            spoken = self.wide and (_called(message) or message.get("function_call"))
            role = message.get(self.role)
            system = isinstance(role, str) and self._role(role) == "system"
            # The fast parser cannot tell a null from a key that is not there.
            return [] if spoken or system else [absent(here, self.content, message)]
        if isinstance(content, str):
            return self._call_faults(message, content, here)
        if not isinstance(content, list):
            return [_not_text(content, here)]
        return part_faults(content, here)

    def _call_faults(self, message: dict[str, Any], content: str, path: str) -> list[Fault]:
        if not self.function_calls or message.get(self.role) != "function_call":
            return []
        value, fault = (
            parse(content.encode("utf-8", "surrogatepass"), written=True)
            if content
            else (None, None)
        )
        if fault is not None and fault.code == "not_an_object" and content.lstrip().startswith("["):
            return []
        if fault is not None or not isinstance(value, dict):
            return [Fault("value_error", path, f"{path} is a function call, but no JSON object")]
        return []

    def _role(self, role: str) -> str | None:
        if self.function_calls and role == "function_call":
            return "assistant"
        return self.roles.get(role)

    def contents(self, value: Any) -> Iterator[Any]:
        form = _form(value)
        for message in value if form == "messages" else [value] if form == "message" else []:
            yield message.get(self.content)

    def value(self, value: Any) -> list[dict[str, Any]]:
        form = _form(value)
        if form == "text":
            return [self._filled({"role": self.speaker, "content": value})]
        messages = [value] if form == "message" else value
        return [self._message(message) for message in messages if not self._is_silent(message)]

    def _is_silent(self, message: dict[str, Any]) -> bool:
        """A null system text makes no system turn; an empty one is for the template to judge."""
        content = message.get(self.content)
        return content is None and self._role(message[self.role]) == "system"

    def _message(self, message: dict[str, Any]) -> dict[str, Any]:
        content = message.get(self.content)
        if isinstance(content, list):
            content = "".join(part if isinstance(part, str) else part["text"] for part in content)
        out: dict[str, Any] = {"role": self._role(message[self.role]), "content": content}
        if not self.wide:
            return out
        out["name"] = _text_or_none(message.get("name"))
        out["tool_call_id"] = _text_or_none(message.get("tool_call_id"))
        # An empty one is kept where no other name has more to say: a template may ask for it.
        thoughts = [message[key] for key in REASONING if isinstance(message.get(key), str)]
        out["reasoning_content"] = next(filter(None, thoughts), thoughts[0] if thoughts else None)
        out["train"] = _train(message)
        calls = _called(message)
        if self.function_calls and message[self.role] == "function_call":
            calls = _calls(json_value(content or ""))
            out["content"] = ""
        elif not calls and isinstance(message.get("function_call"), dict):
            calls = _calls(message["function_call"])
        out["tool_calls"] = canonical(calls) if calls else None
        return self._filled(out)

    def _filled(self, message: dict[str, Any]) -> dict[str, Any]:
        fields = WIDE.fields if self.wide else NARROW.fields
        return {entry.name: message.get(entry.name) for entry in fields}

    def shape_of(self, value: Any) -> str | None:
        form = _form(value)
        if form is None or form not in self.accepts:
            return None
        if form == "text":
            return "text"
        messages = [value] if form == "message" else value
        return form if all(self._is_plain(message) for message in messages) else None

    def _is_plain(self, message: Any) -> bool:
        return (
            isinstance(message, dict)
            and isinstance(message.get(self.role), str)
            and message[self.role] != "function_call"
            and isinstance(message.get(self.content), str)
            and all(message.get(key) is None for key in ROW_PATH if key in message)
        )

    def read_type(self, shape: str, extra: pa.DataType | None) -> pa.DataType:
        if shape == "text":
            return pa.string()
        inner = extra
        if inner is not None and pa.types.is_list(inner):
            inner = inner.value_type
        known = (
            [inner.field(i) for i in range(inner.num_fields)]
            if inner is not None and pa.types.is_struct(inner)
            else []
        )
        # A key that must not be overlooked is read as null: a value stops the fast parser.
        rest = [
            pa.field(f.name, pa.null() if f.name in ROW_PATH else f.type)
            for f in known
            if f.name not in (self.role, self.content)
        ]
        message = pa.struct(
            [pa.field(self.role, pa.string()), pa.field(self.content, pa.string()), *rest]
        )
        return message if shape == "message" else pa.list_(message)

    def read(self, parsed: Expr, shape: str) -> Expr:
        if shape == "text":
            message = self._struct(pl.lit(self.speaker), parsed)
            return pl.when(parsed.is_not_null()).then(pl.concat_list(message))
        if shape == "message":
            fields = parsed.struct
            message = self._struct(
                self._mapped(fields.field(self.role)), fields.field(self.content)
            )
            return pl.when(parsed.is_not_null()).then(pl.concat_list(message))
        turn = pl.element().struct
        content = turn.field(self.content)
        role = self._mapped(turn.field(self.role))
        message = pl.when(pl.element().is_not_null()).then(self._struct(role, content))
        silent = (role == "system") & content.is_null()
        return parsed.list.eval(message.filter(~silent.fill_null(value=False)))

    def _mapped(self, role: Expr) -> Expr:
        return role.replace_strict(dict(self.roles), default=None, return_dtype=pl.String)

    def _struct(self, role: Expr, content: Expr) -> Expr:
        made = {"role": role, "content": content}
        fields = (WIDE if self.wide else NARROW).fields
        return pl.struct(
            made.get(entry.name, pl.lit(None, dtype=entry.dtype)).alias(entry.name)
            for entry in fields
        )


def may_carry(dtype: pa.DataType) -> bool:
    """Tell whether messages of this type have keys that change what a turn says."""
    if pa.types.is_list(dtype) or pa.types.is_large_list(dtype):
        return may_carry(dtype.value_type)
    if not pa.types.is_struct(dtype):
        return False
    names = {dtype.field(i).name for i in range(dtype.num_fields)}
    return bool(names & ROW_PATH)


def _form(value: Any) -> str | None:
    if isinstance(value, str):
        return "text"
    if isinstance(value, dict):
        return "message"
    return "messages" if isinstance(value, list) else None


def _not_text(value: Any, path: str) -> Fault:
    return Fault("type_error", path, f"{path} holds {kind_of(value)}, not text")


def part_faults(content: Any, path: str) -> list[Fault]:
    """Return what is wrong with the parts of a content; of one that is no list, nothing."""
    parts = enumerate(content) if isinstance(content, list) else ()
    return [fault for i, part in parts for fault in _part_faults(part, f"{path}[{i}]")]


def _part_faults(part: Any, path: str) -> list[Fault]:
    if isinstance(part, str):
        return []
    if not isinstance(part, dict):
        return [_not_text(part, path)]
    kind = part.get("type")
    if isinstance(kind, str) and kind.startswith(_MEDIA):
        return [
            Fault("unsupported", path, f"{path} is of type {kind!r}; fmtkit converts text only")
        ]
    if isinstance(part.get("text"), str):
        return []
    return [Fault("type_error", path, f"{path} is no text part")]


def _text_or_none(value: Any) -> str | None:
    return value if isinstance(value, str) else None


def _train(message: dict[str, Any]) -> bool | None:
    for key in FLAGS:
        if isinstance(message.get(key), bool | int | float):
            return bool(message[key])
    return None


@dataclass(frozen=True)
class ToolsKind(OpenKind):
    """Tool definitions, or the JSON text of them; a bare one is wrapped as a function."""

    letter: ClassVar[str] = "tools"
    words: ClassVar[str] = "a list of tools"

    def faults(self, value: Any, path: str) -> list[Fault]:
        tools = _parsed(value)
        if tools is None or isinstance(tools, list):
            marks = faults(tools, path)
            items = [] if tools is None else enumerate(tools)
            wrong = [
                self._wrong(item, f"{path}[{i}]") for i, item in items if not isinstance(item, dict)
            ]
            return wrong + ([marks] if marks else [])
        if isinstance(value, str):
            return [
                Fault("value_error", path, f"{path} is text, but not the JSON of a list of tools")
            ]
        return [self._wrong(value, path)]

    def value(self, value: Any) -> str | None:
        tools = _parsed(value)
        return canonical([_tool(tool) for tool in tools]) if tools else None


def _tool(tool: dict[str, Any]) -> dict[str, Any]:
    """Wrap a bare function, as templates expect it; other tools stay as they are."""
    if "function" in tool or "name" not in tool:
        return tool
    function = {key: value for key, value in tool.items() if key != "type"}
    return {"type": "function", "function": function}


def _parsed(value: Any) -> Any:
    if not isinstance(value, str):
        return value
    return json_value(value) if value.strip() else None


def json_value(text: str) -> Any:
    """Parse a text as JSON, keeping how numbers were written; return the text if it is none."""
    value, fault = parse(b'{"v":' + text.encode("utf-8", "surrogatepass") + b"}", written=True)
    # `1,"w":2` would be two members: a text that is JSON only here.
    is_one = fault is None and list(value) == ["v"] and not isinstance(value, Duplicated)
    return value["v"] if is_one else text


def _called(message: Mapping[str, Any]) -> Any:
    """Return the calls of a message, also of one that has them as JSON text; None where it is no list."""
    calls = message.get("tool_calls")
    if not isinstance(calls, str):
        return calls or []
    value = _parsed(calls) or []
    return value if isinstance(value, list) else None


def _written_call_faults(message: Mapping[str, Any], path: str) -> list[Fault]:
    calls = _called(message)
    if calls is None:
        told = f"{path} is text, but not the JSON of a list of calls"
        return [Fault("value_error", path, told)]
    marks = faults(calls, path)
    return [marks] if marks else []


def _calls(value: Any) -> list[dict[str, Any]]:
    calls = value if isinstance(value, list) else [value]
    return [
        call if "function" in call else {"type": "function", "function": call} for call in calls
    ]
