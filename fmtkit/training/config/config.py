"""A configuration: its keys as a file sets them and the command line overrides them, each one checked."""

import contextlib
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import cast

import yaml

from fmtkit.core import runner
from fmtkit.core.errors import OptionError, UnknownNameError
from fmtkit.core.options import refuse_empty
from fmtkit.training.config import keys, trl_defaults, trl_files
from fmtkit.training.config.key import Key, takes, words
from fmtkit.training.config.keys import (
    DATASET_PATHS,
    aliases,
    dataset_table,
    find_key,
    section_names,
)
from fmtkit.training.config.problems import Problem, Problems
from fmtkit.training.config.yaml_file import File, parse, parsed, read, with_names

Entry = Mapping[str, object]

_METHOD_KEYS = frozenset({"rl", "reward_model", "process_reward_model"})
_VARIABLE = re.compile(r"\$\{?([A-Za-z_][A-Za-z0-9_]*)")
_WHOLE_NAMES = frozenset({"datasets", "test_datasets"})


@dataclass(frozen=True)
class Setting:
    """A value and where it was written, in words for the plan."""

    value: object
    origin: str


@dataclass(frozen=True)
class Config:
    """The keys that were set, by their own (dotted) names; null counts as unset."""

    source: str
    settings: Mapping[str, Setting]
    datasets: tuple[Entry, ...]
    test_datasets: tuple[Entry, ...] = ()
    lines: Mapping[str, int] = field(default_factory=dict, compare=False, repr=False)
    """The line of every key of the file, by its dotted name: as written and as fmtkit calls it."""
    notes: tuple[str, ...] = ()
    problems: tuple[Problem, ...] = ()
    """Problems of keys that were left out of `settings`, if `load` did not raise them."""

    def get(self, name: str) -> object:
        """Return a key's value, or None where it is unset; `trainer_args` may have set its argument."""
        setting = self.settings.get(name)
        if setting is not None:
            return setting.value
        passed = self.settings.get("trainer_args")
        if passed is None or not isinstance(passed.value, Mapping):
            return None
        argument = keys.argument_of(name)
        return None if argument is None else passed.value.get(argument)

    def text(self, name: str) -> str | None:
        """Return a key's value as text, or None where it is unset."""
        value = self.get(name)
        return None if value is None else str(value)

    def is_true(self, name: str) -> bool:
        """Return whether a key is set to true."""
        return self.get(name) is True

    @property
    def is_fragment(self) -> bool:
        """Return whether it is part of a configuration: nothing trains without a model."""
        return self.text("base_model") is None

    def method(self) -> str:
        """Return the training method that the configuration asks for."""
        asked = {one.method for one in runner.shipped() if one.key and self.is_true(one.key)}
        named = self.text("rl")
        if named is not None:
            asked.add(named)
        if len(asked) > 1:
            raise OptionError(
                f"{self.source}: asks for several methods: {', '.join(sorted(asked))}"
            )
        return next(iter(asked), runner.DEFAULT)

    def nested(self) -> dict[str, object]:
        """Return the configuration as a mapping that `load` would read back."""
        out: dict[str, object] = {}
        for name, setting in self.settings.items():
            section, _, last = name.rpartition(".")
            where = cast("dict[str, object]", out.setdefault(section, {})) if section else out
            where[last] = setting.value
        if self.datasets:
            # It is the path of the only entry.
            out.pop("dataset_name", None)
            out["datasets"] = [dict(entry) for entry in self.datasets]
        if self.test_datasets:
            out["test_datasets"] = [dict(entry) for entry in self.test_datasets]
        return out


