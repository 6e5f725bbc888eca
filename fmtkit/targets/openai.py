"""OpenAI chat: messages with weights, tool calls and tools, one conversation on each line."""

from fmtkit.columns.exports import must_have_reply, weighed
from fmtkit.core.tables import Conversation
from fmtkit.formats.target_registry import WrittenColumns, target


def part(image: str) -> dict[str, object]:
    """Return the part of a content that is an image."""
    return {"type": "image_url", "image_url": {"url": image}}


@target(
    reads="openai",
    holds=(
        "system",
        "developer",
        "turns",
        "tools",
        "tool_calls",
        "tool_call_id",
        "name",
        "train",
        "images",
    ),
    json=("tools", "messages.tool_calls"),
    calls="text",
    images="parts",
    image_part=part,
)
def chat(table: Conversation) -> WrittenColumns:
    """https://developers.openai.com/api/docs/guides/supervised-fine-tuning."""
    spoken = weighed(must_have_reply(table.messages), "name", "tool_calls", "tool_call_id")
    return {"messages": spoken, "tools": table.tools}
