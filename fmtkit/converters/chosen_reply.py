"""A question, several replies, and which of them was chosen: by its place, or by lists of the two kinds."""

from typing import Annotated, TypeAlias

import polars as pl

from fmtkit.columns import ABSENT, Number, Text, Texts, one_filled, one_given, records
from fmtkit.columns.conversations import messages_of, ranking
from fmtkit.columns.kinds import TextKind
from fmtkit.columns.problems import Column, Problem
from fmtkit.core.tables import Ranking
from fmtkit.formats.registry import converter

TEXTS = ("text", "summary", "answer", "response", "completion", "output", "content")
Replies: TypeAlias = Annotated[Column, records(dict.fromkeys(TEXTS, TextKind()), TEXTS)]
ASKED = ("question", "prompt", "instruction", "post")


@converter(any_of=[ASKED, ("summaries", "responses"), ("choice", "best")])
def of_records(
    question: Text = ABSENT,
    prompt: Text = ABSENT,
    instruction: Text = ABSENT,
    post: Text = ABSENT,
    summaries: Replies = ABSENT,
    responses: Replies = ABSENT,
    choice: Number = ABSENT,
    best: Number = ABSENT,
    *,
    first: int = 0,
    pairs: str = "best-worst",  # noqa: ARG001
) -> Ranking:
    """https://github.com/openai/summarize-from-feedback; the place of the best one counts from `first`."""
    held = one_given(summaries=summaries, responses=responses)
    fields = [pl.element().struct.field(name) for name in TEXTS]
    texts = held.with_value(held.value.list.eval(pl.coalesce(fields)))
    asked = _asked(question, prompt, instruction, post)
    return _chosen(asked, texts, choice, best, first)


@converter(any_of=[ASKED, ("candidates", "responses", "completions"), ("choice", "best")])
def of_texts(
    question: Text = ABSENT,
    prompt: Text = ABSENT,
    instruction: Text = ABSENT,
    post: Text = ABSENT,
    candidates: Texts = ABSENT,
    responses: Texts = ABSENT,
    completions: Texts = ABSENT,
    choice: Number = ABSENT,
    best: Number = ABSENT,
    *,
    first: int = 0,
    pairs: str = "best-worst",  # noqa: ARG001
) -> Ranking:
    """https://docs.argilla.io/latest/reference/argilla/settings/questions; a place counts from `first`."""
    texts = one_given(candidates=candidates, responses=responses, completions=completions)
    asked = _asked(question, prompt, instruction, post)
    return _chosen(asked, texts, choice, best, first)


@converter(any_of=[ASKED])
def lists(
    chosen: Texts,
    rejected: Texts,
    question: Text = ABSENT,
    prompt: Text = ABSENT,
    instruction: Text = ABSENT,
    post: Text = ABSENT,
    *,
    pairs: str = "best-worst",  # noqa: ARG001
) -> Ranking:
    """https://huggingface.co/datasets/allenai/reward-bench-2; each of the chosen ones is the better one."""
    none = [
        Problem("empty_field", name, column.value.list.len() == 0, f"{name} has no replies")
        for name, column in (("chosen", chosen), ("rejected", rejected))
    ]
    texts = chosen.with_value(pl.concat_list(chosen.value, rejected.value), *none)
    zero = pl.element().is_null().cast(pl.Int64) * 0
    scores = pl.concat_list(chosen.value.list.eval(zero + 1), rejected.value.list.eval(zero))
    asked = _asked(question, prompt, instruction, post)
    return ranking(messages_of(user=asked), texts.depending_on(rejected), scores)


def _asked(question: Column, prompt: Column, instruction: Column, post: Column) -> Column:
    return one_filled(dict(zip(ASKED, (question, prompt, instruction, post), strict=True)))


def _chosen(asked: Column, texts: Column, choice: Column, best: Column, first: int) -> Ranking:
    """Rank the reply at a place before all others."""
    place = one_given(choice=choice, best=best)
    silent = Problem(
        "null_field",
        "replies",
        texts.value.list.eval(pl.element().is_null()).list.any(),
        "a reply has no text",
    )
    index, count = place.value - first, texts.value.list.len()
    is_place = (index >= 0) & (index < count) & (index == index.floor())
    nowhere = [
        Problem(
            "value_error",
            name,
            ~is_place.fill_null(value=True) & given.value.is_not_null(),
            f"{name} is the place of none of the replies, of which the first is {first}",
        )
        for name, given in (("choice", choice), ("best", best))
    ]
    away = pl.int_ranges(count) - index.cast(pl.Int64, strict=False)
    scores = away.list.eval((pl.element() == 0).cast(pl.Int64))
    replies = texts.with_value(texts.value, silent, *nowhere).depending_on(place)
    return ranking(messages_of(user=asked), replies, scores)
