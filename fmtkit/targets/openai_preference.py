"""OpenAI preference fine-tuning: the input's messages, a preferred and a non-preferred output."""

import polars as pl

from fmtkit.columns.exports import answering, asking, messages, parted
from fmtkit.columns.problems import Column
from fmtkit.core.tables import Preference
from fmtkit.formats.target_registry import Rows, target

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
def preference(table: Preference) -> Rows:
    """https://developers.openai.com/api/docs/guides/direct-preference-optimization."""
    prompt = messages(asking(table.prompt), *KEYS)
    given = [prompt.value.alias("messages")]
    given += [table.tools.value.alias("tools")] if table.tools else []
    chosen, rejected = answering(table.chosen), answering(table.rejected)
    return {
        "input": Column(pl.struct(given)).having(prompt),
        "preferred_output": messages(chosen, *KEYS),
        "non_preferred_output": messages(parted(chosen, rejected), *KEYS),
    }
