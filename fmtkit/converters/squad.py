"""Questions about a passage whose answers are parts of it, with the places where they begin: SQuAD."""

from typing import Annotated, TypeAlias

from fmtkit.columns import Text
from fmtkit.columns.conversations import messages_of, with_context
from fmtkit.columns.kinds import ListKind, RecordKind, TextKind
from fmtkit.columns.problems import Column, Problem
from fmtkit.core.tables import Completion
from fmtkit.formats.registry import converter

Answers: TypeAlias = Annotated[Column, RecordKind({"text": ListKind(TextKind())})]


@converter(harmless=("title",))
def completion(question: Text, context: Text, answers: Answers) -> Completion:
    """https://huggingface.co/datasets/rajpurkar/squad; the passage follows the question on a new line.

    The reply is the first answer; a question that has none (SQuAD 2) is a bad row.
    """
    texts = answers.value.struct.field("text")
    first = texts.list.get(0, null_on_oob=True)
    none = Problem("empty_field", "answers.text", first.is_null(), "the question has no answer")
    reply = answers.with_value(first, none)
    return Completion(
        messages_of(user=with_context(question, context)), messages_of(assistant=reply)
    )
