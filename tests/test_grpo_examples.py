"""The examples of the documents, in our words, from a YAML to a trained model on the CPU."""

import json
from pathlib import Path

import pyarrow.parquet as pq
import pytest
import yaml

pytest.importorskip("trl")

import runs
import tiny_training as tiny

pytestmark = pytest.mark.slow

REWARDS = """
import random


def rand_reward_func(completions, **kwargs) -> list[float]:
    print("scoring", len(completions))
    return [random.uniform(0, 1) for _ in completions]


def format_reward(completions, **kwargs) -> list[float]:
    return [1.0 if len(c[0]["content"]) > 20 else 0.0 for c in completions]


def correctness_reward(completions, answer, **kwargs) -> list[float]:
    return [1.0 if a in c[0]["content"] else 0.0 for c, a in zip(completions, answer)]


def oai_gsm8k_transform(cfg, *args, **kwargs):
    def transform_fn(example, tokenizer=None):
        label = example["answer"].split("####")[-1].strip().replace(",", "")
        return {"prompt": [{"role": "user", "content": example["question"]}], "answer": label}

    return transform_fn, {"remove_columns": ["question"]}
"""
BASE = {
    "rl": "grpo",
    "chat_template": "chatml",
    "micro_batch_size": 2,
    "gradient_accumulation_steps": 4,
    "max_steps": 3,
    "logging_steps": 1,
    "use_cpu": True,
    "save_strategy": "no",
}
TRL = {
    "beta": 0.001,
    "max_completion_length": 12,
    "use_vllm": True,
    "num_generations": 4,
    "reward_funcs": ["rewards.rand_reward_func"],
    "reward_weights": [1.0],
}
WITHOUT_A_SERVER = {"use_vllm": False, "async_prefetch": False, "vllm_lora_sync": False}
LORA = {"adapter": "lora", "lora_r": 8, "lora_alpha": 16, "lora_target_linear": True}
EXAMPLES = {
    "gsm8k": ({}, {}),
    "gdpo": (
        {"rl": "gdpo"},
        {
            "reward_funcs": ["rewards.format_reward", "rewards.correctness_reward"],
            "reward_weights": [1.0, 2.0],
        },
    ),
    "aggregation": ({}, {"multi_objective_aggregation": "normalize_then_sum"}),
    "dr_grpo": ({}, {"loss_type": "dr_grpo"}),
    "everything": (
        {**LORA, "gradient_checkpointing": True},
        {
            "use_data_producer": True,
            "async_prefetch": True,
            "prefetch_depth": 1,
            "vllm_lora_sync": True,
            "streaming_partial_batch": True,
            "vllm_importance_sampling_correction": True,
            "off_policy_mask_threshold": 0.5,
            "importance_sampling_level": "token",
            "num_generations": 8,
            "reroll_start_fraction": 0.5,
            "replay_buffer_size": 100,
            "reward_num_workers": 2,
            "skip_zero_advantage_batches": True,
        },
    ),
}


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return tiny.make_model(tmp_path_factory.mktemp("model"))


def write(folder: Path, model: str, name: str) -> Path:
    """Write the rewards, rows of gsm8k's shape and the configuration of an example."""
    (folder / "rewards.py").write_text(REWARDS, encoding="utf-8")
    rows = [
        {
            "question": f"Tom has {i} apples and buys {i + 2}. How many has he?",
            "answer": f"{i} + {i + 2} = {2 * i + 2}\n#### {2 * i + 2}",
        }
        for i in range(16)
    ]
    data = folder / "gsm8k.jsonl"
    data.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    top, trl = EXAMPLES[name]
    keys = {
        **BASE,
        "base_model": model,
        "output_dir": str(folder / "run"),
        "datasets": [{"path": str(data), "type": "rewards.oai_gsm8k_transform"}],
        **top,
        "trl": {**TRL, **trl},
    }
    file = folder / "grpo.yaml"
    file.write_text(yaml.safe_dump(keys), encoding="utf-8")
    return file


@pytest.mark.parametrize("name", EXAMPLES)
def test_an_example_plans_as_it_is_and_trains_without_a_server(name, model, tmp_path, capfd):
    file = write(tmp_path, model, name)
    # Full weights are sent to a server by NCCL, which needs a GPU; the plan says what a run without one lacks.
    on_gpu = ("--dry-run", "--json", "--set", "use_cpu=false")
    planned = runs.fmtkit(capfd, "train", file, *on_gpu)
    assert planned.code == 0, planned.err
    assert json.loads(planned.out)["missing"] == []
    off = [f"trl.{key}={str(value).lower()}" for key, value in WITHOUT_A_SERVER.items()]
    done = runs.fmtkit(capfd, "train", file, "--json", *(x for o in off for x in ("--set", o)))
    assert done.code == 0, done.err
    report = json.loads(done.out)
    assert report["steps"] == 3
    answers = pq.read_table(tmp_path / "run" / "completions.parquet").to_pylist()
    assert {row["step"] for row in answers} == {1, 2, 3}
    assert all("question" not in row for row in answers)
    saved = "adapter_model.safetensors" if "adapter" in EXAMPLES[name][0] else "model.safetensors"
    assert (tmp_path / "run" / "model" / saved).exists()
