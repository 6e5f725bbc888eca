"""The length limit: longer rows are kept, dropped, truncated or refused.

Lengths are those of the rendered text, with the special tokens of the template, and of its images; to rows
that no template renders what the trainer adds is counted. The length of a pair is the longer one of
prompt+chosen and prompt+rejected.
"""

from collections.abc import Mapping
from functools import cached_property
from threading import local

import numpy as np
import pyarrow as pa

from fmtkit.core.data_classes import dataclass
from fmtkit.core.image_columns import IMAGES
from fmtkit.core.pickling import PickledByFields
from fmtkit.core.runner import TextEnds
from fmtkit.counting.lengths import RowLengths, count_lists
from fmtkit.counting.row_ends import RowEnds, StepEnds
from fmtkit.counting.token_counts import TokenCounter
from fmtkit.counting.visual_counts import VisualCounter, count_images, with_images
from fmtkit.tokenizers import tokens
from fmtkit.tokenizers.segment_tokens import segment_tokens
from fmtkit.tokenizers.tokens import Tokenizer

REPLIES = ("completion", "chosen", "rejected", "ground_truth")


@dataclass(frozen=True, eq=False)
class LengthLimit(PickledByFields):
    """At most `tokens` tokens a row; `action` is the flag --on-overlong."""

    tokens: int
    action: str
    tokenizer_name: str
    cuts: bool = True
    """Whether rows are truncated; else those are refused that the trainer's truncation would empty."""
    fewest: int = 0
    """Minimum number of tokens of a row."""
    visual: VisualCounter | None = None
    """How the images of rows are counted; None where there are none, or no rule for them."""
    ends: TextEnds = ""
    """What the trainer puts around the rows."""
    step_separator: str | None = None
    """What it puts behind each step; None where rows have none."""
    last_step_only: bool = False
    """Whether only the last step of a row has a label."""

    @cached_property
    def tokenizer(self) -> Tokenizer:
        """Return the tokenizer; TokenizerError if it cannot be loaded."""
        return tokens.load(self.tokenizer_name)

    @cached_property
    def _added(self) -> RowEnds:
        return RowEnds.of(self.tokenizer, self.ends)

    @cached_property
    def _steps(self) -> StepEnds | None:
        separator = self.step_separator
        return None if separator is None else StepEnds.of(self.tokenizer, separator)

    @cached_property
    def _counters(self) -> local:
        """Return the storage of a counter per thread."""
        return local()

    def overlong(self, texts: Mapping[str, pa.Array]) -> np.ndarray:
        """Return the rows (indices, ascending) that have more tokens than the limit."""
        return np.flatnonzero(self.lengths(texts).longest > self.tokens)

    def too_short(self, texts: Mapping[str, pa.Array]) -> np.ndarray:
        """Return the rows (indices, ascending) that have too few tokens; none without a minimum."""
        if not self.fewest:
            return np.zeros(0, dtype=np.int64)
        return np.flatnonzero(self.lengths(texts).longest < self.fewest)

    def lengths(self, texts: Mapping[str, pa.Array]) -> RowLengths:
        """Count the tokens of text columns; steps are counted one by one and added, images too."""
        if not hasattr(self._counters, "mine"):
            # A counter's memo is for one thread.
            self._counters.mine = TokenCounter(self.tokenizer, threads=1)
        counter: TokenCounter = self._counters.mine
        texts = dict(texts)
        images = texts.pop(IMAGES, None)
        plain = {name: array for name, array in texts.items() if not _is_list(array)}
        counted = self._added.count(plain, counter)
        if images is not None and self.visual is not None:
            added = count_images(images, self.visual).added
            return RowLengths(with_images(counted.columns, added))
        lists = [array for array in texts.values() if _is_list(array)]
        if not lists:
            return counted
        prompts = counted.columns["prompt"]
        if self._steps is not None:
            return RowLengths(
                {"steps": prompts + self._steps.before + self._steps.count(lists[0], counter)}
            )
        steps = [count_lists(array, counter) for array in lists]
        return RowLengths({"steps": np.sum([prompts, *steps], axis=0)})

    def has_step(self, prompt: str, step: str) -> bool:
        """Return whether a label is within the limit: that of a row's first step is at its end."""
        if self.last_step_only:
            return False
        ends = self._steps
        added = 0 if ends is None else ends.before + self.count(ends.separator)
        return self.count(prompt) + self.count(step) + added <= self.tokens

    def too_short_segments(self, table: pa.Table) -> np.ndarray:
        """Return the rows of a table of segments that have too few tokens."""
        if not self.fewest:
            return np.zeros(0, dtype=np.int64)
        rows = table.select(["segments", "ends"]).to_pylist()
        made = (segment_tokens(row["segments"], row["ends"], self.tokenizer) for row in rows)
        return np.flatnonzero(np.fromiter((len(one.ids) for one in made), np.int64) < self.fewest)

    def overlong_segments(self, table: pa.Table) -> np.ndarray:
        """Return the rows of a table of segments that are too long; documents are split instead."""
        rows = (
            row["ends"] != "document"
            and len(segment_tokens(row["segments"], row["ends"], self.tokenizer).ids) > self.tokens
            for row in table.select(["segments", "ends"]).to_pylist()
        )
        return np.flatnonzero(np.fromiter(rows, np.bool_, table.num_rows))

    def survives_segments(self, table: pa.Table) -> np.ndarray:
        """Return for each row of segments whether truncation leaves a trained token."""
        part = self.part
        made = (
            segment_tokens(row["segments"], row["ends"], self.tokenizer)
            for row in table.select(["segments", "ends"]).to_pylist()
        )
        return np.fromiter((any(row.trained[part]) for row in made), np.bool_, table.num_rows)

    @property
    def part(self) -> slice:
        """Return which tokens of a row a truncation leaves."""
        return (
            slice(None, self.tokens) if self.action == "truncate-end" else slice(-self.tokens, None)
        )

    @property
    def truncates(self) -> bool:
        """Return whether a row that is too long is truncated."""
        return self.action.startswith("truncate")

    def cut(self, row: Mapping[str, str]) -> dict[str, str] | None:
        """Truncate the texts of a row that is too long; None if no trained text, or no prompt, is left.

        What is cut here gets its BOS and EOS later; a trainer that cuts has put them around the row before.
        """
        out = dict(row)
        replies = [name for name in REPLIES if name in row]
        first = "prompt" if replies else next(iter(row))
        room = self.tokens - self._taken(row[first], closes=first != "prompt" or bool(replies))
        if not replies:
            out[first] = self._cut(row[first], room) if room > 0 else ""
            return out if out[first].strip() else None
        if self.action == "truncate-start":
            room -= max(self.count(row[name]) for name in replies)
            out["prompt"] = self._cut(row["prompt"], room) if room > 0 else ""
            return out if out["prompt"] else None
        room -= self.count(row["prompt"])
        if room <= 0:
            return None
        out |= {name: self._cut(row[name], room) for name in replies}
        empty = any(not out[name].strip() for name in replies)
        equal = "rejected" in out and out["chosen"] == out["rejected"]
        return None if empty or equal else out

    def _taken(self, first: str, *, closes: bool) -> int:
        """Return how many tokens of the limit are for what is added around a row that is cut."""
        at_start, added = self.action == "truncate-start", self._added
        taken = added.begins(first) if self.cuts or not at_start else 0
        if self.cuts or at_start:
            taken += added.after + int(closes and added.eos is not None)
        return taken

    def count(self, text: str) -> int:
        """Count the tokens of a string."""
        return len(self.tokenizer.encode(text))

    def _cut(self, text: str, room: int) -> str:
        encoding = self.tokenizer.encode(text)
        if len(encoding) <= room:
            return text
        if self.action == "truncate-start":
            return text[encoding.offsets[-room][0] :]
        return text[: encoding.offsets[room - 1][1]]


def _is_list(array: pa.Array | pa.ChunkedArray) -> bool:
    return bool(pa.types.is_list(array.type))
