"""The command line: what it takes, what it prints where, and how it ends."""

import io
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow.parquet as pq
import pytest
from runs import INTEL, KTO, Command, fmtkit, line, lines
from typer.main import get_command

import fmtkit as package
from fmtkit.commands.application import application
from fmtkit.core.errors import OptionError

TOKENIZER = str(Path(__file__).parents[1] / "fixtures" / "tokenizer")
BAD = INTEL | {"chosen": None}


@pytest.fixture
def run(capsys: Any, tmp_path: Path, monkeypatch: Any) -> Any:
    """Run commands in a folder of the test, over source.jsonl with a sound and a bad row."""
    monkeypatch.chdir(tmp_path)
    Path("source.jsonl").write_bytes(lines([INTEL, BAD, INTEL]))
    return lambda *arguments: fmtkit(capsys, *arguments)


CONVERT = ("convert", "source.jsonl", "--type", "chatml.intel", "-o", "out.parquet")


def test_a_conversion_reports_on_stderr_and_ends_with_0(run):
    done: Command = run(*CONVERT)
    assert done.code == 0
    assert done.out == ""
    assert "rows written" in done.err
    assert "null_field" in done.err
    assert pq.read_metadata("out.parquet").num_rows == 2


def test_json_goes_to_stdout_alone(run):
    done: Command = run(*CONVERT, "--json")
    assert json.loads(done.out) == json.loads(Path("out.report.json").read_text())
    assert json.loads(done.out)["rows_written"] == 2
    assert done.err == ""


def test_quiet_prints_nothing(run):
    assert run(*CONVERT, "-q") == Command(0, "", "")


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["convert", "source.jsonl", "--type", "intel"], 2, "-o"),
        (["convert", "source.jsonl", "-o", "x.parquet"], 2, "--type"),
        (["convert", "--type", "intel", "-o", "x.parquet"], 2, "SOURCE"),
        (
            ["convert", "source.jsonl", "--type", "intle", "-o", "x.parquet"],
            2,
            "did you mean 'intel'",
        ),
        (
            ["convert", "source.jsonl", "--type", "chatlm.intel", "-o", "x.parquet"],
            2,
            "chatml.intel",
        ),
        (["convert", "source.jsonl", "--type", "argilla", "-o", "x.parquet"], 2, "intel"),
        (["convert", "source.jsonl", "--tpye", "intel", "-o", "x.parquet"], 2, "--type"),
        (["convert", "sorce.jsonl", "--type", "intel", "-o", "x.parquet"], 3, "source.jsonl"),
        (["convert", "*.nothing", "--type", "intel", "-o", "x.parquet"], 3, "*.nothing"),
        (
            ["convert", "source.jsonl", "--type", "intel", "-o", "x.parquet", "--limit", "0"],
            2,
            "--limit",
        ),
        (
            ["convert", "source.jsonl", "--type", "intel", "-o", "x.parquet", "--workers", "two"],
            2,
            "--workers",
        ),
        (
            ["convert", "source.jsonl", "--type", "intel", "-o", "x.parquet", "--on-error", "fial"],
            2,
            "fail",
        ),
        (
            ["convert", "source.jsonl", "--type", "intel", "-o", "x.parquet", "--map", "chosen"],
            2,
            "KEY=VALUE",
        ),
        (
            ["convert", "source.jsonl", "--type", "intel", "-o", "x.parquet", "--map", "chosn=a"],
            2,
            "chosen",
        ),
        (
            ["convert", "source.jsonl", "--type", "intel", "-o", "x.parquet", "--columns", "{"],
            2,
            "JSON",
        ),
        (
            [
                "convert",
                "source.jsonl",
                "--type",
                "intel",
                "-o",
                "x.parquet",
                "--columns",
                '{"question": 5}',
            ],
            2,
            "question=5",
        ),
        (
            [
                "convert",
                "source.jsonl",
                "--type",
                "intel",
                "-o",
                "x.parquet",
                "--option",
                "pairs=all",
            ],
            2,
            "pairs",
        ),
        (
            ["convert", "source.jsonl", "--type", "intel", "-o", "x.parquet", "--format", "csv"],
            2,
            "parquet",
        ),
        (
            ["convert", "source.jsonl", "--type", "intel", "-o", "x.parquet", "--plugin", "no.py"],
            2,
            "no.py",
        ),
        (
            ["convert", "source.jsonl", "--type", "intel", "-o", "x.parquet", "--max-errors", "0"],
            1,
            "--max-errors",
        ),
        (
            ["convert", "source.jsonl", "--type", "intel", "-o", "x.parquet", "--on-error", "fail"],
            1,
            "source.jsonl:2",
        ),
        (["validate", "source.jsonl", "--type", "nothing"], 2, "nothing"),
        (["types", "intle"], 2, "intel"),
        (["schema", "preferense"], 2, "preference"),
        (["templates", "chatlm"], 2, "chatml"),
        (["no-such-command"], 2, "no-such-command"),
    ],
)
def test_an_error_is_one_line_on_stderr_with_its_code(run, arguments, code, words):
    done: Command = run(*arguments)
    assert done.code == code
    assert done.out == ""
    said = re.sub(r"[│╭╮╰╯─\s]+", " ", done.err)
    assert words in said
    if done.err.startswith("fmtkit:"):
        assert done.err.count("\n") == 1


