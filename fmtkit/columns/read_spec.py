"""What a reader of JSON lines must know: which values it reads, what may be there, what they become.

A spec is made from kinds (`spec_of`) and is plain data: frozen, picklable, without functions. A reader
converts a line itself if the line is clean, and leaves every other line to the strict parser. A line is
clean if all of the following holds:

- it is UTF-8 and one JSON object, nested at most `max_depth` deep, without raw control characters;
- no used value holds, at any depth, a duplicate key, a lone surrogate, NaN, or a number beyond 64 bits
  (an integer outside int64, a real that is infinite as a double); no object on the path to a used
  value holds the path's key twice; values that are not used hold no lone surrogate in a text or a
  key, and no real that is infinite as a double and whose exponent exceeds 308 plus its decimals;
- a key of `media` is absent or null, "", false, 0, {}, [] or a list of nulls;
- each column's value is one that its node allows. A value is absent if a key of its path is absent or
  the value is null. A required value must not be absent; an optional one becomes null. Every value on
  the path to it must be an object. At least one column of each group of `any_of` is present.

Texts are decoded. Doubles equal what Python's `float()` makes of the bytes. JSON text (`RawNode`, calls)
is canonical: no blanks outside strings, keys in their order, only the escapes that JSON requires (each
in its shortest form), numbers byte for byte as they were written.
"""

from collections.abc import Sequence
from functools import singledispatch
from typing import Literal, TypeAlias

from fmtkit.columns.kinds import (
    ConversationKind,
    FlagKind,
    Kind,
    ListKind,
    MappedFlagKind,
    NumberKind,
    OpenKind,
    RecordKind,
    RowKind,
    TextKind,
    ToolsKind,
    TreeKind,
)
from fmtkit.core.data_classes import dataclass
from fmtkit.core.message_keys import CARRIED, MEDIA_PARTS, SILENT, MessageKey
from fmtkit.sources.strict import MAX_DEPTH


@dataclass(frozen=True)
class TextNode:
    """A string; with `media` also a list of texts and of objects with `text`, which are joined, unless
    an object's `type` begins with one of them. A reader may leave a line with such a list as not clean.
    """

    media: tuple[str, ...] = ()


@dataclass(frozen=True)
class BoolNode:
    """true or false; with `numbers` also 0 and 1 as integers or reals; and these texts."""

    numbers: bool
    texts: tuple[tuple[str, bool], ...]


@dataclass(frozen=True)
class MarkNode:
    """A text, number or boolean that a map makes a flag; only the strict parser reads it."""

    texts: tuple[tuple[str, bool], ...]


@dataclass(frozen=True)
class IntNode:
    """An integer of 64 bits, written without point and exponent; both ends of `range` belong to it."""

    range: tuple[float, float] | None = None


@dataclass(frozen=True)
class DoubleNode:
    """A number of 64 bits, with `booleans` also false (0) and true (1); both ends of `range` belong to it."""

    range: tuple[float, float] | None
    booleans: bool


@dataclass(frozen=True)
class RawNode:
    """Any value as canonical JSON text.

    `any`: as it is, null included where it is inside of a list. `row`: the whole row; the path is
    empty. `tools`: a list of objects, or a text that is null, blank, or the JSON of such a list; one
    without entries becomes null; an entry with `name` and without `function` is wrapped as
    {"type":"function","function":ENTRY}, its own `type` left out.
    """

    form: Literal["any", "row", "tools"]


@dataclass(frozen=True)
class ListNode:
    """A list of values of a node, none of them null."""

    item: "Node"


@dataclass(frozen=True)
class Field:
    """A field of a record."""

    key: str
    node: "Node"
    required: bool


@dataclass(frozen=True)
class RecordNode:
    """An object with these fields; other keys are not part of the value, but their values are used ones."""

    fields: tuple[Field, ...]


@dataclass(frozen=True)
class TreeNode:
    """A record that holds records like it under the keys `branches`, each null, one, or a list of them.

    Becomes the list of all records, first a record and then its branches in the order of `branches`,
    each with `fields` and `parent`, the place in the list of the record that holds it (null for the
    first). `lists` are the branches that are lists; the required branches may be neither null nor absent.
    """

    fields: tuple[Field, ...]
    branches: tuple[str, ...]
    lists: tuple[str, ...]
    required: tuple[str, ...]


@dataclass(frozen=True)
class KeyNode:
    """What a message may have besides role and content: the first of these `names` that holds it.

    `text`: the first text that is not empty, else the first; other values are none. `flag`: the first
    boolean or number, as whether it is not 0. `calls`: the value under the first name as JSON text, null
    where it is empty (null, false, 0, "", [], {}); a text under it is the JSON of a list or of an empty
    value, and any other text refuses the line. Where that is empty, the object under the second name
    in a list, wrapped as {"type":"function","function":CALL} where it has no `function`.
    """

    name: str
    names: tuple[str, ...]
    form: str


@dataclass(frozen=True)
class ConversationNode:
    """Messages, in one of the `forms`: `messages`, one `message`, or the `text` of one by `speaker`.

    Becomes a list of records of role, content and `keys`. A message is an object. Its role is a text
    that `roles` maps. Its content is a text; or a list of texts and of objects with `text`, which are
    joined, unless an object's `type` begins with one of `media`. It may be null or absent where the
    role becomes one of `silent` (such a message is left out), or where there are `keys` and the
    message calls a tool. `refused` keys hold nothing but null, [] and "".
    """

    forms: tuple[str, ...]
    role: str
    content: str
    speaker: str
    roles: tuple[tuple[str, str], ...]
    silent: tuple[str, ...]
    media: tuple[str, ...]
    keys: tuple[KeyNode, ...]
    refused: tuple[str, ...]
    call_role: str | None
    """A role of the assistant whose content is the JSON of a call, an object or a list of such: with `keys`
    content becomes "" and the call `tool_calls`, wrapped where it has no `function`."""


