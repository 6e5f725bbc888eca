"""Open columns: those that a type does not read and that could hold something to train on.

A column of a source is read, or its values show that it is harmless (ids, addresses, dates, names of
models, languages, lengths, equal in all rows, a copy of what was read), or it is open. The values decide,
whatever the column is called and in whatever language; a name only confirms what the values allow.
"""

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import pairwise
from typing import Any

from fmtkit.columns.kinds import ConversationKind
from fmtkit.columns.known_words import (
    BAD,
    GOOD,
    ID_WORDS,
    LANGUAGE_WORDS,
    LANGUAGES,
    LENGTH_WORDS,
    MODEL_WORDS,
    SCORE_WORDS,
    TIME_WORDS,
)
from fmtkit.core.data_classes import dataclass
from fmtkit.core.secret_keys import beginning, hidden
from fmtkit.core.tables import Preference, Ranking
from fmtkit.formats.registry import Converter
from fmtkit.reading.bound_column import MEDIA
from fmtkit.reading.lost_turns import decoded, looks_like_turns, texts_within, unspaced, words_of

Row = Mapping[str, Any]

LABEL, SCORE, TEXT = (
    "a label",
    "a score",
    "a turn, an answer, a context, reasoning or a system text",
)
WORDS = "a label, an answer or a short text"
TURNS, TOOLS, PARENT = "turns, an answer or a label", "tools", "the row that this one follows"
FILES = "a file of media"
TEXTS = frozenset({TEXT, TURNS})
"""What is compared with what was read, text by text; of all else any value counts."""
SCALE = 12
"""Most distinct values of a label or a rating."""
FEW = 3
"""Most distinct texts that are probably a label, and not a topic."""
MESSAGES = 400
"""Messages of a sample whose keys are judged."""
SHOWN = 4
"""Values of a column that are shown."""
PLACES = 9
"""The greatest place of a choice."""
RIGHT = frozenset({"answer", "label", "correct", "cop", "gold", "target", "key"})
"""Words in the name of the place of the right choice."""
LONG = 5
"""Words on average from which on texts are more than a title or a name."""
SHORT = 0.5
"""Share of the length of a text below which what stands beside it is a title of it, or a note."""
SPREAD = 0.35
"""Relative spread of what a length has for each character, up to which it is taken for a length."""
VECTOR = 24
"""Numbers in a list from which on it is a vector, or tokens, and not scores."""