def test_only_bad_rows_end_with_4_and_keep_the_reasons(run):
    Path("source.jsonl").write_bytes(lines([BAD]))
    done: Command = run(*CONVERT)
    assert done.code == 4
    assert "out.quarantine.jsonl" in done.err
    assert sorted(path.name for path in Path().iterdir()) == [
        "out.quarantine.jsonl",
        "out.report.json",
        "source.jsonl",
    ]


def test_an_output_that_exists_ends_with_2(run):
    assert run(*CONVERT).code == 0
    done: Command = run(*CONVERT)
    assert done.code == 2
    assert "--overwrite" in done.err
    assert run(*CONVERT, "--overwrite").code == 0


def standard_input(monkeypatch: Any, data: bytes) -> None:
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BytesIO(data)))


def test_rows_come_from_stdin(run, monkeypatch):
    standard_input(monkeypatch, lines([INTEL, BAD]))
    done: Command = run("convert", "-", "--type", "intel", "-o", "x.parquet", "--json")
    report = json.loads(done.out)
    assert (report["rows_written"], report["sources"][0]["path"]) == (1, "-")
    assert json.loads(Path("x.quarantine.jsonl").read_text())["file"] == "-"


def test_stdin_is_read_as_often_as_a_run_needs(run, monkeypatch):
    row = {"question": "q", "answer": "a #### 4", "level": 1.50}
    standard_input(monkeypatch, lines([row | {"question": f"q{i}"} for i in range(9)]))
    done: Command = run("convert", "-", "--type", "gsm8k", "-o", "x", "--val-size", "3", "-q")
    assert done.code == 0
    [train] = Path("x/data").glob("train-*")
    assert pq.read_table(train).column("level").to_pylist() == [1.5] * 6


def test_globs_and_folders_are_read_in_order(run):
    Path("more").mkdir()
    for name in ("b", "a"):
        Path(f"more/{name}.jsonl").write_bytes(lines([INTEL | {"question": name}]))
    for source in ("more", "more/*.jsonl"):
        done: Command = run(
            "convert", source, "--type", "intel", "-o", "x.jsonl", "--overwrite", "--json"
        )
        paths = [Path(found["path"]).name for found in json.loads(done.out)["sources"]]
        assert paths == ["a.jsonl", "b.jsonl"]
        rows = [json.loads(text) for text in Path("x.jsonl").read_text().splitlines()]
        assert [row["prompt"][0]["content"] for row in rows] == ["a", "b"]


def test_columns_are_named_by_map_or_by_json(run):
    Path("source.jsonl").write_bytes(lines([{"meta": {"q": "Q"}, "good": "a", "bad": "b"}]))
    for flags in (
        ["--map", "question=meta.q", "--map", "chosen=good", "--map", "rejected=bad"],
        ["--columns", '{"question": "meta.q", "chosen": "good", "rejected": "bad"}'],
        [
            "--columns",
            '{"question": "x", "chosen": "good"}',
            "--map",
            "question=meta.q",
            "--map",
            "rejected=bad",
        ],
    ):
        assert run(*CONVERT, "--overwrite", *flags).code == 0


