"""Stanford Alpaca: an instruction, sometimes an input to it, and the output."""

import polars as pl

from fmtkit.columns import ABSENT, Text, filled
from fmtkit.dialogs import dialog
from fmtkit.registry import converter
from fmtkit.tables import Completion


@converter()
def completion(
    instruction: Text, output: Text, input: Text = ABSENT, system: Text = ABSENT
) -> Completion:
    """https://huggingface.co/datasets/tatsu-lab/alpaca; an input follows on a new line."""
    both = pl.concat_str([instruction.value, pl.lit("\n"), input.value])
    asked = pl.when(filled(input.value)).then(both).otherwise(instruction.value)
    return Completion(dialog(system=system, user=instruction.but(asked)), dialog(assistant=output))
