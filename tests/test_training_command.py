"""`fmtkit train` on the command line: plans, codes, and one line for a user's error."""

import json
import re
import subprocess
import sys

import pytest

pytest.importorskip("trl")

import runs

FRAGMENT = "rl: dpo\nrl_beta: 0.2\n"
WHOLE = "base_model: a/m\nrl: dpo\ndatasets: [{path: a/b, type: chatml.intel}]\n"


@pytest.fixture
def config(tmp_path):
    """Return a function that writes a configuration."""

    def write(text: str):
        file = tmp_path / "c.yaml"
        file.write_text(text, encoding="utf-8")
        return file

    return write


def test_a_dry_run_prints_the_plan_and_starts_nothing(config, capsys, tmp_path):
    done = runs.fmtkit(capsys, "train", config(WHOLE), "--dry-run", "--set", "rl_beta=0.3")
    assert done.code == 0
    assert done.err == ""
    assert "trl:DPOTrainer" in done.out
    assert "--set rl_beta" in done.out
    assert not (tmp_path / "runs").exists()


def test_each_passed_through_argument_names_the_set_that_it_came_from(config, capsys):
    text = WHOLE + "trainer_args: {ld_alpha: 0.5}\n"
    more = ("--dry-run", "--json", "--set", "trainer_args.beta=0.3")
    done = runs.fmtkit(capsys, "train", config(text), *more)
    found = json.loads(done.out)["arguments"]["trainer"]
    assert found["beta"]["origin"] == "--set trainer_args.beta"
    assert found["ld_alpha"]["origin"] == "key trainer_args.ld_alpha"


def test_on_a_terminal_what_nobody_set_is_dim(config, capsys, monkeypatch):
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "160")
    done = runs.fmtkit(capsys, "train", config(WHOLE), "--dry-run", "--set", "rl_beta=0.3")
    dim = [line for line in done.out.splitlines() if line.startswith("\x1b[2m")]
    assert any("trainer: report_to" in line and "default of fmtkit" in line for line in dim)
    assert not any("key " in line for line in dim)
    assert "--set rl_beta" in done.out


def test_a_dry_run_prints_the_plan_as_json(config, capsys):
    done = runs.fmtkit(
        capsys, "train", config(WHOLE), "--dry-run", "--json", "--num-processes", "2"
    )
    plan = json.loads(done.out)
    assert plan["missing"] == []
    assert plan["datasets"][0]["table"] == "Preference"
    assert any("fmtkit.training.run.several" in part for part in plan["launch"]["command"])


def test_a_fragment_plans_with_a_list_of_what_it_misses(config, capsys):
    done = runs.fmtkit(capsys, "train", config(FRAGMENT), "--dry-run", "--json")
    assert done.code == 0
    assert json.loads(done.out)["missing"] == ["base_model", "datasets"]


def test_a_fragment_does_not_train(config, capsys):
    for more in ([], ["--partial"]):
        done = runs.fmtkit(capsys, "train", config(FRAGMENT), *more)
        assert done.code == 2
        assert done.out == ""
        assert done.err.count("\n") == 1
        assert "base_model, datasets: needed to train" in done.err


def test_the_method_of_a_whole_configuration_is_never_guessed(config, capsys):
    text = WHOLE.replace("rl: dpo\n", "")
    done = runs.fmtkit(capsys, "train", config(text), "--dry-run")
    assert done.code == 2
    assert "type intel makes Preference" in done.err
    assert runs.fmtkit(capsys, "train", config(text), "--dry-run", "--partial").code == 0


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("rl_bta: 0.2\n", "did you mean 'rl_beta'"),
        ("rl_beta: high\n", "rl_beta: 'high' is not a number"),
        ("learning_rate: -0.1\n", "learning_rate: -0.1 is not a number from 0"),
        ("max_steps: 0\n", "max_steps: 0 is not a whole number from 1, or -1 for none"),
        (
            "datasets: [a/b]\n",
            "datasets.0: 'a/b' is not an entry, such as {path: FILE, type: TYPE}",
        ),
        ("rl: dpo\nrl: kto\n", "duplicate key 'rl'"),
        ("rl: gdpo\ncontext_parallel_size: 2\n", "[context_parallel]"),
        ("rl: [\n", "c.yaml:2"),
        ("rl: dpoo\n", "rl: no method named 'dpoo'; did you mean 'dpo'?; installed: "),
    ],
)
def test_a_wrong_configuration_is_one_line_and_exit_code_2(config, capsys, text, words):
    done = runs.fmtkit(capsys, "train", config(text), "--dry-run")
    assert done.code == 2
    assert done.out == ""
    # Below it the line of the config that it is about, and carets.
    assert sum(not re.match(r"  +\d* \| ", line) for line in done.err.splitlines()) == 1
    assert words in done.err


def test_a_configuration_that_is_not_there_is_exit_code_2(capsys, tmp_path):
    done = runs.fmtkit(capsys, "train", tmp_path / "nope.yaml")
    assert done.code == 2
    assert "nope.yaml: cannot be read" in done.err


def test_a_dry_run_loads_no_torch(config):
    code = (
        "import sys; from fmtkit import cli\n"
        f"sys.argv = ['fmtkit', 'train', {str(config(WHOLE))!r}, '--dry-run']\n"
        "try: cli.main()\n"
        "except SystemExit: pass\n"
        "heavy = {'torch', 'transformers', 'trl', 'datasets'} & set(sys.modules)\n"
        "print(sorted(heavy), file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stderr == "[]\n"
    assert "trl:DPOTrainer" in done.stdout


def test_a_training_process_loads_no_polars():
    modules = ["data.rows", "building.build", "trained.card"]
    modules += [f"run.{name}" for name in ("process", "exact", "curves", "run_page")]
    code = (
        "import sys\n"
        f"for name in {modules!r}:\n"
        "    __import__('fmtkit.training.' + name)\n"
        "print(sorted({'polars', 'torch', 'datasets', 'rich', 'matplotlib'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
