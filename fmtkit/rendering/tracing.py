"""Run a template once for all rows of a shape: on the texts of one row, as symbols.

What comes back is a `Leaf`: the questions that the template asked about the texts, with their
answers, and the output as constants and symbols. It holds for every row of the same signature
(roles, keys present) that gives the same answers. A template is code, and a trace is one path
through it.
"""

import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from functools import cached_property
from typing import Any

from jinja2 import Template, nodes
from jinja2.exceptions import TemplateError
from jinja2.sandbox import ImmutableSandboxedEnvironment

from fmtkit.core import moments
from fmtkit.core.data_classes import dataclass
from fmtkit.rendering.jinja_environment import (
    environment,
    text_part,
    tojson,
    with_reasoning_aliases,
)
from fmtkit.rendering.json_symbols import UnknownJson
from fmtkit.rendering.symbolic_environment import SymbolicEnvironment
from fmtkit.rendering.symbols import ACTIVE, Symbol, Trace, Untraceable, plain
from fmtkit.rendering.unknowns import (
    OBJECT,
    TEXT,
    TOOL,
    UNKNOWN,
    Calls,
    Question,
    Slot,
    Unknown,
    call_key,
    symbolic,
)

FAULTS = (
    TemplateError,
    ArithmeticError,
    AttributeError,
    LookupError,
    MemoryError,
    RuntimeError,
    TypeError,
    ValueError,
)
"""What running a template may raise; anything else is a bug of fmtkit."""

IMPURE = frozenset({"random", "lipsum"})
"""Names whose value differs from call to call."""

MAX_OUTPUT = 16 << 20
"""Characters that one rendering may have."""


@dataclass(frozen=True, slots=True)
class Shape:
    """What is known of a message without its texts; `in_part`: its content is a list of one part.

    Tools are shaped as messages are: first one whose role is their JSON text, or `[]` with a shape for
    each tool after it.
    """

    role: str | None
    keys: tuple[str, ...]
    in_part: bool = False
    calls: Calls | None = None

    @property
    def text_keys(self) -> list[str]:
        """Return the keys of all texts, those within tool calls by their path."""
        calls = enumerate(self.calls or ())
        said = ((number, path) for number, call in calls for path, kind in call if kind in UNKNOWN)
        return [*self.keys, *(call_key(number, path) for number, path in said)]


Signature = tuple[tuple[Shape, ...], ...]
"""The shapes of each conversation of a row, and of its tools."""


@dataclass(frozen=True, slots=True)
class View:
    """One rendering of a row: which of its conversations, one after another, and how it ends.

    `tools` says where in the signature the tools are.
    """

    conversations: tuple[int, ...]
    generation_prompt: bool = False
    tools: int | None = None


@dataclass(frozen=True, slots=True)
class Request:
    """One conversation to render."""

    messages: Sequence[Mapping[str, Any]]
    tools: Any
    generation_prompt: bool

    @classmethod
    def of(
        cls, messages: Sequence[Mapping[str, Any]], tools: str | None, generation_prompt: bool
    ) -> "Request":
        """Make the request of messages as templates get them, and of tools as canonical JSON text."""
        return cls(messages, json.loads(tools) if tools else None, generation_prompt)


@dataclass(frozen=True, slots=True)
class Refusal:
    """A template refused a conversation, in these words; `raised`: it did so on purpose."""

    message: str
    raised: bool = False


@dataclass(frozen=True, slots=True)
class Leaf:
    """What a template does with all rows that give these answers."""

    unknowns: tuple[Unknown, ...]
    path: tuple[tuple[Question, bool], ...]
    outputs: tuple[str | Refusal, ...]


class Interpreter:
    """A template in this process: rendered row by row, or traced."""

    def __init__(
        self,
        source: str,
        variables: Mapping[str, Any],
        *,
        now: datetime | None = None,
        kind: type[ImmutableSandboxedEnvironment] = ImmutableSandboxedEnvironment,
    ) -> None:
        """Compile the template; a syntax error is raised as jinja2 says it."""
        self._now = moments.now() if now is None else now
        self.max_output = MAX_OUTPUT
        self._source = source
        self._variables = {"documents": None, **variables}
        made = environment(kind, now=self._now)
        tree = made.parse(source)
        self.traceable = traceable(tree, variables)
        self._template = made.from_string(tree)

    @cached_property
    def _symbolic(self) -> Template | None:
        made = environment(SymbolicEnvironment, now=self._now)
        made.globals["strftime_now"] = self._strftime
        made.guard()
        try:
            return made.from_string(self._source)
        except Untraceable:
            return None

    def _strftime(self, format: Any) -> str:
        """Write the time in a format that is known: the directives in a content are not known."""
        if isinstance(format, Symbol) or symbolic(str(format)):
            raise Untraceable("a date whose format is a content")
        return self._now.strftime(format)

    def render(self, requests: Sequence[Request]) -> list[str | Refusal]:
        """Render conversations one by one."""
        return [self._render(request) for request in requests]

    def _render(self, request: Request) -> str | Refusal:
        given = with_reasoning_aliases(request.messages)
        try:
            arguments = self._arguments(given, request.tools, request.generation_prompt)
            return _run(self._template, arguments, self.max_output)
        except FAULTS as error:
            return fault(error)

    def trace(
        self, signature: Signature, views: Sequence[View], row: dict[Slot, str]
    ) -> Leaf | None:
        """Trace the views of a row; None where the template asks what cannot be written down."""
        template = self._symbolic if self.traceable else None
        if template is None or symbolic("".join(_words(signature))):
            return None
        trace = Trace(row)
        token = ACTIVE.set(trace)
        try:
            outputs = tuple(self._output(template, view, trace, signature) for view in views)
        except Untraceable:
            return None
        finally:
            ACTIVE.reset(token)
        return Leaf(tuple(trace.unknowns), tuple(trace.answers.items()), outputs)

    def _output(
        self, template: Template, view: View, trace: Trace, signature: Signature
    ) -> str | Refusal:
        conversations = (
            _symbols(trace, number, signature[number]) for number in view.conversations
        )
        messages = [message for conversation in conversations for message in conversation]
        tools = None if view.tools is None else _tools(trace, view.tools, signature[view.tools])
        given = self._arguments(with_reasoning_aliases(messages), tools, view.generation_prompt)
        try:
            return _run_on_symbols(template, given, self.max_output)
        except FAULTS as error:
            return fault(error)

    def _arguments(self, messages: Any, tools: Any, generation_prompt: bool) -> dict[str, Any]:
        return {
            **self._variables,
            "messages": messages,
            "tools": tools,
            "add_generation_prompt": generation_prompt,
        }


