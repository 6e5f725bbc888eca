"""A honoured key changes what it is for: the plan with it differs from the plan without it there.

The keys are the most frequent honoured ones of axolotl's examples, most frequent first.
"""

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import tiny_training as tiny

from fmtkit.core.errors import FmtkitError, ResumeError
from fmtkit.core.runner import find
from fmtkit.training.building import build
from fmtkit.training.data import datasets, rows
from fmtkit.training.planning import freezing
from fmtkit.training.planning import plan as planning
from fmtkit.training.planning.job import Job
from fmtkit.training.run import resuming, run

EXAMPLES = Path(__file__).parents[2] / "shared" / "data" / "axolotl_examples"
"""What each key of axolotl's examples asks for; users of fmtkit have none."""

PAIRS = [{"path": "a/pairs", "type": "chatml.intel"}]
ROWS = [{"path": "a/rows", "type": "alpaca"}]
PASSED = [{"path": "a/passed", "type": "passthrough"}]


class Case(NamedTuple):
    """A value of a key, where it is seen in the plan, what is seen there, and keys beside it."""

    value: object
    place: str
    seen: object
    beside: dict[str, Any] = {}  # noqa: RUF012


LORA = {"adapter": "lora"}
FSDP = "launch.accelerate.fsdp_config"
CASES: dict[str, Case] = {
    "base_model": Case("b/other", "model", "b/other"),
    "learning_rate": Case(3e-4, "trainer.learning_rate", 3e-4),
    "micro_batch_size": Case(3, "trainer.per_device_train_batch_size", 3),
    "output_dir": Case("elsewhere", "run", "elsewhere"),
    "sequence_len": Case(777, "trainer.max_length", 777),
    "bf16": Case(True, "model.dtype", "bfloat16"),
    "optimizer": Case("adafactor", "trainer.optim", "adafactor"),
    "datasets": Case(PAIRS, "datasets.0.source", "a/pairs", {"rl": "dpo"}),
    "gradient_accumulation_steps": Case(5, "trainer.gradient_accumulation_steps", 5),
    "lr_scheduler": Case("cosine", "trainer.lr_scheduler_type", "cosine"),
    "logging_steps": Case(9, "trainer.logging_steps", 9),
    "num_epochs": Case(4, "trainer.num_train_epochs", 4),
    "tf32": Case(True, "trainer.tf32", True),
    "warmup_ratio": Case(0.07, "trainer.warmup_steps", 0.07),
    "saves_per_epoch": Case(2, "trainer.save_steps", 0.25, {"num_epochs": 2}),
    "val_set_size": Case(0.1, "trainer.eval_strategy", "epoch"),
    "attn_implementation": Case("eager", "model.attn_implementation", "eager"),
    "gradient_checkpointing": Case(True, "trainer.activation_checkpointing", True),
    "weight_decay": Case(0.2, "trainer.weight_decay", 0.2),
    "wandb_name": Case("x", "trainer.run_name", "x"),
    "wandb_entity": Case("me", "environment.WANDB_ENTITY", "me"),
    "wandb_log_model": Case("end", "environment.WANDB_LOG_MODEL", "end"),
    "wandb_project": Case("p", "trainer.report_to", ["wandb"]),
    "wandb_watch": Case("all", "environment.WANDB_WATCH", "all"),
    "evals_per_epoch": Case(4, "trainer.eval_steps", 0.125, {"num_epochs": 2, "val_set_size": 0.1}),
    "adapter": Case("lora", "adapter", "lora"),
    "lora_alpha": Case(48, "peft.lora_alpha", 48, LORA),
    "lora_r": Case(24, "peft.r", 24, LORA),
    "lora_dropout": Case(0.3, "peft.lora_dropout", 0.3, LORA),
    "load_in_4bit": Case(True, "quantization.bnb_4bit_quant_type", "nf4", LORA),
    "load_in_8bit": Case(True, "quantization.load_in_8bit", True, LORA),
    "lora_target_modules": Case(["q_proj"], "peft.target_modules", ["q_proj"], LORA),
    "lora_target_linear": Case(True, "peft.target_modules", "all-linear", LORA),
    "chat_template": Case("chatml", "chat_template.name", "chatml"),
    "gradient_checkpointing_kwargs": Case(
        {"use_reentrant": True},
        "trainer.activation_checkpointing_kwargs",
        {"use_reentrant": True},
    ),
    "fsdp_config": Case(
        {"offload_params": True}, f"{FSDP}.fsdp_offload_params", True, {"fsdp": ["full_shard"]}
    ),
    "fsdp": Case(["full_shard"], "launch.how", "accelerate, fsdp2"),
    "trust_remote_code": Case(True, "trainer.trust_remote_code", True),
    "fp16": Case(True, "trainer.fp16", True),
    "remove_unused_columns": Case(False, "trainer.remove_unused_columns", False),
    "max_steps": Case(11, "trainer.max_steps", 11),
    "warmup_steps": Case(12, "trainer.warmup_steps", 12),
    "rl": Case("dpo", "method", "dpo", {"datasets": PASSED}),
    "save_steps": Case(13, "trainer.save_steps", 13),
    "seed": Case(14, "trainer.seed", 14),
    "activation_offloading": Case(True, "trainer.activation_offloading", True),
    "deepspeed": Case("zero2", "launch.how", "accelerate, zero2"),
    "ddp_find_unused_parameters": Case(True, "trainer.ddp_find_unused_parameters", True),
    "lora_modules_to_save": Case(["embed_tokens"], "peft.modules_to_save", ["embed_tokens"], LORA),
    "flash_attention": Case(True, "model.attn_implementation", "flash_attention_2"),
    "adam_beta2": Case(0.95, "trainer.adam_beta2", 0.95),
    "lora_target_parameters": Case(["w"], "peft.target_parameters", ["w"], LORA),
    "dp_shard_size": Case(
        2,
        "launch.accelerate.parallelism_config.parallelism_config_dp_shard_size",
        2,
        {"context_parallel_size": 2},
    ),
    "experts_implementation": Case("grouped_mm", "model.experts_implementation", "grouped_mm"),
    "group_by_length": Case(True, "trainer.train_sampling_strategy", "group_by_length"),
    "max_grad_norm": Case(0.7, "trainer.max_grad_norm", 0.7),
    "save_total_limit": Case(2, "trainer.save_total_limit", 2),
    "train_on_inputs": Case(True, "trainer.completion_only_loss", False),
    "context_parallel_size": Case(2, "trainer.pad_to_multiple_of", 4),
    "lora_fan_in_fan_out": Case(True, "peft.fan_in_fan_out", True, LORA),
    "model_config": Case({"rope_theta": 2.0}, "model.rope_theta", 2.0),
    "save_strategy": Case("epoch", "trainer.save_strategy", "epoch"),
    "trackio_project_name": Case("p", "trainer.project", "p"),
    "trackio_run_name": Case("n", "trainer.run_name", "n"),
    "trackio_space_id": Case("me/s", "trainer.trackio_space_id", "me/s"),
    "adam_epsilon": Case(1e-7, "trainer.adam_epsilon", 1e-7),
    "batch_size": Case(8, "trainer.gradient_accumulation_steps", 4, {"micro_batch_size": 2}),
    "eval_batch_size": Case(6, "trainer.per_device_eval_batch_size", 6),
    "model_quantization_config": Case(
        "FineGrainedFP8Config", "quantization.config_class", "FineGrainedFP8Config"
    ),
    "cosine_min_lr_ratio": Case(
        0.1, "trainer.lr_scheduler_kwargs", {"min_lr_rate": 0.1}, {"lr_scheduler": "cosine"}
    ),
    "save_only_model": Case(True, "trainer.save_only_model", True),
    "eval_steps": Case(15, "trainer.eval_steps", 15, {"val_set_size": 0.1}),
    "float16": Case(True, "model.dtype", "float16"),
    "use_swanlab": Case(True, "trainer.report_to", ["swanlab"]),
    "use_tensorboard": Case(True, "trainer.report_to", ["tensorboard"]),
    "revision_of_model": Case("main", "model.revision", "main"),
    "adam_beta1": Case(0.8, "trainer.adam_beta1", 0.8),
    "device_map": Case("auto", "model.device_map", "auto"),
    "peft_use_rslora": Case(True, "peft.use_rslora", True, LORA),
    "curriculum_sampling": Case(True, "trainer.train_sampling_strategy", "sequential"),
    "early_stopping_patience": Case(
        2, "trainer.metric_for_best_model", "eval_loss", {"val_set_size": 0.1}
    ),
    "rl_beta": Case(0.3, "trainer.beta", 0.3, {"rl": "dpo", "datasets": PAIRS}),
    "orpo_alpha": Case(0.3, "trainer.beta", 0.3, {"rl": "orpo", "datasets": PAIRS}),
    "hub_model_id": Case("me/m", "trainer.push_to_hub", True),
    "dp_replicate_size": Case(
        2,
        "launch.accelerate.parallelism_config.parallelism_config_dp_replicate_size",
        2,
        {"context_parallel_size": 2},
    ),
    "ebft": Case({"temperature": 0.4}, "ebft.temperature", 0.4, {"rl": "ebft"}),
    "trl": Case({"beta": 0.03}, "trainer.beta", 0.03, {"rl": "grpo"}),
    "vllm": Case({"port": 8123}, "vllm.port", 8123, {"rl": "grpo"}),
    "model_quantization_config_kwargs": Case(
        {"dequantize": True},
        "quantization.dequantize",
        True,
        {"model_quantization_config": "FineGrainedFP8Config"},
    ),
    "reward_model": Case(True, "method", "reward", {"datasets": PASSED}),
    "process_reward_model": Case(True, "method", "prm", {"datasets": PASSED}),
    "bnb_config_kwargs": Case(
        {"llm_int8_threshold": 5.0},
        "quantization.llm_int8_threshold",
        5.0,
        {"load_in_8bit": True, **LORA},
    ),
    "swanlab_experiment_name": Case("n", "trainer.run_name", "n"),
    "swanlab_mode": Case("local", "environment.SWANLAB_MODE", "local"),
    "swanlab_project": Case("p", "environment.SWANLAB_PROJECT", "p"),
    "swanlab_workspace": Case("me", "environment.SWANLAB_WORKSPACE", "me"),
    "accelerator_config": Case(
        {"split_batches": True}, "trainer.accelerator_config", {"split_batches": True}
    ),
    "wandb_run_id": Case("i", "environment.WANDB_RUN_ID", "i"),
    "use_wandb": Case(True, "trainer.report_to", ["wandb"]),
    "bfloat16": Case(True, "model.dtype", "bfloat16"),
    "torch_dtype": Case("float16", "model.dtype", "float16"),
    "center_rewards_coefficient": Case(
        0.02, "trainer.center_rewards_coefficient", 0.02, {"reward_model": True, "datasets": PAIRS}
    ),
    "eval_strategy": Case("no", "trainer.eval_strategy", "no", {"val_set_size": 0.1}),
    "evaluation_strategy": Case("no", "trainer.eval_strategy", "no", {"val_set_size": 0.1}),
    "kto_desirable_weight": Case(
        0.4, "trainer.desirable_weight", 0.4, {"rl": "kto", "datasets": PAIRS}
    ),
    "peft": Case({"loftq_config": {"loftq_bits": 4}}, "peft.init_lora_weights", "loftq", LORA),
}