def load(
    source: str | Path | Mapping[str, object],
    overrides: Sequence[str] = (),
    *,
    collect: bool = False,
) -> Config:
    """Read a file (or take a mapping), apply `KEY=VALUE` overrides and check every key.

    With `collect`, problems of keys are kept in `problems`, for a plan to report with all others; a problem
    of the method is always raised, since everything else depends on it.

    Raises UnknownNameError for an unknown key, OptionError for a value of the wrong kind, for a key
    that cannot be honoured and for a file that cannot be read; a RefusalError for several of them.
    """
    refuse_empty(source, "CONFIG")
    file = (
        File("<mapping>", with_names(source, "<mapping>"))
        if isinstance(source, Mapping)
        else read(Path(source))
    )
    _check_foreign(file.values, file.name)
    name, problems, notes = file.name, Problems(), list[str]()
    problems.found += file.problems
    lines = dict(file.lines)
    method = _asked(file.values, overrides)
    given, overrides = trl_files.with_overrides(file.values, overrides)
    for changed_name in [one for one in given if given[one] is not file.values.get(one)]:
        lines.pop(changed_name, None)
    values = trl_files.translated(given, lines, method, problems, notes)
    settings = dict(_settings(values, lines, problems, notes))
    for override in overrides:
        changed = _override(override, settings)
        settings |= changed
        for key in changed:
            # A problem with it now has no line in the file.
            for place in [one for one in lines if one == key or one.startswith(f"{key}.")]:
                del lines[place]
    if trl_files.is_trl(file.values):
        settings = _as_trl(settings, method, notes)
    settings = {key: _meant(key, setting, problems) for key, setting in settings.items()}
    wrong = _check_values(settings, problems)
    kept = {k: s for k, s in settings.items() if k not in {*_WHOLE_NAMES, *wrong}}
    config = Config(
        name,
        {key: s for key, s in kept.items() if s.value is not None},
        _entries(settings, "datasets", problems),
        _entries(settings, "test_datasets", problems),
        lines,
        tuple(notes),
    )
    if not collect or wrong & _METHOD_KEYS:
        problems.check(name, lines)
    return replace(config, problems=tuple(problems.found))


def _asked(values: Mapping[str, object], overrides: Sequence[str]) -> object:
    """Return the method that the command line names, or else the file; None where neither does."""
    named = [value for name, _, value in (o.partition("=") for o in overrides) if name == "rl"]
    by_key = [one.method for one in runner.shipped() if one.key and values.get(one.key) is True]
    return named[-1] if named else values.get("rl", values.get("method", next(iter(by_key), None)))


def _as_trl(
    settings: Mapping[str, Setting], method: object, notes: list[str]
) -> dict[str, Setting]:
    """Return the settings with what TRL's scripts do where a file of theirs says nothing."""
    values = {name: one.value for name, one in settings.items() if one.value is not None}
    notes.append("the file is TRL's by its keys; docs/from-trl.md says what each is here")
    notes += trl_defaults.remarks(values, method)
    added = trl_defaults.of(values, method)
    return {**settings, **{name: Setting(one, trl_defaults.ORIGIN) for name, one in added.items()}}


def dumps(config: Config) -> str:
    """Return the configuration as YAML."""
    return yaml.safe_dump(config.nested(), sort_keys=False, allow_unicode=True)


