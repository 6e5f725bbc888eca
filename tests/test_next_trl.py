"""The next TRL may move what fmtkit's trainers override: what needs none of that still trains, with TRL's own."""

import itertools
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
from fmtkit.core.runner import TRL_FEATURES, find, our_features, shipped_names
from fmtkit.training.building.build import load_class
from fmtkit.training.config.class_arguments import has_class
from fmtkit.training.planning import plan as planning
from fmtkit.training.planning import trainer_choice

OWN = {
    "grpo": "trl:GRPOTrainer",
    "gdpo": "trl:GRPOTrainer",
    "rloo": "trl:RLOOTrainer",
    "online_dpo": "trl.experimental.online_dpo:OnlineDPOTrainer",
}
REWARD = "fmtkit.rewards.tags"
ROOT = Path(__file__).parents[1]
IDLE = our_features()
CLASSES = (
    "fmtkit.runners.grpo_features.trainer:FmtkitGRPOTrainer",
    "fmtkit.runners.grpo_features.rloo_trainer:FmtkitRLOOTrainer",
    "fmtkit.runners.online_dpo.trainer:FmtkitOnlineDPOTrainer",
    "fmtkit.runners.ebft.structured:EBFTTrainer",
)


def moved() -> set[str]:
    """Return the private names of TRL's trainers that fmtkit overrides, calls or reads."""
    from transformers import Trainer

    from fmtkit.training.planning.types import PREPARE

    lineages = [load_class(path).__mro__ for path in CLASSES]
    names = {"ours": set(), "theirs": set()}
    for owner in itertools.chain.from_iterable(lineages):
        if owner.__module__.startswith(("fmtkit.", "trl.")):
            whose = "ours" if owner.__module__.startswith("fmtkit.") else "theirs"
            names[whose].update(vars(owner))
    files = (*ROOT.glob("fmtkit/training/**/*.py"), *ROOT.glob("runners/**/*.py"))
    code = (file.read_text(encoding="utf-8") for file in files)
    read = {name for text in code for name in re.findall(r"\btrainer\.(_[a-z]\w+)", text)}
    found = (names["ours"] & names["theirs"]) | read | {PREPARE}
    return {name for name in found if re.match("_[a-z]", name)} - set(dir(Trainer))


@pytest.fixture
def next_trl(monkeypatch):
    real = trainer_choice.installed
    monkeypatch.setattr(trainer_choice, "installed", lambda n: "1.17.0" if n == "trl" else real(n))


def planned(method: str, **trl) -> planning.Plan:
    return planning.plan({"rl": method, "trl": {"reward_funcs": [REWARD], **trl}}, partial=True)


@pytest.mark.parametrize("method", OWN)
def test_a_method_without_a_feature_takes_trls_own_trainer(method, next_trl):
    plan = planned(method)
    assert plan.runner.trainer == OWN[method]
    notes = [note for note in plan.notes if note.startswith("trl 1.17.0: ")]
    assert len(notes) == (method == "online_dpo")
    assert all("since fmtkit's was made for trl>=1.16,<1.17" in note for note in notes)


MENDED = {"online_dpo", "ebft"}
"""Methods that fmtkit trains without any key: TRL's online DPO takes a missing reward for 0; it has no EBFT."""


THERE = sorted(name for name in shipped_names() if has_class(find(name).trainer))


@pytest.mark.parametrize("method", sorted({*THERE} - MENDED))
def test_a_method_trains_with_trls_own_class_unless_a_key_needs_another(method):
    assert planning.plan({"rl": method}, partial=True).runner.trainer.startswith(
        ("trl", "transformers:")
    )


@pytest.mark.parametrize(
    ("method", "name", "value"),
    [
        *(
            (method, name, True)
            for method in ("gdpo", "grpo")
            for name in ("dynamic_sampling", "async_prefetch", "skip_zero_advantage_batches")
        ),
        *((method, "replay_buffer_size", 8) for method in ("gdpo", "grpo")),
        *((method, "max_failed_share", 0.5) for method in ("gdpo", "grpo", "rloo")),
        ("rloo", "dynamic_sampling", True),
    ],
)
def test_a_key_of_a_feature_takes_fmtkits_trainer(method, name, value):
    assert planned(method, **{name: value}).runner.trainer.startswith("fmtkit.")


