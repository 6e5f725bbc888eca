"""A question and two answers for a reward model with the model's own chat template."""

from fmtkit.columns import ABSENT, Text
from fmtkit.columns.conversations import pair
from fmtkit.core.tables import Preference
from fmtkit.formats.registry import converter


@converter(
    name="bradley_terry.chat_template",
    differs="`system` is optional; axolotl raises KeyError without it",
)
def preference(input: Text, chosen: Text, rejected: Text, system: Text = ABSENT) -> Preference:
    """https://docs.axolotl.ai/docs/reward_modelling.html."""
    return pair(input, chosen, rejected, system)
