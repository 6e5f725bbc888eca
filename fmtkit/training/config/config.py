"""A configuration: its keys as a file sets them and the command line overrides them, each one checked."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field, replace
from fnmatch import fnmatchcase
from functools import cached_property
from pathlib import Path
from typing import cast

import yaml

from fmtkit.core import runner
from fmtkit.core.data_classes import dataclass
from fmtkit.core.errors import OptionError, UnknownNameError
from fmtkit.core.options import refuse_empty
from fmtkit.training.config import (
    keys,
    other_tools,
    path_values,
    set_values,
    trl_defaults,
    trl_files,
)
from fmtkit.training.config.key import Key, quoted, takes, words
from fmtkit.training.config.keys import (
    DATASET_PATHS,
    OF_DATASET,
    aliases,
    dataset_table,
    find_key,
    section_names,
)
from fmtkit.training.config.problems import Problem, Problems
from fmtkit.training.config.yaml_file import File, read, with_names

Entry = Mapping[str, object]
Keys = tuple[str | tuple[str, object], ...]
"""Keys by their names, as `Config.sets` takes them."""

_METHOD_KEYS = frozenset({"rl", "reward_model", "process_reward_model"})
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
        argument = keys.argument_of(name) if self._passed else None
        return None if argument is None else self._passed.get(argument)

    @property
    def _passed(self) -> Mapping[str, object]:
        """Return the arguments that `trainer_args` passes on."""
        setting = self.settings.get("trainer_args")
        value = None if setting is None else setting.value
        return value if isinstance(value, Mapping) else {}

    def origin(self, name: str) -> str:
        """Return where the value of a key that is set was written: as the key, or among `trainer_args`."""
        setting = self.settings.get(name)
        return f"key trainer_args.{keys.argument_of(name)}" if setting is None else setting.origin

    def text(self, name: str) -> str | None:
        """Return a key's value as text, or None where it is unset."""
        value = self.get(name)
        return None if value is None else str(value)

    def is_true(self, name: str) -> bool:
        """Return whether a key is set to true."""
        return self.get(name) is True

    def sets(self, *keys: str | tuple[str, object]) -> bool:
        """Return whether one of these keys is set.

        Args:
            keys: Names of keys, `trl.*` for those of a section, `datasets.split` for one of an entry of
                `datasets` or `test_datasets`, (name, value) for a key with this value alone; `to peft` for
                keys that go there, `of sections` for those that sections have, `to the trainer alone` for
                arguments that nobody else reads, and `conditional` for keys that may change nothing.
        """
        return any(
            key in self._names or ("*" in key and self._has_like(key)) or self._passes(key)
            if isinstance(key, str)
            else self.get(key[0]) == key[1]
            for key in keys
        )

    @cached_property
    def _names(self) -> frozenset[str]:
        """Return the names of all keys that are set, and the words for groups of them."""
        names = {*self.settings, *(name for name in _WHOLE_NAMES if getattr(self, name))}
        for entry in (*self.datasets, *self.test_datasets):
            names |= {f"{OF_DATASET}{name}" for name in entry}
        for name, setting in self.settings.items():
            key = find_key(name)
            if key is None:
                continue
            names.add(f"to {key.to}")
            if name in keys.of_sections():
                names.add(keys.OF_SECTIONS)
            if key.is_conditional:
                names.add(keys.CONDITIONAL)
            if keys.is_for_trainer_alone(key, setting.value):
                names.add(keys.TRAINERS_ALONE)
        return frozenset(names)

    def _has_like(self, pattern: str) -> bool:
        return any(fnmatchcase(name, pattern) for name in self.settings)

    def _passes(self, name: str) -> bool:
        passed = self._passed
        return bool(passed) and (name in passed or keys.argument_of(name) in passed)

    @property
    def model(self) -> str | None:
        """Return the model that trains; None in a fragment that names none."""
        return self.text("base_model")

    @property
    def adapter(self) -> str | None:
        """Return the kind of adapter that trains; None where all weights do."""
        return self.text("adapter")

    @property
    def processes(self) -> int | None:
        """Return how many processes are to train; None where the launcher or the machine decides."""
        count = self.get("num_processes")
        return count if isinstance(count, int) else None

    @property
    def held_out(self) -> int | float:
        """Return which share of the rows, below 1, or how many are held out of training; 0 for none."""
        size = self.get("val_set_size")
        return size if isinstance(size, int | float) else 0

    @property
    def is_fragment(self) -> bool:
        """Return whether it is part of a configuration: nothing trains without a model."""
        return self.model is None

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
    if source == "":
        refuse_empty(source, "CONFIG")
    file = (
        File("<mapping>", with_names(source, "<mapping>"))
        if isinstance(source, Mapping)
        else read(Path(source))
    )
    if is_foreign(file.values):
        other_tools.check(file.values, file.name)
    name, problems, notes = file.name, Problems(), list[str]()
    problems.found += file.problems
    lines = dict(file.lines)
    method = _asked(file.values, overrides)
    values = file.values
    if may_be_trls(values, overrides, method):
        values, overrides = trl_files.with_overrides(file.values, overrides)
        for changed_name in [one for one in values if values[one] is not file.values.get(one)]:
            lines.pop(changed_name, None)
        values = trl_files.translated(values, lines, method, problems, notes)
    settings = dict(_settings(values, lines, problems, notes))
    for override in overrides:
        before = {key: setting.value for key, setting in settings.items()}
        origin, changed = set_values.read(override, before)
        settings |= {key: Setting(value, origin) for key, value in changed.items()}
        for key in changed:
            # A problem with it now has no line in the file.
            for place in [one for one in lines if one == key or one.startswith(f"{key}.")]:
                del lines[place]
    if trl_files.MARKS & file.values.keys() and trl_files.is_trl(file.values):
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


def is_foreign(values: Mapping[str, object]) -> bool:
    """Return whether there are keys of other tools, so that one of them may be meant."""
    inside = (one for one in values.values() if isinstance(one, Mapping))
    return bool(other_tools.KEYS & values.keys()) or any(other_tools.COMPONENT in i for i in inside)


def may_be_trls(values: Mapping[str, object], overrides: Sequence[str], method: object) -> bool:
    """Return whether there are keys of TRL's that are read beside others, as all of online methods are."""
    chosen = runner.find_known(method)
    if chosen is not None and chosen.is_online:
        return True
    named = {override.partition("=")[0].strip() for override in overrides}
    return not trl_files.READ.isdisjoint({*values, *named})


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


def _meant(name: str, setting: Setting, problems: Problems) -> Setting:
    """Return a setting with `~` and variables replaced in a path, and 1e3 as the whole number it is."""
    value, key = setting.value, find_key(name)
    if key is not None and key.is_path and not is_plain_path(value):
        with problems.collecting("value", name):
            return replace(setting, value=path_values.read(name, value))
    if key is not None and isinstance(value, float) and value.is_integer():
        takes_integers = not takes(key, value + 0.5)
        return (
            replace(setting, value=int(value)) if takes_integers and takes(key, value) else setting
        )
    return setting


def is_plain_path(value: object) -> bool:
    """Return whether a path is to be taken as it is written, and is on this machine."""
    return isinstance(value, str) and path_values.PLAIN.fullmatch(value) is not None


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
            raise OptionError(f"{said}: {value!r} is not {words(key.kind)}{quoted(key, value)}")
    return len(problems.found) == before


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
            if key.name in out and key.name in DATASET_PATHS and not is_plain_path(value):
                with problems.collecting("value", place):
                    out[key.name] = path_values.read(place, value)
    return out
