"""OpenAI chat: messages, with tool calls, tools, a system prompt and weights where there are any."""

from fmtkit.columns import ABSENT, TextOrParts, Tools, WideMessages
from fmtkit.columns.conversations import conversation, with_system, without_system
from fmtkit.core.tables import Conversation
from fmtkit.formats.registry import converter


@converter(
    wide=True, aliases=["chat_template", "anthropic", "bedrock", "together", "fireworks", "mistral"]
)
def chat(
    messages: WideMessages,
    tools: Tools = ABSENT,
    system: TextOrParts = ABSENT,
    *,
    drop_system_message: bool = False,
) -> Conversation:
    """https://developers.openai.com/api/docs/guides/supervised-fine-tuning.

    Together, Fireworks and Mistral take the same rows; Anthropic and Bedrock have the system prompt in a
    column of its own, and contents in parts.
    """
    whole = with_system(system, messages)
    return conversation(without_system(whole) if drop_system_message else whole, tools)
