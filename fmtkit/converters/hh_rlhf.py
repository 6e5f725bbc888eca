r"""HH-RLHF: two transcripts of `\n\nHuman:` and `\n\nAssistant:` turns."""

from fmtkit.columns import Text
from fmtkit.dialogs import split_pair
from fmtkit.registry import converter
from fmtkit.tables import Preference
from fmtkit.transcripts import transcript


@converter()
def preference(chosen: Text, rejected: Text) -> Preference:
    """https://huggingface.co/datasets/Anthropic/hh-rlhf."""
    return split_pair(transcript(chosen, "chosen"), transcript(rejected, "rejected"))
