"""Conversations as rows: one message each, with the name of its conversation in a column."""

from fmtkit.columns import WideMessages
from fmtkit.columns.conversations import conversation
from fmtkit.core.tables import Conversation
from fmtkit.formats.registry import converter


@converter(wide=True, rows_by="conversation_id")
def chat(rows: WideMessages, *, rows_by: str = "conversation_id") -> Conversation:  # noqa: ARG001
    """Tables of a support desk or a database; adjacent rows with the same `rows_by` are a conversation.

    https://huggingface.co/datasets/OpenAssistant/oasst2 has a message in each row too, as a tree.

    `message_field_role` and `message_field_content` name the columns with the speaker and the text.
    """
    return conversation(rows)
