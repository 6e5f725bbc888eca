"""What values tell of answers: of an instruction the label is one, and of samples not all are right.

A label is the answer to an instruction that all rows share. Of replies with a pass rate nobody says which are
right: their prompts are what can be trained on, by the answer beside them.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from fmtkit.columns.known_words import BAD, GOOD, SUCCESS_WORDS
from fmtkit.detection.fits import Fit, fit
from fmtkit.detection.near_misses import asks
from fmtkit.detection.unread_columns import TEXTS, open_columns
from fmtkit.formats import registry
from fmtkit.formats.registry import Converter
from fmtkit.reading.bound_column import Row
from fmtkit.reading.lost_turns import words_of

LABELS = ("label", "labels")
SHARED = 8
"""Characters with which all texts begin or end, from which on they are an instruction."""
ASKED = ("prompt", "question", "instruction", "problem")


def without_samples(found: Fit, sample: Sequence[Row]) -> Fit:
    """Return a fit that reads only the prompts, in place of one whose replies are not all right.

    A pass rate beside them says how many, and not which; the answer that they are judged by is carried along.
    """
    if found.missing or found.converter.name != "sampled_replies" or not _are_partly_right(sample):
        return found
    held = _names(sample)
    asked = [found.mapping.get(name, name) for name in ASKED]
    paths = [
        name for name in asked if name in held and any(isinstance(r.get(name), str) for r in sample)
    ]
    if len(paths) != 1:
        return found
    (prompts,) = (
        c for c in registry.converters_named("passthrough") if c.table == "Prompt" and c.text
    )
    made = fit(prompts, sample, {"prompt": paths[0]} if paths[0] != "prompt" else {})
    # Nothing is lost: every other column is carried along.
    return replace(made, unread=())


def _are_partly_right(sample: Sequence[Row]) -> bool:
    """Return whether a number beside replies says that of those of a row only some are right."""
    rates = [name for name in _names(sample) if SUCCESS_WORDS & {*words_of(name)}]
    numbers = [row.get(name) for row in sample for name in rates]
    return any(isinstance(number, float) and not number.is_integer() for number in numbers)


def answers_by_label(converters: Sequence[Converter], sample: Sequence[Row]) -> list[Fit]:
    """Read a text named as what is asked, and a text named as a label, as a question and its answer.

    An instruction to classify or to extract, the same in all rows, has its result there; without one the
    label is a class. Words of praise or blame judge something, and answer nothing.
    """
    told = [n for n in _names(sample) if words_of(n)[-1:] and words_of(n)[-1] in LABELS]
    held = open_columns(sample, (), beside="messages")
    asked = [one.name for one in held if one.is_grave and one.could_be in TEXTS and asks(one.name)]
    others = {one.name for one in held if one.is_grave} - {*told, *asked}
    if len(told) != 1 or len(asked) != 1 or others:
        return []
    answers = [row.get(told[0]) for row in sample]
    if not _share_instruction([row.get(asked[0]) for row in sample]) or not _are_words(answers):
        return []
    taking = [
        c for c in converters if {"question", "answer"} <= c.columns.keys() and not c.required
    ]
    mapping = {"question": asked[0], "answer": told[0]}
    tried = (fit(c, sample, mapping) for c in taking if c.table == "Completion")
    return [found for found in tried if found.is_good][:1]


def _are_words(values: Sequence[Any]) -> bool:
    """Return whether all values are texts, some of them words, and none of praise or blame."""
    texts = {value.strip().lower() for value in values if isinstance(value, str)}
    is_text = all(isinstance(value, str) for value in values)
    return is_text and any(map(str.isalpha, "".join(texts))) and not texts & (GOOD | BAD)


def _share_instruction(values: Sequence[Any]) -> bool:
    """Return whether different texts begin, or end, with the same characters."""
    texts = list(dict.fromkeys(value for value in values if isinstance(value, str)))
    heads, tails = (
        {text[place] for text in texts} for place in (slice(SHARED), slice(-SHARED, None))
    )
    return len(texts) > 1 and (len(heads) == 1 or len(tails) == 1)


def _names(sample: Sequence[Row]) -> list[str]:
    return list(dict.fromkeys(name for row in sample for name in row))