GROUPS = {"trainer", "model", "peft", "quantization", "environment", "ebft", "vllm"}


def seen(plan: planning.Plan, place: str) -> object:
    """Return what stands at a place of the plan; None where there is nothing."""
    made = plan.to_json()
    arguments: Any = made["arguments"]
    first, _, rest = place.partition(".")
    if first in GROUPS and rest:
        return arguments.get(first, {}).get(rest, {}).get("value")
    found: Any = made
    for step in place.split("."):
        found = found[int(step)] if step.isdigit() else (found or {}).get(step)
    return found


@pytest.mark.parametrize("key", CASES)
def test_a_honoured_key_changes_the_plan_where_it_acts(key):
    case = CASES[key]
    online = case.beside.get("rl") in {"ebft", "grpo"}
    without = {"base_model": "a/model", "datasets": None if online else ROWS, **case.beside}
    changed = planning.plan({**without, key: case.value}, partial=online)
    assert seen(changed, case.place) == case.seen
    assert seen(planning.plan(without, partial=online), case.place) != case.seen
    assert not [note for note in changed.notes if note.startswith(f"{key} changes nothing")]


def test_at_least_sixty_keys_are_shown_to_act():
    assert len(CASES) >= 60


IN_THE_RUN = {
    "special_tokens", "tokens", "resize_token_embeddings_to_32x", "eot_tokens", "tokenizer_config",
    "model_type", "num_labels", "unfrozen_parameters", "lora_model_dir", "resume_from_checkpoint",
    "auto_resume_from_checkpoints", "plugins", "fsdp_version", "shuffle_merged_datasets", "min_sample_len",
    "dataset_exact_deduplication",
}  # fmt: skip
"""Keys that have no place in the plan: what they change is seen in the tests below."""
NOTED = {
    "swanlab_description", "swanlab_log_completions", "swanlab_log_model",
    "swanlab_completion_log_interval", "swanlab_completion_max_buffer",
}  # fmt: skip
"""Keys of a tracker that transformers does not log by: notes, of which the weights know nothing."""


