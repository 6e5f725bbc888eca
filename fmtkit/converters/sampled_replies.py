"""A question and several replies to it that nobody judged, in a list or in columns: each of them is a row."""

from typing import Annotated, TypeAlias

import polars as pl

from fmtkit.columns import ABSENT, Text, Texts, one_filled, one_given, records
from fmtkit.columns.conversations import message, messages_of, with_input
from fmtkit.columns.expansion import several
from fmtkit.columns.kinds import TextKind
from fmtkit.columns.problems import Column, Problem
from fmtkit.core.tables import Completion
from fmtkit.formats.registry import converter

TEXTS = ("response", "text", "answer", "completion", "output", "content", "generation")
Replies: TypeAlias = Annotated[Column, records(dict.fromkeys(TEXTS, TextKind()), TEXTS)]
ASKED = ("question", "prompt", "instruction", "problem")


@converter(any_of=[ASKED, ("responses", "completions", "generations", "outputs")])
def of_records(
    question: Text = ABSENT,
    prompt: Text = ABSENT,
    instruction: Text = ABSENT,
    problem: Text = ABSENT,
    input: Text = ABSENT,
    system: Text = ABSENT,
    responses: Replies = ABSENT,
    completions: Replies = ABSENT,
    generations: Replies = ABSENT,
    outputs: Replies = ABSENT,
) -> Completion:
    """https://huggingface.co/datasets/facebook/natural_reasoning."""
    held = one_given(
        responses=responses, completions=completions, generations=generations, outputs=outputs
    )
    fields = [pl.element().struct.field(name) for name in TEXTS]
    texts = held.with_value(held.value.list.eval(pl.coalesce(fields)))
    return _rows(_asked(question, prompt, instruction, problem), input, system, texts)


@converter(any_of=[ASKED, ("responses", "completions", "generations", "outputs", "output")])
def of_texts(
    question: Text = ABSENT,
    prompt: Text = ABSENT,
    instruction: Text = ABSENT,
    problem: Text = ABSENT,
    input: Text = ABSENT,
    system: Text = ABSENT,
    responses: Texts = ABSENT,
    completions: Texts = ABSENT,
    generations: Texts = ABSENT,
    outputs: Texts = ABSENT,
    output: Texts = ABSENT,
) -> Completion:
    """https://github.com/tatsu-lab/alpaca_farm, examples/data/multisamples_sft.json."""
    texts = one_given(
        responses=responses,
        completions=completions,
        generations=generations,
        outputs=outputs,
        output=output,
    )
    return _rows(_asked(question, prompt, instruction, problem), input, system, texts)


@converter(any_of=[ASKED])
def of_columns(
    response_1: Text,
    response_2: Text,
    response_3: Text,
    response_4: Text = ABSENT,
    response_5: Text = ABSENT,
    response_6: Text = ABSENT,
    response_7: Text = ABSENT,
    response_8: Text = ABSENT,
    question: Text = ABSENT,
    prompt: Text = ABSENT,
    instruction: Text = ABSENT,
    problem: Text = ABSENT,
    input: Text = ABSENT,
    system: Text = ABSENT,
) -> Completion:
    """https://huggingface.co/datasets/zwhe99/DeepMath-103K; there may be more than three, not in each row."""
    columns = (
        response_1,
        response_2,
        response_3,
        response_4,
        response_5,
        response_6,
        response_7,
        response_8,
    )
    there = [column for column in columns if column is not ABSENT]
    texts = pl.concat_list(column.value for column in there).list.drop_nulls()
    held = Column(texts).depending_on(*there)
    return _rows(_asked(question, prompt, instruction, problem), input, system, held)


def _asked(question: Column, prompt: Column, instruction: Column, problem: Column) -> Column:
    return one_filled(dict(zip(ASKED, (question, prompt, instruction, problem), strict=True)))


def _rows(asked: Column, input: Column, system: Column, texts: Column) -> Completion:
    """Make a row of each reply."""
    text = pl.element()
    nothing = (text.is_null() | (text.str.strip_chars() == "")).fill_null(value=True)
    silent = Problem(
        "empty_field",
        "responses[]",
        texts.value.list.eval(nothing).list.any(),
        "a reply is empty or null",
    )
    replies = texts.with_value(
        texts.value.list.eval(pl.concat_list([message("assistant", text)])), silent
    ).warn("unjudged_replies", texts.value.list.len() > 1)
    prompt = messages_of(system=system, user=with_input(asked, input))
    return Completion(prompt, several(replies))
