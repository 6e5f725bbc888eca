"""Argilla, as chats: two whole conversations, or one with a label."""

from fmtkit.columns import ABSENT, Flag, Messages, Text
from fmtkit.columns.conversations import context_of, continued, reply_of, split_pair
from fmtkit.core.tables import Preference, Unpaired
from fmtkit.formats.registry import converter


@converter(differs="the prompt is every turn but the last; axolotl reads turns 0 and 1 only")
def preference(chosen: Messages, rejected: Messages, system: Text = ABSENT) -> Preference:
    """https://huggingface.co/datasets/argilla/dpo-mix-7k."""
    return split_pair(chosen, rejected, system)


@converter(differs="the prompt is every turn but the last; axolotl reads turns 0 and 1 only")
def unpaired(completion: Messages, label: Flag) -> Unpaired:
    """https://huggingface.co/datasets/argilla/kto-mix-15k."""
    return Unpaired(context_of(completion, "completion"), reply_of(completion, "completion"), label)


@converter(differs="the layout that axolotl documents, where it fails with an IndexError")
def unpaired_with_prompt(chosen: Messages, completion: Messages, label: Flag) -> Unpaired:
    """https://docs.axolotl.ai/docs/rlhf.html: `chosen` holds the prompt, `completion` the reply."""
    return continued(chosen, completion, label)
