"""The keys of a training configuration: what each holds, where it goes, and why some go nowhere.

The table is data. A key is spelled as users of axolotl know it; a key of a section has a dotted
name (`trl.beta`). It holds what fmtkit renames, derives, explains or refuses; every other argument of a
trainer's config class passes by its own name (fmtkit.training.config.named_arguments). Options of
`fmtkit convert` are keys by the declaration of their field: those that have no row here are made of it.
"""

from collections.abc import Sequence
from functools import cache

from fmtkit.converting.convert_options import ConvertOptions
from fmtkit.training.config import (
    keys_axolotl,
    keys_data,
    keys_method,
    keys_model,
    keys_online,
    keys_run,
)
from fmtkit.training.config.key import Key

MODULES = (keys_model, keys_data, keys_run, keys_method, keys_online, keys_axolotl)
OF_DATASET = "datasets."
"""Before the name of a key that stands in an entry of `datasets`."""
PATHS = frozenset(
    {
        "accelerate_config",
        "base_model",
        "base_model_config",
        "chat_template",
        "deepspeed",
        "lora_model_dir",
        "nemo_gym_config_paths",
        "nemo_gym_dir",
        "output_dir",
        "plugins",
        "ref_model",
        "resume_from_checkpoint",
        "reward_model_path",
        "teacher_model",
        "tokenizer_config",
        "verifiers.dir",
    }
)
"""Keys that may name a file or a folder: `~` and $VARIABLES are replaced in them."""
DATASET_PATHS = frozenset({"path", "data_files", "data_dir", "chat_template"})
"""The same, of an entry of `datasets`."""


@cache
def table() -> dict[str, Key]:
    """Return every key outside of `datasets`, by name."""
    rows = [key for module in MODULES for key in module.KEYS]
    return _with_options(rows, of_dataset=False)


@cache
def dataset_table() -> dict[str, Key]:
    """Return every key of an entry of `datasets`, by name."""
    return _with_options(keys_data.DATASET_KEYS, of_dataset=True)


def made(*, of_dataset: bool) -> list[Key]:
    """Return the keys that are options and nothing else: no row of the table says more of them."""
    every = dataset_table() if of_dataset else table()
    written = keys_data.DATASET_KEYS if of_dataset else [k for m in MODULES for k in m.KEYS]
    return [key for name, key in every.items() if name not in {row.name for row in written}]


def _with_options(rows: Sequence[Key], *, of_dataset: bool) -> dict[str, Key]:
    by_name = {key.name: key for key in rows}
    if len(by_name) != len(rows):
        raise ValueError("duplicate key in the table of keys")
    for option, declared in ConvertOptions.declared().items():
        for name in declared.keys:
            own = name.removeprefix(OF_DATASET)
            if name.startswith(OF_DATASET) is of_dataset and own not in by_name:
                by_name[own] = Key(own, f"option:{option}", "fmtkit", declared.help)
    return by_name


@cache
def aliases() -> dict[str, str]:
    """Return the key that each other spelling stands for."""
    return {alias: key.name for key in table().values() for alias in key.aliases}


@cache
def section_names() -> frozenset[str]:
    """Return the names of the keys whose value is a section of further keys."""
    return frozenset(name.partition(".")[0] for name in table() if "." in name)