_URL = re.compile(
    r"(?:[a-z][a-z0-9+.-]*://\S+|www\.\S+|10\.\d{4,}/\S+|[\w.+-]+@[\w-]+\.[\w.]+)$", re.IGNORECASE
)
_HEX = re.compile(r"[0-9a-f]{8,}$|[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f-]{20,}$", re.IGNORECASE)
_PATH = re.compile(
    r"(?:[a-z]:)?[~.]{0,2}[/\\]?[^\s/\\]+(?:[/\\][^\s/\\]+)+[/\\]?$|[/\\][^\s]+$", re.IGNORECASE
)
_FILE = re.compile(r"[^\s/\\]+\.[a-z][a-z0-9]{0,5}$", re.IGNORECASE)
_MEDIA_FILE = re.compile(
    r"\S.*\.(?:png|jpe?g|gif|webp|bmp|tiff?|svg|wav|mp3|flac|ogg|m4a|mp4|webm|avi|mov|mkv)$"
    r"|data:(?:image|audio|video)/",
    re.IGNORECASE,
)
_DATE = re.compile(
    r"\W*(?:\d{4}[-/.年]\s?\d{1,2}(?:[-/.月]\s?\d{1,2}日?)?|\d{1,2}[-/.]\d{1,2}[-/.]\d{2,4}|\d{8}"
    r"|(?:[^\W\d_]{3,9}\.?,?\s)?(?:\d{1,2}\.?\s+[^\W\d_]{3,9}\.?|[^\W\d_]{3,9}\.?\s+\d{1,2}),?\s+\d{4})"
    r"(?:[T ,]+\d{1,2}:\d{2}(?::\d{2}(?:[.,]\d+)?)?\s*(?:[ap]m)?\s*(?:Z|UTC|GMT|[+-]\d{2}:?\d{2})?)?\W*$",
    re.IGNORECASE,
)
_TIME = re.compile(r"\d{1,2}:\d{2}(?::\d{2}(?:[.,]\d+)?)?$")
_NUMBER = re.compile(r"[+-]?\d+(?:[.,]\d+)?(?:[eE][+-]?\d+)?\s*(?:%|/\s*\d+(?:\.\d+)?)?$")
_CODE = re.compile(r"[\w@#$%+=:;,|./\\~^()\[\]{}-]+$", re.ASCII)
_LITERAL = re.compile(r"\[\s*['\"{]|\{\s*['\"]")
"""How a list or an object of JSON, or of Python, begins: no prose does."""
_SPEAKING = re.compile(
    r"^\W*(user|human|customer|client|prompter|assistant|ai|bot|chatbot|model|agent|gpt|system)\W{0,3}[:\]]",
    re.IGNORECASE | re.MULTILINE,
)
_LETTER = re.compile(r"\(?[A-Ja-j]\)?\.?$")
_LETTERS = re.compile(r"[A-J]")
_SEVERAL = re.compile(r"[A-J](?:[\s,;、/&]*[A-J])*$")
_CHOICE = re.compile(r"(?:^|\s|\()([A-Ja-j])[).:]\s")
_SENTENCE = re.compile(r"[.!?。！？؟।]\W*$")


@dataclass(frozen=True)
class OpenColumn:
    """A column that is not read and could hold something to train on."""

    name: str
    could_be: str
    values: tuple[str, ...]
    """Some of what it holds, shortened."""
    is_grave: bool
    """Whether a reading without it is probably wrong: it then cannot even be likely."""

    def __str__(self) -> str:
        """Return the column and what it could be, with a label's values."""
        shown = f" ({', '.join(self.values)})" if self.could_be in (LABEL, SCORE) else ""
        return f"{hidden(self.name)} could be {self.could_be}{shown}"


def beside(converter: Converter) -> str:
    """Return beside what the columns stand that a type does not read: messages, pairs or text."""
    if converter.makes in (Preference, Ranking):
        return "pairs"
    return "text" if converter.required == {"text"} else "messages"


def in_words(found: Sequence[OpenColumn]) -> str:
    """Return in words which columns are not read and what they could be."""
    most = 4
    shown = "; ".join(map(str, found[:most]))
    more = f"; and {len(found) - most} more" if len(found) > most else ""
    return f"not read: {shown}{more}"


def open_columns(
    sample: Sequence[Row], read: Iterable[str], *, beside: str
) -> tuple[OpenColumn, ...]:
    """Return the columns of the rows that are open, where those named in `read` are read.

    `beside` says beside what they stand: messages, pairs (of which each column `chosen_x` with a
    `rejected_x` describes one side) or text, whose title or note they may be.
    """
    own = set(read)
    names = dict.fromkeys(name for row in sample for name in row if "\0" not in name)
    columns = {name: [row.get(name) for row in sample] for name in names}
    known = _Known(sample, own, columns, beside)
    found = []
    for name, values in columns.items():
        if name not in own and name not in MEDIA and not _is_misspelt(values, columns, own):
            could, is_grave = _judged(name, values, known)
            if could:
                found.append(OpenColumn(name, could, _shown(values), is_grave))
    return tuple(found)


def parents(sample: Sequence[Row]) -> tuple[str, ...]:
    """Return the columns that name the row which a row follows, where the first of each chain name none.

    Such rows are turns of conversations that only all of them together tell.
    """
    names = dict.fromkeys(name for row in sample for name in row)
    columns = {name: [row.get(name) for row in sample] for name in names}
    known = _Known(sample, set(), columns, "messages")
    starts = (n for n, held in columns.items() if any(v in (None, "") for v in held))
    return tuple(name for name in starts if _comes_after(name, columns[name], known))


