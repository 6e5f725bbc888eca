"""Runs of EBFT from configuration keys: both modes, LoRA and full, in a training process."""

import json
import math
import random
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path

import pytest

pytest.importorskip("trl")

import runs
import tiny_training as tiny
import yaml
from packaging.specifiers import SpecifierSet

from fmtkit.core.runner import find
from fmtkit.training.building.build import make_trainer, parts_of
from fmtkit.training.config.problems import RefusalError
from fmtkit.training.run import process

LORA = {"adapter": "lora", "lora_r": 4, "lora_alpha": 8, "lora_target_linear": True}
STRUCTURED = {
    "ebft": {"ce_coef": 0.1},
    "trl": {"num_generations": 2, "max_completion_length": 8},
}
STRIDED = {
    "ebft": {
        "mode": "strided",
        "stride": 4,
        "context_length": 4,
        "generate_max_len": 3,
        "n_samples_per_prompt": 2,
        "ce_coef": 0.03,
        "use_whitening": True,
    },
}


@pytest.fixture(scope="session")
def model(tmp_path_factory):
    process.quiet()
    return tiny.make_model(tmp_path_factory.mktemp("model"))


def references() -> list[dict]:
    return [
        {"prompt": row["prompt"], "ground_truth": row["chosen"][0]["content"]}
        for row in tiny.preference_rows()
    ]


def tokens() -> list[dict]:
    return [
        {
            "input_ids": [(7 * i + 3 * j) % 40 + 5 for j in range(20)],
            "attention_mask": [1] * 20,
            "labels": [-100] * 4 + [(7 * i + 3 * j) % 40 + 5 for j in range(4, 20)],
            "prompt_length": 4,
        }
        for i in range(8)
    ]


def job_of(folder: Path, model: str, mode: str, more: dict | None = None):
    keys = (STRIDED if mode == "strided" else STRUCTURED) | (more or {})
    table, rows = ("Tokens", tokens()) if mode == "strided" else ("Reference", references())
    tiny.ROWS[table] = lambda: rows
    return tiny.make_job(folder, model, "ebft", table, keys)


