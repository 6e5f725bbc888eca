"""Files called like packages, in the folder where a command runs, are imported by none of our processes."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

pytest.importorskip("trl")

import tiny_training as tiny

NAMES = (
    "accelerate",
    "datasets",
    "helpers_of_nobody",
    "jinja2",
    "numpy",
    "peft",
    "polars",
    "pyarrow",
    "tokenizers",
    "torch",
    "transformers",
    "trl",
    "typing_extensions",
    "vllm",
    "wandb",
    "yaml",
)
MARK = "import pathlib\npathlib.Path({mark!r}).open('a').write({name!r} + '\\n')\n"
REWARDS = """
from near import LENGTH

def short(completions, **kwargs):
    import later
    return [later.score(LENGTH, c) for c in completions]
"""


@pytest.fixture
def folder(tmp_path):
    """Fill a folder with files that leave a mark wherever they are imported."""
    for name in NAMES:
        text = MARK.format(mark=str(tmp_path / "imported"), name=name)
        (tmp_path / f"{name}.py").write_text(text, encoding="utf-8")
    return tmp_path


def run(folder: Path, *arguments: object) -> subprocess.CompletedProcess[str]:
    # The user's own call: -P is what the console script does.
    command = [sys.executable, "-P", "-m", "fmtkit", *map(str, arguments)]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    mark = folder / "imported"
    assert not mark.exists(), mark.read_text()
    return done


def config_of(folder: Path, model: str, **keys) -> Path:
    whole = {**tiny.STEP, "base_model": model, "output_dir": "run", "max_steps": 1, **keys}
    (folder / "c.yaml").write_text(yaml.safe_dump(whole), encoding="utf-8")
    return folder / "c.yaml"


def test_a_template_and_a_function_of_the_users_run_without_it(folder):
    rows = [{"question": "q", "chosen": "a", "rejected": "b", "text": "t"}]
    (folder / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (folder / "mine.jinja").write_text("{% for m in messages %}{{ m.content[::-1] }}{% endfor %}")
    (folder / "near.py").write_text("REPLY = 'c'\n")
    (folder / "mine.py").write_text(
        "from near import REPLY\ndef change(config):\n    return lambda row: {'text': REPLY}\n"
    )
    function = ("--type", "mine.change", "--plugin", "mine.py")
    run(folder, "convert", "rows.jsonl", *function, "-o", "a.jsonl")
    assert '"text": "c"' in (folder / "a.jsonl").read_text().replace('":"', '": "')
    template = ("--chat-template", "mine.jinja", "--as", "text")
    run(folder, "convert", "rows.jsonl", "--type", "intel", *template, "-o", "b.jsonl")


@pytest.mark.slow
@pytest.mark.parametrize(
    "launch", [(), ("--num-processes", "2"), ("--accelerate-config", "single")]
)
def test_training_processes_import_what_is_installed(launch, folder, model):
    tiny.write_table("Preference", folder / "rows.parquet")
    config = config_of(folder, model, rl="dpo", datasets=[{"path": "rows.parquet"}])
    run(folder, "train", config, *launch)


@pytest.mark.slow
@pytest.mark.parametrize("workers", [1, 2])
def test_rewards_are_found_by_their_name_and_find_their_neighbours(workers, folder, model):
    tiny.write_table("Prompt", folder / "rows.parquet")
    (folder / "rewards.py").write_text(REWARDS)
    (folder / "near.py").write_text("LENGTH = 10\n")
    (folder / "later.py").write_text(
        "def score(length, reply): return -float(abs(len(str(reply)) - length))\n"
    )
    trl = {"reward_funcs": ["rewards.short"], "reward_num_workers": workers}
    trl |= {"num_generations": 2, "max_completion_length": 4}
    data = [{"path": "rows.parquet"}]
    run(folder, "train", config_of(folder, model, rl="grpo", datasets=data, trl=trl))
    run(folder, "rewards", "test", "c.yaml")
