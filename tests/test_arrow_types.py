"""Every type of Arrow is read as its plain equal, or refused in one line with the column and the type."""

import datetime
import json
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa
import pyarrow.feather as feather
import pyarrow.parquet as pq
import pytest

import fmtkit
from fmtkit.core.errors import RejectedRowsWarning, SourceError

TEXTS = ["a", None, "b", "b", "é"]
LISTS = [["a"], None, ["b", "c"], [], ["d"]]
DECIMALS = [Decimal("1.50"), None, Decimal("-2.25"), Decimal(0), Decimal("0.01")]
NUMBERS = [1, None, 2, 2, 3]
PAIRS = [["a", "b"], None, ["c", "d"], ["e", "f"], ["g", "g"]]
TIMES = [datetime.datetime(2024, 1, day) for day in range(1, 6)]


def encoded(values: list[Any], dtype: pa.DataType) -> pa.Array:
    """Make an array of any type: pyarrow makes few of runs, dictionaries and extensions of values."""
    if isinstance(dtype, pa.BaseExtensionType):
        return pa.ExtensionArray.from_storage(dtype, encoded(values, dtype.storage_type))
    numbers = range(len(values))
    if pa.types.is_dictionary(dtype):
        indices = [None if value is None else number for number, value in enumerate(values)]
        inner = encoded(values, dtype.value_type)
        return pa.DictionaryArray.from_arrays(pa.array(indices, dtype.index_type), inner)
    if pa.types.is_run_end_encoded(dtype):
        runs = pa.array([number + 1 for number in numbers], dtype.run_end_type)
        return pa.RunEndEncodedArray.from_arrays(runs, encoded(values, dtype.value_type))
    if pa.types.is_struct(dtype):
        parts = [encoded([(v or {}).get(f.name) for v in values], f.type) for f in dtype]
        mask = pa.array([value is None for value in values])
        return pa.StructArray.from_arrays(parts, fields=list(dtype), mask=mask)
    if pa.types.is_list_view(dtype) or pa.types.is_large_list_view(dtype):
        # From the last to the first, and an item that no list holds: offsets need not rise.
        items, places, sizes = [None], [0] * len(values), [len(value or ()) for value in values]
        for number in reversed(numbers):
            places[number] = len(items)
            items += values[number] or ()
        made, width = pa.ListViewArray, pa.int32()
        if pa.types.is_large_list_view(dtype):
            made, width = pa.LargeListViewArray, pa.int64()
        mask = pa.array([value is None for value in values])
        inner = encoded(items, dtype.value_type)
        return made.from_arrays(pa.array(places, width), pa.array(sizes, width), inner, mask=mask)
    if pa.types.is_list(dtype):
        offsets = [sum(len(value or ()) for value in values[:number]) for number in numbers]
        places = [None if v is None else at for v, at in zip(values, offsets, strict=True)]
        items = [item for value in values for item in value or ()]
        inner = encoded(items, dtype.value_type)
        return pa.ListArray.from_arrays(pa.array([*places, len(items)], pa.int32()), inner)
    return pa.array(values, dtype)


def text_of(dtype: pa.DataType) -> Callable[[Any], Any]:
    """Return what Arrow writes for a time."""
    return lambda value: pa.scalar(value, dtype).cast(pa.string()).as_py()


RUNS = pa.run_end_encoded(pa.int32(), pa.string())
COINED = pa.dictionary(pa.int8(), pa.string())
HALVES, FLAGS = [1.5, None, 2.5, 0.0, -1.0], [True, None, False, True, True]
BYTES = [None if text is None else text.encode() for text in TEXTS]
ZONED = pa.timestamp("ns", "Europe/Berlin")
STRUCTS = [{"x": "a", "y": 1}, None, {"x": None, "y": 2}, {"x": "b", "y": None}, {"x": "c", "y": 3}]
LETTERS = [("a", None), ("b", None)]

