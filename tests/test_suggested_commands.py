"""Commands that fmtkit suggests are the user's own with a type: they run, and write where the user said."""

import json
import re
import shlex
from pathlib import Path
from typing import Any

import pytest
from runs import fmtkit, lines

import fmtkit as package
from fmtkit.core.errors import OptionError

TOKENIZER = str(Path(__file__).parents[1] / "fixtures" / "tokenizer")

ASKED = [f"What is {n} + {n}?" for n in range(8)]
OWN = {"id": "k1", "note": "n"}
PAIRS = [{"question": q, "chosen": "right", "rejected": "wrong"} | OWN for q in ASKED]
CONVERSATIONS = [
    {"messages": [{"role": "user", "content": q}, {"role": "assistant", "content": f"{n}"}]} | OWN
    for n, q in enumerate(ASKED)
]
RATED = [row | {"rating": n % 2} for n, row in enumerate(CONVERSATIONS)]
TOLD = [
    {"messages": [{"role": "user", "content": f"User: {q}\nAssistant: {q}"}, *row["messages"][1:]]}
    | OWN
    for q, row in zip(ASKED, CONVERSATIONS, strict=True)
]
FILES = {
    "pairs.jsonl": lines(PAIRS),
    "dialogs.jsonl": lines(CONVERSATIONS),
    "rated.jsonl": lines(RATED),
    "told.jsonl": lines(TOLD),
    "named.csv": ("Question;Answer;id;note\n" + "".join(f"{q};{q};k;n\n" for q in ASKED)).encode(),
}
TYPED = [
    "-o made.jsonl",
    "-o there/ --format jsonl --val-size 2",
    "-o made.jsonl --limit 3 --workers 1 --json",
    "-o made.jsonl --ignore id --keep note --fail-on value_error",
    "-o made.jsonl --to openai",
    "-o made.jsonl --overwrite --hash never --max-errors 5 --quiet",
    "-o made.jsonl --date 2026-07-26T00:00:00 --seed 3 --as messages",
]


@pytest.fixture
def run(capsys: Any, tmp_path: Path, monkeypatch: Any) -> Any:
    """Run a command line in a folder of the test, which holds the files."""
    monkeypatch.chdir(tmp_path)
    for name, data in FILES.items():
        Path(name).write_bytes(data)
    return lambda line: fmtkit(capsys, *shlex.split(line))


def suggested(message: str) -> list[str]:
    """Return the commands of a message of `convert` or `validate`."""
    parts = message.strip().partition("-> ")[2].split("fmtkit ")[1:]
    return ["fmtkit " + part.partition("; or with ")[0] for part in parts]


FIRST_IS_FAST = [
    name if place == 0 else pytest.param(name, marks=pytest.mark.slow)
    for place, name in enumerate(FILES)
]


@pytest.mark.parametrize("typed", TYPED)
@pytest.mark.parametrize("name", FIRST_IS_FAST)
def test_a_command_that_convert_suggests_is_the_typed_one_with_a_type(name, typed, run):
    done = run(f"convert {name} {typed}")
    assert done.code == 2
    commands = suggested(done.err)
    if not commands:
        assert "--to openai can write" in done.err
        return
    for command in commands:
        assert set(shlex.split(typed)) <= {*shlex.split(command), *words_of_lists(command)}
        written = Path(shlex.split(typed)[1])
        assert not written.exists()
        assert run(command.removeprefix("fmtkit ")).code == 0, command
        remove(written)


LOOKED = [
    "--limit 3 --workers 1 --ignore id --fail-on empty_turn",
    f"--tokenizer {TOKENIZER} --max-length 16 --show-mask 1",
    f"--tokenizer {TOKENIZER} --chat-template chatml --date 2026-07-26T00:00:00 --sample 4",
    "--assistant-only --row 0",
]


