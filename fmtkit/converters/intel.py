"""Intel Orca: one question, answers to it, and sometimes a system prompt."""

from fmtkit.columns import ABSENT, Flag, Text
from fmtkit.columns.conversations import labelled, pair
from fmtkit.core.tables import Preference, Unpaired
from fmtkit.formats.registry import converter


@converter()
def preference(question: Text, chosen: Text, rejected: Text, system: Text = ABSENT) -> Preference:
    """https://huggingface.co/datasets/Intel/orca_dpo_pairs."""
    return pair(question, chosen, rejected, system)


@converter()
def unpaired(question: Text, completion: Text, label: Flag, system: Text = ABSENT) -> Unpaired:
    """https://huggingface.co/datasets/argilla/distilabel-intel-orca-kto."""
    return labelled(question, completion, label, system)