def test_messages_and_text_are_chosen_by_as(run):
    for form, kind in (("messages", "list<element: struct"), ("text", "string")):
        assert run(*CONVERT, "--overwrite", "--as", form).code == 0
        assert str(pq.read_schema("out.parquet").field("prompt").type).startswith(kind)


def test_a_method_chooses_among_tables(run):
    Path("source.jsonl").write_bytes(lines([INTEL | KTO]))
    done: Command = run(*CONVERT[:4], "-o", "x.parquet", "--method", "kto", "--json")
    assert json.loads(done.out)["table"] == "Unpaired"


def test_rows_too_long_are_dropped_when_asked_for(run):
    Path("source.jsonl").write_bytes(lines([INTEL, INTEL | {"question": "why " * 300}]))
    flags = ["--tokenizer", TOKENIZER, "--max-length", "80", "--on-overlong", "drop", "--json"]
    report = json.loads(run(*CONVERT, *flags).out)
    assert (report["overlong_dropped"], report["rows_written"]) == (1, 1)


def test_validation_lists_every_finding_and_ends_with_1(run):
    rows = [INTEL, BAD, b"{", INTEL | {"rejected": "4"}]
    Path("source.jsonl").write_bytes(lines(rows))
    done: Command = run("validate", "source.jsonl", "--type", "intel")
    assert done.code == 1
    found = [text.split(": ")[:2] for text in done.out.splitlines()]
    assert found == [
        ["source.jsonl:2", "null_field"],
        ["source.jsonl:3", "json_syntax"],
        ["source.jsonl:4", "no_preference"],
    ]
    assert "null_field" in done.err
    assert sorted(path.name for path in Path().iterdir()) == ["source.jsonl"]


def test_validation_ends_with_0_where_nothing_is_wrong_or_enough_is_allowed(run):
    assert run("validate", "source.jsonl", "--type", "intel", "--max-errors", "1").code == 0
    Path("source.jsonl").write_bytes(lines([INTEL]))
    assert run("validate", "source.jsonl", "--type", "intel").code == 0


def test_validation_prints_json(run):
    done: Command = run("validate", "source.jsonl", "--type", "intel", "--json")
    assert done.code == 1
    assert json.loads(done.out)["reasons"] == {"null_field": 1}


def test_a_canonical_file_is_validated_without_a_type(run):
    assert run(*CONVERT, "--as", "messages").code == 0
    assert run("validate", "out.parquet", "--schema").code == 0


NASTY = "\x1b]0;owned\x07\x1b[31mred\x9b2J\u202eevil\r\n::error::x"


def test_control_bytes_of_the_data_never_reach_the_terminal(run, tmp_path):
    Path("source.jsonl").write_bytes(
        lines(
            [
                INTEL,
                INTEL | {"chosen": [{NASTY: NASTY}]},
                {NASTY: 1},
                INTEL | {"question": NASTY, "rejected": "4"},
            ]
        )
    )
    printed = []
    for arguments in (
        CONVERT,
        ("validate", "source.jsonl", "--type", "intel"),
        ("validate", "source.jsonl", "--type", "argilla_chat"),
        ("convert", "source.jsonl", "--type", "argilla", "-o", "x.parquet"),
        ("convert", "source.jsonl", "--type", "intel", "--keep", "x", "-o", "x.parquet"),
        ("convert", "source.jsonl", "--type", f"intel{NASTY}", "-o", "x.parquet"),
        ("convert", f"source{NASTY}.jsonl", "--type", "intel", "-o", "x.parquet"),
    ):
        done: Command = run(*arguments)
        printed += [done.out, done.err]
    for text in printed:
        assert not re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202e]", text.replace("\n", "")), text
        assert "\n::error::" not in text


