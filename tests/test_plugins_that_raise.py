"""What a plugin raises is one line or a bad row, with the plugin's file and line."""

import json
from pathlib import Path

import pytest
from runs import INTEL, fmtkit, lines

from fmtkit.core import codes
from fmtkit.core.errors import OptionError
from fmtkit.formats import target_registry

HEAD = (
    "import polars as pl\n"
    "from fmtkit.columns import Text\n"
    "from fmtkit.columns.conversations import pair\n"
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
DRAWN = (
    "from fmtkit import register_code\n"
    "from fmtkit.columns.problems import Problem\n"
    "register_code('drawn', 'neither speech won')\n"
    "@converter()\n"
    "def mine(question: Text, chosen: Text, rejected: Text) -> Preference:\n"
    "    same = chosen.value == rejected.value\n"
    "    won = chosen.with_value(chosen.value, Problem('drawn', 'chosen', same, 'a draw'))\n"
    "    return pair(question, won, rejected)\n"
)
TARGET = (
    "from fmtkit import register_code, target\n"
    "from fmtkit.columns.exports import question, text_of_reply\n"
    "from fmtkit.columns.problems import Column, Problem\n"
    "from fmtkit.core.tables import Completion\n"
    "@target(reads='completion')\n"
    "def rows(table: Completion):\n"
    "    return {result}\n"
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
        ("@converter()\ndef mine(question: Text):\n    return 1\n", "annotate its result"),
        (
            "@converter()\ndef mine(question: Text) -> Preference:\n    return question\n",
            "its converter mine ({name}.py:6) returned Column",
        ),
        (
            "@converter()\ndef mine(question: Text) -> Preference:\n"
            "    return Preference(question.value, question, question)\n",
            "returned a pl.Expr as 'prompt', which must be a Column",
        ),
        (DRAWN.replace("register_code('d", "print('d"), "code 'drawn', which is not registered"),
        (DRAWN.replace("'drawn', 'n", "'no_place', 'n"), "it is a code of fmtkit's"),
        (DRAWN.replace("'drawn', 'n", "'No!', 'n"), "must be a word of lowercase letters"),
        (DRAWN + "register_code('even', '')\n", "say what is wrong with such a row"),
    ],
)
def test_a_plugin_that_cannot_be_loaded_or_called_is_one_line(convert, code, words):
    name, done = convert(code, [INTEL])
    assert done.code == 2
    assert words.format(name=name) in done.err
    assert done.err.count("\n") == 1


@pytest.mark.parametrize(("code", "good"), [(SHOUT, "fine"), (STRICT, "2024")])
def test_a_row_that_a_plugins_expression_raises_for_is_bad_and_no_other_is(convert, code, good):
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


@pytest.mark.parametrize("engine", [(), ("--workers", "3")], ids=str)
def test_a_plugin_has_a_code_of_its_own(convert, capsys, engine):
    rows = [INTEL | {"question": str(i)} for i in range(9)]
    rows[4] |= {"chosen": "same", "rejected": "same"}
    _, done = convert(DRAWN, rows, *engine)
    report = json.loads(done.out)
    # A code of fmtkit's comes before it in a row that has both.
    assert (report["rows_written"], report["reasons"]) == (8, {"no_preference": 1})
    _, done = convert(
        DRAWN.replace("same = ", "same = question.value == '7'#"), rows, *engine, "--overwrite"
    )
    assert json.loads(done.out)["reasons"] == {"no_preference": 1, "drawn": 1}
    bad = [json.loads(text) for text in Path("x.quarantine.jsonl").read_text().splitlines()]
    assert [(b["line"], b["code"], b["column"]) for b in bad] == [
        (5, "no_preference", None),
        (8, "drawn", "chosen"),
    ]


def test_inspect_fails_on_a_code_of_a_plugin(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    Path("drawing.py").write_text(HEAD + DRAWN.replace("same = ", "same = question.value == '7'#"))
    Path("a.jsonl").write_bytes(lines([INTEL | {"question": str(i)} for i in range(9)]))
    command = ("inspect", "a.jsonl", "--type", "drawing", "--plugin", "drawing.py")
    done = fmtkit(capsys, *command, "--fail-on", "drawn")
    assert done.code == 1
    assert "--fail-on drawn: found" in done.err
    assert "neither speech won" in done.out
    codes.forget("drawing")
    assert fmtkit(capsys, *command, "--fail-on", "draws").code == 2


def test_two_plugins_cannot_mean_different_things_by_one_code():
    one, other = ({"__name__": f"plugin_{name}"} for name in ("one", "other"))
    register = "from fmtkit import register_code as code; code('even', '{}')"
    for space in (one, other, one):
        exec(register.format("no winner"), space)
    with pytest.raises(OptionError, match="the plugin plugin_one has this code too: no winner"):
        exec(register.format("not odd"), other)
    codes.forget("plugin_one")
    assert "even" not in codes.REASONS


@pytest.mark.parametrize(
    ("result", "words"),
    [
        ("pl.lit(1)", "target rows ({name}.py:6) returned a pl.Expr; it must return the columns"),
        ("[table.prompt]", "returned list"),
        ("{}", "returned dict {{}}; it must return the columns"),
        ("{1: table.prompt}", "returned dict"),
        ("{'ask': pl.lit('x')}", "returned a pl.Expr as 'ask', which must be a Column"),
        ("{'ask': Column('x')}", "a Column as 'ask' whose value is str 'x'; it must be a pl.Expr"),
        (
            "{'ask': Column(pl.col('nope'))}",
            "the columns of its target rows ({name}.py:6) cannot be",
        ),
        (
            "{'ask': question(table.prompt).with_value(pl.lit('x'),"
            " Problem('odd', 'prompt', pl.lit(True), 'x'))}",
            "code 'odd', which is not registered",
        ),
    ],
)
def test_what_a_target_returns_wrongly_is_one_line(result, words, tmp_path, monkeypatch, capsys):
    name, done = wrote(result, tmp_path, monkeypatch, capsys)
    assert done.code == 2, done.err
    assert words.format(name=name) in done.err
    assert done.err.count("\n") == 1


def test_a_target_refuses_rows_by_a_code_of_its_own(tmp_path, monkeypatch, capsys):
    problem = "Problem(register_code('odd', 'not even'), 'prompt', question(table.prompt).value == '3', 'x')"
    made = f"{{'ask': question(table.prompt).with_value(pl.lit('x'), {problem})}}"
    name, done = wrote(made, tmp_path, monkeypatch, capsys)
    assert json.loads(done.out)["reasons"] == {"odd": 1}, done.err
    codes.forget(name)


def wrote(result, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    name = f"target_{abs(hash(result)) % 10**8}"
    Path(f"{name}.py").write_text("import polars as pl" + "\n" + TARGET.replace("{result}", result))
    rows = [{"instruction": str(i), "output": "a"} for i in range(4)]
    Path("a.jsonl").write_bytes(lines(rows))
    command = ("convert", "a.jsonl", "--type", "alpaca", "--plugin", f"{name}.py")
    done = fmtkit(capsys, *command, "--to", name.replace("_", "-"), "-o", "x.jsonl", "--json")
    target_registry.forget(f"{name}.py")
    return name, done
