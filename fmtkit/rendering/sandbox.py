"""Foreign templates in a worker process: a template is a program, and one from a stranger is not trusted.

The worker runs under worker.Limits, and its output is limited in proportion to its input. After five
rows that exceed a limit the template is refused, since each such row takes seconds. The worker returns a
trace as JSON; it is used only if no row's output by it could exceed what rendering allows.
"""

import json
from collections import Counter
from collections.abc import Hashable, Iterator, Mapping, Sequence
from datetime import datetime
from heapq import heapify, heappop, heappush
from typing import Any

from jinja2.exceptions import TemplateSyntaxError

from fmtkit.core import moments
from fmtkit.core.errors import TemplateError
from fmtkit.core.worker import Limits, Overrun, Serve, Worker
from fmtkit.rendering.jinja_environment import BoundedEnvironment, environment
from fmtkit.rendering.tracing import (
    Interpreter,
    Leaf,
    Refusal,
    Request,
    Shape,
    Signature,
    View,
    traceable,
)
from fmtkit.rendering.unknowns import FIRST, Derived, Question, Slot, Unknown, symbolic

GROWING = frozenset({"replace", "expandtabs", "rewritten", "printed"})
"""Operations that can turn a short text into a long one: JSON grows by indentation and escapes."""


def encode_leaf(leaf: Leaf) -> list[Any]:
    """Write a leaf as JSON values."""
    return [
        [_encode_unknown(unknown) for unknown in leaf.unknowns],
        [[q.predicate, q.text, q.arguments, answer] for q, answer in leaf.path],
        [[o.message, o.raised] if isinstance(o, Refusal) else o for o in leaf.outputs],
    ]


def _encode_unknown(unknown: Unknown) -> list[Any]:
    if isinstance(unknown, Slot):
        return [unknown.conversation, unknown.message, unknown.key]
    return [unknown.operation, unknown.text, unknown.arguments, None]


def decode_leaf(encoded: list[Any]) -> Leaf:
    """Read what encode_leaf wrote."""
    unknowns, path, outputs = encoded
    return Leaf(
        tuple(_decode_unknown(unknown) for unknown in unknowns),
        tuple((Question(q, text, _tuples(given)), answer) for q, text, given, answer in path),
        tuple(Refusal(*output) if isinstance(output, list) else output for output in outputs),
    )


def _decode_unknown(encoded: list[Any]) -> Unknown:
    if len(encoded) == 3:
        return Slot(*encoded)
    operation, text, given, _ = encoded
    return Derived(operation, text, _tuples(given))


def _tuples(values: list[Any]) -> tuple[Any, ...]:
    """Make tuples of lists, at any depth."""
    return tuple(_tuples(value) if isinstance(value, list) else value for value in values)


def harmless(leaf: Leaf, growth: int, spare: int) -> bool:
    """Return whether the outputs and questions of a leaf stay within the output limit, for any row."""
    if any(isinstance(u, Derived) and u.operation in GROWING for u in leaf.unknowns):
        return False
    made = [output.message if isinstance(output, Refusal) else output for output in leaf.outputs]
    asked = ["".join([q.text, *_texts(q.arguments)]) for q, _ in leaf.path]
    return all(_is_bounded(text, leaf.unknowns, growth, spare) for text in (*made, *asked))


PARTS = frozenset({"part", "key", "value", "member", "element", "sorted key", "sorted value"})
"""Operations whose last argument selects a part of the text: different arguments, disjoint parts."""
ESCAPED = 6
"""The most characters of JSON that one character of a text can become."""


