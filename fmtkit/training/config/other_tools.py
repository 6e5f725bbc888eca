"""Configurations that another tool reads: they are recognised by their keys, and refused by its name."""

from collections.abc import Mapping

from fmtkit.core.errors import OptionError
from fmtkit.training.config import trl_files

_TOOLS: dict[str, frozenset[str]] = {
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
"""Tool -> keys that it has and axolotl does not have; two of them identify it."""
COMPONENT = "_component_"
KEYS = frozenset[str]().union(*_TOOLS.values())


def check(values: Mapping[str, object], source: str) -> None:
    """Raise OptionError for a configuration that another tool reads."""
    parts = [name for name, v in values.items() if isinstance(v, Mapping) and COMPONENT in v]
    if parts:
        raise OptionError(_foreign_message(source, "torchtune", [f"{parts[0]}.{COMPONENT}"]))
    for tool, keys_of_tool in _TOOLS.items():
        foreign = sorted(keys_of_tool & set(values))
        if "dataset_name" in values and foreign == ["do_train", "model_name_or_path"]:
            # TRL's scripts take both.
            continue
        if tool == "LLaMA-Factory" and (trl_files.MARKS - {"model_name_or_path"}) & values.keys():
            continue
        # A single key, such as a model or a name, may be that of any tool.
        if len(foreign) > 1 and not {"base_model", "datasets"} & set(values):
            raise OptionError(_foreign_message(source, tool, foreign[:3]))


def _foreign_message(source: str, tool: str, foreign: list[str]) -> str:
    if tool == "accelerate":
        return (
            f"{source}: this is a configuration of accelerate ({', '.join(foreign)}); name it as "
            "accelerate_config in a config with base_model and datasets"
        )
    return (
        f"{source}: this is a configuration of {tool} ({', '.join(foreign)}); fmtkit reads axolotl's keys "
        "(base_model, datasets, rl, adapter, ...): write them, see docs/from-axolotl.md"
    )
