"""Fits: how well a converter reads the rows of a sample, and what it would leave unread."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import field
from functools import cache
from typing import Any

import polars as pl

from fmtkit.core.codes import WARNINGS
from fmtkit.core.data_classes import dataclass
from fmtkit.core.escaping import counted
from fmtkit.core.tables import Prompt
from fmtkit.detection.near_misses import SPEAKERS, likeness, speakers, spelled
from fmtkit.detection.unread_columns import OpenColumn, in_words
from fmtkit.formats import registry, type_options
from fmtkit.formats.registry import Converter
from fmtkit.reading.binding import Binding, bind, watching
from fmtkit.reading.bound_column import MEDIA, Row
from fmtkit.reading.lost_turns import watched
from fmtkit.rows.joined_rows import joined, lacks
from fmtkit.stages.conversion import Converted, convert_frame

TRUSTED = 0.5
"""Share of valid rows below which a type hardly fits the file."""
PLAIN = 0.9
"""Share of rows that must have text for plain text to be detected."""
HARDLY = 0.2
"""Share of valid rows below which a type does not fit, whatever it reads."""
GENERIC = frozenset(
    {
        "default",
        "implicit_prompt",
        "judged_replies",
        "passthrough",
        "question_answer",
        "text",
        "user_defined.default",
    }
)
LATE = frozenset({"Reference", "Tokens"})
WRITTEN = frozenset({"Segments"})
"""Tables of types that fix a prompt's text: types that make messages are preferred."""
WRITTEN_LIKENESS = 0.98
"""What a type that fixes a prompt's text counts for: less than messages by names that differ in case only."""
NAMED, ASSUMED, UNKNOWN = "named", "assumed", "unknown"
ASSUMPTIONS = ("unconfirmed_reply", "unjudged_replies")
"""Warnings of a converter that chose without evidence."""
INDIFFERENT = frozenset({"no_preference"})
"""Codes of rows that are read rightly and make nothing: a tie."""
FEW_ROWS = 0.1
"""Share of rows up to which they do not count."""


@dataclass(frozen=True)
class Fit:
    """How well a converter fits the rows of a sample."""

    converter: Converter
    missing: tuple[str, ...]
    """Required columns that no row has, as the converter names them."""
    sound: float
    """Share of the rows in which nothing is wrong with a column's shape."""
    used: int
    """Columns of the converter that the rows have."""
    weight: float
    """The same, weighted: a column that many types know (`question`) counts less, and so does one that
    few rows have: a stray row is not evidence."""
    foreign: int
    """Columns of the rows that the converter does not read."""
    shaped: float = 0.0
    """Share of the rows whose columns hold the right kinds of value, whatever else is wrong."""
    unread: tuple[str, ...] = ()
    """Columns with turns, answers, labels or a system prompt that the converter would leave unread."""
    mapping: Mapping[str, str] = field(default_factory=dict)
    """Parameter -> path, of columns that are read under a different name."""
    options: Mapping[str, str] = field(default_factory=dict)
    """Options of the type by which its messages are read."""
    open: tuple[OpenColumn, ...] = ()
    """Columns that the converter does not read and that could hold something to train on."""
    assumed: tuple[str, ...] = ()
    """Warnings of more than a few rows that say that the converter assumes something (`ASSUMPTIONS`)."""
    loses_conversations: bool = False
    """Whether whole conversations are among the turns that it would leave unread."""
    refused: float = 0.0
    """Share of the rows that have the right kinds of values and are refused; a tie is none of them."""
    by_values: bool = False
    """Whether values alone say what the columns are: another reading is possible."""
    speakers: str = NAMED
    """Whether who speaks is said, or guessed: a list of texts does not say it."""

    @property
    def reason(self) -> str:
        """Return in words why the converter fits, or does not."""
        if self.missing:
            return f"no column {', '.join(self.missing)}"
        lost = f", but {', '.join(self.unread)} would not be read" if self.unread else ""
        others = [one for one in self.open if one.name not in self.unread]
        lost += f"; {in_words(others)}" if others else ""
        assumed = "are all the user's" if self.converter.makes is Prompt else "alternate"
        lost += "" if self.speakers == NAMED else f"; that the texts {assumed} is an assumption"
        renamed = [f"{path} as {name}" for name, path in self.mapping.items()]
        named = ", ".join([*renamed, *(f"{name} {value}" for name, value in self.options.items())])
        lost += "".join(f"; {WARNINGS[code]}" for code in self.assumed)
        return (
            f"{counted(self.used, 'column')} fit{'s' * (self.used == 1)} in {self.sound:.0%} of the rows"
            + (f", with {named}" if named else "")
            + lost
        )

    @property
    def is_narrow(self) -> bool:
        """Return whether only one method trains on what it makes, or it keeps everything but a prompt."""
        made = self.converter.table
        if self.converter.name == "passthrough":
            return made == "Prompt"
        return made in LATE

    @property
    def generality(self) -> int:
        """Return how unspecific a fit is: 0 for the most specific type."""
        if self.is_written:
            return 3
        return 2 if self.converter.name == "passthrough" else int(self.converter.name in GENERIC)

    @property
    def is_renamed(self) -> bool:
        """Return whether columns, or what messages are made of, are read under other names."""
        return bool(self.mapping or self.options)

    @property
    def has_threshold(self) -> bool:
        """Return whether it makes labels of scores: which of them are good enough is an assumption."""
        return "threshold" in self.converter.options

    @property
    def is_written(self) -> bool:
        """Return whether it fixes the prompt's text, which a template would choose for messages."""
        return self.converter.table in WRITTEN

    @property
    def is_good(self) -> bool:
        """Return whether it reads all that carries turns, of most rows."""
        return not self.missing and self.sound >= TRUSTED and not self.unread

    def rank(self) -> tuple[int | float | str, ...]:
        """Order fits, best first: fits that leave no turns unread, that need no renamed columns,
        that use most columns, for which most rows are valid.

        A generic type comes after a specific one, and tables that only one method
        trains on after the others. That half of the rows are invalid counts against a type, a
        few bad rows do not.
        """
        return (
            len(self.missing),
            self.sound < HARDLY,
            bool(self.unread),
            self.is_narrow,
            len(self.options),
            -renamed_likeness(self.mapping) if not self.is_written else -WRITTEN_LIKENESS,
            self.sound < TRUSTED,
            self.loses_conversations,
            len(self.unread),
            bool(self.assumed) or self.has_threshold,
            self.generality,
            -round(self.weight, 3),
            -round(self.sound, 2),
            self.foreign,
            self.converter.name.startswith("chat_template."),
            # Among types that read the same, the usual one has more names.
            -len(self.converter.aliases),
            self.converter.name,
        )


