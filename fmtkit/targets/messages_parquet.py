"""Parquet with lists of messages, as most chats on the Hub are kept."""

from fmtkit.columns.exports import (
    KEYS,
    messages,
    must_be_one_message,
    must_end_with_prompt,
    must_have_reply,
    whole,
)
from fmtkit.core.message_keys import MARKS
from fmtkit.core.tables import Conversation, Preference, Unpaired
from fmtkit.formats.target_registry import WrittenColumns, target

TURNS = ("system", "developer", "turns")


@target(
    reads="openai",
    holds=(*TURNS, "tools", "tool_calls", "tool_call_id", "name", "reasoning_content", *MARKS),
    json=("tools", "messages.tool_calls", "messages.train_detail"),
    formats=("parquet",),
)
def chat(table: Conversation, *, wide: bool) -> WrittenColumns:
    """https://huggingface.co/datasets/HuggingFaceH4/ultrachat_200k."""
    keys = (*KEYS, *sorted(MARKS)) if wide else ()
    return {"messages": messages(must_have_reply(table.messages), *keys), "tools": table.tools}


@target(reads="argilla_chat", holds=TURNS, formats=("parquet",))
def preference(table: Preference) -> WrittenColumns:
    """https://huggingface.co/datasets/argilla/dpo-mix-7k."""
    prompt = must_end_with_prompt(table.prompt)
    return {
        "chosen": messages(whole(prompt, must_be_one_message(table.chosen))),
        "rejected": messages(whole(prompt, must_be_one_message(table.rejected))),
    }


@target(reads="messages_label", holds=TURNS, formats=("parquet",))
def unpaired(table: Unpaired) -> WrittenColumns:
    """https://huggingface.co/datasets/llamafactory/kto-mix-15k."""
    turns = whole(must_end_with_prompt(table.prompt), must_be_one_message(table.completion))
    return {"messages": messages(turns), "label": table.label}
