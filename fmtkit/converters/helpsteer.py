"""HelpSteer: a prompt with two replies and how much better one is, or with one reply and its scores."""

from typing import Annotated, TypeAlias

import polars as pl

from fmtkit.columns import ABSENT, Messages, Number, Text, blank, first_given, one_filled, records
from fmtkit.columns.conversations import (
    chosen_over,
    labelled,
    message,
    messages_of,
    must_end_with_prompt,
    of_each,
    ranking,
)
from fmtkit.columns.kinds import NumberKind, TextKind
from fmtkit.columns.problems import Column, Problem
from fmtkit.core.errors import UnknownNameError
from fmtkit.core.tables import Preference, Ranking, Unpaired
from fmtkit.formats.registry import converter

ATTRIBUTES = ("helpfulness", "correctness", "coherence", "complexity", "verbosity")
FIRST, SECOND = ("response_1", "response1"), ("response_2", "response2")
STRENGTHS = ("preference_strength", "overall_preference")

Strength: TypeAlias = Annotated[Column, NumberKind((-3, 3))]
_SCORES = dict.fromkeys(ATTRIBUTES, NumberKind())
Answers: TypeAlias = Annotated[
    Column, records({"prompt": TextKind(), "response": TextKind()} | _SCORES, optional=ATTRIBUTES)
]


@converter(any_of=[FIRST, SECOND, STRENGTHS])
def preference(
    prompt: Text,
    response_1: Text = ABSENT,
    response1: Text = ABSENT,
    response_2: Text = ABSENT,
    response2: Text = ABSENT,
    preference_strength: Strength = ABSENT,
    overall_preference: Strength = ABSENT,
) -> Preference:
    """https://huggingface.co/datasets/nvidia/HelpSteer2, preferences: below 0 the first is better."""
    one = one_filled({"response_1": response_1, "response1": response1})
    other = one_filled({"response_2": response_2, "response2": response2})
    strength = first_given(
        preference_strength=preference_strength, overall_preference=overall_preference
    )
    return _preferred(messages_of(user=prompt), one, other, strength)


@converter(any_of=[FIRST, SECOND, STRENGTHS])
def preference_in_context(
    context: Messages,
    response_1: Text = ABSENT,
    response1: Text = ABSENT,
    response_2: Text = ABSENT,
    response2: Text = ABSENT,
    preference_strength: Strength = ABSENT,
    overall_preference: Strength = ABSENT,
) -> Preference:
    """https://huggingface.co/datasets/nvidia/HelpSteer3: below 0 the first reply is better."""
    one = one_filled({"response_1": response_1, "response1": response1})
    other = one_filled({"response_2": response_2, "response2": response2})
    strength = first_given(
        preference_strength=preference_strength, overall_preference=overall_preference
    )
    return _preferred(must_end_with_prompt(context, "context"), one, other, strength)


@converter(any_of=[ATTRIBUTES])
def unpaired(
    prompt: Text,
    response: Text,
    helpfulness: Number = ABSENT,
    correctness: Number = ABSENT,
    coherence: Number = ABSENT,
    complexity: Number = ABSENT,
    verbosity: Number = ABSENT,
    *,
    attribute: str = "helpfulness",
    threshold: float = 3,
) -> Unpaired:
    """https://huggingface.co/datasets/nvidia/HelpSteer2: desirable from `threshold` (of 0 to 4) on."""
    if attribute not in ATTRIBUTES:
        raise UnknownNameError("attribute", attribute, ATTRIBUTES)
    rated = (helpfulness, correctness, coherence, complexity, verbosity)
    score = dict(zip(ATTRIBUTES, rated, strict=True))[attribute]
    unrated = Problem("null_field", attribute, score.value.is_null(), f"{attribute} is null")
    return labelled(prompt, response, score.with_value(score.value >= threshold, unrated))


@converter(name="helpsteer.pairs", rows_by="prompt")
def answers(
    rows: Answers,
    *,
    attribute: str = "helpfulness",
    pairs: str = "best-worst",  # noqa: ARG001
) -> Ranking:
    """https://huggingface.co/datasets/nvidia/HelpSteer2: answers to one prompt, in adjacent rows.

    `attribute` is the one whose score ranks them; where the scores are equal there is no pair.
    """
    if attribute not in ATTRIBUTES:
        raise UnknownNameError("attribute", attribute, ATTRIBUTES)
    field = pl.element().struct.field
    scores = of_each(rows.value, attribute)
    prompts = of_each(rows.value, "prompt")

    def any_row(wrong: pl.Expr) -> pl.Expr:
        return rows.value.list.eval(wrong).list.any()

    texts = rows.with_value(
        of_each(rows.value, "response"),
        Problem(
            "null_field", attribute, any_row(field(attribute).is_null()), f"{attribute} is null"
        ),
        Problem("empty_field", "response", any_row(blank(field("response"))), "response is blank"),
        Problem("empty_field", "prompt", any_row(blank(field("prompt"))), "prompt is blank"),
    )
    asked = Column(pl.concat_list([message("user", prompts.list.first())]))
    return ranking(asked, texts, scores)


def _preferred(prompt: Column, one: Column, other: Column, strength: Column) -> Preference:
    first = strength.value < 0
    neither = Problem(
        "no_preference", None, strength.value == 0, "neither reply is preferred: the strength is 0"
    )
    better = one.with_value(pl.when(first).then(one.value).otherwise(other.value), neither)
    worse = other.with_value(pl.when(first).then(other.value).otherwise(one.value))
    made = chosen_over(prompt, better.depending_on(strength), worse)
    return Preference(
        made.prompt, made.chosen, made.rejected, strength.with_value(strength.value.abs())
    )
