"""OpenAI preference fine-tuning: the input's messages, a preferred and a non-preferred output."""

import polars as pl

from fmtkit.columns.exports import (
    messages,
    must_be_one_answer,
    must_end_with_prompt,
    must_start_apart,
)
from fmtkit.columns.problems import Column
from fmtkit.core.tables import Preference
from fmtkit.formats.target_registry import WrittenColumns, target

KEYS = ("name", "tool_calls", "tool_call_id")


@target(
    reads="openai_preference",
    holds=("system", "developer", "turns", "tools", "tool_calls", "tool_call_id", "name"),
    json=(
        "input.tools",
        "input.messages.tool_calls",
        "preferred_output.tool_calls",
        "non_preferred_output.tool_calls",
    ),
    calls="text",
)
def preference(table: Preference) -> WrittenColumns:
    """https://developers.openai.com/api/docs/guides/direct-preference-optimization."""
    prompt = messages(must_end_with_prompt(table.prompt), *KEYS)
    given = [prompt.value.alias("messages")]
    given += [table.tools.value.alias("tools")] if table.tools else []
    chosen, rejected = must_be_one_answer(table.chosen), must_be_one_answer(table.rejected)
    return {
        "input": Column(pl.struct(given)).depending_on(prompt),
        "preferred_output": messages(chosen, *KEYS),
        "non_preferred_output": messages(must_start_apart(chosen, rejected), *KEYS),
    }
