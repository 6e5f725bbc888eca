"""Unread turns: source columns that look like turns, answers, labels or a system prompt and are not read.

One rule says which columns these are (`looks_like_turns`). What such a column carries is compared with what
was read of the same row: text that was read too is redundant, anything else is counted by column.
"""

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from itertools import zip_longest
from typing import Any, ClassVar
from unicodedata import normalize

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
from polars import Expr

from fmtkit.columns.kinds import Kind
from fmtkit.columns.known_words import COLUMN_NOUNS, NAMES
from fmtkit.columns.read_spec import MARK, Node, TextsNode, node_of
from fmtkit.columns.strict_kinds import holds, json_value, value_of
from fmtkit.columns.typed_kinds import dtype_of, read
from fmtkit.core import buffers
from fmtkit.core.buffers import Int64s
from fmtkit.core.data_classes import dataclass
from fmtkit.core.message_keys import MESSAGE_KEYS, REASONING_KEYS, SPEAKER_KEYS, SPOKEN
from fmtkit.sources.marks import is_unicode

TURNS = frozenset(
    {
        "answer",
        "answers",
        "article",
        "assistant",
        "bot",
        "chat",
        "choices",
        "chosen",
        "completion",
        "completions",
        "context",
        "conversation",
        "conversations",
        "dialog",
        "dialogs",
        "dialogue",
        "dialogues",
        "history",
        "human",
        "input",
        "instruction",
        "instructions",
        "message",
        "messages",
        "output",
        "outputs",
        "passage",
        "preferred",
        "prompt",
        "prompts",
        "query",
        "queries",
        "question",
        "questions",
        "reasoning",
        "rejected",
        "replies",
        "reply",
        "response",
        "responses",
        "solution",
        "solutions",
        "system",
        "thinking",
        "turn",
        "turns",
        "user",
    }
)
"""Last words of the names of columns that hold turns, answers or a system prompt."""
LABELS = frozenset(
    {
        "label",
        "labels",
        "preference",
        "rank",
        "ranking",
        "ranks",
        "winner",
        "tools",
        "functions",
        "is_correct",
    }
)
"""Last words, or whole names, of columns whose mere presence is information about the row."""
_NO_HEADS = frozenset(
    {
        "text",
        "texts",
        "content",
        "contents",
        "str",
        "string",
        "list",
        "json",
        "col",
        "column",
        "field",
        "ref",
        "statement",
        "description",
    }
)
"""Last words that say nothing: `response_text` is a response, `human_ref_A` what a human wrote."""
_WHO = frozenset({"user", "human", "assistant", "bot"})
"""Last words of columns that hold what someone said, or who that was."""

_ACCOUNT = re.compile(r"(?=.*\d)[\w@.:+-]+$|@\w+$|[\w.+-]+@[\w.-]+$|[0-9A-Z]{6,}$")
"""What stands for a person: one word with a digit in it, an address."""
_NUMBERS = frozenset({"id", "len", "length", "num", "rating", "ratings", "score", "scores"})
"""Words in the names of columns that only count or rate something."""
_LATE = (
    "answer", "chosen", "completion", "context", "conversation", "conversations", "dialogue",
    "history", "input", "instruction", "label", "messages", "output", "prompt", "query",
    "question", "rank", "rejected", "response", "system", "tools",
)  # fmt: skip
"""Names that are looked for in every row, also where the first rows have no such column."""
_NO_TEXT = frozenset(
    {
        *SPEAKER_KEYS,
        *(name for key in MESSAGE_KEYS if key.name not in SPOKEN for name in key.names),
        "type",
        "id",
        "loss_weight",
    }
)
"""Keys of a message that do not hold the text of a turn."""
_SAID = frozenset({"content", "value", "text", "parts"})
_NOTHING = ("", "[]", "{}", "null")
_PREFIX = 16
"""Minimum length of a string that counts as read because a string that was read begins with it."""
_WORDS = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+")
_MARKED = r"[^\W\d_][\u0300-\u036f\u064b-\u065f\u0900-\u0903\u093a-\u094f\u0e31\u0e34-\u0e4e]*"
"""A letter with the signs of its script, which are no letters."""
_OF_SEVERAL = tuple(
    sorted(((name.split("_"), name) for name in NAMES if "_" in name), key=lambda one: -len(one[0]))
)
"""Names of several words, the longest first: `câu hỏi` is a question, and neither word alone."""