@pytest.mark.parametrize("mode", ["structured", "strided"])
@pytest.mark.parametrize("adapter", [False, True])
def test_three_steps_run_and_save(tmp_path: Path, model: str, mode: str, adapter: bool) -> None:
    work = job_of(tmp_path / "run", model, mode, LORA if adapter else None)
    assert process.train(work) == 0
    lines = (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()
    steps = [entry for line in lines if "loss" in (entry := json.loads(line))]
    assert len(steps) == 3
    assert all(math.isfinite(step["loss"]) for step in steps)
    assert {"ebft/alignment", "ebft/diversity", "ebft/cfm_loss", "ebft/ce_loss"} <= set(steps[0])
    saved = "adapter_model.safetensors" if adapter else "model.safetensors"
    assert (tmp_path / "run" / "model" / saved).exists()


@pytest.mark.slow
@pytest.mark.parametrize("reentrant", [True, False])
def test_strided_lora_trains_under_checkpointing(
    tmp_path: Path, model: str, reentrant: bool
) -> None:
    work = job_of(
        tmp_path / "run",
        model,
        "strided",
        LORA
        | {
            "gradient_checkpointing": True,
            "gradient_checkpointing_kwargs": {"use_reentrant": reentrant},
            "gradient_accumulation_steps": 2,
        },
    )
    parts = parts_of(work, [])
    trainer = make_trainer(work, parts)
    before = {n: p.detach().clone() for n, p in trainer.model.named_parameters()}
    trainer.train()
    changed = [n for n, p in trainer.model.named_parameters() if not (p == before[n]).all()]
    assert changed
    assert all("lora_" in name for name in changed)


def test_flex_attention_on_the_cpu_is_refused_by_the_plan(tmp_path: Path, model: str) -> None:
    with pytest.raises(RefusalError, match="flex_attention needs a CUDA device") as caught:
        job_of(tmp_path / "run", model, "strided", {"flex_attention": True})
    codes = [problem.code for problem in caught.value.problems]
    # An older transformers is told beside it.
    fits = version("transformers") in SpecifierSet(find("ebft").variant("strided").transformers)
    assert codes == (["cpu_only"] if fits else ["package", "cpu_only"])


@pytest.mark.parametrize(
    ("keys", "scaling"),
    [
        ({}, "group"),
        ({"advantage_estimator": "rloo"}, "none"),
        ({"advantage_estimator": "grpo"}, "group"),
    ],
)
def test_an_estimator_sets_how_trl_scales_rewards(tmp_path, model, keys, scaling) -> None:
    work = job_of(tmp_path / "run", model, "structured", {"ebft": keys})
    parts = parts_of(work, [])
    assert make_trainer(work, parts).scale_rewards == scaling


REWARDS = """
def shortness(completions, **kwargs):
    return [1.0 - len(c[-1]["content"]) / 100 for c in completions]


def nothing(completions, **kwargs):
    return [None] * len(completions)
"""


@pytest.mark.slow
@pytest.mark.parametrize("ce", [0.0, 0.1])
def test_the_features_of_grpo_hold_for_ebft(tmp_path: Path, model: str, ce: float) -> None:
    trl = {
        **STRUCTURED["trl"],
        "reward_funcs": ["rewards.shortness", "rewards.nothing"],
        "reward_weights": [1.0, 0.5, 0.1],
        "replay_buffer_size": 4,
        "dynamic_sampling": True,
        "reroll_start_fraction": 0.0,
        "streaming_partial_batch": True,
        "num_iterations": 2,
    }
    work = job_of(tmp_path / "run", model, "structured", {"trl": trl, "ebft": {"ce_coef": ce}})
    (tmp_path / "rewards.py").write_text(REWARDS)
    assert process.train(replace(work, places=(str(tmp_path),))) == 0
    lines = (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()
    steps = [entry for line in lines if "loss" in (entry := json.loads(line))]
    assert len(steps) == 3
    assert {"replay/size", "reroll/queue", "rewards/ebft/mean", "rewards/shortness/mean"} <= set(
        steps[0]
    )
    assert (tmp_path / "run" / "completions.parquet").exists()
    assert ("ebft/ce_loss" in steps[0]) == bool(ce)


@pytest.mark.parametrize(("ce", "skips"), [(0.0, True), (0.1, False)])
def test_a_batch_without_a_signal_is_skipped_unless_references_are_trained_on(
    tmp_path: Path, model: str, ce: float, skips: bool
) -> None:
    ebft = {"ce_coef": ce, "alignment_coef": 0.0, "diversity_coef": 0.0}
    work = job_of(tmp_path / "run", model, "structured", {"ebft": ebft})
    assert process.train(work) == 0
    lines = (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()
    steps = [entry for line in lines if "loss" in (entry := json.loads(line))]
    assert all(("skipped_zero_adv_batches" in step) == skips for step in steps)
    assert all((step["grad_norm"] == 0) == skips for step in steps)


DATA = {
    "structured": {"type": "ebft_opencode.transform", "split": "train[:16]"},
    "strided": {"type": "ebft_strided_structured.transform", "split": "train[:50%]"},
}


def config_of(folder: Path, model: str, mode: str, more: dict) -> Path:
    """Write questions with answers and the YAML of a run over them."""
    generator = random.Random(0)
    data = folder / "qa.jsonl"
    pairs = [
        {"input": tiny.sentence(6, generator), "output": tiny.sentence(20, generator)}
        for _ in range(24)
    ]
    data.write_text("".join(json.dumps(pair) + "\n" for pair in pairs), encoding="utf-8")
    keys = {
        **tiny.STEP,
        **(STRIDED if mode == "strided" else STRUCTURED),
        "base_model": model,
        "rl": "ebft",
        "chat_template": "chatml",
        "output_dir": str(folder / "run"),
        "datasets": [{"path": str(data), **DATA[mode]}],
        **more,
    }
    file = folder / "ebft.yaml"
    file.write_text(yaml.safe_dump(keys), encoding="utf-8")
    return file


@pytest.mark.slow
@pytest.mark.parametrize("adapter", [False, True])
@pytest.mark.parametrize("mode", ["structured", "strided"])
def test_a_yaml_trains_from_the_command_line(tmp_path, model, mode, adapter, capsys) -> None:
    config = config_of(tmp_path, model, mode, LORA if adapter else {})
    done = runs.fmtkit(capsys, "train", config, "--json")
    assert done.code == 0, done.err
    report = json.loads(done.out)
    assert report["steps"] == 3
    assert math.isfinite(report["metrics"]["train_loss"])
    assert "ebft/alignment" in report["metrics"]
    assert (tmp_path / "run" / "model" / "config.json").exists() != adapter


@pytest.mark.slow
def test_a_strided_run_does_without_flash_attention_and_foreign_keys(
    tmp_path, model, capfd
) -> None:
    more = {"flash_attention": True, "trl": {"num_generations": 4}, "vllm": {"port": 1}}
    config = config_of(tmp_path, model, "strided", more)
    done = runs.fmtkit(capfd, "train", config)
    assert done.code == 0, done.err
    assert "flash_attention_2 cannot take strided EBFT's mask" in done.err
    assert "trl.num_generations, vllm.port change nothing" in done.err
