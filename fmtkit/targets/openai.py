"""OpenAI chat: messages with weights, tool calls and tools, one conversation on each line."""

from fmtkit.columns.exports import must_have_reply, weighed
from fmtkit.core.tables import Conversation
from fmtkit.formats.target_registry import Rows, target


@target(
    reads="openai",
    holds=("system", "developer", "turns", "tools", "tool_calls", "tool_call_id", "name", "train"),
    json=("tools", "messages.tool_calls"),
    calls="text",
)
def chat(table: Conversation) -> Rows:
    """https://developers.openai.com/api/docs/guides/supervised-fine-tuning."""
    spoken = weighed(must_have_reply(table.messages), "name", "tool_calls", "tool_call_id")
    return {"messages": spoken, "tools": table.tools}
