"""Inputs of the token stage: conversations or texts that are not tokenized yet.

Converters of strided EBFT return them; they are internal to a conversion.
"""

from typing import ClassVar

import pyarrow as pa

from fmtkit.columns.problems import Column
from fmtkit.core.data_classes import dataclass
from fmtkit.core.tables import Table

TRAINED_PARTS = ("every", "last", "answer")


class Untokenized(Table):
    """A table that becomes Tokens."""

    @classmethod
    def name(cls) -> str:
        """Return the name of the table that it becomes."""
        return "Tokens"


@dataclass(frozen=True)
class Document(Untokenized):
    """A conversation, and which part of it is trained on: every assistant turn, the last, or its answer."""

    messages: Column
    trained: Column
    """One of `TRAINED_PARTS`, in every row."""
    others: ClassVar[dict[str, pa.DataType]] = {"trained": pa.string()}


@dataclass(frozen=True)
class Answer(Untokenized):
    """A prompt as a conversation, and the text of the answer, which is trained on."""

    messages: Column
    answer: Column
    others: ClassVar[dict[str, pa.DataType]] = {"answer": pa.string()}


@dataclass(frozen=True)
class Continuation(Untokenized):
    """A text as context, and its continuation, which is trained on."""

    context: Column
    continuation: Column
    others: ClassVar[dict[str, pa.DataType]] = {"context": pa.string(), "continuation": pa.string()}
