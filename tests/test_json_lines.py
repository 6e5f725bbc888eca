import json
import sys

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from random_tables import FEW, tables

from fmtkit.core.errors import WriteError
from fmtkit.writing.json_lines import encode


def lines(table):
    return encode(table).to_pybytes().decode().split("\n")[:-1]


def without_null_keys(value, *, top=True):
    if isinstance(value, list):
        return [without_null_keys(item, top=False) for item in value]
    if isinstance(value, dict):
        kept = {k: v for k, v in value.items() if top or v is not None}
        return {k: without_null_keys(v, top=False) for k, v in kept.items()}
    return value


def dump(value):
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


@FEW
@given(tables())
def test_lines_read_back_as_the_rows_with_null_message_keys_left_out(table):
    expected = [without_null_keys(row) for row in table.to_pylist()]
    got = [json.loads(line) for line in lines(table)]
    # 1.0 == 1 in Python: the types must agree too. float32 is compared as float32.
    if "soft" not in table.column_names:
        assert [repr(row) for row in got] == [repr(row) for row in expected]
    assert pa.Table.from_pylist(got, schema=table.schema).to_pylist() == table.to_pylist()


@FEW
@given(tables())
def test_but_for_floats_the_bytes_are_those_of_json_dumps(table):
    table = table.drop_columns([n for n in ("margin", "soft") if n in table.column_names])
    if table.num_columns:
        expected = [dump(without_null_keys(row)) for row in table.to_pylist()]
        assert lines(table) == expected


@FEW
@given(st.lists(st.floats(allow_nan=False, allow_infinity=False)))
def test_floats_keep_every_bit_and_stay_floats(floats):
    got = [json.loads(line)["x"] for line in lines(pa.table({"x": pa.array(floats, pa.float64())}))]
    assert [repr(value) for value in got] == [repr(value) for value in floats]


def test_every_character_is_escaped_as_json_dumps_does():
    surrogates = range(0xD800, 0xE000)
    every = [chr(code) for code in range(sys.maxunicode + 1) if code not in surrogates]
    blocks = ["".join(every[start : start + 256]) for start in range(0, len(every), 256)]
    texts = [*every[:0x100], *blocks]
    assert lines(pa.table({"x": texts})) == [dump({"x": text}) for text in texts]


def test_a_slice_and_several_chunks_are_only_their_own_rows():
    table = pa.table({"x": [["a"], [], None, ["b", "c"]], "y": ["1", "2", None, "4"]})
    parts = pa.concat_tables([table.slice(1, 2), table.slice(3)])
    assert lines(parts) == lines(table)[1:]


def test_what_lies_under_a_null_is_not_written():
    messages = pa.array([[{"role": "user"}], [{"role": "hidden"}], [{"role": "tool"}]])
    hidden = pa.ListArray.from_arrays(
        messages.offsets, messages.values, mask=pa.array([False, True, False])
    )
    assert lines(pa.table({"m": hidden})) == [
        '{"m":[{"role":"user"}]}',
        '{"m":null}',
        '{"m":[{"role":"tool"}]}',
    ]


def test_keys_are_escaped():
    assert lines(pa.table({'a"\n': [{"ß\\": "x"}]})) == ['{"a\\"\\n":{"ß\\\\":"x"}}']


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf")])
def test_a_float_that_json_has_not_is_refused(value):
    with pytest.raises(WriteError, match=r"column 'p.margin': JSON has no NaN or Infinity"):
        encode(pa.table({"p": [{"margin": value}]}))


def test_a_type_that_json_has_not_is_refused():
    with pytest.raises(WriteError, match=r"JSON has no date32"):
        encode(pa.table({"d": pa.array([0], pa.date32())}))
