"""A chat template over one row: the text, and which stretches of it the model is trained to write.

The survey looks at a few rows closely; whole columns are rendered by fmtkit.chat.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from jinja2 import Template
from jinja2.exceptions import TemplateError as JinjaError
from jinja2.sandbox import ImmutableSandboxedEnvironment

from fmtkit.errors import TemplateError
from fmtkit.jinja_environment import (
    GENERATION_END,
    GENERATION_START,
    environment,
    with_reasoning_aliases,
)
from fmtkit.tokens import Tokenizer

Message = Mapping[str, Any]
Span = tuple[int, int]


@dataclass(frozen=True)
class RowTemplate:
    """A compiled template and the special tokens that it sees."""

    source: str
    special_tokens: Mapping[str, str]
    plain: Template = field(repr=False)
    marked: Template = field(repr=False)

    @property
    def has_generation(self) -> bool:
        """Tell whether the template says which text the model is trained to write."""
        return "generation" in self.source and "endgeneration" in self.source

    def render(
        self,
        messages: list[Message],
        tools: str | None = None,
        *,
        add_generation_prompt: bool = False,
    ) -> str:
        """Write messages out; raises TemplateError where the template refuses them."""
        return self._run(self.plain, messages, tools, add_generation_prompt)

    def render_spans(
        self, messages: list[Message], tools: str | None = None
    ) -> tuple[str, list[Span]]:
        """Write messages out, with the spans (in characters) of the generation blocks."""
        if not self.has_generation:
            raise TemplateError(
                "the chat template has no {% generation %} block, so that replies cannot be told "
                "from prompts; take one that has, or train on prompt and completion"
            )
        marked = self._run(self.marked, messages, tools, add_generation_prompt=False)
        return _split_marks(marked)

    def _run(
        self,
        template: Template,
        messages: list[Message],
        tools: str | None,
        add_generation_prompt: bool,
    ) -> str:
        try:
            return template.render(
                messages=with_reasoning_aliases([_opened(message) for message in messages]),
                tools=json.loads(tools) if tools else None,
                documents=None,
                add_generation_prompt=add_generation_prompt,
                **self.special_tokens,
            )
        except (JinjaError, TypeError, ValueError, KeyError) as error:
            raise TemplateError(f"the chat template refuses these messages: {error}") from error


def compile_template(source: str, tokenizer: Tokenizer) -> RowTemplate:
    """Compile a template's text for a tokenizer; raises TemplateError where it is no Jinja."""
    plain = environment(ImmutableSandboxedEnvironment)
    marked = environment(ImmutableSandboxedEnvironment, mark_generation=True)
    try:
        compiled = plain.from_string(source), marked.from_string(source)
    except JinjaError as error:
        raise TemplateError(f"the chat template cannot be compiled: {error}") from error
    return RowTemplate(source, tokenizer.special_tokens, *compiled)


def _opened(message: Message) -> dict[str, Any]:
    """Give a template the tool calls as values; a canonical message holds them as JSON text."""
    known = {key: value for key, value in message.items() if value is not None and key != "train"}
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
