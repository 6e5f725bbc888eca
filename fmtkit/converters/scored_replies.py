"""A question and several replies with their scores: a list of objects, or lists of texts and of scores."""

from typing import Annotated, TypeAlias

import polars as pl

from fmtkit.columns import ABSENT, Number, Text, Texts, one_filled, one_given, records
from fmtkit.columns.conversations import messages_of, ranking
from fmtkit.columns.kinds import ListKind, NumberKind, TextKind
from fmtkit.columns.problems import Column, Problem
from fmtkit.core.tables import Ranking
from fmtkit.formats.registry import converter

TEXTS = ("text", "answer", "response", "completion", "output", "content", "body", "reply")
SCORES = ("score", "pm_score", "rating", "reward", "votes", "upvotes", "likes", "pass_rate")
_FIELDS = {**dict.fromkeys(TEXTS, TextKind()), **dict.fromkeys(SCORES, NumberKind())}
Replies: TypeAlias = Annotated[Column, records(_FIELDS, (*TEXTS, *SCORES))]
Scores: TypeAlias = Annotated[Column, ListKind(NumberKind())]
Replied: TypeAlias = Annotated[Column, records({"model": TextKind(), "response": TextKind()})]
Judged: TypeAlias = Annotated[Column, records({"model": TextKind(), "rating": TextKind()})]
_MODEL = pl.element().struct.field("model")

ASKED = ("question", "prompt", "instruction", "query", "post")


@converter(
    any_of=[
        ASKED,
        (
            "answers",
            "responses",
            "completions",
            "replies",
            "comments",
            "candidates",
            "inferences",
        ),
    ]
)
def records_of(
    question: Text = ABSENT,
    prompt: Text = ABSENT,
    instruction: Text = ABSENT,
    query: Text = ABSENT,
    post: Text = ABSENT,
    answers: Replies = ABSENT,
    responses: Replies = ABSENT,
    completions: Replies = ABSENT,
    replies: Replies = ABSENT,
    comments: Replies = ABSENT,
    candidates: Replies = ABSENT,
    inferences: Replies = ABSENT,
    *,
    pairs: str = "best-worst",  # noqa: ARG001
) -> Ranking:
    """https://huggingface.co/datasets/HuggingFaceH4/stack-exchange-preferences; a higher score is better."""
    asked = one_filled(dict(zip(ASKED, (question, prompt, instruction, query, post), strict=True)))
    held = one_given(
        answers=answers,
        responses=responses,
        completions=completions,
        replies=replies,
        comments=comments,
        candidates=candidates,
        inferences=inferences,
    )
    (texts, two_texts), (scores, two_scores) = _of(held, TEXTS), _of(held, SCORES)
    silent = Problem("null_field", "answers[]", _any_null(texts), "a reply has no text")
    unrated = Problem("null_field", "answers[].score", _any_null(scores), "a reply has no score")
    return ranking(
        messages_of(user=asked),
        held.with_value(texts, two_texts, two_scores, silent, unrated),
        scores,
    )


@converter(
    any_of=[
        ASKED,
        ("generations", "responses", "completions", "answers", "outputs"),
        ("ratings", "rewards", "scores"),
    ]
)
def lists(
    question: Text = ABSENT,
    prompt: Text = ABSENT,
    instruction: Text = ABSENT,
    query: Text = ABSENT,
    post: Text = ABSENT,
    generations: Texts = ABSENT,
    responses: Texts = ABSENT,
    completions: Texts = ABSENT,
    answers: Texts = ABSENT,
    outputs: Texts = ABSENT,
    ratings: Scores = ABSENT,
    rewards: Scores = ABSENT,
    scores: Scores = ABSENT,
    *,
    pairs: str = "best-worst",  # noqa: ARG001
) -> Ranking:
    """https://huggingface.co/datasets/argilla/distilabel-intel-orca-dpo-pairs; a higher score is better."""
    asked = one_filled(dict(zip(ASKED, (question, prompt, instruction, query, post), strict=True)))
    texts = one_given(
        generations=generations,
        responses=responses,
        completions=completions,
        answers=answers,
        outputs=outputs,
    )
    rated = one_given(ratings=ratings, rewards=rewards, scores=scores)
    ragged = Problem(
        "length_mismatch",
        None,
        texts.value.list.len() != rated.value.list.len(),
        "the replies and their scores differ in length",
    )
    both = texts.with_value(texts.value, ragged).depending_on(rated)
    return ranking(messages_of(user=asked), both, rated.value)


