"""Kinds of source column: declarations of what a value may look like and what it becomes.

A kind says everything about its values once, as data. What follows from it is elsewhere, and knows
no rule of its own: the strict judge (`strict_kinds`), how typed columns are read and checked
(`typed_kinds`), the native reader's spec (`read_spec`) and the JSON Schema (`formats.source_schemas`). They
distinguish only the kinds here: a new column is a kind with other values, or
a composition of kinds.
"""

import sys
from collections.abc import Mapping
from dataclasses import field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar

from fmtkit import former_names
from fmtkit.core.data_classes import dataclass
from fmtkit.core.message_keys import (
    CALL_ROLE,
    CALL_SPEAKER,
    MESSAGE_KEYS,
    ROLES,
    ROW_PATH,
    MessageKey,
)

INT64_END = 2.0**63


@dataclass(frozen=True)
class Kind:
    """Base of every kind; `letter` is its name in the tables of docs/formats.md."""

    letter: ClassVar[str] = ""
    words: ClassVar[str] = ""
    nested: ClassVar[bool] = False
    """Whether unknown keys may hide inside a value."""
    open: ClassVar[bool] = False
    """Whether only the strict parser can read it."""


@dataclass(frozen=True)
class TextKind(Kind):
    """Text; a number is never made one."""

    parts: bool = False
    """Whether it may also be a list of parts of text, which are joined; such a row is read by the strict
    parser.
    """
    images: bool = False
    """Whether rows may have images (`with_images`), of which a part may be one."""
    letter: ClassVar[str] = "T"

    @property
    def words(self) -> str:  # type: ignore[override]
        return "text or a list of parts of text" if self.parts else "text"


@dataclass(frozen=True)
class FlagKind(Kind):
    """true, false, 0, 1, 0.0 or 1.0; texts only through `texts`, which maps them. Becomes a boolean."""

    letter: ClassVar[str] = "F"
    words: ClassVar[str] = "true, false, 0 or 1"
    texts: Mapping[str, bool] = field(default_factory=dict)
    numbers: bool = True
    """Whether 0 and 1 are flags."""


@dataclass(frozen=True)
class MappedFlagKind(FlagKind):
    """A flag whose `texts` map numbers or booleans too, as JSON writes them: 5 is a good reply."""

    words: ClassVar[str] = "a value of label_map"
    open: ClassVar[bool] = True


@dataclass(frozen=True)
class BoolKind(FlagKind):
    """true or false and nothing else."""

    words: ClassVar[str] = "true or false"
    numbers: bool = False


@dataclass(frozen=True)
class NumberKind(Kind):
    """A number, as a float64, or as an int64 where it is a whole one."""

    letter: ClassVar[str] = "number"
    words: ClassVar[str] = "a number"
    range: tuple[float, float] | None = None
    """Minimum and maximum; None for any number of 64 bits."""
    booleans: bool = False
    """Whether true is 1 and false is 0."""
    whole: bool = False


@dataclass(frozen=True)
class IntegerKind(NumberKind):
    """A whole number of 64 bits."""

    words: ClassVar[str] = "a whole number"
    whole: bool = True


@dataclass(frozen=True)
class LabelKind(NumberKind):
    """A step's label: true, false, or how likely it is right, from 0 to 1; as a float64."""

    letter: ClassVar[str] = "F or number"
    words: ClassVar[str] = "true, false or a number"
    range: tuple[float, float] | None = (0, 1)
    booleans: bool = True


@dataclass(frozen=True)
class OpenKind(Kind):
    """Any JSON value, kept as canonical JSON text."""

    letter: ClassVar[str] = "any"
    words: ClassVar[str] = "any value"
    open: ClassVar[bool] = True


@dataclass(frozen=True)
class RowKind(OpenKind):
    """The whole row, whatever its columns, as canonical JSON text; its path is empty."""

    letter: ClassVar[str] = "the whole row"
    words: ClassVar[str] = "a row"


@dataclass(frozen=True)
class ToolsKind(OpenKind):
    """Tool definitions, or the JSON text of them; a bare one is wrapped as a function."""

    letter: ClassVar[str] = "tools"
    words: ClassVar[str] = "a list of tools"


@dataclass(frozen=True)
class ListKind(Kind):
    """A list of items of one kind; a null item is a fault."""

    item: Kind = field(default_factory=TextKind)
    letter: ClassVar[str] = "L"

    @property
    def nested(self) -> bool:  # type: ignore[override]
        return self.item.nested

    @property
    def open(self) -> bool:  # type: ignore[override]
        return self.item.open

    @property
    def words(self) -> str:  # type: ignore[override]
        return f"a list of {self.item.words}"


@dataclass(frozen=True)
class RecordKind(Kind):
    """An object with these fields; the `optional` may be absent or null, others are ignored."""

    fields: Mapping[str, Kind] = field(default_factory=dict)
    optional: frozenset[str] = frozenset()
    letter: ClassVar[str] = "R"
    words: ClassVar[str] = "an object"
    nested: ClassVar[bool] = True

    @property
    def open(self) -> bool:  # type: ignore[override]
        return any(kind.open for kind in self.fields.values())