PLAIN: list[tuple[pa.DataType, list[Any], Callable[[Any], Any] | None]] = [
    (pa.null(), [None] * 5, None),
    (pa.bool_(), FLAGS, None),
    *((kind, NUMBERS, None) for kind in (pa.int8(), pa.int16(), pa.int32(), pa.int64())),
    *((kind, NUMBERS, None) for kind in (pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64())),
    *((kind, HALVES, None) for kind in (pa.float16(), pa.float32(), pa.float64())),
    (pa.decimal32(5, 2), DECIMALS, float),
    (pa.decimal64(10, 2), DECIMALS, float),
    (pa.decimal128(38, 2), DECIMALS, float),
    (pa.decimal256(76, 2), DECIMALS, float),
    *((kind, TEXTS, None) for kind in (pa.string(), pa.large_string(), pa.string_view())),
    *((kind, BYTES, bytes.decode) for kind in (pa.binary(), pa.large_binary(), pa.binary_view())),
    (pa.binary(1), [b"a", None, b"b", b"b", b"c"], bytes.decode),
    *((kind, TIMES, text_of(kind)) for kind in (pa.timestamp("s"), pa.timestamp("us"), ZONED)),
    *((kind, TIMES, text_of(kind)) for kind in (pa.date32(), pa.date64())),
    (pa.time32("s"), [datetime.time(1)] * 5, text_of(pa.time32("s"))),
    (pa.time64("ns"), [datetime.time(1)] * 5, text_of(pa.time64("ns"))),
    (pa.duration("us"), [datetime.timedelta(1)] * 5, text_of(pa.duration("us"))),
    (COINED, TEXTS, None),
    (pa.dictionary(pa.int32(), pa.string_view()), TEXTS, None),
    (pa.dictionary(pa.uint8(), pa.int64()), NUMBERS, None),
    (pa.dictionary(pa.int32(), pa.list_(pa.string())), LISTS, None),
    (RUNS, TEXTS, None),
    (pa.run_end_encoded(pa.int16(), pa.string_view()), TEXTS, None),
    (pa.run_end_encoded(pa.int64(), pa.list_(pa.string())), LISTS, None),
    (pa.run_end_encoded(pa.int32(), COINED), TEXTS, None),
    *((kind(pa.string()), LISTS, None) for kind in (pa.list_, pa.large_list)),
    *((kind(pa.string()), LISTS, None) for kind in (pa.list_view, pa.large_list_view)),
    *((pa.list_view(kind), LISTS, None) for kind in (pa.string_view(), COINED, RUNS)),
    *((pa.list_(kind), LISTS, None) for kind in (pa.string_view(), COINED, RUNS)),
    (pa.list_view(pa.list_view(pa.string())), [[["a"], []], None, [], [["b", "c"]], [[]]], None),
    (pa.list_(pa.null()), [[], [], [None], [], None], None),
    (pa.list_view(pa.null()), [[], [], [None], [], None], None),
    *((pa.list_(kind, 2), PAIRS, None) for kind in (pa.string(), pa.string_view())),
    (pa.list_(pa.float16()), [[value] for value in HALVES], None),
    (pa.map_(pa.string(), pa.string()), [LETTERS, None, [], LETTERS, LETTERS[1:]], None),
    (pa.map_(pa.string(), pa.list_view(pa.string())), [[("a", ["b"])], None, [], [], []], None),
    *(
        (pa.struct([("x", kind), ("y", pa.int64())]), STRUCTS, None)
        for kind in (pa.string(), pa.string_view(), COINED, RUNS)
    ),
    (pa.struct([("x", pa.list_view(RUNS))]), [{"x": value} for value in LISTS], None),
    (pa.list_(pa.struct([("x", RUNS)])), [[{"x": "a"}], None, [], [{"x": None}], []], None),
    (pa.json_(pa.string()), ['{"a":1}', None, "2", "[]", '"b"'], None),
    (pa.json_(pa.string_view()), ['{"a":1}', None, "2", "[]", '"b"'], None),
    (pa.uuid(), [b"0123456789abcdef"] * 5, bytes.decode),
    (pa.opaque(pa.string(), "kind", "vendor"), TEXTS, None),
    (pa.opaque(pa.list_view(pa.string()), "kind", "vendor"), LISTS, None),
    (pa.bool8(), [1, None, 0, 1, 0], None),
    (pa.fixed_shape_tensor(pa.int32(), [2]), [[1, 2], [3, 4], [5, 6], [7, 8], [9, 0]], None),
]
REFUSED = [
    (
        "dense_union<0: string=0>",
        pa.UnionArray.from_dense(
            pa.array([0] * 5, pa.int8()), pa.array(range(5), pa.int32()), [pa.array(TEXTS)]
        ),
    ),
    (
        "sparse_union<0: string=0>",
        pa.UnionArray.from_sparse(pa.array([0] * 5, pa.int8()), [pa.array(TEXTS)]),
    ),
    (
        "month_day_nano_interval",
        pa.array([(1, 2, 3)] * 5, pa.month_day_nano_interval()),
    ),
    (
        "month_day_nano_interval",
        pa.array([[(1, 2, 3)]] * 5, pa.list_(pa.month_day_nano_interval())),
    ),
    ("decimal256(76, 40)", pa.array([None] * 5, pa.decimal256(76, 40))),
    ("timestamp[ms, tz=Mars/Base]", pa.array([0] * 5, pa.timestamp("ms", "Mars/Base"))),
    ("decimal256(76, 0)", pa.array([Decimal(10**50)] * 5, pa.decimal256(76, 0))),
]


