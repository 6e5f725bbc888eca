"""Parquet with lists of messages, as most chats on the Hub are kept."""

from fmtkit.columns.exports import KEYS, asking, learnable, messages, single, whole
from fmtkit.core.tables import Conversation, Preference, Unpaired
from fmtkit.formats.target_registry import Rows, target

TURNS = ("system", "developer", "turns")


@target(
    reads="openai",
    holds=(*TURNS, "tools", "tool_calls", "tool_call_id", "name", "reasoning_content", "train"),
    json=("tools", "messages.tool_calls"),
    formats=("parquet",),
)
def chat(table: Conversation, *, wide: bool) -> Rows:
    """https://huggingface.co/datasets/HuggingFaceH4/ultrachat_200k."""
    keys = (*KEYS, "train") if wide else ()
    return {"messages": messages(learnable(table.messages), *keys), "tools": table.tools}


@target(reads="argilla_chat", holds=TURNS, formats=("parquet",))
def preference(table: Preference) -> Rows:
    """https://huggingface.co/datasets/argilla/dpo-mix-7k."""
    prompt = asking(table.prompt)
    return {
        "chosen": messages(whole(prompt, single(table.chosen))),
        "rejected": messages(whole(prompt, single(table.rejected))),
    }


@target(reads="messages_label", holds=TURNS, formats=("parquet",))
def unpaired(table: Unpaired) -> Rows:
    """https://huggingface.co/datasets/llamafactory/kto-mix-15k."""
    turns = whole(asking(table.prompt), single(table.completion))
    return {"messages": messages(turns), "label": table.label}
