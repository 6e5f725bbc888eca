"""Two steps are made from a config as TRL's scripts take it, for each of their methods and some of its others."""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

pytest.importorskip("trl", minversion="1.16")

import tiny_training as tiny

from fmtkit.training import train

OWN = """
def even(completions, **_):
    return [float(len(c[0]["content"]) % 2) for c in completions]
"""
ANSWERS = {"max_completion_length": 4, "num_generations": 2}
REWARDED = {**ANSWERS, "reward_funcs": ["mine.even", "get_soft_overlong_punishment"]}
# Method -> its rows, and the keys of its own.
RUNS: dict[str, tuple[str, dict[str, Any]]] = {
    "sft": ("chats", {"packing": "true", "max_length": 64}),
    "dpo": ("pairs", {"loss_type": ["sigmoid", "sft"], "loss_weights": [1.0, 0.5]}),
    "kto": ("labelled", {"desirable_weight": 1.5}),
    "reward": ("pairs", {"center_rewards_coefficient": 0.01}),
    "grpo": ("prompts", REWARDED),
    "rloo": ("prompts", REWARDED),
    "gmpo": ("prompts", REWARDED),
    "sdft": ("prompts", {"max_completion_length": 4, "num_generations": 1}),
    "distillation": (
        "prompts",
        {"max_completion_length": 4, "teacher_model_name_or_path": "teacher"},
    ),
    "gold": ("chats", {"max_completion_length": 4, "teacher_model_name_or_path": "teacher"}),
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Return a folder with rows in TRL's layouts, a reward, a template, a model and a teacher."""
    folder = tmp_path_factory.mktemp("trl")
    tiny.make_model(folder / "model")
    tiny.make_model(folder / "teacher", seed=1)
    (folder / "mine.py").write_text(OWN, encoding="utf-8")
    (folder / "chatml.jinja").write_text(tiny.TEMPLATE, encoding="utf-8")
    prompts = [{**row, "privileged_context": "it is red"} for row in tiny.prompt_rows()]
    rows = {
        "chats": tiny.conversation_rows(),
        "pairs": tiny.preference_rows(),
        "labelled": tiny.unpaired_rows(),
        "prompts": prompts,
    }
    for name, listed in rows.items():
        text = "".join(json.dumps(row) + "\n" for row in listed)
        (folder / f"{name}.jsonl").write_text(text, encoding="utf-8")
    return folder


def config_of(folder: Path, method: str, **more: Any) -> Path:
    rows, keys = RUNS[method]
    keys = {k: str(folder / v) if k.startswith("teacher") else v for k, v in keys.items()}
    given = {
        "model_name_or_path": str(folder / "model"),
        "chat_template_path": str(folder / "chatml.jinja"),
        "datasets": [
            {"path": "json", "data_files": str(folder / f"{rows}.jsonl"), "split": "train"}
        ],
        "dataset_name": "not/read",
        "output_dir": str(folder / method),
        "use_cpu": True,
        "bf16": False,
        "max_steps": 2,
        "per_device_train_batch_size": 2,
        "learning_rate": "1e-3",
        "lr_scheduler_type": "cosine_with_min_lr",
        "lr_scheduler_kwargs": '{"min_lr_rate": 0.1}',
        "logging_steps": 1,
        "save_strategy": "no",
        "report_to": "none",
        "env": {"OF_THE_FILE": method},
        **keys,
        **more,
    }
    file = folder / f"{method}.yaml"
    file.write_text(yaml.safe_dump(given), encoding="utf-8")
    return file


@pytest.mark.slow
@pytest.mark.parametrize("method", RUNS)
def test_two_steps_are_made_from_a_config_of_trl(folder, method):
    outcome = train(config_of(folder, method), method=method)
    assert outcome.exit_code == 0
    assert outcome.report["steps"] == 2
    assert (folder / method / "model" / "config.json").is_file()


@pytest.mark.slow
def test_a_mixture_with_an_adapter_is_trained_and_evaluated_in_two_steps(folder):
    listed = [
        {
            "path": "json",
            "data_files": str(folder / "pairs.jsonl"),
            "columns": ["prompt", "chosen", "rejected"],
        }
    ] * 2
    entries = [{**one, "fraction": share} for one, share in zip(listed, (0.75, 0.25), strict=True)]
    more = {
        "datasets": entries,
        "test_split_size": 0.25,
        "split_by": "rows",
        "eval_strategy": "steps",
        "eval_steps": 1,
        "use_peft": "true",
        "lora_r": 4,
        "lora_target_modules": "all-linear",
        "output_dir": str(folder / "mixture"),
    }
    outcome = train(config_of(folder, "dpo", **more), method="dpo")
    assert (outcome.exit_code, outcome.report["steps"]) == (0, 2)
    assert (folder / "mixture" / "model" / "adapter_config.json").is_file()
    logs = [json.loads(line) for line in (folder / "mixture" / "metrics.jsonl").open()]
    assert sum("eval_loss" in log for log in logs) >= 2


@pytest.mark.slow
def test_variables_of_the_file_are_those_of_its_training_process(folder):
    (folder / "seen.py").write_text(
        "import os\n\n\ndef seen(completions, **_):\n"
        "    assert os.environ['OF_THE_FILE'] == 'grpo'\n"
        "    return [1.0] * len(completions)\n",
        encoding="utf-8",
    )
    more = {"reward_funcs": "seen.seen", "max_steps": 1, "output_dir": str(folder / "seen")}
    assert train(config_of(folder, "grpo", **more), method="grpo").exit_code == 0
