"""Questions about a text that comes before them, in the prompt texts of axolotl's `context_qa`."""

import polars as pl

from fmtkit.columns import Text
from fmtkit.columns.instructions import CHAT, answered, trained_output
from fmtkit.columns.problems import Column, literal
from fmtkit.core.tables import Segments
from fmtkit.formats.registry import converter

_SYSTEM = "Use the following contextual information to concisely answer the question.\n"
_UNKNOWN = (
    "The context provided does not contain any information about your inquiry. Therefore, I'm "
    "unable to answer your question based on the given context."
)


@converter(text=True)
def article(article: Text, question: Text, answer: Text) -> Segments:
    """https://docs.axolotl.ai/docs/dataset-formats/inst_tune.html#context_qa."""
    return answered(CHAT, _about(article, question), answer, system=literal(_SYSTEM))


@converter(name="context_qa.load_404", text=True)
def unanswerable(article: Text, unanswerable_question: Text) -> Segments:
    """https://docs.axolotl.ai/docs/dataset-formats/inst_tune.html#context_qa.load_404."""
    asked = _about(article, unanswerable_question)
    return answered(CHAT, asked, literal(_UNKNOWN), system=literal(_SYSTEM))


@converter(name="context_qa.load_v2", text=True)
def labelled(context: Text, question: Text, answer: Text) -> Segments:
    """https://docs.axolotl.ai/docs/dataset-formats/inst_tune.html#context_qa.load_v2."""
    asked = [pl.lit("Context: "), context.value, pl.lit("\nQuestion: "), question.value]
    prompt = Column(pl.concat_str([*asked, pl.lit("\n")])).depending_on(context, question)
    return trained_output(
        prompt, answer.with_value(pl.concat_str([pl.lit("Answer: "), answer.value]))
    )


def _about(article: Column, question: Column) -> Column:
    both = pl.concat_str([article.value, pl.lit("\n===\n"), question.value])
    return Column(both).depending_on(article, question)
