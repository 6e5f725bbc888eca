"""Rendering by columns, for rows that can be traced: rows of one shape get their texts together.

Rows of one signature walk down the tree of known paths (decision_tree.py); all that arrive at one
leaf are given their texts from it at once.
"""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import field
from functools import cached_property

import numpy as np

from fmtkit.core.buffers import Bools, Int64s
from fmtkit.core.data_classes import dataclass
from fmtkit.rendering.assembly import Assembly
from fmtkit.rendering.batch_answers import BatchContents, Unknowns
from fmtkit.rendering.content_parts import Forms, forms_of, image_text
from fmtkit.rendering.conversation_columns import Batch, ConversationColumn, groups, signature
from fmtkit.rendering.decision_tree import Tree, walk
from fmtkit.rendering.render_plan import Engine, Outcome, Plan
from fmtkit.rendering.reply_cut import Problem, cut_by_text
from fmtkit.rendering.survival import (
    ALL_LOST,
    INCOMPLETE,
    REPLY_LOST,
    THOUGHTLESS,
    absent,
    find,
    incomplete,
    is_reasoning,
    silenced,
    spoken,
)
from fmtkit.rendering.tracing import Leaf, Refusal, Signature

SAME_TOOLS = 8
"""Minimum number of rows with the same tools in a batch for which a trace of their own pays."""

MAX_TREES = 4_000
"""Signatures whose paths are kept; data with more has few conversations of the same shape."""


@dataclass
class Compiled:
    """A template that is ready to render, with the paths that are known; threads share it."""

    source: str
    engine: Engine
    trees: dict[Plan, dict[Signature, Tree]] = field(default_factory=dict)
    difference: str | None = None

    @cached_property
    def forms(self) -> Forms:
        """Return the forms of content that the template takes."""
        return forms_of(self.engine)

    @cached_property
    def image(self) -> str:
        """Return what the template writes for an image; an empty text if nothing."""
        return image_text(self.engine, self.forms)

    def tree(self, plan: Plan, shapes: Signature) -> Tree | None:
        """Return the tree of a signature; None where there are too many to keep another one."""
        trees = self.trees.setdefault(plan, {})
        if shapes not in trees and len(trees) >= MAX_TREES:
            return None
        return trees.setdefault(shapes, Tree())


