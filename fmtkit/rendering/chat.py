"""Chat templates over columns: conversations in, texts out; prompts and replies cut by structure.

`render` is for whole conversations, `render_reply` for a prompt with one or several replies. Both
take Arrow lists of messages (tables.MESSAGE or WIDE_MESSAGE) and give string columns; what a row
says in a column depends on that row alone.
"""

from collections.abc import Mapping
from dataclasses import field, replace
from datetime import datetime
from functools import cached_property
from hashlib import sha256
from typing import Any, TypeAlias

import pyarrow as pa
from jinja2.exceptions import TemplateSyntaxError

from fmtkit.core import moments
from fmtkit.core.buffers import whole
from fmtkit.core.data_classes import dataclass
from fmtkit.core.errors import TemplateError
from fmtkit.core.pickling import PickledByFields
from fmtkit.rendering.content_parts import Cuts
from fmtkit.rendering.conversation_columns import conversation_column
from fmtkit.rendering.render_plan import Engine, Plan
from fmtkit.rendering.sandbox import Sandbox
from fmtkit.rendering.tiers import Rendered, render_batch
from fmtkit.rendering.traced_rows import Compiled
from fmtkit.rendering.tracing import Interpreter

Column: TypeAlias = pa.Array | pa.ChunkedArray


@dataclass(frozen=True, eq=False)
class ChatTemplate(PickledByFields):
    """A chat template and the variables that it is rendered with.

    `special_tokens` (bos_token, ...) and `kwargs` are the template's variables. `trusted` templates
    run in this process, others in one with limits. `training` is the source of another template
    that writes the same turns, but never changes a prompt. `now` is the time for templates that write the
    date: when the template was loaded, unless a run has set another.
    """

    name: str
    source: str
    special_tokens: Mapping[str, str] = field(default_factory=dict)
    kwargs: Mapping[str, Any] = field(default_factory=dict)
    trusted: bool = False
    training: str | None = None
    now: datetime = field(default_factory=moments.now)

    @property
    def sha256(self) -> str:
        """Return the hash of the source."""
        return sha256(self.source.encode()).hexdigest()

    def with_tokens(self, special_tokens: Mapping[str, str]) -> "ChatTemplate":
        """Return the template with the special tokens of a tokenizer."""
        return replace(self, special_tokens={**self.special_tokens, **special_tokens})

    def with_kwargs(self, kwargs: Mapping[str, Any]) -> "ChatTemplate":
        """Return the template with further variables (enable_thinking, ...)."""
        return replace(self, kwargs={**self.kwargs, **kwargs})

    def at(self, now: datetime) -> "ChatTemplate":
        """Return the template with the time that it gets."""
        return replace(self, now=now)

    @property
    def writes_date(self) -> bool:
        """Return whether the text may depend on the time."""
        return any("strftime_now" in source for source in (self.source, self.training or ""))

    @cached_property
    def compiled(self) -> Compiled:
        """Return the template ready to render; threads share it."""
        return Compiled(self.source, self._engine(self.source))

    @cached_property
    def compiled_training(self) -> Compiled | None:
        """Return the training template ready to render."""
        if self.training is None:
            return None
        return Compiled(self.training, self._engine(self.training))

    def _engine(self, source: str) -> Engine:
        variables = {**self.special_tokens, **self.kwargs}
        try:
            if self.trusted:
                return Interpreter(source, variables, now=self.now)
            return Sandbox(source, variables, now=self.now)
        except TemplateSyntaxError as error:
            where = f"the template {self.name!r}, line {error.lineno}"
            raise TemplateError(f"{where}: {error.message}; correct it and try again") from None
        except RecursionError:
            raise TemplateError(
                f"the template {self.name!r} nests its blocks or expressions too deeply; flatten it"
            ) from None


@dataclass(frozen=True, slots=True)
class Failure:
    """A row that has no text: why, as a code of codes.REASONS and in words."""

    row: int
    code: str
    message: str


@dataclass(frozen=True)
class Rendering:
    """The texts of conversations, null where a row failed or was null.

    `difference` says why the template is no longer traced, where the sample found one.
    """

    text: pa.Array
    failures: list[Failure]
    warnings: dict[str, list[int]]
    traced_rows: int
    plain_rows: int
    difference: str | None = None
    unthought: tuple[tuple[int, bool], ...] = ()
    """The rows of replies whose reasoning is left out, and whether each is the last of its row."""


@dataclass(frozen=True)
class ReplyRendering:
    """The texts of prompts and of replies by name; a row that failed is null in all of them."""

    prompt: pa.Array
    replies: dict[str, pa.Array]
    failures: list[Failure]
    warnings: dict[str, list[int]]
    traced_rows: int
    plain_rows: int
    difference: str | None = None
    unthought: tuple[tuple[int, bool], ...] = ()
    """As in Rendering."""


def render(
    template: ChatTemplate,
    conversations: Column,
    *,
    add_generation_prompt: bool = False,
    tools: Column | None = None,
    cuts: Mapping[int, Cuts] | None = None,
) -> Rendering:
    """Render whole conversations; `tools` is a column of canonical JSON text.

    `cuts` says by row which contents came in parts.
    """
    plan = Plan(generation_prompt=add_generation_prompt)
    column = conversation_column(whole(conversations), template.compiled.forms, cuts)
    done = render_batch(template.compiled, plan, [column], _tools(tools))
    return Rendering(done.columns[0], _failures(done), *_counts(template, done))


def render_reply(
    template: ChatTemplate,
    prompts: Column,
    replies: Mapping[str, Column],
    *,
    tools: Column | None = None,
    cuts: Mapping[int, Cuts] | None = None,
) -> ReplyRendering:
    """Render prompts with the generation prompt, and what each reply adds to them."""
    forms = template.compiled.forms
    columns = [
        conversation_column(whole(conversations), forms, cuts)
        for conversations in (prompts, *replies.values())
    ]
    plan = Plan(replies=len(replies))
    training = template.compiled_training
    done = render_batch(template.compiled, plan, columns, _tools(tools), training)
    prompt, *texts = done.columns
    by_name = dict(zip(replies, texts, strict=True))
    return ReplyRendering(prompt, by_name, _failures(done), *_counts(template, done))


def _tools(array: Column | None) -> pa.Array | None:
    return None if array is None else whole(array)


def _failures(done: Rendered) -> list[Failure]:
    return [Failure(row, p.code, p.message) for row, p in sorted(done.problems.items())]


def _counts(
    template: ChatTemplate, done: Rendered
) -> tuple[dict[str, list[int]], int, int, str | None, tuple[tuple[int, bool], ...]]:
    warnings = {code: sorted(rows) for code, rows in done.warnings.items() if rows}
    difference = template.compiled.difference
    return warnings, done.traced, done.plain, difference, tuple(done.unthought)
