"""Two replies to one prompt, and which of them was chosen: PKU-SafeRLHF, Chatbot Arena.

The judges of an arena read both conversations to the end: from the first reply that differs on, each side of
the pair has all turns, the later questions too, which are the same in both.
"""

import polars as pl

from fmtkit.columns import ABSENT, Number, Text, Texts, WideMessages
from fmtkit.columns.conversations import chosen_over, messages_of
from fmtkit.columns.message_rules import WIDE
from fmtkit.columns.preference_cut import cut_pair, whole
from fmtkit.columns.problems import Column, Problem
from fmtkit.columns.record_turns import by_turns
from fmtkit.core.errors import UnknownNameError
from fmtkit.core.tables import Preference
from fmtkit.formats.registry import converter

CRITERIA = ("better", "safer")


@converter(any_of=[("better_response_id", "safer_response_id")])
def by_number(
    prompt: Text,
    response_0: Text,
    response_1: Text,
    better_response_id: Number = ABSENT,
    safer_response_id: Number = ABSENT,
    *,
    by: str = "better",
) -> Preference:
    """https://huggingface.co/datasets/PKU-Alignment/PKU-SafeRLHF; `by` is better or safer."""
    if by not in CRITERIA:
        raise UnknownNameError("criterion", by, CRITERIA)
    choice = better_response_id if by == "better" else safer_response_id
    name, first = f"{by}_response_id", choice.value == 0
    unknown = Problem(
        "value_error", name, ~first & (choice.value != 1), f"{name} is neither 0 nor 1"
    )
    absent = Problem("null_field", name, choice.value.is_null(), f"{name} is null")
    one, other = response_0.value, response_1.value
    better = response_0.with_value(pl.when(first).then(one).otherwise(other), unknown, absent)
    worse = response_1.with_value(pl.when(first).then(other).otherwise(one))
    unused = safer_response_id if by == "better" else better_response_id
    return chosen_over(messages_of(user=prompt), better.depending_on(choice, unused), worse)


@converter(wide=True)
def arena_texts(
    prompt: Texts,
    response_a: Texts,
    response_b: Texts,
    winner_model_a: Number,
    winner_model_b: Number,
    winner_tie: Number = ABSENT,
) -> Preference:
    """https://www.kaggle.com/competitions/lmsys-chatbot-arena/data; lists of turns, also as JSON text."""
    flags = [flag.value.fill_null(0) for flag in (winner_model_a, winner_model_b, winner_tie)]
    told = pl.sum_horizontal(flag == 1 for flag in flags)
    others = pl.any_horizontal((flag != 0) & (flag != 1) for flag in flags)
    problems = (
        Problem(
            "no_preference", None, (told == 1) & (flags[2] == 1), "winner_tie says that neither won"
        ),
        Problem(
            "value_error",
            "winner_model_a",
            others | (told != 1),
            "not exactly one of winner_model_a, winner_model_b and winner_tie is 1",
        ),
    )
    one = by_turns(prompt, response_a, "response_a", WIDE)
    other = by_turns(prompt, response_b, "response_b", WIDE)
    both = one.depending_on(other, winner_model_a, winner_model_b, winner_tie)
    first = flags[0] == 1
    better = both.with_value(pl.when(first).then(one.value).otherwise(other.value), *problems).once(
        "__winner"
    )
    worse = both.with_value(pl.when(first).then(other.value).otherwise(one.value)).once("__loser")
    one_side, other_side = whole(better, "response_a"), whole(worse, "response_b")
    return cut_pair(one_side, other_side, is_judged_whole=True)


@converter(wide=True)
def arena(
    conversation_a: WideMessages,
    conversation_b: WideMessages,
    winner: Text,
    turn: Number = ABSENT,
) -> Preference:
    """https://huggingface.co/datasets/lmsys/chatbot_arena_conversations; a tie is not a preference.

    `turn` is the number of exchanges that were judged: in MT-bench's judgments later ones were not looked at.
    """
    first = winner.value == "model_a"
    unknown = ~winner.value.is_in(["model_a", "model_b"]) & ~winner.value.str.starts_with("tie")
    one, other = (_judged(c.value, turn) for c in (conversation_a, conversation_b))
    problems = (
        Problem("no_preference", None, winner.value.str.starts_with("tie"), "winner is a tie"),
        Problem("value_error", "winner", unknown, "winner is none of model_a, model_b, tie"),
        Problem(
            "context_mismatch",
            "conversation_b",
            _questions(one) != _questions(other),
            "the two conversations do not ask the same",
        ),
    )
    both = conversation_a.depending_on(conversation_b, winner, turn)
    better = both.with_value(pl.when(first).then(one).otherwise(other), *problems).once("__winner")
    worse = both.with_value(pl.when(first).then(other).otherwise(one)).once("__loser")
    one_side, other_side = whole(better, "conversation_a"), whole(worse, "conversation_b")
    return cut_pair(one_side, other_side, is_judged_whole=True)


def _judged(messages_of: pl.Expr, turn: Column) -> pl.Expr:
    """Return a conversation up to the exchange that was judged last."""
    if turn is ABSENT:
        return messages_of
    is_led = messages_of.list.get(0, null_on_oob=True).struct.field("role") == "system"
    count = 2 * turn.value + is_led.fill_null(value=False).cast(pl.Int64)
    return (
        pl.when(turn.value >= 1)
        .then(messages_of.list.head(count.cast(pl.Int64)))
        .otherwise(messages_of)
    )


def _questions(messages_of: pl.Expr) -> pl.Expr:
    """Return what the user says in a conversation, as one text."""
    field = pl.element().struct.field
    asked = messages_of.list.eval(field("content").filter(field("role") == "user"))
    return asked.list.join("\0", ignore_nulls=True)
