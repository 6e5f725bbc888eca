"""A question and its answer, as text under any of their usual names, with earlier turns if given."""

import polars as pl

from fmtkit.columns import ABSENT, Exchanges, Flag, Text, filled, first_given, one_filled
from fmtkit.columns.conversations import after, chosen_over, messages_of, with_context, with_input
from fmtkit.columns.problems import Column
from fmtkit.columns.record_turns import turn
from fmtkit.core.tables import Completion, Preference, Unpaired
from fmtkit.formats.registry import converter

QUESTIONS = ("question", "query", "prompt", "instruction", "input", "human", "problem")
ANSWERS = ("answer", "response", "output", "assistant", "completion", "solution")
SYSTEMS = ("system", "system_prompt")
THOUGHTS = ("reasoning", "reasoning_content", "thinking")
BETTER = ("chosen", "response_chosen", "response_j", "chosen_response", "response", "answer")
WORSE = ("rejected", "response_rejected", "response_k", "rejected_response")


@converter(any_of=[QUESTIONS, ANSWERS])
def completion(
    question: Text = ABSENT,
    query: Text = ABSENT,
    prompt: Text = ABSENT,
    instruction: Text = ABSENT,
    input: Text = ABSENT,
    human: Text = ABSENT,
    problem: Text = ABSENT,
    answer: Text = ABSENT,
    response: Text = ABSENT,
    output: Text = ABSENT,
    assistant: Text = ABSENT,
    completion: Text = ABSENT,
    solution: Text = ABSENT,
    context: Text = ABSENT,
    system: Text = ABSENT,
    system_prompt: Text = ABSENT,
    history: Exchanges = ABSENT,
) -> Completion:
    """https://swift.readthedocs.io/en/latest/Customization/Custom-dataset.html.

    Dolly's `context` follows the question on a new line; `history` holds earlier questions and answers.
    """
    asked = _asked(
        (question, query, prompt, instruction, input, human, problem),
        with_system=(system, system_prompt),
        context=context,
    )
    said = (answer, response, output, assistant, completion, solution)
    reply = one_filled(dict(zip(ANSWERS, said, strict=True)))
    return Completion(after(history, asked), messages_of(assistant=reply))


@converter(wide=True, any_of=[QUESTIONS, ANSWERS])
def reasoned(
    question: Text = ABSENT,
    query: Text = ABSENT,
    prompt: Text = ABSENT,
    instruction: Text = ABSENT,
    input: Text = ABSENT,
    human: Text = ABSENT,
    problem: Text = ABSENT,
    answer: Text = ABSENT,
    response: Text = ABSENT,
    output: Text = ABSENT,
    assistant: Text = ABSENT,
    completion: Text = ABSENT,
    solution: Text = ABSENT,
    reasoning: Text = ABSENT,
    reasoning_content: Text = ABSENT,
    thinking: Text = ABSENT,
    context: Text = ABSENT,
    system: Text = ABSENT,
    system_prompt: Text = ABSENT,
    history: Exchanges = ABSENT,
) -> Completion:
    """https://huggingface.co/datasets/glaiveai/reasoning-v1-20m; with the reasoning before the answer."""
    asked = _asked(
        (question, query, prompt, instruction, input, human, problem),
        with_system=(system, system_prompt),
        context=context,
        wide=True,
    )
    said = (answer, response, output, assistant, completion, solution)
    reply = one_filled(dict(zip(ANSWERS, said, strict=True)))
    thoughts = (reasoning, reasoning_content, thinking)
    thought = one_filled(dict(zip(THOUGHTS, thoughts, strict=True)), needed=False)
    thinks = pl.when(filled(thought.value)).then(thought.value)
    answered = turn(pl.lit("assistant"), reply.value, reasoning_content=thinks)
    return Completion(
        after(history, asked, wide=True),
        reply.with_value(pl.concat_list([answered])).depending_on(thought),
    )


@converter(any_of=[QUESTIONS, BETTER, WORSE])
def preference(
    question: Text = ABSENT,
    query: Text = ABSENT,
    prompt: Text = ABSENT,
    instruction: Text = ABSENT,
    input: Text = ABSENT,
    human: Text = ABSENT,
    problem: Text = ABSENT,
    chosen: Text = ABSENT,
    response_chosen: Text = ABSENT,
    response_j: Text = ABSENT,
    chosen_response: Text = ABSENT,
    response: Text = ABSENT,
    answer: Text = ABSENT,
    rejected: Text = ABSENT,
    response_rejected: Text = ABSENT,
    response_k: Text = ABSENT,
    rejected_response: Text = ABSENT,
    context: Text = ABSENT,
    system: Text = ABSENT,
    system_prompt: Text = ABSENT,
    history: Exchanges = ABSENT,
) -> Preference:
    """https://huggingface.co/datasets/lvwerra/stack-exchange-paired; ms-swift's `rejected_response`."""
    asked = _asked(
        (question, query, prompt, instruction, input, human, problem),
        with_system=(system, system_prompt),
        context=context,
    )
    liked = (chosen, response_chosen, response_j, chosen_response, response, answer)
    disliked = (rejected, response_rejected, response_k, rejected_response)
    better = one_filled(dict(zip(BETTER, liked, strict=True)))
    worse = one_filled(dict(zip(WORSE, disliked, strict=True)))
    return chosen_over(after(history, asked), better, worse)


@converter(any_of=[QUESTIONS, ANSWERS, ("label", "kto_tag")])
def unpaired(
    question: Text = ABSENT,
    query: Text = ABSENT,
    prompt: Text = ABSENT,
    instruction: Text = ABSENT,
    input: Text = ABSENT,
    human: Text = ABSENT,
    problem: Text = ABSENT,
    answer: Text = ABSENT,
    response: Text = ABSENT,
    output: Text = ABSENT,
    assistant: Text = ABSENT,
    completion: Text = ABSENT,
    solution: Text = ABSENT,
    label: Flag = ABSENT,
    kto_tag: Flag = ABSENT,
    context: Text = ABSENT,
    system: Text = ABSENT,
    system_prompt: Text = ABSENT,
    history: Exchanges = ABSENT,
) -> Unpaired:
    """https://swift.readthedocs.io/en/latest/Customization/Custom-dataset.html#kto."""
    asked = _asked(
        (question, query, prompt, instruction, input, human, problem),
        with_system=(system, system_prompt),
        context=context,
    )
    said = (answer, response, output, assistant, completion, solution)
    reply = one_filled(dict(zip(ANSWERS, said, strict=True)))
    liked = first_given(label=label, kto_tag=kto_tag)
    return Unpaired(after(history, asked), messages_of(assistant=reply), liked)


def _asked(
    questions: tuple[Column, ...],
    *,
    with_system: tuple[Column, Column],
    context: Column,
    wide: bool = False,
) -> Column:
    """Make the conversation of the system prompt and the question."""
    named = dict(zip(QUESTIONS, questions, strict=True))
    if named["instruction"] is not ABSENT and named["input"] is not ABSENT:
        # Alpaca's names, beside an answer under another one.
        named["instruction"] = with_input(named["instruction"], named.pop("input"))
    question = one_filled(named)
    system = one_filled(dict(zip(SYSTEMS, with_system, strict=True)), needed=False)
    return messages_of(wide=wide, system=system, user=with_context(question, context))
