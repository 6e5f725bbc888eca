"""Input, chosen, rejected: one question and two answers."""

from fmtkit.columns import ABSENT, Text
from fmtkit.columns.conversations import pair
from fmtkit.core.tables import Preference
from fmtkit.formats.registry import converter


@converter()
def preference(input: Text, chosen: Text, rejected: Text, system: Text = ABSENT) -> Preference:
    """https://docs.axolotl.ai/docs/rlhf.html, as `icr`."""
    return pair(input, chosen, rejected, system)