def _comes_after(name: str, values: Sequence[Any], known: "_Known") -> bool:
    """Return whether each row follows an earlier one by name: a rating may be the number of any row."""
    there = [(i, str(v)) for i, v in enumerate(values) if v not in (None, "")]
    if all(_is_scale(v) for _, v in there) or not _follows(name, values, known):
        return False
    others = (places for other, places in known.ids.items() if other != name)
    return any(all(places.get(v, i) < i for i, v in there) for places in others)


def choices(sample: Sequence[Row]) -> tuple[str, str] | None:
    """Return the column whose values are letters of choices, and that of the choices; None without such.

    The letter alone answers nothing.
    """
    names = dict.fromkeys(name for row in sample for name in row)
    columns = {n: [row[n] for row in sample if row.get(n) not in (None, "")] for n in names}
    letters = [
        n
        for n, held in columns.items()
        if held and all(map(_is_letter, held)) and _may_answer(n, held)
    ]
    letters += [n for n, held in columns.items() if held and _are_places(n, held)]
    listed = [n for n, held in columns.items() if held and all(map(_lists_choices, held))]
    # A table may have a column for each choice.
    listed += [n for n in ("A", "a") if {n, chr(ord(n) + 1)} <= columns.keys()]
    stems = (n[:-1] for n in columns if n[-1:] in ("a", "A", "1"))
    listed += [
        stem + "a" for stem in stems if {f"{stem}{letter}" for letter in "abcd"} <= columns.keys()
    ]
    return (letters[0], listed[0]) if letters and listed else None


def _may_answer(name: str, held: Sequence[Any]) -> bool:
    """Return whether letters may be answers: one letter in all rows is, where the name says so."""
    return len(set(held)) > 1 or len(held) == 1 or bool(RIGHT & {*words_of(name)})


def _are_places(name: str, held: Sequence[Any]) -> bool:
    """Return whether values are the places of right choices: small numbers, named as what is right."""
    is_place = all(
        isinstance(v, int) and not isinstance(v, bool) and 0 <= v <= PLACES for v in held
    )
    return is_place and bool(RIGHT & {*words_of(name)}) and len(set(held)) > 1


def _is_letter(value: Any) -> bool:
    """Return whether a value is the letter of a choice, or those of several: `B`, `ABD`, `A, C`."""
    if not isinstance(value, str):
        return False
    letters = _LETTERS.findall(value) if _SEVERAL.match(value.strip()) else []
    return bool(_LETTER.match(value.strip())) or (
        len(letters) > 1 and letters == sorted({*letters})
    )


def _lists_choices(value: Any) -> bool:
    """Return whether a value holds choices: a text with their letters, `A) 3 B) 4`, or a list of texts."""
    held = decoded(value)
    if isinstance(held, Mapping):
        # Either the choices by their letters, or lists of their texts and letters.
        is_named = all(_is_letter(key) or isinstance(item, list) for key, item in held.items())
        held = [text for text in held.values() if is_named and text is not None]
    if isinstance(held, list):
        return len(held) > 1 and all(isinstance(item, str | Mapping) for item in held)
    found = _CHOICE.findall(held) if isinstance(held, str) else []
    return len(found) > 1 and [letter.upper() for letter in found] == list(
        "ABCDEFGHIJ"[: len(found)]
    )