def sources(table: pa.Table, folder: Path) -> list[Any]:
    """Return a table, the middle of one, and its files of each kind that holds its types."""
    feather.write_feather(table, str(folder / "a.feather"))
    made: list[Any] = [table, table.slice(1, 3), str(folder / "a.feather")]
    try:
        pq.write_table(table, folder / "a.parquet")
    except pa.ArrowNotImplementedError:
        return made
    return [*made, str(folder / "a.parquet")]


def times(written: list[Any]) -> list[Any]:
    """Leave out the digits after seconds: Parquet has no whole seconds."""
    return [str(value).replace(".000", "") if value else value for value in written]


@pytest.mark.parametrize(("dtype", "values", "made"), PLAIN, ids=lambda v: str(v)[:40])
def test_a_column_of_any_type_is_kept_as_the_same_values_in_lines_of_json(
    dtype, values, made, tmp_path
):
    rows = [{"prompt": "p", "completion": str(number)} for number in range(5)]
    column = encoded(values, dtype)
    given = pa.Table.from_pylist(rows).append_column("x", column)
    plain = [None if v is None or made is None else made(v) for v in values] if made else values
    expected = kept([row | {"x": value} for row, value in zip(rows, plain, strict=True)])
    for source in sources(given, tmp_path):
        wanted = expected[1:4] if isinstance(source, pa.Table) and len(source) == 3 else expected
        if pa.types.is_temporal(dtype):
            assert times(kept(source)) == times(wanted)
        else:
            assert kept(source) == wanted


def kept(source: Any) -> list[Any]:
    found: list[Any] = fmtkit.table(source, "passthrough", keep=["x"])["x"].to_pylist()
    return found


MESSAGES = [
    [{"role": "user", "content": f"q{n}"}, {"role": "assistant", "content": f"a{n}"}]
    for n in range(5)
]


def message(text: pa.DataType) -> pa.DataType:
    return pa.struct([("role", COINED), ("content", text)])


@pytest.mark.parametrize(
    "dtype",
    [
        *(pa.list_(message(text)) for text in (pa.string(), pa.string_view(), COINED, RUNS)),
        pa.large_list(message(pa.string())),
        pa.list_view(message(pa.string_view())),
        pa.list_view(message(RUNS)),
        pa.large_list_view(message(pa.large_string())),
        pa.list_(message(pa.string_view()), 2),
        pa.run_end_encoded(pa.int32(), pa.list_(message(RUNS))),
        pa.dictionary(pa.int32(), pa.list_view(message(COINED))),
        pa.opaque(pa.list_view(message(pa.string())), "kind", "vendor"),
    ],
    ids=lambda dtype: str(dtype)[:60],
)
def test_conversations_of_any_type_are_the_same_as_in_lines_of_json(dtype, tmp_path):
    table = pa.table({"messages": encoded(MESSAGES, dtype)})
    for source in sources(table, tmp_path):
        wanted = MESSAGES[1:4] if isinstance(source, pa.Table) and len(source) == 3 else MESSAGES
        expected = fmtkit.table([{"messages": each} for each in wanted], "openai").to_pylist()
        assert fmtkit.table(source, "openai").to_pylist() == expected


def test_json_is_the_text_that_it_is_stored_as_where_a_type_reads_texts(tmp_path):
    texts = ['{"a":1}', "[1, 2]", '"b"', "3", "null"]
    rows = [{"system": "", "question": t, "chosen": "yes", "rejected": "no"} for t in texts]
    column = encoded(texts, pa.json_(pa.string()))
    table = pa.Table.from_pylist(rows).set_column(1, "question", column)
    for source in sources(table, tmp_path):
        wanted = rows[1:4] if isinstance(source, pa.Table) and len(source) == 3 else rows
        for type_name in ("intel", "chatml.intel"):
            assert fmtkit.table(source, type_name).equals(fmtkit.table(wanted, type_name))