def test_skipping_is_no_feature_of_rloo_and_none_where_it_is_off():
    name = "skip_zero_advantage_batches"
    assert planned("rloo", **{name: True}).runner.trainer == "trl:RLOOTrainer"
    assert planned("grpo", **{name: False}).runner.trainer == "trl:GRPOTrainer"


@pytest.mark.parametrize("name", sorted(IDLE))
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
    if IDLE[name] is not None:
        assert planned("grpo", **{name: IDLE[name]}).runner.trainer == OWN["grpo"]


@pytest.mark.parametrize(
    ("method", "name"),
    [
        (method, name)
        for method in ("rloo", "online_dpo")
        for name in sorted(find(method).features - TRL_FEATURES)
    ],
)
def test_rloo_and_online_dpo_are_refused_for_their_features_alone(method, name, next_trl):
    wanted = {"dynamic_sampling": True, "max_failed_share": 0.5, "vllm_sync": "file"}[name]
    with pytest.raises(
        DependencyError, match=rf"{method}: trl\.{name}: needs fmtkit's trainer.*or leave out"
    ):
        planned(method, **{name: wanted})


def test_rows_are_prepared_before_the_first_step_where_no_method_prepares_a_part(monkeypatch):
    from fmtkit.training.planning import max_steps

    plan = planning.plan({"rl": "dpo", "max_steps": 2, "learning_rate": 1e-6}, partial=True)
    assert max_steps.few_steps(plan).on_demand_from is not None
    monkeypatch.setattr(max_steps, "PREPARE", "_moved")
    assert max_steps.few_steps(plan).on_demand_from is None
    assert "has no _moved" in max_steps.few_steps(plan).described()[1]


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
    """Return a folder with a TRL 1.17 in which all that fmtkit uses of its private names has another one."""
    import trl

    names = re.compile(rf"\b({'|'.join(moved())})\b")
    folder = tmp_path_factory.mktemp("next")
    package = Path(trl.__file__).parent
    shutil.copytree(package, folder / "trl", ignore=shutil.ignore_patterns("__pycache__"))
    for file in (folder / "trl").rglob("*.py"):
        text = file.read_text(encoding="utf-8")
        file.write_text(names.sub(r"\1_moved", text), encoding="utf-8")
    (meta,) = package.parent.glob("trl-*.dist-info")
    shutil.copytree(meta, folder / "trl-1.17.0.dist-info")
    metadata = folder / "trl-1.17.0.dist-info" / "METADATA"
    text = metadata.read_text(encoding="utf-8")
    metadata.write_text(re.sub(r"(?m)^Version: .*", "Version: 1.17.0", text), encoding="utf-8")
    return folder


def trained(trl: Path, config: Path) -> subprocess.CompletedProcess:
    return subprocess.run(
        [sys.executable, "-m", "fmtkit", "train", str(config)],
        env={**os.environ, "PYTHONPATH": str(trl)},
        capture_output=True,
        text=True,
        check=False,
    )


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
    done = trained(stand_in, tmp_path / "run.yaml")
    assert done.returncode == 0, done.stderr[-2000:]
    assert ("note: trl 1.17.0: TRL's own" in done.stderr) == (method == "online_dpo")
    assert "note: this version of TRL shows no answers" in done.stderr or method == "online_dpo"


@pytest.mark.slow
def test_a_run_of_few_steps_prepares_all_rows_with_such_a_trl(stand_in, tmp_path):
    model = tiny.make_model(tmp_path / "model", template=tiny.TEMPLATE)
    rows = tmp_path / "rows.jsonl"
    pair = [{"role": "user", "content": "hello"}, {"role": "assistant", "content": "good"}]
    rows.write_text((json.dumps({"messages": pair}) + "\n") * 300, encoding="utf-8")
    keys = {
        **tiny.STEP,
        "max_steps": 1,
        "base_model": model,
        "datasets": [{"path": str(rows), "type": "chat_template"}],
        "output_dir": str(tmp_path / "run"),
    }
    (tmp_path / "run.yaml").write_text(yaml.safe_dump(keys), encoding="utf-8")
    done = trained(stand_in, tmp_path / "run.yaml")
    assert done.returncode == 0, done.stderr[-2000:]
