"""Contradicted fits: readings that the shapes of columns allow and their values speak against."""

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from fmtkit.columns.kinds import ConversationKind, Kind, ListKind, NumberKind, RecordKind, TextKind
from fmtkit.columns.known_words import GOLD
from fmtkit.core.message_keys import SPEAKER_KEYS
from fmtkit.core.tables import Completion, Prompt, Ranking
from fmtkit.detection.fits import GENERIC, TRUSTED, Fit
from fmtkit.detection.near_misses import (
    CONTENT_KEYS,
    are_asked,
    is_given,
    is_message,
    is_thought,
    values_by_path,
)
from fmtkit.detection.numbered_replies import are_judged, unjudged
from fmtkit.detection.unread_columns import (
    TEXT,
    choices,
    is_address,
    is_spoken,
    open_columns,
    parents,
)
from fmtkit.reading.bound_column import EACH, Row, top_of
from fmtkit.reading.lost_turns import decoded, texts_within, words_of
from fmtkit.rows.joined_rows import joined

_PYTHON_MESSAGES = re.compile(
    rf"\s*\[\s*\{{\s*'(?:{'|'.join((*SPEAKER_KEYS, *CONTENT_KEYS))})'\s*:"
)


SEARCHED, FOUND = frozenset({"query", "anchor"}), frozenset({"positive", "pos"})
"""Names of what is searched for, and of the text that a search should find."""
ID_NAMES = frozenset({"id", "ids", "uuid", "guid", "hash"})
"""Last words of the names of columns in which something is named, and nothing said."""
PLAIN_TYPES = GENERIC | {"alpaca", "completion", "worked_answer", "sampled_replies", "prompt_pairs"}
"""Types that take a text for what one speaker says."""


def without_contradicted(
    fits: Sequence[Fit], sample: Sequence[Row], whole: Sequence[Row]
) -> list[Fit]:
    """Return the fits that the values of the rows do not speak against; `whole` are all rows at hand."""
    listed = choices(whole)
    if fits and parents(whole):
        # Rows that follow one another are turns: a type that takes each for itself reads no conversation.
        fits = [one for one in fits if one.converter.takes_rows or one.converter.rows_by]
    return [
        one
        for one in fits
        if not (listed and _lacks_choices(one, listed[1], sample))
        and not holds_lists(one, sample, is_message)
        and not _reads_literals(one, sample)
        and not _reads_ids(one, sample)
        and not _rates_otherwise(one, sample)
        and not _reads_addresses(one, sample)
        and not _reads_gold(one, sample)
        and not _counts_otherwise(one, sample)
        and not _ranks_nothing(one, whole)
        and not _overlooks_judge(one, sample)
        and not _reads_found_texts(one, sample)
        and not _overlooks_passages(one, sample)
        and not _overlooks_fields(one, sample)
        and not (one.converter.makes is Prompt and unjudged(sample))
    ]


def _lacks_choices(found: Fit, listed: str, sample: Sequence[Row]) -> bool:
    """Return whether a fit reads a question without its choices: a letter answers nothing without them."""
    read = _tops(found)
    return listed not in read and not all(_has_choices(row, read, listed) for row in sample)


def _has_choices(row: Row, read: set[str], listed: str) -> bool:
    """Return whether what is read of a row has all of its choices."""
    texts = [text for name in read for text in texts_within(row.get(name))]
    held = [text for text in texts_within(row.get(listed)) if len(text) > 1]
    return all(any(choice in text for text in texts) for choice in held)


def _reads_literals(found: Fit, sample: Sequence[Row]) -> bool:
    """Return whether a column that a fit reads as text has lists of messages that Python wrote."""
    columns = _read_texts(found, sample).values()
    return any(texts and all(map(_PYTHON_MESSAGES.match, texts)) for texts in columns)


def _reads_ids(found: Fit, sample: Sequence[Row]) -> bool:
    """Return whether a column that a fit reads as text is called an id, and has one word in each row."""
    return any(
        texts
        and ID_NAMES & {*words_of(path)[-1:]}
        and not any(len(text.split()) > 1 for text in texts)
        for path, texts in _read_texts(found, sample).items()
    )


def _rates_otherwise(found: Fit, sample: Sequence[Row]) -> bool:
    """Return whether ratings within a list, whose sign tells right from wrong, are never below zero.

    Of 0 and 1 the 0 is wrong, and not neutral.
    """
    rated = [
        item.get(field)
        for name, kind in found.converter.columns.items()
        for field in _signed(kind)
        for value in (decoded(row.get(_path(found, name))) for row in sample)
        for item in (value if isinstance(value, list) else ())
        if isinstance(item, Mapping)
    ]
    return bool(rated) and not any(isinstance(n, int | float) and n < 0 for n in rated)


def _signed(kind: Kind) -> list[str]:
    """Return the fields of a list of objects that hold numbers whose sign tells two sides apart."""
    if not isinstance(kind, ListKind) or not isinstance(kind.item, RecordKind):
        return []
    fields = kind.item.fields.items()
    return [name for name, held in fields if isinstance(held, NumberKind) and _has_sign(held)]


def _has_sign(kind: NumberKind) -> bool:
    return bool(kind.range and kind.range[0] < 0 < kind.range[1])


def _tops(found: Fit) -> set[str]:
    """Return the columns that a fit reads."""
    columns = found.converter.columns
    return {top_of(_path(found, name)) for name in columns}


def _path(found: Fit, name: str) -> str:
    return found.mapping.get(name, found.converter.path(name))


