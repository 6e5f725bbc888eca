"""axolotl: messages for its chat_template types, with the lines of `datasets:` that read them."""

import json

from fmtkit.columns.exports import (
    KEYS,
    messages,
    must_be_one_message,
    must_end_with_prompt,
    must_have_reply,
    only_item,
)
from fmtkit.core.message_keys import MARKS
from fmtkit.core.tables import Conversation, Preference
from fmtkit.formats.target_registry import WrittenColumns, target

LINES = "datasets.yaml"


def datasets(name: str, rows: str, columns: tuple[str, ...]) -> tuple[str, str]:  # noqa: ARG001
    """Return the lines of an axolotl config that read the rows."""
    lines = ["datasets:", f"  - path: {json.dumps(rows)}", "    ds_type: json"]
    if "chosen" in columns:
        lines += ["    type: chat_template.default", "    field_messages: messages"]
        lines += ["    field_chosen: chosen", "    field_rejected: rejected"]
        lines.insert(0, "rl: dpo")
    else:
        lines += ["    type: chat_template", "    field_messages: messages"]
        lines += ["    message_field_training: train"]
        lines += ["    message_field_training_detail: train_detail"]
        lines += ["    roles_to_train: [assistant]"]
    return LINES, "\n".join(lines) + "\n"


def part(image: str) -> dict[str, str]:
    """Return the part of a content that is an image."""
    if image.startswith("data:"):
        return {"type": "image", "base64": image.partition(",")[2]}
    return {"type": "image", "path": image}


@target(
    reads="chat_template",
    holds=(
        "system",
        "developer",
        "turns",
        "tools",
        "tool_calls",
        "tool_call_id",
        "name",
        "reasoning_content",
        "train",
        "train_detail",
        "images",
    ),
    images="parts",
    image_part=part,
    json=("tools", "messages.tool_calls", "messages.train_detail"),
    calls="text",
    beside=datasets,
)
def chat(table: Conversation) -> WrittenColumns:
    """https://docs.axolotl.ai/docs/dataset-formats/conversation.html."""
    return {
        "messages": messages(must_have_reply(table.messages), *KEYS, *sorted(MARKS)),
        "tools": table.tools,
    }


@target(reads="chat_template.default", holds=("system", "turns"), beside=datasets)
def preference(table: Preference) -> WrittenColumns:
    """https://docs.axolotl.ai/docs/rlhf.html#chat_template.default."""
    return {
        "messages": messages(must_end_with_prompt(table.prompt)),
        "chosen": only_item(messages(must_be_one_message(table.chosen))),
        "rejected": only_item(messages(must_be_one_message(table.rejected))),
    }