def test_types_and_schemas_and_templates_are_listed(run):
    assert {entry["name"] for entry in json.loads(run("types", "--json").out)} >= {"intel", "ultra"}
    assert "chatml" in run("templates").out
    assert json.loads(run("schema", "preference").out)["title"] == "Preference"
    assert json.loads(run("schema", "report").out)["properties"]
    assert "pyarrow" in run("env").out
    assert "rendered with template chatml" in run("types", "chatml.intel").out


EARLY = """
fmtkit() { %s -m fmtkit "$@"; }
{ sleep 0.1; %s; } %s | true
echo "${PIPESTATUS[0]}"
"""
"""The reader of the pipe has gone before the first line is written, as `head` has after it."""


PIPED = {
    "fmtkit types": 0,
    "fmtkit --help": 0,
    "fmtkit inspect source.jsonl": 0,
    "fmtkit inspect source.jsonl --json": 0,
    "fmtkit validate source.jsonl -t intel": 1,
    "fmtkit convert source.jsonl -t chatml.intel -o out.parquet": 0,
    "fmtkit convert source.jsonl -t chatml.intel -o out.parquet --json": 0,
    "fmtkit convert source.jsonl -t nothing -o out.parquet": 2,
}
ENDS = {("", ""): "fmtkit types", ("2>&1", ""): "fmtkit convert", ("", "1"): "fmtkit validate"}
"""How each ends, and the commands with which the fast tests try it: one that prints lines as they
come, one that writes to both streams, and one with an exit code of its own."""


@pytest.mark.parametrize(
    ("command", "code", "pipe", "unbuffered"),
    [
        pytest.param(
            command,
            code,
            pipe,
            unbuffered,
            marks=[] if pipe == unbuffered or command.startswith(tried) else pytest.mark.slow,
        )
        for (pipe, unbuffered), tried in ENDS.items()
        for command, code in PIPED.items()
    ],
)
def test_a_closed_pipe_ends_no_command_and_changes_no_exit_code(
    command, code, pipe, unbuffered, tmp_path
):
    (tmp_path / "source.jsonl").write_bytes(lines([INTEL, BAD, INTEL]))
    script = EARLY % (sys.executable, command, pipe)
    environment = {**os.environ, "PYTHONUNBUFFERED": unbuffered}
    done = subprocess.run(
        ["bash", "-c", script],
        check=True,
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env=environment,
    )
    assert done.stdout == f"{code}\n"
    assert "Traceback" not in done.stderr
    assert "BrokenPipe" not in done.stderr
    assert (tmp_path / "out.parquet").is_file() == ("convert" in command and code == 0)


def test_the_reader_of_a_pipe_gets_the_lines_that_it_takes(tmp_path):
    command = f"{sys.executable} -m fmtkit types | head -1"
    done = subprocess.run(command, shell=True, check=True, capture_output=True, text=True)
    assert "Traceback" not in done.stderr
    assert done.stdout.count("\n") == 1


def test_an_interrupt_ends_with_130_and_no_traceback(tmp_path):
    read, write = os.pipe()
    command = [
        sys.executable,
        "-m",
        "fmtkit",
        "convert",
        "-",
        "--type",
        "intel",
        "-o",
        str(tmp_path / "x"),
    ]
    process = subprocess.Popen(command, stdin=read, stderr=subprocess.PIPE)
    os.close(read)
    # More than a block: then it has been read and the run waits for the rest.
    sent = line(INTEL | {"question": "x" * 60_000}) + b"\n"
    for _ in range(300):
        os.write(write, sent)
    process.send_signal(2)
    # While polars computes, it takes the signal and raises on a worker: seen once the read ends.
    os.close(write)
    _, printed = process.communicate(timeout=60)
    assert process.returncode == 130
    assert printed.decode().splitlines() == [
        f"fmtkit: interrupted; {tmp_path / 'x'} is not finished: run the same command with --resume to continue"
    ]
    assert not (tmp_path / "x").exists()


