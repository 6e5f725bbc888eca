"""The demo of training runs as a whole, and its metrics move."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("trl")

EXAMPLES = Path(__file__).parent.parent / "docs" / "examples"


@pytest.mark.parametrize(
    ("words", "code", "told"),
    [
        ([], 2, "usage: python -m fmtkit.training.demo"),
        (["model"], 2, "usage: python -m fmtkit.training.demo"),
        (["model", "none.txt"], 3, "error: none.txt: cannot be read"),
    ],
)
def test_the_demos_model_without_its_files_is_one_error(words, code, told, tmp_path):
    done = subprocess.run(
        [sys.executable, "-m", "fmtkit.training.demo", *words],
        cwd=tmp_path, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stderr[: len(told)]) == (code, told)
    assert "Traceback" not in done.stderr


@pytest.mark.slow
def test_the_demo_converts_inspects_trains_and_its_metrics_move(tmp_path):
    shutil.copytree(EXAMPLES, tmp_path / "docs" / "examples")
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    done = subprocess.run(
        ["sh", "docs/examples/train.sh"],
        cwd=tmp_path,
        env={**os.environ, "PATH": path},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    run = tmp_path / "runs" / "dpo-demo"
    lines = (run / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
    steps = [entry for line in lines if "loss" in (entry := json.loads(line))]
    first, last = steps[0], steps[-1]
    assert first["loss"] == pytest.approx(0.69, abs=0.1)
    assert last["loss"] < first["loss"] / 2
    assert last["rewards/margins"] > first["rewards/margins"] + 1
    assert (run / "model" / "adapter_model.safetensors").is_file()
    assert "reward margin" in done.stdout
    assert "runs/dpo-demo/model\n" in done.stdout
    assert "fmtkit merge runs/dpo-demo\n" in done.stderr
