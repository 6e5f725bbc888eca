"""Checks of rendered rows: one BOS, an end of turn to learn, something to train on.

In columns, over every row. BOS and EOS are looked for as text: rows are tokenized without further
special tokens, so that those in the ids are those in the text.
"""

import re
from collections.abc import Mapping
from functools import cached_property

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from fmtkit.columns.thinking import TAG_TOKENS
from fmtkit.core.data_classes import dataclass
from fmtkit.findings.written_rows import REPLIES
from fmtkit.tokenizers.tokens import Tokenizer

Bools = npt.NDArray[np.bool_]

TAIL = 200
"""Characters at the end of a string in which its end of turn is searched."""


@dataclass(frozen=True)
class ReplyChecks:
    """The checks of one tokenizer."""

    tokenizer: Tokenizer

    @cached_property
    def bos(self) -> str | None:
        """Return the BOS token; None where there is none, or where EOS is the same token."""
        bos, eos = (self.tokenizer.special_tokens.get(f"{n}_token") for n in ("bos", "eos"))
        return bos if bos and bos != eos else None

    @cached_property
    def wants_bos(self) -> bool:
        """Return whether the tokenizer begins a sequence with BOS by itself."""
        ids = self.tokenizer.encode("x", add_special_tokens=True).ids
        return self.tokenizer.bos_id is not None and ids[0] == self.tokenizer.bos_id

    @cached_property
    def ends(self) -> tuple[str, ...]:
        """Return the tokens that may end a reply."""
        eos = self.tokenizer.special_tokens.get("eos_token")
        known = {*self.tokenizer.control_tokens(), *([eos] if eos else [])} - TAG_TOKENS
        return tuple(sorted(known, key=lambda token: (-len(token), token)))

    @cached_property
    def end_pattern(self) -> str:
        """Return the pattern of a string that ends with such a token."""
        return f"(?:{'|'.join(map(_escaped, self.ends))})\\s*$"

    @cached_property
    def twice_pattern(self) -> str:
        """Return the pattern of a string that ends with the same token twice."""
        doubled = (f"{t}\\s*{t}" for t in map(_escaped, self.ends))
        return f"(?:{'|'.join(doubled)})\\s*$"

    def check(self, texts: Mapping[str, pa.Array], *, is_written: bool) -> dict[str, Bools]:
        """Return code -> rows that have it; `is_written`: by a template, not only contents."""
        replies = [texts[name] for name in (*REPLIES, "messages") if name in texts]
        found: dict[str, Bools] = {}
        if is_written and self.bos:
            found |= self._bos(texts)
        if replies and is_written and self.ends:
            found["end_not_trained"] = ~_all(replies, self.end_pattern)
            found["end_doubled"] = _any(replies, self.twice_pattern)
        empty = [name for name in REPLIES if name in texts]
        if empty:
            found["nothing_trained"] = ~_all([texts[name] for name in empty], r"\S")
        return found

    def _bos(self, texts: Mapping[str, pa.Array]) -> dict[str, Bools]:
        first = texts.get("prompt", texts.get("messages"))
        if first is None:
            return {}
        sides = [texts[name] for name in REPLIES if name in texts]
        before = _count(first, self.bos or "")
        most = (
            before + np.max([_count(s, self.bos or "") for s in sides], axis=0) if sides else before
        )
        missing = (before == 0) if self.wants_bos else np.zeros(len(before), np.bool_)
        return {"bos_missing": missing, "bos_doubled": most > 1}


def _escaped(token: str) -> str:
    # Escaped for RE2, which knows fewer escapes than Python.
    return re.sub(r"([^\w\s])", r"\\\1", token)


def _count(texts: pa.Array, token: str) -> npt.NDArray[np.int64]:
    counts: npt.NDArray[np.int64] = pc.count_substring(texts, token).to_numpy(zero_copy_only=False)
    return counts


def _matches(texts: pa.Array, pattern: str) -> Bools:
    if pattern.endswith("$"):
        # What ends a text is at its end: no need to search it all.
        texts = pc.utf8_slice_codeunits(texts, -TAIL)
    found: Bools = pc.match_substring_regex(texts, pattern).to_numpy(zero_copy_only=False)
    return found


def _all(columns: list[pa.Array], pattern: str) -> Bools:
    found: Bools = np.logical_and.reduce([_matches(column, pattern) for column in columns])
    return found


def _any(columns: list[pa.Array], pattern: str) -> Bools:
    found: Bools = np.logical_or.reduce([_matches(column, pattern) for column in columns])
    return found
