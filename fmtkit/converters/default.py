"""One question under any of its usual names, with a better and a worse answer."""

from fmtkit.columns import ABSENT, Text, first_filled
from fmtkit.columns.conversations import pair
from fmtkit.core.tables import Preference
from fmtkit.formats.registry import converter


@converter(
    any_of=[
        ("prompt", "input", "question", "instruction"),
        ("chosen", "chosen_response"),
        ("rejected", "rejected_response"),
    ],
    differs="the first column with text counts: an empty `input` does not beat `instruction`",
)
def preference(
    prompt: Text = ABSENT,
    input: Text = ABSENT,
    question: Text = ABSENT,
    instruction: Text = ABSENT,
    chosen: Text = ABSENT,
    chosen_response: Text = ABSENT,
    rejected: Text = ABSENT,
    rejected_response: Text = ABSENT,
    system: Text = ABSENT,
) -> Preference:
    """https://huggingface.co/datasets/argilla/distilabel-intel-orca-dpo-pairs."""
    asked = first_filled(prompt=prompt, input=input, question=question, instruction=instruction)
    better = first_filled(chosen=chosen, chosen_response=chosen_response)
    worse = first_filled(rejected=rejected, rejected_response=rejected_response)
    return pair(asked, better, worse, system)
