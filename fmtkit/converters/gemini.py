"""Gemini on Vertex AI: contents of a user and a model, each in parts, and a system instruction."""

from typing import Annotated, TypeAlias

import polars as pl

from fmtkit.columns import ABSENT, records
from fmtkit.columns.conversations import conversation, with_system
from fmtkit.columns.kinds import FlagKind, Kind, ListKind, NumberKind, RecordKind, TextKind
from fmtkit.columns.preference_cut import cut_pair, whole_with
from fmtkit.columns.problems import Column, Problem
from fmtkit.columns.record_turns import joined_texts, speaker, turn, turns
from fmtkit.core.tables import Conversation, Preference
from fmtkit.formats.registry import converter

ROLES = {"user": "user", "model": "assistant", "system": "system"}
OTHER_PARTS: dict[str, Kind] = {
    "functionCall": RecordKind({"name": TextKind()}, frozenset({"name"})),
    "functionResponse": RecordKind({"name": TextKind()}, frozenset({"name"})),
    "inlineData": RecordKind({"mimeType": TextKind()}, frozenset({"mimeType"})),
    "fileData": RecordKind({"mimeType": TextKind()}, frozenset({"mimeType"})),
    "executableCode": RecordKind({"language": TextKind()}, frozenset({"language"})),
    "codeExecutionResult": RecordKind({"outcome": TextKind()}, frozenset({"outcome"})),
    "thought": FlagKind(),
}
"""Parts that hold no text of a turn: a row that has one is refused by its name."""
PART_FIELDS = {"text": TextKind()} | OTHER_PARTS
PARTS = ListKind(RecordKind(PART_FIELDS, frozenset(PART_FIELDS)))
CONTENT = RecordKind({"role": TextKind(), "parts": PARTS})
Contents: TypeAlias = Annotated[Column, ListKind(CONTENT)]
Instruction: TypeAlias = Annotated[
    Column, RecordKind({"parts": records({"text": TextKind()}, optional=("text",))})
]
Completions: TypeAlias = Annotated[Column, records({"score": NumberKind(), "completion": CONTENT})]


@converter(wide=True)
def chat(
    contents: Contents,
    systemInstruction: Instruction = ABSENT,  # noqa: N803
    system_instruction: Instruction = ABSENT,
) -> Conversation:
    """https://cloud.google.com/vertex-ai/generative-ai/docs/models/gemini-supervised-tuning-prepare."""
    return conversation(_context(contents, systemInstruction, system_instruction))


@converter(wide=True)
def preference(
    contents: Contents,
    completions: Completions,
    systemInstruction: Instruction = ABSENT,  # noqa: N803
    system_instruction: Instruction = ABSENT,
) -> Preference:
    """https://cloud.google.com/vertex-ai/generative-ai/docs/models/gemini-preference-tuning-prepare.

    The completion with the higher score is the better one.
    """
    context = _context(contents, systemInstruction, system_instruction).once("__context")
    score, said = (pl.element().struct.field(name) for name in ("score", "completion"))
    ordered = completions.value.list.eval(pl.element().sort_by(score, descending=True))
    scores = ordered.list.eval(score)
    count = Problem(
        "value_error",
        "completions",
        completions.value.list.len() != 2,
        "there are not two completions, a better and a worse one",
    )
    same = Problem(
        "no_preference",
        None,
        scores.list.first() == scores.list.last(),
        "both completions have the same score",
    )
    replies = completions.with_value(ordered.list.eval(said), count, same).once("__replies")
    spoken = _spoken(replies, "completions")
    better = spoken.with_value(spoken.value.list.head(1)).once("__chosen")
    worse = spoken.with_value(spoken.value.list.tail(1)).once("__rejected")
    return cut_pair(whole_with(context, better, "chosen"), whole_with(context, worse, "rejected"))


def _context(contents: Column, camel: Column, snake: Column) -> Column:
    """Make messages of contents, and put the system instruction before them."""
    given = pl.coalesce(one.value.struct.field("parts") for one in (camel, snake))
    text = joined_texts(given, pl.element().struct.field("text"))
    system = Column(text).depending_on(camel, snake)
    return with_system(system, _spoken(contents, "contents"))


def _spoken(contents: Column, name: str) -> Column:
    parts, part = pl.element().struct.field("parts"), pl.element().struct.field
    message = turn(
        speaker(pl.element().struct.field("role"), ROLES), joined_texts(parts, part("text"))
    )
    others = [
        Problem(
            "unsupported",
            f"{name}[].parts",
            contents.value.list.eval(parts.list.eval(_holds(kind)).list.any()).list.any(),
            f"{name} has a part of type {kind}; this type reads text only",
        )
        for kind in OTHER_PARTS
    ]
    return turns(contents, message, name, *others)


def _holds(kind: str) -> pl.Expr:
    held = pl.element().struct.field(kind)
    return held.fill_null(value=False) if kind == "thought" else held.is_not_null()
