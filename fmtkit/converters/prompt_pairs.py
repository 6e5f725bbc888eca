"""A prompt with two answers, or with one completion and a label, all of them text."""

from fmtkit.columns import ABSENT, Flag, Text
from fmtkit.columns.conversations import labelled, pair
from fmtkit.core.tables import Preference, Unpaired
from fmtkit.formats.registry import converter


@converter()
def preference(prompt: Text, chosen: Text, rejected: Text, system: Text = ABSENT) -> Preference:
    """https://docs.axolotl.ai/docs/rlhf.html, as `prompt_pairs`."""
    return pair(prompt, chosen, rejected, system)


@converter()
def unpaired(prompt: Text, completion: Text, label: Flag, system: Text = ABSENT) -> Unpaired:
    """https://huggingface.co/datasets/trl-lib/kto-mix-14k, with text for messages."""
    return labelled(prompt, completion, label, system)
