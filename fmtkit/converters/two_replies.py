"""Two replies to one question, and which of them won, or the score of each."""

from functools import reduce
from operator import add, and_
from typing import TypeAlias

import polars as pl

from fmtkit.columns import ABSENT, Number, Open, Text, filled, one_filled
from fmtkit.columns.conversations import chosen_over, messages_of, ranking, with_input
from fmtkit.columns.problems import Column, Problem
from fmtkit.columns.winners import side_of, word_of
from fmtkit.core.tables import Preference, Ranking
from fmtkit.formats.registry import converter

Verdict: TypeAlias = Open
ASKED = ("question", "query", "prompt", "instruction", "problem")
WINNERS = ("winner", "winner_2", "winner_3", "winner_4", "winner_5")


@converter(any_of=[(*ASKED, "input")])
def by_winner(
    response_a: Text,
    response_b: Text,
    winner: Verdict,
    winner_2: Verdict = ABSENT,
    winner_3: Verdict = ABSENT,
    winner_4: Verdict = ABSENT,
    winner_5: Verdict = ABSENT,
    model_a: Text = ABSENT,
    model_b: Text = ABSENT,
    question: Text = ABSENT,
    query: Text = ABSENT,
    prompt: Text = ABSENT,
    instruction: Text = ABSENT,
    problem: Text = ABSENT,
    input: Text = ABSENT,
    system: Text = ABSENT,
    *,
    a: str = "",
    b: str = "",
    tie: str = "",
) -> Preference:
    """https://huggingface.co/datasets/lmsys/mt_bench_human_judgments, PandaLM, auto-j, AlpacaEval.

    The winner is a letter, the model's name, or what `a`, `b` and `tie` say; of several the majority decides.
    """
    every = zip(WINNERS, (winner, winner_2, winner_3, winner_4, winner_5), strict=True)
    votes = {name: vote for name, vote in every if vote is not ABSENT}
    told = {"a": a, "b": b, "tie": tie}
    sides = {name: side_of(word_of(vote), told, (model_a, model_b)) for name, vote in votes.items()}
    unknown = [
        Problem(
            "value_error",
            name,
            filled(word_of(votes[name])) & side.is_null(),
            f"{name} names neither reply",
        )
        for name, side in sides.items()
    ]
    balance = reduce(add, (side.fill_null(0) for side in sides.values()))
    empty = reduce(and_, (~filled(word_of(vote)) for vote in votes.values()))
    unjudged = Problem("null_field", "winner", empty, "no judge says who won")
    tied = Problem("no_preference", None, balance == 0, "neither reply won")
    one, two = response_a.value, response_b.value
    better = response_a.with_value(
        pl.when(balance > 0).then(one).otherwise(two), *unknown, unjudged, tied
    )
    worse = response_b.with_value(pl.when(balance > 0).then(two).otherwise(one))
    asked = _asked((question, query, prompt, instruction, problem), input)
    return chosen_over(
        messages_of(system=system, user=asked),
        better.depending_on(*votes.values(), model_a, model_b),
        worse,
    )


@converter(any_of=[(*ASKED, "input")])
def by_score(
    response_a: Text,
    response_b: Text,
    score_a: Number,
    score_b: Number,
    question: Text = ABSENT,
    query: Text = ABSENT,
    prompt: Text = ABSENT,
    instruction: Text = ABSENT,
    problem: Text = ABSENT,
    input: Text = ABSENT,
    system: Text = ABSENT,
    *,
    pairs: str = "best-worst",  # noqa: ARG001
) -> Ranking:
    """https://huggingface.co/datasets/openai/webgpt_comparisons; a higher score is better."""
    asked = _asked((question, query, prompt, instruction, problem), input)
    both = response_a.with_value(pl.concat_list(response_a.value, response_b.value))
    scores = pl.concat_list(score_a.value, score_b.value)
    whole = both.depending_on(response_b, score_a, score_b)
    return ranking(messages_of(system=system, user=asked), whole, scores)


def _asked(questions: tuple[Column, ...], input: Column) -> Column:
    """Return the question, with the input on a new line where there are both."""
    question = one_filled(dict(zip(ASKED, questions, strict=True)), needed=False)
    asked = with_input(question, input)
    absent = Problem("null_field", "prompt", asked.value.is_null(), "no question is there")
    return asked.with_value(asked.value, absent)
