"""Types of columnar sources that JSON does not have: decimals, times, bytes."""

import datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from runs import INTEL, KTO, Outcome, convert_file

import fmtkit


def converted(folder: Path, columns: dict[str, pa.Array], type: str, **options: Any) -> Outcome:
    pq.write_table(pa.table(columns), folder / "source.parquet")
    return convert_file(str(folder / "source.parquet"), folder / "out.parquet", type, **options)


def columns_of(row: dict[str, Any], rows: int = 1) -> dict[str, pa.Array]:
    return {name: pa.array([value] * rows) for name, value in row.items()}


def test_a_decimal_is_a_number_where_a_number_is_wanted(tmp_path):
    scores = [Decimal("0.30"), Decimal("12345678901234.56")]
    replies = [[{"role": "assistant", "content": text}] for text in "ab"]
    row = columns_of({"prompt": [{"role": "user", "content": "?"}], "replies": replies})
    outcome = converted(tmp_path, {**row, "scores": pa.array([scores])}, "passthrough")
    assert outcome.rows[0]["scores"] == [0.3, 12345678901234.56]


def test_a_decimal_is_a_flag_where_it_is_0_or_1_and_never_text(tmp_path):
    labels = pa.array([Decimal("1.0"), Decimal("0.0"), Decimal("0.5")])
    outcome = converted(tmp_path, {**columns_of(KTO, 3), "label": labels}, "intel")
    assert [row["label"] for row in outcome.rows] == [True, False]
    assert outcome.verdicts == [(None, "type_error", "label")]
    questions = pa.array([Decimal("1.5")])
    outcome = converted(tmp_path, {**columns_of(INTEL), "question": questions}, "intel")
    assert outcome.verdicts == [(None, "type_error", "question")]
    assert "holds a number, not text" in outcome.quarantine[0]["message"]


@pytest.mark.parametrize(
    ("values", "dtype", "kept"),
    [
        ([Decimal("1.50"), Decimal("-2.25")], pa.float64(), [1.5, -2.25]),
        ([Decimal(7), None], pa.int64(), [7, None]),
        (
            [Decimal("0.10"), Decimal("0.12345678901234567890")],
            pa.string(),
            ["0.10000000000000000000", "0.12345678901234567890"],
        ),
        ([datetime.date(2024, 1, 2), None], pa.string(), ["2024-01-02", None]),
        ([datetime.time(3, 4)], pa.string(), ["03:04:00.000000"]),
        (
            pa.array([1704164645123456789], pa.timestamp("ns")),
            pa.string(),
            ["2024-01-02 03:04:05.123456789"],
        ),
        (pa.array([0], pa.timestamp("ms", "UTC")), pa.string(), ["1970-01-01 00:00:00.000Z"]),
        ([[datetime.date(2024, 1, 2)]], pa.string(), ['["2024-01-02"]']),
        ([{"cost": Decimal("1.10")}], pa.string(), ['{"cost":1.10}']),
        (["é".encode(), None], pa.string(), ["é", None]),
    ],
)
def test_kept_columns_hold_what_was_written(tmp_path, values, dtype, kept):
    values = values if isinstance(values, pa.Array) else pa.array(values)
    columns = {**columns_of(INTEL, len(values)), "x": values}
    outcome = converted(tmp_path, columns, "intel", keep=("x",))
    assert outcome.error is None
    assert pq.read_schema(tmp_path / "out.parquet").field("x").type == dtype
    assert [row["x"] for row in outcome.rows] == kept


def test_bytes_that_are_no_text_are_never_kept_as_text(tmp_path):
    columns = {**columns_of(INTEL, 3), "x": pa.array([b"ok", b"\xff\xd8", b"\xc3\xa9"])}
    kept = converted(tmp_path, columns, "intel", keep=("x",))
    assert [row["x"] for row in kept.rows] == ["ok", "é"]
    assert kept.verdicts == [(None, "invalid_utf8", "x")]
    assert len(converted(tmp_path, columns, "intel").rows) == 3
    asked = {**columns_of(INTEL, 2), "question": pa.array([b"What?", b"\xff"])}
    used = converted(tmp_path, asked, "intel")
    assert len(used.rows) == 1
    assert used.verdicts == [(None, "type_error", "question")]


def test_a_decimal_beyond_64_bits_is_quarantined_with_all_its_digits(tmp_path):
    columns = {**columns_of(INTEL), "x": pa.array([Decimal(10**30)])}
    outcome = converted(tmp_path, columns, "intel", keep=("x",))
    assert outcome.verdicts == [(None, "number_overflow", "x")]
    assert f'"x":{10**30}' in outcome.quarantine[0]["raw"]


def test_whole_numbers_say_which_reply_was_chosen(tmp_path):
    row = {"prompt": "q", "response_0": "a", "response_1": "b", "better_response_id": 1}
    path = tmp_path / "a.parquet"
    pq.write_table(pa.Table.from_pylist([row, row | {"better_response_id": 2}]), path)
    report = fmtkit.convert(str(path), "choice", tmp_path / "out.jsonl")
    assert (report.rows_written, dict(report.reasons)) == (1, {"value_error": 1})
