"""What is rendered for a row, and how its texts are made from that: traced or row by row alike."""

from collections.abc import Sequence
from typing import Protocol

from fmtkit.core.data_classes import dataclass
from fmtkit.rendering.reply_cut import Cut, Problem, cut, cut_at_header
from fmtkit.rendering.tracing import Leaf, Refusal, Request, Signature, View
from fmtkit.rendering.unknowns import FIRST, TOOL, Slot, Unknown, symbolic

Output = str | Refusal


class Engine(Protocol):
    """Something that runs a template: tracing.Interpreter in this process, sandbox.Sandbox in a worker."""

    @property
    def traceable(self) -> bool:
        """Return whether the template can be traced at all."""
        ...

    def render(self, requests: Sequence[Request]) -> list[Output]:
        """Render conversations one by one."""
        ...

    def trace(
        self, signature: Signature, views: Sequence[View], row: dict[Slot, str]
    ) -> Leaf | None:
        """Trace a row (see tracing.Interpreter.trace)."""
        ...


@dataclass(frozen=True, slots=True)
class Outcome:
    """The texts of a row, one for each column; `shortened`: see reply_cut.Cut."""

    texts: tuple[str, ...]
    shortened: bool = False


@dataclass(frozen=True)
class Plan:
    """Conversation 0 rendered by itself, or as the prompt of each of `replies` further conversations."""

    replies: int = 0
    generation_prompt: bool = False

    @property
    def columns(self) -> int:
        """Return the number of columns of text."""
        return 1 + self.replies

    @property
    def views(self) -> tuple[View, ...]:
        """Return what is rendered for each row; with replies, the second view is only the prompt.

        The tools are numbered after all conversations.
        """
        tools = 1 + self.replies
        if not self.replies:
            return (View((0,), self.generation_prompt, tools),)
        replies = (View((0, 1 + number), tools=tools) for number in range(self.replies))
        return (View((0,), generation_prompt=True, tools=tools), View((0,), tools=tools), *replies)

    def written(self, outputs: Sequence[Output], *, shortened: bool) -> Sequence[Output]:
        """Return the views that a row's texts come from: of both views of a prompt, one is only compared."""
        if not self.replies:
            return outputs
        return outputs[1:] if shortened else [outputs[0], *outputs[2:]]

    def finish(self, outputs: Sequence[Output]) -> Outcome | Problem | None:
        """Make a row's texts from its views; None if a conversation does not begin with its prompt."""
        first = outputs[0]
        if self.replies:
            return _outcome(cut(first, outputs[2:]))
        if isinstance(first, Refusal):
            return Problem("template_error", first.message)
        return Outcome((first,))

    def finish_at_header(
        self, outputs: Sequence[Output], unknowns: Sequence[Unknown]
    ) -> Outcome | Problem:
        """Make texts from symbolic views whose conversations do not begin with their prompt."""
        prompt, bare, *rendered = outputs
        assert isinstance(prompt, str)
        texts = [text for text in rendered if isinstance(text, str)]
        made = _outcome(cut_at_header(prompt, bare, texts))
        return made or Problem("template_not_prefix_preserving", _rewritten(outputs, unknowns))


def _outcome(made: Cut | Problem | None) -> Outcome | Problem | None:
    if isinstance(made, Cut):
        return Outcome((made.prompt, *made.replies), made.shortened)
    return made


def _rewritten(outputs: Sequence[Output], unknowns: Sequence[Unknown]) -> str:
    """Name the turn that the template writes differently once a reply follows."""
    prompt, _, *wholes = outputs
    assert isinstance(prompt, str)
    for whole in wholes:
        if isinstance(whole, str) and not whole.startswith(prompt):
            pairs = enumerate(zip(prompt, whole + "\0", strict=False))
            at = next(i for i, (one, two) in pairs if one != two)
            turn = _turn(prompt[: at + 1], unknowns)
            return f"the template writes {turn} differently once a reply follows"
    return "the template writes the prompt differently once a reply follows"


def _turn(text: str, unknowns: Sequence[Unknown]) -> str:
    numbers = [n for c in text if symbolic(c) for n in _messages(c, unknowns)]
    return f"turn {max(numbers) + 1}" if numbers else "the beginning"


def _messages(symbol: str, unknowns: Sequence[Unknown]) -> list[int]:
    unknown = unknowns[ord(symbol) - FIRST]
    if isinstance(unknown, Slot):
        return [unknown.message] if unknown.key != TOOL else []
    return [n for c in unknown.text if symbolic(c) for n in _messages(c, unknowns)]
