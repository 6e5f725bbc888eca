"""Files that hold something else than rows, or rows elsewhere: named as what they are, with what to do."""

import gzip
import io
import json
import pickle
import re
import shlex
import shutil
import subprocess
import zipfile

import pytest

import fmtkit
from fmtkit.core.errors import ColumnMismatchError, FmtkitError, OptionError, SourceError

ROWS = [{"question": f"What is {i}?", "answer": f"It is {i}."} for i in range(4)]
CHAT = [{"role": "user", "content": "q"}, {"role": "assistant", "content": "a"}]
LINES = "".join(json.dumps(row) + "\n" for row in ROWS).encode()


def zipped(*names: str) -> bytes:
    """Return an archive of files; a mimetype is that of an OpenDocument sheet."""
    with io.BytesIO() as file:
        with zipfile.ZipFile(file, "w") as archive:
            for name in names:
                archive.writestr(
                    name, "application/vnd.oasis.opendocument.spreadsheet" * (name == "mimetype")
                )
        return file.getvalue()


def error_of(source, type=None, **options) -> FmtkitError:
    with pytest.raises(FmtkitError) as caught:
        fmtkit.convert(source, type, **options)
    return caught.value


@pytest.mark.parametrize("name", ["a.jsonl", "a.json", "a.csv"])
@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"<!DOCTYPE html>\n<html><body>Sign in</body></html>", "is a page of HTML, not data"),
        (b"\n <HTML><head></head>", "is a page of HTML, not data"),
        (b'<?xml version="1.0"?>\n<Error/>', "is XML, not data"),
        (b"\x89PNG\r\n\x1a\n\0\0", "is an image"),
        (b"\xff\xd8\xff\xe0\0\x10JFIF", "is an image"),
        (b"%PDF-1.7\n", "is a PDF document; extract its texts first"),
        (b"PK\x03\x04\0\0", "is a zip archive; unpack it first"),
        (
            zipped("[Content_Types].xml", "xl/workbook.xml"),
            "is a spreadsheet; save its sheet as CSV",
        ),
        (zipped("mimetype", "content.xml"), "is a spreadsheet; save its sheet as CSV"),
        (zipped("data.jsonl"), "is a zip archive; unpack it first"),
        (LINES.decode().encode("utf-16"), "is UTF-16 text; convert it"),
        *((pickle.dumps(ROWS, protocol=n), "is a Python pickle") for n in (2, 3, 4, 5)),
    ],
)
def test_a_file_of_another_format_is_named_as_what_it_is(tmp_path, name, data, words):
    (tmp_path / name).write_bytes(data)
    for named in (None, "question_answer"):
        error = error_of(tmp_path / name, named)
        assert isinstance(error, SourceError)
        assert f"{tmp_path / name} {words}" in str(error)


def test_a_compressed_file_needs_no_suffix(tmp_path):
    (tmp_path / "a.jsonl").write_bytes(gzip.compress(LINES))
    assert fmtkit.table(tmp_path / "a.jsonl", "question_answer").num_rows == len(ROWS)


WRAPPED = {
    "only column": {"zq": ROWS},
    "split": {"train": ROWS, "test": ROWS},
    "viewer": {"rows": [{"row_idx": i, "row": row} for i, row in enumerate(ROWS)], "features": []},
    "by id": {str(i): row for i, row in enumerate(ROWS)},
    "lists": [[row["question"], row["answer"]] for row in ROWS],
    "conversations": [CHAT] * 4,
    "texts": [json.dumps(row) for row in ROWS],
}


@pytest.mark.skipif(shutil.which("jq") is None, reason="the advice is run with jq")
@pytest.mark.parametrize("value", WRAPPED.values(), ids=WRAPPED)
def test_the_command_that_is_advised_for_wrapped_rows_writes_rows(tmp_path, monkeypatch, value):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a b.json").write_text(json.dumps(value))
    (command,) = re.findall("`(jq .*?)` writes rows", str(error_of("a b.json")))
    subprocess.run(command, shell=True, check=True)
    out = shlex.split(command)[-1]
    # It is rows now: a type fits, or the error is about their columns.
    survey = fmtkit.inspect(out)
    assert (survey.rows_read, survey.best_guess is None) == (4, False)


@pytest.mark.parametrize("column", ["question", "answer"])
def test_lines_that_are_lists_are_rows_of_the_wrong_kind_each(tmp_path, column):
    path = tmp_path / "a.jsonl"
    path.write_text("".join(json.dumps([row[column]]) + "\n" for row in ROWS))
    assert [(f.line, f.code) for f in fmtkit.validate(path, "gsm8k").items] == [
        (line, "not_an_object") for line in range(1, 5)
    ]
    error = str(error_of(path))
    assert f"no row could be read: {path}:1 begins with" in error
    assert "a row is a JSON object, not a list" in error


def test_an_array_may_follow_on_lines_of_its_own(tmp_path):
    path = tmp_path / "a.json"
    path.write_text("[\n" + ",\n".join(map(json.dumps, ROWS)) + "\n]\n")
    assert fmtkit.table(path, "question_answer").num_rows == 4
    path.write_text(json.dumps(ROWS) + "\n\n")
    assert fmtkit.table(path, "question_answer").num_rows == 4


