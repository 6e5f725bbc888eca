"""What the token stage makes Tokens of: dialogs or texts, before they meet a tokenizer.

A converter of strided EBFT yields one of these; a user never sees them.
"""

from dataclasses import dataclass
from typing import ClassVar

import pyarrow as pa

from fmtkit.columns.problems import Column
from fmtkit.core.tables import Table

LEARNT = ("every", "last", "answer")


class Untokenized(Table):
    """A table that becomes Tokens."""

    @classmethod
    def name(cls) -> str:
        """Return the name of the table that it becomes."""
        return "Tokens"


@dataclass(frozen=True)
class Document(Untokenized):
    """A conversation, and what is trained on of it: every assistant turn, the last, its answer."""

    messages: Column
    learnt: Column
    """One of `LEARNT`, in every row."""
    others: ClassVar[dict[str, pa.DataType]] = {"learnt": pa.string()}


@dataclass(frozen=True)
class Answer(Untokenized):
    """A conversation that asks for an answer, and the answer's text, which is trained on."""

    messages: Column
    answer: Column
    others: ClassVar[dict[str, pa.DataType]] = {"answer": pa.string()}


@dataclass(frozen=True)
class Continuation(Untokenized):
    """A text, and the text after it that is trained on."""

    context: Column
    continuation: Column
    others: ClassVar[dict[str, pa.DataType]] = {"context": pa.string(), "continuation": pa.string()}
