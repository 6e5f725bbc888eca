"""The functions of `import fmtkit` over every kind of source."""

import inspect
import io
import json
import subprocess
import sys
from pathlib import Path

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from runs import INTEL, lines

import fmtkit
from fmtkit.core.errors import (
    FmtkitError,
    LimitError,
    OptionError,
    RejectedRowsWarning,
    SourceError,
    TemplateError,
    UnknownNameError,
)
from fmtkit.options.convert_options import ConvertOptions
from fmtkit.reports.console import print_findings, print_report

TOKENIZER = str(Path(__file__).parents[1] / "fixtures" / "tokenizer")

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
        rows,
        "intel",
        columns={"question": "q"},
        keep="id",
        limit=2,
        as_="text",
        chat_template="chatml",
    )
    assert found.column("id").to_pylist() == [1, 1]
    assert found.column("chosen").to_pylist() == ["a<|im_end|>"] * 2
    report = fmtkit.convert(
        rows, "intel", tmp_path / "x", columns={"question": "q"}, max_errors=0, overwrite=True
    )
    assert report.rows_written == 3


def test_a_misspelled_keyword_is_a_type_error_with_the_near_one():
    with pytest.raises(TypeError, match=r"table\(\) got an unexpected.*'max_error'.*'max_errors'"):
        fmtkit.table(ROWS, "intel", max_error=1)
    for function in (fmtkit.convert, fmtkit.read, fmtkit.validate, fmtkit.inspect):
        with pytest.raises(TypeError, match="'limit'"):
            function(ROWS, "intel", limt=1)
    with pytest.raises(TypeError, match="dry_run"):
        fmtkit.train({}, dry_rn=True)


def test_an_option_that_a_function_has_no_use_for_is_a_type_error():
    for name in ("val_size", "overwrite", "resume", "hash"):
        with pytest.raises(TypeError, match=name):
            fmtkit.table(ROWS, "intel", **{name: 1})
    with pytest.raises(TypeError, match="on_error"):
        fmtkit.validate(ROWS, "intel", on_error="fail")


def test_a_former_keyword_still_works_and_says_its_new_name():
    rows = [{"q": "Q", "chosen": "a", "rejected": "b"}]
    with pytest.warns(DeprecationWarning, match="columns="):
        found = fmtkit.table(rows, "intel", map={"question": "q"})
    assert found.equals(fmtkit.table(rows, "intel", columns={"question": "q"}))


def test_rows_that_are_left_out_are_counted_in_a_warning_and_given_when_asked_for():
    with pytest.warns(RejectedRowsWarning, match=r"1 of 3 rows.*null_field 1.*rejects=") as told:
        fmtkit.table(ROWS, "intel")
    assert told[0].filename == __file__
    for function in (fmtkit.table, lambda *a, **k: list(fmtkit.read(*a, **k))):
        rejects = []
        with pytest.warns(RejectedRowsWarning, match="1 of 3"):
            function(ROWS, "intel", rejects=rejects)
        assert [(bad.row, bad.code) for bad in rejects] == [(2, "null_field")]


def test_rows_that_are_left_out_on_request_or_not_at_all_are_no_warning(recwarn):
    fmtkit.table(ROWS, "intel", on_error="skip")
    fmtkit.table(ROWS[:2], "intel")
    assert not [w for w in recwarn if issubclass(w.category, RejectedRowsWarning)]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"on_error": "fail"}, r"<memory>:row 2: null_field"),
        ({"max_errors": 0}, "1 of 3 rows are bad"),
        ({"max_errors": "10%"}, "1 of 3 rows are bad"),
    ],
)
@pytest.mark.parametrize("function", ["table", "read", "convert"])
def test_too_many_bad_rows_end_every_function_that_converts(function, options, words):
    with pytest.raises(LimitError, match=words):
        list(getattr(fmtkit, function)(ROWS, "intel", **options))


@pytest.mark.parametrize(
    "options",
    [
        {"on_error": "bogus"},
        {"max_errors": "many"},
        {"max_errors": -1},
        {"on_overlong": "cut"},
        {"as_": "token"},
        {"limit": 0},
        {"limit": True},
        {"workers": 0},
        {"keep": 3},
        {"columns": 3},
        {"columns": ["question"]},
        {"columns": {"question": 5}},
        {"columns": {"question": ["a"]}},
        {"columns": {5: "q"}},
        {"options": {5: "q"}},
        {"seed": "x"},
        {"on_overlong": "drop"},
    ],
)
@pytest.mark.parametrize("function", ["table", "read", "convert"])
def test_a_value_that_an_option_does_not_take_is_an_error_in_every_function(function, options):
    with pytest.raises(OptionError):
        list(getattr(fmtkit, function)(ROWS, "intel", **options))


@pytest.mark.parametrize("options", [{"format": "csv"}, {"compression": "foo"}])
def test_what_cannot_be_written_is_an_error_where_nothing_is_written_too(options):
    with pytest.raises(OptionError, match=r"foo|csv"):
        fmtkit.convert(ROWS, "intel", **options)


def test_rows_that_are_too_long_are_dealt_with_in_memory_too():
    rows = [INTEL, INTEL | {"question": "why " * 300}]
    kept = {"tokenizer": TOKENIZER, "max_length": 80, "on_overlong": "drop"}
    assert fmtkit.table(rows, "chatml.intel", **kept).num_rows == 1
    with pytest.warns(RejectedRowsWarning, match="too_long 1"):
        found = fmtkit.table(rows, "chatml.intel", **kept | {"on_overlong": "fail"})
    assert found.num_rows == 1


