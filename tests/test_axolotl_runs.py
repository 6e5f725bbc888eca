"""What is planned runs: configs of axolotl's with a model and rows of this machine train two steps.

Only the model, its tokens, the data and what needs a GPU (4-bit weights, FSDP, 8-bit optimizers) are
exchanged; all other keys stay as they are.
"""

import json
from pathlib import Path
from typing import Any

import pytest
import tiny_training as tiny
import yaml

pytest.importorskip("trl")

from fmtkit.training import train

FIXTURES = Path(__file__).parents[1] / "fixtures" / "axolotl" / "plans"
EXAMPLES = Path(__file__).parents[2] / "shared" / "data" / "axolotl_examples" / "examples"

NEEDS_GPU = {
    "load_in_4bit", "load_in_8bit", "fsdp", "fsdp_config", "fsdp_version", "dp_shard_size",
    "model_quantization_config", "model_quantization_config_kwargs", "deepspeed", "torch_compile",
    # The model that stands in is no mixture of experts.
    "model_config",
    # LoftQ quantizes by bitsandbytes; trackers are not installed.
    "peft", "use_swanlab", "swanlab_project", "swanlab_mode", "swanlab_workspace",
    "swanlab_experiment_name", "wandb_project", "vllm",
}  # fmt: skip
FEW = {"max_steps": 2, "sequence_len": 512, "gradient_accumulation_steps": 1, "logging_steps": 1}
FEW |= {"save_strategy": "no", "use_cpu": True, "lora_r": 4, "experts_implementation": None}

OWN = {
    "sft-lora-packed": "instructions",
    "sft-kernels": "sharegpt",
    "sft-fsdp-thinking": "thoughts",
    "sft-loftq": "instructions",
    "dpo-qlora": "pairs_after",
    "orpo": "pairs",
    "kto": "judged",
    "reward": "answers",
    "prm": "steps",
    "gdpo": "questions",
}
THEIRS = {
    "llama-3/instruct-dpo-lora-8b.yml": "pairs_after",
    "llama-3/lora-1b-kernels.yml": "instructions",
    "mistral/orpo/mistral-qlora-orpo.yml": "pairs",
    "mistral/qlora.yml": "instructions",
    "phi/phi-ft.yml": "instructions",
    "qwen2/prm.yaml": "steps",
}


def rows_of(kind: str) -> list[dict[str, Any]]:
    pairs = tiny.preference_rows(24)
    said = [(r["prompt"][0]["content"], r["chosen"], r["rejected"]) for r in pairs]
    return {
        "instructions": lambda: [
            {"instruction": q, "input": "", "output": good[0]["content"]} for q, good, _ in said
        ],
        "sharegpt": lambda: [
            {
                "conversation": [
                    {"from": "system", "value": "a"},
                    {"from": "user", "value": q},
                    {"from": "assistant", "value": good[0]["content"]},
                ]
            }
            for q, good, _ in said
        ],
        "thoughts": lambda: [
            {
                "messages": [
                    {"role": "user", "content": q},
                    {"role": "assistant", "content": "red", "thinking": "blue"},
                ]
            }
            for q, _, _ in said
        ],
        "pairs_after": lambda: [
            {
                "conversation": [{"role": "user", "content": q}],
                "chosen": good[0],
                "rejected": bad[0],
            }
            for q, good, bad in said
        ],
        "pairs": lambda: [
            {
                "chosen": [{"role": "user", "content": q}, *good],
                "rejected": [{"role": "user", "content": q}, *bad],
            }
            for q, good, bad in said
        ],
        "answers": lambda: [
            {"input": q, "chosen": good[0]["content"], "rejected": bad[0]["content"]}
            for q, good, bad in said
        ],
        "judged": lambda: [
            {
                "prompt": q,
                "completion": (good if n % 2 else bad)[0]["content"],
                "label": bool(n % 2),
            }
            for n, (q, good, bad) in enumerate(said)
        ],
        "steps": tiny.stepwise_rows,
        "questions": lambda: [{"prompt": q, "answer": "red"} for q, _, _ in said],
    }[kind]()


