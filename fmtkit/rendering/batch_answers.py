"""Evaluates the conditions and derived strings of a trace for all rows of a batch at once.

Most conditions are on a content, unchanged or trimmed: those are evaluated on the column's bytes. The others
(parts of a split, replaced text, two contents compared) are evaluated row by row in Python.
"""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from fmtkit.core.buffers import Bools, Int64s
from fmtkit.rendering.conversation_columns import ConversationColumn
from fmtkit.rendering.text_columns import TextColumn, Trim
from fmtkit.rendering.unknowns import (
    FIRST,
    SMALL_JSON,
    Derived,
    Question,
    Slot,
    Unknown,
    answer,
    evaluate,
    expand,
    slots_of,
    symbolic,
)

Unknowns = Sequence[Unknown]

TRIMS = frozenset({"strip", "lstrip", "rstrip"})


class BatchContents:
    """The contents of the rows of a batch, by slot."""

    def __init__(self, conversations: Sequence[ConversationColumn]) -> None:
        """Take the columns; answers for a column are cached."""
        self.conversations = conversations
        self._answers: dict[tuple[Any, ...], Bools] = {}
        self._known: dict[Slot, dict[int, str]] = {}

    def column(self, slot: Slot) -> TextColumn:
        """Return the column of a slot's strings."""
        return self.conversations[slot.conversation].column(slot.key)

    def places(self, slot: Slot, rows: Int64s) -> Int64s:
        """Return the indices of a slot's strings in its column."""
        conversation = self.conversations[slot.conversation]
        return conversation.places(slot.key, conversation.starts[rows] + slot.message)

    def text(self, slot: Slot, row: int) -> str:
        """Return the string of a slot in a row."""
        return self.column(slot).text(int(self.places(slot, _one(row))[0]))

    def texts(self, unknowns: Unknowns, row: int) -> dict[Slot, str]:
        """Return the strings of a row for the slots among `unknowns`."""
        slots = [unknown for unknown in unknowns if isinstance(unknown, Slot)]
        return {slot: self.text(slot, row) for slot in slots}

    def every_text(self, row: int) -> dict[Slot, str]:
        """Return all strings of a row by slot."""
        found = {}
        for number, conversation in enumerate(self.conversations):
            for message, shape in enumerate(conversation.shapes(row)):
                for key in shape.text_keys:
                    slot = Slot(number, message, key)
                    found[slot] = self.text(slot, row)
        return found

    def answer(self, question: Question, unknowns: Unknowns, rows: Int64s) -> Bools:
        """Answer a question for these rows."""
        trimmed = trimmed_slot(question.text, unknowns)
        ask = _columnar(question) if trimmed else None
        if trimmed is None or ask is None:
            known = list(unknowns)
            slots = slots_of((question.text, *question.arguments), known)
            texts, places = self._distinct(slots, rows)
            answers = (answer(question, known, by_slot) for by_slot in texts)
            return np.fromiter(answers, np.bool_, len(texts))[places]
        slot, trims = trimmed
        column = self.column(slot)
        key = (id(column), trims, question.predicate, question.arguments)
        if key not in self._answers:
            self._answers[key] = ask(column, trims)
        return self._answers[key][self.places(slot, rows)]

    def _distinct(
        self, slots: Sequence[Slot], rows: Int64s
    ) -> tuple[list[dict[Slot, str]], Int64s]:
        """Return the distinct strings of rows by slot, and the index of each row's.

        Rows with the same tools share them.
        """
        if len(slots) != 1:
            found = [{slot: self.text(slot, row) for slot in slots} for row in rows.tolist()]
            return found, np.arange(len(rows))
        places, inverse = np.unique(self.places(slots[0], rows), return_inverse=True)
        column, known = self.column(slots[0]), self._known.setdefault(slots[0], {})
        found = []
        for place in places.tolist():
            text = known.get(place)
            if text is None:
                text = column.text(place)
                if len(text) <= SMALL_JSON:
                    known[place] = text
            found.append({slots[0]: text})
        return found, inverse

    def expand(self, text: str, unknowns: Unknowns, row: int) -> str:
        """Return a symbolic string with the strings of a row in it."""
        return expand(text, list(unknowns), self.texts(unknowns, row))

    def values(
        self, unknown: Derived, unknowns: Unknowns, rows: Int64s
    ) -> tuple[list[str], Int64s]:
        """Evaluate an unknown for these rows; return its distinct values, and the index of each row's."""
        known = list(unknowns)
        slots = slots_of((unknown.text, *unknown.arguments), known)
        texts, places = self._distinct(slots, rows)
        return [evaluate(unknown, known, by_slot) for by_slot in texts], places


def _one(row: int) -> Int64s:
    return np.array([row], np.int64)


def trimmed_slot(text: str, unknowns: Unknowns) -> tuple[Slot, tuple[Trim, ...]] | None:
    """Return the slot and the trims of a string that is one slot, trimmed or not; else None."""
    trims: list[Trim] = []
    while len(text) == 1 and symbolic(text):
        unknown = unknowns[ord(text) - FIRST]
        if isinstance(unknown, Slot):
            return unknown, tuple(reversed(trims))
        trim = _trim(unknown)
        if trim is None:
            return None
        trims.append(trim)
        text = unknown.text
    return None


def _trim(unknown: Derived) -> Trim | None:
    if unknown.operation not in TRIMS:
        return None
    characters = unknown.arguments[0] if unknown.arguments else None
    if characters is not None and symbolic(characters):
        return None
    return unknown.operation, characters


def _columnar(question: Question) -> Callable[[TextColumn, tuple[Trim, ...]], Bools] | None:
    """Return the function that evaluates a condition on a column; None if it must be done row by row."""
    predicate, arguments = question.predicate, question.arguments
    if predicate == "nonempty" or (predicate == "longer" and arguments[0] <= 1):
        return lambda column, trims: column.nonempty(trims)
    if predicate not in {"startswith", "endswith", "equals", "contains"} or len(arguments) != 1:
        return None
    other = arguments[0]
    if not isinstance(other, str) or symbolic(other):
        return None

    def ask(column: TextColumn, trims: tuple[Trim, ...]) -> Bools:
        found: Bools = getattr(column, predicate)(trims, other)
        return found

    return ask
