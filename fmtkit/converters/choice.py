"""Two replies to one prompt, and which of them was chosen: PKU-SafeRLHF, Chatbot Arena."""

import polars as pl

from fmtkit.columns import ABSENT, Number, Text, WideMessages
from fmtkit.columns.dialogs import chosen_over, dialog
from fmtkit.columns.problems import Problem
from fmtkit.columns.tool_pairs import cut_pair, whole
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
    return chosen_over(dialog(user=prompt), better.depending_on(choice, unused), worse)


@converter(wide=True)
def arena(conversation_a: WideMessages, conversation_b: WideMessages, winner: Text) -> Preference:
    """https://huggingface.co/datasets/lmsys/chatbot_arena_conversations; a tie is not a preference."""
    first = winner.value == "model_a"
    unknown = ~winner.value.is_in(["model_a", "model_b"]) & ~winner.value.str.starts_with("tie")
    problems = (
        Problem("no_preference", None, winner.value.str.starts_with("tie"), "winner is a tie"),
        Problem("value_error", "winner", unknown, "winner is none of model_a, model_b, tie"),
    )
    one, other = conversation_a.value, conversation_b.value
    both = conversation_a.depending_on(conversation_b, winner)
    better = both.with_value(pl.when(first).then(one).otherwise(other), *problems).once("__winner")
    worse = both.with_value(pl.when(first).then(other).otherwise(one)).once("__loser")
    return cut_pair(whole(better, "conversation_a"), whole(worse, "conversation_b"))