def test_a_named_type_is_not_said_to_lack_columns_of_wrapped_rows(tmp_path):
    path = tmp_path / "a.json"
    path.write_text(json.dumps({"cards": ROWS}))
    error = error_of(path, "gsm8k")
    assert isinstance(error, ColumnMismatchError)
    assert "the rows are in 'cards' of the one object" in str(error)


def test_a_table_as_columns_is_named(tmp_path):
    columns = {name: [row[name] for row in ROWS] for name in ROWS[0]}
    by_number = {name: {str(i): v for i, v in enumerate(held)} for name, held in columns.items()}
    for value in (columns, by_number):
        (tmp_path / "a.json").write_text(json.dumps(value))
        assert "orient='records', lines=True" in str(error_of(tmp_path / "a.json"))


@pytest.mark.parametrize(
    "row",
    [
        {"chosen": {"text": "a"}, "rejected": {"text": "b"}, "score": 1},
        {"completions": [{"text": "a"}, {"text": "b"}], "name": "x"},
        {"messages": CHAT},
        {"chosen": ["a", "b"], "rejected": ["c", "d"]},
    ],
)
def test_the_only_row_of_a_file_is_not_taken_for_a_wrapper(tmp_path, row):
    (tmp_path / "a.jsonl").write_text(json.dumps(row))
    error = str(error_of(tmp_path / "a.jsonl", "gsm8k"))
    assert "needs columns question, answer" in error
    assert "the one object" not in str(error_of(tmp_path / "a.jsonl"))


@pytest.mark.parametrize(
    "row",
    [{"data": {"a": 1}}, {"id": 1, "data": [5]}, {"text": {"en": "a"}}, {"prompt": 5, "id": 6}],
)
def test_one_column_of_another_kind_of_value_does_not_bring_up_its_type(tmp_path, row):
    (tmp_path / "a.jsonl").write_text((json.dumps(row) + "\n") * 3)
    error = str(error_of(tmp_path / "a.jsonl"))
    assert "has the columns" not in error
    assert "whose columns are" in error


def test_a_type_with_several_of_the_columns_is_named_with_what_is_wrong(tmp_path):
    (tmp_path / "a.jsonl").write_text('{"instruction": ["a"], "output": ["b"]}\n' * 3)
    error = str(error_of(tmp_path / "a.jsonl"))
    assert "alpaca has the columns, but instruction holds a list, not text" in error


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "a.jsonl is empty: there are no rows"),
        ("\n \n", "there are no rows in"),
        ("question,answer\na,b\n", "a.jsonl:1 begins with 'question,answer': expecting value"),
        ("- a: b\n", "give the file the suffix of its format (.csv"),
        ("{'a': 1}\n", "a.jsonl:1 begins with \"{'a': 1}\": "),
    ],
)
def test_a_file_without_a_row_says_why(tmp_path, text, words):
    (tmp_path / "a.jsonl").write_text(text)
    assert words in str(error_of(tmp_path / "a.jsonl"))
    assert words in fmtkit.inspect(tmp_path / "a.jsonl").notes[0]


def test_validate_without_a_type_asks_as_convert_does(tmp_path):
    path = tmp_path / "a.jsonl"
    path.write_bytes(LINES)
    with pytest.raises(OptionError) as caught:
        fmtkit.validate(path)
    assert str(caught.value).startswith("--type is missing; it looks like question_answer")
    assert str(caught.value).endswith(f"fmtkit validate {path} -t question_answer")
    assert "passthrough" not in str(caught.value)
    path.write_text(json.dumps({"messages": CHAT}))
    assert fmtkit.validate(path).exit_code == 0


@pytest.mark.parametrize("given", ["folder", "folder/*.jsonl", "files"])
def test_a_command_for_many_files_names_the_folder_or_a_glob(tmp_path, monkeypatch, given):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "folder").mkdir()
    for i in range(12):
        (tmp_path / "folder" / f"{i:02}.jsonl").write_bytes(LINES)
    files = sorted(map(str, (tmp_path / "folder").iterdir()))
    source = files if given == "files" else given
    command = str(error_of(source)).rpartition(": ")[2]
    shown = f"{tmp_path}/folder/*.jsonl" if given == "files" else given
    assert command.startswith(f"fmtkit convert {shlex.quote(shown)} -t question_answer -o ")
    assert fmtkit.inspect(source).command == command
    words = shlex.split(command)
    assert fmtkit.convert(words[2], words[4], words[6]).rows_read == 12 * len(ROWS)


def test_some_of_the_files_of_a_folder_are_named_each(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for i in range(6):
        (tmp_path / f"{i}.jsonl").write_bytes(LINES)
    names = [f"{i}.jsonl" for i in range(5)]
    assert f"fmtkit convert {' '.join(names)} -t" in str(error_of(names))


def test_sounds_within_messages_are_named_as_what_stops_the_file(tmp_path):
    parts = [
        {"type": "input_audio", "input_audio": {"data": "UklG"}},
        {"type": "input_text", "text": "q"},
    ]
    row = {"request": {"input": [{"role": "user", "content": parts}]}, "expected": "1,2"}
    (tmp_path / "rows.jsonl").write_text(json.dumps(row))
    with pytest.raises(
        OptionError,
        match=r"media \(request\.input\[\]\.content\[\]\), in a form that no type reads",
    ):
        fmtkit.validate(tmp_path / "rows.jsonl")