def open_keys(
    path: str, held: Iterable[Any], read: Iterable[str], *, role: str
) -> tuple[OpenColumn, ...]:
    """Return the open keys of messages in a column, named as in `messages[].rating`.

    What says nothing but who speaks or which message it is (the same for each role, rising within each
    conversation, another message's id) is harmless.
    """
    conversations = [
        [m for m in map(_as_object, value) if m]
        for value in map(decoded, held)
        if isinstance(value, list)
    ]
    messages = [message for conversation in conversations for message in conversation][:MESSAGES]
    open_ones = open_columns(messages, read, beside="messages")
    return tuple(
        replace(one, name=f"{path}[].{one.name}")
        for one in open_ones
        if one.could_be != PARENT
        and not (len(conversations) > 1 and _is_told_by_role(one.name, messages, role))
        and not _is_rising(one.name, conversations)
    )


@dataclass(frozen=True)
class OpenKeys:
    """The open keys of messages in the first rows, and how many sources and rows of those hold one."""

    found: tuple[OpenColumn, ...] = ()
    sources: int = 0
    rows: int = 0
    of_rows: int = 0
    """The rows that were looked at."""


def open_keys_of(
    conversations: Mapping[str, ConversationKind],
    pooled: Sequence[Row],
    samples: Sequence[Sequence[Row]],
) -> OpenKeys:
    """Return the open keys in columns of messages, by their paths; `pooled` are rows of all samples."""
    found = tuple(
        one
        for path, kind in conversations.items()
        for one in open_keys(
            path,
            (row.get(path) for row in pooled),
            {kind.role, kind.content, *kind.row_path},
            role=kind.role,
        )
    )
    if not found:
        return OpenKeys()
    names = {tuple(one.name.split("[].", 1)) for one in found}
    held = [sum(_holds_key(row, names) for row in sample) for sample in samples]
    return OpenKeys(found, sum(map(bool, held)), sum(held), sum(map(len, samples)))


def _holds_key(row: Row, names: Iterable[tuple[str, ...]]) -> bool:
    for path, key in names:
        value = decoded(row.get(path))
        messages = value if isinstance(value, list) else ()
        if any(_is_there(_as_object(message).get(key)) for message in messages):
            return True
    return False


def _as_object(value: Any) -> Row:
    return value if isinstance(value, Mapping) else {}


def _is_told_by_role(key: str, messages: Sequence[Row], role: str) -> bool:
    said: dict[str, list[Any]] = {}
    for message in messages:
        value = message.get(key)
        if value is not None and value not in (seen := said.setdefault(str(message.get(role)), [])):
            seen.append(value)
        if any(len(values) > 1 for values in said.values()):
            return False
    return True


def _is_rising(key: str, conversations: Sequence[Sequence[Row]]) -> bool:
    numbers = [[n for m in d if (n := _number(m.get(key))) is not None] for d in conversations]
    several = [held for held in numbers if len(held) > 1]
    return bool(several) and all(a < b for held in several for a, b in pairwise(held))


def _is_misspelt(values: Sequence[Any], columns: Mapping[str, list[Any]], read: set[str]) -> bool:
    """Return whether a column stands only in bad rows: they lack one that most others have."""
    there = [i for i, value in enumerate(values) if value is not None]
    usual = (columns[n] for n in read if n in columns)
    return bool(there) and any(
        all(held[i] is None for i in there) and 2 * held.count(None) < len(held) for held in usual
    )


class _Known:
    """What the rows say beside the column that is judged."""

    def __init__(
        self,
        sample: Sequence[Row],
        read: set[str],
        columns: Mapping[str, list[Any]],
        beside: str,
    ) -> None:
        self.columns, self.beside, self.read = columns, beside, read
        there = [name for name in columns if name in read]
        self.by_column = {n: [texts_within(row.get(n)) for row in sample] for n in there}
        self.texts = [[t for n in there for t in self.by_column[n][i]] for i in range(len(sample))]
        counted = [*self.by_column.values(), self.texts] if there else []
        self.lengths = [[sum(map(len, texts)) for texts in held] for held in counted]
        self.is_varied = len({tuple(texts) for texts in self.texts}) > 1
        """Whether rows differ: copies of one row, or one alone, do not show what is equal in all."""
        self.ids = {
            name: {str(v): i for i, v in enumerate(values) if v is not None}
            for name, values in columns.items()
            if name not in read and _may_name_rows(values)
        }


