"""verl: a prompt to answer while training, and a reward model with the true answer."""

from fmtkit.columns import Text, WideTurns
from fmtkit.dialogs import asks
from fmtkit.registry import converter
from fmtkit.tables import Prompt


@converter(keeps=True, wide=True, paths={"ground_truth": "reward_model.ground_truth"})
def prompt(prompt: WideTurns, ground_truth: Text) -> Prompt:
    """https://verl.readthedocs.io/en/latest/preparation/prepare_data.html.

    The true answer becomes `answer`; the reward model, `data_source` and `extra_info` are kept.
    """
    return Prompt(asks(prompt, "prompt"), answer=ground_truth)
