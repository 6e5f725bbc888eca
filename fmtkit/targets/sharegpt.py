"""ShareGPT: conversations of {from, value}, tool calls as turns of their own."""

from fmtkit.columns.exports import must_have_reply, sharegpt
from fmtkit.core.tables import Conversation
from fmtkit.formats.target_registry import WrittenColumns, target


@target(reads="sharegpt", holds=("system", "turns", "tools", "tool_calls", "images"), calls="bare")
def chat(table: Conversation) -> WrittenColumns:
    """https://github.com/hiyouga/LLaMA-Factory/blob/main/data/README.md, ShareGPT format."""
    return {"conversations": sharegpt(must_have_reply(table.messages)), "tools": table.tools}