@pytest.mark.parametrize("typed", LOOKED)
@pytest.mark.parametrize("name", FIRST_IS_FAST)
def test_a_command_that_inspect_suggests_has_the_options_of_sources_and_runs(name, typed, run):
    survey = json.loads(run(f"inspect {name} {typed} --json").out)
    commands = [survey["command"], *(one["command"] for one in survey["readings"])]
    for command in commands:
        words = shlex.split(command)
        for flag in (
            "--limit",
            "--tokenizer",
            "--chat-template",
            "--date",
            "--method",
        ):
            if flag in typed:
                assert words[words.index(flag) + 1] in typed
        assert ("--ignore" in typed) <= ("--ignore" in words)
        assert not {"--max-length", "--sample", "--fail-on", "--row", "--workers"} & {*words}
        written = Path(words[words.index("-o") + 1])
        assert run(command.removeprefix("fmtkit ")).code == 0, command
        remove(written)


@pytest.mark.parametrize("name", ["pairs.jsonl", "named.csv"])
def test_a_command_that_validate_suggests_is_the_typed_one_with_a_type(name, run):
    typed = "--limit 5 --max-errors 3 --schema --fail-on missing_field --quiet"
    commands = suggested(run(f"validate {name} {typed}").err)
    assert commands
    for command in commands:
        assert shlex.split(command)[1] == "validate"
        assert set(shlex.split(typed)) <= {*shlex.split(command)}
        assert run(command.removeprefix("fmtkit ")).code == 0, command


def test_the_library_suggests_a_command_with_its_keywords(run):
    with pytest.raises(OptionError) as caught:
        package.convert("pairs.jsonl", None, "made/", keep=["id"], val_size=0.5, ignore="note")
    (command,) = suggested(str(caught.value))
    assert command == (
        "fmtkit convert pairs.jsonl -t intel --ignore note --keep id --val-size 0.5 -o made/"
    )
    assert run(command.removeprefix("fmtkit ")).code == 0


@pytest.mark.parametrize("name", FILES)
def test_convert_inspect_and_the_library_say_the_same_guess_as_certainly(name, run):
    said = guess_in(run(f"convert {name} -o made.jsonl").err)
    survey = json.loads(run(f"inspect {name} --json").out)
    assert said == (survey["best_guess"], survey["certainty"])
    assert f"{survey['certainty']}:" in run(f"inspect {name}").out
    with pytest.raises(OptionError) as caught:
        package.convert(name, None)
    found = package.inspect(name)
    assert said == guess_in(str(caught.value)) == (found.best_guess, found.certainty)
    assert (said[1] == "sure") == (name in ("pairs.jsonl", "dialogs.jsonl"))


@pytest.mark.slow
def test_a_guess_on_several_sources_is_as_sure_as_on_the_least_sure_one(run):
    for names in ("dialogs.jsonl told.jsonl", "told.jsonl dialogs.jsonl"):
        survey = json.loads(run(f"inspect {names} --json").out)
        assert guess_in(run(f"convert {names} -o made.jsonl").err) == ("openai", "likely")
        assert (survey["best_guess"], survey["certainty"]) == ("openai", "likely")


def guess_in(message: str) -> tuple[str, str] | None:
    """Return the type and the certainty that a message without a type names."""
    found = re.search(r"looks like (\S+) -> \S+ \((\w+):", message)
    return (found[1], found[2]) if found else None


def words_of_lists(command: str) -> set[str]:
    """Return the first names of lists, to which suggestions add."""
    words = shlex.split(command)
    return {",".join(word.split(",")[:count]) for word in words for count in (1, 2)}


def remove(written: Path) -> None:
    for path in [*written.parent.glob(f"{written.stem}.*"), *written.rglob("*")]:
        if path.is_file() and path.name not in FILES:
            path.unlink()
    if written.is_dir():
        for path in sorted(written.rglob("*"), reverse=True):
            path.rmdir()
        written.rmdir()


def test_what_is_printed_and_where_is_no_part_of_what_a_run_is_resumed_by(run):
    assert run("convert pairs.jsonl -t intel -o made/ --json --fail-on value_error").code == 0
    manifest = json.loads(Path("made/manifest.json").read_text())
    assert not {"beside", "typed", "out", "begun"} & manifest["fingerprint"]["options"].keys()
    assert run("convert pairs.jsonl -t intel -o made --resume").code == 0
