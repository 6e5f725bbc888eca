"""`--fail-on CODE`: what `convert`, `validate` and `inspect` count becomes an exit code, by one rule."""

import json

import pytest
import yaml
from runs import INTEL, fmtkit, lines

import fmtkit as library

RATED = [
    {"prompt": "Name a fruit that grows on trees", "response": "An apple.", "rating": 5},
    {"prompt": "What is the capital of France?", "response": "Go away.", "rating": 1},
    {"prompt": "How many legs has a spider?", "response": "It has eight.", "rating": 4},
]
BAD = INTEL | {"chosen": None}


@pytest.fixture
def source(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "rated.jsonl").write_bytes(lines(RATED))
    (tmp_path / "pairs.jsonl").write_bytes(lines([INTEL, BAD]))
    return tmp_path


COMMANDS = {
    "convert": ("-o", "out.jsonl"),
    "validate": ("--max-errors", "9"),
    "inspect": (),
}


@pytest.mark.parametrize("command", COMMANDS)
def test_an_unread_open_column_is_a_finding_of_every_command(source, capsys, command):
    rated = (command, "rated.jsonl", "-t", "question_answer", *COMMANDS[command], "-q")
    done = fmtkit(capsys, *rated, "--fail-on", "open_columns")
    assert (done.code, done.err) == (1, "--fail-on open_columns: found\n")
    assert fmtkit(capsys, *rated, "--fail-on", "null_field", *overwrite(command)).code == 0
    ignored = (*rated, "--ignore", "rating", *overwrite(command))
    assert fmtkit(capsys, *ignored, "--fail-on", "open_columns").code == 0


def overwrite(command):
    return ("--overwrite",) * (command == "convert")


@pytest.mark.parametrize("command", COMMANDS)
def test_the_code_of_a_bad_row_is_found_and_each_once(source, capsys, command):
    pairs = (command, "pairs.jsonl", "-t", "intel", *COMMANDS[command], "-q")
    twice = ("--fail-on", "null_field", "--fail-on", "role_order", "--fail-on", "null_field")
    done = fmtkit(capsys, *pairs, *twice)
    assert (done.code, done.err) == (1, "--fail-on null_field: found\n")


def test_the_rows_are_written_all_the_same(source, capsys):
    wanted = ("-t", "question_answer", "-o", "out.jsonl", "--json")
    done = fmtkit(capsys, "convert", "rated.jsonl", *wanted, "--fail-on", "open_columns")
    assert done.code == 1
    assert json.loads(done.out)["rows_written"] == 3
    assert len((source / "out.jsonl").read_text().splitlines()) == 3


@pytest.mark.parametrize("command", COMMANDS)
def test_a_code_that_there_is_not_is_refused_before_a_row_is_read(source, capsys, command):
    done = fmtkit(capsys, command, "absent.jsonl", *COMMANDS[command], "--fail-on", "open_colums")
    assert done.code == 2
    assert done.err == "fmtkit: no finding named 'open_colums'; did you mean 'open_columns'?\n"


@pytest.mark.parametrize("command", ["convert", "validate"])
def test_what_only_an_inspection_finds_is_named_as_such(source, capsys, command):
    done = fmtkit(capsys, command, "rated.jsonl", *COMMANDS[command], "--fail-on", "length_bias")
    assert done.code == 2
    assert "--fail-on length_bias: only `fmtkit inspect` looks for it" in done.err


def test_a_warning_of_the_rows_is_found_by_an_inspection_too(source, capsys):
    turns = [{"role": r, "content": c} for r, c in (("user", "a"), ("assistant", "b"))]
    (source / "chat.jsonl").write_bytes(lines([{"messages": [*turns, turns[0]]}]))
    chat = ("chat.jsonl", "-t", "openai", "-q", "--fail-on", "trailing_user_turn")
    for command, more in COMMANDS.items():
        assert fmtkit(capsys, command, *chat, *more).code == 1


def config(source, **keys):
    entry = {"path": str(source / "rated.jsonl"), "type": "question_answer", **keys}
    (source / "c.yaml").write_text(yaml.safe_dump({"rl": "sft", "datasets": [entry, entry]}))
    return ("convert", "-c", "c.yaml", "-o", "out/", "-q", "--fail-on")


def test_the_datasets_of_a_config_are_looked_at_together(source, capsys):
    done = fmtkit(capsys, *config(source), "open_columns")
    assert (done.code, done.err) == (1, "--fail-on open_columns: found\n")
    ignored = config(source, ignore=["rating"])
    assert fmtkit(capsys, *ignored, "open_columns", "--overwrite").code == 0
    assert fmtkit(capsys, *ignored, "open_colums", "--overwrite").code == 2


def test_a_code_of_a_plugin_is_known_once_its_plugin_is_loaded(source, capsys):
    (source / "drawn.py").write_text(
        "import fmtkit\nfmtkit.register_code('drawn_game', 'no one')\n"
    )
    pairs = ("validate", "pairs.jsonl", "-t", "intel", "-q", "--max-errors", "9")
    assert fmtkit(capsys, *pairs, "--fail-on", "drawn_game", "--plugin", "drawn.py").code == 0
    assert fmtkit(capsys, *pairs, "--fail-on", "drawn_gam").code == 2


def test_the_library_asks_the_same_of_what_it_returns(source):
    codes = ("open_columns", "null_field", "open_columns")
    kind = "question_answer"
    results = (
        library.convert("rated.jsonl", kind),
        library.validate("rated.jsonl", kind),
        library.inspect("rated.jsonl", kind),
    )
    assert [made.found(codes) for made in results] == [("open_columns",)] * 3
