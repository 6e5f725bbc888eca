"""Stanford Alpaca: an instruction, sometimes an input to it, and the output; earlier turns, if any."""

import polars as pl

from fmtkit.columns import ABSENT, Exchanges, Text, filled
from fmtkit.dialogs import after, dialog
from fmtkit.registry import converter
from fmtkit.tables import Completion


@converter()
def completion(
    instruction: Text,
    output: Text,
    input: Text = ABSENT,
    system: Text = ABSENT,
    history: Exchanges = ABSENT,
) -> Completion:
    """https://huggingface.co/datasets/tatsu-lab/alpaca; an input follows on a new line.

    `history` holds earlier questions and answers, as in LLaMA-Factory's alpaca format.
    """
    both = pl.concat_str([instruction.value, pl.lit("\n"), input.value])
    asked = pl.when(filled(input.value)).then(both).otherwise(instruction.value)
    prompt = dialog(system=system, user=instruction.but(asked))
    return Completion(after(history, prompt), dialog(assistant=output))
