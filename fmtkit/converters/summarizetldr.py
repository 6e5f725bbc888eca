"""An article and its summary, which a user turn asks for."""

from fmtkit.columns import Text
from fmtkit.columns.instructions import Style, answered
from fmtkit.core.tables import Segments
from fmtkit.formats.registry import converter

_ASKED = "USER: Summarize the following article as a TL;DR.\n{instruction}\nASSISTANT:"


@converter(text=True)
def summary(article: Text, summary: Text) -> Segments:
    """https://docs.axolotl.ai/docs/dataset-formats/inst_tune.html#summarizetldr."""
    return answered(Style(_ASKED, _ASKED, ""), article, summary)