def _may_name_rows(values: Sequence[Any]) -> bool:
    there = [v for v in values if isinstance(v, str | int) and not isinstance(v, bool)]
    return len(there) == len(values) > 1 and len(set(map(str, there))) == len(there)


Judged = tuple[str, bool]
NOTHING: Judged = ("", False)


def _judged(name: str, values: Sequence[Any], known: _Known, *, is_nested: bool = False) -> Judged:
    held = [decoded(value) for value in values]
    there = [value for value in held if _is_there(value)]
    if not there:
        return NOTHING
    if looks_like_turns("" if is_nested else name, values):
        return NOTHING if _is_copy(values, known) else (TURNS, True)
    if _is_of_a_side(name, known):
        return NOTHING
    if _is_equal(held) and (
        known.is_varied or sum(map(count_words, texts_within(there[0]))) < LONG
    ):
        return (TEXT, False) if _is_statement(there[0]) else NOTHING
    if _is_copy(values, known):
        return NOTHING
    if _follows(name, values, known):
        return PARENT, True
    return _of_values(name, held, there, known)


def _of_values(name: str, held: Sequence[Any], there: Sequence[Any], known: _Known) -> Judged:
    if all(isinstance(value, bool) for value in there):
        return LABEL, True
    numbers = [_number(value) for value in held]
    if all(n is not None for n, v in zip(numbers, held, strict=True) if _is_there(v)):
        return _of_numbers(name, numbers, there, known)
    if all(isinstance(value, str) for value in there):
        return _of_texts(name, there, known)
    if any(isinstance(value, bytes) for value in there):
        return FILES, True
    return _of_nested(name, held, there, known)


def _is_there(value: Any) -> bool:
    if isinstance(value, str):
        return bool(value.strip()) and value.strip() not in ("[]", "{}", "null", "nan", "NaN")
    return value is not None and not (isinstance(value, list | Mapping) and not value)


def _is_equal(held: Sequence[Any]) -> bool:
    """Return whether all rows hold the same; one row alone says nothing."""
    return len(held) > 1 and all(value == held[0] for value in held[1:])


def _is_statement(value: Any) -> bool:
    """Return whether a value is a sentence, which nobody writes into every row but to be read."""
    if not isinstance(value, str) or _URL.match(value.strip()):
        return False
    return count_words(value) >= LONG and bool(_SENTENCE.search(value))


def _is_of_a_side(name: str, known: _Known) -> bool:
    """Return whether the column describes one side of a pair, as another does the other side."""
    if known.beside != "pairs":
        return False
    for one, other in (("chosen", "rejected"), ("rejected", "chosen")):
        if one in name and name.replace(one, other) in known.columns:
            return True
    return False


def _is_copy(values: Sequence[Any], known: _Known) -> bool:
    """Return whether every text of the column was read, or is what was read in a fixed frame."""
    frames: set[str] = set()
    is_new = False
    for value, read in zip(values, known.texts, strict=True):
        if isinstance(value, bool | int | float):
            return False
        said = set(read)
        for text in texts_within(value):
            if text in said or any(t.startswith(text) for t in read if len(text) >= 16):
                continue
            is_new = True
            frames.add(_frame(text, read))
    if not is_new:
        return any(map(texts_within, values))
    return len(values) > 1 and len(frames) == 1 and "\0" in frames.pop()


def _frame(text: str, read: Sequence[str]) -> str:
    """Return a text without the parts that were read; NUL stands in their places."""
    for part in sorted(set(read), key=len, reverse=True):
        if len(part) > 1:
            text = text.replace(part, "\0")
    return re.sub(r"[\0\s]+", lambda match: "\0" if "\0" in match[0] else " ", text)