@pytest.mark.skipif(not EXAMPLES.is_dir(), reason="axolotl's own examples are not at hand")
def test_every_honoured_key_of_axolotls_examples_is_shown_to_act():
    table = (EXAMPLES / "keys.md").read_text(encoding="utf-8").partition("## An entry")[0]
    honoured = set(re.findall(r"^\| `(\w+)` \| honour \|", table, re.MULTILINE))
    assert len(honoured) > 60
    assert honoured - set(CASES) - IN_THE_RUN - NOTED == set()


def job(folder: Path, model: str, **keys: object) -> Job:
    return tiny.make_job(folder, model, "sft", "Conversation", keys)


def checked(model: str, **keys: object) -> None:
    """Plan a run and look at its files, as before a conversion."""
    tiny.check(planning.plan({"base_model": model, **keys}, partial=True))


def test_a_special_token_is_another_in_the_tokenizer_of_the_run(tmp_path, model):
    plain = build.load_tokenizer(job(tmp_path / "a", model))
    changed = build.load_tokenizer(
        job(tmp_path / "b", model, special_tokens={"pad_token": "<|im_start|>"})
    )
    assert plain.pad_token != changed.pad_token == "<|im_start|>"


def test_tokens_are_added_and_the_embedding_grows_by_them(tmp_path, model):
    plain = build.load_tokenizer(job(tmp_path / "a", model))
    grown = job(tmp_path / "b", model, tokens=["<one>", "<two>"])
    tokenizer = build.load_tokenizer(grown)
    assert len(tokenizer) == len(plain) + 2
    assert len(tokenizer("<one><two>", add_special_tokens=False)["input_ids"]) == 2
    trained, _ = build.make_model(grown, find("sft"), tokenizer)
    assert trained.get_input_embeddings().num_embeddings == len(tokenizer)
    round_ = replace(grown, settings={**grown.settings, "resize_token_embeddings_to_32x": True})
    trained, _ = build.make_model(round_, find("sft"), tokenizer)
    assert trained.get_input_embeddings().num_embeddings == -(-len(tokenizer) // 32) * 32


def test_an_end_of_turn_must_be_one_token(model):
    checked(model, eot_tokens=["<|im_end|>"])
    with pytest.raises(FmtkitError, match="eot_tokens: '<eot>' is not a token"):
        checked(model, eot_tokens=["<eot>"])


def test_the_tokenizer_is_the_one_that_is_named(tmp_path, model):
    other = tiny.make_model(tmp_path / "other", bos=True, template=tiny.TEMPLATE)
    assert build.load_tokenizer(job(tmp_path / "a", model)).bos_token is None
    named = job(tmp_path / "b", model, tokenizer_config=other)
    assert build.load_tokenizer(named).bos_token is not None


@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        ({"model_type": "AutoModelForCausalLM"}, {"model_type": "AutoModelForTokenClassification"}),
        ({"num_labels": 1, "reward_model": True}, {"num_labels": 2, "reward_model": True}),
    ],
)
def test_the_head_is_the_methods_and_another_is_refused(right, wrong):
    planning.plan(right, partial=True)
    with pytest.raises(FmtkitError, match=f"{next(iter(wrong))}: .*; leave it out"):
        planning.plan(wrong, partial=True)


