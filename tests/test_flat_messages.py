"""The messages of a column, end to end: the same as looking at each row."""

import numpy as np
import pyarrow as pa
import pytest

from fmtkit.columns.flat_messages import flatten, lists_of
from fmtkit.core import buffers

ROWS = [
    [("user", "a"), ("assistant", "b")],
    None,
    [],
    [("user", "ü"), None, ("user", None)],
    [("tool", "")],
]
TYPE = pa.struct({"role": pa.string(), "content": pa.string()})


def conversations(rows, made=pa.list_):
    messages = [
        None if row is None else [m and dict(zip(("role", "content"), m, strict=True)) for m in row]
        for row in rows
    ]
    return pa.array(messages, made(TYPE))


def with_hidden(column):
    """Return a column whose null rows have messages, which nobody may see."""
    offsets = pa.array(np.arange(0, 2 * len(column) + 1, 2), pa.int32())
    values = pa.array([{"role": "user", "content": str(i)} for i in range(2 * len(column))], TYPE)
    valid = buffers.bits(np.arange(len(column)) % 2 == 0)
    parts = [valid, offsets.buffers()[1]]
    return pa.Array.from_buffers(column.type, len(column), parts, children=[values])


COLUMNS = {
    "lists": conversations(ROWS),
    "large lists": conversations(ROWS, pa.large_list),
    "a slice": conversations(ROWS).slice(2, 2),
    "chunks": pa.chunked_array([conversations(ROWS[:3]), conversations(ROWS[3:])]),
    "no chunk": pa.chunked_array([], pa.list_(TYPE)),
    "no rows": conversations([]),
    "null rows that have messages": with_hidden(conversations(ROWS)),
}


@pytest.mark.parametrize("name", COLUMNS)
def test_each_message_has_its_row_and_place(name):
    rows = COLUMNS[name].to_pylist()
    flat = flatten(COLUMNS[name])
    said = [(i, k, m) for i, row in enumerate(rows) for k, m in enumerate(row or ())]
    assert flat.messages.to_pylist() == [message for _, _, message in said]
    assert flat.rows.tolist() == [row for row, _, _ in said]
    assert flat.sizes.tolist() == [len(row or ()) for row in rows]
    assert flat.valid.tolist() == [row is not None for row in rows]
    assert flat.is_first.tolist() == [place == 0 for _, place, _ in said]
    assert flat.is_last.tolist() == [place == len(rows[row]) - 1 for row, place, _ in said]
    assert (np.arange(len(said)) - flat.starts[flat.rows]).tolist() == [k for _, k, _ in said]
    asks = np.array([m is not None and m["role"] == "user" for _, _, m in said], np.bool_)
    found = [any(m and m["role"] == "user" for m in row or ()) for row in rows]
    assert flat.rows_with(asks).tolist() == found


@pytest.mark.parametrize("name", COLUMNS)
def test_lists_are_made_of_them_again(name):
    flat = flatten(COLUMNS[name])
    made = lists_of(flat.messages, flat.sizes, flat.valid)
    made.validate(full=True)
    assert made.to_pylist() == COLUMNS[name].to_pylist()
