"""Argilla: an instruction with two responses, or with one completion and a label."""

from fmtkit.columns import ABSENT, Flag, Text
from fmtkit.columns.conversations import labelled, pair
from fmtkit.core.tables import Preference, Unpaired
from fmtkit.formats.registry import converter


@converter(differs="works for DPO, for which axolotl documents the name but has no function")
def preference(
    instruction: Text, chosen_response: Text, rejected_response: Text, system: Text = ABSENT
) -> Preference:
    """https://huggingface.co/datasets/argilla/distilabel-math-preference-dpo."""
    return pair(instruction, chosen_response, rejected_response, system)


@converter()
def unpaired(instruction: Text, completion: Text, label: Flag, system: Text = ABSENT) -> Unpaired:
    """https://huggingface.co/datasets/argilla/ultrafeedback-binarized-preferences-cleaned-kto."""
    return labelled(instruction, completion, label, system)