def test_the_first_fsdp_is_run_as_the_second_and_that_is_said():
    noted = [
        note
        for version in (1, 2)
        for note in planning.plan(
            {"fsdp": "full_shard", "fsdp_version": version}, partial=True
        ).notes
        if note.startswith("FSDP version 1")
    ]
    assert len(noted) == 1


def test_parameters_that_are_not_named_are_frozen(tmp_path, model):
    chosen = job(tmp_path, model, unfrozen_parameters=["^model.embed_tokens"])
    trained, _ = build.make_model(chosen, find("sft"), build.load_tokenizer(chosen))
    names = [name for name, weight in trained.named_parameters() if weight.requires_grad]
    assert names == ["model.embed_tokens.weight"]


def test_rows_of_a_parameter_train_and_its_others_keep_their_values(tmp_path, model):
    import torch

    rows_of_it = "^model.embed_tokens.weight$[:3]", "^model.embed_tokens.weight$[5:7]"
    chosen = job(tmp_path, model, unfrozen_parameters=list(rows_of_it))
    trained, _ = build.make_model(chosen, find("sft"), build.load_tokenizer(chosen))
    ids = torch.arange(1, 10)[None]
    trained(input_ids=ids, labels=ids).loss.backward()
    gradient = trained.get_input_embeddings().weight.grad.abs().sum(dim=1)
    assert gradient.nonzero().flatten().tolist() == [1, 2, 5, 6]


