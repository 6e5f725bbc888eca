"""The keys of a training configuration: what each holds, where it goes, and why some go nowhere.

The table is data. A key is spelled as users of axolotl know it; a key of a section has a dotted
name (`trl.beta`). It holds what fmtkit renames, derives, explains or refuses; every other argument of a
trainer's config class passes by its own name (fmtkit.training.named_arguments).
"""

from functools import cache

from fmtkit.training import keys_axolotl, keys_data, keys_method, keys_model, keys_online, keys_run
from fmtkit.training.key import Key

MODULES = (keys_model, keys_data, keys_run, keys_method, keys_online, keys_axolotl)


@cache
def table() -> dict[str, Key]:
    """Return every key outside of `datasets`, by name."""
    rows = [key for module in MODULES for key in module.KEYS]
    by_name = {key.name: key for key in rows}
    if len(by_name) != len(rows):
        raise ValueError("a key stands twice in the table of keys")
    return by_name


@cache
def aliases() -> dict[str, str]:
    """Return the key that each other spelling stands for."""
    return {alias: key.name for key in table().values() for alias in key.aliases}


@cache
def section_names() -> frozenset[str]:
    """Return the names of the keys whose value is a section of further keys."""
    return frozenset(name.partition(".")[0] for name in table() if "." in name)