def looks_like_turns(name: str, values: Sequence[Any]) -> bool:
    """Return whether a column's name and values suggest turns, answers, labels or a system prompt.

    >>> looks_like_turns("history", [[["Hi", "Hello"]]])
    True
    >>> looks_like_turns("prompt_id", ["a1"])
    False
    """
    there = [value for value in map(decoded, values) if _is_there(value)]
    if _NUMBERS & set(words_of(name)):
        return False
    if any(map(_is_conversation, there)):
        return True
    if _is_label(name):
        return bool(there)
    if names_people(name, there):
        return False
    says = any(isinstance(value, str | list | Mapping) for value in there)
    return head_of(name) in TURNS and says and not _is_mode(name, there)


def _is_mode(name: str, there: Sequence[Any]) -> bool:
    """Return whether a column says how a reply was made, and not what was thought: `reasoning: on`."""
    is_thought = head_of(name) in REASONING_KEYS
    return is_thought and all(isinstance(v, str) and len(v.split()) == 1 for v in there)


def names_people(name: str, there: Sequence[Any]) -> bool:
    """Return whether a column says who spoke, and not what was said: `user` with U1 and U2."""
    return head_of(name) in _WHO and bool(there) and all(map(_is_account, there))


def _is_account(value: Any) -> bool:
    return isinstance(value, int) or (isinstance(value, str) and bool(_ACCOUNT.match(value)))


def _is_label(name: str) -> bool:
    return name.lower() in LABELS or head_of(name) in LABELS


def words_of(name: str) -> list[str]:
    """Return the words of a name, in small letters: `chosenResponse_1` has chosen, response and 1.

    Words of other languages are those that mean the same in English, in its order.

    >>> words_of("лучший_ответ"), words_of("resposta_final"), words_of("更好的回答")
    (['better', 'answer'], ['final', 'answer'], ['better', '的', 'answer'])
    """
    return [*_words_of(name)]


# Three patterns that take 3 to 9 ms to compile, and that few sources need.
@cache
def unspaced() -> re.Pattern[str]:
    """Return the pattern of a letter of a script that has no blanks between words."""
    return re.compile(r"[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af\u0e00-\u0e7f]")


@cache
def _any_words() -> re.Pattern[str]:
    return re.compile(rf"(?:{_MARKED})+|\d+")


@cache
def _foreign() -> re.Pattern[str]:
    return re.compile(
        "|".join(sorted((n for n in NAMES if not n.isascii()), key=len, reverse=True))
    )


@cache
def _words_of(name: str) -> tuple[str, ...]:
    pattern = _WORDS if name.isascii() else _any_words()
    words = [
        part for word in pattern.findall(normalize("NFC", name)) for part in _parts(word.lower())
    ]
    words = words if name.isascii() and "_" not in name else _joined(words)
    meant = [NAMES.get(word, word) for word in words]
    if meant == words:
        return tuple(words)
    return tuple(sorted(meant, key=lambda word: word in COLUMN_NOUNS))


def _joined(words: list[str]) -> list[str]:
    """Return words with those that are one name together in one piece."""
    for several, name in _OF_SEVERAL:
        for place in range(len(words) - len(several), -1, -1):
            if words[place : place + len(several)] == several:
                words = [*words[:place], name, *words[place + len(several) :]]
    return words


def _parts(word: str) -> list[str]:
    """Return the words in a name without blanks, if any of them is known."""
    if word in NAMES or word.isascii() or not unspaced().match(word):
        return [word]
    between = _foreign().split(word)
    return [
        part for pair in zip_longest(between, _foreign().findall(word)) for part in pair if part
    ]


def decoded(value: Any) -> Any:
    """Return the value of JSON text: a CSV has nothing else for lists."""
    is_json = isinstance(value, str) and value.lstrip()[:1] in ("[", "{")
    return json_value(value) if is_json else value


def head_of(name: str) -> str:
    """Return the word of a name that says what the column is: of `response_j` it is `response`.

    Who did something stands after `by`: `accepted_by_user` says what the user did.
    """
    said = words_of(name)
    said = said[: said.index("by")] if "by" in said[1:] else said
    telling = [word for word in said if len(word) > 1 and not word.isdigit()]
    telling = [word for word in telling if word not in _NO_HEADS] or telling
    return telling[-1] if telling else ""