def _follows(name: str, values: Sequence[Any], known: _Known) -> bool:
    """Return whether the column names other rows, by a column in which each has its own value."""
    there = [(i, str(v)) for i, v in enumerate(values) if v is not None and v != ""]
    if not there or len(there) == len({v for _, v in there}) == len(values):
        return False
    for other, places in known.ids.items():
        if other == name:
            continue
        named_rows = [places[v] for i, v in there if v in places and places[v] != i]
        if len(named_rows) == len(there) and not all(_is_scale(v) for _, v in there):
            return True
        if len(named_rows) == len(there) and len(there) < len(values):
            return True
    return False


def _is_scale(text: str) -> bool:
    return text.isdigit() and int(text) <= SCALE


def _number(value: Any) -> float | None:
    if isinstance(value, bool):
        return None
    if isinstance(value, int | float):
        return float(value)
    if isinstance(value, str) and _NUMBER.match(value.strip()):
        text = value.strip().rstrip("%").partition("/")[0].strip().replace(",", ".")
        return float(text)
    return None


def _of_numbers(
    name: str, numbers: Sequence[float | None], there: Sequence[Any], known: _Known
) -> Judged:
    found = [number for number in numbers if number is not None]
    words = set(words_of(name))
    is_whole = all(number.is_integer() for number in found)
    distinct = len(set(found))
    is_scale = distinct <= SCALE and all(-SCALE <= n <= 10 for n in found)
    if words & SCORE_WORDS:
        return SCORE, True
    if any("/" in v or "%" in v for v in there if isinstance(v, str)):
        return SCORE, True
    if _is_length(numbers, known, is_whole=is_whole, is_named=bool(words & LENGTH_WORDS)):
        return NOTHING
    if all(n > 1e8 for n in found) or (words & TIME_WORDS and min(found) > SCALE):
        return NOTHING
    if is_whole and all(1900 <= n <= 2100 for n in found):
        return NOTHING
    if is_whole and distinct == len(found):
        is_counted = found == sorted(found) and (found[0] == 0 or max(found) > SCALE)
        if words & ID_WORDS or (is_counted and len(found) > 1) or min(found) > 1000:
            return NOTHING
    if is_whole and words & ID_WORDS and not is_scale:
        return NOTHING
    return (LABEL if distinct == 2 and is_whole else SCORE), True


def _is_length(
    numbers: Sequence[float | None], known: _Known, *, is_whole: bool, is_named: bool
) -> bool:
    """Return whether numbers count what was read: characters, words, items or tokens."""
    if not is_whole:
        return False
    pairs = [(i, n) for i, n in enumerate(numbers) if n is not None]
    if is_named and all(n >= 0 for _, n in pairs):
        return True
    for held in known.by_column.values():
        counted = (
            [sum(map(len, held[i])) for i, _ in pairs],
            [sum(len(t.split()) for t in held[i]) for i, _ in pairs],
        )
        if any(all(a == n for a, (_, n) in zip(count, pairs, strict=True)) for count in counted):
            return True
    if len(pairs) < 3 or max(n for _, n in pairs) <= SCALE:
        return False
    return any(_is_share([(n, lengths[i]) for i, n in pairs]) for lengths in known.lengths)


def _is_share(pairs: Sequence[tuple[float, int]]) -> bool:
    """Return whether numbers are about the same share of the lengths, as tokens are, and vary with them."""
    if any(length == 0 or n <= 0 for n, length in pairs):
        return False
    longest, shortest = max(length for _, length in pairs), min(length for _, length in pairs)
    shares = [n / length for n, length in pairs]
    mean = sum(shares) / len(shares)
    spread = (sum((s - mean) ** 2 for s in shares) / len(shares)) ** 0.5
    return longest > 2 * shortest and 0.05 <= mean <= 2 and spread <= SPREAD * mean