def fit(
    converter: Converter,
    sample: Sequence[Row],
    mapping: Mapping[str, str] | None = None,
    options: Mapping[str, str] | None = None,
) -> Fit:
    """Return how a converter fits the rows; `options` are those of the type that spell messages."""
    if converter.rows_by:
        by = converter.joins_by(options or {})
        if lacks(sample, by):
            return Fit(converter, (by,), 0.0, 0, 0.0, 0)
        sample = joined(sample, by, whole_file=converter.whole_file)
    read = spelled(converter, options or {})
    told = type_options.resolve(converter, {}, options).values if options else converter.options
    binding = bind(read, sample, mapping=mapping or {}, options=told)
    missing = missing_columns(binding, sample)
    if missing or not sample:
        return Fit(converter, tuple(missing), 0.0, 0, 0.0, 0)
    shaped = [row for row in sample if not binding.judge(row)]
    done = _tried(binding, shaped, sample)
    sound = (len(shaped) - len({number for number, _ in done.bad})) / len(sample)
    refused = {number for number, problem in done.bad if problem.code not in INDIFFERENT}
    few = FEW_ROWS * len(shaped)
    assumed = tuple(code for code in ASSUMPTIONS if done.warnings[code] > few)
    there = Counter(key for row in sample for key, value in row.items() if value is not None)
    used = [column.path[0] for column in binding.columns if column.path and column.top in there]
    foreign = set(there) - {column.top for column in binding.columns}
    known = _known_by(len(registry.converters()))
    weight = sum(there[name] / len(sample) / max(known.get(name, 1), 1) for name in used)
    share = len(shaped) / len(sample)
    renamed, chosen = dict(mapping or {}), dict(options or {})
    return Fit(
        converter,
        (),
        sound,
        len(used),
        weight,
        len(foreign),
        share,
        tuple(done.unread),
        renamed,
        chosen,
        assumed=assumed,
        refused=len(refused) / len(sample),
        loses_conversations=any(
            _is_answered(row.get(name)) for name in done.unread for row in shaped[:1]
        ),
    )


def _tried(binding: Binding, rows: Sequence[Row], sample: Sequence[Row]) -> Converted:
    """Convert the rows whose shapes are right, and look whether columns of turns are left unread.

    Shapes alone do not distinguish a transcript from other text.
    """
    if not rows:
        return Converted(pl.DataFrame(), [], Counter(), Counter())
    if not binding.converter.takes_rows:
        read = {column.top for column in binding.columns} | binding.converter.harmless
        turns = watched(sample, {*filter(None, read), *MEDIA}, late=False)
        binding = watching(binding, turns)
    return convert_frame(binding.frame(rows, range(len(rows))), binding)


def _is_answered(value: Any) -> bool:
    """Return whether a value is a list of messages in which somebody replies."""
    said = speakers(value)
    return len(said) > 1 and any(SPEAKERS.get(name.lower()) == "assistant" for name in said)


@cache
def _known_by(types: int) -> Counter[str]:  # noqa: ARG001
    """Return by how many types each column is known; `types` counts the converters, plugins too."""
    counted = (c for c in registry.converters() if c.table not in WRITTEN)
    uses = {(c.name, c.path(p).partition(".")[0]) for c in counted for p in c.columns}
    return Counter(column for _, column in uses)


def missing_columns(binding: Binding, sample: Sequence[Row]) -> list[str]:
    """Return the required columns that no row of the sample has a key for."""
    missing = [
        column.label
        for column in binding.columns
        if column.required and not any(has_path(row, column.path) for row in sample)
    ]
    columns = {column.name: column for column in binding.columns}
    for group in binding.converter.any_of:
        paths = [columns[name].path for name in group]
        if not any(has_path(row, path) for row in sample for path in paths):
            missing.append(" or ".join(".".join(path) for path in paths))
    return missing


def has_path(row: Any, path: tuple[str, ...]) -> bool:
    """Return whether a row has a key at a path; its value may be null."""
    for key in path:
        if not isinstance(row, Mapping) or key not in row:
            return False
        row = row[key]
    return True


def needs_tokenizer(found: Fit) -> bool:
    """Return whether a type makes tokens of text."""
    return found.converter.table == "Tokens" and found.converter.name != "passthrough"


def renamed_likeness(mapping: Mapping[str, str]) -> float:
    """Return the lowest name similarity of the renamed columns; 2 if none is renamed."""
    return min((likeness(name, path) for name, path in mapping.items()), default=2.0)