@dataclass(frozen=True)
class BranchKind(Kind):
    """A nested record of a TreeKind."""

    tree: str = "tree"
    letter: ClassVar[str] = "R"
    words: ClassVar[str] = "an object"
    nested: ClassVar[bool] = True
    open: ClassVar[bool] = True


@dataclass(frozen=True)
class TreeKind(Kind):
    """A record whose fields hold records like it, as a tree of messages has replies with replies.

    Fields of the record that are a BranchKind of this name, or a list of them, are its branches.
    Becomes a list of all records in the order of the source, each with its fields but the branches,
    and with `parent`, the place in this list of the record that it is a branch of (null of the root).
    No Arrow type is recursive: only the strict parser reads it, at most 100 brackets deep as all JSON.
    """

    record: RecordKind = field(default_factory=RecordKind)
    name: str = "tree"
    letter: ClassVar[str] = "tree"
    words: ClassVar[str] = "an object"
    nested: ClassVar[bool] = True
    open: ClassVar[bool] = True

    @property
    def branches(self) -> tuple[str, ...]:
        """Return the fields that hold records of the tree."""
        kinds = self.record.fields.items()
        return tuple(name for name, kind in kinds if self.is_branch(kind))

    @cached_property
    def unfolded(self) -> RecordKind:
        """Return the record with this tree in the place of each BranchKind."""

        def again(kind: Kind) -> Kind:
            return ListKind(self) if isinstance(kind, ListKind) else self

        fields = self.record.fields.items()
        return RecordKind(
            {name: again(kind) if self.is_branch(kind) else kind for name, kind in fields},
            self.record.optional,
        )

    @cached_property
    def own(self) -> RecordKind:
        """Return the record without its branches."""
        fields = {n: kind for n, kind in self.record.fields.items() if n not in self.branches}
        return RecordKind(fields, self.record.optional & fields.keys())

    def is_branch(self, kind: Kind) -> bool:
        """Return whether a field's kind is this tree, or a list of such."""
        inner = kind.item if isinstance(kind, ListKind) else kind
        return isinstance(inner, BranchKind) and inner.tree == self.name


@dataclass(frozen=True)
class ConversationKind(Kind):
    """Messages, one message, or text, whichever `accepts` names; becomes a list of messages.

    Content is text or a list of parts of text, which are joined. It may be null where a wide message
    calls tools, and of the SILENT.
    """

    accepts: frozenset[str] = frozenset({"messages"})
    role: str = "role"
    content: str = "content"
    speaker: str = "assistant"
    """The role of a message that is only text."""
    roles: Mapping[str, str] = field(default_factory=lambda: ROLES)
    wide: bool = False
    """Messages hold the MESSAGE_KEYS; else none may have what changes what a turn says."""
    function_calls: bool = False
    """Whether a turn of `call_role` is a tool call of the assistant (ShareGPT, ms-swift)."""
    call_role: str = CALL_ROLE
    names: Mapping[str, str] = field(default_factory=dict)
    """Key of a wide message -> what this source calls it, instead of the usual names."""
    images: bool = False
    """Whether rows may have images (`with_images`), of which a part of a content may be one."""
    nested: ClassVar[bool] = True

    @property
    def letter(self) -> str:  # type: ignore[override]
        letters = {"messages": "M", "message": "message", "text": "T"}
        return " or ".join(
            letters[name] for name in ("text", "message", "messages") if name in self.accepts
        )

    @property
    def words(self) -> str:  # type: ignore[override]
        names = {"text": "text", "message": "a message", "messages": "a list of messages"}
        return " or ".join(word for name, word in names.items() if name in self.accepts)

    @property
    def keys(self) -> tuple[MessageKey, ...]:
        """Return what a message may have besides its role and content."""
        return tuple(
            replace(key, names=(self.names[key.name],)) if key.name in self.names else key
            for key in (MESSAGE_KEYS if self.wide else ())
        )

    @property
    def row_path(self) -> frozenset[str]:
        """Return the keys that must not be overlooked: a message that has one is read row by row."""
        return ROW_PATH | {*self.names.values()}

    def speaker_of(self, role: str) -> str | None:
        """Return what templates call a speaker; None if it is unknown."""
        if self.function_calls and role == self.call_role:
            return CALL_SPEAKER
        return self.roles.get(role)


def with_images(kind: Kind) -> Kind:
    """Return a kind whose contents may have parts that are images."""
    if isinstance(kind, ListKind):
        return replace(kind, item=with_images(kind.item))
    if isinstance(kind, RecordKind):
        return _record_with_images(kind)
    if isinstance(kind, TreeKind):
        return replace(kind, record=_record_with_images(kind.record))
    return replace(kind, images=True) if isinstance(kind, ConversationKind | TextKind) else kind


def _record_with_images(kind: RecordKind) -> RecordKind:
    return replace(kind, fields={name: with_images(one) for name, one in kind.fields.items()})


if not TYPE_CHECKING:

    def __getattr__(name: str) -> Any:
        return former_names.attribute(sys.modules[__name__], __name__, name)
