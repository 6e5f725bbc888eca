"""Arrow arrays of Python values: as pyarrow makes them, without its way that imports pandas."""

import pyarrow as pa
import pytest

from fmtkit.core import buffers
from fmtkit.core.tables import MESSAGE, WIDE_MESSAGE

TURN = {"role": "user", "content": "héllo"}


@pytest.mark.parametrize(
    ("values", "dtype"),
    [
        ([], pa.list_(MESSAGE)),
        (["a", None, "", "日本"], pa.string()),
        ([True, None, False], pa.bool_()),
        ([[TURN], [], None, [TURN, TURN]], pa.list_(MESSAGE)),
        ([[TURN, None], [{"role": "user"}], [{}]], pa.list_(MESSAGE)),
        (
            [[TURN | {"train": False}, TURN | {"tool_calls": "[]", "name": None}]],
            pa.list_(WIDE_MESSAGE),
        ),
        ([[["a"], None], None, [[]]], pa.list_(pa.list_(pa.string()))),
    ],
)
def test_arrays_of_python_values_are_those_of_pyarrow(values, dtype):
    made = buffers.values_of(values, dtype)
    made.validate(full=True)
    assert made.type == dtype
    assert made.to_pylist() == pa.array(values, dtype).to_pylist()


def test_a_type_that_no_row_has_is_named():
    with pytest.raises(TypeError, match="int64"):
        buffers.values_of([1], pa.int64())


@pytest.mark.parametrize("values", [[], [None], [True, None, False] * 7])
@pytest.mark.parametrize("offset", [0, 1, 9])
def test_truths_are_the_values_that_are_true(values, offset):
    array = pa.array(values, pa.bool_())[offset:]
    assert buffers.truths(array).tolist() == [value is True for value in values[offset:]]


def test_an_empty_table_is_that_of_pyarrow():
    schema = pa.schema([("a", pa.list_(MESSAGE)), ("b", pa.large_string())], metadata={"c": "d"})
    assert buffers.empty_table(schema).equals(schema.empty_table(), check_metadata=True)


@pytest.mark.parametrize("chunks", [[], [[]], [["a"]], [["a"], [], ["b", None]]])
def test_a_column_is_one_array_of_all_its_chunks(chunks):
    column = pa.chunked_array([pa.array(chunk, pa.string()) for chunk in chunks], pa.string())
    one = buffers.whole(column)
    assert one.type == pa.string()
    assert one.to_pylist() == column.to_pylist()
