"""Questions about sources without a type: how their rows are read, and what their open columns are.

Each answer leads to a `Choice`, which says how the rows are read so far. A terminal asks
(`fmtkit.commands.asking`); nothing here waits for an answer.
"""

from collections.abc import Mapping, Sequence
from dataclasses import field, replace
from typing import Any

from fmtkit.core.data_classes import dataclass
from fmtkit.detection import certainty, detection
from fmtkit.detection.fits import Fit, fit
from fmtkit.detection.guessed_labels import label_fit
from fmtkit.detection.suggestions import is_kept, options_for, to_of, why_not_to
from fmtkit.detection.unread_columns import LABEL, SCORE, OpenColumn
from fmtkit.formats import registry
from fmtkit.options.convert_options import SourceOptions
from fmtkit.reading.bound_column import Row

MOST = 4
"""Readings of the rows that are offered."""


@dataclass(frozen=True)
class Layout:
    """What rows may be, in words, and the type and table that read them by named columns."""

    words: str
    type: str
    table: str
    columns: tuple[str, ...]


LAYOUTS = (
    Layout("a question and its answer", "question_answer", "Completion", ("question", "answer")),
    Layout(
        "a prompt with a better and a worse answer",
        "prompt_pairs",
        "Preference",
        ("prompt", "chosen", "rejected"),
    ),
    Layout(
        "a prompt, an answer, and whether it is good",
        "prompt_pairs",
        "Unpaired",
        ("prompt", "completion", "label"),
    ),
    Layout("a list of messages", "openai", "Conversation", ("messages",)),
    Layout("a text", "text", "Conversation", ("text",)),
)
"""What somebody may say that rows are, where no guess is right."""


@dataclass(frozen=True)
class Choice:
    """How rows are read: a fit, and what becomes of columns that it does not read."""

    fit: Fit
    keep: tuple[str, ...] = ()
    ignore: tuple[str, ...] = ()

    def made(self, sample: Sequence[Row], given: SourceOptions) -> dict[str, Any] | None:
        """Return the options of the conversion; None where none read the rows so."""
        return options_for(self.fit, sample, given, keep=self.keep, ignore=self.ignore)

    def open(self, given: SourceOptions) -> tuple[OpenColumn, ...]:
        """Return the columns of which nothing is said yet."""
        said = {*self.keep, *self.ignore}
        return tuple(o for o in self.fit.open if o.name not in said and not is_kept(o.name, given))


@dataclass(frozen=True)
class Question:
    """A question, its answers in words with the choice that each makes, and the place of the likely one.

    The likely answer is none of them where the place is their number.
    """

    words: str
    answers: Mapping[str, Choice] = field(default_factory=dict)
    likely: int = 0


def first_question(sample: Sequence[Row], given: SourceOptions) -> Question:
    """Ask how the rows are read: one answer for each type and table that fits them, the best first."""
    fits = detection.detect(sample, given.method)
    answers: dict[str, Choice] = {}
    named: set[tuple[str, str]] = set()
    for found in fits:
        key = found.converter.name, found.converter.table
        choice = Choice(found)
        if key in named or not found.is_good or why_not_to(found, given):
            continue
        if len(answers) < MOST and choice.made(sample, given) is not None:
            named.add(key)
            sure = f"{certainty.certainty(fits, sample)}: " if found is fits[0] else ""
            answers[f"{key[0]} -> {key[1]} ({sure}{found.reason})"] = choice
    # Where no guess is likely, Enter takes none: rows read wrongly are worse than one more question.
    is_likely = bool(answers) and certainty.certainty(fits, sample) != certainty.UNSURE
    return Question("How are the rows read?", answers, 0 if is_likely else len(answers))


def column_question(
    column: OpenColumn, choice: Choice, sample: Sequence[Row], given: SourceOptions
) -> Question:
    """Ask what an open column is: a label, if something says which values are good, or not needed."""
    answers: dict[str, Choice] = {}
    labeled = label_fit(choice.fit, column, sample)
    if labeled is not None:
        as_kto = replace(choice, fit=labeled[0])
        if as_kto.made(sample, given) is not None:
            answers[f"a label for KTO ({labeled[1]})"] = as_kto
    answers["not needed"] = replace(choice, ignore=(*choice.ignore, column.name))
    held = {name for row in sample for name in row}
    if column.name in held and to_of(given) is None:
        answers["something to carry through as it is"] = replace(
            choice, keep=(*choice.keep, column.name)
        )
    # A label or score beside what was read is more probably the point of the rows than of no use.
    is_label = column.could_be in (LABEL, SCORE) and len(answers) > 1
    likely = 0 if is_label or len(answers) == 1 else list(answers).index("not needed")
    values = ", ".join(column.values)
    return Question(
        f"{column.name} ({values}) could be {column.could_be}. What is it?", answers, likely
    )


def columns_of(sample: Sequence[Row]) -> list[str]:
    """Return the names of the columns, in the order in which they come."""
    return list(dict.fromkeys(name for row in sample for name in row))


def by_columns(layout: Layout, columns: Mapping[str, str], sample: Sequence[Row]) -> Choice | None:
    """Return the choice that reads rows by columns that somebody named; None where they do not hold it."""
    tried = [
        fit(converter, sample, {n: path for n, path in columns.items() if n != path})
        for converter in registry.converters_named(layout.type)
        if converter.table == layout.table and {*layout.columns} <= {*converter.columns}
    ]
    best = max(tried, key=lambda found: (not found.missing, found.sound), default=None)
    if best is None or best.missing or not best.sound:
        return None
    rest = detection.open_beside(best.converter, best.mapping, sample, best.options)
    return Choice(replace(best, open=rest))
