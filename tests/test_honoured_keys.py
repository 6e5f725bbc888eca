"""A honoured key changes what it is for: the plan with it differs from the plan without it there.

The keys are the most frequent honoured ones of axolotl's examples, most frequent first.
"""

from typing import Any, NamedTuple

import pytest

from fmtkit.training import planning

PAIRS = [{"path": "a/pairs", "type": "chatml.intel"}]
ROWS = [{"path": "a/rows", "type": "alpaca"}]


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
    "rl": Case("dpo", "method", "dpo", {"datasets": [{"path": "a/b", "type": "passthrough"}]}),
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
    "model_quantization_config": Case("Mxfp4Config", "quantization.config_class", "Mxfp4Config"),
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
}


def seen(plan: planning.Plan, place: str) -> object:
    """Return what stands at a place of the plan; None where there is nothing."""
    made = plan.to_json()
    arguments: Any = made["arguments"]
    first, _, rest = place.partition(".")
    if first in {"trainer", "model", "peft", "quantization", "environment"} and rest:
        return arguments.get(first, {}).get(rest, {}).get("value")
    found: Any = made
    for step in place.split("."):
        found = found[int(step)] if step.isdigit() else (found or {}).get(step)
    return found


@pytest.mark.parametrize("key", CASES)
def test_a_honoured_key_changes_the_plan_where_it_acts(key):
    case = CASES[key]
    without = {"base_model": "a/model", "datasets": ROWS, **case.beside}
    changed = planning.plan({**without, key: case.value})
    assert seen(changed, case.place) == case.seen
    assert seen(planning.plan(without), case.place) != case.seen
    assert not [note for note in changed.notes if note.startswith(f"{key} changes nothing")]


def test_at_least_sixty_keys_are_shown_to_act():
    assert len(CASES) >= 60
