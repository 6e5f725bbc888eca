"""Open Assistant as axolotl's `oasst` has it: INSTRUCTION and RESPONSE, in Stanford's prompt text."""

from fmtkit.columns import Text
from fmtkit.instructions import INSTRUCT, STANFORD, answered, introduced
from fmtkit.registry import converter
from fmtkit.tables import Segments


@converter(name="oasst", text=True)
def instruct(INSTRUCTION: Text, RESPONSE: Text) -> Segments:  # noqa: N803 - the columns' own names
    """https://docs.axolotl.ai/docs/dataset-formats/inst_tune.html#oasst."""
    return answered(INSTRUCT, INSTRUCTION, RESPONSE, system=introduced(STANFORD))