def _read_texts(found: Fit, sample: Sequence[Row]) -> dict[str, list[str]]:
    """Return the texts that a fit reads as such, by path."""
    held = values_by_path(sample)
    texts = {
        _path(found, name): held.get(_path(found, name), [])
        for name, kind in found.converter.columns.items()
        if isinstance(kind, TextKind)
        or (isinstance(kind, ConversationKind) and "text" in kind.accepts)
    }
    return {path: [v for v in values if isinstance(v, str)] for path, values in texts.items()}


def holds_lists(found: Fit, sample: Sequence[Row], is_item: Callable[[Any], bool]) -> bool:
    """Return whether a column that a fit reads as text mostly holds JSON text of lists of such items."""
    for texts in _read_texts(found, sample).values():
        lists = [value for value in map(decoded, texts) if isinstance(value, list) and value]
        if sum(all(map(is_item, value)) for value in lists) > TRUSTED * len(texts):
            return True
    return False


def asks_conversations(found: Fit, sample: Sequence[Row]) -> bool:
    """Return whether a type that takes a text for one turn reads texts of which most are conversations."""
    if found.converter.name not in PLAIN_TYPES:
        return False
    columns = _read_texts(found, sample).values()
    return any(sum(map(is_spoken, texts)) > TRUSTED * len(texts) for texts in columns if texts)


def _reads_addresses(found: Fit, sample: Sequence[Row]) -> bool:
    """Return whether a column that a fit reads as text has nothing but addresses, or names of media."""
    return any(
        texts and all(map(is_address, texts)) for texts in _read_texts(found, sample).values()
    )


def _reads_gold(found: Fit, sample: Sequence[Row]) -> bool:
    """Return whether a fit takes the result that a reply is compared with for the reply to messages.

    `reference_answer` beside messages that a user ends is what a reward looks at.
    """
    if (
        found.converter.makes is not Completion
        or not {"prompt", "completion"} <= found.mapping.keys()
    ):
        return False
    asked = values_by_path(sample).get(found.mapping["prompt"], [])
    words = {w for part in found.mapping["completion"].split(".") for w in words_of(part)}
    return bool(words & GOLD) and bool(asked) and all(map(are_asked, asked))


def _counts_otherwise(found: Fit, sample: Sequence[Row]) -> bool:
    """Return whether no place of a best reply is the first one, where a type reads places.

    Whether they count from 0 is seen only where one is 0.
    """
    if "first" not in found.converter.options:
        return False
    first, held = found.converter.options["first"], values_by_path(sample)
    numbers = [n for n, kind in found.converter.columns.items() if isinstance(kind, NumberKind)]
    return not any(held.get(_path(found, name), []).count(first) for name in numbers)


def _ranks_nothing(found: Fit, whole: Sequence[Row]) -> bool:
    """Return whether a type ranks adjacent rows, and no two of them have the same prompt."""
    by = found.converter.rows_by
    if not by or found.converter.makes is not Ranking:
        return False
    return len(joined(whole, by, whole_file=found.converter.whole_file)) == len(whole)


def _reads_found_texts(found: Fit, sample: Sequence[Row]) -> bool:
    """Return whether a fit takes what a search should find for a query, or not find, for two replies."""
    read = {path.lower() for path in found.mapping.values()}
    is_searched = any(name.lower() in SEARCHED for row in sample[:1] for name in row)
    return is_searched and bool(read & FOUND)


def _overlooks_passages(found: Fit, sample: Sequence[Row]) -> bool:
    """Return whether a fit takes a text under another name for a prompt, beside a list of passages.

    They are carried along, and no prompt has them: the model would be asked without what it is asked about.
    """
    if found.converter.makes is not Prompt or not found.mapping:
        return False
    read, held = _tops(found), values_by_path(sample)
    asked = held.get(_path(found, "prompt"), [])
    return all(isinstance(text, str) for text in asked) and any(
        path not in read
        and all(isinstance(value, list) for value in values)
        and is_given(path, [text for value in values for text in texts_within(value)])
        for path, values in held.items()
    )


def _overlooks_fields(found: Fit, sample: Sequence[Row]) -> bool:
    """Return whether a fit reads a field of an object in which another field is a text like it.

    The replies of several models by their names, or a sentence in two languages, are no answer each.
    """
    if found.converter.makes is Prompt:
        return False
    read: dict[str, set[str]] = {}
    for path in found.mapping.values():
        outer, _, field = path.partition(".")
        if field and "." not in field and EACH not in path:
            read.setdefault(outer, set()).add(field)
    return any(
        _has_other_text([row.get(o) for row in sample], fields) for o, fields in read.items()
    )


def _has_other_text(held: Sequence[Any], read: set[str]) -> bool:
    inner = [value for value in held if isinstance(value, Mapping)]
    left = open_columns(inner, read, beside="messages")
    others = [one for one in left if one.could_be == TEXT and one.is_grave]
    return any(not is_thought(o.name) and not is_given(o.name, (o.values)) for o in others)


def _overlooks_judge(found: Fit, sample: Sequence[Row]) -> bool:
    """Return whether a fit takes replies in numbered columns for samples beside a column that judges them."""
    takes = found.converter.columns
    return "response_8" in takes and "score_1" not in takes and are_judged(sample)


def is_on_another_scale(found: Fit, sample: Sequence[Row]) -> bool:
    """Return whether a renamed number whose sign tells two sides apart is never below zero."""
    for name, path in found.mapping.items():
        kind = found.converter.columns[name]
        if isinstance(kind, NumberKind) and _has_sign(kind):
            held = (row.get(path) for row in sample)
            if all(number >= 0 for number in held if isinstance(number, int | float)):
                return True
    return False
