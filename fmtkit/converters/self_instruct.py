"""Seed tasks: an instruction with one or more instances of its input and output."""

from typing import Annotated, TypeAlias

import polars as pl

from fmtkit.columns import Text, filled, records
from fmtkit.columns.conversations import message
from fmtkit.columns.expansion import several
from fmtkit.columns.kinds import TextKind
from fmtkit.columns.problems import Column, Problem
from fmtkit.core.tables import Completion
from fmtkit.formats.registry import converter

Instances: TypeAlias = Annotated[
    Column, records({"input": TextKind(), "output": TextKind()}, optional=("input",))
]


@converter(harmless=("name",))
def completion(instruction: Text, instances: Instances) -> Completion:
    """https://github.com/yizhongw/self-instruct, data/seed_tasks.jsonl; each instance is a row."""
    given, said = (pl.element().struct.field(name) for name in ("input", "output"))
    silent = Problem(
        "empty_field",
        "instances[].output",
        instances.value.list.eval(~filled(said)).list.any(),
        "the output of an instance is empty or blank",
    )
    outputs = instances.with_value(instances.value.list.eval(said), silent)
    # Instruction and inputs in one list: nothing else of the row is at hand within it.
    inputs = instances.value.list.eval(given.fill_null(""))
    led = instruction.with_value(pl.concat_list(instruction.value, inputs))
    first, rest = pl.element().first(), pl.element().slice(1)
    whole = pl.when(filled(rest)).then(pl.concat_str([first, pl.lit("\n"), rest])).otherwise(first)
    prompts = led.with_value(led.value.list.eval(whole)).depending_on(instances)
    return Completion(several(_each("user", prompts)), several(_each("assistant", outputs)))


def _each(role: str, texts: Column) -> Column:
    """Make a conversation of one turn of each text of a list."""
    return texts.with_value(texts.value.list.eval(pl.concat_list([message(role, pl.element())])))
