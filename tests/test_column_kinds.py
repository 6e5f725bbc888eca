"""Which kinds columns hold: the fast parser and the types of columnar sources say what every value says."""

import datetime
import decimal

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fmtkit.reading.column_kinds import kinds_of_columns, kinds_of_rows
from fmtkit.reading.keeping import kind_for
from fmtkit.sources.opening import open_sources

TOKENS = [
    "1", "-3", "0.5", "1.0", "1e3", "-0.0", "0.1", "1e-7", "0.30000000000000004440892098500626", "1e-40",
    "9007199254740992", "9007199254740993", "9007199254740993.5", "1e17", "123456789012345678901", "1e400", "NaN",
    "1e-99999999999999999999", "true", "false", "null", '"a"', '"2024-01-01"', '"2024-01-01T00:00:00"', '""', '"\\ud800"',
    "[]", "[1]", '["a",1]', "{}", '{"a":1}', '{"a":1,"a":2}', '{"b":"x"}',
]  # fmt: skip
LINES = st.lists(st.tuples(st.sampled_from("xyz"), st.sampled_from(TOKENS)), max_size=4).map(
    lambda pairs: "{" + ",".join(f'"{name}":{token}' for name, token in pairs) + "}"
)


def kept_by(kinds: dict[str, set[str]]) -> list[tuple[str, type]]:
    """Return what a column is kept as, of each column in order."""
    return [(name, type(kind_for(seen))) for name, seen in kinds.items()]


@given(
    st.lists(st.one_of(LINES, st.sampled_from(["", "{", "5", '{"\\ud800":1,"v":2}'])), max_size=8)
)
@settings(max_examples=600, deadline=None)
def test_both_parsers_find_the_same_kinds_in_the_same_order(tmp_path_factory, lines):
    path = tmp_path_factory.mktemp("kinds") / "a.jsonl"
    path.write_text('{"first":null}\n' + "\n".join(lines), encoding="utf-8")
    (source,) = open_sources(path)
    rows = [row for b in source.blocks() for row in b.records().values(written=True)]
    assert kept_by(kinds_of_columns([source])) == kept_by(kinds_of_rows(iter(rows)))


@pytest.mark.parametrize(
    "tokens", [TOKENS[:1], TOKENS[2:8], ["0.5", "1"], ["1", "1e17"], ["true", "null"]]
)
def test_numbers_of_a_unit_are_told_apart_by_how_they_are_written(tmp_path, tokens):
    path = tmp_path / "a.jsonl"
    path.write_text("".join(f'{{"x":{token}}}\n' for token in tokens * 50), encoding="utf-8")
    (source,) = open_sources(path)
    rows = [row for b in source.blocks() for row in b.records().values(written=True)]
    assert kept_by(kinds_of_columns([source])) == kept_by(kinds_of_rows(iter(rows)))


@pytest.mark.parametrize(
    "values",
    [
        pa.array([1, None], pa.int32()),
        pa.array([2**60], pa.int64()),
        pa.array([1, 2**64 - 1], pa.uint64()),
        pa.array([2.5, 1.0, None], pa.float32()),
        pa.array([2**60 + 0.0, float("nan")]),
        pa.array([float("inf")]),
        pa.array([None, None], pa.bool_()),
        pa.array([True]),
        pa.array(["a"], pa.large_string()),
        pa.array(["a"], pa.string_view()),
        pa.array(["a", "b"]).dictionary_encode(),
        pa.array([[1], None]),
        pa.array([{"a": 1}]),
        pa.array([{"a": 1}, None]),
        pa.array([b"a"]),
        pa.array([decimal.Decimal("1.50")]),
        pa.array([datetime.date(2024, 1, 2)]),
        pa.array([datetime.datetime(2024, 1, 2)]),
        pa.array([datetime.timedelta(1)]),
    ],
    ids=lambda values: str(values.type),
)
def test_types_of_columns_say_what_their_values_say(values):
    (source,) = open_sources(pa.table({"x": values}))
    rows = [row for b in source.blocks() for row in b.records().values(written=True)]
    assert kept_by(kinds_of_columns([source])) == kept_by(kinds_of_rows(iter(rows)))
