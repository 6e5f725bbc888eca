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
