"""UltraFeedback, binarised: a prompt with two conversations, or with one completion and a label."""

from fmtkit.columns import ABSENT, Flag, Messages, Text
from fmtkit.columns.conversations import labelled, must_hold_question, split_pair, with_question
from fmtkit.core.tables import Preference, Unpaired
from fmtkit.formats.registry import converter


@converter(
    differs="keeps every turn, takes lists that hold only the reply, and refuses lists that answer "
    "something else than `prompt`"
)
def preference(
    chosen: Messages, rejected: Messages, prompt: Text = ABSENT, system: Text = ABSENT
) -> Preference:
    """https://huggingface.co/datasets/HuggingFaceH4/ultrafeedback_binarized."""
    better = with_question(prompt, must_hold_question(prompt, chosen, "chosen"), "chosen")
    worse = with_question(prompt, must_hold_question(prompt, rejected, "rejected"), "rejected")
    return split_pair(better, worse, system)


@converter()
def unpaired(prompt: Text, completion: Text, label: Flag, system: Text = ABSENT) -> Unpaired:
    """https://huggingface.co/datasets/argilla/ultrafeedback-binarized-preferences-cleaned-kto."""
    return labelled(prompt, completion, label, system)
