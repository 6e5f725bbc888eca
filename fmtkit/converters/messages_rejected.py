"""A conversation, and a worse reply to replace its last one, as in ms-swift."""

from fmtkit.columns import ABSENT, Text, Tools, WideMessages, WideReply, first_given
from fmtkit.columns.conversations import with_system
from fmtkit.columns.preference_cut import cut_pair, whole, whole_with
from fmtkit.core.tables import Preference
from fmtkit.formats.registry import converter


@converter(wide=True, any_of=[("rejected_response", "rejected_messages")])
def preference(
    messages: WideMessages,
    rejected_response: WideReply = ABSENT,
    rejected_messages: WideReply = ABSENT,
    system: Text = ABSENT,
    tools: Tools = ABSENT,
) -> Preference:
    """https://swift.readthedocs.io/en/latest/Customization/Custom-dataset.html#rlhf."""
    given = first_given(rejected_response=rejected_response, rejected_messages=rejected_messages)
    better = whole(with_system(system, messages), "messages")
    context = better.messages.with_turns(better.before)
    return cut_pair(better, whole_with(context, given, "rejected_response"), tools)
