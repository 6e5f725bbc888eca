"""The Actions and the hooks of the docs: they are YAML, and their commands do what the docs say."""

import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from runs import INTEL, lines

ROOT = Path(__file__).parents[1]
PAGES = ("recipes.md", "lock.md")


def blocks(page: str) -> list[dict]:
    text = (ROOT / "docs" / page).read_text(encoding="utf-8")
    return [yaml.safe_load(one) for one in re.findall(r"```yaml\n(.*?)```", text, re.DOTALL)]


def steps(page: str) -> list[str]:
    [action] = [one for one in blocks(page) if "jobs" in one]
    assert {"name", "jobs"} < {*map(str, action)}
    return [s["run"] for job in action["jobs"].values() for s in job["steps"] if "run" in s]


def hook(page: str) -> dict:
    [config] = [one for one in blocks(page) if "repos" in one]
    [repository] = config["repos"]
    [found] = repository["hooks"]
    return found


def run(command: str, folder: Path) -> subprocess.CompletedProcess[str]:
    words = [sys.executable, "-m", *shlex.split(command)]
    return subprocess.run(words, cwd=folder, capture_output=True, text=True, check=False)


@pytest.fixture
def data(tmp_path: Path) -> Path:
    (tmp_path / "data").mkdir()
    rows = [INTEL | {"question": f"q{number}"} for number in range(6)]
    (tmp_path / "data" / "train.jsonl").write_bytes(lines(rows[:4]))
    (tmp_path / "data" / "test.jsonl").write_bytes(lines(rows[4:]))
    return tmp_path


@pytest.mark.parametrize("page", PAGES)
def test_an_action_installs_fmtkit_by_an_address_of_the_users_since_there_is_no_release(page):
    [install, *others] = steps(page)
    assert install.startswith('pip install "git+${{ vars.FMTKIT }}"')
    assert all(step.startswith("fmtkit ") for step in others)
    for path in (ROOT / "docs").rglob("*.md"):
        assert not re.search(r"pip install fmtkit\b", path.read_text(encoding="utf-8")), path


def test_the_steps_that_validate_pass_and_fail_as_the_rows_do(data):
    commands = [step for step in steps("recipes.md") if step.startswith("fmtkit ")]
    assert len(commands) == 2
    for command in commands:
        assert run(command, data).returncode == 0
    (data / "data" / "test.jsonl").write_bytes(
        (data / "data" / "train.jsonl").read_bytes() + b"{bad\n"
    )
    first, second = (run(command, data) for command in commands)
    assert (first.returncode, second.returncode) == (1, 1)
    assert "data/test.jsonl:5: json_syntax" in first.stdout
    assert "prompt_in_splits" in second.stderr


def test_the_hook_checks_the_files_of_a_commit(data):
    found = hook("recipes.md")
    assert re.search(found["files"], "data/train.jsonl")
    assert not re.search(found["files"], "other/train.jsonl")
    command = f"{found['entry']} data/train.jsonl data/test.jsonl"
    assert run(command, data).returncode == 0
    (data / "data" / "test.jsonl").write_bytes(b"{bad\n")
    done = run(command, data)
    assert done.returncode == 1
    assert "data/test.jsonl:1: json_syntax" in done.stdout


@pytest.mark.slow
def test_pre_commit_runs_the_hook(data):
    program = os.environ.get("PRE_COMMIT") or shutil.which("pre-commit")
    if program is None:
        pytest.skip("needs pre-commit: pip install pre-commit, or PRE_COMMIT=its path")
    config = {"repos": [{"repo": "local", "hooks": [hook("recipes.md")]}]}
    config["repos"][0]["hooks"][0]["entry"] = f"{sys.executable} -m {hook('recipes.md')['entry']}"
    (data / ".pre-commit-config.yaml").write_text(yaml.safe_dump(config), encoding="utf-8")
    for command in ("init -q", "add ."):
        subprocess.run(["git", *command.split()], cwd=data, check=True)
    env = {**os.environ, "PRE_COMMIT_HOME": str(data / "home")}
    ran = [program, "run", "--all-files"]
    done = subprocess.run(ran, cwd=data, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout
    assert "every row of the data converts" in done.stdout
    assert "Passed" in done.stdout
    (data / "data" / "test.jsonl").write_bytes(b"{bad\n")
    subprocess.run(["git", "add", "."], cwd=data, check=True)
    done = subprocess.run(ran, cwd=data, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "data/test.jsonl:1: json_syntax" in done.stdout
