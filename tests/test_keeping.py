"""Kept columns come through unchanged, in the one type that holds all their values."""

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from runs import INTEL, convert, convert_file, line

from fmtkit.core.errors import OptionError
from fmtkit.reading.keeping import JSON_FIELD

ROW = line(INTEL)[:-1]


def kept(folder: Path, tokens: list[str], **options: Any) -> tuple[pa.Field, list[Any], list[Any]]:
    """Keep a column of these JSON texts; return its field, its values and the bad rows."""
    rows = [ROW + b',"x":' + token.encode() + b"}" for token in tokens]
    outcome = convert(folder, b"\n".join(rows), "intel", keep=("x",), **options)
    table = pq.read_table(folder / "out.parquet", columns=["x"])
    return table.schema.field("x"), table.column("x").to_pylist(), outcome.verdicts


@pytest.mark.parametrize(
    ("tokens", "dtype", "values"),
    [
        (['"a"', '""', "null", '"\\u00e9"'], pa.string(), ["a", "", None, "é"]),
        (["true", "false", "null"], pa.bool_(), [True, False, None]),
        (
            ["1", "-9223372036854775808", "9223372036854775807"],
            pa.int64(),
            [1, -(2**63), 2**63 - 1],
        ),
        (["1.5", "0.1", "1e3", "2"], pa.float64(), [1.5, 0.1, 1000.0, 2.0]),
        (["null", "null"], pa.string(), [None, None]),
    ],
)
def test_values_of_one_kind_are_kept_in_its_type(tmp_path, tokens, dtype, values):
    field, found, _ = kept(tmp_path, tokens)
    assert field.type == dtype
    assert field.metadata is None or b"fmtkit:json" not in field.metadata
    assert found == values


@pytest.mark.parametrize(
    "tokens",
    [
        ['"1"', "1"],
        ["true", "1"],
        ["1", "0.30000000000000004440892098500626"],
        ["9007199254740993", "1.5"],
        ['[1,2.0,"3"]', "[]", "{}"],
        ['{"b":1.0,"a":{"c":null}}', "null", '"text"'],
        ["1e-99999999999999999999", "0.5"],
        ['{"zip":"02139","when":"2024-01-01"}', '{"zip":2139}'],
    ],
)
def test_values_of_several_kinds_are_kept_as_they_were_written(tmp_path, tokens):
    field, found, _ = kept(tmp_path, tokens)
    assert field.type == pa.string()
    assert field.metadata[b"fmtkit:json"] == JSON_FIELD[b"fmtkit:json"]
    assert found == [None if token == "null" else token for token in tokens]


def test_open_values_lose_their_blanks_and_nothing_else(tmp_path):
    _, found, _ = kept(tmp_path, ['{ "b" : [ 1.50, "\\u00e9\\n" ],\t"a": 1E5 }', "1"])
    assert found == ['{"b":[1.50,"é\\n"],"a":1E5}', "1"]


@pytest.mark.parametrize(
    ("token", "code"),
    [
        ("NaN", "json_nonfinite"),
        ("1e400", "number_overflow"),
        ('{"a":1,"a":2}', "duplicate_key"),
        ('"\\ud800"', "invalid_unicode"),
    ],
)
@pytest.mark.parametrize("others", [["1.5"], ['"text"'], ["true"], ["[]"], []])
def test_what_cannot_be_kept_is_refused_and_changes_no_other_row(tmp_path, token, code, others):
    field, found, verdicts = kept(tmp_path, [*others, token, *others, "null"])
    assert [(line, what) for line, what, _ in verdicts] == [(len(others) + 1, code)]
    assert len(found) == 2 * len(others) + 1
    if token in ("NaN", "1e400") and others:
        alone, _, _ = kept(tmp_path, others)
        assert field.type == alone.type


json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=["Cs"]), max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text("ab", max_size=2), inner, max_size=3)
    ),
    max_leaves=6,
)


@settings(max_examples=25, deadline=None)
@given(st.lists(json_values, min_size=1, max_size=5))
def test_any_values_are_kept_so_that_they_can_be_read_back(tmp_path_factory, values):
    folder = tmp_path_factory.mktemp("keep")
    field, found, verdicts = kept(folder, [json.dumps(value) for value in values])
    assert verdicts == []
    if field.metadata and b"fmtkit:json" in field.metadata:
        found = [None if text is None else json.loads(text) for text in found]
    assert found == values


def test_all_keeps_every_column_that_the_type_does_not_use(tmp_path):
    rows = [INTEL | {"id": 1}, INTEL | {"system": "s", "late": [1]}]
    outcome = convert(tmp_path, rows, "intel", keep=("all",))
    assert list(outcome.rows[0]) == ["prompt", "chosen", "rejected", "id", "late"]
    assert [row["late"] for row in outcome.rows] == [None, "[1]"]


def test_a_used_column_is_kept_when_it_is_named(tmp_path):
    outcome = convert(tmp_path, [INTEL], "intel", keep=("question",))
    assert outcome.rows[0]["question"] == INTEL["question"]


def test_prompts_keep_every_other_column_unasked(tmp_path):
    row = {"question": "q", "answer": "so a #### 4", "level": 2, "tags": ["x"]}
    outcome = convert(tmp_path, [row], "gsm8k")
    assert outcome.rows == [
        {"prompt": [{"role": "user", "content": "q"}], "answer": "4", "level": 2, "tags": '["x"]'}
    ]


def test_pairs_of_a_row_each_keep_its_columns(tmp_path):
    row = {
        "prompt": "p",
        "id": 7,
        "answers": [{"answer": a, "rank": r} for r, a in enumerate("abc")],
    }
    outcome = convert(tmp_path, [row], "nectar", keep=("id",), options={"pairs": "all"})
    assert [found["id"] for found in outcome.rows] == [7, 7, 7]


def test_the_kind_is_found_over_all_sources(tmp_path):
    (tmp_path / "a.jsonl").write_bytes(line(INTEL | {"x": 1}))
    (tmp_path / "b.jsonl").write_bytes(line(INTEL | {"x": "one"}))
    sources = [str(tmp_path / "a.jsonl"), str(tmp_path / "b.jsonl")]
    outcome = convert_file(sources, tmp_path / "out.parquet", "intel", keep=("x",))
    assert [row["x"] for row in outcome.rows] == ["1", '"one"']


def test_columns_of_parquet_are_kept_in_their_kinds(tmp_path):
    from datetime import date
    from decimal import Decimal

    rows = [
        INTEL
        | {
            "n": 5,
            "f": 0.5,
            "t": "x",
            "b": True,
            "l": [1, 2],
            "d": date(2024, 1, 2),
            "m": Decimal("1.50"),
        }
    ]
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "a.parquet")
    outcome = convert_file(
        str(tmp_path / "a.parquet"), tmp_path / "out.parquet", "intel", keep=("all",)
    )
    row = {key: value for key, value in outcome.rows[0].items() if len(key) == 1}
    assert row == {
        "n": 5,
        "f": 0.5,
        "t": "x",
        "b": True,
        "l": "[1,2]",
        "d": "2024-01-02",
        "m": 1.5,
    }


@pytest.mark.parametrize(
    ("keep", "words"), [("systm", "did you mean 'system'"), ("prompt", "rename it")]
)
def test_a_column_that_cannot_be_kept_is_an_error(tmp_path, keep, words):
    outcome = convert(tmp_path, [INTEL | {"system": "s", "prompt": "p"}], "intel", keep=(keep,))
    assert isinstance(outcome.error, OptionError)
    assert words in str(outcome.error)