def _of_texts(name: str, there: Sequence[str], known: _Known) -> Judged:
    texts = [text.strip() for text in there]
    if all(map(_MEDIA_FILE.match, texts)):
        return FILES, True
    distinct = Counter(text.lower() for text in texts)
    if _are_harmless(set(words_of(name)), texts, distinct):
        return NOTHING
    if all(map(_is_short, texts)):
        return _of_short(distinct, len(texts))
    read = sum(known.lengths[-1]) if known.lengths else 0
    is_brief = sum(map(len, texts)) < SHORT * read and not _are_sentences(texts)
    is_note = known.beside == "text" and is_brief
    return TEXT, not is_note and sum(map(count_words, texts)) >= LONG * len(texts)


def _are_sentences(texts: Sequence[str]) -> bool:
    """Return whether most texts end as sentences do, or have several lines, which no title does."""
    return 2 * sum(bool(_SENTENCE.search(text)) or "\n" in text for text in texts) > len(texts)


def _are_harmless(words: set[str], texts: Sequence[str], distinct: Counter[str]) -> bool:
    if all(any(kind(text) for kind in _HARMLESS) for text in texts):
        return True
    if all(map(_is_code, texts)) and not _is_graded(distinct, len(texts)):
        return True
    if words & ID_WORDS and len(distinct) == len(texts) > 1 and all(map(_CODE.match, texts)):
        return True
    if not all(map(_is_short, texts)) or set(distinct) & (GOOD | BAD):
        return False
    is_model = words & MODEL_WORDS and all(map(_CODE.match, texts))
    return bool(is_model or (words & LANGUAGE_WORDS and all(map(_is_name, texts))))


def _is_short(text: str) -> bool:
    return count_words(text) <= 3 and len(text) <= 40


def _of_short(distinct: Counter[str], rows: int) -> Judged:
    """Judge short texts that are not known to be harmless: a few different ones are probably labels."""
    is_polar = bool(set(distinct) & (GOOD | BAD))
    is_repeated = len(distinct) < rows or rows == 1
    if len(distinct) <= SCALE and (is_repeated or set(distinct) <= GOOD | BAD):
        return LABEL, is_polar or (len(distinct) < FEW and rows >= FEW)
    return WORDS, False


def names_speakers(text: str) -> bool:
    """Return whether lines of a text begin with who speaks, and two speak."""
    return len({name.lower() for name in _SPEAKING.findall(text)}) > 1


def is_spoken(text: str) -> bool:
    """Return whether a text is a conversation: several of its lines begin with who speaks, two of them."""
    said = [name.lower() for name in _SPEAKING.findall(text)]
    return len(said) > 1 and len(set(said)) > 1 and bool(_SPEAKING.match(text))


def is_address(text: str) -> bool:
    """Return whether a text is an address, or the name of a file of media."""
    said = text.strip()
    return bool(_URL.match(said) or _MEDIA_FILE.match(said))


def is_prose(texts: Sequence[str]) -> bool:
    """Return whether texts are prose: several words each, no address, path, code, JSON or conversation."""
    held = [text.strip() for text in texts]
    if any(_LITERAL.match(text) or _URL.match(text) for text in held) or all(map(is_spoken, held)):
        return False
    if any(isinstance(decoded(text), list | Mapping) for text in held):
        return False
    return sum(map(count_words, held)) >= LONG * len(held)


def _is_name(text: str) -> bool:
    return all(part.isalpha() or part in "+#" for part in re.split(r"[\s_().-]+", text) if part)


def _is_code(text: str) -> bool:
    """Return whether a text is a code: one word of letters and digits, or one that mixes its cases."""
    if not _CODE.match(text) or len(text) > 200:
        return False
    has_digit = any(c.isdigit() for c in text)
    if has_digit:
        return any(c.isalpha() for c in text)
    return len(text) >= 8 and bool(re.search(r"[a-z][A-Z].*[a-z][A-Z]|[A-Z]{2}[a-z]+[A-Z]", text))


