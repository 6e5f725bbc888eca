"""The next TRL may move what fmtkit's trainers override: what needs none of that still trains, with TRL's own."""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("trl")

import tiny_training as tiny
import yaml

from fmtkit.core.errors import DependencyError
from fmtkit.core.runner import OUR_FEATURES, TRL_FEATURES
from fmtkit.training.planning import plan as planning
from fmtkit.training.rl.grpo.plan import IDLE

OWN = {
    "grpo": "trl:GRPOTrainer",
    "gdpo": "trl:GRPOTrainer",
    "rloo": "trl:RLOOTrainer",
    "online_dpo": "trl.experimental.online_dpo:OnlineDPOTrainer",
}
REWARD = "fmtkit.rewards.tags"
MOVED = re.compile(
    r"\b(_generate_and_score_completions|_calculate_rewards|_compute_loss|_generate)\b"
)
"""What fmtkit's trainers override of TRL 1.16."""


@pytest.fixture
def next_trl(monkeypatch):
    real = planning.installed
    monkeypatch.setattr(planning, "installed", lambda n: "1.17.0" if n == "trl" else real(n))


def planned(method: str, **trl) -> planning.Plan:
    return planning.plan({"rl": method, "trl": {"reward_funcs": [REWARD], **trl}}, partial=True)


@pytest.mark.parametrize("method", OWN)
def test_a_method_without_a_feature_takes_trls_own_trainer_and_says_so(method, next_trl):
    plan = planned(method)
    assert plan.runner.trainer == OWN[method]
    (note,) = [note for note in plan.notes if note.startswith("trl 1.17.0: ")]
    assert "since fmtkit's was made for trl>=1.16,<1.17" in note


@pytest.mark.parametrize("method", OWN)
def test_the_trl_that_it_was_made_for_takes_fmtkits(method):
    plan = planned(method)
    assert plan.runner.trainer.startswith("fmtkit.")
    assert not [note for note in plan.notes if note.startswith("trl ")]


@pytest.mark.parametrize("name", sorted(OUR_FEATURES - TRL_FEATURES))
def test_a_feature_is_refused_by_its_name_and_what_turns_it_off_is_not(name, next_trl):
    values = {
        "rollout_func": "m.f",
        "reroll_start_fraction": 0.5,
        "max_failed_share": 0.5,
        "vllm_sync": "file",
    }
    wanted = values.get(name, 2 if isinstance(IDLE.get(name), int) else True)
    wanted = True if isinstance(IDLE.get(name), bool) else wanted
    with pytest.raises(
        DependencyError, match=rf"trl\.{name}: needs fmtkit's trainer.*or leave out"
    ):
        planned("grpo", **{name: wanted})
    if name in IDLE:
        assert planned("grpo", **{name: IDLE[name]}).runner.trainer == OWN["grpo"]


@pytest.mark.parametrize("keys", [{"nemo_gym_enabled": True}, {"verifiers": {"environment": "e"}}])
def test_an_environment_is_a_feature(keys, next_trl):
    with pytest.raises(DependencyError, match="needs fmtkit's trainer, which was made for trl"):
        planning.plan({"rl": "grpo", **keys}, partial=True)


def test_strided_ebft_needs_no_version_of_trl_and_structured_does(next_trl):
    strided = planning.plan({"rl": "ebft", "ebft": {"mode": "strided"}}, partial=True)
    assert strided.runner.trainer.endswith("StridedTrainer")
    with pytest.raises(DependencyError, match="ebft: fmtkit's trainer was made for trl"):
        planning.plan({"rl": "ebft"}, partial=True)


@pytest.fixture(scope="module")
def stand_in(tmp_path_factory):
    """Return a folder with a TRL 1.17 in which every method that fmtkit overrides has another name."""
    import trl

    folder = tmp_path_factory.mktemp("next")
    package = Path(trl.__file__).parent
    shutil.copytree(package, folder / "trl", ignore=shutil.ignore_patterns("__pycache__"))
    for file in (folder / "trl").rglob("*.py"):
        text = file.read_text(encoding="utf-8")
        file.write_text(MOVED.sub(r"\1_moved", text), encoding="utf-8")
    (meta,) = package.parent.glob("trl-*.dist-info")
    shutil.copytree(meta, folder / "trl-1.17.0.dist-info")
    metadata = folder / "trl-1.17.0.dist-info" / "METADATA"
    text = metadata.read_text(encoding="utf-8")
    metadata.write_text(re.sub(r"(?m)^Version: .*", "Version: 1.17.0", text), encoding="utf-8")
    return folder


@pytest.mark.slow
@pytest.mark.parametrize("method", OWN)
def test_two_steps_train_with_a_trl_whose_private_methods_moved(method, stand_in, tmp_path):
    model = tiny.make_model(tmp_path / "model", template=tiny.TEMPLATE)
    rows = tmp_path / "rows.jsonl"
    rows.write_text("".join(json.dumps(row) + "\n" for row in tiny.prompt_rows()), encoding="utf-8")
    keys = {
        **tiny.STEP,
        "max_steps": 2,
        "base_model": model,
        "rl": method,
        "datasets": [{"path": str(rows)}],
        "output_dir": str(tmp_path / "run"),
        "trl": {"reward_funcs": [REWARD]},
        "trainer_args": {
            "max_new_tokens" if method == "online_dpo" else "max_completion_length": 8
        },
    }
    if method != "online_dpo":
        keys["trl"]["num_generations"] = 2
    (tmp_path / "run.yaml").write_text(yaml.safe_dump(keys), encoding="utf-8")
    environment = {**os.environ, "PYTHONPATH": str(stand_in)}
    done = subprocess.run(
        [sys.executable, "-m", "fmtkit", "train", str(tmp_path / "run.yaml")],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    assert "note: trl 1.17.0: TRL's own" in done.stderr
