"""A question with its answer twice: worked out, and the result alone."""

import polars as pl

from fmtkit.columns import ABSENT, Text, one_filled
from fmtkit.columns.conversations import messages_of
from fmtkit.columns.problems import Problem
from fmtkit.core.tables import Completion
from fmtkit.formats.registry import converter

LONGER = 4
"""How many times as long as its result an answer is that was worked out, if it does not hold the result."""


@converter(
    any_of=[
        ("question", "problem", "prompt", "instruction", "input", "query"),
        ("answer", "output", "response"),
    ]
)
def completion(
    solution: Text,
    question: Text = ABSENT,
    problem: Text = ABSENT,
    prompt: Text = ABSENT,
    instruction: Text = ABSENT,
    input: Text = ABSENT,
    query: Text = ABSENT,
    answer: Text = ABSENT,
    output: Text = ABSENT,
    response: Text = ABSENT,
    system: Text = ABSENT,
) -> Completion:
    """https://huggingface.co/datasets/AI-MO/NuminaMath-1.5, nvidia/OpenCodeReasoning.

    The longer one is the reply; it holds the other, or is several times as long: else either could be meant.
    """
    asked = one_filled({
        "question": question,
        "problem": problem,
        "prompt": prompt,
        "instruction": instruction,
        "input": input,
        "query": query,
    })  # fmt: skip
    other = one_filled({"answer": answer, "output": output, "response": response})
    one, two = solution.value, other.value
    is_first = one.str.len_chars() >= two.str.len_chars()
    long, short = (
        pl.when(is_first).then(one).otherwise(two),
        pl.when(is_first).then(two).otherwise(one),
    )
    is_within = long.str.contains(short.str.strip_chars(), literal=True)
    is_result = LONGER * short.str.len_chars() <= long.str.len_chars()
    unclear = Problem(
        "ambiguous_fields",
        "solution",
        ~(is_within | is_result),
        "solution and the answer beside it are two answers of about one length: choose with --type "
        "question_answer --map",
    )
    reply = solution.with_value(long, unclear).depending_on(other)
    reply = reply.warn("unconfirmed_reply", ~is_within)
    return Completion(messages_of(system=system, user=asked), messages_of(assistant=reply))
