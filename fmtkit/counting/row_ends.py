"""Lengths of rows that no template renders, with what a trainer adds: BOS, EOS, separators of steps."""

from collections.abc import Mapping

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from fmtkit.core.data_classes import dataclass
from fmtkit.core.runner import TextEnds
from fmtkit.counting.lengths import JOINT, Counter, Ints, RowLengths, count_columns, count_lists
from fmtkit.tokenizers.text_ends import added_around, closed_text
from fmtkit.tokenizers.tokens import Tokenizer

_CLOSED = frozenset({"text", "completion", "chosen", "rejected"})
"""Columns whose texts end where they are trained on."""


@dataclass(frozen=True)
class RowEnds:
    """What a trainer adds to rows of text (`Runner.text_ends`), counted without making their ids."""

    before: int = 0
    """Tokens before a row."""
    after: int = 0
    """Tokens behind a row and its EOS."""
    eos: str | None = None
    """What closes a reply; None where nothing does, or the tokenizer has none, which training refuses."""
    bos: str | None = None
    """A BOS of `before` that is not written a second time."""

    @classmethod
    def of(cls, tokenizer: Tokenizer, ends: TextEnds) -> "RowEnds":
        """Return what is added to rows with these ends by a trainer with this tokenizer."""
        if not ends:
            return cls()
        eos = None if tokenizer.eos_id is None else tokenizer.special_tokens["eos_token"]
        if ends == "text":
            before, after = added_around(tokenizer)
            return cls(len(before), len(after), eos)
        if tokenizer.bos_id is None:
            return cls(eos=eos)
        return cls(1, 0, eos, tokenizer.special_tokens["bos_token"])

    def closed(self, texts: Mapping[str, pa.Array]) -> dict[str, pa.Array]:
        """Return text columns with EOS behind the texts that a trainer closes."""
        return {
            name: array if self.eos is None or name not in _CLOSED else _closed(array, self.eos)
            for name, array in texts.items()
        }

    def begin(self, texts: Mapping[str, pa.Array]) -> Ints:
        """Return how many tokens are added before each row."""
        first = texts["prompt"] if "prompt" in texts else next(iter(texts.values()))
        before = np.full(len(first), self.before, np.int64)
        if self.bos is not None:
            begun = pc.fill_null(pc.starts_with(first, self.bos), False)
            before -= begun.to_numpy(zero_copy_only=False).astype(np.int64)
        return before

    def count(self, texts: Mapping[str, pa.Array], counter: Counter) -> RowLengths:
        """Count the tokens of text columns as `count_columns` does, with what is added to them."""
        counted = dict(count_columns(self.closed(texts), counter).columns)
        if self == RowEnds() or not counted:
            return RowLengths(counted)
        before = self.begin(texts)
        whole = {*JOINT.values()} & counted.keys() or {next(iter(counted))}
        for name in whole:
            counted[name] = counted[name] + before + self.after
        if "prompt" in counted.keys() - whole:
            counted["prompt"] = counted["prompt"] + before
        return RowLengths(counted)

    def begins(self, text: str) -> int:
        """Return how many tokens are added before one row, which begins with this text."""
        return self.before - int(self.bos is not None and text.startswith(self.bos))

    def reply(self, text: str) -> str:
        """Return a reply as it is trained on."""
        return text if self.eos is None else closed_text(text, self.eos)


def _closed(texts: pa.Array, eos: str) -> pa.Array:
    ended = pc.binary_join_element_wise(texts, eos, "")
    return pc.if_else(pc.ends_with(texts, eos), texts, ended)


@dataclass(frozen=True)
class StepEnds:
    """What a trainer of process reward models adds: BOS before a row, a separator behind each step."""

    before: int
    separator: str

    @classmethod
    def of(cls, tokenizer: Tokenizer | None, separator: str) -> "StepEnds":
        """Return what is added with a tokenizer; without one only separators are."""
        return cls(int(tokenizer is not None and tokenizer.bos_id is not None), separator)

    def count(self, steps: pa.ListArray, counter: Counter) -> Ints:
        """Count the tokens of the steps of rows, each tokenized by itself, with their separators."""
        numbers = pc.list_value_length(steps).to_numpy(zero_copy_only=False).astype(np.int64)
        size = int(counter.count(pa.array([self.separator]))[0])
        counted: Ints = count_lists(steps, counter) + numbers * size
        return counted