@dataclass(frozen=True)
class TextsNode:
    """All texts in a value in order, except under a key of `without`; a fault is not a string.

    With `is_label` MARK comes after them, unless the value is null, [], {} or a text that is, without
    the white space around it, one of `nothing`.
    """

    without: tuple[str, ...]
    is_label: bool
    nothing: tuple[str, ...]


MARK = "\ue000"
"""A private-use character: it says that a value exists."""


Node: TypeAlias = (
    TextNode
    | BoolNode
    | MarkNode
    | IntNode
    | DoubleNode
    | RawNode
    | ListNode
    | RecordNode
    | TreeNode
    | ConversationNode
    | TextsNode
)


@dataclass(frozen=True)
class ReadColumn:
    """A column that is read: its name in the frame, the keys that lead to it, and what it holds."""

    name: str
    path: tuple[str, ...]
    node: Node
    required: bool


@dataclass(frozen=True)
class ReadSpec:
    """All that a reader must know of a source's lines; this module says what a clean line is."""

    columns: tuple[ReadColumn, ...]
    watched: tuple[ReadColumn, ...]
    """Columns that no output uses but that may carry turns (`fmtkit.reading.lost_turns`)."""
    any_of: tuple[tuple[str, ...], ...]
    """Groups of columns, by name; each line has one of each group."""
    media: tuple[str, ...]
    """Keys of the row that may hold nothing."""
    max_depth: int = MAX_DEPTH


@singledispatch
def node_of(kind: Kind) -> Node:
    """Return what a reader must know of a kind; raise TypeError for one that stands for no value."""
    raise TypeError(f"{type(kind).__name__} has no meaning of its own")


@node_of.register
def _(kind: TextKind) -> Node:
    return TextNode(MEDIA_PARTS if kind.parts else ())


@node_of.register
def _(kind: FlagKind) -> Node:
    return BoolNode(kind.numbers, tuple(kind.texts.items()))


@node_of.register
def _(kind: MappedFlagKind) -> Node:
    return MarkNode(tuple(kind.texts.items()))


@node_of.register
def _(kind: NumberKind) -> Node:
    return IntNode(kind.range) if kind.whole else DoubleNode(kind.range, kind.booleans)


@node_of.register
def _(kind: OpenKind) -> Node:  # noqa: ARG001
    return RawNode("any")


@node_of.register
def _(kind: RowKind) -> Node:  # noqa: ARG001
    return RawNode("row")


@node_of.register
def _(kind: ToolsKind) -> Node:  # noqa: ARG001
    return RawNode("tools")


@node_of.register
def _(kind: ListKind) -> Node:
    return ListNode(node_of(kind.item))


@node_of.register
def _(kind: RecordKind) -> Node:
    return RecordNode(_fields(kind))


def _fields(kind: RecordKind) -> tuple[Field, ...]:
    return tuple(
        Field(name, node_of(inner), name not in kind.optional)
        for name, inner in kind.fields.items()
    )


@node_of.register
def _(kind: TreeKind) -> Node:
    held = kind.record.fields
    lists = tuple(name for name in kind.branches if isinstance(held[name], ListKind))
    required = tuple(name for name in kind.branches if name not in kind.record.optional)
    return TreeNode(_fields(kind.own), kind.branches, lists, required)


@node_of.register
def _(kind: ConversationKind) -> Node:
    return ConversationNode(
        forms=tuple(sorted(kind.accepts)),
        role=kind.role,
        content=kind.content,
        speaker=kind.speaker,
        roles=tuple(kind.roles.items()),
        silent=tuple(sorted(SILENT)),
        media=MEDIA_PARTS,
        keys=tuple(
            KeyNode(k.name, (), _WITHOUT[k.form])
            if _is_judged(kind, k)
            else KeyNode(k.name, k.names, k.form)
            for k in kind.keys
        ),
        refused=tuple(n for key in kind.keys if _is_judged(kind, key) for n in key.names)
        if kind.wide
        else tuple(sorted(CARRIED)),
        call_role=kind.call_role if kind.function_calls else None,
    )


_WITHOUT = {"flag": "flag", "spans": "text"}
"""Form of a key whose value the strict parser judges -> the form of the nulls that stand for it elsewhere."""


def _is_judged(kind: ConversationKind, key: MessageKey) -> bool:
    """Return whether the strict parser judges a key's value: a line that holds some is not clean."""
    return key.form == "spans" or (key.form == "flag" and key.name in kind.names)


def spec_of(
    columns: Sequence[tuple[str, tuple[str, ...], Kind, bool]],
    watched: Sequence[tuple[str, tuple[str, ...], Kind, bool]],
    any_of: Sequence[tuple[str, ...]],
    media: Sequence[str],
) -> ReadSpec:
    """Make a spec of columns (name, path, kind, required)."""
    read, looked_at = (
        tuple(ReadColumn(name, path, node_of(kind), must) for name, path, kind, must in each)
        for each in (columns, watched)
    )
    return ReadSpec(read, looked_at, tuple(any_of), tuple(sorted(media)))