_OTHER_TOOLS: dict[str, frozenset[str]] = {
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
_COMPONENT = "_component_"


def _check_foreign(values: Mapping[str, object], source: str) -> None:
    """Raise OptionError for a configuration that another tool reads."""
    parts = [name for name, v in values.items() if isinstance(v, Mapping) and _COMPONENT in v]
    if parts:
        raise OptionError(_foreign_message(source, "torchtune", [f"{parts[0]}.{_COMPONENT}"]))
    for tool, keys_of_tool in _OTHER_TOOLS.items():
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


def _settings(
    raw: Mapping[str, object], lines: dict[str, int], problems: Problems, notes: list[str]
) -> Iterator[tuple[str, Setting]]:
    """Yield every key with its dotted name; collect those that are unknown or written twice."""
    seen: dict[str, tuple[str, object]] = {}
    for written, value in _flat(raw, problems):
        name = aliases().get(written, written)
        if value is None:
            if find_key(name) is None:
                notes.append(
                    f"{written}: no key of this name is known; it is empty and asks for nothing"
                )
            continue
        with problems.collecting("unknown_key", written):
            keys.check(written)
            if name in seen:
                before, other = seen[name]
                if other != value:
                    raise OptionError(
                        f"{written} and {before} are the same key, with two values: {value!r} and "
                        f"{other!r}; keep one"
                    )
                notes.append(f"{written} and {before} are the same key, with the same value")
                continue
            seen[name] = written, value
            if written in lines:
                lines[name] = lines[written]
            yield name, Setting(value, f"key {written}")


def _flat(raw: Mapping[str, object], problems: Problems) -> Iterator[tuple[str, object]]:
    for name, value in raw.items():
        if name not in section_names():
            yield name, value
        elif isinstance(value, Mapping):
            for inner, inner_value in value.items():
                yield f"{name}.{inner}", inner_value
        elif value is not None:
            with problems.collecting("value", name):
                raise OptionError(f"{name} is a section of keys, not {value!r}")


def _override(text: str, settings: Mapping[str, Setting]) -> dict[str, Setting]:
    """Return what `KEY=VALUE` sets; a dotted key may reach into a mapping or a list."""
    name, equals, value = text.partition("=")
    name = name.strip()
    if not equals or not name:
        raise OptionError(f"--set {text}: takes KEY=VALUE")
    parsed = parse(f"value: {value}", f"--set {name}")["value"] if value else None
    origin = f"--set {name}"
    if name in aliases() or find_key(name) is not None:
        return {aliases().get(name, name): Setting(parsed, origin)}
    section, _, rest = name.partition(".")
    section = aliases().get(section, section)
    if rest and find_key(section) is not None and section not in section_names():
        before = settings[section].value if section in settings else None
        return {section: Setting(_replaced(before, rest.split("."), parsed, origin), origin)}
    keys.check(name)
    return {}


def _replaced(value: object, path: Sequence[str], new: object, origin: str) -> object:
    """Return a mapping or list with one inner value replaced."""
    if not path:
        return new
    step, *rest = path
    if isinstance(value, list):
        if not step.isdigit() or int(step) >= len(value):
            raise OptionError(f"{origin}: there is no item {step}; it has {len(value)}")
        index = int(step)
        return [*value[:index], _replaced(value[index], rest, new, origin), *value[index + 1 :]]
    inner = value if isinstance(value, Mapping) else {}
    return {**inner, step: _replaced(inner.get(step), rest, new, origin)}


def _meant(name: str, setting: Setting, problems: Problems) -> Setting:
    """Return a setting with `~` and variables replaced in a path, and 1e3 as the whole number it is."""
    value, key = setting.value, find_key(name)
    if key is not None and key.is_path:
        with problems.collecting("value", name):
            return replace(setting, value=_path(name, value))
    if key is not None and isinstance(value, float) and value.is_integer():
        takes_integers = not takes(key, value + 0.5)
        return (
            replace(setting, value=int(value)) if takes_integers and takes(key, value) else setting
        )
    return setting


def _path(name: str, value: object) -> object:
    """Return a path, or a list of them, with `~` and $VARIABLES replaced.

    Raises OptionError for a variable that is not set.
    """
    if isinstance(value, list):
        return [_path(name, item) for item in value]
    refuse_empty(value, name)
    if not isinstance(value, str) or "{{" in value or "{%" in value:
        return value
    unset = [v for v in _VARIABLE.findall(value) if v not in os.environ]
    if unset:
        raise OptionError(f"{name}: {value}: the variable {unset[0]} is not set")
    return os.path.expandvars(str(Path(value).expanduser()) if value[:1] == "~" else value)


def _check_values(settings: Mapping[str, Setting], problems: Problems) -> set[str]:
    """Collect values that their keys do not take, and keys that cannot be honoured; return those keys."""
    wrong = set()
    for name, setting in settings.items():
        key = find_key(name)
        if key is None or setting.value is None or name in _WHOLE_NAMES:
            continue
        if not _check_value(key, name, setting.value, problems, written=_written(setting, name)):
            wrong.add(name)
    return wrong


def _written(setting: Setting, name: str) -> str:
    """Return the name by which a file says a key; that of fmtkit where it is not in the file."""
    written = setting.origin.removeprefix("key ")
    return written if aliases().get(written) == name else name


def _check_value(
    key: Key, name: str, value: object, problems: Problems, *, written: str = ""
) -> bool:
    """Collect what is wrong with a value; return whether it is valid."""
    said = written or name
    before = len(problems.found)
    refusal = key.refusal(value)
    with problems.collecting("refused_key" if refusal else "value", name):
        if refusal is not None:
            raise OptionError(refusal)
        if key.kind == "method" and isinstance(value, str) and value not in runner.names():
            unknown = runner.unknown(value)
            unknown.args = (f"{said}: {unknown}",)
            raise unknown
        # The choices of an argument are checked when the method is known.
        is_open = key.to == "trainer" and key.kind.startswith("enum:") and isinstance(value, str)
        # What asks for nothing may be spelled in any way.
        is_open = is_open or key.to in {"refused", "nothing"}
        if not is_open and not takes(key, value):
            raise OptionError(f"{said}: {value!r} is not {words(key.kind)}{_quoted(key, value)}")
    return len(problems.found) == before


def _quoted(key: Key, value: object) -> str:
    """Return the advice for a number or a switch in quotes, and for the old form of `tokens`."""
    if key.name == "tokens" and isinstance(value, Mapping):
        return "; axolotl takes no mapping either: write special_tokens for one of names"
    if not isinstance(value, str):
        return ""
    with contextlib.suppress(OptionError):
        bare = parsed(f"value: {value}", "value")[0].get("value")
        if not isinstance(bare, str) and bare is not None and takes(key, bare):
            return "; it is a string there: remove the quotes"
    return ""


def _entries(settings: Mapping[str, Setting], key: str, problems: Problems) -> tuple[Entry, ...]:
    """Return the entries with their keys under their own names, unset ones left out."""
    value = settings[key].value if key in settings else None
    short = settings.get("dataset_name") if key == "datasets" else None
    if short is not None and short.value is not None:
        with problems.collecting("two_spellings", "dataset_name"):
            if value:
                raise OptionError("dataset_name and datasets are the same; keep one")
        return ({"path": str(short.value)},)
    with problems.collecting("value", key):
        if value is not None and not isinstance(value, list):
            raise OptionError(f"{key}: {value!r} is not a list of entries")
    entries = enumerate(value if isinstance(value, list) else ())
    return tuple(_entry(item, f"{key}.{number}", problems) for number, item in entries)


def _entry(item: object, name: str, problems: Problems) -> Entry:
    section = name.partition(".")[0]
    known = {s: key for key in dataset_table().values() for s in (key.name, *key.aliases)}
    out: dict[str, object] = {}
    if not isinstance(item, Mapping):
        with problems.collecting("value", name):
            raise OptionError(
                f"{name}: {item!r} is not an entry, such as {{path: FILE, type: TYPE}}"
            )
        return out
    for written, value in item.items():
        place = f"{name}.{written}"
        with problems.collecting("unknown_key", place):
            if written not in known:
                raise UnknownNameError(f"key of {section}", str(written), known)
            key = known[written]
            if value is None:
                continue
            if key.name in out:
                raise OptionError(f"{place}: {key.name} is set twice; keep one")
            if _check_value(key, place, value, problems):
                out[key.name] = value
            if key.name in out and key.name in DATASET_PATHS:
                with problems.collecting("value", place):
                    out[key.name] = _path(place, value)
    return out