@pytest.mark.parametrize(
    ("pattern", "name", "does"),
    [
        ("model.layers.[0-9]+.mlp", "model.layers.12.mlp.gate", True),
        ("layers.1", "model.layers.1", False),
        ("a.b", "a_b", False),
        (r"a\.b", "a.b", True),
        ("a.+b", "a__b", True),
        ("layers.1[05].mlp", "layers.15.mlp", True),
        ("weight[5]", "weight", True),
    ],
)
def test_a_pattern_names_a_parameter_from_its_beginning_and_its_points_are_points(
    pattern, name, does
):
    assert bool(freezing.read(pattern).name.match(name)) is does


@pytest.mark.parametrize(
    ("pattern", "message"),
    [("a[5:3]", r"no row is in \[5:3\]"), ("(a", "is not a regular expression")],
)
def test_a_pattern_that_names_nothing_is_refused_before_anything_is_loaded(pattern, message):
    with pytest.raises(FmtkitError, match=message):
        planning.plan({"unfrozen_parameters": [pattern]}, partial=True)


def test_an_adapter_to_go_on_training_is_loaded(tmp_path, model):
    from peft import LoraConfig, PeftModel, get_peft_model

    first = job(tmp_path / "a", model)
    base = build.load_model(first, find("sft"))
    get_peft_model(base, LoraConfig(r=3)).save_pretrained(tmp_path / "adapter")
    keys = {"adapter": "lora", "lora_model_dir": str(tmp_path / "adapter")}
    going_on = job(tmp_path / "b", model, **keys)
    trained, new = build.make_model(going_on, find("sft"), build.load_tokenizer(going_on))
    assert isinstance(trained, PeftModel)
    assert trained.peft_config["default"].r == 3
    assert new is None


