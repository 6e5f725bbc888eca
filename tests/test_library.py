"""The functions of `import fmtkit` over every kind of source."""

import json

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from runs import INTEL, lines

import fmtkit
from fmtkit.errors import FmtkitError, OptionError, TemplateError, UnknownNameError

BAD = INTEL | {"chosen": None}
ROWS = [INTEL, INTEL | {"chosen": "four"}, BAD]
MESSAGES = [{"role": "user", "content": "q"}, {"role": "assistant", "content": "a"}]


def sources(folder):
    """Return the same rows as every kind of source."""
    import datasets

    (folder / "a.jsonl").write_bytes(lines(ROWS))
    pq.write_table(pa.Table.from_pylist(ROWS), folder / "a.parquet")
    table = pa.Table.from_pylist(ROWS)
    return {
        "a path as text": str(folder / "a.jsonl"),
        "a path": folder / "a.parquet",
        "an Arrow table": table,
        "a reader of batches": pa.RecordBatchReader.from_batches(table.schema, table.to_batches()),
        "a polars frame": pl.DataFrame(ROWS),
        "a lazy frame": pl.DataFrame(ROWS).lazy(),
        "rows": ROWS,
        "a generator": (row for row in ROWS),
        "a dataset": datasets.Dataset.from_list(ROWS),
    }


def test_every_kind_of_source_gives_the_same_rows(tmp_path):
    expected = None
    for name, source in sources(tmp_path).items():
        found = fmtkit.table(source, "chatml.intel")
        expected = expected or found
        assert found.num_rows == 2, name
        assert found.equals(expected), name


def test_a_bad_row_of_any_source_is_a_finding(tmp_path):
    for name, source in sources(tmp_path).items():
        [found] = fmtkit.validate(source, "intel").items
        assert (found.row, found.code, found.column) == (2, "null_field", "chosen"), name
        assert (found.line is None) == (name != "a path as text"), name
        assert found.file == (str(source) if "path" in name else "<memory>"), name


def test_a_conversion_writes_and_reports(tmp_path):
    report = fmtkit.convert(ROWS, "chatml.intel", tmp_path / "out.parquet")
    assert (report.rows_read, report.rows_written, report.quarantined) == (3, 2, 1)
    assert report.as_dict() == json.loads((tmp_path / "out.report.json").read_text())
    assert report.outputs == (str(tmp_path / "out.parquet"), str(tmp_path / "out.quarantine.jsonl"))
    with pytest.raises(AttributeError):
        _ = report.rows_eaten


def test_a_conversion_without_an_output_only_reports():
    report = fmtkit.convert(ROWS, "intel")
    assert (report.rows_written, report.outputs) == (2, ())


def test_reading_yields_batches_of_one_schema(tmp_path):
    batches = list(fmtkit.read([str(path) for path in two_files(tmp_path)], "llama3.intel"))
    assert {str(batch.schema) for batch in batches} == {str(batches[0].schema)}
    assert sum(batch.num_rows for batch in batches) == 4
    assert batches[0].column("prompt")[0].as_py().startswith("<|start_header_id|>user")


def two_files(folder):
    for name in "ab":
        (folder / f"{name}.jsonl").write_bytes(lines(ROWS))
        yield folder / f"{name}.jsonl"


def test_rows_none_of_which_are_sound_are_an_empty_table():
    found = fmtkit.table([BAD], "chatml.intel")
    assert found.num_rows == 0
    assert found.schema.names == ["prompt", "chosen", "rejected"]


def test_options_are_the_flags_of_the_command(tmp_path):
    rows = [{"q": "Q", "chosen": "a", "rejected": "b", "id": 1}] * 3
    found = fmtkit.table(
        rows, "intel", map={"question": "q"}, keep="id", limit=2, as_="text", chat_template="chatml"
    )
    assert found.column("id").to_pylist() == [1, 1]
    assert found.column("chosen").to_pylist() == ["a<|im_end|>"] * 2
    report = fmtkit.convert(
        rows, "intel", tmp_path / "x", columns={"question": "q"}, max_errors=0, overwrite=True
    )
    assert report.rows_written == 3


def test_an_unknown_option_is_an_error_with_the_near_one():
    with pytest.raises(UnknownNameError, match="max_errors"):
        fmtkit.table(ROWS, "intel", max_error=1)


def test_a_conversation_is_rendered_alone_or_rows_as_a_table():
    text = "<|im_start|>user\nq<|im_end|>\n<|im_start|>assistant\na<|im_end|>"
    assert fmtkit.render(MESSAGES, "chatml").rstrip("\n") == text
    rendered = fmtkit.render(fmtkit.table(ROWS, "intel"), "chatml")
    assert rendered.equals(fmtkit.table(ROWS, "chatml.intel"))
    [batch] = fmtkit.table(ROWS, "intel").to_batches()
    assert fmtkit.render(batch, "chatml").equals(rendered)


def test_a_template_that_is_unknown_is_an_error():
    with pytest.raises((TemplateError, UnknownNameError), match="chatml"):
        fmtkit.render(MESSAGES, "chatmll")


def test_types_are_data():
    names = {entry["name"] for entry in fmtkit.types()}
    assert {"intel", "ultra", "nectar", "stepwise_supervised"} <= names
    [entry, other] = fmtkit.types("chatml.intel")
    assert {entry["table"], other["table"]} == {"Preference", "Unpaired"}
    assert json.loads(json.dumps(fmtkit.types()))


def test_what_cannot_be_a_source_is_an_error():
    for source in (5, None, object(), {"a": 1}, b"{}"):
        with pytest.raises(FmtkitError):
            fmtkit.table(source, "intel")
    with pytest.raises(OptionError, match="SOURCE"):
        fmtkit.table([], "intel")
