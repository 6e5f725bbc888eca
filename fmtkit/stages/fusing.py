"""Fused reading: rows whose output the kernel writes while it reads their lines, without a data frame.

If a type declares how its conversations are built (`fmtkit.columns.turn_sources`), the kernel writes the
output of a line directly (`fmtkit.columns.text_layout`): messages, or text once the template was traced on
conversations of that shape. Lines that it cannot fuse (a broken rule, a control token, a new shape) are
converted in the ordinary way, which gives the same rows.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from itertools import islice
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
from numpy.typing import NDArray
from polars import Expr

from fmtkit.columns.expansion import Several
from fmtkit.columns.kinds import ConversationKind, TextKind
from fmtkit.columns.strict_kinds import value_of
from fmtkit.columns.text_layout import (
    LEFT,
    MOST_TURNS,
    MOST_VIEWS,
    RIGHT,
    Ask,
    Condition,
    Layout,
    Path,
    Shape,
    View,
    wider,
)
from fmtkit.columns.text_layout import Trim as Trimmed
from fmtkit.columns.turn_sources import Null, Rule, turns
from fmtkit.core.buffers import Int64s, sample_of, values_of
from fmtkit.core.data_classes import dataclass
from fmtkit.core.message_keys import MESSAGE_KEYS
from fmtkit.core.tables import CONVERSATION_COLUMNS, MESSAGE, TEXT_NAMES, WIDE_MESSAGE, carried
from fmtkit.reading import clean_lines
from fmtkit.reading.binding import Binding
from fmtkit.reading.bound_column import BoundColumn
from fmtkit.reading.clean_lines import CompiledLayout
from fmtkit.reading.table_program import columns_of
from fmtkit.rendering import tiers
from fmtkit.rendering.batch_answers import Unknowns, trimmed_slot
from fmtkit.rendering.content_parts import TEXTS
from fmtkit.rendering.conversation_columns import Batch, conversation_column
from fmtkit.rendering.plain_rows import PlainRows
from fmtkit.rendering.render_plan import Outcome, Plan
from fmtkit.rendering.survival import find, spoken
from fmtkit.rendering.text_columns import Trim
from fmtkit.rendering.traced_rows import Compiled
from fmtkit.rendering.tracing import Leaf, Refusal, Signature
from fmtkit.rendering.unknowns import ANY_SYMBOL, Question, symbolic
from fmtkit.sources.blocks import Records, Row
from fmtkit.stages.text_stage import SIDES, TextStage, rendered_of

MOST_SHAPES = 1_000
"""Shapes of conversations that a layout holds."""
_SIDES = {"strip": LEFT + RIGHT, "lstrip": LEFT, "rstrip": RIGHT}
WORTH = 0.5
"""The least share of fused records in a block; below it the whole block goes the ordinary way."""


@dataclass(frozen=True)
class Fused:
    """The rows of a block that were fused."""

    table: pa.Table
    rows: Int64s
    """The record of each row in its block."""
    left: Int64s
    """The records that are left for the ordinary way."""
    traced: int
    """How many rows were rendered."""
    warnings: Counter[str]


@dataclass(frozen=True)
class Paths:
    """A layout with all paths known so far, ready to fuse lines."""

    layout: Layout
    compiled: CompiledLayout
    shortened: NDArray[np.bool_]
    """For each path, whether it ends before the generation prompt does."""


class Fusion:
    """Fused reading of a binding's rows; shared by threads."""

    def __init__(
        self, binding: Binding, stage: TextStage, schema: pa.Schema, tokens: Sequence[str]
    ) -> None:
        """Start without paths; `fits` says whether there can be any."""
        self.binding, self.schema = binding, schema
        self.stage, self.is_text = stage, stage.is_text
        self.columns = dict(columns_of(binding.made, text=False))
        if self.is_text:
            self.plan, self.names = rendered_of(self.columns)
        else:
            self.plan, self.names = (
                Plan(),
                tuple(n for n in self.columns if n in CONVERSATION_COLUMNS),
            )
        self.tokens = tuple(tokens)
        self.paths: Paths | None = None
        self._known = 0
        self._misses = 0

    @cached_property
    def fits(self) -> bool:
        """Return whether a layout can express every outcome for a row."""
        binding, stage = self.binding, self.stage
        if stage.form not in ("text", "messages") or stage.text_source or stage.limit:
            return False
        if binding.carried or not self.names or not self._has_plain_columns:
            return False
        held = self._rules.bound
        return (
            all(map(self._is_known, self._conditions))
            and clean_lines.can_make(self._rules)
            and self._held.keys() == {*held}
            and all(map(self._is_readable, self._held.values()))
            and len({kind.wide for kind in self._conversations} | {stage.wide}) == 1
            and {*held}.isdisjoint(column.bound for column in self.columns.values())
            and (not self.is_text or self._is_traceable)
        )

    @property
    def awaits_paths(self) -> bool:
        """Return whether rows could be fused once the template was traced on some."""
        if self.paths is not None or not (self.fits and self.is_text):
            return False
        return not self._template.difference and not self._template.trees.get(self.plan)

    @property
    def _is_traceable(self) -> bool:
        compiled = None if self.stage.template is None else self.stage.template.compiled
        return compiled is not None and compiled.forms == TEXTS and compiled.engine.traceable

    @property
    def _held(self) -> dict[str, BoundColumn]:
        """Return the bound columns of which rows are made."""
        held = self._rules.bound
        return {column.name: column for column in self.binding.columns if column.name in held}

    @property
    def _conversations(self) -> list[ConversationKind]:
        kinds = [column.kind for column in self._held.values()]
        return [kind for kind in kinds if isinstance(kind, ConversationKind)]

    @staticmethod
    def _is_readable(column: BoundColumn) -> bool:
        """Return whether the kernel makes turns of a column: of messages only where they may not be null."""
        return isinstance(column.kind, TextKind) or (
            isinstance(column.kind, ConversationKind) and column.required
        )

    @cached_property
    def _conditions(self) -> list[Expr | Rule]:
        """Return the conditions on which rows are bad or get a warning."""
        columns = self.columns.values()
        found = [problem.when for column in columns for problem in column.problems]
        return found + [when for column in columns for _, when in column.warnings]

    @property
    def _has_plain_columns(self) -> bool:
        """Return whether each column is a conversation of known turns, or an unchanged bound column."""
        return not any(
            isinstance(column, Several)
            or (column.turns if name in self.names else column.bound) is None
            for name, column in self.columns.items()
        )

    def _is_known(self, when: Expr | Rule) -> bool:
        if isinstance(when, Null):
            # The kernel leaves lines whose required column is null to the strict parser.
            required = {column.name for column in self.binding.columns if column.required}
            return when.column in required
        return isinstance(when, Rule)

    @cached_property
    def _rules(self) -> Layout:
        """Return the layout without a shape."""
        is_text = self.is_text
        rules = [when for when in self._conditions if isinstance(when, Rule)]
        sides = tuple(self.names.index(name) for name in SIDES if name in self.names)
        tools = self.columns.get("tools")
        layout = Layout(
            conversations=tuple(
                t for name in self.names if (t := self.columns[name].turns) is not None
            ),
            rules=tuple(dict.fromkeys(wider(rule) for rule in rules if not isinstance(rule, Null))),
            tokens=self.tokens,
            # Templates are traced without tools.
            silent=(tools.bound,) if is_text and tools is not None and tools.bound else (),
            messages=not is_text,
            unlike=((sides[0], sides[1]),) if is_text and len(sides) == len(SIDES) else (),
        )
        kinds = {column.name: column.kind for column in self.binding.columns}
        reads = any(isinstance(kinds.get(name), ConversationKind) for name in layout.bound)
        keys = tuple((key.name, key.form) for key in MESSAGE_KEYS)
        return replace(layout, keys=keys if self.stage.wide and (reads or not is_text) else ())

    def fuse(self, records: Records) -> Fused | None:
        """Convert and render the rows of a block that the kernel can fuse; None if these are too few."""
        if self.paths is None:
            # The paths may be those of rows of a different source.
            self.take_paths()
        paths = self.paths
        if paths is None or self._misses > 2:
            return None
        if self.is_text and self._template.difference:
            return None
        fused = paths.compiled.read(records.data)
        records.blank_lines = fused.verdicts == clean_lines.BLANK
        verdicts = fused.verdicts[~records.blank_lines]
        rows = np.flatnonzero(verdicts == clean_lines.CLEAN)
        if len(rows) < WORTH * len(verdicts):
            self._misses += 1
            return None
        if self.is_text and self._difference(fused.made, rows, records):
            return None
        shortened = int(fused.taken[paths.shortened].sum())
        return Fused(
            self._table(fused),
            rows,
            np.flatnonzero(verdicts != clean_lines.CLEAN),
            len(rows) if self.is_text else 0,
            +Counter({"generation_prompt_not_a_prefix": shortened}),
        )

    def _table(self, fused: clean_lines.LayoutLines) -> pa.Table:
        """Return the rows as they will be written."""
        names = TEXT_NAMES if self.is_text else {}
        made = {names.get(n, n): column for n, column in zip(self.names, fused.made, strict=True)}
        rest = {n: c.bound for n, c in self.columns.items() if n not in self.names and c.bound}
        rest |= {carried(kept.label): kept.name for kept in self.binding.kept}
        if rest:
            schema = pa.schema([field for field in self.schema if field.name in rest])
            frame = fused.frame.select(
                pl.col(rest[name]).alias(str(i)) for i, name in enumerate(schema.names)
            )
            arrow = frame.to_arrow(compat_level=pl.CompatLevel.newest())
            arrow = arrow.rename_columns(schema.names).cast(schema).combine_chunks()
            made |= dict(zip(schema.names, arrow.columns, strict=True))
        return pa.table([made[name] for name in self.schema.names], schema=self.schema)

    def _values(self, row: Row) -> dict[str, Any]:
        """Return the strict parser's values of a row for the columns of which conversations are made."""
        values = {}
        for column in self.binding.columns:
            if column.name in self._rules.bound:
                value = column.lookup(row)
                values[column.name] = None if value is None else value_of(column.kind, value)
        return values

    # Paths.

    @cached_property
    def _template(self) -> Compiled:
        assert self.stage.template is not None
        return self.stage.template.compiled

    def take_paths(self) -> None:
        """Add the paths that rows rendered by columns have taken since the last call."""
        if not self.fits:
            return
        if not self.is_text:
            self.paths = self.paths or self._ready(self._rules, ())
            return
        trees = dict(self._template.trees.get(self.plan, {}))
        known = sum(len(tree.taken) for tree in trees.values())
        if known != self._known:
            leaves = {shapes: tree.known() for shapes, tree in trees.items()}
            self.paths, self._known, self._misses = self._paths_of(leaves), known, 0

    def _ready(self, layout: Layout, shortened: Sequence[bool]) -> Paths | None:
        compiled = clean_lines.compile_layout(self.binding.spec, layout)
        if compiled is None:
            return None
        return Paths(layout, compiled, np.array(shortened, np.bool_))

    def _paths_of(self, leaves: Mapping[Signature, Sequence[Leaf]]) -> Paths | None:
        """Return a layout with the paths that it can express; None if it can express none."""
        shapes, shortened = [], []
        roles = {*clean_lines.roles_of(self._rules, self.binding.spec)}
        keys = {"content", *(name for name, _ in self._rules.keys)}
        without_tools = ((parts[:-1], found) for parts, found in leaves.items() if not parts[-1])
        for signature, found in islice(without_tools, MOST_SHAPES):
            messages = [shape for conversation in signature for shape in conversation]
            if len(messages) > MOST_TURNS or any(
                shape.role not in roles
                or shape.in_part
                or shape.calls is not None
                or "content" not in shape.keys
                or not keys.issuperset(shape.keys)
                for shape in messages
            ):
                continue
            made = _ShapeMaking(signature)
            paths = [
                (path, outcome) for leaf in found for path, outcome in made.paths(leaf, self.plan)
            ]
            if not paths or len(made.views) > MOST_VIEWS:
                continue
            shapes.append(made.shape([path for path, _ in paths]))
            shortened += [outcome.shortened for _, outcome in paths]
        return (
            self._ready(replace(self._rules, shapes=tuple(shapes)), shortened) if shapes else None
        )

    # The sample that is also rendered row by row.

    def _difference(self, fused: Sequence[pa.Array], rows: Int64s, records: Records) -> bool:
        """Render a sample row by row from the strict parser's values, and return whether it differs."""
        sample = sample_of(fused[0], one_in=tiers.SAMPLE)
        if not len(sample):
            return False
        assert self.stage.template is not None
        compiled, training = self._template, self.stage.template.compiled_training
        values = [
            self._values(records.value(int(rows[place]), written=True)[0])
            for place in sample.tolist()
        ]
        dtype = pa.list_(WIDE_MESSAGE if self._rules.keys else MESSAGE)
        conversations = [
            conversation_column(values_of([turns(source, row) for row in values], dtype))
            for source in self._rules.conversations
        ]
        engine = training.engine if training else None
        plain = PlainRows(compiled.engine, self.plan, Batch(conversations), engine)
        for place, one in zip(sample.tolist(), plain.render(np.arange(len(sample))), strict=True):
            made = tuple(column[place].as_py() for column in fused)
            if not isinstance(one.outcome, Outcome) or one.outcome.texts != made:
                compiled.difference = f"row {place} rendered differently by columns and row by row"
                return True
        return False


