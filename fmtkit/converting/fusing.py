"""Rows whose texts are put together as their lines are read, without a column in between.

Where a type makes its dialogs of texts as they stand, and the template was traced on such conversations
before, the kernel lays the texts of a line out at once (`fmtkit.text_layout`). What it does not lay out
(a rule that does not hold, a control token, a conversation of a new shape) is left for the ordinary way,
which makes the same of every row.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import polars as pl
import pyarrow as pa

from fmtkit.buffers import Int64s, texts
from fmtkit.converting.binding import Binding
from fmtkit.converting.conversion import columns_of
from fmtkit.converting.text_stage import SIDES, TextStage, rendered_of
from fmtkit.expansion import Several
from fmtkit.kinds import TextKind
from fmtkit.problems import Blank, Column, Equal, Null, Problem
from fmtkit.reading import clean_lines
from fmtkit.rendering.batch_answers import Unknowns, trimmed_slot
from fmtkit.rendering.content_parts import TEXTS
from fmtkit.rendering.dialog_columns import DialogColumn
from fmtkit.rendering.plain_rows import PlainRows
from fmtkit.rendering.render_plan import Outcome, Plan
from fmtkit.rendering.survival import find, spoken
from fmtkit.rendering.text_columns import Trim, text_column
from fmtkit.rendering.tiers import sample_of
from fmtkit.rendering.tracing import Fault, Leaf, Signature
from fmtkit.rendering.unknowns import ANY_SYMBOL, Question, symbolic
from fmtkit.sources.records import Records
from fmtkit.tables import DIALOG_COLUMNS, TEXT_NAMES
from fmtkit.text_layout import LEFT, RIGHT, Ask, Condition, Layout, Path, Shape, View
from fmtkit.text_layout import Trim as Trimmed

MOST_SHAPES = 1_000
"""Shapes of conversations that a layout holds."""
_SIDES = {"strip": LEFT + RIGHT, "lstrip": LEFT, "rstrip": RIGHT}
_WORTH = 0.5
"""The share of the records of a block that must be laid out, else the whole block goes the ordinary way."""


@dataclass(frozen=True)
class Laid:
    """The rows of a block whose texts were laid out."""

    table: pa.Table
    rows: Int64s
    """The record of each row in its block."""
    left: Int64s
    """The records that are left for the ordinary way."""
    warnings: Counter[str]


@dataclass(frozen=True)
class _Paths:
    """A layout with all paths known so far, and which of them end before the generation prompt does."""

    layout: Layout
    shortened: tuple[bool, ...]
    known: int


class Fusion:
    """How the rows of a binding are laid out; threads share it."""

    def __init__(
        self, binding: Binding, stage: TextStage, schema: pa.Schema, tokens: Sequence[str]
    ) -> None:
        """Begin without a path; `fits` says whether there can be any."""
        self.binding, self.schema = binding, schema
        self.stage = stage
        self.columns = dict(columns_of(binding.made, text=False))
        self.plan, self.names = rendered_of(self.columns)
        self.tokens = tuple(tokens)
        self._paths: _Paths | None = None
        self._misses = 0

    @cached_property
    def fits(self) -> bool:
        """Tell whether a layout can say all that becomes of a row."""
        binding, stage = self.binding, self.stage
        if stage.template is None or not stage.is_text or stage.text_source or stage.limit:
            return False
        if binding.carried or not _are_plain_columns(self.columns, self.names):
            return False
        dialogs = [self.columns[name].turns for name in self.names]
        problems = [problem for column in self.columns.values() for problem in column.problems]
        held = self._rules.bound
        return (
            all(dialogs)
            and all(self._is_told(problem) for problem in problems)
            and all(isinstance(c.kind, TextKind) for c in binding.columns if c.name in held)
            and {*held}.isdisjoint(column.bound for column in self.columns.values())
            and not {k.label for k in binding.kept} & {*DIALOG_COLUMNS, *TEXT_NAMES.values()}
            and stage.template.compiled.forms == TEXTS
            and stage.template.compiled.engine.traceable
        )

    def _is_told(self, problem: Problem) -> bool:
        if isinstance(problem.rule, Null):
            # The kernel itself leaves a line whose required column is null.
            required = {column.name for column in self.binding.columns if column.required}
            return problem.rule.column in required
        return problem.rule is not None

    @cached_property
    def _rules(self) -> Layout:
        """Return the layout without a shape."""
        problems = [problem for column in self.columns.values() for problem in column.problems]
        rules = dict.fromkeys(problem.rule for problem in problems)
        sides = tuple(self.names.index(name) for name in SIDES if name in self.names)
        return Layout(
            texts=len(self.names),
            dialogs=tuple(self.columns[name].turns or () for name in self.names),
            solid=tuple(rule.column for rule in rules if isinstance(rule, Blank)),
            differing=tuple((rule.one, rule.other) for rule in rules if isinstance(rule, Equal)),
            unlike=((sides[0], sides[1]),) if len(sides) == len(SIDES) else (),
            tokens=self.tokens,
        )

    def lay_out(self, records: Records) -> Laid | None:
        """Lay out what can be of a block; None where the whole block should go the ordinary way."""
        paths = self._known_paths() if self.fits else None
        if paths is None or not paths.layout.shapes or self._misses > 2:
            return None
        laid = clean_lines.lay_out(records.data, self.binding.spec, paths.layout)
        if laid is None:
            return None
        records.blank_lines = laid.verdicts == clean_lines.BLANK
        verdicts = laid.verdicts[~records.blank_lines]
        rows = np.flatnonzero(verdicts == clean_lines.CLEAN)
        if len(rows) < _WORTH * len(verdicts):
            self._misses += 1
            return None
        if self._difference(laid.texts, rows, records):
            return None
        shortened = int(laid.taken[np.array(paths.shortened, np.bool_)].sum())
        return Laid(
            self._table(laid),
            rows,
            np.flatnonzero(verdicts != clean_lines.CLEAN),
            +Counter({"generation_prompt_not_a_prefix": shortened}),
        )

    def _table(self, laid: clean_lines.LaidLines) -> pa.Table:
        """Return the rows as they are written."""
        made = {TEXT_NAMES.get(n, n): text for n, text in zip(self.names, laid.texts, strict=True)}
        rest = {n: c.bound for n, c in self.columns.items() if n not in self.names and c.bound}
        rest |= {kept.label: kept.name for kept in self.binding.kept}
        if rest:
            frame = laid.frame.select(pl.col(bound).alias(name) for name, bound in rest.items())
            arrow = frame.to_arrow(compat_level=pl.CompatLevel.newest())
            schema = pa.schema([field for field in self.schema if field.name in rest])
            arrow = arrow.select(schema.names).cast(schema).combine_chunks()
            made |= dict(zip(schema.names, arrow.columns, strict=True))
        return pa.table([made[name] for name in self.schema.names], schema=self.schema)

    # Paths.

    def _known_paths(self) -> _Paths | None:
        """Return the layout of all paths that are known; None where the template is not traced."""
        assert self.stage.template is not None
        compiled = self.stage.template.compiled
        if compiled.difference:
            return None
        trees = dict(compiled.trees.get(self.plan, {}))
        known = sum(len(tree.taken) for tree in trees.values())
        if self._paths is None or self._paths.known != known:
            leaves = {shapes: tree.known() for shapes, tree in trees.items()}
            self._paths, self._misses = self._paths_of(leaves, known), 0
        return self._paths

    def _paths_of(self, leaves: Mapping[Signature, Sequence[Leaf]], known: int) -> _Paths:
        """Make a layout of the paths that can be told."""
        shapes, shortened = [], []
        roles = {role for dialog in self._rules.dialogs for role, _ in dialog}
        for signature, found in list(leaves.items())[:MOST_SHAPES]:
            said = {(shape.role, shape.keys, shape.in_part) for d in signature for shape in d}
            if any(r not in roles or keys != ("content",) or part for r, keys, part in said):
                continue
            made = _ShapeMaking(signature)
            told = [
                (path, outcome) for leaf in found for path, outcome in made.paths(leaf, self.plan)
            ]
            if not told:
                continue
            shapes.append(made.shape([path for path, _ in told]))
            shortened += [outcome.shortened for _, outcome in told]
        return _Paths(replace(self._rules, shapes=tuple(shapes)), tuple(shortened), known)

    # The sample that is rendered both ways.

    def _difference(self, laid: Sequence[pa.Array], rows: Int64s, records: Records) -> bool:
        """Render the sample row by row, from the strict parser's values; tell whether it differs."""
        assert self.stage.template is not None
        sample = sample_of(laid[0])
        if not len(sample):
            return False
        compiled, training = self.stage.template.compiled, self.stage.template.compiled_training
        values = [records.value(int(rows[place]), written=True)[0] for place in sample.tolist()]
        columns = {column.name: column for column in self.binding.columns}
        dialogs = [
            _dialog_column(
                [
                    [(r, text) for r, name in dialog if (text := columns[name].lookup(row))]
                    for row in values
                ]
            )
            for dialog in self._rules.dialogs
        ]
        engine = training.engine if training else None
        plain = PlainRows(compiled.engine, self.plan, dialogs, None, engine)
        for place, one in zip(sample.tolist(), plain.render(np.arange(len(sample))), strict=True):
            made = tuple(column[place].as_py() for column in laid)
            if not isinstance(one.outcome, Outcome) or one.outcome.texts != made:
                compiled.difference = f"row {place} came out differently by columns and by itself"
                return True
        return False


