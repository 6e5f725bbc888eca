"""docs/config.md: every key, where it goes and what it takes, made from the table of keys.

`python -m fmtkit.training.config.config_page FILE` writes it, with the methods that installed packages add;
a test compares the page of fmtkit alone with the table.
"""

import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

from fmtkit.core import runner
from fmtkit.core.runner import Runner
from fmtkit.training.config import (
    keys,
    keys_axolotl,
    keys_data,
    keys_method,
    keys_model,
    keys_online,
    keys_run,
)
from fmtkit.training.config.key import DESTINATIONS, Key, words
from fmtkit.training.config.keys import everywhere, find_key
from fmtkit.training.config.schema import made_from
from fmtkit.training.planning import checklist
from fmtkit.training.planning.check import NEEDS

HEAD = """# Keys of a training configuration

Made by `python -m fmtkit.training.config.config_page docs/config.md`; do not edit.

The keys are those of axolotl; a file written for it is read as it is. `schemas/config.schema.json` is
the same as a JSON Schema: an editor that knows it completes and checks keys
(`# yaml-language-server: $schema=…` in the first line of a file).

`fmtkit train FILE --dry-run` prints where every key of a file goes. A key that is not here is an error
with the nearest name; a key that cannot be honoured is an error that says why. A key that is set to
nothing (`max_steps:`) counts as unset. Every argument of the method's config class passes by its own
name, or inside `trainer_args`; `model_init_kwargs` passes arguments of `from_pretrained`, `peft_args` of
`LoraConfig`, all checked by name.
`--set KEY=VALUE` sets a key from the command line, `--set trl.beta=0.1` one of a section,
`--set datasets.0.path=x` one inside a list.

| goes to | what that is |
|---|---|
"""

METHODS_HEAD = """
## Methods

A method is chosen by `rl` (`reward_model: true` and `process_reward_model: true` choose theirs). An
installed package may [add more](add-a-method.md).

| method | takes | is trained by | needs | what it does |
|---|---|---|---|---|
"""

GROUPS: dict[str, tuple[Key, ...]] = {
    "Model, tokenizer and adapter": keys_model.KEYS,
    "Data": keys_data.KEYS,
    "An entry of `datasets`": tuple(keys.dataset_table().values()),
    "Options of `fmtkit convert`": tuple(keys.made(of_dataset=False)),
    "Method and loss": keys_method.KEYS,
    "Steps, optimizer, saving, processes": keys_run.KEYS,
    "Online methods, vLLM, EBFT, NeMo Gym": keys_online.KEYS,
    "Keys of axolotl without a counterpart": keys_axolotl.KEYS,
}


def text(runners: Iterable[Runner] | None = None) -> str:
    """Return the whole page, with these methods; those of fmtkit itself unless given."""
    places = "".join(f"| {name} | {about} |\n" for name, about in DESTINATIONS.items())
    methods = "".join(map(_method, runner.shipped() if runners is None else runners))
    groups = "".join(f"\n{part}" for part in _groups())
    return HEAD + places + METHODS_HEAD + methods + groups + f"\n{_named()}\n{_checks()}"


def _method(one: Runner) -> str:
    takes, needs = ", ".join(one.tables), ", ".join(sorted(one.needs)).replace("_", " ")
    return f"| `{one.method}` | {takes} | `{one.trainer}` | {needs} | {one.about} |\n"


def _groups() -> Iterator[str]:
    head = "| key | takes | goes to | what it is |\n|---|---|---|---|\n"
    for title, group in GROUPS.items():
        yield f"## {title}\n\n{head}{_rows(group)}"


def _named() -> str:
    """Return the arguments that pass by name, as the installed packages have them."""
    rows = []
    for name, found in everywhere().items():
        key = find_key(name)
        kind = words(key.kind) if key else ""
        about = found.field.about.replace("|", "\\|") or "-"
        rows.append(f"| `{name}` | {kind} | {', '.join(_methods(found.methods))} | {about} |\n")
    return (
        f"## Arguments that pass by name\n\nThose of {made_from()}, in the words of their own "
        "documentation; with other versions they are those of the installed one.\n\n"
        "| argument | takes | methods | what it is |\n|---|---|---|---|\n"
        + "".join(rows).replace("{", "\\{")
    )


def _methods(names: tuple[str, ...]) -> tuple[str, ...]:
    every = {method for found in everywhere().values() for method in found.methods}
    return ("all",) if set(names) == every else names


def _checks() -> str:
    """Return the checks that `--dry-run` and `train` make of a configuration."""
    rows = "".join(
        f"| `{check.code}` | {check.needs} | {check.about} |\n" for check in checklist.every()
    )
    needs = ", ".join(f"`{name}` {about}" for name, about in NEEDS.items())
    return (
        "## Checks\n\nAll problems of a file are reported at once, each with its line and one of these "
        f"codes. What a check needs: {needs}. `--dry-run` runs all but those that need servers or data, "
        "which its plan names; what is missing of modules and of the device is a note there.\n\n"
        "| code | needs | what it finds |\n|---|---|---|\n" + rows
    )


def _rows(keys: Iterable[Key]) -> str:
    return "".join(
        f"| {_names(key)} | {_takes(key)} | {_place(key)} | {key.about} |\n" for key in keys
    ).replace("{", "\\{")


def _takes(key: Key) -> str:
    return "a [method](#methods)" if key.kind == "method" else words(key.kind)


def _names(key: Key) -> str:
    others = f" ({', '.join(f'`{alias}`' for alias in key.aliases)})" if key.aliases else ""
    return f"`{key.name}`{others}"


def _place(key: Key) -> str:
    named = key.target not in {"*", key.name.rpartition(".")[2]}
    return f"{key.to}: `{key.target}`" if named else key.to


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(text(map(runner.find, runner.names())), encoding="utf-8")
