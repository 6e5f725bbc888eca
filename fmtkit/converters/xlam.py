"""xLAM function calling: a query, the available tools, and the calls that answer it, as JSON."""

from collections.abc import Sequence

import polars as pl

from fmtkit.columns import Open, Text, Tools, blank
from fmtkit.columns.problems import Problem
from fmtkit.columns.record_turns import turn
from fmtkit.columns.strict_kinds import json_value, written_calls
from fmtkit.core.tables import Conversation
from fmtkit.formats.registry import converter


@converter(wide=True)
def calls(query: Text, answers: Open, tools: Tools) -> Conversation:
    """https://huggingface.co/datasets/Salesforce/xlam-function-calling-60k.

    A row whose query no tool answers has no calls, and nothing to learn.
    """
    called = answers.with_value(
        answers.value.map_batches(_written, return_dtype=pl.String, is_elementwise=True)
    ).once("__calls")
    unread = Problem(
        "value_error", "answers", called.value.is_null(), "answers is not a JSON list of calls"
    )
    none = Problem("no_assistant_turn", None, called.value == "[]", "answers has no call")
    said = called.with_value(
        pl.concat_list(
            turn(pl.lit("user"), query.value),
            turn(pl.lit("assistant"), pl.lit(""), tool_calls=called.value),
        ),
        unread,
        none,
    )
    silent = Problem("empty_field", "query", blank(query.value), "query is empty or blank")
    return Conversation(said.depending_on(query).with_value(said.value, silent), tools)


def _written(answers: pl.Series) -> pl.Series:
    """Write each row's calls as canonical JSON; null where they are none."""
    texts: Sequence[str | None] = answers.to_list()
    made = [None if text is None else written_calls([_unquoted(text)]) for text in texts]
    return pl.Series(answers.name, made, dtype=pl.String)


def _unquoted(answers: str) -> str:
    """Return the JSON of answers that were given as JSON text, or as a list."""
    value = json_value(answers)
    return value if isinstance(value, str) else answers
