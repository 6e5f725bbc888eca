"""Columns as their values show them: texts, lists of texts, lists of numbers, lists of objects, at any path.

Names come second: what a list of objects holds is judged by what is low in variety, long, or rated.
"""

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any

from fmtkit.core.data_classes import dataclass
from fmtkit.detection.near_misses import are_asked, asks
from fmtkit.detection.unread_columns import TEXTS, count_words, open_columns
from fmtkit.reading.bound_column import EACH, Row, top_of
from fmtkit.reading.lost_turns import decoded, words_of

MOST_FIELDS = 16
"""Fields of an object up to which each is looked at: an object of more is a table of its own."""
DEPTH = 3
FEW_WORDS = 2
"""Words on average from which on texts are more than names."""
LIST_SHARE = 0.9
"""Share of rows that must hold a list for a column to be one."""


@dataclass(frozen=True, eq=False)
class ValueColumns:
    """The columns of some rows, by path, with a value for each row; null where it has none."""

    sample: Sequence[Row]

    @cached_property
    def paths(self) -> dict[str, list[Any]]:
        """Return the columns and the fields of objects, in the order of the rows' keys."""
        found: dict[str, list[Any]] = {}
        for name in dict.fromkeys(key for row in self.sample for key in row):
            if "." not in name and "\0" not in name:
                self._add(found, name, [row.get(name) for row in self.sample], 1)
        return found

    def _add(self, found: dict[str, list[Any]], path: str, held: list[Any], depth: int) -> None:
        found[path] = held
        objects = [value for value in held if isinstance(value, Mapping)]
        keys = dict.fromkeys(key for value in objects for key in value if "." not in key)
        if depth >= DEPTH or len(keys) > MOST_FIELDS:
            return
        for key in keys:
            inner = [value.get(key) if isinstance(value, Mapping) else None for value in held]
            self._add(found, f"{path}.{key}", inner, depth + 1)

    @cached_property
    def lists(self) -> dict[str, list[list[Any]]]:
        """Return the columns of lists, and the fields of the objects in lists, as `replies[].text`."""
        found: dict[str, list[list[Any]]] = {}
        for path, held in self.paths.items():
            values = [decoded(value) for value in held]
            there = [value for value in values if value is not None]
            if not there or not all(isinstance(value, list) and value for value in there):
                continue
            if len(there) < LIST_SHARE * len(values):
                continue
            found[path] = there
            for key in fields_of(there):
                found[path + EACH + key] = [[item.get(key) for item in value] for value in there]
        return found

    @cached_property
    def open_texts(self) -> list[str]:
        """Return the columns of text that could be turns or answers: several words, that mostly differ."""
        held = open_columns(self.sample, (), beside="messages")
        found = [one.name for one in held if one.could_be in TEXTS and one.name in self.paths]
        return [name for name in found if self._is_said(name)]

    def _is_said(self, path: str) -> bool:
        texts = self.texts(path) or []
        many = sum(map(count_words, texts)) >= FEW_WORDS * len(texts)
        return bool(texts) and many and 2 * len({*texts}) > len(texts)

    def texts(self, path: str) -> list[str] | None:
        """Return the texts of a column; None where it holds anything else, or lists as JSON text."""
        there = [value for value in self.paths[path] if value is not None]
        is_text = all(isinstance(v, str) and isinstance(decoded(v), str) for v in there)
        return there if there and is_text else None

    def prompt(self, taken: Sequence[str]) -> str | None:
        """Return the column that is what was asked, beside those taken; None where none or several are.

        Messages that a user ends, a text that is named so, or the only text that is left.
        """
        tops = {top_of(path) for path in taken}
        free = [p for p in self.paths if p not in taken and (top_of(p) not in tops or "." in p)]
        conversations = [p for p in free if self.is_asked(p)]
        if len(conversations) == 1:
            return conversations[0]
        texts = [p for p in free if self.texts(p)]
        named = [p for p in texts if asks(p.rpartition(".")[2])]
        if named:
            return named[0] if len(named) == 1 else None
        left = [p for p in texts if p in self.open_texts]
        return left[0] if len(left) == 1 else None

    def is_shared(self, path: str) -> bool:
        """Return whether a column is the same sentence in all of several rows."""
        held = self.paths[path]
        is_text = isinstance(held[0], str) and len(held[0].split()) > 2
        return is_text and len(held) > 1 and all(value == held[0] for value in held)

    def is_asked(self, path: str) -> bool:
        """Return whether a column holds messages of which the user's are the last."""
        there = [value for value in self.paths[path] if value is not None]
        return bool(there) and all(_ends_with_user(decoded(value)) for value in there)


def _ends_with_user(value: Any) -> bool:
    """Return whether a value is a list of messages of which the last is the user's."""
    if are_asked(value):
        return True
    last = value[-1] if isinstance(value, list) and value else None
    return isinstance(last, Mapping) and last.get("role") == "user" and "content" in last


def fields_of(lists: Sequence[Sequence[Any]]) -> list[str]:
    """Return the fields that every object of some lists has; none where an item is no object."""
    items = [item for value in lists for item in value]
    if not items or not all(isinstance(item, Mapping) for item in items):
        return []
    first = [key for key in items[0] if "." not in key and "[" not in key]
    return [key for key in first if all(key in item for item in items)]


def words(path: str) -> set[str]:
    """Return the words of a path's last name, without the s of a plural."""
    last = path.replace(EACH, ".").rpartition(".")[2]
    return {word.removesuffix("s") if not word.endswith("ss") else word for word in words_of(last)}