@pytest.mark.parametrize(("words", "column"), REFUSED, ids=lambda v: str(v)[:40])
def test_a_type_without_a_plain_equal_is_one_line_with_column_and_type(words, column, tmp_path):
    table = pa.table({"prompt": ["p"] * 5, "completion": ["c"] * 5, "x": column})
    for source in sources(table, tmp_path):
        for call in (lambda s: fmtkit.table(s, "passthrough"), fmtkit.inspect, fmtkit.validate):
            with pytest.raises(fmtkit.FmtkitError) as caught:
                call(source)
            assert "column 'x'" in str(caught.value)
            assert words in str(caught.value)
            assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "column",
    [
        pl.Series("x", [object()], dtype=pl.Object),
        pl.Series("x", [1], dtype=pl.Int128),
    ],
    ids=lambda column: str(column.dtype),
)
def test_a_column_of_a_frame_that_arrow_has_no_type_for_is_one_line(column):
    frame = pl.DataFrame({"prompt": ["p"], "completion": ["c"]}).with_columns(column)
    with pytest.raises(SourceError, match=r"column 'x' is of the polars type \w+"):
        fmtkit.table(frame, "passthrough")


def test_a_mark_of_an_extension_that_the_storage_contradicts_is_left_out():
    field = pa.field("x", pa.string(), metadata={"ARROW:extension:name": "arrow.opaque"})
    rows = {"prompt": ["p"], "completion": ["c"], "x": ["a"]}
    schema = pa.schema([("prompt", pa.string()), ("completion", pa.string()), field])
    assert kept(pa.table(rows, schema=schema)) == ["a"]
    assert json.dumps(kept([{"prompt": "p", "completion": "c", "x": "a"}])) == '["a"]'


@pytest.mark.parametrize(
    ("bad", "dtype"),
    [
        ([[b"a"], [b"\xff"], None], pa.list_view(pa.binary())),
        ([[b"a"], [b"\xff"], None], pa.large_list_view(pa.binary())),
        ([[b"a"], [b"\xff"], None], pa.list_(pa.binary(), 1)),
        ([[("a", b"a")], [("a", b"\xff")], None], pa.map_(pa.string(), pa.binary())),
        ([b"a", b"\xff", None], pa.run_end_encoded(pa.int32(), pa.binary())),
    ],
    ids=lambda v: str(v)[:40],
)
def test_text_that_is_not_utf8_is_a_fault_of_its_row_whatever_holds_it(bad, dtype, tmp_path):
    column = encoded(bad, dtype)
    rows = {"prompt": pa.array(["p"] * 3), "completion": pa.array(["1", "2", "3"])}
    binary = pa.table({**rows, "x": column})
    # Arrow makes no such text: the bytes of a file are changed instead.
    texts = pa.table({**rows, "x": encoded(_as_text(bad), _of_text(dtype))})
    feather.write_feather(texts, str(tmp_path / "a.feather"), compression="uncompressed")
    written = (tmp_path / "a.feather").read_bytes()
    assert written.count(b"!") == 1
    (tmp_path / "a.feather").write_bytes(written.replace(b"!", b"\xff"))
    for source in (binary, str(tmp_path / "a.feather")):
        rejects: list[Any] = []
        with pytest.warns(RejectedRowsWarning):
            found = fmtkit.table(source, "passthrough", keep=["x"], rejects=rejects)
        assert found["completion"].to_pylist() == ["1", "3"]
        assert [one.code for one in rejects] == ["invalid_utf8"]


def _as_text(value: Any) -> Any:
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace").replace("\ufffd", "!")
    return type(value)(map(_as_text, value)) if isinstance(value, list | tuple) else value


def _of_text(dtype: pa.DataType) -> pa.DataType:
    """Return a type with text for bytes."""
    if pa.types.is_map(dtype):
        return pa.map_(pa.string(), pa.string())
    if pa.types.is_run_end_encoded(dtype):
        return pa.run_end_encoded(dtype.run_end_type, pa.string())
    if pa.types.is_fixed_size_list(dtype):
        return pa.list_(pa.string(), 1)
    return (pa.list_view if pa.types.is_list_view(dtype) else pa.large_list_view)(pa.string())
