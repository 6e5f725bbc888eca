"""`fmtkit rewards`: the library listed, and a config's reward functions on its rows, without a model."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
import reward_modules as modules
import yaml
from runs import Command, fmtkit

from fmtkit.rewards import LIBRARY

TRANSFORM = """

def prompts(cfg, *args, **kwargs):
    def transform(row):
        return {
            "prompt": [{"role": "user", "content": row["question"]}],
            "answer": row["answer"].split("#### ")[-1],
            "tests": [row["question"]],
        }

    return transform, {"remove_columns": ["question"]}


def loud(completions, tests, **kwargs):
    print("loud", tests[0])
    return [len(text(c)) * 1.0 for c in completions]
"""


@pytest.fixture
def run(capsys, tmp_path, monkeypatch):
    """Run the command in a folder with a config, its module and rows; options change the config."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    before = set(sys.modules)
    modules.write(tmp_path)
    with (tmp_path / "scores.py").open("a") as file:
        file.write(TRANSFORM)
    rows = [{"question": f"What is {n} + {n}?", "answer": f"So.\n#### {2 * n}"} for n in range(20)]
    Path("rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))

    def tried(functions, *arguments, weights=None, **more) -> Command:
        keys = {
            "rl": "grpo",
            "datasets": [{"path": "rows.jsonl", "type": "scores.prompts"}],
            "trl": {"reward_funcs": functions, **({"reward_weights": weights} if weights else {})},
            **more,
        }
        Path("run.yaml").write_text(yaml.safe_dump(keys))
        return fmtkit(capsys, "rewards", "test", "run.yaml", *arguments)

    yield tried
    for name in {"scores", "reward_neighbour"} & (set(sys.modules) - before):
        del sys.modules[name]


def result(done: Command) -> dict:
    return json.loads(done.out)


def test_the_library_is_listed(capsys):
    done = fmtkit(capsys, "rewards")
    assert done.code == 0
    assert len(done.out.splitlines()) == len(LIBRARY)
    assert "fmtkit.rewards.length_cap     cap, buffer=0, unit='tokens'" in done.out
    listed = json.loads(fmtkit(capsys, "rewards", "--json").out)
    assert [one["name"] for one in listed] == [f"fmtkit.rewards.{name}" for name in LIBRARY]
    assert listed[0]["options"] == {"column": "", "verifier": "builtin"}


def test_each_row_is_answered_by_its_reference_by_nothing_and_by_its_question(run):
    done = run(["scores.right"], "--n", "2", "--json")
    assert done.code == 0
    found = [
        (one["row"], one["kind"], one["completion"][0]["content"], one["total"])
        for one in result(done)["completions"]
    ]
    assert found == [
        (0, "reference", "0", 1.0),
        (0, "empty", "", 0.0),
        (0, "echo", "What is 0 + 0?", 0.0),
        (1, "reference", "2", 1.0),
        (1, "empty", "", 0.0),
        (1, "echo", "What is 1 + 1?", 0.0),
    ]


def test_totals_are_weighted_and_none_counts_nothing(run):
    done = run(
        ["scores.right", "scores.sometimes", "fmtkit.rewards.accuracy"],
        "--n", "1", "--json", weights=[2.0, 0.5, 1.0],
    )  # fmt: skip
    assert [one["total"] for one in result(done)["completions"]] == [3.5, 0.0, 0.5]
    assert [one["none"] for one in result(done)["functions"]] == [0, 1, 0]


def test_the_table_shows_rows_functions_and_what_looks_wrong(run):
    done = run(["scores.right", "scores.process_id"])
    assert done.code == 0
    lines = done.out.splitlines()
    assert lines[0].split() == [
        "row",
        "prompt",
        "kind",
        "completion",
        "right",
        "process_id",
        "total",
    ]
    assert len([line for line in lines if " reference " in line]) == 8
    assert "note: scores.process_id gives every completion" in done.out
    assert "completion_ids are counted in words" in done.out


def test_an_error_is_shown_with_its_line_and_the_others_run_on(run):
    done = run(["scores.raising", "scores.right", "scores.short"], "--n", "2")
    assert done.code == 1
    assert "error: reward scores.short returned 1 rewards for 6 completions" in done.out
    done = run(["scores.raising", "scores.right"], "--n", "2", "--completions", "mine.jsonl")
    assert (done.code, "no such file" in done.err.lower()) == (3, True)


def test_the_traceback_of_an_error_is_the_users_part_of_it(run):
    Path("scores.py").write_text(
        Path("scores.py").read_text() + "\ndef broken(completions, **k):\n    return helper(k)\n"
        "\n\ndef helper(k):\n    return k['nothing']\n"
    )
    done = run(["scores.broken", "scores.right"], "--json")
    function = result(done)["functions"][0]
    assert done.code == 1
    assert "raised KeyError: 'nothing' (scores.py:" in function["error"]
    assert "in broken" in function["trace"]
    assert "in helper" in function["trace"]
    assert "fmtkit" not in function["trace"]


def test_nothing_but_none_is_a_failure(run):
    done = run(["scores.never"], "--n", "1")
    assert done.code == 1
    assert "note: scores.never gives no completion a reward: it returns None for all" in done.out


def test_what_functions_print_and_log_is_kept_apart(run):
    done = run(["scores.loud", "scores.logging"], "--n", "1", "--json")
    assert done.code == 0
    assert "loud ['What is 0 + 0?']" in done.err
    assert result(done)["functions"][1]["logged"] == {
        "seen": ["0", "", "What is 0 + 0?"],
        "rows": 3.0,
    }


def test_coroutines_and_time_limits_hold_here_too(run):
    trl = {"reward_timeout": 3}
    keys = {"trl": {"reward_funcs": ["scores.later", "scores.sleeping"], **trl}}
    done = run(None, "--n", "1", "--json", **keys)
    later, sleeping = result(done)["functions"]
    assert (done.code, later["error"]) == (1, None)
    assert "had not returned after 3 seconds" in sleeping["error"]


def test_a_reference_that_loses_to_silence_is_remarked(run):
    done = run([{"fmtkit.rewards.length_cap": {"cap": 1, "unit": "characters"}}], "--n", "6")
    assert "gives the reference less than the empty completion in 1 rows" in done.out


def test_completions_of_a_file_stand_for_the_rows_that_they_name(run):
    lines = [
        "4",
        {"completion": [{"role": "assistant", "content": "2"}], "row": 1},
        {"completions": ["0", "9"], "row": 0},
    ]
    Path("mine.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    done = run(["scores.right"], "--completions", "mine.jsonl", "--json")
    found = [(one["row"], one["kind"], one["total"]) for one in result(done)["completions"]]
    assert found == [(0, "given", 0.0), (0, "given", 1.0), (0, "given", 0.0), (1, "given", 1.0)]


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("{", "mine.jsonl:1:"),
        ('{"row": 99, "completion": "a"}', "row 99: there are rows 0 to 7; see --n"),
        ('{"text": "a"}', "takes a string or messages under `completion`"),
        ('{"completion": 3}', "takes a string or messages"),
        ("", "holds no completion"),
    ],
)
def test_a_bad_line_of_completions_is_named(run, line, words):
    Path("mine.jsonl").write_text(line + "\n")
    done = run(["scores.right"], "--completions", "mine.jsonl")
    assert (done.code, words in done.err) == (2, True)


