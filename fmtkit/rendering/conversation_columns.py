"""A batch of conversations as columns: the roles, keys and texts of messages."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import field, replace
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa

from fmtkit.columns.flat_messages import flatten, keys_of
from fmtkit.core.buffers import Bools, Int64s, numbers, texts, validity
from fmtkit.core.data_classes import dataclass
from fmtkit.core.message_keys import SEEN, TEXT_KEYS, ImageMark, for_template
from fmtkit.rendering.content_parts import TEXTS, Cuts, Form, Forms, part
from fmtkit.rendering.jinja_environment import text_part, write_json
from fmtkit.rendering.text_columns import TextColumn, text_column
from fmtkit.rendering.tool_columns import (
    NO_CALLS,
    ODD_CALLS,
    CallColumns,
    call_columns,
    is_encodable,
)
from fmtkit.rendering.tracing import Shape, Signature
from fmtkit.rendering.unknowns import TOOL, read_call_key

_TEXT_KEYS = (*TEXT_KEYS, TOOL)
"""Keys of texts, that of tools too: they are read as if they were messages."""

NO_ROLE = -1


@dataclass
class ConversationColumn:
    """One conversation for each row: the messages of row i are those from starts[i] to ends[i].

    A template gets a content as its text, as a list of one part (`in_part`), or as several `parts`,
    by message; one with images always as `parts`. `images` are the messages that show some, `unseen` those
    of them whose role has contents of text only.
    """

    starts: Int64s
    ends: Int64s
    valid: Bools
    roles: Int64s
    role_names: list[str]
    columns: dict[str, TextColumn]
    in_part: Bools
    parts: Mapping[int, tuple[str, ...]] = field(default_factory=dict)
    images: frozenset[int] = frozenset()
    unseen: frozenset[int] = frozenset()

    def __len__(self) -> int:
        return len(self.starts)

    @cached_property
    def calls(self) -> CallColumns | None:
        """Return the tool calls of the messages; None where no message has any."""
        return call_columns(self.columns["tool_calls"]) if "tool_calls" in self.columns else None

    def column(self, key: str) -> TextColumn:
        """Return the column that the texts of a slot's key are in."""
        call = read_call_key(key)
        if call is None:
            return self.columns[key]
        assert self.calls is not None
        return self.calls.columns[call[1]][0]

    def places(self, key: str, messages: Int64s) -> Int64s:
        """Return where in its column the texts of a slot's key are, for these messages."""
        call = read_call_key(key)
        if call is None:
            return messages
        assert self.calls is not None
        return self.calls.places(call, messages)

    def message(self, index: int) -> dict[str, Any]:
        """Return one message as a template gets it."""
        role = int(self.roles[index])
        texts: dict[str, Any] = {} if role == NO_ROLE else {"role": self.role_names[role]}
        for key in SEEN[1:]:
            column = self.columns.get(key)
            if column is not None and column.present[index]:
                texts[key] = column.text(index)
        made = for_template(texts)
        if index in self.parts:
            made["content"] = [part(piece) for piece in self.parts[index]]
        elif self.in_part[index]:
            made["content"] = [text_part(made["content"])]
        return made

    def messages(self, row: int) -> list[dict[str, Any]]:
        """Return the messages of a row."""
        return [self.message(i) for i in range(int(self.starts[row]), int(self.ends[row]))]

    def shapes(self, row: int) -> tuple[Shape, ...]:
        """Return the shapes of a row's messages."""
        return tuple(self._shape(i) for i in range(int(self.starts[row]), int(self.ends[row])))

    def _shape(self, index: int) -> Shape:
        role = int(self.roles[index])
        keys = (key for key in _TEXT_KEYS if key in self.columns)
        present = tuple(key for key in keys if self.columns[key].present[index])
        name = None if role == NO_ROLE else self.role_names[role]
        calls = self.calls.of(index) if self.calls is not None else None
        return Shape(name, present, bool(self.in_part[index]), calls)

    def codes(self) -> Int64s:
        """Return a number for each message's shape: equal numbers, equal shapes."""
        codes = (self.roles + 1) * 2 + self.in_part
        for key in _TEXT_KEYS:
            if key in self.columns:
                codes = codes * 2 + self.columns[key].present
        if self.calls is not None:
            codes = (
                codes * (len(self.calls.shapes) + 1) + np.maximum(self.calls.shape, NO_CALLS) + 1
            )
        return codes

    def with_tool_calls(self) -> Bools:
        """Return which rows call tools."""
        if "tool_calls" not in self.columns:
            return np.zeros(len(self), np.bool_)
        return self._with_any(np.flatnonzero(self.columns["tool_calls"].present))

    def with_odd_calls(self) -> Bools:
        """Return which rows call tools in a form that only Jinja itself takes."""
        odd = self.calls.shape == ODD_CALLS if self.calls is not None else np.zeros(0, np.bool_)
        return self._with_any(np.flatnonzero(odd))

    def with_parts(self) -> Bools:
        """Return which rows have a content of several parts, or of none."""
        return self._with_any(np.array(sorted(self.parts), np.int64))

    def with_images(self, *, unseen: bool = False) -> Bools:
        """Return which rows show images; with `unseen`, in contents that are text only."""
        return self._with_any(np.array(sorted(self.unseen if unseen else self.images), np.int64))

    def _with_any(self, messages: Int64s) -> Bools:
        found: Bools = np.searchsorted(messages, self.ends) > np.searchsorted(messages, self.starts)
        return found


