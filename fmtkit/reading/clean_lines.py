"""Clean lines: what the kernel reads of JSON lines by a spec, and which it leaves to the strict parser.

A line is clean where it is certain that the strict parser takes it and makes the same values of it. The
kernel decides that only for ordinary lines: a content in parts, an escape in a key, a number of
more than 19 digits make a line unsure, though it may be sound.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import fields
from functools import cache, lru_cache, singledispatch
from math import ceil, floor
from types import ModuleType
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
from numpy.typing import NDArray

from fmtkit.columns.read_spec import (
    BoolNode,
    ConversationNode,
    DoubleNode,
    Field,
    IntNode,
    ListNode,
    Node,
    RawNode,
    ReadSpec,
    RecordNode,
    TextNode,
    TextsNode,
)
from fmtkit.columns.text_layout import Layout, Shape
from fmtkit.columns.turn_sources import (
    PROMPT_END_ROLES,
    AfterContext,
    AfterShared,
    AllButLast,
    Blank,
    Ends,
    Equal,
    Flawed,
    Foreign,
    HasRole,
    Last,
    Messages,
    OtherSystem,
    PromptTurns,
    QuestionMissing,
    Rule,
    Same,
    Several,
    Shared,
    Source,
    Texts,
    WithoutAnswer,
    WithoutSystem,
    WithQuestion,
    WithSystem,
    parts_of,
    sources_of,
)
from fmtkit.core.buffers import MAX_INT32
from fmtkit.core.data_classes import dataclass
from fmtkit.core.message_keys import (
    CALL_SPEAKER,
    CANONICAL_ROLES,
    MARKS,
    MAY_BE_EMPTY,
    SAYING,
    SYSTEM,
)
from fmtkit.reading.native import kernel

# What is numbered here is numbered alike by the kernel: `make docs` writes kernel/tables.h of it.
CLEAN, BLANK, UNSURE = 0, 1, 2
_INT64 = -(2**63), 2**63 - 1
_WHOLE_DOUBLES = 2**53
KernelTuple = tuple[Any, ...]


@dataclass(frozen=True)
class CleanLines:
    """The values of the clean lines of a block, in their order, and the verdict on every line."""

    frame: pl.DataFrame
    """A column for each of the spec, the watched ones too."""
    verdicts: NDArray[np.uint8]
    """CLEAN, BLANK or UNSURE, of each physical line."""


@dataclass(frozen=True)
class LayoutLines(CleanLines):
    """Lines whose output was made as they were read; `frame` has the other columns."""

    made: tuple[pa.Array, ...]
    """A column for each conversation of the layout, of texts or lists of messages, without nulls."""
    taken: NDArray[np.int64]
    """How many lines took each path, in the order of the layout."""


def read(block: bytes, spec: ReadSpec) -> CleanLines | None:
    """Read the clean lines of a block; None where there is no kernel, or none for this spec.

    Args:
        block: JSON lines, cut after a line feed or at the end of the source.
        spec: What to read; `fmtkit.columns.read_spec` says what becomes of it.
    """
    native = kernel()
    compiled = None if native is None else _compiled(spec)
    if native is None or compiled is None:
        return None
    *columns, verdicts = native.read(block, compiled)
    names = {column.name: place for place, column in enumerate(_ordered(spec))}
    return CleanLines(_frame(columns, names), np.frombuffer(verdicts, np.uint8))


@dataclass(frozen=True)
class CompiledLayout:
    """A layout and the spec of its lines as the kernel takes them, made once for all blocks."""

    native: ModuleType
    spec: Any
    layout: Any
    others: Mapping[str, int]
    """The columns that are read but not in the layout, and the place of each among all."""

    def read(self, block: bytes) -> LayoutLines:
        """Read the lines of a block by the layout.

        A line is CLEAN only if its output was made and its silent and watched columns hold nothing; UNSURE
        says nothing of the others.
        """
        made = self.native.read(block, self.spec, self.layout)
        *columns, verdicts, schema, array, taken = made
        conversations = pa.RecordBatch._import_from_c_capsule(schema, array)
        return LayoutLines(
            _frame(columns, self.others),
            np.frombuffer(verdicts, np.uint8),
            tuple(conversations.columns),
            np.frombuffer(taken, np.int64),
        )


def compile_layout(spec: ReadSpec, layout: Layout) -> CompiledLayout | None:
    """Compile a layout; None where there is no kernel, or none for this spec.

    Raises:
        ValueError: The layout names what is not there, or has more keys of messages than the kernel holds.
    """
    native = kernel()
    compiled = None if native is None else _compiled(spec)
    if native is None or compiled is None:
        return None
    used = {*layout.bound, *(column.name for column in spec.watched)}
    others = {c.name: n for n, c in enumerate(_ordered(spec)) if c.name not in used}
    return CompiledLayout(native, compiled, _compiled_layout(spec, layout), others)


def _frame(columns: Sequence[Any], wanted: Mapping[str, int]) -> pl.DataFrame:
    """Take columns by their places among those that the kernel hands over."""
    batch = pa.RecordBatch._import_from_c_capsule(*columns)
    is_whole = len(wanted) == batch.num_columns
    if not wanted and not is_whole:
        return pl.DataFrame(height=batch.num_rows)
    frame = pl.from_arrow(batch if is_whole else batch.select([*wanted.values()]))
    assert isinstance(frame, pl.DataFrame)
    frame.columns = [*wanted]
    return frame


KINDS = ("null", "bool", "text", "integer", "long integer", "float", "json")
"""Kinds of JSON value, in the order of their bits: a float is a number with a point or an exponent that a
double holds as it was written, a long integer one beyond 2^53; what no double holds is kept as JSON."""


@dataclass(frozen=True)
class Kinds:
    """Which kinds of value the keys of a block's clean lines hold."""

    met: list[tuple[int, int, str, frozenset[str]]]
    """For each key, its kinds and the line and position of its first occurrence, both from 0."""
    verdicts: NDArray[np.uint8]