@pytest.mark.parametrize(
    ("functions", "words", "code"),
    [
        (["scores.rihgt"], "did you mean 'right'?", 2),
        (
            ["scores.plural"],
            "takes 'answers', which the rows do not have; did you mean 'answer'?",
            2,
        ),
        (
            [{"fmtkit.rewards.accuracy": {"column": "label"}}],
            "'label' is not among their columns",
            2,
        ),
        (None, "trl.reward_funcs: nothing to run", 2),
    ],
)
def test_what_cannot_run_is_said_in_one_line(run, functions, words, code):
    done = run(functions)
    assert (done.code, len(done.err.splitlines())) == (code, 1)
    assert words in done.err


def test_weights_must_be_as_many(run):
    done = run(["scores.right"], weights=[1.0, 2.0])
    assert (done.code, "has 2 numbers for 1 reward_funcs" in done.err) == (2, True)


def test_a_source_that_is_not_there_and_rows_that_cannot_be_read(run):
    done = run(["scores.right"], datasets=[{"path": "nowhere.jsonl", "type": "gsm8k"}])
    assert done.code in {2, 3}
    assert "nowhere.jsonl" in done.err
    Path("rows.jsonl").write_text('{"question": "a", "answer": "no mark"}\n')
    done = run(["scores.right"], datasets=[{"path": "rows.jsonl", "type": "gsm8k"}])
    assert (done.code, "value_error 1" in done.err) == (4, True)


