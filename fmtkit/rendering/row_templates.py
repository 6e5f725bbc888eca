"""Renders single rows with a chat template, with the spans of text that are trained on.

Masks, tries and the survey render a few rows this way, since Jinja alone marks `{% generation %}` blocks;
columns are rendered by fmtkit.rendering.chat. Both open messages by the same function and ask one engine,
which runs templates that fmtkit does not ship in a worker process with limits.
"""

import json
from collections.abc import Mapping
from functools import cached_property
from typing import Any

from jinja2.sandbox import ImmutableSandboxedEnvironment

from fmtkit.core.data_classes import dataclass
from fmtkit.core.errors import TemplateError
from fmtkit.core.message_keys import for_template
from fmtkit.core.worker import Limits, Overrun, Worker
from fmtkit.rendering.chat import ChatTemplate
from fmtkit.rendering.content_parts import NO_IMAGES, Form, Forms, in_form, shows_images
from fmtkit.rendering.jinja_environment import GENERATION_END, GENERATION_START
from fmtkit.rendering.render_plan import Output
from fmtkit.rendering.tracing import Interpreter, Refusal, Request
from fmtkit.tokenizers.tokens import Tokenizer

Message = Mapping[str, Any]
Span = tuple[int, int]


class MarkingEnvironment(ImmutableSandboxedEnvironment):
    """Jinja that puts marks around the text of generation blocks."""

    mark_generation = True


@dataclass(frozen=True)
class RowTemplate:
    """A chat template that renders single rows."""

    template: ChatTemplate

    @property
    def spans_source(self) -> str:
        """Return the source with generation blocks: the template's own, or TRL's training variant of it."""
        own = self.template.source
        return own if _has_generation(own) or not self.template.training else self.template.training

    @property
    def has_generation(self) -> bool:
        """Return whether the template marks the text that the model is trained on."""
        return _has_generation(self.spans_source)

    @cached_property
    def generation_prompt(self) -> str:
        """Return what asks for a reply; an empty text if the template changes a text to ask for one."""
        asked: list[Message] = [{"role": "user", "content": "x"}]
        try:
            bare = self.render(asked)
            whole = self.render(asked, add_generation_prompt=True)
        except TemplateError:
            return ""
        return whole[len(bare) :] if whole.startswith(bare) else ""

    def render(
        self,
        messages: list[Message],
        tools: str | None = None,
        *,
        add_generation_prompt: bool = False,
    ) -> str:
        """Render messages; raise TemplateError if the template refuses them."""
        request = self._request(messages, tools, generation_prompt=add_generation_prompt)
        return _text(self.template.compiled.engine.render([request])[0])

    def render_spans(
        self, messages: list[Message], tools: str | None = None
    ) -> tuple[str, list[Span]]:
        """Render messages, and return the spans (in characters) of the generation blocks too."""
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
        if any(self._lacks_images(message, forms) for message in messages):
            raise TemplateError(NO_IMAGES)
        opened = [in_form(for_template(message), forms) for message in messages]
        return Request.of(opened, tools, generation_prompt)

    def _lacks_images(self, message: Message, forms: Forms) -> bool:
        if not shows_images(message.get("content")):
            return False
        return forms.of(message.get("role")) is Form.TEXT or not self.template.compiled.image

    def _marked(self, request: Request) -> Output:
        if isinstance(self._marking, Interpreter):
            return self._marking.render([request])[0]
        item = json.dumps({"messages": list(request.messages), "tools": request.tools})
        answer = self._marking.answer([item.encode()])[0]
        if isinstance(answer, Overrun):
            return Refusal(answer.message)
        found: dict[str, str] = json.loads(answer)
        return found["text"] if "text" in found else Refusal(found["fault"])

    @cached_property
    def _marking(self) -> Interpreter | Worker:
        variables = {**self.template.special_tokens, **self.template.kwargs}
        now = self.template.now
        if self.template.trusted:
            return Interpreter(self.spans_source, variables, now=now, kind=MarkingEnvironment)
        setup = {"source": self.spans_source, "variables": variables, "now": now.isoformat()}
        return Worker("fmtkit.rendering.sandbox:serve_marked", setup, Limits())


def compile_template(source: str, tokenizer: Tokenizer) -> RowTemplate:
    """Compile a template of unknown origin; raise TemplateError if it is not valid Jinja."""
    template = RowTemplate(ChatTemplate("template", source, tokenizer.special_tokens))
    # Compiled now, so that a template that is not valid Jinja is refused before the first row.
    _ = template.template.compiled
    return template


def _has_generation(source: str) -> bool:
    return "generation" in source and "endgeneration" in source


def _text(output: Output) -> str:
    if isinstance(output, Refusal):
        raise TemplateError(f"the chat template refuses these messages: {output.message}")
    return output


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
