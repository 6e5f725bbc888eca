"""Validation finds what a conversion would refuse, and writes nothing."""

import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from fixture_cases import Case, cases
from runs import INTEL, convert, fmtkit, lines

from fmtkit.core.errors import NothingWrittenError, OptionError
from fmtkit.options.convert_options import ConvertOptions
from fmtkit.running.validation import validate_sources

USER, BOT = {"role": "user", "content": "q"}, {"role": "assistant", "content": "a"}
BAD = INTEL | {"chosen": None}


def validate(folder, rows, type=None, *, schema=False, **options):
    (folder / "v.jsonl").write_bytes(lines(rows))
    settings = ConvertOptions(type=type, **options)
    return validate_sources(str(folder / "v.jsonl"), settings, schema=schema)


def test_findings_are_those_that_a_conversion_quarantines(tmp_path):
    rows = [INTEL, BAD, b"{", INTEL | {"rejected": "4"}, INTEL]
    findings = validate(tmp_path, rows, "chatml.intel")
    outcome = convert(tmp_path, rows, "chatml.intel")
    found = [(item.row, item.line, item.code, item.column, item.message) for item in findings.items]
    assert found == [
        tuple(bad[key] for key in ("row", "line", "code", "column", "message"))
        for bad in outcome.quarantine
    ]
    assert findings.as_dict()["sound"] == outcome.report["converted"]
    assert sorted(path.name for path in tmp_path.glob("v*")) == ["v.jsonl"]


@pytest.mark.parametrize(
    "case", [c for c in cases() if c.name in ("intel", "openai", "nectar")], ids=str
)
def test_the_findings_of_a_fixture_are_its_rejects(case: Case):
    findings = validate_sources(str(case.source), ConvertOptions(type=case.name, **case.settings))
    found = [{"line": f.line, "code": f.code, "column": f.column} for f in findings.items]
    assert found == case.lines("quarantine.jsonl")


@pytest.mark.parametrize(("limit", "code"), [(None, 1), ("0", 1), ("1", 0), ("49%", 1), ("50%", 0)])
def test_the_exit_code_minds_the_limit(tmp_path, limit, code):
    assert validate(tmp_path, [INTEL, BAD], "intel", max_errors=limit).exit_code == code


def test_nothing_wrong_is_0(tmp_path):
    findings = validate(tmp_path, [INTEL], "intel")
    assert (findings.exit_code, findings.items) == (0, ())


@pytest.mark.parametrize("text", [b"", b"\n \n"])
@pytest.mark.parametrize("flags", [[], ["--type", "intel"], ["--json"], ["--quiet"]], ids=str)
def test_sources_without_rows_are_4_as_in_a_conversion(tmp_path, capsys, text, flags):
    source = tmp_path / "empty.jsonl"
    source.write_bytes(text)
    told = fmtkit(capsys, "validate", source, *flags)
    assert told.code == NothingWrittenError.exit_code
    assert told.err == "fmtkit: the sources hold no rows; nothing was checked\n"


def test_findings_of_several_files_stand_file_by_file(tmp_path):
    for name in "ba":
        (tmp_path / f"{name}.jsonl").write_bytes(lines([INTEL, BAD, b"["]))
    sources = [str(tmp_path / f"{name}.jsonl") for name in "ba"]
    findings = validate_sources(sources, ConvertOptions(type="intel", workers=2))
    assert [(item.file[-7:], item.line) for item in findings.items] == [
        ("b.jsonl", 2),
        ("b.jsonl", 3),
        ("a.jsonl", 2),
        ("a.jsonl", 3),
    ]


def test_canonical_rows_need_no_type(tmp_path):
    rows = [
        {"prompt": [USER], "chosen": [BOT], "rejected": [BOT]},
        {"prompt": [USER], "chosen": [BOT], "rejected": [BOT | {"content": "b"}]},
    ]
    findings = validate(tmp_path, rows)
    assert [(item.line, item.code) for item in findings.items] == [(1, "no_preference")]


def test_rows_that_are_no_table_are_an_error_without_a_type(tmp_path):
    with pytest.raises(OptionError, match="no type fits"):
        validate(tmp_path, [{"a": 1}])


def test_every_converted_row_fits_its_schema(tmp_path):
    rows = [
        {
            "messages": [
                USER,
                BOT
                | {"content": None, "tool_calls": [{"function": {"name": "f", "arguments": {}}}]},
                {"role": "tool", "content": "x"},
                BOT,
            ]
        }
    ]
    assert validate(tmp_path, rows, "openai", schema=True).items == ()


def test_the_findings_are_json(tmp_path):
    found = json.loads(json.dumps(validate(tmp_path, [INTEL, BAD], "intel").as_dict()))
    assert found["reasons"] == {"null_field": 1}
    assert found["findings"][0]["line"] == 2


def test_rows_of_parquet_are_named_by_row(tmp_path):
    pq.write_table(pa.Table.from_pylist([INTEL, BAD]), tmp_path / "a.parquet")
    findings = validate_sources(str(tmp_path / "a.parquet"), ConvertOptions(type="intel"))
    assert [(item.row, item.line) for item in findings.items] == [(1, None)]


def test_a_limit_that_is_none_is_an_error(tmp_path):
    with pytest.raises(OptionError):
        validate(tmp_path, [INTEL], "intel", max_errors="many")