def test_a_pipe_gets_the_words_of_the_terminal_without_its_colours(capsys, monkeypatch, tmp_path):
    rows = [{"question": "q", "chosen": "a", "rejected": r, "more": 1} for r in ("b", "a", 7)]
    source = tmp_path / "s.jsonl"
    source.write_text("\n\n".join(map(json.dumps, rows)))
    told = []
    for colours in ("", "1"):
        monkeypatch.setenv("FORCE_COLOR", colours)
        monkeypatch.setenv("COLUMNS", "300")
        arguments = [str(source), "--type", "intel", "-o", str(tmp_path / "o.parquet")]
        done = fmtkit(capsys, "convert", *arguments, "--overwrite", "--no-progress")
        checked = fmtkit(capsys, "validate", str(source), "--type", "intel", "--no-progress")
        assert (done.code, checked.code) == (0, 1)
        assert ("\x1b[" in done.err, "\x1b[" in checked.err) == (bool(colours), bool(colours))
        plain = re.sub(r"\x1b\[[0-9;]*m", "", done.err + checked.err)
        told.append([line.rstrip() for line in re.sub(r"in [\d.]+ s", "", plain).splitlines()])
    assert told[0] == told[1]
    assert "quarantined" in " ".join(told[0])


def _valued() -> list[list[str]]:
    """Return command and flag, or only the command for its arguments, of everything that takes a value."""
    group = get_command(application())
    commands = {(name,): found for name, found in group.commands.items()}
    commands[("rewards", "test")] = commands.pop(("rewards",)).commands["test"]
    out = []
    for words, command in commands.items():
        for taken in command.params:
            if taken.param_type_name == "argument":
                out.append([*words])
            elif not taken.is_flag:
                out.append([*words, max(taken.opts, key=len)])
    return out


def test_an_empty_value_is_refused_by_every_command_and_flag(run):
    needed = {"compare": ["c.yaml", "--against", "a"], "schema": ["intel"], "try": ["r"]}
    for words in _valued():
        flag = words[-1].startswith("--")
        more = needed.get(words[0], ["source.jsonl"] if words[0] != "env" else []) if flag else []
        if words[-1] == "--against":
            more = ["c.yaml"]
        if words == ["compare"]:
            more = ["--against", "a"]
        done: Command = run(*words, "", *more)
        assert done.code == 2, words
        assert re.search(" is empty: leave it out|a valid integer", done.err), (words, done.err)


def test_an_empty_path_is_refused_by_the_library_and_by_configs(run):
    calls = [
        lambda: package.convert("", "intel", "out.parquet"),
        lambda: package.convert("source.jsonl", "intel", "out.parquet", map_file=""),
        lambda: package.table([""], "intel"),
        lambda: package.inspect(""),
        lambda: package.replay(""),
        lambda: package.merge(""),
        lambda: package.try_run("", prompt="p"),
        lambda: package.train("", dry_run=True),
        lambda: package.compare("c.yaml", ""),
        lambda: package.train({"base_model": "", "datasets": [{"path": "x"}]}, dry_run=True),
        lambda: package.train({"base_model": "x", "datasets": [{"path": ""}]}, dry_run=True),
    ]
    for call in calls:
        with pytest.raises(OptionError, match=" is empty: leave it out"):
            call()


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="a device that is always full")
@pytest.mark.parametrize("command", ["types", "--help"])
def test_a_full_disk_under_stdout_ends_a_command_in_one_line(command):
    run = f"{sys.executable} -m fmtkit {command} > /dev/full"
    done = subprocess.run(run, check=False, shell=True, capture_output=True, text=True)
    line = "fmtkit: the standard output cannot be written: No space left on device"
    assert (done.returncode, done.stderr.splitlines()[-1]) == (3, line)
    assert "Traceback" not in done.stderr


