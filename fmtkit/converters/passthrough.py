"""Canonical tables, with text or with messages; all other columns are kept."""

from typing import Annotated, TypeAlias

import polars as pl

from fmtkit.columns import (
    ABSENT,
    Flag,
    Labels,
    Messages,
    Number,
    Text,
    Texts,
    Tools,
    WideMessages,
    records,
)
from fmtkit.columns.conversations import must_end_with_prompt
from fmtkit.columns.kinds import ConversationKind, FlagKind, ListKind, NumberKind, TextKind
from fmtkit.columns.problems import Column, Problem, uneven
from fmtkit.core.tables import (
    Completion,
    Conversation,
    Preference,
    Prompt,
    Ranking,
    Reference,
    Segments,
    Stepwise,
    Tokens,
    Unpaired,
)
from fmtkit.formats.registry import converter

Conversations: TypeAlias = Annotated[Column, ListKind(ConversationKind(wide=True))]
Scores: TypeAlias = Annotated[Column, ListKind(NumberKind())]
Numbers: TypeAlias = Annotated[Column, ListKind(NumberKind())]


Parts: TypeAlias = Annotated[
    Column, records({"text": TextKind(), "label": FlagKind()}, optional=("text",))
]
ENDS = ("none", "closed", "document")


def _different(chosen: Column, rejected: Column) -> Column:
    same = Problem("no_preference", None, chosen.value == rejected.value, "chosen equals rejected")
    return rejected.with_value(rejected.value, same)


def _numbers(numbers: Column, name: str) -> Column:
    """Return a list of whole numbers that the table's column holds; a cast would change or refuse others."""
    end = _end(name)
    wrong = numbers.value.list.eval(_is_no(end, pl.element())).list.any()
    what = "a mask's" if name.endswith("_mask") else "a token id"
    problem = Problem("value_error", name, wrong, f"{name} holds a number that is not {what}")
    return numbers.with_value(numbers.value.list.eval(_whole(end, pl.element())), problem)


def _end(name: str) -> int:
    """Return where the numbers of a column of the table end, which is as far below zero."""
    dtype = Tokens.others[name]
    bits: int = getattr(dtype, "value_type", dtype).bit_width
    return 1 << (bits - 1)


def _is_no(end: int, number: pl.Expr) -> pl.Expr:
    return (number != number.floor()) | (number.abs() >= end)


def _whole(end: int, number: pl.Expr) -> pl.Expr:
    return pl.when(~_is_no(end, number)).then(number).cast(pl.Int64)


@converter(keeps=True, text=True)
def text(text: Text) -> Conversation:
    """https://huggingface.co/docs/trl/dataset_formats#language-modeling."""
    return Conversation(text)


@converter(keeps=True, wide=True)
def messages(messages: WideMessages, tools: Tools = ABSENT) -> Conversation:
    """https://huggingface.co/docs/trl/dataset_formats#language-modeling."""
    return Conversation(messages, tools)


@converter(keeps=True, text=True)
def prompt_text(prompt: Text) -> Prompt:
    """https://huggingface.co/docs/trl/dataset_formats#prompt-only."""
    return Prompt(prompt)


@converter(keeps=True, wide=True)
def prompt_messages(prompt: WideMessages, tools: Tools = ABSENT) -> Prompt:
    """https://huggingface.co/docs/trl/dataset_formats#prompt-only."""
    return Prompt(must_end_with_prompt(prompt, "prompt"), tools)


@converter(keeps=True, text=True)
def completion_text(prompt: Text, completion: Text) -> Completion:
    """https://huggingface.co/docs/trl/dataset_formats#prompt-completion."""
    return Completion(prompt, completion)


@converter(keeps=True, wide=True)
def completion_messages(
    prompt: WideMessages, completion: WideMessages, tools: Tools = ABSENT
) -> Completion:
    """https://huggingface.co/docs/trl/dataset_formats#prompt-completion."""
    return Completion(prompt, completion, tools)


@converter(keeps=True, text=True)
def preference_text(prompt: Text, chosen: Text, rejected: Text) -> Preference:
    """https://huggingface.co/docs/trl/dataset_formats#preference."""
    return Preference(prompt, chosen, _different(chosen, rejected))


@converter(keeps=True, wide=True)
def preference_messages(
    prompt: WideMessages, chosen: WideMessages, rejected: WideMessages, tools: Tools = ABSENT
) -> Preference:
    """https://huggingface.co/docs/trl/dataset_formats#preference."""
    return Preference(prompt, chosen, _different(chosen, rejected), tools=tools)


@converter(keeps=True, text=True)
def unpaired_text(prompt: Text, completion: Text, label: Flag) -> Unpaired:
    """https://huggingface.co/docs/trl/dataset_formats#unpaired-preference."""
    return Unpaired(prompt, completion, label)


@converter(keeps=True, wide=True)
def unpaired_messages(
    prompt: WideMessages, completion: WideMessages, label: Flag, tools: Tools = ABSENT
) -> Unpaired:
    """https://huggingface.co/docs/trl/dataset_formats#unpaired-preference."""
    return Unpaired(prompt, completion, label, tools)


@converter(keeps=True, wide=True)
def ranking(
    prompt: WideMessages,
    replies: Conversations,
    scores: Scores,
    *,
    pairs: str = "none",  # noqa: ARG001
) -> Ranking:
    """A ranking that fmtkit wrote; scores are higher for better replies."""
    ragged = uneven(replies, scores, ("replies", "scores"))
    return Ranking(prompt, replies, scores.with_value(scores.value, ragged))


@converter(keeps=True, text=True)
def segments(segments: Parts, ends: Text) -> Segments:
    """Segments of text that fmtkit wrote, with labels for those that are trained on."""
    unknown = ~ends.value.is_in(ENDS)
    message = f"ends is none of {', '.join(ENDS)}"
    return Segments(
        segments, ends.with_value(ends.value, Problem("value_error", "ends", unknown, message))
    )


@converter(keeps=True)
def stepwise(
    prompt: Text, completions: Texts, labels: Labels, *, soft: bool | None = None
) -> Stepwise:
    """https://huggingface.co/docs/trl/dataset_formats#stepwise-supervision."""
    ragged = uneven(completions, labels, ("completions", "labels"))
    hard = labels.value.list.eval(pl.element() == 1)
    return Stepwise(prompt, completions, labels.with_value(labels.value if soft else hard, ragged))


@converter(keeps=True, wide=True)
def reference(
    prompt: WideMessages, ground_truth: Text, remaining_turns: Messages = ABSENT
) -> Reference:
    """A prompt with the text that a good answer resembles, for EBFT."""
    return Reference(prompt, ground_truth, remaining_turns)


@converter(keeps=True)
def tokens(
    input_ids: Numbers,
    attention_mask: Numbers,
    labels: Numbers,
    prompt_length: Number,
    anchor_mask: Numbers = ABSENT,
) -> Tokens:
    """Token ids with their labels, for strided EBFT."""
    end = _end("prompt_length")
    return Tokens(
        _numbers(input_ids, "input_ids"),
        _numbers(attention_mask, "attention_mask"),
        _numbers(labels, "labels"),
        prompt_length.with_value(
            _whole(end, prompt_length.value),
            Problem(
                "value_error",
                "prompt_length",
                _is_no(end, prompt_length.value),
                "prompt_length is not a number of tokens",
            ),
        ),
        _numbers(anchor_mask, "anchor_mask"),
    )
