"""What a plugin raises is one line or a bad row, with the plugin's file and line."""

from pathlib import Path

import pytest
from runs import INTEL, fmtkit, lines

HEAD = (
    "import polars as pl\n"
    "from fmtkit.columns import Text\n"
    "from fmtkit.columns.dialogs import pair\n"
    "from fmtkit.formats.registry import converter\n"
    "from fmtkit.core.tables import Preference\n"
)
SHOUT = (
    "def loud(text):\n"
    "    if text == 'boom':\n"
    "        raise KeyError('no ' + text)\n"
    "    return text.upper()\n"
    "@converter()\n"
    "def shout(question: Text, chosen: Text, rejected: Text) -> Preference:\n"
    "    said = chosen.value.map_elements(loud, return_dtype=pl.String)\n"
    "    return pair(question, chosen.but(said), rejected)\n"
)
STRICT = (
    "@converter()\n"
    "def shout(question: Text, chosen: Text, rejected: Text) -> Preference:\n"
    "    said = chosen.value.str.strptime(pl.Date, '%Y').cast(pl.String)\n"
    "    return pair(question, chosen.but(said), rejected)\n"
)


@pytest.fixture
def convert(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)

    def run(code: str, rows: list[dict], *more: str):
        name = f"plugin_{abs(hash(code)) % 10**8}"
        Path(f"{name}.py").write_text(HEAD + code)
        Path("a.jsonl").write_bytes(lines(rows))
        base = ("convert", "a.jsonl", "--type", name, "--plugin", f"{name}.py", "-o", "x.jsonl")
        return name, fmtkit(capsys, *base, "--json", *more)

    return run


@pytest.mark.parametrize(
    ("code", "words"),
    [
        ("1 / 0\n", "ZeroDivisionError: division by zero ({name}.py:6)"),
        ("def broken(:\n", "SyntaxError"),
        ("import no_such_module_anywhere\n", "ModuleNotFoundError"),
        (
            "@converter()\ndef mine(question: Text) -> Preference:\n    return {}['x']\n",
            "KeyError: 'x' ({name}.py:8)",
        ),
    ],
)
def test_a_plugin_that_cannot_be_loaded_or_called_is_one_line(convert, code, words):
    name, done = convert(code, [INTEL])
    assert done.code == 2
    assert words.format(name=name) in done.err
    assert done.err.count("\n") == 1


@pytest.mark.parametrize(("code", "good"), [(SHOUT, "fine"), (STRICT, "2024")])
def test_a_row_that_a_plugins_expression_raises_for_is_bad_and_no_other_is(convert, code, good):
    import json

    rows = [INTEL | {"chosen": good, "question": str(i)} for i in range(9)]
    rows[4] |= {"chosen": "boom"}
    name, done = convert(code, rows)
    assert done.code == 0, done.err
    report = json.loads(done.out)
    assert (report["rows_written"], report["reasons"]) == (8, {"value_error": 1})
    [bad] = [json.loads(text) for text in Path("x.quarantine.jsonl").read_text().splitlines()]
    assert bad["line"] == 5
    assert f"{name}.py:" in bad["message"]
    if code == SHOUT:
        assert "KeyError" in bad["message"]
        assert f"{name}.py:8" in bad["message"]


def test_a_transform_that_raises_while_it_is_made_is_one_line(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    Path("mine.py").write_text("def load(config):\n    raise ValueError('no config')\n")
    Path("a.jsonl").write_bytes(lines([INTEL]))
    done = fmtkit(
        capsys, "convert", "a.jsonl", "--type", "mine.load", "--plugin", "mine.py", "-o", "x.jsonl"
    )
    assert done.code == 2
    assert "load raised ValueError: no config (mine.py:2)" in done.err
    assert done.err.count("\n") == 1
