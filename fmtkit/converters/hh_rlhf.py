r"""HH-RLHF: two transcripts of `\n\nHuman:` and `\n\nAssistant:` turns."""

from fmtkit.columns import Text
from fmtkit.columns.conversations import split_pair
from fmtkit.columns.transcripts import transcript
from fmtkit.core.tables import Preference
from fmtkit.formats.registry import converter


@converter()
def preference(chosen: Text, rejected: Text) -> Preference:
    """https://huggingface.co/datasets/Anthropic/hh-rlhf."""
    return split_pair(transcript(chosen, "chosen"), transcript(rejected, "rejected"))