class _ShapeMaking:
    """Builds the shape of a signature from its paths, with the views that they need."""

    def __init__(self, signature: Signature) -> None:
        self.signature = signature
        self.views: dict[View, int] = {}
        sizes = [len(conversation) for conversation in signature]
        self.firsts = [sum(sizes[:number]) for number in range(len(sizes))]

    def shape(self, paths: Sequence[Path]) -> Shape:
        """Return the shape with these paths."""
        roles = tuple(
            tuple(shape.role or "" for shape in conversation) for conversation in self.signature
        )
        keys = tuple(tuple(s.keys[1:] for s in conversation) for conversation in self.signature)
        return Shape(roles, tuple(self.views), tuple(paths), keys)

    def paths(self, leaf: Leaf, plan: Plan) -> list[tuple[Path, Outcome]]:
        """Return the path of a leaf, if a layout can express it and it loses no content."""
        if any(isinstance(output, Refusal) for output in leaf.outputs):
            return []
        outcome = plan.finish(leaf.outputs)
        if not isinstance(outcome, Outcome):
            return []
        found = find("".join(outcome.texts), leaf.unknowns)
        if not found.whole.issuperset(spoken(self.signature, range(len(self.signature)))):
            return []
        conditions = [self._condition(asked, is_so, leaf.unknowns) for asked, is_so in leaf.path]
        pieces = [self._pieces(text, leaf.unknowns) for text in outcome.texts]
        if None in conditions or None in pieces:
            return []
        path = Path(tuple(filter(None, conditions)), tuple(p for p in pieces if p is not None))
        return [(path, outcome)]

    def _view(self, text: str, unknowns: Unknowns) -> int | None:
        """Return the number of the view that a symbolic text is; None if it is none."""
        trimmed = trimmed_slot(text, unknowns)
        if trimmed is None:
            return None
        slot, trims = trimmed
        if not all(_is_ascii(trim) for trim in trims):
            return None
        sides: tuple[Trimmed, ...] = tuple((_SIDES[method], of) for method, of in trims)
        view = View(self.firsts[slot.conversation] + slot.message, sides, slot.key)
        return self.views.setdefault(view, len(self.views))

    def _condition(self, asked: Question, is_so: bool, unknowns: Unknowns) -> Condition | None:
        view = self._view(asked.text, unknowns)
        predicate, arguments = asked.predicate, asked.arguments
        if view is None:
            return None
        if predicate == "nonempty" or (predicate == "longer" and arguments[0] <= 1):
            return Condition(view, Ask.NONEMPTY, "", is_so)
        ask = Ask.__members__.get(predicate.upper())
        if ask is None or len(arguments) != 1:
            return None
        (other,) = arguments
        if not isinstance(other, str) or symbolic(other):
            return None
        return Condition(view, ask, other, is_so)

    def _pieces(self, text: str, unknowns: Unknowns) -> tuple[str | int, ...] | None:
        pieces: list[str | int] = []
        at = 0
        for symbol in ANY_SYMBOL.finditer(text):
            view = self._view(symbol[0], unknowns)
            if view is None:
                return None
            pieces += [text[at : symbol.start()], view]
            at = symbol.end()
        return tuple(piece for piece in (*pieces, text[at:]) if piece != "")


def _is_ascii(trim: Trim) -> bool:
    return trim[1] is None or trim[1].isascii()