def _is_bounded(text: str, unknowns: Sequence[Unknown], growth: int, spare: int) -> bool:
    """Return whether a string has each slot at most `growth` times, and at most `spare` other characters.

    Operations are followed down to the slots.
    """
    held = Counter(text)
    times = Counter({ord(c) - FIRST: n for c, n in held.items() if symbolic(c)})
    constants = len(text) - times.total()
    parts: Counter[Hashable] = Counter()
    waiting = [-number for number in times]
    heapify(waiting)
    # An unknown is made only of unknowns with smaller numbers, so going from the largest down ends.
    while waiting:
        number = -heappop(waiting)
        unknown, often = unknowns[number], times[number]
        if isinstance(unknown, Slot):
            if often > growth:
                return False
            continue
        if unknown.operation in PARTS:
            group = (unknown.operation, unknown.text, unknown.arguments[:-1])
            often, parts[group] = max(often - parts[group], 0), max(often, parts[group])
        often *= ESCAPED if unknown.operation == "json" else 1
        inner = "".join([unknown.text, *_texts(unknown.arguments)])
        for character, count in Counter(inner).items():
            if not symbolic(character):
                constants += often * count
                continue
            one = ord(character) - FIRST
            if one >= number:
                return False
            if one not in times:
                heappush(waiting, -one)
            times[one] += often * count
        if constants > spare or times.total() > MAX_TIMES:
            return False
    return constants <= spare


MAX_TIMES = 1 << 20
"""A text with more occurrences of unknowns than this, through all operations, counts as unbounded."""


def _texts(arguments: Sequence[Any]) -> Iterator[str]:
    """Yield the texts among arguments, at any depth."""
    for argument in arguments:
        if isinstance(argument, str):
            yield argument
        elif isinstance(argument, tuple):
            yield from _texts(argument)


MAX_OVERRUNS = 5
"""Rows that may exceed a limit before the template is refused."""
SPARE_OUTPUT = 1 << 18
"""Characters that a foreign template may write for any row, even an empty one."""

GROWTH = 8
"""How many times the length of its input a foreign template may write in addition."""


class Sandbox:
    """A template in a process of its own, with the interface and the results of tracing.Interpreter."""

    def __init__(
        self,
        source: str,
        variables: Mapping[str, Any],
        *,
        now: datetime | None = None,
        limits: Limits | None = None,
    ) -> None:
        """Parse the template, without compiling or running it in this process; raises TemplateSyntaxError."""
        # Compiling evaluates constants, so 9**9**9 would hang this process. Parsing does not.
        tree = environment(BoundedEnvironment).parse(source)
        self.traceable = traceable(tree, variables)
        # Part of the setup, so that a restarted worker uses the same time.
        moment = (moments.now() if now is None else now).isoformat()
        setup = {"source": source, "variables": dict(variables), "now": moment}
        self._worker = Worker("fmtkit.rendering.sandbox:serve_template", setup, limits or Limits())
        self._overruns = 0

    def render(self, requests: Sequence[Request]) -> list[str | Refusal]:
        """Render conversations one by one; raises TemplateError for a harmful template."""
        items = [
            {"messages": r.messages, "tools": r.tools, "generation_prompt": r.generation_prompt}
            for r in requests
        ]
        return [_output(answer) for answer in self._answers(items)]

    def trace(
        self, signature: Signature, views: Sequence[View], row: dict[Slot, str]
    ) -> Leaf | None:
        """Trace a row; return None if it cannot be traced, or if the output of its leaf is not bounded."""
        item = {
            "signature": [
                [[s.role, s.keys, s.in_part, s.calls] for s in shapes] for shapes in signature
            ],
            "views": [[view.conversations, view.generation_prompt, view.tools] for view in views],
            "row": [
                [slot.conversation, slot.message, slot.key, text] for slot, text in row.items()
            ],
        }
        answer = self._answers([item])[0]
        if isinstance(answer, Overrun) or answer is None:
            return None
        leaf = decode_leaf(answer)
        return leaf if harmless(leaf, GROWTH, SPARE_OUTPUT) else None

    def _answers(self, items: Sequence[dict[str, Any]]) -> list[Any]:
        encoded = [json.dumps(item, ensure_ascii=False).encode() for item in items]
        answers: list[Any] = []
        for begin in range(0, len(encoded), MAX_OVERRUNS):
            found = self._worker.answer(encoded[begin : begin + MAX_OVERRUNS])
            answers.extend(map(self._decoded, found))
        return answers

    def _decoded(self, answer: bytes | Overrun) -> Any:
        if isinstance(answer, Overrun):
            self._overruns += 1
            if self._overruns >= MAX_OVERRUNS:
                raise TemplateError(
                    f"the template exceeded its limits on {self._overruns} rows, the last time: "
                    f"{answer.message}; review the template before you use it"
                )
            return answer
        found = json.loads(answer)
        if isinstance(found, dict) and "broken" in found:
            raise TemplateError(f"the template does not compile: {found['broken']}")
        return found