@pytest.mark.parametrize("mode", ["r", "rb"])
def test_an_open_file_is_a_source(tmp_path, mode):
    (tmp_path / "a.jsonl").write_bytes(lines(ROWS[:2]))
    with (tmp_path / "a.jsonl").open(mode) as file:
        assert fmtkit.table(file, "intel").num_rows == 2
        assert not file.closed
    assert fmtkit.table(io.StringIO(lines(ROWS[:1]).decode()), "intel").num_rows == 1
    with pytest.raises(SourceError, match="closed"):
        fmtkit.table(file, "intel")


def test_help_shows_every_option_with_its_type():
    shown = inspect.signature(fmtkit.convert).parameters
    declared = {*ConvertOptions.declared()} - {"config"}
    assert {*shown} == {"source", "type", "out", *declared - {"type"}}
    assert "Literal" in shown["on_error"].annotation
    for name in declared - {"type"}:
        assert f"    {name}: " in fmtkit.convert.__doc__


def test_the_shell_of_python_completes_public_names_alone():
    found = {name for name in dir(fmtkit) if not name.startswith("__")}
    assert set(fmtkit.__all__) <= found
    assert all(f"fmtkit.{name}" in sys.modules for name in found - set(fmtkit.__all__))


def test_every_entry_of_a_report_is_an_attribute(tmp_path):
    (tmp_path / "a.jsonl").write_bytes(lines(ROWS))
    report = fmtkit.convert(tmp_path / "a.jsonl", "intel", tmp_path / "out")
    for name, value in report.as_dict().items():
        assert getattr(report, name) == value
    with pytest.raises(AttributeError, match="no 'originals'"):
        report.originals  # noqa: B018 - a report of a replay has them
    assert not hasattr(report, "rows_writen")


def test_printing_a_report_shows_what_the_command_prints(tmp_path, capsys):
    (tmp_path / "a.jsonl").write_bytes(lines([INTEL, {"question": "q"}]))
    report = fmtkit.convert(tmp_path / "a.jsonl", "intel", tmp_path / "out.parquet")
    print_report(report, as_json=False, quiet=False)
    assert str(report) == capsys.readouterr().err.rstrip()
    assert "missing_field" in str(report)
    assert "out.quarantine.jsonl" in str(report)
    assert "{" not in str(report)
    assert repr(report) == "<Report of intel: rows_read=2, quarantined=1, rows_written=1>"
    findings = fmtkit.validate(tmp_path / "a.jsonl", "intel")
    print_findings(findings, as_json=False, quiet=False)
    shown = capsys.readouterr()
    assert str(findings) == (shown.out + shown.err).rstrip()
    assert repr(findings) == "<Findings: 1 of 2 rows sound, 1 bad row>"


def test_printing_a_survey_shows_its_verdict_findings_and_lengths():
    rows = [INTEL, {"question": "q \x1b[31m", "chosen": "same", "rejected": "same"}]
    survey = fmtkit.inspect(rows, "intel")
    assert repr(survey) == "<Survey of intel: 1 rows, 1 finding>"
    text = str(survey)
    assert f"✖ {survey.verdict.text}" in text
    assert "chosen_equals_rejected" in text
    assert "prompt+chosen" in text
    assert "\x1b" not in text
    assert "{" not in text
    assert "no type fits" in str(fmtkit.inspect([{"zzz": 1}]))


def test_an_empty_list_is_a_source_without_rows():
    assert fmtkit.table([], "intel").num_rows == 0
    assert fmtkit.table((), "intel").column_names == ["prompt", "chosen", "rejected"]
    assert list(fmtkit.read([], "intel")) == []
    assert fmtkit.convert([], "intel").rows_read == 0
    assert fmtkit.validate([], "intel").exit_code == 4
    assert fmtkit.inspect([]).rows == 0


def test_a_text_is_no_conversation_and_the_error_shows_one():
    with pytest.raises(
        OptionError, match=r"^render: 'Hi' is no conversation; .* \[\{\"role\": \"user\""
    ):
        fmtkit.render("Hi", "chatml")
    with pytest.raises(TemplateError, match="there is no message to render"):
        fmtkit.render([], "chatml")


@pytest.mark.slow
def test_a_type_checker_sees_keywords_and_results(tmp_path):
    pytest.importorskip("mypy")
    file = tmp_path / "used.py"
    file.write_text(
        "import fmtkit\n"
        "fmtkit.table('a', 'intel', max_error=1)\n"
        "fmtkit.convert('a', 'intel', on_error='bogus')\n"
        "fmtkit.train('a.yaml', dry_run='yes')\n"
        "n: str = fmtkit.validate('a').exit_code\n"
        "fmtkit.table('a', 'intel', max_errors='1%', columns={'question': 'q'}, limit=3)\n"
        "report = fmtkit.convert('a', 'intel', 'b')\n"
        "wrong: str = report.rows_written\n"
        "report.rows_writen\n"
        "codes: dict[str, int] = report.reasons\n"
    )
    done = subprocess.run(
        [sys.executable, "-m", "mypy", "--strict", str(file)],
        check=False,
        capture_output=True,
        text=True,
        cwd=Path(__file__).parents[1],
    )
    found = [
        line.split(":")[1]
        for line in done.stdout.splitlines()
        if "used.py:" in line and ": error:" in line
    ]
    assert found == ["2", "3", "4", "5", "8", "9"], done.stdout


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


@pytest.mark.parametrize("batch", ["Hi", b"Hi", {"role": "user"}, ["Hi"], 5, None])
def test_what_is_no_conversation_is_not_rendered(batch):
    with pytest.raises(fmtkit.FmtkitError, match="no conversation; give a table, or a list of"):
        fmtkit.render(batch, "chatml")
