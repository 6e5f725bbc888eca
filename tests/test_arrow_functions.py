"""Arrow's functions without pyarrow.compute: the same results, and no conversion that imports it."""

import json
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest

from fmtkit.core import arrow_functions

CONVERT = """
import sys
import fmtkit
fmtkit.convert(sys.argv[1], type="chatml.intel", out=sys.argv[2])
print(sorted({"pyarrow.compute", "numpy.ma", "pandas"} & set(sys.modules)))
"""


def test_a_conversion_does_not_import_what_makes_every_function_of_arrow(tmp_path: Path) -> None:
    row = {"system": "s", "question": "q", "chosen": "c", "rejected": "r"}
    rows = tmp_path / "rows.jsonl"
    rows.write_text("".join(json.dumps({**row, "question": f"q{i}"}) + "\n" for i in range(300)))
    done = subprocess.run(
        [sys.executable, "-c", CONVERT, str(rows), str(tmp_path / "out")],
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.splitlines()[-1] == "[]"


@pytest.mark.parametrize("chunks", [1, 2])
def test_a_column_is_cast_as_its_method_casts_it(chunks: int) -> None:
    column = pa.chunked_array([pa.array([1, None, 3])] * chunks)
    assert arrow_functions.cast(column, pa.string()).equals(column.cast(pa.string()))
    assert arrow_functions.cast(column, pa.int64()) is column


def test_a_value_that_the_type_does_not_hold_is_refused() -> None:
    with pytest.raises(pa.ArrowInvalid):
        arrow_functions.cast(pa.array([300]), pa.int8())


def test_a_table_is_cast_as_its_method_casts_it() -> None:
    table = pa.table({"a": pa.array(["x", None], pa.large_string()), "b": [1, 2]})
    schema = pa.schema([("a", pa.string()), ("b", pa.float64())], metadata={"k": "v"})
    made = arrow_functions.cast_table(table, schema)
    assert made.equals(table.cast(schema), check_metadata=True)


def test_a_table_of_other_columns_is_refused() -> None:
    with pytest.raises(ValueError, match="not \\['b'\\]"):
        arrow_functions.cast_table(pa.table({"a": [1]}), pa.schema([("b", pa.int64())]))


def test_the_other_functions_are_those_of_pyarrow() -> None:
    array = pa.array(["a", None, "a"])
    assert arrow_functions.dictionary_encode(array).equals(array.dictionary_encode())
    assert arrow_functions.is_valid(array).equals(array.is_valid())
    assert arrow_functions.equal(array, array).to_pylist() == [True, None, True]
    assert arrow_functions.utf8_upper(array).to_pylist() == ["A", None, "A"]
