"""Which contents a template left out, wholly or in part, found from a symbolic rendering."""

from collections.abc import Collection, Iterable
from dataclasses import field

import numpy as np

from fmtkit.columns import thinking
from fmtkit.core.buffers import Bools, Int64s
from fmtkit.core.data_classes import dataclass
from fmtkit.core.message_keys import REASONING_KEYS, SPOKEN
from fmtkit.rendering.batch_answers import BatchContents, Unknowns
from fmtkit.rendering.reply_cut import Problem
from fmtkit.rendering.tracing import Signature
from fmtkit.rendering.unknowns import FIRST, Derived, Slot, Unknown, evaluate, symbolic

KEEPING = frozenset(
    {
        "strip",
        "lstrip",
        "rstrip",
        "upper",
        "lower",
        "title",
        "capitalize",
        "swapcase",
        "casefold",
        "expandtabs",
        "json",
    }
)
"""Operations after which the text can still be found."""

STRIP = ("strip", None)

REPLY_LOST = Problem("template_error", "the template leaves out the reply")
ALL_LOST = Problem("template_error", "the template leaves out every text of the conversation")


@dataclass
class Occurrences:
    """How the contents occur in a string."""

    whole: set[Slot] = field(default_factory=set)
    pieces: dict[Slot, list[Unknown]] = field(default_factory=dict)
    separators: set[str] = field(default_factory=set)


def find(text: str, unknowns: Unknowns) -> Occurrences:
    """Return which slots a string holds, and of which it holds pieces."""
    found = Occurrences()
    for symbol in dict.fromkeys(c for c in text if symbolic(c)):
        unknown = unknowns[ord(symbol) - FIRST]
        _search(unknown, unknown, unknowns, found, whole=True)
    return found


def _search(
    top: Unknown, unknown: Unknown, unknowns: Unknowns, found: Occurrences, *, whole: bool
) -> None:
    if isinstance(unknown, Slot):
        if whole:
            found.whole.add(unknown)
        else:
            found.pieces.setdefault(unknown, []).append(top)
        return
    if unknown.operation == "part":
        found.separators.add(unknown.arguments[1])
    found.separators.update(_removed(unknown))
    for symbol in unknown.text:
        if symbolic(symbol):
            inner = unknowns[ord(symbol) - FIRST]
            keeps = whole and unknown.operation in KEEPING
            _search(top, inner, unknowns, found, whole=keeps)


def _removed(unknown: Derived) -> list[str]:
    """Return the words that an operation takes away on purpose."""
    if unknown.operation in {"replace", "removeprefix", "removesuffix"}:
        return [unknown.arguments[0]]
    return []


def spoken(signature: Signature, conversations: Iterable[int]) -> list[Slot]:
    """Return the slots of some conversations whose text should occur."""
    return [
        Slot(conversation, message, key)
        for conversation in conversations
        for message, shape in enumerate(signature[conversation])
        for key in shape.keys
        if key in SPOKEN
    ]


def absent(slot: Slot, found: Occurrences, rows: BatchContents, chosen: Int64s) -> Bools:
    """Return the rows whose text of the slot does not occur."""
    if slot in found.whole or slot in found.pieces:
        return np.zeros(len(chosen), np.bool_)
    return rows.column(slot).nonempty((STRIP,))[rows.places(slot, chosen)]


def silenced(
    slots: Iterable[Slot], found: Occurrences, rows: BatchContents, chosen: Int64s
) -> Bools:
    """Return which rows have texts in the slots, all of which are lost."""
    said, kept = np.zeros(len(chosen), np.bool_), np.zeros(len(chosen), np.bool_)
    for slot in slots:
        printed = rows.column(slot).nonempty((STRIP,))[rows.places(slot, chosen)]
        said |= printed
        if slot in found.whole or slot in found.pieces:
            kept |= printed
    return said & ~kept


def refusal(said: Iterable[Slot], lost: Collection[Slot]) -> Problem | None:
    """Return why a row is refused that lost some of the slots in which it has text.

    A content in parts has a slot for each part (see `part_slot`); some of them may be lost.
    """
    kept = set(said) - set(lost)
    messages = {(slot.conversation, slot.message) for slot in kept if is_content(slot)}
    if any(
        s.conversation and is_content(s) and (s.conversation, s.message) not in messages
        for s in lost
    ):
        return REPLY_LOST
    conversations = {slot.conversation for slot in kept}
    return ALL_LOST if any(slot.conversation not in conversations for slot in lost) else None


def part_slot(conversation: int, message: int, part: int) -> Slot:
    """Return the slot of one part of a content."""
    return Slot(conversation, message, f"content[{part}]")


def is_content(slot: Slot) -> bool:
    """Return whether a slot is a content, or a part of one."""
    return slot.key.startswith("content")


COMPLETE, INCOMPLETE, THOUGHTLESS = range(3)


def incomplete(
    slot: Slot, found: Occurrences, unknowns: Unknowns, rows: BatchContents, chosen: Int64s
) -> Int64s:
    """Return for which rows only a part of the slot's text occurs: all but its thinking, or less."""
    if slot in found.whole or slot not in found.pieces:
        return np.zeros(len(chosen), np.int64)
    known = list(unknowns)
    lost = []
    for row in chosen.tolist():
        texts = rows.texts(known, row)
        pieces = {evaluate(piece, known, texts) for piece in found.pieces[slot]}
        written = sum(_ink(piece, found.separators) for piece in pieces)
        said = texts[slot]
        if written >= _ink(said, found.separators):
            lost.append(COMPLETE)
        else:
            answer = _ink(thinking.without_blocks(said), found.separators)
            lost.append(THOUGHTLESS if answer and written >= answer else INCOMPLETE)
    return np.array(lost, np.int64)


def is_reasoning(slot: Slot) -> bool:
    """Return whether a slot is the reasoning of a message."""
    return slot.key == REASONING_KEYS[0]


def _ink(text: str, separators: set[str]) -> int:
    """Count what is printed, without the separators at which the text was split."""
    for separator in separators:
        text = text.replace(separator, "")
    return sum(map(len, text.split()))
