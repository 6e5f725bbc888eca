"""A chat template over one row: the text, and which stretches of it the model is trained to write.

The survey looks at a few rows closely; whole columns are rendered by fmtkit.rendering.chat. Templates that we
do not ship run in a worker process with limits, here as there.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from jinja2.sandbox import ImmutableSandboxedEnvironment

from fmtkit.core.errors import TemplateError
from fmtkit.core.tables import MARKS
from fmtkit.core.worker import Limits, Overrun, Worker
from fmtkit.rendering.chat import ChatTemplate
from fmtkit.rendering.content_parts import in_form
from fmtkit.rendering.jinja_environment import GENERATION_END, GENERATION_START
from fmtkit.rendering.render_plan import Output
from fmtkit.rendering.tracing import Fault, Interpreter, Request
from fmtkit.tokenizers.tokens import Tokenizer

Message = Mapping[str, Any]
Span = tuple[int, int]


class MarkingEnvironment(ImmutableSandboxedEnvironment):
    """Jinja that puts marks around what generation blocks enclose."""

    mark_generation = True


@dataclass(frozen=True)
class RowTemplate:
    """A chat template that renders single rows."""

    template: ChatTemplate

    @property
    def spans_source(self) -> str:
        """Return the source that says what is trained: TRL takes its training variant for one."""
        own = self.template.source
        return own if _has_generation(own) or not self.template.training else self.template.training

    @property
    def has_generation(self) -> bool:
        """Return whether the template says which text the model is trained to write."""
        return _has_generation(self.spans_source)

    def render(
        self,
        messages: list[Message],
        tools: str | None = None,
        *,
        add_generation_prompt: bool = False,
    ) -> str:
        """Write messages out; raises TemplateError where the template refuses them."""
        request = self._request(messages, tools, generation_prompt=add_generation_prompt)
        return _text(self.template.compiled.engine.render([request])[0])

    def render_spans(
        self, messages: list[Message], tools: str | None = None
    ) -> tuple[str, list[Span]]:
        """Write messages out, with the spans (in characters) of the generation blocks."""
        if not self.has_generation:
            raise TemplateError(
                "the chat template has no {% generation %} block, so replies cannot be "
                "distinguished from prompts; choose one that has, or train on prompt and completion"
            )
        request = self._request(messages, tools, generation_prompt=False)
        return _split_marks(_text(self._marked(request)))

    def _request(
        self, messages: list[Message], tools: str | None, *, generation_prompt: bool
    ) -> Request:
        forms = self.template.compiled.forms
        opened = [in_form(_opened(message), forms) for message in messages]
        return Request(opened, json.loads(tools) if tools else None, generation_prompt)

    def _marked(self, request: Request) -> Output:
        if isinstance(self._marking, Interpreter):
            return self._marking.render([request])[0]
        item = json.dumps({"messages": list(request.messages), "tools": request.tools})
        answer = self._marking.answer([item.encode()])[0]
        if isinstance(answer, Overrun):
            return Fault(answer.message)
        found: dict[str, str] = json.loads(answer)
        return found["text"] if "text" in found else Fault(found["fault"])

    @cached_property
    def _marking(self) -> Interpreter | Worker:
        variables = {**self.template.special_tokens, **self.template.kwargs}
        now = self.template.now
        if self.template.trusted:
            return Interpreter(self.spans_source, variables, now=now, kind=MarkingEnvironment)
        setup = {"source": self.spans_source, "variables": variables, "now": now.isoformat()}
        return Worker("fmtkit.rendering.sandbox:serve_marked", setup, Limits())


def compile_template(source: str, tokenizer: Tokenizer) -> RowTemplate:
    """Compile a template of unknown origin; raises TemplateError where it is not valid Jinja."""
    made = RowTemplate(ChatTemplate("template", source, tokenizer.special_tokens))
    # Compiled now, so that a template that is not valid Jinja is refused before the first row.
    _ = made.template.compiled
    return made


def _has_generation(source: str) -> bool:
    return "generation" in source and "endgeneration" in source


def _text(output: Output) -> str:
    if isinstance(output, Fault):
        raise TemplateError(f"the chat template refuses these messages: {output.message}")
    return output


def _opened(message: Message) -> dict[str, Any]:
    """Give a template the tool calls as values; a canonical message holds them as JSON text."""
    known = {key: value for key, value in message.items() if value is not None and key not in MARKS}
    calls = known.get("tool_calls")
    return {**known, "tool_calls": json.loads(calls)} if isinstance(calls, str) else known


def _split_marks(marked: str) -> tuple[str, list[Span]]:
    text, spans, start = "", [], 0
    for index, piece in enumerate(
        marked.replace(GENERATION_END, GENERATION_START).split(GENERATION_START)
    ):
        if index % 2:
            spans.append((start, start + len(piece)))
        text += piece
        start = len(text)
    return text, spans