def conversation_column(
    array: pa.Array, forms: Forms = TEXTS, cuts: Mapping[int, Cuts] | None = None
) -> ConversationColumn:
    """Read a list of messages for each row in place; strings may be large.

    `forms` are those that the template takes, `cuts` says by row which contents came in parts.
    """
    flat = flatten(array)
    children = keys_of(flat.messages)
    roles, names = _roles(children["role"])
    columns = {
        key: text_column(_string(children[key]))
        for key in SEEN[1:]
        if key in children and (key == "content" or children[key].null_count < len(flat.messages))
    }
    ends = flat.starts + flat.sizes
    in_part = np.zeros(len(roles), np.bool_)
    made = ConversationColumn(flat.starts, ends, flat.valid, roles, names, columns, in_part)
    cuts = cuts or {}
    if forms == TEXTS and not any(_shows_images(one) for one in cuts.values()):
        return made
    return _in_parts(made, forms, cuts)


def _shows_images(cuts: Cuts) -> bool:
    return any(any(map(_is_image, parts)) for parts in cuts.values())


def _is_image(piece: str) -> bool:
    return isinstance(piece, ImageMark)


def _in_parts(
    conversation: ConversationColumn, forms: Forms, cuts: Mapping[int, Cuts]
) -> ConversationColumn:
    """Give contents in parts if they came in parts, or if the template takes nothing else."""
    contents = conversation.columns["content"]
    # The last one is that of a message without a role (NO_ROLE).
    by_role = [forms.of(name) for name in (*conversation.role_names, None)]
    found: dict[int, tuple[str, ...]] = {}
    images, unseen = set(), set()
    for row, known in cuts.items():
        with_images = _shows_images(known)
        for index in range(int(conversation.starts[row]), int(conversation.ends[row])):
            takes_text = by_role[int(conversation.roles[index])] is Form.TEXT
            if not contents.present[index] or (takes_text and not with_images):
                continue
            parts = known.get(contents.text(index))
            if with_images and parts is not None and any(map(_is_image, parts)):
                images.add(index)
                unseen |= {index} if takes_text else set()
            if parts is not None and not takes_text:
                found[index] = parts
    several = {
        index: parts for index, parts in found.items() if len(parts) != 1 or _is_image(parts[0])
    }
    in_part = (
        np.array([form is Form.PARTS for form in by_role])[conversation.roles] & contents.present
    )
    in_part[[index for index in found if index not in several]] = True
    in_part[list(several)] = False
    return replace(
        conversation,
        in_part=in_part,
        parts=several,
        images=frozenset(images),
        unseen=frozenset(unseen),
    )


def _string(array: pa.Array) -> pa.Array:
    if pa.types.is_string(array.type) or pa.types.is_large_string(array.type):
        return array
    return array.cast(pa.large_string())


def _roles(array: pa.Array) -> tuple[Int64s, list[str]]:
    encoded = array if pa.types.is_dictionary(array.type) else array.dictionary_encode()
    indices = encoded.indices.cast(pa.int64())
    found = numbers(indices.buffers()[1], np.int64, indices.offset, len(indices))
    return np.where(validity(indices), found, NO_ROLE), encoded.dictionary.to_pylist()


@dataclass(frozen=True)
class Batch:
    """Rows to render: one or several conversations for each, and its tools as canonical JSON text."""

    conversations: Sequence[ConversationColumn]
    tools: pa.Array | None = None

    @cached_property
    def parts(self) -> list[ConversationColumn]:
        """Return the conversations, and the tools as symbols."""
        return [
            *self.conversations,
            _tool_column(self.tools, len(self.conversations[0]), known=False),
        ]

    @cached_property
    def parts_with_known_tools(self) -> list[ConversationColumn]:
        """Return the conversations, and the tools as they are: for a template that looks into them."""
        return [
            *self.conversations,
            _tool_column(self.tools, len(self.conversations[0]), known=True),
        ]

    def of_same_tools(self, least: int) -> Bools:
        """Return which rows have tools that at least a given number of rows share."""
        tools = self.parts_with_known_tools[-1]
        counts = np.bincount(
            tools.starts[tools.ends > tools.starts], minlength=len(tools.roles) + 1
        )
        many: Bools = (counts >= least)[tools.starts] & (tools.ends > tools.starts)
        return many


