"""A question with its choices, and the answer to it or an explanation, as axolotl's types have them."""

import polars as pl

from fmtkit.columns import ABSENT, Text, Texts, first_filled
from fmtkit.columns.instructions import CHAT, Style, answered, style_of
from fmtkit.columns.problems import Column, literal
from fmtkit.core.tables import Segments
from fmtkit.formats.registry import converter

_EXPLAIN = "Choose the answer that best answers the question. Explain your reasoning.\n"
_CONCISE = "Choose the answer that best answers the question. Be concise in your response.\n\n"
_ASKED = Style(CHAT.format, CHAT.no_input_format, "{system}")


@converter(name="explainchoice", text=True, any_of=[("solution", "explanation")])
def explained(
    question: Text,
    choices: Texts,
    solution: Text = ABSENT,
    explanation: Text = ABSENT,
    *,
    style: str = "instruct",
) -> Segments:
    """https://docs.axolotl.ai/docs/dataset-formats/inst_tune.html#explainchoice."""
    answer = first_filled(solution=solution, explanation=explanation)
    system = literal(_EXPLAIN)
    return answered(style_of(style), question, answer, input=_listed(choices), system=system)


@converter(name="concisechoice", text=True, any_of=[("solution", "explanation")])
def concise(
    question: Text, choices: Texts, solution: Text = ABSENT, explanation: Text = ABSENT
) -> Segments:
    """https://docs.axolotl.ai/docs/dataset-formats/inst_tune.html#concisechoice."""
    answer = first_filled(solution=solution, explanation=explanation)
    return answered(_ASKED, question, answer, input=_listed(choices), system=literal(_CONCISE))


def _listed(choices: Column) -> Column:
    """Write each choice in quotes after a dash, on a line of its own."""
    quoted = choices.value.list.eval(pl.concat_str([pl.lit('- "'), pl.element(), pl.lit('"')]))
    return choices.with_value(quoted.list.join("\n"))