@converter(any_of=[ASKED])
def annotated(
    responses: Replied,
    annotations: Judged,
    question: Text = ABSENT,
    prompt: Text = ABSENT,
    instruction: Text = ABSENT,
    query: Text = ABSENT,
    post: Text = ABSENT,
    *,
    pairs: str = "best-worst",  # noqa: ARG001
) -> Ranking:
    """https://huggingface.co/datasets/coseal/CodeUltraFeedback; ratings in the order of the replies."""
    asked = one_filled(dict(zip(ASKED, (question, prompt, instruction, query, post), strict=True)))
    scores = annotations.value.list.eval(
        pl.element().struct.field("rating").cast(pl.Float64, strict=False)
    )
    by, of = (column.value.list.eval(_MODEL) for column in (responses, annotations))
    is_ragged = responses.value.list.len() != annotations.value.list.len()
    ragged = Problem(
        "length_mismatch",
        None,
        is_ragged,
        "the replies and their annotations differ in length",
    )
    crossed = Problem(
        "value_error",
        "annotations",
        ~is_ragged & (by != of),
        "the annotations are of other models than the replies at their places",
    )
    unrated = Problem(
        "null_field", "annotations[].rating", _any_null(scores), "a rating is null or no number"
    )
    texts = responses.value.list.eval(pl.element().struct.field("response"))
    both = responses.with_value(texts, ragged, crossed).depending_on(
        annotations.with_value(scores, unrated)
    )
    return ranking(messages_of(user=asked), both, scores)


@converter(any_of=[ASKED])
def columns(
    response_1: Text,
    response_2: Text,
    response_3: Text,
    score_1: Number,
    score_2: Number,
    score_3: Number,
    response_4: Text = ABSENT,
    response_5: Text = ABSENT,
    response_6: Text = ABSENT,
    response_7: Text = ABSENT,
    response_8: Text = ABSENT,
    score_4: Number = ABSENT,
    score_5: Number = ABSENT,
    score_6: Number = ABSENT,
    score_7: Number = ABSENT,
    score_8: Number = ABSENT,
    question: Text = ABSENT,
    prompt: Text = ABSENT,
    instruction: Text = ABSENT,
    query: Text = ABSENT,
    post: Text = ABSENT,
    *,
    pairs: str = "best-worst",  # noqa: ARG001
) -> Ranking:
    """https://huggingface.co/datasets/berkeley-nest/Nectar, as a table: columns of replies and of scores."""
    replies = (
        response_1, response_2, response_3, response_4, response_5, response_6, response_7, response_8,
    )  # fmt: skip
    scores = (score_1, score_2, score_3, score_4, score_5, score_6, score_7, score_8)
    there = [(r, s) for r, s in zip(replies, scores, strict=True) if r is not ABSENT]
    half = [
        Problem(
            "null_field",
            f"score_{place}",
            reply.value.is_not_null() & score.value.is_null(),
            f"score_{place} is null, and its reply is not",
        )
        for place, (reply, score) in enumerate(there, start=1)
    ]
    rated = [pl.when(reply.value.is_not_null()).then(score.value) for reply, score in there]
    every = [column for both in there for column in both]
    asked = one_filled(dict(zip(ASKED, (question, prompt, instruction, query, post), strict=True)))
    texts = Column(pl.concat_list(reply.value for reply, _ in there).list.drop_nulls())
    held = texts.depending_on(*every)
    return ranking(
        messages_of(user=asked),
        held.with_value(held.value, *half),
        pl.concat_list(rated).list.drop_nulls(),
    )


def _of(records: Column, names: tuple[str, ...]) -> tuple[pl.Expr, Problem]:
    """Return the field that each record of a list has of these, and the problem of lists with two of them."""
    fields = {name: pl.element().struct.field(name) for name in names}
    held = [
        records.value.list.eval(field.is_not_null()).list.any().fill_null(value=False)
        for field in fields.values()
    ]
    several = Problem(
        "ambiguous_fields",
        None,
        pl.sum_horizontal(held) > 1,
        f"the replies have several of {', '.join(names)}: one must say it for all of them",
    )
    return records.value.list.eval(pl.coalesce(*fields.values())), several


def _any_null(items: pl.Expr) -> pl.Expr:
    return items.list.eval(pl.element().is_null()).list.any()