def _tool_column(tools: pa.Array | None, count: int, *, known: bool) -> ConversationColumn:
    """Read tools as if they were messages: see tracing.Shape. Rows of the same tools share theirs."""
    valid = validity(tools) if tools is not None else np.zeros(count, np.bool_)
    starts = np.zeros(count, np.int64)
    ends = np.zeros(count, np.int64)
    roles: list[int] = []
    names: dict[str, int] = {}
    written: list[str | None] = []
    if tools is not None and valid.any():
        encoded = tools.dictionary_encode()
        bounds = [0]
        for text in encoded.dictionary.to_pylist():
            header, members = (text, []) if known else _opened(text)
            if header:
                # Lists of as many unknown tools are of one shape.
                roles += [names.setdefault(header, len(names)), *[NO_ROLE] * len(members)]
                written += [None, *members]
            bounds.append(len(roles))
        codes = numbers(encoded.indices.buffers()[1], np.int32, encoded.indices.offset, count)
        rows = np.flatnonzero(valid)
        starts[rows] = np.array(bounds, np.int64)[codes[rows]]
        ends[rows] = np.array(bounds, np.int64)[codes[rows] + 1]
    every = np.ones(count, np.bool_)
    columns = {TOOL: text_column(texts(written))} if written and not known else {}
    return ConversationColumn(
        starts,
        ends,
        every,
        np.array(roles, np.int64),
        list(names),
        columns,
        np.zeros(len(roles), np.bool_),
    )


def _opened(text: str) -> tuple[str, list[str]]:
    """Return an empty list and the texts of tools; the tools themselves where they are not objects."""
    tools = json.loads(text) if text else None
    if tools is None:
        return "", []
    if type(tools) is not list or not all(type(tool) is dict for tool in tools):
        return text, []
    members = [write_json(tool) for tool in tools]
    return ("[]", members) if all(map(is_encodable, members)) else (text, [])


def signature(conversations: Sequence[ConversationColumn], row: int) -> Signature:
    """Return the shapes of all conversations of a row, and of its tools."""
    return tuple(conversation.shapes(row) for conversation in conversations)


def groups(conversations: Sequence[ConversationColumn], rows: Int64s) -> list[Int64s]:
    """Put rows of the same signature together, in the order of their first rows."""
    labels = np.zeros(len(rows), np.int64)
    for conversation in conversations:
        labels = _refine(labels, conversation, rows)
    if not len(rows):
        return []
    _, firsts, inverse = np.unique(labels, return_index=True, return_inverse=True)
    order = np.argsort(inverse, kind="stable")
    bounds = np.searchsorted(inverse[order], np.arange(len(firsts) + 1))
    parts = [rows[order[bounds[i] : bounds[i + 1]]] for i in range(len(firsts))]
    return [parts[i] for i in np.argsort(firsts, kind="stable")]


def _refine(labels: Int64s, conversation: ConversationColumn, rows: Int64s) -> Int64s:
    """Split groups by a conversation: message by message, several of them in one number.

    Each message is looked at once: only the rows that have a message at a position take part there.
    """
    codes = conversation.codes() + 1
    kinds = int(codes.max(initial=0)) + 1
    starts, lengths = conversation.starts[rows], conversation.ends[rows] - conversation.starts[rows]
    longest_first = np.argsort(-lengths, kind="stable")
    counts = np.searchsorted(-lengths[longest_first], -np.arange(int(lengths.max(initial=0))))
    _, labels = np.unique(labels, return_inverse=True)
    most = int(labels.max(initial=0))
    for position, count in enumerate(counts.tolist()):
        there = longest_first[:count]
        if most > 2**62 // kinds - 1:
            _, labels[there] = np.unique(labels[there], return_inverse=True)
            most = count
        labels[there] = labels[there] * kinds + codes[starts[there] + position]
        most = most * kinds + kinds
    # Labels tell rows of one length apart: those of other lengths had others to be told from.
    _, labels = np.unique(labels, return_inverse=True)
    _, sizes = np.unique(lengths, return_inverse=True)
    _, labels = np.unique(labels * (int(sizes.max(initial=0)) + 1) + sizes, return_inverse=True)
    return labels.astype(np.int64)
