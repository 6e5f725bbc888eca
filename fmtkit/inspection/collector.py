"""The statistics of rows: everything that a survey counts, of a block on a worker, then of all blocks.

What is counted here is exact over every row (the kinds of source columns apart), and adds up: the statistics
of two blocks are the sum of those of each.
"""

from collections import Counter
from collections.abc import Iterable
from dataclasses import field
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from fmtkit.core.data_classes import dataclass
from fmtkit.core.runner import TextEnds
from fmtkit.core.tables import has_images
from fmtkit.counting import lengths
from fmtkit.counting.id_hashes import Hashes, in_order
from fmtkit.counting.lengths import RowLengths, Tally, count_lists
from fmtkit.counting.row_ends import RowEnds, StepEnds
from fmtkit.counting.token_counts import TokenCounter
from fmtkit.counting.visual_counts import VisualCounter, with_images
from fmtkit.findings.box_columns import Objects
from fmtkit.findings.conversation_shapes import ConversationShapes, conversation_names
from fmtkit.findings.cutting import CuttingTally
from fmtkit.findings.findings import EXAMPLES, Findings
from fmtkit.findings.fingerprints import hash_columns
from fmtkit.findings.image_tally import ImageTally
from fmtkit.findings.reply_checks import ReplyChecks
from fmtkit.findings.source_columns import ColumnCounts
from fmtkit.findings.written_rows import Written, write
from fmtkit.inspection.anchor_counts import AnchorTally, place_anchors
from fmtkit.inspection.row_observer import Counted, Observed, RowObserver
from fmtkit.masks.masking import USUAL, Masking
from fmtkit.rendering.chat import ChatTemplate
from fmtkit.stages.control_tokens import written_by
from fmtkit.tokenizers.tokens import Tokenizer

Ints = npt.NDArray[np.int64]

STEPS = "prompt+steps"
ADDED_TO_PROMPT = {"completions": STEPS}
LISTS = {"completions": "steps", "replies": "replies", "segments": "segments"}

REFUSALS = {"template_not_prefix_preserving": "prompt_rewritten"}
"""Code of a row without text -> its finding; others are `template_refused`."""


@dataclass
class RowStatistics:
    """The statistics of the rows so far."""

    findings: Findings
    columns: ColumnCounts = field(default_factory=ColumnCounts)
    shapes: ConversationShapes = field(default_factory=ConversationShapes)
    tallies: dict[str, Tally] = field(default_factory=dict)
    counted: int = 0
    """Rows whose lengths were counted."""
    cutting: CuttingTally | None = None
    anchors: AnchorTally = field(default_factory=AnchorTally)
    images: ImageTally = field(default_factory=ImageTally)
    refusals: Counter[str] = field(default_factory=Counter)
    """What the template said -> rows."""
    lines: dict[int, int | None] = field(default_factory=dict)
    """Row -> physical line, of rows that findings name."""
    observed: Observed | None = None
    """What an observer keeps of the rows; None where there is none."""

    def absorb(self, other: "RowStatistics", first: int) -> None:
        """Add the statistics of rows whose row 0 is row `first` here."""
        self.findings.absorb(other.findings, first)
        self.columns.absorb(other.columns)
        self.shapes.absorb(other.shapes)
        for name, tally in other.tallies.items():
            self.tallies.setdefault(name, Tally()).absorb(tally)
        self.counted += other.counted
        if self.cutting is not None and other.cutting is not None:
            self.cutting.absorb(other.cutting, first)
        self.anchors.absorb(other.anchors)
        self.images.absorb(other.images)
        self.refusals.update(other.refusals)
        self.lines |= {row + first: line for row, line in other.lines.items()}
        if self.observed is not None and other.observed is not None:
            self.observed.absorb(other.observed, first)


