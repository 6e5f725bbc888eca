"""Configurations of other tools, told by their keys: LLaMA-Factory, torchtune, TRL's own scripts."""

from collections.abc import Mapping

from fmtkit.errors import OptionError

_KEYS: dict[str, frozenset[str]] = {
    "LLaMA-Factory": frozenset(
        {
            "dataset_dir",
            "do_train",
            "finetuning_type",
            "freeze_trainable_layers",
            "lora_rank",
            "lora_target",
            "overwrite_cache",
            "pref_beta",
            "pref_loss",
            "quantization_bit",
            "stage",
            "template",
        }
    ),
    "verl": frozenset({"actor_rollout_ref", "algorithm", "critic", "trainer"}),
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
    return (
        f"{source}: this is a configuration of {tool} ({', '.join(keys)}); fmtkit reads axolotl's keys "
        "(base_model, datasets, rl, adapter, ...): write them, see docs/from-axolotl.md"
    )
