"""What the command line says of itself: help by panels, examples that run, completion in bash, near names."""

import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterable
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest
import runs
from typer.core import TyperGroup
from typer.main import get_command

from fmtkit.commands.application import AFTERWARDS, COMMANDS, EXAMPLES, GROUPS, PANELS, application
from fmtkit.core import runner
from fmtkit.core.errors import NEAREST, UnknownNameError
from fmtkit.formats import registry
from fmtkit.options.convert_options import ConvertOptions

ROOT = Path(__file__).parents[1]
COLOURS = ROOT / "docs/examples/colours.jsonl"
FMTKIT = (sys.executable, "-m", "fmtkit")


def panels(text: str) -> dict[str, str]:
    """Return the parts of a help by their headings."""
    found: dict[str, str] = {}
    heading = ""
    for line in text.splitlines():
        if line and not line.startswith(" ") and line.endswith(":"):
            heading = line[:-1]
        else:
            found[heading] = found.get(heading, "") + line + "\n"
    return found


def test_the_version_is_printed(capsys):
    done = runs.fmtkit(capsys, "--version")
    assert (done.code, done.out, done.err) == (0, f"fmtkit {version('fmtkit')}\n", "")


def test_commands_are_listed_by_what_they_are_for(capsys):
    done = runs.fmtkit(capsys, "--help")
    found = panels(done.out)
    for name in COMMANDS:
        assert f"\n  {name} " in "\n" + found[PANELS.get(name, "Data")]
    assert "fmtkit inspect FILE" in found["Examples"]
    assert "..." not in found["Training"]


def test_flags_are_listed_by_the_options_that_declare_them(capsys):
    found = panels(runs.fmtkit(capsys, "convert", "--help").out)
    assert "--type" in found["Reading"]
    assert "--on-error quarantine|fail|skip" in found["Rows"]
    assert "--resume" in found["Writing"]
    assert "--json" in found["Output and help"]
    assert [*found][-1] == "Examples"
    assert "list[str]" not in "".join(found.values())
    shown = "".join(found.values())
    for name, declared in ConvertOptions.declared().items():
        for choice in declared.choices:
            assert choice in shown, name


def calls(names: Iterable[str]) -> list[Any]:
    """Return the examples of commands."""
    return [
        pytest.param(call, id=f"{name}-{i}")
        for name in sorted(names)
        for i, call in enumerate(EXAMPLES[name].splitlines())
    ]


def test_every_command_has_an_example_in_its_help(capsys):
    assert EXAMPLES.keys() == {*COMMANDS, *GROUPS}
    for name in EXAMPLES:
        assert EXAMPLES[name].splitlines()[0] in runs.fmtkit(capsys, name, "--help").out


@pytest.mark.parametrize("call", calls(AFTERWARDS))
def test_an_example_that_needs_a_run_has_arguments_that_exist(call):
    program, *words = shlex.split(call)
    # Parsed as a call would be, and not made: a flag that is not there raises.
    command = get_command(application())
    while isinstance(command, TyperGroup) and words and words[0] in command.commands:
        command = command.commands[words.pop(0)]
    assert command.make_context(program, words).params is not None


@pytest.mark.parametrize("call", calls(EXAMPLES.keys() - AFTERWARDS))
def test_an_example_of_the_help_runs_beside_the_samples(call, tmp_path, monkeypatch, capsys):
    folder = tmp_path / "samples"
    shutil.copytree(ROOT / "docs/examples", folder)
    (folder / "docs").mkdir()
    (folder / "docs/examples").symlink_to(folder)
    monkeypatch.chdir(folder)
    program, *words = call.split()
    done = runs.fmtkit(capsys, *words)
    assert (program, done.code) == ("fmtkit", 0), done.err


def test_a_method_as_type_is_told_what_a_type_is(capsys, tmp_path):
    for method in runner.names():
        if method in registry.names():
            continue
        done = runs.fmtkit(capsys, "convert", COLOURS, "-t", method, "-o", tmp_path / "x.parquet")
        assert done.code == 2
        assert len(done.err.splitlines()) == 1
        assert f"{method} is a training method, and a type says" in done.err
        assert f"--method {method}" in done.err


def test_of_many_names_the_nearest_five_are_told():
    names = [f"name_{i}" for i in range(50)] + ["qqzzq"]
    text = str(UnknownNameError("thing", "xxqxx", names))
    listed = text.partition(" are ")[2].split(", ")
    assert (listed[0], len(listed)) == ("qqzzq", NEAREST)
    assert "the nearest of 51" in text
    assert str(UnknownNameError("thing", "qq", ["b", "a"])).endswith("known: a, b")


def in_bash(script: str) -> subprocess.CompletedProcess[str]:
    folder = Path(sys.executable).parent
    environment = {**os.environ, "PATH": f"{folder}:{os.environ['PATH']}", "HF_HUB_OFFLINE": "1"}
    start = "source <(fmtkit --show-completion bash); complete -p fmtkit;"
    return subprocess.run(
        ["bash", "--norc", "-c", start + script],
        capture_output=True, text=True, env=environment, check=False, cwd=ROOT,
    )  # fmt: skip


@pytest.mark.skipif(shutil.which("bash") is None, reason="needs bash")
@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["conv"], {"convert"}),
        (["convert", "x.jsonl", "-t", "intel"], {"intel"}),
        (["convert", "x.jsonl", "-t", "chatml.inte"], {"chatml.intel"}),
        (["convert", "--on-error", ""], {"quarantine", "fail", "skip"}),
        (["inspect", "--method", "dp"], {"dpo"}),
        (["convert", "--chat-template", "zeph"], {"zephyr"}),
        (["schema", "quar"], {"quarantine"}),
        (["types", "nect"], {"nectar"}),
        (["convert", "--resu"], {"--resume"}),
        (["inspect", "README"], set()),
    ],
)  # fmt: skip
def test_bash_completes_commands_flags_types_and_choices(words, expected):
    typed = " ".join(f"'{word}'" for word in ["fmtkit", *words])
    script = (
        f"COMP_WORDS=({typed}); COMP_CWORD={len(words)}; _fmtkit_completion fmtkit;"
        ' printf "%s\\n" "${COMPREPLY[@]}"'
    )
    done = in_bash(script)
    assert done.stderr == ""
    first, *found = done.stdout.splitlines()
    # What nothing completes, bash completes with the names of files: -o default.
    assert first == "complete -o default -F _fmtkit_completion fmtkit"
    assert {word for word in found if word} == expected


def test_a_terminal_that_is_not_utf_8_gets_escapes(tmp_path):
    (tmp_path / "a.jsonl").write_text(
        '{"question": "é", "chosen": "a", "rejected": "b"}\n', "utf-8"
    )
    done = subprocess.run(
        [*FMTKIT, "inspect", "a.jsonl"],
        capture_output=True, cwd=tmp_path, check=False,
        env={**os.environ, "PYTHONIOENCODING": "ascii", "PYTHONPATH": str(ROOT), "HF_HUB_OFFLINE": "1"},
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, b"")
    assert b"\\u2714 the one row converts" in done.stdout