def test_only_the_first_rows_are_converted(run):
    """A transform that would fail on a later row is not asked for it."""
    Path("scores.py").write_text(
        Path("scores.py")
        .read_text()
        .replace(
            "def transform(row):",
            "def transform(row):\n        assert row['question'] != 'What is 3 + 3?', 'too far'",
        )
    )
    done = run(["scores.right"], "--n", "3", "--json")
    assert (done.code, [r for r in result(done)["remarks"] if "not valid" in r]) == (0, [])
    assert "not valid" in run(["scores.right"], "--n", "4").out


def test_tokens_are_counted_by_the_models_tokenizer_where_it_is_here(run):
    tokenizer = str(Path(__file__).parents[1] / "fixtures" / "tokenizer")
    reward = {"fmtkit.rewards.length_target": {"target": 2}}
    done = run([reward], "--n", "1", "--json", tokenizer_config=tokenizer)
    assert not [one for one in result(done)["remarks"] if "counted in words" in one]


def test_a_reward_model_is_named_and_not_run(run):
    done = run(["scores.right", "org/judge"], "--n", "1", "--json")
    assert done.code == 0
    assert result(done)["functions"][1]["is_model"] is True


def test_the_reward_of_a_gym_is_not_run(run):
    done = run(
        ["nemo_gym_verify", "scores.right"], "--n", "1", "--json",
        weights=[3.0, 2.0], nemo_gym_enabled=True,
    )  # fmt: skip
    assert done.code == 0
    assert [one["weight"] for one in result(done)["functions"]] == [2.0]
    assert "the environment's reward is not run here" in result(done)["remarks"]


def test_a_plan_says_which_function_a_run_would_miss(run, capsys):
    run(["scores.right"])
    keys = ["--dry-run", "--set", "trl.reward_funcs=[scores.rihgt]"]
    done = fmtkit(capsys, "train", "run.yaml", *keys)
    lacking = done.out.partition("needed to train, and missing here")[2]
    assert (done.code, "did you mean 'right'?" in lacking) == (0, True)


def test_help_loads_nothing_heavy():
    code = (
        "import sys\nfrom fmtkit.commands.application import application\n"
        "try: application()(['rewards', 'test', '--help'])\nexcept SystemExit: pass\n"
        "print(*{m.partition('.')[0] for m in sys.modules})"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert not {"torch", "trl", "polars", "pyarrow", "yaml"} & set(
        done.stdout.splitlines()[-1].split()
    )


def test_a_trial_loads_no_torch(run):
    done = run(["scores.right"], "--n", "1")
    assert done.code == 0
    code = "import sys\nfrom fmtkit.training.online.rewards import trial\ntrial.run('run.yaml')\nprint(*sys.modules)"
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert not {"torch", "transformers", "trl", "datasets"} & set(shown.stdout.split())


def test_a_plan_shows_the_verifier_and_refuses_one_that_is_not_installed(run, capsys, monkeypatch):
    from fmtkit.rewards import math_verifier

    run(["fmtkit.rewards.accuracy"])
    asked = ("train", "run.yaml", "--dry-run", "--json", "--set", "base_model=a/b")
    plan = json.loads(fmtkit(capsys, *asked).out)
    told = plan["arguments"]["rl"]["reward_funcs"]["value"]
    assert told == [{"fmtkit.rewards.accuracy": {"verifier": "builtin"}}]
    monkeypatch.setattr(math_verifier, "find_spec", lambda _: None)
    named = 'trl.reward_funcs=[{"fmtkit.rewards.accuracy": {"verifier": "math_verify"}}]'
    done = fmtkit(capsys, *asked, "--set", named)
    assert (done.code, json.loads(done.out)["error"]["exit_code"]) == (2, 2)
    assert "math-verify is not installed; pip install 'fmtkit[math]'" in done.err