def test_a_checkpoint_that_is_named_is_the_one_to_go_on_from(tmp_path):
    begins = {"base_model": "a/model", "datasets": ROWS, "output_dir": str(tmp_path)}
    named = planning.plan({**begins, "resume_from_checkpoint": str(tmp_path / "checkpoint-3")})
    with pytest.raises(ResumeError, match="checkpoint-3: no such folder; name a different one"):
        resuming.find(named, resume=False)
    assert resuming.find(planning.plan(begins), resume=False).checkpoint is None


def test_a_run_that_goes_on_by_itself_begins_where_there_is_nothing_to_go_on_from(tmp_path):
    begins = {"base_model": "a/model", "datasets": ROWS, "output_dir": str(tmp_path)}
    by_itself = planning.plan({**begins, "auto_resume_from_checkpoints": True})
    assert resuming.find(by_itself, resume=True).checkpoint is None
    with pytest.raises(ResumeError, match="holds no checkpoint"):
        resuming.find(planning.plan(begins), resume=True)


def test_a_plugin_brings_a_type_of_its_own(tmp_path):
    file = tmp_path / "poems.py"
    file.write_text(
        '"""Poems."""\n'
        "from fmtkit.columns import Text\n"
        "from fmtkit.columns.conversations import pair\n"
        "from fmtkit.formats.registry import converter\n"
        "from fmtkit.core.tables import Preference\n\n"
        "@converter()\n"
        "def preference(title: Text, good: Text, bad: Text) -> Preference:\n"
        '    """https://example.org/poems."""\n'
        "    return pair(title, good, bad)\n",
        encoding="utf-8",
    )
    entries = [{"path": "a/rows", "type": "chatml.poems"}]
    keys = {"base_model": "a/model", "rl": "dpo", "datasets": entries}
    with pytest.raises(FmtkitError, match="poems"):
        planning.plan(keys)
    (entry,) = planning.plan({**keys, "plugins": [str(file)]}).datasets
    assert entry.table == "Preference"


def written(folder: Path, name: str, values: list[str]) -> dict[str, str]:
    """Write rows of the type openai, and return the entry that names them."""
    file = folder / f"{name}.jsonl"
    conversations = [
        [{"role": "user", "content": value}, {"role": "assistant", "content": "red"}]
        for value in values
    ]
    file.write_text(
        "".join(json.dumps({"messages": d}) + "\n" for d in conversations), encoding="utf-8"
    )
    return {"path": str(file), "type": "openai"}


def order(folder: Path, entries: list[dict[str, str]], **keys: object) -> list[str]:
    """Return what the users of the rows say, in the order in which a trainer gets them."""
    base = {"base_model": "a/m", "excess_length_strategy": "keep", "datasets": entries}
    plan = planning.plan(base | {"output_dir": str(folder / "run"), **keys})
    train, evaluation = datasets.prepare(plan, tiny.TEMPLATE)
    loaded, _ = rows.load_rows(run.job_of(plan, train, evaluation, tiny.TEMPLATE), find("sft"))
    return [row["messages"][0]["content"] for row in loaded]


FIRST, SECOND = [f"a {n}" for n in range(6)], [f"b {n}" for n in range(6)]


def shuffled(values: list[str], seed: int = 42) -> list[str]:
    """Return values as axolotl shuffles them: by datasets' own seeded shuffle."""
    from datasets import Dataset

    return list(Dataset.from_dict({"said": values}).shuffle(seed=seed)["said"])


