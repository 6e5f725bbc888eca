"""Where the assistant's turns stand in one rendered conversation, marked by its template or not.

Most templates of models mark nothing. There a turn reaches from the generation prompt of what came
before to the end of the turn, as fmtkit.rendering.spans finds it for whole columns.
"""

from fmtkit.columns import thinking
from fmtkit.core.errors import TemplateError
from fmtkit.rendering.row_templates import Message, RowTemplate, Span
from fmtkit.rendering.spans import SPEAKER, span_of

UNMARKED = (
    "the template marks no replies: they are found by writing one turn after the other, each with "
    "its end of turn"
)
"""What is said of a template without generation blocks."""


def reply_spans(
    template: RowTemplate, messages: list[Message], tools: str | None = None
) -> tuple[str, list[Span]]:
    """Write messages out, with the spans (in characters) of the assistant's turns.

    Raises TemplateError where the template refuses the messages, or rewrites a turn so that its
    text is not found.
    """
    if template.has_generation:
        return template.render_spans(messages, tools)
    text = template.render(messages, tools)
    spans: list[Span] = []
    for place, message in enumerate(messages):
        if message["role"] != SPEAKER:
            continue
        start = _begun(template, messages[:place], tools, asks=True)
        end = _begun(template, messages[: place + 1], tools, asks=False)
        found = _span(text, start, end, message, spans[-1][1] if spans else 0)
        if found is None:
            raise TemplateError(
                f"the chat template marks no replies, and the text of messages[{place}] is not found "
                "in what it writes; take a template that marks them, such as chatml"
            )
        spans.append(found)
    return text, spans


def _span(
    text: str, start: str | None, end: str | None, message: Message, behind: int
) -> Span | None:
    """Return a turn's span; where the template left its thinking out, that of the rest."""
    said = (message.get("content") or "").strip()
    answer = thinking.without_blocks(said).strip()
    for words in dict.fromkeys((said, answer)):
        found = span_of(text, start, end, {**message, "content": words}, behind)
        # A template that drops a turn would leave an empty span, and nothing to learn.
        if found is not None and words in text[slice(*found)]:
            return found
    return None


def _begun(
    template: RowTemplate, messages: list[Message], tools: str | None, *, asks: bool
) -> str | None:
    """Write the beginning of a conversation; None where the template writes none of it alone."""
    try:
        return template.render(messages, tools, add_generation_prompt=asks)
    except TemplateError:
        return None