@dataclass(frozen=True)
class Viewer:
    """How rows are examined; one for all workers."""

    tokenizer: Tokenizer | None
    template: ChatTemplate | None
    checks: ReplyChecks | None
    ladder: tuple[int, ...]
    stride: int = 1
    """Lengths are counted for every n-th row."""
    masking: Masking = USUAL
    ends: TextEnds = ""
    """What the trainer puts around rows of text."""
    visual: VisualCounter | None = None
    """How the tokens of images are counted; None where they are not."""
    observer: RowObserver | None = None
    """What else looks at every row."""
    named_rows: int = EXAMPLES
    """How many rows a finding names."""

    def empty(self) -> RowStatistics:
        """Return the statistics of no row."""
        ends = self.checks.ends if self.checks else ()
        tokens = tuple({*ends, *(written_by(self.template) if self.template else ())})
        cutting = CuttingTally(self.ladder) if self.tokenizer and self.ladder else None
        observed = self.observer.empty() if self.observer is not None else None
        findings = Findings(tokens, self.named_rows)
        return RowStatistics(findings, cutting=cutting, observed=observed)

    def view(
        self,
        table: pa.Table,
        records: Ints,
        counter: lengths.Counter,
        split: str,
        objects: Objects | None = None,
    ) -> RowStatistics:
        """Look at a batch of a canonical table; `records` are the rows that it was made of.

        `objects` are the boxes of their images, by record.
        """
        statistics = self.empty()
        if not table.num_rows:
            return statistics
        statistics.findings.add(table, records, split)
        statistics.shapes.add(table)
        written = write(table, self.template)
        self._note(statistics, written, table, records)
        added = np.zeros(table.num_rows, np.int64)
        if has_images(table.schema):
            images = statistics.images.add(table, self.visual, statistics.findings, records)
            added = images.added
            statistics.images.add_boxes(images, objects or {}, statistics.findings, records)
        seen = _Hashing(counter)
        some = _every(written, self.stride)
        counts = self._count(statistics, some, table, records, seen, added)
        if self.observer is not None:
            counted = Counted(counts, seen.of_rows(some))
            statistics.observed = self.observer.view(table, written, counted, records)
        return statistics

    def _note(
        self, statistics: RowStatistics, written: Written, table: pa.Table, records: Ints
    ) -> None:
        for failure in written.failures:
            code = REFUSALS.get(failure.code, "template_refused")
            statistics.findings.note(code, records[[failure.row]])
            statistics.refusals[failure.message] += 1
        dropped = [
            *written.warnings.get("content_dropped", ()),
            *written.warnings.get("system_dropped", ()),
        ]
        if dropped:
            statistics.findings.note("content_dropped", records[sorted(set(dropped))])
        if written.unthought:
            statistics.findings.add_unthought(written.unthought, records)
        rows = records[written.kept]
        if self.checks is not None:
            is_written = self.template is not None and not written.lists
            for code, wrong in self.checks.check(written.texts, is_written=is_written).items():
                if wrong.any():
                    statistics.findings.note(code, rows[wrong])
        if self.template is not None and {"chosen", "rejected"} <= written.texts.keys():
            equal = _equal(written.texts["chosen"], written.texts["rejected"])
            differ = ~_equal_conversations(table, written.kept) if equal.any() else equal
            if (equal & differ).any():
                statistics.findings.note("equal_after_rendering", rows[equal & differ])

    def _count(
        self,
        statistics: RowStatistics,
        written: Written,
        table: pa.Table,
        records: Ints,
        counter: "_Hashing",
        added: Ints,
    ) -> dict[str, Ints]:
        """Count the lengths of rows, and return them; `added` are the tokens of each row's images."""
        ends = self._ends(table)
        found = dict(ends.count(written.texts, counter).columns) if written.texts else {}
        counter.name(written.texts)
        for name, lists in written.lists.items():
            counts = count_lists(lists, counter)
            if name == "completions":
                steps = StepEnds.of(self.tokenizer, self.masking.step_separator)
                counts = steps.count(lists, counter)
                found[STEPS] = found["prompt"] + counts + steps.before
            counter.name([name])
            if name == "segments":
                counts = counts + self._around(table, written)
            found[LISTS[name]] = counts
        if "input_ids" in table.column_names:
            found["input_ids"] = self._place(statistics, table, records)[written.kept]
        if not found:
            return found
        added = added[written.kept]
        if added.any():
            found = with_images(found, added)
        measured = RowLengths(found)
        self._count_tools(found, table, written, counter)
        for name, counts in found.items():
            statistics.tallies.setdefault(name, Tally()).add(counts)
        statistics.counted += len(written.kept)
        if {"chosen", "rejected"} <= found.keys():
            statistics.findings.add_sides(found["chosen"], found["rejected"])
        if statistics.cutting is not None and self.tokenizer is not None:
            rows = records[written.kept]
            texts = ends.closed(written.texts)
            before = added + (ends.begin(written.texts) if written.texts else 0)
            statistics.cutting.add(measured, texts, rows, self.tokenizer, before)
        return found

    def _place(self, statistics: RowStatistics, table: pa.Table, records: Ints) -> Ints:
        """Count the anchors of tokenised rows, and return the rows' tokens without padding."""
        placed = place_anchors(self.masking.anchors, table)
        statistics.anchors.add(placed)
        for code, wrong in {
            "padded_first": placed.padded_first,
            "no_anchor": (placed.anchors == 0) & ~placed.padded_first,
        }.items():
            if wrong.any():
                statistics.findings.note(code, records[wrong])
        return placed.tokens

    def _ends(self, table: pa.Table) -> RowEnds:
        """Return what the trainer adds to these rows: nothing where a template renders them."""
        if self.tokenizer is None or conversation_names(table):
            return RowEnds()
        return RowEnds.of(self.tokenizer, self.ends)

    def _around(self, table: pa.Table, written: Written) -> Ints:
        """Count BOS and EOS of rows of segments that the tokenizer closes."""
        closed = pa.compute.not_equal(table["ends"].take(pa.array(written.kept)), "none")
        tokens: Ints = closed.to_numpy().astype(np.int64) * (1 + self._bos())
        return tokens if self.tokenizer is not None else tokens * 0

    def _bos(self) -> int:
        return int(self.tokenizer is not None and self.tokenizer.bos_id is not None)

    def _count_tools(
        self, found: dict[str, Ints], table: pa.Table, written: Written, counter: lengths.Counter
    ) -> None:
        if "tools" not in table.column_names or table["tools"].null_count == table.num_rows:
            return
        found["tools"] = counter.count(table["tools"].combine_chunks().take(pa.array(written.kept)))


