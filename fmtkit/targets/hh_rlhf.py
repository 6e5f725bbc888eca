r"""HH-RLHF: two transcripts of `\n\nHuman:` and `\n\nAssistant:` turns."""

import polars as pl

from fmtkit.columns.exports import (
    any_turn,
    key,
    must_be_one_message,
    must_end_with_prompt,
    must_have_names,
    no_place,
    role_name,
    whole,
)
from fmtkit.columns.problems import Column
from fmtkit.columns.transcripts import ASSISTANT, HUMAN
from fmtkit.core.tables import Preference
from fmtkit.formats.target_registry import WrittenColumns, target

MARKS = {"user": HUMAN, "assistant": ASSISTANT}


@target(reads="hh_rlhf", holds=("turns",))
def preference(table: Preference) -> WrittenColumns:
    """https://huggingface.co/datasets/Anthropic/hh-rlhf."""
    prompt = must_end_with_prompt(table.prompt)
    return {
        "chosen": _transcript(whole(prompt, must_be_one_message(table.chosen))),
        "rejected": _transcript(whole(prompt, must_be_one_message(table.rejected))),
    }


def _transcript(turns: Column) -> Column:
    """Write turns after their marks; texts with a mark inside, or white space around them, are refused."""
    turns = must_have_names(turns, MARKS)
    said = key("content")
    first = turns.value.list.first().struct.field("role")
    texts = turns.value.list.eval(role_name(MARKS) + pl.lit(" ") + said)
    marked = any_turn(turns, said.str.contains(HUMAN, literal=True))
    marked |= any_turn(turns, said.str.contains(ASSISTANT, literal=True))
    return turns.with_value(
        texts.list.join(""),
        no_place("content", marked, f"{HUMAN.strip()} or {ASSISTANT.strip()} within a text"),
        no_place(
            "content",
            any_turn(turns, said != said.str.strip_chars()),
            "white space around the text of a turn",
        ),
        no_place("turns", first != "user", "a transcript that does not begin with the user"),
    )
