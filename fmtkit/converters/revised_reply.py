"""A reply and its revision: the revised one is better, whoever wrote it, and a critique says why."""

from fmtkit.columns import ABSENT, Text, Turns
from fmtkit.columns.conversations import chosen_over, must_end_with_prompt, with_system
from fmtkit.core.tables import Preference
from fmtkit.formats.registry import converter


@converter(harmless=("critique",))
def preference(prompt: Turns, original: Text, revised: Text, system: Text = ABSENT) -> Preference:
    """https://huggingface.co/datasets/HuggingFaceH4/cai-conversation-harmless."""
    asked = must_end_with_prompt(with_system(system, prompt), "prompt")
    return chosen_over(asked, revised, original)