class TracedRows:
    """The rows of a batch that were rendered by columns so far."""

    def __init__(self, plan: Plan, batch: Batch, training: Compiled | None) -> None:
        """Begin without text; `training` is another template for prompts that change."""
        self.plan, self.batch, self.training = plan, batch, training
        self.conversations = batch.conversations
        self.rows = BatchContents(batch.parts)
        self.assembly = Assembly(self.rows, len(self.conversations[0]), plan.columns)
        self.problems: dict[int, Problem] = {}
        self.warnings: dict[str, list[int]] = defaultdict(list)
        self.fresh: list[int] = []
        self.unthought: list[tuple[int, bool]] = []
        """The rows of replies whose reasoning is left out, and whether each is the last of its row."""

    def render(self, compiled: Compiled, rows: Int64s, *, strict: bool = False) -> Int64s:
        """Render rows by columns; return those that must be rendered in another way."""
        left = self._render(compiled, rows, self.batch.parts, strict=strict)
        if self.batch.tools is None or not len(left):
            return left
        # A template that looks into tools gets them as they are: a trace for each list of tools.
        same = self.batch.of_same_tools(SAME_TOOLS)[left]
        if not same.any():
            return left
        parts = self.batch.parts_with_known_tools
        still = self._render(compiled, left[same], parts, strict=strict)
        return np.sort(np.concatenate([left[~same], still]))

    def _render(
        self, compiled: Compiled, rows: Int64s, parts: Sequence[ConversationColumn], *, strict: bool
    ) -> Int64s:
        left = []
        for group in groups(parts, rows):
            shapes = signature(parts, int(group[0]))
            tree = compiled.tree(self.plan, shapes)
            if tree is None:
                left.append(group)
                continue

            def trace_row(row: int, shapes: Signature = shapes) -> Leaf | None:
                texts = self.rows.every_text(row)
                return compiled.engine.trace(shapes, self.plan.views, texts)

            for taken in walk(tree, self.rows, group, trace_row):
                if taken.fresh:
                    self.fresh.append(int(taken.rows[0]))
                left.append(self._take(taken.leaf, taken.rows, shapes, strict=strict))
        return np.sort(np.concatenate(left)) if left else rows[:0]

    def _take(self, leaf: Leaf | None, rows: Int64s, shapes: Signature, *, strict: bool) -> Int64s:
        """Give the rows of a leaf their texts; return those that get none here."""
        # Python's message of an error contains the real values, which a trace does not have.
        if leaf is None or any(isinstance(o, Refusal) and not o.raised for o in leaf.outputs):
            return rows
        outcome = self.plan.finish(leaf.outputs)
        if outcome is None:
            rows = self._place_by_text(leaf, rows, shapes)
        if strict and not isinstance(outcome, Outcome):
            return rows
        if outcome is None:
            if self.training is not None:
                rows = self.render(self.training, rows, strict=True)
            outcome = self.plan.finish_at_header(leaf.outputs, leaf.unknowns)
        if isinstance(outcome, Problem):
            self._refuse(outcome, leaf.unknowns, rows)
        elif len(rows):
            self._place(outcome, leaf.unknowns, rows, shapes)
        return rows[:0]

    def _refuse(self, problem: Problem, unknowns: Unknowns, rows: Int64s) -> None:
        for row in rows.tolist():
            said = self.rows.expand(problem.message, unknowns, row)
            self.problems[row] = Problem(problem.code, said)

    def _place_by_text(self, leaf: Leaf, rows: Int64s, shapes: Signature) -> Int64s:
        """Set the texts of the rows whose prompt is a prefix of the whole text; return the other rows."""
        cuts = cut_by_text(leaf, self.rows, rows)
        outputs = self.plan.written(leaf.outputs, shortened=False)
        text = "".join(output for output in outputs if isinstance(output, str))
        chosen = np.array(list(cuts), np.int64)
        chosen = self._survivors(text, leaf.unknowns, chosen, shapes)
        for column in range(self.plan.columns):
            made = [(cuts[row].prompt, *cuts[row].replies)[column] for row in chosen.tolist()]
            self.assembly.add_texts(column, chosen, made)
        return np.setdiff1d(rows, np.array(list(cuts), np.int64), assume_unique=True)

    def _place(self, outcome: Outcome, unknowns: Unknowns, rows: Int64s, shapes: Signature) -> None:
        rows = self._survivors("".join(outcome.texts), unknowns, rows, shapes)
        for column, text in enumerate(outcome.texts):
            self.assembly.add(column, rows, text, unknowns)
        if outcome.shortened:
            self.warnings["generation_prompt_not_a_prefix"] += rows.tolist()

    def _survivors(self, text: str, unknowns: Unknowns, rows: Int64s, shapes: Signature) -> Int64s:
        """Refuse rows that lost their reply or all of their texts; note other lost contents."""
        found = find(text, unknowns)
        for slot in spoken(shapes, range(1, len(self.conversations))):
            if slot.key == "content":
                rows = self._refuse_lost(absent(slot, found, self.rows, rows), rows, REPLY_LOST)
        for number in range(len(self.conversations)):
            lost = silenced(spoken(shapes, [number]), found, self.rows, rows)
            rows = self._refuse_lost(lost, rows, ALL_LOST)
        dropped = np.zeros(len(rows), np.bool_)
        for slot in spoken(shapes, range(len(self.conversations))):
            gone = absent(slot, found, self.rows, rows)
            partial = incomplete(slot, found, unknowns, self.rows, rows)
            unthought = partial == THOUGHTLESS
            if is_reasoning(slot):
                unthought |= gone | (partial == INCOMPLETE)
            else:
                dropped |= gone | (partial == INCOMPLETE)
            if unthought.any():
                is_last = slot.conversation == len(self.conversations) - 1 or slot.conversation > 0
                is_last &= slot.message == len(shapes[slot.conversation]) - 1
                self.unthought += [(row, is_last) for row in rows[unthought].tolist()]
        if dropped.any():
            self.warnings["content_dropped"] += rows[dropped].tolist()
        return rows

    def _refuse_lost(self, lost: Bools, rows: Int64s, problem: Problem) -> Int64s:
        """Refuse the rows that lost what they must not; return the others."""
        self.problems.update(dict.fromkeys(rows[lost].tolist(), problem))
        return rows[~lost]
