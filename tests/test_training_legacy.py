"""Methods that TRL has removed still train where the installed TRL has them.

`make test-old-trl` makes an environment with such a version and runs this there; in an
environment with a newer TRL each test says why it does not run.
"""

import json
import math
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

pytest.importorskip("trl")

import tiny_training as tiny

from fmtkit.core.runner import find
from fmtkit.training.config.class_arguments import has_class, installed

pytestmark = pytest.mark.slow

ONLINE = {"max_new_tokens": 8}
MORE = {
    "bco": {},
    "nash_md": ONLINE,
    "xpo": ONLINE,
    "ppo": {"trainer_args": {"response_length": 8, "local_rollout_forward_batch_size": 2}},
}


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return tiny.make_model(tmp_path_factory.mktemp("model"), template=tiny.TEMPLATE)


@pytest.fixture(scope="module")
def scorer(model, tmp_path_factory):
    """Make a reward model of the same size: its one output judges answers."""
    from transformers import AutoModelForSequenceClassification, AutoTokenizer

    folder = tmp_path_factory.mktemp("scorer")
    AutoModelForSequenceClassification.from_pretrained(model, num_labels=1).save_pretrained(folder)
    AutoTokenizer.from_pretrained(model).save_pretrained(folder)
    return str(folder)


def configuration(folder: Path, method: str, model: str, scorer: str, more: dict) -> Path:
    """Write a configuration and its data, as a user has them."""
    rows = tiny.unpaired_rows() if method == "bco" else tiny.prompt_rows()
    data = folder / "rows.jsonl"
    data.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    keys = {
        **tiny.STEP,
        **MORE[method],
        **more,
        "base_model": model,
        "rl": method,
        "output_dir": str(folder / "run"),
        "datasets": [{"path": str(data)}],
    }
    if method != "bco":
        keys["reward_model_path"] = scorer
    file = folder / f"{method}.yaml"
    file.write_text(yaml.safe_dump(keys), encoding="utf-8")
    return file


def changed(before: str, after: Path) -> set[str]:
    """Return the weights that are not what they were."""
    from safetensors.torch import load_file

    old, new = load_file(Path(before) / "model.safetensors"), load_file(after)
    assert all(bool(value.isfinite().all()) for value in new.values())
    return {name for name, value in new.items() if name in old and not value.equal(old[name])}


@pytest.mark.parametrize("adapter", [None, "lora"])
@pytest.mark.parametrize("method", ["bco", "nash_md", "xpo", "ppo"])
def test_a_removed_method_trains_three_steps_on_an_old_version(
    method, adapter, model, scorer, tmp_path
):
    if not has_class(find(method).trainer):
        pytest.skip(f"trl {installed('trl')} has no trainer for {method}: make test-old-trl")
    more = {"adapter": "lora", "lora_r": 4, "lora_target_linear": True} if adapter else {}
    config = configuration(tmp_path, method, model, scorer, more)
    done = subprocess.run(
        [sys.executable, "-m", "fmtkit", "train", str(config)],
        check=False,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    run = tmp_path / "run"
    assert json.loads((run / "report.json").read_text())["steps"] == 3
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    losses = [v for line in lines for name, v in line.items() if "loss" in name]
    assert losses
    assert all(v is not None and math.isfinite(v) for v in losses)
    if adapter:
        from safetensors.torch import load_file

        learnt = load_file(run / "model" / "adapter_model.safetensors")
        assert any(bool(v.any()) for name, v in learnt.items() if "lora_B" in name)
    else:
        assert changed(model, run / "model" / "model.safetensors")
