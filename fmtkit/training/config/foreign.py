"""Configurations of other tools, told by their keys: LLaMA-Factory, torchtune, TRL's own scripts."""

from collections.abc import Mapping

from fmtkit.core.errors import OptionError

_KEYS: dict[str, frozenset[str]] = {
    "LLaMA-Factory": frozenset(
        {
            "dataset_dir",
            "dist_config",
            "do_train",
            "export_device",
            "export_dir",
            "export_size",
            "finetuning_type",
            "freeze_trainable_layers",
            "infer_backend",
            "kernel_config",
            "lora_rank",
            "lora_target",
            "model_class",
            "model_name_or_path",
            "overwrite_cache",
            "peft_config",
            "pref_beta",
            "pref_loss",
            "quant_config",
            "quantization_bit",
            "sample_backend",
            "stage",
            "template",
            "train_dataset",
        }
    ),
    "torchtune": frozenset(
        {
            "checkpointer",
            "enable_activation_checkpointing",
            "enable_activation_offloading",
            "log_every_n_steps",
            "log_peak_memory_stats",
            "metric_logger",
            "optimizer_in_bwd",
            "shuffle",
        }
    ),
    "verl": frozenset({"actor_rollout_ref", "algorithm", "critic", "trainer"}),
    "accelerate": frozenset(
        {
            "compute_environment",
            "distributed_type",
            "downcast_bf16",
            "machine_rank",
            "num_machines",
            "rdzv_backend",
        }
    ),
    "NeMo": frozenset({"exp_manager", "model", "name", "trainer"}),
}
"""Tool -> keys that it has and axolotl has not; two of them tell."""
_COMPONENT = "_component_"


def check(values: Mapping[str, object], source: str) -> None:
    """Raise OptionError for a configuration that another tool reads."""
    parts = [name for name, v in values.items() if isinstance(v, Mapping) and _COMPONENT in v]
    if parts:
        raise OptionError(_told(source, "torchtune", [f"{parts[0]}.{_COMPONENT}"]))
    for tool, keys in _KEYS.items():
        found = sorted(keys & set(values))
        # A model or a name alone may be anybody's.
        if len(found) > 1 and not {"base_model", "datasets"} & set(values):
            raise OptionError(_told(source, tool, found[:3]))


def _told(source: str, tool: str, keys: list[str]) -> str:
    if tool == "accelerate":
        return (
            f"{source}: this is a configuration of accelerate ({', '.join(keys)}); name it as "
            "accelerate_config in a config with base_model and datasets"
        )
    return (
        f"{source}: this is a configuration of {tool} ({', '.join(keys)}); fmtkit reads axolotl's keys "
        "(base_model, datasets, rl, adapter, ...): write them, see docs/from-axolotl.md"
    )