def config_of(file: Path, kind: str, folder: Path, model: str) -> Path:
    """Write a config of axolotl's with a model and rows of this machine."""
    keys = yaml.safe_load(file.read_text(encoding="utf-8"))
    rows = folder / "rows.jsonl"
    rows.write_text("".join(f"{json.dumps(r)}\n" for r in rows_of(kind)), encoding="utf-8")
    for name in NEEDS_GPU & set(keys):
        del keys[name]
    first = keys["datasets"][0]
    if isinstance(first.get("type"), str) and kind == "judged":
        first["type"] = "llama3.ultra"
    for name in ("split", "name", "data_files", "field_messages", "revision"):
        if name != "field_messages" or kind not in {"sharegpt", "pairs_after"}:
            first.pop(name, None)
    if kind == "questions":
        (folder / "rewards.py").write_text(
            "def transform(cfg, *_, **__):\n"
            "    return lambda row, tokenizer=None: {'prompt': [{'role': 'user', 'content':"
            " row['prompt']}], 'answer': row['answer']}, {'remove_columns': []}\n"
            "def correct(completions, **_):\n    return [float(len(c)) for c in completions]\n"
            "def short(completions, **_):\n    return [float(n % 2) for n in range(len(completions))]\n",
            encoding="utf-8",
        )
    keys |= FEW | {"base_model": model, "datasets": [first | {"path": str(rows)}]}
    keys |= {"output_dir": str(folder / "run"), "special_tokens": None, "model_type": None}
    keys["val_set_size"] = 4 if keys.get("val_set_size") else 0
    if keys.get("adapter") == "qlora":
        keys["adapter"] = "lora"
    if "adam" in str(keys.get("optimizer")):
        keys["optimizer"] = "adamw_torch"
    if keys.get("chat_template") not in {"chatml", "qwen3_5", "tokenizer_default"}:
        keys["chat_template"] = None
    made = folder / "config.yaml"
    made.write_text(yaml.safe_dump(keys), encoding="utf-8")
    return made


def trained(file: Path, kind: str, folder: Path, model: str) -> dict[str, Any]:
    outcome = train(config_of(file, kind, folder, model))
    assert outcome.exit_code == 0
    assert outcome.report is not None
    assert outcome.report["steps"] == 2
    assert (folder / "run" / "model").is_dir()
    return dict(outcome.report)


@pytest.mark.slow
@pytest.mark.parametrize("name", OWN)
def test_a_config_as_axolotls_users_have_it_trains(name, tmp_path, model):
    trained(FIXTURES / f"{name}.yaml", OWN[name], tmp_path, model)


@pytest.mark.slow
@pytest.mark.skipif(not EXAMPLES.is_dir(), reason="axolotl's own examples are not at hand")
@pytest.mark.parametrize("name", THEIRS)
def test_an_example_of_axolotls_trains(name, tmp_path, model):
    trained(EXAMPLES / name, THEIRS[name], tmp_path, model)


DORA = {
    "sft": ("instructions", "alpaca", {}),
    "orpo": ("pairs", "chat_template.argilla", {"rl": "orpo"}),
    "reward": ("answers", "bradley_terry.chat_template", {"reward_model": True}),
    "prm": ("steps", "stepwise_supervised", {"process_reward_model": True}),
}
"""A method: what its rows are, what axolotl calls their type, and the keys that ask for it."""


@pytest.mark.slow
@pytest.mark.parametrize("method", DORA)
def test_a_weight_decomposed_adapter_trains_two_steps(method, tmp_path, model):
    kind, named, asked = DORA[method]
    keys = {"datasets": [{"path": "a/rows", "type": named}], "chat_template": "chatml"}
    keys |= {"micro_batch_size": 2, "learning_rate": 1e-4, "adapter": "lora", **asked}
    keys |= {"lora_alpha": 8, "peft_use_dora": True, "lora_target_modules": ["q_proj", "v_proj"]}
    file = tmp_path / "theirs.yaml"
    file.write_text(yaml.safe_dump(keys), encoding="utf-8")
    trained(file, kind, tmp_path, model)
    written = tmp_path / "run" / "model" / "adapter_config.json"
    assert json.loads(written.read_text(encoding="utf-8"))["use_dora"] is True