@pytest.mark.parametrize(
    ("keys", "wanted"),
    [
        ({}, shuffled(FIRST + SECOND)),
        ({"shuffle_merged_datasets": True}, shuffled(FIRST + SECOND)),
        ({"shuffle_merged_datasets": True, "seed": 7}, shuffled(FIRST + SECOND, 7)),
        ({"shuffle_merged_datasets": False}, FIRST + SECOND),
        (
            {"shuffle_merged_datasets": False, "shuffle_before_merging_datasets": True},
            shuffled(FIRST) + shuffled(SECOND),
        ),
        (
            {"shuffle_before_merging_datasets": True},
            shuffled(shuffled(FIRST) + shuffled(SECOND)),
        ),
        ({"curriculum_sampling": True}, FIRST + SECOND),
        (
            {"curriculum_sampling": True, "shuffle_merged_datasets": True},
            shuffled(FIRST + SECOND),
        ),
    ],
)
def test_datasets_are_shuffled_as_axolotl_merges_them(tmp_path, keys, wanted):
    entries = [written(tmp_path, "a", FIRST), written(tmp_path, "b", SECOND)]
    assert order(tmp_path, entries, **keys) == wanted


@pytest.mark.parametrize(
    ("keys", "wanted"),
    [
        ({"shuffle_merged_datasets": True}, shuffled(FIRST)),
        ({"shuffle_merged_datasets": False}, FIRST),
        ({"shuffle_merged_datasets": True, "curriculum_sampling": True}, FIRST),
        ({"shuffle_before_merging_datasets": True, "shuffle_merged_datasets": False}, FIRST),
    ],
)
def test_one_dataset_is_shuffled_as_axolotl_merges_it(tmp_path, keys, wanted):
    assert order(tmp_path, [written(tmp_path, "a", FIRST)], **keys) == wanted


def test_rows_that_are_equal_train_once_where_that_is_asked_for(tmp_path):
    entries = [written(tmp_path, "a", ["x", "y", "x"])]
    assert order(tmp_path, entries) == ["x", "y", "x"]
    assert order(tmp_path, entries, dataset_exact_deduplication=True) == ["x", "y"]


def test_rows_with_too_few_tokens_are_dropped(tmp_path, model):
    entries = [written(tmp_path, "a", ["red", "red blue green red"])]
    keys = {"base_model": model, "chat_template": "chatml"}
    assert order(tmp_path, entries, **keys) == ["red", "red blue green red"]
    few, many = (len(told) for told in texts(model, ["red", "red blue green red"]))
    assert few < many
    assert order(tmp_path, entries, min_sample_len=many, **keys) == ["red blue green red"]


def texts(model: str, said: list[str]) -> list[list[int]]:
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(model)
    conversations = [
        [{"role": "user", "content": s}, {"role": "assistant", "content": "red"}] for s in said
    ]
    return [tokenizer.apply_chat_template(d)["input_ids"] for d in conversations]


def test_what_is_evaluated_on_is_every_row_of_the_datasets_for_it(tmp_path):
    entries, tests = (
        written(tmp_path, "a", FIRST),
        [
            written(tmp_path, "t", ["p", "q"]),
            written(tmp_path, "u", ["r", "s"]) | {"split": "train[:1]"},
        ],
    )
    keys = {"base_model": "a/m", "excess_length_strategy": "keep", "datasets": [entries]}
    plan = planning.plan(keys | {"output_dir": str(tmp_path / "run"), "test_datasets": tests})
    train, evaluation = datasets.prepare(plan, tiny.TEMPLATE)
    made = run.job_of(plan, train, evaluation, tiny.TEMPLATE)
    trained, evaluated = rows.load_rows(made, find("sft"))
    assert [row["messages"][0]["content"] for row in trained] == FIRST
    assert [row["messages"][0]["content"] for row in evaluated] == ["p", "q", "r"]
