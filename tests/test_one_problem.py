"""A config with one fault is told one problem: checks of the same fault do not each report it."""

import json
import re
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import tiny_training as tiny

pytest.importorskip("trl")

import test_axolotl_configs as of_axolotl
import test_config_mistakes as mistakes
import test_training_faults as faults
import test_training_planning as planned

from fmtkit.core.errors import FmtkitError
from fmtkit.core.runner import our_features, shipped
from fmtkit.training import train
from fmtkit.training.config.problems import RefusalError
from fmtkit.training.config.yaml_file import parse
from fmtkit.training.planning import plan as planning

EXAMPLES = Path(__file__).parent.parent / "docs" / "examples"
TABLES = {
    "sft": ("Conversation", "openai"),
    "kto": ("Unpaired", "passthrough"),
    "grpo": ("Prompt", "passthrough"),
    "ebft": ("Prompt", "passthrough"),
}
GROUPS = {"num_generations": 2}
OWN: dict[str, dict[str, Any]] = {
    "kto": {"micro_batch_size": 4},
    "grpo": {"trl": {"reward_funcs": ["fmtkit.rewards.accuracy"], **GROUPS}},
    "ebft": {"trl": GROUPS},
}


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return tiny.make_model(tmp_path_factory.mktemp("model"), template=tiny.TEMPLATE)


@pytest.fixture(scope="module")
def config(model, tmp_path_factory):
    folder = tmp_path_factory.mktemp("rows")

    def make(method: str, keys: dict[str, Any]) -> dict[str, Any]:
        """Return the example config of this method with other keys."""
        table, type_ = TABLES.get(method, ("Preference", "passthrough"))
        file = folder / f"{table}.jsonl"
        rows = tiny.ROWS[table]()
        if table == "Prompt":
            rows = [{**row, "ground_truth": "red"} for row in rows]
        file.write_text("".join(json.dumps(row) + "\n" for row in rows))
        example = dict(parse((EXAMPLES / "dpo.yaml").read_text(encoding="utf-8"), "dpo.yaml"))
        base = {name: value for name, value in example.items() if name != "rl_beta"}
        base |= {"base_model": model, "datasets": [{"path": str(file), "type": type_}]}
        base |= {"output_dir": str(folder / "run"), "rl": method}
        base |= OWN.get(method, {})
        for name, value in keys.items():
            known = base.get(name)
            base[name] = {**known, **value} if isinstance(known, dict) else value
        return {name: value for name, value in base.items() if value is not None}

    return make


METHODS = ("sft", "dpo", "kto", "grpo", "reward", "ebft")


@pytest.mark.parametrize("method", METHODS)
def test_the_example_without_a_fault_has_no_problem(config, method):
    train(config(method, {}), dry_run=True)


FULL = {"adapter": None, "lora_r": None, "lora_alpha": None, "lora_target_linear": None}
FAULTS: tuple[tuple[str, dict[str, Any]], ...] = (
    # A value of the wrong type.
    *((method, {"learning_rate": "fast"}) for method in METHODS),
    *((method, {"micro_batch_size": "two"}) for method in METHODS),
    ("sft", {"bf16": "maybe"}),
    ("sft", {"gradient_checkpointing": "maybe"}),
    ("sft", {"lora_r": "8"}),
    ("dpo", {"rl_beta": "x"}),
    ("kto", {"kto_desirable_weight": "a"}),
    ("grpo", {"trl": {"num_generations": "2"}}),
    ("grpo", {"trainer_args": {"beta": "x"}}),
    ("ebft", {"ebft": {"alignment_coef": "x"}}),
    ("ebft", {"ebft": {"stride": "x"}}),
    # A value out of its range.
    *((method, {"micro_batch_size": 0}) for method in METHODS),
    ("sft", {"sequence_len": 0}),
    ("sft", {"num_epochs": -1}),
    ("sft", {"max_steps": 1.5}),
    ("sft", {"warmup_ratio": 2}),
    ("sft", {"val_set_size": -1}),
    ("sft", {"lora_dropout": 2}),
    ("sft", {"gradient_accumulation_steps": 0}),
    ("grpo", {"trl": {"num_generations": 0}}),
    ("grpo", {"trl": {"num_generations": 1}}),
    ("grpo", {"trl": {"num_generations": 3}}),
    ("grpo", {"trl": {"top_p": 3}}),
    ("grpo", {"trl": {"generation_batch_size": 3}}),
    ("grpo", {"trl": {"reward_weights": [1.0, 2.0]}}),
    ("grpo", {"micro_batch_size": 3}),
    ("ebft", {"ebft": {"stride": 0}}),
    ("ebft", {"ebft": {"feature_layers": [2.0]}}),
    # A name that is not there.
    *((method, {"learning_rat": 1e-4}) for method in METHODS),
    *((method, {"lr_scheduler": "cosin"}) for method in METHODS),
    ("sft", {"optimizer": "adamx"}),
    ("sft", {"adapter": "lorra"}),
    ("sft", {"chat_template": "nonsense"}),
    ("sft", {"base_model": "./nowhere"}),
    ("sft", {"trainer_args": {"max_lenght": 3}}),
    ("dpo", {"loss_type": "nonsense"}),
    ("dpo", {"trainer_args": {"f_divergence_type": "x"}}),
    ("kto", {"loss_type": "sigmoid"}),
    ("grpo", {"trl": {"loss_type": "grpoo"}}),
    ("grpo", {"trl": {"importance_sampling_level": "word"}}),
    ("grpo", {"trl": {"num_generatoins": 2}}),
    ("ebft", {"ebft": {"mode": "stridedd"}}),
    ("ebft", {"ebft": {"embed_method": "x"}}),
    # Two keys that contradict each other.
    ("sft", {"bf16": True, "fp16": True}),
    ("sft", {"batch_size": 8, "gradient_accumulation_steps": 3}),
    ("sft", {"saves_per_epoch": 2, "save_steps": 3}),
    ("sft", {"evals_per_epoch": 2, "eval_steps": 3}),
    ("sft", {"warmup_ratio": 0.1, "warmup_steps": 3}),
    ("sft", {"trainer_args": {"learning_rate": 0.1}}),
    ("sft", {"dataloader_prefetch_factor": 2}),
    ("dpo", {"rl_beta": 0.1, "trainer_args": {"beta": 0.5}}),
    ("dpo", {"loss_type": ["sigmoid", "sft"], "loss_weights": [1.0]}),
    ("dpo", {**FULL, "sync_ref_model": True, "precompute_ref_log_probs": True}),
    ("dpo", {"sync_ref_model": True, "trainer_args": {"beta": 0.1}}),
    ("grpo", {"trainer_args": {"num_generations": 4}}),
    ("grpo", {"trl": {"num_generations": 3}, "trainer_args": {"num_generations": 4}}),
    ("grpo", {"trl": {"steps_per_generation": 2, "generation_batch_size": 8}}),
    ("grpo", {**FULL, "trl": {"sync_ref_model": True}}),
    ("grpo", {"trl": {"sync_ref_model": True}}),
    ("grpo", {"trl": {"sync_ref_model": True, "beta": 0.1}}),
    ("reward", {"num_labels": 3}),
)