def kinds(block: bytes, max_depth: int) -> Kinds | None:
    """Look at the values of all keys of the clean lines of a block; None where there is no kernel."""
    native = kernel()
    if native is None:
        return None
    met, verdicts = native.kinds(block, max_depth)
    named = [(line, place, key, _names(bits)) for line, place, key, bits in met]
    return Kinds(named, np.frombuffer(verdicts, np.uint8))


@cache
def _names(bits: int) -> frozenset[str]:
    return frozenset(name for bit, name in enumerate(KINDS) if bits >> bit & 1)


class _UnreadError(ValueError):
    """A spec holds something that the kernel does not read."""


@lru_cache(maxsize=256)
def _compiled(spec: ReadSpec) -> Any | None:
    """Return a spec as the kernel reads by it; None of one that it cannot."""
    native = kernel()
    assert native is not None
    try:
        return native.compile(spec_tuple(spec))
    except (_UnreadError, UnicodeEncodeError):
        # Half a surrogate pair in a name: no line has such a key.
        return None


def spec_tuple(spec: ReadSpec) -> KernelTuple:
    """Return a spec as the tuples that the kernel takes."""
    columns = _ordered(spec)
    places = {column.name: place for place, column in enumerate(columns)}
    wanted = tuple((column.path, _node_tuple(column.node), column.required) for column in columns)
    groups = tuple(tuple(places[name] for name in group) for group in spec.any_of)
    return wanted, groups, spec.media, spec.max_depth


MOST_ROLES, CONVERSATION_END = 125, 127
"""Roles of a layout, and what ends a conversation in the key of a shape; each is an ASCII character."""
THERE_BASE, THERE_BITS, THERE_CHARACTERS = 32, 6, 2
"""How the key of a shape tells which keys a turn has: so many ASCII characters of so many bits each."""
MOST_MESSAGE_KEYS = THERE_BITS * THERE_CHARACTERS
"""What a message may have besides its role and content."""
BITS = ("marks", "calls", "said", "seen", "left")
"""The sets of keys that a layout tells: those that are marks, that are calls, that are enough without a
text, that templates see, and with which a line is left."""


@lru_cache(maxsize=256)
def _compiled_layout(spec: ReadSpec, layout: Layout) -> Any:
    """Return a layout as the kernel takes it."""
    native = kernel()
    assert native is not None
    return native.compile_layout(layout_tuple(spec, layout))


def layout_tuple(spec: ReadSpec, layout: Layout) -> KernelTuple:
    """Return a layout as the tuples that the kernel takes."""
    columns = _ordered(spec)
    places = {column.name: place for place, column in enumerate(columns)}
    compiler = _LayoutCompiler(spec, layout)
    slots = ((places[name], int(compiler.is_conversation[name])) for name in layout.bound)
    silent = (*layout.silent, *(column.name for column in spec.watched))
    conversations = tuple(compiler.step(source) for source in layout.conversations)
    # Several rules may be one for the kernel, and what is compiled may add to those that are assumed.
    rules = dict.fromkeys(map(compiler.rule, layout.rules))
    rules |= dict.fromkeys(map(compiler.rule, compiler.assumed))
    return (
        len(places),
        tuple(slots),
        tuple(places[name] for name in silent),
        tuple(compiler.roles),
        tuple((name, int(form == "flag")) for name, form in layout.keys),
        compiler.bits(),
        tuple(compiler.steps.values()),
        tuple(rules),
        conversations,
        int(layout.messages),
        layout.unlike,
        tuple(sorted(layout.tokens, key=str.encode)),
        MAX_INT32,
        tuple(map(compiler.shape, layout.shapes)),
    )