def _is_conversation(value: Any) -> bool:
    """Return whether a value is a list of messages, or of pairs of texts."""
    if not isinstance(value, list) or not value:
        return False
    first = value[0]
    if isinstance(first, Mapping):
        return not first.keys().isdisjoint(SPEAKER_KEYS) and bool(_SAID & first.keys())
    return isinstance(first, list) and len(first) == 2 and all(isinstance(t, str) for t in first)


@dataclass(frozen=True)
class CarriedKind(Kind):
    """Any value, as the texts that it carries; nothing about it is a fault."""

    letter: ClassVar[str] = "any"
    words: ClassVar[str] = "any value"
    nested: bool = False  # type: ignore[misc]
    is_label: bool = False
    is_open: bool = False
    """Whether only its values make it suspicious, not its name (`open_columns`)."""

    def of(self, column: pl.Series) -> pl.Series:
        """Return the texts that each value of a column carries."""
        return carried(column, is_label=self.is_label)


def code_of(kind: Kind) -> str:
    """Return the code of the warning for rows in which a watched column carries what was not read."""
    return "open_columns" if isinstance(kind, CarriedKind) and kind.is_open else "unread_turns"


@dtype_of.register
def _(kind: CarriedKind) -> pl.DataType:  # noqa: ARG001
    return pl.List(pl.String)


@node_of.register
def _(kind: CarriedKind) -> Node:
    return TextsNode(tuple(sorted(_NO_TEXT)), kind.is_label, _NOTHING)


@holds.register
def _(kind: CarriedKind, value: Any) -> bool:  # noqa: ARG001
    return True


@value_of.register
def _(kind: CarriedKind, value: Any) -> list[str]:
    return [*([MARK] if kind.is_label and _is_there(value) else []), *texts_within(value)]


@read.register
def _(kind: CarriedKind, parsed: Expr, shape: str) -> Expr:  # noqa: ARG001
    return parsed.map_batches(kind.of, return_dtype=pl.List(pl.String))


def carried(column: pl.Series, *, is_label: bool = False) -> pl.Series:
    """Return the texts that each value of a column carries, without the white space around them.

    With `is_label` also MARK, which is never redundant, where there is a value.
    """
    array = buffers.whole(column.alias("").to_arrow(compat_level=pl.CompatLevel.oldest()))
    pairs = list(_leaves(array, np.arange(len(column), dtype=np.int64)))
    if is_label:
        there = np.flatnonzero([_is_there(value) for value in column.to_list()])
        pairs.append((there, buffers.texts([MARK] * len(there))))
    if not pairs:
        return pl.Series(column.name, [[]] * len(column), dtype=pl.List(pl.String))
    rows = np.concatenate([rows for rows, _ in pairs])
    texts = pa.chunked_array([texts.cast(pa.large_string()) for _, texts in pairs])
    texts = pc.utf8_trim_whitespace(texts)
    said = pc.greater(pc.binary_length(texts), buffers.int64s(np.zeros(1, np.int64))[0])
    said = np.flatnonzero(buffers.truths(buffers.whole(said)))
    order = said[np.argsort(rows[said], kind="stable")]
    found = buffers.whole(texts.take(buffers.int64s(order)))
    ends = buffers.ends(np.bincount(rows[order], minlength=len(column)).astype(np.int64))
    lists = pa.LargeListArray.from_buffers(
        pa.large_list(pa.large_string()), len(column), [None, pa.py_buffer(ends)], children=[found]
    )
    made = pl.from_arrow(lists)
    assert isinstance(made, pl.Series)
    return made.alias(column.name)


def _leaves(array: pa.Array, rows: Int64s) -> Iterable[tuple[Int64s, pa.Array]]:
    """Yield every text inside an array with the row that it is in; JSON text is looked into."""
    dtype = array.type
    if pa.types.is_string(dtype) or pa.types.is_large_string(dtype):
        yield from _texts_of_text(array, rows)
    elif pa.types.is_list(dtype) or pa.types.is_large_list(dtype):
        lengths = buffers.integers(pc.list_value_length(array)) * buffers.validity(array)
        yield from _leaves(array.flatten(), np.repeat(rows, lengths))
    elif pa.types.is_struct(dtype):
        for field, values in zip(dtype, array.flatten(), strict=True):
            if field.name not in _NO_TEXT:
                yield from _leaves(values, rows)
    elif pa.types.is_nested(dtype) or pa.types.is_dictionary(dtype) or _is_binary(dtype):
        # Types that JSON does not have: fixed lists, maps, bytes.
        for row, value in zip(rows.tolist(), array.to_pylist(), strict=True):
            inside = texts_within(value)
            yield np.full(len(inside), row), buffers.texts(inside)


