"""A prompt with several replies and what a judge says of them, under any names (`--map`).

The prompt is text or messages. The replies are a list, or a field of a list of objects
(`--map 'replies=candidates[].text'`), with scores, flags or the place of the best; or they are two columns
with a winner, a flag or a score for each.
"""

from typing import Annotated, TypeAlias

import polars as pl

from fmtkit.columns import ABSENT, Number, Open, Text, Texts, Turns, filled
from fmtkit.columns.conversations import chosen_over, must_end_with_prompt, ranking, with_system
from fmtkit.columns.kinds import FlagKind, LabelKind, ListKind, NumberKind
from fmtkit.columns.problems import Column, Problem, uneven
from fmtkit.columns.winners import side_of, word_of
from fmtkit.core.tables import Preference, Ranking
from fmtkit.formats.registry import converter

Scores: TypeAlias = Annotated[Column, ListKind(NumberKind())]
Tick: TypeAlias = Annotated[Column, LabelKind()]
Flags: TypeAlias = Annotated[Column, ListKind(FlagKind())]


@converter()
def scored(
    prompt: Turns,
    replies: Texts,
    scores: Scores,
    system: Text = ABSENT,
    *,
    lower: bool = False,
    pairs: str = "best-worst",  # noqa: ARG001
) -> Ranking:
    """A score for each of a list of replies; with `lower` the lower one is better, as of ranks.

    https://huggingface.co/datasets/berkeley-nest/Nectar has ranks.
    """
    sign = -1 if lower else 1
    rated = scores.value.list.eval(pl.element() * sign)
    both = replies.with_value(replies.value, uneven(replies, scores, ("replies", "scores")))
    return ranking(_asked(prompt, system), both.depending_on(scores), rated)


@converter()
def flagged(
    prompt: Turns,
    replies: Texts,
    right: Flags,
    system: Text = ABSENT,
    *,
    pairs: str = "best-worst",  # noqa: ARG001
) -> Ranking:
    """A flag for each of a list of replies: whether it is right, or was chosen.

    https://huggingface.co/datasets/open-r1/OpenR1-Math-220k has flags of generations.
    """
    rated = right.value.list.eval(pl.element().cast(pl.Float64))
    both = replies.with_value(replies.value, uneven(replies, right, ("replies", "right")))
    return ranking(_asked(prompt, system), both.depending_on(right), rated)


@converter()
def placed(
    prompt: Turns,
    replies: Texts,
    best: Number,
    system: Text = ABSENT,
    *,
    first: int = 0,
    pairs: str = "best-worst",  # noqa: ARG001
) -> Ranking:
    """The place of the best of a list of replies, which counts from `first`.

    https://huggingface.co/datasets/openai/summarize_from_feedback has such a choice.
    """
    index, count = best.value - first, replies.value.list.len()
    is_place = (index >= 0) & (index < count) & (index == index.floor())
    nowhere = Problem(
        "value_error",
        "best",
        ~is_place,
        f"best is the place of none of the replies, of which the first is {first}",
    )
    away = pl.int_ranges(count) - index.cast(pl.Int64, strict=False)
    scores = away.list.eval((pl.element() == 0).cast(pl.Int64))
    both = replies.with_value(replies.value, nowhere).depending_on(best)
    return ranking(_asked(prompt, system), both, scores)


@converter()
def sided(
    prompt: Turns,
    response_a: Text,
    response_b: Text,
    winner: Open,
    model_a: Text = ABSENT,
    model_b: Text = ABSENT,
    system: Text = ABSENT,
    *,
    a: str = "",
    b: str = "",
    tie: str = "",
) -> Preference:
    """Two replies and which of them won: a letter, the model's name, or what `a`, `b` and `tie` say.

    https://huggingface.co/datasets/lmarena-ai/arena-human-preference-140k has winners.
    """
    word = word_of(winner)
    side = side_of(word, {"a": a, "b": b, "tie": tie}, (model_a, model_b))
    problems = (
        Problem(
            "value_error", "winner", filled(word) & side.is_null(), "winner names neither reply"
        ),
        Problem("null_field", "winner", ~filled(word), "no judge says who won"),
        Problem("no_preference", None, side == 0, "neither reply won"),
    )
    return _of_sides(
        prompt, system, (response_a, response_b), side, problems, winner, model_a, model_b
    )


@converter()
def ticked(
    prompt: Turns,
    response_a: Text,
    response_b: Text,
    a_won: Tick,
    b_won: Tick,
    tied: Tick = ABSENT,
    system: Text = ABSENT,
) -> Preference:
    """Two replies and a flag for each of who won.

    https://huggingface.co/datasets/lmsys/lmsys-arena-human-preference-55k
    """
    side = a_won.value.fill_null(0) - b_won.value.fill_null(0)
    is_tied = side == 0 if tied is ABSENT else (side == 0) | (tied.value == 1)
    problems = (Problem("no_preference", None, is_tied, "neither reply won, or both did"),)
    return _of_sides(prompt, system, (response_a, response_b), side, problems, a_won, b_won, tied)


@converter()
def rated(
    prompt: Turns,
    response_a: Text,
    response_b: Text,
    score_a: Number,
    score_b: Number,
    system: Text = ABSENT,
    *,
    lower: bool = False,
    pairs: str = "best-worst",  # noqa: ARG001
) -> Ranking:
    """Two replies and the score of each; with `lower` the lower one is better, as of ranks.

    https://huggingface.co/datasets/openai/webgpt_comparisons has scores of both sides.
    """
    both = response_a.with_value(pl.concat_list(response_a.value, response_b.value))
    sign = -1 if lower else 1
    scores = pl.concat_list(score_a.value * sign, score_b.value * sign)
    return ranking(_asked(prompt, system), both.depending_on(response_b, score_a, score_b), scores)


def _asked(prompt: Column, system: Column) -> Column:
    return must_end_with_prompt(with_system(system, prompt), "prompt")


def _of_sides(
    prompt: Column,
    system: Column,
    replies: tuple[Column, Column],
    side: pl.Expr,
    problems: tuple[Problem, ...],
    *judges: Column,
) -> Preference:
    """Make a preference of the reply on the side that won over the other one."""
    one, other = replies
    first = side > 0
    better = one.with_value(pl.when(first).then(one.value).otherwise(other.value), *problems)
    worse = other.with_value(pl.when(first).then(other.value).otherwise(one.value))
    return chosen_over(_asked(prompt, system), better.depending_on(*judges), worse)