def test_rows_are_not_written_to_a_folder_named_after_the_standard_output(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(OptionError, match="OUT -: rows are not written to the standard output"):
        package.convert([INTEL], "intel", "-")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("module", ["pathlib", "fmtkit.former_names", "fmtkit.core"])
def test_an_interrupt_while_the_package_is_imported_is_one_line(module):
    code = (
        "import sys\n"
        f"sys.modules.pop({module!r}, None)\n"
        "class Interrupting:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        f"        if name == {module!r}: raise KeyboardInterrupt\n"
        "sys.meta_path.insert(0, Interrupting())\n"
        "sys.argv = [sys.argv[1], 'types']\n"
        "from fmtkit.cli import main\n"
    )
    done, other = (
        subprocess.run(
            [sys.executable, "-c", code, name], check=False, capture_output=True, text=True
        )
        for name in ("/bin/fmtkit", "notebook.py")
    )
    assert (done.returncode, done.stderr) == (130, "fmtkit: interrupted\n")
    # A program of its own that imports fmtkit has its own answer to Ctrl-C.
    assert other.stderr.endswith("KeyboardInterrupt\n")


def test_an_interrupt_while_the_command_line_is_imported_is_one_line():
    script = (
        "import sys\n"
        "class Interrupting:\n"
        "    def find_spec(self, name, *more):\n"
        "        if name == 'typer': raise KeyboardInterrupt\n"
        "sys.meta_path.insert(0, Interrupting())\n"
        "from fmtkit import cli\n"
        "cli.main()\n"
    )
    command = [sys.executable, "-c", script]
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (130, "fmtkit: interrupted\n")


def test_a_pipe_or_a_device_is_no_output(run):
    os.mkfifo("pipe.jsonl")
    for out in ("/dev/stdout", "/dev/null", "/dev/fd/1", "pipe.jsonl"):
        done: Command = run("convert", "source.jsonl", "-t", "intel", "-o", out)
        assert (done.code, done.err.count("\n")) == (2, 1)
        assert f"OUT {out}: a pipe or a device" in done.err


def test_a_link_to_nothing_says_where_it_leads(run):
    Path("dangling.jsonl").symlink_to("nothere.jsonl")
    done: Command = run("validate", "dangling.jsonl", "-t", "intel")
    assert done.err == "fmtkit: dangling.jsonl is a link to nothere.jsonl, which does not exist\n"


def test_control_bytes_in_a_name_are_never_printed(run):
    name = "a\nb\x1b[31m"
    Path(f"{name}.jsonl").write_bytes(lines([INTEL, BAD]))
    for words in (
        ["convert", "-t", "intel", "-o", f"{name}.parquet"],
        ["convert", "-t", "intel", "-o", f"{name}.parquet"],
        ["validate", "-t", "intel"],
        ["inspect"],
    ):
        done: Command = run(*words, f"{name}.jsonl")
        assert "\x1b" not in done.out + done.err
        assert "a\nb" not in done.out + done.err
        assert "a\\nb\\x1b[31m" in done.out + done.err


def test_a_run_without_rows_shows_the_first_bad_row_and_does_not_block_the_next(run):
    Path("bad.jsonl").write_bytes(lines([BAD, BAD]))
    turn = {"role": "assistant", "content": "a", "reasoning_content": "r"}
    Path("chat.jsonl").write_bytes(lines([{"messages": [{"role": "user", "content": "q"}, turn]}]))
    for _ in range(2):
        done: Command = run("convert", "bad.jsonl", "-t", "intel", "-o", "o.parquet")
        assert done.code == 4
        assert "(null_field 2); the first, bad.jsonl:1: chosen is null; nothing" in done.err
    done = run("convert", "chat.jsonl", "-t", "openai", "--to", "alpaca", "-o", "o.jsonl")
    assert done.code == 4
    assert "no place for reasoning; --allow-loss reasoning_content writes the row" in done.err
    assert run("convert", "source.jsonl", "-t", "intel", "-o", "o.parquet").code == 0


def test_a_program_reads_an_error_as_json(run):
    for words, kind, code in (
        (["convert", "nothere.jsonl", "-t", "intel", "-o", "o.parquet"], "SourceError", 3),
        (["convert", "source.jsonl", "-t", "nothing", "-o", "o.parquet"], "UnknownNameError", 2),
        (["inspect", "source.jsonl", "--nothing"], "UsageError", 2),
    ):
        done: Command = run(*words, "--json")
        assert done.code == code
        found = json.loads(done.out)["error"]
        assert (found["type"], found["exit_code"]) == (kind, code)
        assert all(message in done.err for message in found["messages"])
        assert run(*words).out == ""
