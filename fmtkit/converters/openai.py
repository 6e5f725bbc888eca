"""OpenAI chat: messages, with tool calls, tools and the weight of a turn where there are any."""

from fmtkit.columns import ABSENT, Tools, WideMessages
from fmtkit.dialogs import conversation, without_system
from fmtkit.registry import converter
from fmtkit.tables import Conversation


@converter(wide=True, aliases=["chat_template"])
def chat(
    messages: WideMessages, tools: Tools = ABSENT, *, drop_system_message: bool = False
) -> Conversation:
    """https://developers.openai.com/api/docs/guides/supervised-fine-tuning."""
    return conversation(without_system(messages) if drop_system_message else messages, tools)