def _is_graded(distinct: Counter[str], rows: int) -> bool:
    """Return whether codes differ in a small number only, and repeat: grade1, grade5."""
    stems = {re.sub(r"\d+", "", text) for text in distinct}
    grades = [int(n) for text in distinct for n in re.findall(r"\d+", text)]
    return len(stems) == 1 < len(distinct) < rows and max(grades, default=SCALE + 1) <= 10


def _is_language(text: str) -> bool:
    code = re.split(r"[-_]", text.lower())
    return (code[0] in LANGUAGES and len(code) <= 3) or text.lower() in LANGUAGES


_HARMLESS = (
    _URL.match,
    _HEX.match,
    _PATH.match,
    _FILE.match,
    _DATE.match,
    _TIME.match,
    _is_language,
)
"""What each text of a harmless column may be."""


def count_words(text: str) -> int:
    """Count the words of a text; two characters of a script without blanks are one."""
    if text.isascii():
        return len(text.split())
    wide = len(unspaced().findall(text))
    return len(unspaced().sub(" ", text).split()) + (wide + 1) // 2


def _of_nested(name: str, held: Sequence[Any], there: Sequence[Any], known: _Known) -> Judged:
    if _are_tools(there):
        return TOOLS, True
    if all(isinstance(value, Mapping) for value in there):
        keys = dict.fromkeys(key for value in there for key in value)
        judge = partial(_judged, is_nested=True) if known.texts else _of_items
        return _worst([judge(key, [_field(v, key) for v in held], known) for key in keys])
    lists = [value for value in there if isinstance(value, list)]
    items = [item for value in lists for item in value]
    if len(lists) < len(there):
        return TEXT, False
    numbers = [item for item in items if isinstance(item, int | float)]
    if len(numbers) == len(items):
        counted = [n for n in numbers if not isinstance(n, bool)]
        is_vector = min(map(len, lists)) >= VECTOR or (
            bool(counted) and all(isinstance(n, int) and n > SCALE for n in counted)
        )
        return NOTHING if is_vector else (SCORE, True)
    bare = _Known([], set(), {}, known.beside)
    if all(isinstance(item, str) for item in items):
        could, is_grave = _of_texts(name, items, bare)
        return could, is_grave and could == TEXT
    if all(isinstance(item, Mapping) for item in items):
        keys = dict.fromkeys(key for item in items for key in item)
        return _worst([_of_items(key, [item.get(key) for item in items], bare) for key in keys])
    return (TEXT, True) if any(map(texts_within, there)) else (SCORE, False)


def _of_items(name: str, values: Sequence[Any], bare: "_Known") -> Judged:
    """Judge the values of a field of objects in lists, which are no rows."""
    there = [value for value in map(decoded, values) if _is_there(value)]
    if not there or _is_equal(values):
        return NOTHING
    return _of_values(name, values, there, bare)


def _field(value: Any, key: str) -> Any:
    return value.get(key) if isinstance(value, Mapping) else None


def _worst(inner: Sequence[Judged]) -> Judged:
    return max(inner, key=lambda one: (bool(one[0]), one[1]), default=NOTHING)


def _are_tools(there: Sequence[Any]) -> bool:
    """Return whether values are definitions of tools: each has a name and parameters, or a description."""
    items = [item for value in there for item in (value if isinstance(value, list) else [value])]
    items = [i.get("function", i) if isinstance(i, Mapping) else i for i in items]
    is_tool = partial(_has, "name", ("parameters", "description", "input_schema", "arguments"))
    return bool(items) and all(map(is_tool, items))


def _has(key: str, others: Sequence[str], item: Any) -> bool:
    return isinstance(item, Mapping) and key in item and any(other in item for other in others)


def _shown(values: Sequence[Any]) -> tuple[str, ...]:
    texts = dict.fromkeys(beginning(str(v), 24) for v in values if _is_there(v))
    return tuple(list(texts)[:SHOWN])