class _Hashing:
    """Counts as a counter does, and keeps the hashes of the ids of what it counts."""

    def __init__(self, counter: lengths.Counter) -> None:
        self.counter = counter
        self.last: list[Hashes] = []
        self.named: dict[str, Hashes] = {}

    def count(self, texts: pa.Array) -> Ints:
        """Return the count of each string; 0 for a null."""
        if not isinstance(self.counter, TokenCounter) or not self.counter.hashes_ids:
            return self.counter.count(texts)
        counts, hashes = self.counter.count_and_hash(texts)
        self.last.append(hashes)
        return counts

    def count_joined(self, left: pa.Array, right: pa.Array, counts: Ints) -> Ints:
        """Return the count of `left + right` in each row; `counts` are the sums for the two."""
        return self.counter.count_joined(left, right, counts)

    def name(self, columns: Iterable[str]) -> None:
        """Say of which columns the last hashes are."""
        names = [*columns]
        if self.last:
            self.named.update(zip(names, self.last[-len(names) :], strict=True))
        self.last = []

    def of_rows(self, written: Written) -> dict[str, Hashes]:
        """Return the hashes of each row's texts by column, those of lists in their order."""
        found = dict(self.named)
        for name in found.keys() & written.lists.keys():
            lists = written.lists[name]
            rows = pc.list_parent_indices(lists).to_numpy(zero_copy_only=False).astype(np.int64)
            found[name] = in_order(found[name], rows, len(lists))
        return found


def _every(written: Written, stride: int) -> Written:
    """Take every n-th row, by its position in the batch."""
    if stride == 1:
        return written
    places = np.flatnonzero(written.kept % stride == 0)
    some = pa.array(places)
    texts = {name: text.take(some) for name, text in written.texts.items()}
    lists = {name: column.take(some) for name, column in written.lists.items()}
    return Written(written.kept[places], texts, lists)


def _equal(left: Any, right: Any) -> npt.NDArray[np.bool_]:
    found: npt.NDArray[np.bool_] = pa.compute.equal(left, right).to_numpy(zero_copy_only=False)
    return found


def _equal_conversations(table: pa.Table, kept: Ints) -> npt.NDArray[np.bool_]:
    hashes = [hash_columns(table, (name,)) for name in ("chosen", "rejected")]
    found: npt.NDArray[np.bool_] = (hashes[0] == hashes[1])[kept]
    return found