def _run(template: Template, arguments: dict[str, Any], max_output: int) -> str:
    pieces, size = [], 0
    for piece in template.root_render_func(template.new_context(arguments)):
        size += len(piece)
        if size > max_output:
            raise ValueError(f"the template writes more than {max_output:,} characters")
        pieces.append(piece)
    return _encodable("".join(pieces))


def _encodable(text: str) -> str:
    """Return the text; raises UnicodeEncodeError where half a surrogate pair is in it."""
    text.encode()
    return text


def _run_on_symbols(template: Template, arguments: dict[str, Any], max_output: int) -> str:
    pieces, size = [], 0
    for piece in template.root_render_func(template.new_context(arguments)):
        if not isinstance(piece, Symbol) and symbolic(piece):
            raise Untraceable("a content that became an ordinary string unseen")
        size += str.__len__(piece)
        if size > max_output:
            raise Untraceable("a long output")
        pieces.append(plain(piece))
    return _encodable("".join(pieces))


def _symbols(trace: Trace, conversation: int, shapes: tuple[Shape, ...]) -> list[dict[str, Any]]:
    messages = []
    for number, shape in enumerate(shapes):
        message: dict[str, Any] = {"role": shape.role}
        for key in shape.keys:
            message[key] = trace.derive(Slot(conversation, number, key))
        if shape.in_part:
            message["content"] = [text_part(message["content"])]
        if shape.calls is not None:
            calls = enumerate(shape.calls)
            message["tool_calls"] = [_call(trace, conversation, number, *call) for call in calls]
        messages.append(message)
    return messages


def _call(
    trace: Trace, conversation: int, message: int, number: int, call: tuple[tuple[str, str], ...]
) -> dict[str, Any]:
    made: dict[str, Any] = {}
    for path, kind in call:
        value = _leaf(trace, Slot(conversation, message, call_key(number, path)), kind)
        parent, _, key = path.rpartition(".")
        (made.setdefault(parent, {}) if parent else made)[key] = value
    return made


def _leaf(trace: Trace, slot: Slot, kind: str) -> Any:
    if kind == TEXT:
        return trace.derive(slot)
    return UnknownJson(trace.derive(slot), kind) if kind == OBJECT else json.loads(kind)


def _tools(trace: Trace, part: int, shapes: tuple[Shape, ...]) -> Any:
    """Make what a template gets as its tools: None, known ones, or a list of unknown ones."""
    if not shapes:
        return None
    known = json.loads(shapes[0].role or "")
    if symbolic(tojson(known)):
        raise Untraceable("a tool with a character that stands for unknowns")
    slots = (Slot(part, number, TOOL) for number in range(1, len(shapes)))
    return known + [_leaf(trace, slot, OBJECT) for slot in slots] if len(shapes) > 1 else known


def _words(signature: Signature) -> list[str]:
    said = [shape for shapes in signature for shape in shapes]
    calls = [words for shape in said for call in shape.calls or () for words in call]
    return [*(shape.role or "" for shape in said), *(word for words in calls for word in words)]


def fault(error: BaseException) -> Refusal:
    """Return the message of what a template raised."""
    said = error.message if isinstance(error, TemplateError) else str(error)
    message = plain(said or "")
    on_purpose = type(error) is TemplateError
    return Refusal(message if on_purpose else f"{type(error).__name__}: {message}", on_purpose)


def traceable(tree: nodes.Template, variables: Mapping[str, Any]) -> bool:
    """Return whether a template renders the same conversation to the same text each time."""
    names = {node.name for node in tree.find_all(nodes.Name)}
    if IMPURE & (names | {node.name for node in tree.find_all(nodes.Filter)}):
        return False
    if any(symbolic(node.data) for node in tree.find_all(nodes.TemplateData)):
        return False
    if any(symbolic(str(node.value)) for node in tree.find_all(nodes.Const)):
        return False
    return not symbolic(json.dumps(dict(variables), ensure_ascii=False, default=str))
