"""verl: a prompt to answer while training, and a reward model with the true answer."""

from fmtkit.columns import Text, WideTurns
from fmtkit.columns.conversations import must_end_with_prompt
from fmtkit.core.tables import Prompt
from fmtkit.formats.registry import converter


@converter(keeps=True, wide=True, paths={"ground_truth": "reward_model.ground_truth"})
def prompt(prompt: WideTurns, ground_truth: Text) -> Prompt:
    """https://verl.readthedocs.io/en/latest/preparation/prepare_data.html.

    The true answer becomes `answer`; the reward model, `data_source` and `extra_info` are kept.
    """
    return Prompt(must_end_with_prompt(prompt, "prompt"), answer=ground_truth)
