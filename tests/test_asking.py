"""Asking on a terminal: a person without a command gets one by numbers and Enter, and it does the same."""

import json
import os
import pty
import select
import shlex
import subprocess
import sys
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from fmtkit.detection.questions import LAYOUTS, by_columns, column_question, first_question
from fmtkit.options.convert_options import SourceOptions

UNNAMED = [
    {
        "ask": f"Why is the sky {color}?",
        "said": f"For {color} light scatters.",
        "thumbs": place % 2 == 0,
    }
    for place, color in enumerate(["blue", "red", "green", "grey", "black", "white"])
]
PAIRS = [
    {"question": f"What is {n} plus {n}?", "chosen": f"It is {2 * n}.", "rejected": f"It is {n}."}
    for n in range(6)
]
PROMPT = b"]: "
"""How the text before each answer ends."""
END = "\x04"
"""Ctrl-D."""


@pytest.fixture
def folder(tmp_path, monkeypatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def write(folder: Path, rows: list[dict], name: str = "rows.jsonl") -> str:
    text = "\n".join(json.dumps(row) for row in rows)
    (folder / name).write_text(text, encoding="utf-8")
    return name


def on_a_terminal(command: str, *answers: str) -> tuple[int, str]:
    """Run a command on a terminal; give the answers, one for each question. Return its exit code and text."""
    process, terminal = pty.fork()
    if process == 0:
        os.environ |= {"TERM": "dumb", "COLUMNS": "100"}
        os.execv(sys.executable, [sys.executable, "-m", "fmtkit", *shlex.split(command)])
    said, left = b"", [*answers]
    seen = 0
    while select.select([terminal], [], [], 60)[0]:
        try:
            part = os.read(terminal, 4096)
        except OSError:  # Linux: the other side is closed.
            break
        if not part:
            break
        said += part
        while said.count(PROMPT) > seen and left:
            seen += 1
            answer = left.pop(0)
            os.write(terminal, answer.encode() + (b"" if answer == END else b"\n"))
    os.close(terminal)
    code = os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])
    return code, said.decode().replace("\r\n", "\n")


def told(said: str) -> list[str]:
    """Return the words of the command that was printed."""
    line = next(
        line for line in said.splitlines() if line.startswith("The same without questions: ")
    )
    return shlex.split(line.partition(": ")[2])


def again(words: list[str], out: str) -> None:
    """Run the printed command with another output."""
    words = [sys.executable, "-m", *words]
    words[words.index("-o") + 1] = out
    subprocess.run(words, check=True, capture_output=True)


def test_columns_that_somebody_names_are_converted_and_the_command_does_the_same(folder):
    name = write(folder, UNNAMED)
    code, said = on_a_terminal(f"convert {name}", "x", "7", "", "", "1", "2", "", "")
    assert code == 0, said
    assert "x: write a number from 1 to 3" in said
    assert "7: write a number from 1 to 3" in said
    made = pq.read_table("rows.parquet")
    assert made.column_names == ["prompt", "completion", "label"]
    assert made["label"].to_pylist() == [row["thumbs"] for row in UNNAMED]
    assert json.loads(Path("rows.map.json").read_text()) == {
        "question": "ask",
        "answer": "said",
        "label": "thumbs",
    }
    again(told(said), "again.parquet")
    assert pq.read_table("again.parquet").equals(made)


def test_a_likely_guess_takes_enter_alone(folder):
    name = write(folder, PAIRS)
    code, said = on_a_terminal(f"convert {name} -o out.parquet", "", "")
    assert code == 0, said
    assert "-> Preference (" in said
    assert "assistant: It is 2." in said
    assert not list(folder.glob("*.map.json"))
    made = pq.read_table("out.parquet")
    assert told(said)[-2:] == ["-o", "out.parquet"]
    again(told(said), "again.parquet")
    assert pq.read_table("again.parquet").equals(made)


def test_what_flags_say_is_not_asked(folder):
    """Columns that are ignored are not shown, and those that --map names are not asked for."""
    name = write(folder, UNNAMED)
    command = f"convert {name} --ignore thumbs --map question=ask"
    code, said = on_a_terminal(command, "2", "1", "2", "")
    assert code == 0, said
    assert "thumbs" not in said.partition("The same")[0]
    assert "Which column is the question?" not in said
    assert "user: Why is the sky blue?" in said
    again(told(said), "again.parquet")
    assert pq.read_table("again.parquet").equals(pq.read_table("rows.parquet"))