def _is_binary(dtype: pa.DataType) -> bool:
    return bool(pa.types.is_binary(dtype) or pa.types.is_large_binary(dtype))


def _texts_of_text(array: pa.Array, rows: Int64s) -> Iterable[tuple[Int64s, pa.Array]]:
    places = np.flatnonzero(buffers.truths(pc.match_substring_regex(array, r"^\s*[\[{]")))
    if not len(places):
        yield rows, array
        return
    plain = np.setdiff1d(np.arange(len(rows)), places)
    yield rows[plain], array.take(buffers.int64s(plain))
    for place, text in zip(places, array.take(buffers.int64s(places)).to_pylist(), strict=True):
        inside = texts_within(text)
        yield np.full(len(inside), rows[place]), buffers.texts(inside)


def texts_within(value: Any) -> list[str]:
    """Return the texts inside one value, as `carried` finds them in a column."""
    if isinstance(value, str):
        if value.lstrip()[:1] in ("[", "{") and not isinstance(found := json_value(value), str):
            return texts_within(found)
        # JSON inside of a text may hold half a surrogate pair, which no column does.
        text = value.strip().encode("utf-8", "replace").decode()
        return [text] if text else []
    if isinstance(value, bytes):
        return texts_within(value.decode("utf-8", "replace"))
    if isinstance(value, list | tuple):
        return [text for item in value for text in texts_within(item)]
    if isinstance(value, Mapping):
        return [t for key, item in value.items() if key not in _NO_TEXT for t in texts_within(item)]
    return []


def _is_there(value: Any) -> bool:
    if isinstance(value, str):
        return value.strip() not in _NOTHING
    return value is not None and not (isinstance(value, list | Mapping) and not value)


def watched(
    sample: Sequence[Mapping[str, Any]], read: Iterable[str], *, late: bool = True
) -> dict[str, CarriedKind]:
    """Return the columns to compare with what is read: those of the sample that look like turns.

    With `late` also columns of such names that no row of the sample has.
    """
    values: dict[str, list[Any]] = {}
    for row in sample:
        # A row with half a surrogate pair in a key is refused; polars takes no NUL in a name.
        for name, value in row.items() if all(map(is_unicode, row)) else ():
            values.setdefault(name, []).append(value)
    own = set(read)
    found = [
        name
        for name, held in values.items()
        if name not in own and "\0" not in name and looks_like_turns(name, held)
    ]
    if late:
        found += [name for name in _LATE if name not in own and name not in values]
    return {name: _kind(name, values.get(name, ())) for name in sorted(found)}


def _kind(name: str, values: Iterable[Any]) -> CarriedKind:
    is_nested = any(isinstance(value, list | Mapping) for value in values)
    return CarriedKind(is_label=_is_label(name), nested=is_nested)


def unread(
    carried_by: Mapping[str, pl.Series], read: Iterable[pl.Series], codes: Mapping[str, str]
) -> tuple[Counter[str], Counter[str]]:
    """Count by column the rows in which it carries what was not read, and by code the rows with any such.

    `carried_by` is a list of texts for each row by column, `read` are the columns that were read or
    made of it, one value for each row; `codes` has the code of each column's warning.
    """
    pairs = {name: _pairs(column) for name, column in carried_by.items()}
    pairs = {name: frame for name, frame in pairs.items() if frame.height}
    if not pairs:
        return Counter(), Counter()
    said = pl.concat([_pairs(carried(column)) for column in read]).unique()
    counts: Counter[str] = Counter()
    lost: dict[str, list[pl.Series]] = {}
    for name, frame in pairs.items():
        missing = frame.join(said, on=["row", "text"], how="anti")
        longer = missing.filter(pl.col("text").str.len_chars() >= _PREFIX)
        begun = longer.join(said.rename({"text": "whole"}), on="row").filter(
            pl.col("whole").str.starts_with(pl.col("text"))
        )
        missing = missing.join(begun, on=["row", "text"], how="anti")
        rows = missing.get_column("row").unique()
        lost.setdefault(codes[name], []).append(rows)
        counts[name] = len(rows)
    return +counts, +Counter({code: pl.concat(found).n_unique() for code, found in lost.items()})


def _pairs(column: pl.Series) -> pl.DataFrame:
    frame = pl.DataFrame({"row": pl.int_range(len(column), eager=True), "text": column})
    return frame.explode("text", empty_as_null=False, keep_nulls=False)
