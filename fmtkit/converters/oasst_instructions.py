"""Open Assistant as axolotl's `oasst` has it: INSTRUCTION and RESPONSE, in Stanford's prompt text."""

from fmtkit.columns import Text
from fmtkit.columns.instructions import STANFORD_SYSTEM_PROMPTS, answered, introduced, style_of
from fmtkit.core.tables import Segments
from fmtkit.formats.registry import converter


@converter(name="oasst", text=True)
def instruct(
    INSTRUCTION: Text,  # noqa: N803 - the columns' own names
    RESPONSE: Text,  # noqa: N803
    *,
    style: str = "instruct",
) -> Segments:
    """https://docs.axolotl.ai/docs/dataset-formats/inst_tune.html#oasst."""
    return answered(
        style_of(style), INSTRUCTION, RESPONSE, system=introduced(STANFORD_SYSTEM_PROMPTS)
    )
