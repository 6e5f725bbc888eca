"""ms-swift: messages, a rejected reply or a label beside them, and images with `<image>` in the text."""

from fmtkit.columns.exports import (
    messages,
    must_be_one_message,
    must_end_with_prompt,
    must_have_reply,
    only_item,
    whole,
)
from fmtkit.core.tables import Conversation, Preference, Unpaired
from fmtkit.formats.target_registry import WrittenColumns, target


@target(reads="openai", holds=("system", "turns", "images"))
def chat(table: Conversation) -> WrittenColumns:
    """https://swift.readthedocs.io/en/latest/Customization/Custom-dataset.html."""
    return {"messages": messages(must_have_reply(table.messages))}


@target(reads="messages_rejected", holds=("system", "turns", "images"))
def preference(table: Preference) -> WrittenColumns:
    """https://swift.readthedocs.io/en/latest/Customization/Custom-dataset.html, for DPO."""
    worse = only_item(messages(must_be_one_message(table.rejected)))
    return {
        "messages": messages(
            whole(must_end_with_prompt(table.prompt), must_be_one_message(table.chosen))
        ),
        "rejected_response": worse.with_value(worse.value.struct.field("content")),
    }


@target(reads="messages_label", holds=("system", "turns", "images"))
def unpaired(table: Unpaired) -> WrittenColumns:
    """https://swift.readthedocs.io/en/latest/Customization/Custom-dataset.html, for KTO."""
    turns = whole(must_end_with_prompt(table.prompt), must_be_one_message(table.completion))
    return {"messages": messages(turns), "label": table.label}