@pytest.mark.parametrize(("method", "keys"), FAULTS, ids=str)
def test_one_fault_is_one_problem(config, method, keys):
    with pytest.raises(FmtkitError) as error:
        train(config(method, keys), dry_run=True)
    assert len(error.value.lines) == 1, error.value.lines


BOTH = {"bf16": True, "fp16": True}


@pytest.mark.parametrize(
    ("method", "keys", "codes"),
    [
        ("dpo", {"loss_type": "nonsense", **BOTH}, {"loss_type", "trainer_rule"}),
        ("sft", {"lr_scheduler": "cosin", **BOTH}, {"argument", "trainer_rule"}),
        (
            "sft",
            {"saves_per_epoch": 2, "save_steps": 3, **BOTH},
            {"two_schedules", "trainer_rule"},
        ),
        (
            "sft",
            {
                "saves_per_epoch": 2,
                "save_steps": 3,
                "cosine_min_lr_ratio": 0.1,
                "lr_scheduler_kwargs": {"min_lr": 1},
            },
            {"two_schedules", "conflict"},
        ),
    ],
    ids=lambda value: str(sorted(value)) if isinstance(value, set) else str(value),
)
def test_one_fault_hides_no_other(config, method, keys, codes):
    with pytest.raises(RefusalError) as error:
        train(config(method, keys), dry_run=True)
    assert {one.code for one in error.value.problems} == codes


TEXTS = [
    *dict.fromkeys((*faults.FAULTS, *planned.REFUSED, *(text for text, *_ in mistakes.MISTAKES))),
    *(faults.WHOLE + text for text in {**faults.RULES, **faults.FAULTS} if "datasets:" not in text),
    *(text for text, _ in planned.BLOCKS.values()),
]
"""The faults of other tests: as fragments, and with what makes a whole config of them."""
VALUES = {
    "rollout_func": "a.b",
    "vllm_sync": "file",
    "vllm_sync_interval": 2,
    "max_failed_share": 0.5,
    "replay_buffer_size": 4,
    "reroll_start_fraction": 0.5,
}
FEATURED = [
    f"{faults.WHOLE}rl: {runner.method}\ntrl: {{reward_funcs: [a.b], {name}: {VALUES.get(name, True)}}}"
    for runner in shipped()
    for name in our_features()
]
"""Each key of fmtkit's own trainers with each method, most of which lack it."""
FILES = sorted(
    (
        *(of_axolotl.FIXTURES / "plans").glob("*.yaml"),
        *(of_axolotl.FIXTURES / "refused").glob("*.yaml"),
        *(of_axolotl.FIXTURES.parent / "trl").rglob("*.yaml"),
        *EXAMPLES.glob("*.yaml"),
        *(of_axolotl.EXAMPLES / "examples").rglob("*.y*ml"),
    )
)
"""Example configs: fmtkit's, those of axolotl's and TRL's users, and axolotl's own where they are at hand."""


def keys_of_problems(source: Any) -> list[str]:
    """Return the key that each problem of a config is about, or the first one that it names."""
    try:
        planning.plan(source, partial=True)
    except RefusalError as error:
        texts = (re.sub(r"^(key|--set) ", "", one.message) for one in error.problems)
        firsts = (re.match(r"[\w.]*", text) for text in texts)
        return [
            # Of several files under one key each may be missing.
            one.message if one.code == "source" else one.key or (first.group() if first else "")
            for one, first in zip(error.problems, firsts, strict=True)
        ]
    except FmtkitError as error:
        return list(error.lines)
    return []


@pytest.mark.parametrize("file", FILES, ids=lambda file: "/".join(file.parts[-2:]))
def test_no_key_of_an_example_is_reported_twice(file):
    assert [key for key, count in Counter(keys_of_problems(file)).items() if count > 1] == []


@pytest.mark.parametrize("texts", [TEXTS, FEATURED], ids=["faults", "features"])
def test_no_key_of_a_fault_is_reported_twice(texts, tmp_path):
    found = {}
    for number, text in enumerate(texts):
        file = tmp_path / f"{number}.yaml"
        file.write_text(text, encoding="utf-8")
        found[text] = keys_of_problems(file)
    assert sum(map(bool, found.values())) > len(texts) // 3
    assert {text: keys for text, keys in found.items() if len(keys) != len({*keys})} == {}