def _are_plain_columns(columns: Mapping[str, Column], names: Sequence[str]) -> bool:
    """Tell whether each column is a dialog of texts, or a bound column as it stands."""
    return not any(
        isinstance(column, Several)
        or column.steps
        or column.warnings
        or (column.turns is None if name in names else column.bound is None or name == "tools")
        for name, column in columns.items()
    )


def _dialog_column(rows: Sequence[Sequence[tuple[str, str]]]) -> DialogColumn:
    """Make dialogs of roles and texts."""
    said = [message for row in rows for message in row]
    names = list(dict.fromkeys(role for role, _ in said))
    ends = np.cumsum([len(row) for row in rows], dtype=np.int64)
    return DialogColumn(
        starts=np.append(np.zeros(1, np.int64), ends[:-1]),
        ends=ends,
        valid=np.ones(len(rows), np.bool_),
        roles=np.array([names.index(role) for role, _ in said], np.int64),
        role_names=names,
        columns={"content": text_column(texts([text for _, text in said]))},
        in_part=np.zeros(len(said), np.bool_),
    )


class _ShapeMaking:
    """A shape being made of the paths of a signature, with the views that they need."""

    def __init__(self, signature: Signature) -> None:
        self.signature = signature
        self.views: dict[View, int] = {}
        sizes = [len(dialog) for dialog in signature]
        self.firsts = [sum(sizes[:number]) for number in range(len(sizes))]

    def shape(self, paths: Sequence[Path]) -> Shape:
        """Return the shape with these paths."""
        roles = tuple(tuple(shape.role or "" for shape in dialog) for dialog in self.signature)
        return Shape(roles, tuple(self.views), tuple(paths))

    def paths(self, leaf: Leaf, plan: Plan) -> list[tuple[Path, Outcome]]:
        """Return the path of a leaf, if it can be told and loses no content."""
        if any(isinstance(output, Fault) for output in leaf.outputs):
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
        told = Path(tuple(filter(None, conditions)), tuple(p for p in pieces if p is not None))
        return [(told, outcome)]

    def _view(self, text: str, unknowns: Unknowns) -> int | None:
        """Number the view that a symbolic text is; None where it is none."""
        trimmed = trimmed_slot(text, unknowns)
        if trimmed is None:
            return None
        slot, trims = trimmed
        if not all(_is_ascii(trim) for trim in trims):
            return None
        sides: tuple[Trimmed, ...] = tuple((_SIDES[method], of) for method, of in trims)
        view = View(self.firsts[slot.dialog] + slot.message, sides)
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