class _LayoutCompiler:
    """Encodes a layout for the kernel: slots of columns, letters of roles, steps of sources."""

    def __init__(self, spec: ReadSpec, layout: Layout) -> None:
        self.keys = [name for name, _ in layout.keys]
        self.layout = layout
        self.slots = {name: slot for slot, name in enumerate(layout.bound)}
        nodes = {column.name: column.node for column in spec.columns}
        self.is_conversation = {
            name: isinstance(nodes[name], ConversationNode) for name in layout.bound
        }
        self.roles = dict.fromkeys(roles_of(layout, spec))
        if len(self.roles) > MOST_ROLES:
            raise ValueError(f"a layout of more than {MOST_ROLES} roles")
        self.numbers = {role: chr(number) for number, role in enumerate(self.roles, start=1)}
        self.steps: dict[Source, KernelTuple] = {}
        self.assumed: dict[Rule, None] = {}
        """Rules without which a step would not be its source."""

    def letters(self, roles: Iterable[str]) -> str:
        """Return a letter for each role."""
        return "".join(self.numbers[role] for role in roles)

    def bits(self) -> KernelTuple:
        """Return the sets of keys, a bit for each key."""
        keys = self.layout.keys
        calls = self._mask(name for name, form in keys if form == "calls")
        sets = {
            "marks": self._mask(name for name in self.keys if name in MARKS),
            "calls": calls,
            "said": self._mask(SAYING),
            "seen": self._mask(name for name, form in keys if form == "text" and name not in MARKS),
            "left": 0 if self.layout.messages else calls,
        }
        return tuple(sets[name] for name in BITS)

    def _mask(self, names: Iterable[str]) -> int:
        return sum(2 << self.keys.index(name) for name in names if name in self.keys)

    def step(self, source: Source) -> int:
        """Return the number of the step that makes a conversation, after those that it is made of."""
        if isinstance(source, WithQuestion):
            self.assumed[HasRole(source.of, ("user",), holds=False)] = None
            return self.step(source.of)
        if source not in self.steps:
            one, other = self._of(source)
            roles: Sequence[str] = _STEP_ROLES.get(type(source), ())
            names: tuple[str, ...] = ()
            if isinstance(source, Texts):
                roles, names = [role for role, _ in source.said], tuple(n for _, n in source.said)
            elif isinstance(source, Messages | WithSystem):
                names = (source.column if isinstance(source, Messages) else source.system,)
            slots = tuple(self.slots[name] for name in names)
            kind = STEPS.index(type(source))
            self.steps[source] = (kind, one, other, 0, self.letters(roles), slots)
        return list(self.steps).index(source)

    def _of(self, spec_tuple: Source | Rule) -> tuple[int, int]:
        """Return the steps of the conversations that a source or a rule is of, 0 where there is none."""
        one, other, *_ = [*map(self.step, sources_of(spec_tuple)), 0, 0]
        return one, other

    def rule(self, rule: Rule) -> KernelTuple:
        """Return a rule as the kernel keeps it."""
        roles = getattr(rule, "roles", _RULE_ROLES.get(type(rule), ()))
        holds = getattr(rule, "holds", getattr(rule, "calls", False))
        held = [getattr(rule, entry.name) for entry in fields(rule)]
        slots = tuple(self.slots[name] for name in held if isinstance(name, str))
        kind = RULES.index(type(rule))
        return kind, *self._of(rule), int(holds), self.letters(roles), slots

    def shape(self, shape: Shape) -> KernelTuple:
        """Return a shape with its key."""
        paths = tuple(
            (
                tuple((c.view, int(c.ask), c.text, int(c.answer)) for c in path.conditions),
                path.texts,
            )
            for path in shape.paths
        )
        names = ["content", *self.keys]
        views = tuple((view.turn, view.trims, names.index(view.key)) for view in shape.views)
        return self._key(shape), views, paths

    def _key(self, shape: Shape) -> str:
        keys = shape.keys or tuple(((),) * len(conversation) for conversation in shape.roles)
        return "".join(
            "".join(
                self.numbers[role] + _there(self._mask(held) >> 1)
                for role, held in zip(conversation, there, strict=True)
            )
            + chr(CONVERSATION_END)
            for conversation, there in zip(shape.roles, keys, strict=True)
        )


def _there(mask: int) -> str:
    """Return which keys a turn has as it stands in the key of a shape, the first ones first."""
    shifts = range(0, MOST_MESSAGE_KEYS, THERE_BITS)
    return "".join(chr(THERE_BASE + (mask >> shift & (1 << THERE_BITS) - 1)) for shift in shifts)


