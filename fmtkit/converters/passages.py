"""A question, its answer, and several passages, which follow the question in the prompt."""

from typing import Annotated, TypeAlias

import polars as pl

from fmtkit.columns import Text, Texts, records
from fmtkit.columns.conversations import messages_of, with_context
from fmtkit.columns.kinds import ListKind, RecordKind, TextKind
from fmtkit.columns.problems import Column, Problem
from fmtkit.core.tables import Completion
from fmtkit.formats.registry import converter

Titled: TypeAlias = Annotated[
    Column,
    RecordKind({"title": ListKind(TextKind()), "sentences": ListKind(ListKind(TextKind()))}),
]
Paragraphs: TypeAlias = Annotated[
    Column, records({"title": TextKind(), "paragraph_text": TextKind()})
]
BETWEEN = "\n\n"
"""What stands between two passages."""


@converter(harmless=("supporting_facts", "type", "level"))
def titled(question: Text, context: Titled, answer: Text) -> Completion:
    """https://huggingface.co/datasets/hotpotqa/hotpot_qa; each passage has its title on a line above it."""
    titles = context.value.struct.field("title")
    texts = context.value.struct.field("sentences").list.eval(pl.element().list.join(""))
    is_ragged = titles.list.len() != texts.list.len()
    ragged = Problem(
        "length_mismatch", "context", is_ragged, "titles and sentences differ in length"
    )
    # Titles and texts in one list: two lists cannot be read together within it.
    both = pl.when(~is_ragged).then(pl.concat_list(titles, texts))
    half = pl.element().len() // 2
    whole = pl.concat_str(
        [pl.element().slice(0, half), pl.lit("\n"), pl.element().slice(half, half)]
    )
    return _asked(question, context.with_value(both.list.eval(whole), ragged), answer)


@converter(paths={"contexts": "context.contexts"})
def studied(question: Text, contexts: Texts, long_answer: Text) -> Completion:
    """https://huggingface.co/datasets/qiaojin/PubMedQA; the reply is the long answer."""
    return _asked(question, contexts, long_answer)


@converter(harmless=("question_decomposition",))
def decomposed(question: Text, paragraphs: Paragraphs, answer: Text) -> Completion:
    """https://github.com/StonyBrookNLP/musique; each paragraph has its title on a line above it."""
    title, text = (pl.element().struct.field(name) for name in ("title", "paragraph_text"))
    whole = paragraphs.value.list.eval(pl.concat_str([title, pl.lit("\n"), text]))
    return _asked(question, paragraphs.with_value(whole), answer)


def _asked(question: Column, passages: Column, answer: Column) -> Completion:
    """Make the completion of a question with its passages below it."""
    joined = passages.with_value(passages.value.list.join(BETWEEN))
    return Completion(
        messages_of(user=with_context(question, joined)), messages_of(assistant=answer)
    )