def test_what_cannot_be_converted_is_not_offered_as_right(folder):
    name = write(folder, PAIRS)
    code, said = on_a_terminal(f"convert {name} -O nope=1", "", END)
    assert code == 130, said
    assert "nope" in said
    assert "Is this right?" not in said


def test_what_is_not_right_is_asked_anew(folder):
    name = write(folder, PAIRS)
    code, said = on_a_terminal(f"convert {name}", "", "n", "", "")
    assert code == 0, said
    assert said.count("They become:") == 2


@pytest.mark.parametrize(
    ("answer", "code", "end"),
    [("3", 2, "--type is missing; it looks like text"), (END, 130, "fmtkit: interrupted")],
)
def test_who_leaves_writes_nothing(folder, answer, code, end):
    name = write(folder, UNNAMED)
    found, said = on_a_terminal(f"convert {name}", answer)
    assert found == code, said
    assert end in said
    assert [path.name for path in folder.iterdir()] == [name]


def test_nobody_is_asked_who_does_not_want_it(folder):
    name = write(folder, UNNAMED)
    code, said = on_a_terminal(f"convert {name} --no-ask")
    assert (code, "How are the rows read?" in said) == (2, False)
    done = subprocess.run(
        [sys.executable, "-m", "fmtkit", "convert", name, "--ask"],
        check=False,
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
    )
    assert done.returncode == 2
    assert done.stderr.startswith("fmtkit: --type is missing")


def test_an_inspection_is_of_the_rows_as_they_were_told(folder):
    name = write(folder, PAIRS)
    code, said = on_a_terminal(f"inspect {name} --ask", "", "")
    assert code == 0, said
    assert told(said)[:4] == ["fmtkit", "convert", name, "-t"]


def test_control_bytes_of_rows_never_reach_the_terminal(folder):
    evil = "\x1b]0;owned\x07 \x9b31m"
    name = write(folder, [{"question": evil, evil: "x", "answer": f"{evil}{n}"} for n in range(4)])
    _, said = on_a_terminal(f"convert {name}", "9", END)
    assert "owned" in said
    assert not {"\x1b", "\x07", "\x9b"} & {*said}


def test_a_label_is_the_likely_answer_where_something_says_what_is_good():
    given = SourceOptions()
    layout = LAYOUTS[0]
    choice = by_columns(layout, {"question": "ask", "answer": "said"}, UNNAMED)
    (column,) = choice.open(given)
    question = column_question(column, choice, UNNAMED, given)
    assert list(question.answers)[question.likely] == "a label for KTO (true is good)"
    labeled = question.answers["a label for KTO (true is good)"]
    assert labeled.fit.converter.table == "Unpaired"
    assert labeled.open(given) == ()
    ignored = question.answers["not needed"].made(UNNAMED, given)
    assert ignored["ignore"] == ("thumbs",)
    kept = question.answers["something to carry through as it is"].made(UNNAMED, given)
    assert kept["keep"] == ("thumbs",)


def test_where_no_guess_is_likely_none_is_preselected():
    question = first_question(UNNAMED, SourceOptions())
    assert question.likely == len(question.answers) > 0
    assert first_question(PAIRS, SourceOptions()).likely == 0


@pytest.mark.parametrize("layout", LAYOUTS, ids=lambda layout: layout.words)
def test_every_layout_that_may_be_told_is_read(layout):
    held = {
        "label": True,
        "messages": [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Ho"}],
    }
    rows = [{f"c {name}": held.get(name, f"{name} {n}") for name in layout.columns} for n in "abc"]
    columns = {name: f"c {name}" for name in layout.columns}
    choice = by_columns(layout, columns, rows)
    assert choice.fit.converter.table == layout.table
    assert choice.made(rows, SourceOptions())["columns"] == columns


def test_columns_that_do_not_hold_what_was_told_are_no_choice():
    layout = LAYOUTS[1]
    columns = {"prompt": "ask", "chosen": "said", "rejected": "thumbs"}
    assert by_columns(layout, columns, UNNAMED) is None