def _output(answer: Any) -> str | Refusal:
    if isinstance(answer, Overrun):
        return Refusal(answer.message)
    return answer if isinstance(answer, str) else Refusal(*answer)


def serve_template(setup: Mapping[str, Any]) -> Serve:
    """Return the function that answers requests in the worker; the first one compiles the template."""
    compile_once = Compiling(setup, BoundedEnvironment)

    def answer(item: bytes) -> bytes:
        request = json.loads(item)
        template = compile_once()
        if isinstance(template, str):
            return json.dumps({"broken": template}).encode()
        template.max_output = SPARE_OUTPUT + GROWTH * len(item)
        made = _traced(template, request) if "row" in request else _rendered(template, request)
        return json.dumps(made, ensure_ascii=False).encode()

    return answer


class BoundedMarkingEnvironment(BoundedEnvironment):
    """An environment that also marks the beginning and the end of generation blocks in the output."""

    mark_generation = True


def serve_marked(setup: Mapping[str, Any]) -> Serve:
    """Return the function that answers RowTemplate in the worker: the text with marks, or a fault.

    It is not in the module of RowTemplate, since the imports of that cost a worker 0.4 s of CPU at start.
    """
    compile_once = Compiling(setup, BoundedMarkingEnvironment)

    def answer(item: bytes) -> bytes:
        template = compile_once()
        if isinstance(template, str):
            return json.dumps({"fault": f"it does not compile: {template}"}).encode()
        made = template.render([Request(**json.loads(item), generation_prompt=False)])[0]
        found = {"fault": made.message} if isinstance(made, Refusal) else {"text": made}
        return json.dumps(found).encode()

    return answer


class Compiling:
    """Compiles a template at the first item, when the limits of the worker are in force."""

    def __init__(self, setup: Mapping[str, Any], kind: type[BoundedEnvironment]) -> None:
        """Keep the source, its variables and the time for the template."""
        self._setup, self._kind = setup, kind
        self._made: Interpreter | str | None = None

    def __call__(self) -> Interpreter | str:
        """Return the template, or why it does not compile."""
        if self._made is None:
            now = datetime.fromisoformat(self._setup["now"])
            source, variables = self._setup["source"], self._setup["variables"]
            try:
                self._made = Interpreter(source, variables, now=now, kind=self._kind)
            # Python's compiler raises SyntaxError for deeply nested blocks, MemoryError where its
            # parser's stack overflows, and ValueError for a zero byte in the source.
            except SyntaxError as error:
                self._made = error.msg
            except (TemplateSyntaxError, ValueError, MemoryError, RecursionError) as error:
                self._made = str(error) or type(error).__name__
        return self._made


def _rendered(template: Interpreter, item: dict[str, Any]) -> str | list[Any]:
    output = template.render([Request(**item)])[0]
    return [output.message, output.raised] if isinstance(output, Refusal) else output


def _traced(template: Interpreter, item: dict[str, Any]) -> list[Any] | None:
    signature = tuple(
        tuple(
            Shape(role, tuple(keys), in_part, None if calls is None else _tuples(calls))
            for role, keys, in_part, calls in shapes
        )
        for shapes in item["signature"]
    )
    views = [
        View(tuple(conversations), prompt, tools) for conversations, prompt, tools in item["views"]
    ]
    row = {
        Slot(conversation, message, key): text for conversation, message, key, text in item["row"]
    }
    leaf = template.trace(signature, views, row)
    return None if leaf is None else encode_leaf(leaf)
