"""A question and two answers for a reward model with the model's own chat template."""

from fmtkit.columns import ABSENT, Text
from fmtkit.dialogs import pair
from fmtkit.registry import converter
from fmtkit.tables import Preference


@converter(
    name="bradley_terry.chat_template",
    differs="`system` is optional; axolotl raises KeyError without it",
)
def preference(input: Text, chosen: Text, rejected: Text, system: Text = ABSENT) -> Preference:
    """https://docs.axolotl.ai/docs/reward_modelling.html."""
    return pair(input, chosen, rejected, system)