STEPS: tuple[type, ...] = (
    Texts, Messages, WithSystem, WithoutSystem, AllButLast, Last, WithoutAnswer, AfterContext,
    PromptTurns, Shared, AfterShared,
)  # fmt: skip
"""The sources that the kernel knows, in the order of their numbers."""
RULES: tuple[type, ...] = (
    Blank, Equal, Flawed, Ends, HasRole, Same, Foreign, Several, OtherSystem, QuestionMissing,
)  # fmt: skip
"""The rules that the kernel knows, in the order of their numbers."""


def can_make(layout: Layout) -> bool:
    """Return whether the kernel knows all that a layout is made of."""
    waiting: list[Source | Rule] = [*layout.conversations, *layout.rules]
    known = (*STEPS, *RULES, WithQuestion)
    while waiting:
        one = waiting.pop()
        if not isinstance(one, known):
            return False
        waiting += parts_of(one)
    return True


_STEP_ROLES: dict[type, tuple[str, ...]] = {
    WithSystem: SYSTEM,
    WithoutSystem: ("system",),
    **dict.fromkeys((WithoutAnswer, AfterContext, PromptTurns), ("assistant",)),
    **dict.fromkeys((Shared, AfterShared), PROMPT_END_ROLES),
}
_RULE_ROLES: dict[type, tuple[str, ...]] = {
    Flawed: tuple(sorted(MAY_BE_EMPTY)),
    Foreign: ("assistant",),
    Several: ("assistant", "tool"),
    OtherSystem: SYSTEM,
    QuestionMissing: ("user",),
}


def roles_of(layout: Layout, spec: ReadSpec) -> Iterator[str]:
    """Yield the roles that turns of a layout may have, and those that its rules are about."""
    nodes = {column.name: column.node for column in spec.columns}
    yield from CANONICAL_ROLES
    for name in layout.bound:
        node = nodes[name]
        if isinstance(node, ConversationNode):
            yield node.speaker
            yield from (role for _, role in node.roles)
    spec_tuple: list[Source | Rule] = [*layout.conversations, *layout.rules]
    while spec_tuple:
        one = spec_tuple.pop()
        if isinstance(one, Texts):
            yield from (role for role, _ in one.said)
        yield from getattr(one, "roles", ())
        spec_tuple += sources_of(one)


def _ordered(spec: ReadSpec) -> Sequence[Any]:
    """Return all columns, those of the whole row last."""
    return sorted((*spec.columns, *spec.watched), key=lambda column: not column.path)


@singledispatch
def _node_tuple(node: Node) -> KernelTuple:
    """Return a node as the tuple that the kernel takes; raise _UnreadError for what it does not read."""
    raise _UnreadError(type(node).__name__)


@_node_tuple.register
def _(node: TextNode) -> KernelTuple:  # noqa: ARG001
    return ("text",)


@_node_tuple.register
def _(node: BoolNode) -> KernelTuple:
    return "bool", node.numbers, node.texts


@_node_tuple.register
def _(node: IntNode) -> KernelTuple:
    if node.range is None:
        return "int", None, None
    low, high = node.range
    return "int", ceil(max(low, _INT64[0])), floor(min(high, _INT64[1]))


@_node_tuple.register
def _(node: DoubleNode) -> KernelTuple:
    if node.range is None:
        return "double", None, None, node.booleans
    if any(isinstance(end, int) and abs(end) > _WHOLE_DOUBLES for end in node.range):
        raise _UnreadError("a range whose ends are not doubles")
    return "double", *map(float, node.range), node.booleans


@_node_tuple.register
def _(node: RawNode) -> KernelTuple:
    return ("tools" if node.form == "tools" else "raw",)


@_node_tuple.register
def _(node: ListNode) -> KernelTuple:
    return "list", _node_tuple(node.item)


@_node_tuple.register
def _(node: RecordNode) -> KernelTuple:
    if not node.fields or any("\0" in field.key for field in node.fields):
        raise _UnreadError("fields that Arrow cannot name")
    return "record", tuple(map(_field, node.fields))


def _field(field: Field) -> KernelTuple:
    return field.key, _node_tuple(field.node), field.required


@_node_tuple.register
def _(node: ConversationNode) -> KernelTuple:
    keys = tuple((key.name, key.names, key.form) for key in node.keys)
    caller = None if node.call_role is None else (node.call_role, CALL_SPEAKER)
    return (
        "conversation", node.forms, node.role, node.content, node.speaker, node.roles, node.silent, keys,
        node.refused, caller,
    )  # fmt: skip


@_node_tuple.register
def _(node: TextsNode) -> KernelTuple:
    return "texts", node.without, node.is_label, node.nothing
