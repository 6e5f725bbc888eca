"""Word problems: a body that tells what is given, the question about it, and its answer."""

import polars as pl

from fmtkit.columns import ABSENT, Text
from fmtkit.columns.conversations import messages_of
from fmtkit.core.tables import Completion
from fmtkit.formats.registry import converter


@converter()
def completion(body: Text, question: Text, answer: Text, system: Text = ABSENT) -> Completion:
    """https://github.com/arkilpatel/SVAMP, https://github.com/chaochun/nlu-asdiv-dataset."""
    both = pl.concat_str([body.value.str.strip_chars(), pl.lit("\n"), question.value])
    asked = question.with_value(both).depending_on(body)
    return Completion(messages_of(system=system, user=asked), messages_of(assistant=answer))
