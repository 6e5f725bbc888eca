"""The length of each row of a table in characters, as its text is shown without a tokenizer."""

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from fmtkit.core.message_keys import IMAGE, SAYING, SPOKEN
from fmtkit.inspection.shown_images import BARE

Ints = npt.NDArray[np.int64]

REPLIES = ("chosen", "rejected", "completion")
AROUND_ROLE = len("[]\n")


def characters(table: pa.Table) -> Ints:
    """Return for each row the characters of its longest text, as `shown_rows.bare_sides` writes it."""
    context, _ = _whole(table, "prompt")
    sides = [context + 1 + _whole(table, name)[0] for name in REPLIES if name in table.column_names]
    if sides:
        longest: Ints = np.max(sides, axis=0)
        return longest
    total, count = np.zeros(table.num_rows, np.int64), np.zeros(table.num_rows, np.int64)
    for name in ("prompt", "messages", "text", "completions", "ground_truth", "replies"):
        size, parts = _whole(table, name)
        total += size
        count += parts
    found: Ints = total + np.maximum(count - 1, 0)
    return found


def _whole(table: pa.Table, name: str) -> tuple[Ints, Ints]:
    """Return the characters of a column in each row, and how many texts they are: empty ones are none."""
    nothing = np.zeros(table.num_rows, np.int64)
    if name not in table.column_names:
        return nothing, nothing
    column = table[name].combine_chunks()
    kind = column.type
    if not pa.types.is_list(kind) and not pa.types.is_large_list(kind):
        size = _sizes(column)
        return size, (size > 0).astype(np.int64)
    if pa.types.is_struct(kind.value_type):
        size = _conversations(column)
        return size, (size > 0).astype(np.int64)
    rows = _parents(column)
    items = pc.list_flatten(column)
    own = _sizes(items) if pa.types.is_string(kind.value_type) else _conversations(items)
    weights = np.bincount(rows, own, minlength=len(column)).astype(np.int64)
    return weights, np.bincount(rows[own > 0], minlength=len(column)).astype(np.int64)


def _conversations(column: pa.Array) -> Ints:
    """Return the characters of conversations: each message begins with its role, and a line ends it."""
    rows, messages = _parents(column), pc.list_flatten(column)
    said, texts = np.zeros(len(messages), np.int64), np.zeros(len(messages), np.int64)
    names = {messages.type.field(i).name for i in range(messages.type.num_fields)}
    for key in dict.fromkeys((*SPOKEN, *SAYING)):
        if key in names:
            own = _sizes(pc.struct_field(messages, key))
            said += own
            texts += own > 0
    own = AROUND_ROLE + _sizes(pc.struct_field(messages, "role")) + said + np.maximum(texts - 1, 0)
    total = np.bincount(rows, own, minlength=len(column)).astype(np.int64)
    turns = np.bincount(rows, minlength=len(column)).astype(np.int64)
    return total + np.maximum(turns - 1, 0)


def _sizes(texts: pa.Array) -> Ints:
    texts = texts.cast(pa.large_string()) if not pa.types.is_large_string(texts.type) else texts
    size = pc.utf8_length(texts).fill_null(0).to_numpy(zero_copy_only=False).astype(np.int64)
    images = pc.count_substring(texts, IMAGE).fill_null(0).to_numpy(zero_copy_only=False)
    shown: Ints = size + images.astype(np.int64) * (len(BARE) - len(IMAGE))
    return shown


def _parents(column: pa.Array) -> Ints:
    found: Ints = pc.list_parent_indices(column).to_numpy(zero_copy_only=False).astype(np.int64)
    return found
