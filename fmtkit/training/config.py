"""A configuration: read from YAML, overridden from the command line, checked against the schema."""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import cast

import yaml

from fmtkit import resources, runner
from fmtkit.errors import OptionError, UnknownNameError
from fmtkit.training import schema
from fmtkit.training.keys import aliases, check_known, refuse, section_names, table
from fmtkit.training.keys_data import DATASET_KEYS

Entry = Mapping[str, object]

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

    def get(self, name: str) -> object:
        """Return a key's value, or None where it is unset."""
        setting = self.settings.get(name)
        return None if setting is None else setting.value

    def text(self, name: str) -> str | None:
        """Return a key's value as text, or None where it is unset."""
        value = self.get(name)
        return None if value is None else str(value)

    def is_true(self, name: str) -> bool:
        """Tell whether a key is set to true."""
        return self.get(name) is True

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
            out["datasets"] = [dict(entry) for entry in self.datasets]
        if self.test_datasets:
            out["test_datasets"] = [dict(entry) for entry in self.test_datasets]
        return out


def load(source: str | Path | Mapping[str, object], overrides: Sequence[str] = ()) -> Config:
    """Read a file (or take a mapping), apply `KEY=VALUE` overrides and check every key.

    Raises UnknownNameError for an unknown key, OptionError for a value of the wrong kind, for a key
    that cannot be honoured and for a file that cannot be read.
    """
    name, raw = ("<mapping>", dict(source)) if isinstance(source, Mapping) else _read(Path(source))
    settings = dict(_settings(raw, name))
    for override in overrides:
        settings |= _override(override, settings)
    nested = Config(name, settings, ()).nested()
    _check(nested, name)
    for key, setting in settings.items():
        if key not in _WHOLE_NAMES:
            refuse(table()[key], setting.value)
    return Config(
        name,
        {key: s for key, s in settings.items() if key not in _WHOLE_NAMES and s.value is not None},
        _entries(settings, "datasets", name),
        _entries(settings, "test_datasets", name),
    )


def dumps(config: Config) -> str:
    """Return the configuration as YAML."""
    return yaml.safe_dump(config.nested(), sort_keys=False, allow_unicode=True)


class _Loader(yaml.SafeLoader):
    """YAML as its users read it: 1e-5 is a number, and a key may stand once."""


def _mapping(loader: _Loader, node: yaml.MappingNode) -> dict[object, object]:
    loader.flatten_mapping(node)
    out: dict[object, object] = {}
    for key_node, value_node in node.value:
        key = loader.construct_object(key_node, deep=True)
        if key in out:
            line = key_node.start_mark.line + 1
            raise OptionError(f"line {line}: the key {key!r} stands twice")
        out[key] = loader.construct_object(value_node, deep=True)
    return out


_Loader.add_constructor(yaml.resolver.BaseResolver.DEFAULT_MAPPING_TAG, _mapping)
# YAML 1.1 wants a point in a float, so that `learning_rate: 1e-5` would be a text.
_Loader.add_implicit_resolver(
    "tag:yaml.org,2002:float",
    re.compile(r"^[-+]?[0-9][0-9_]*(?:\.[0-9_]*)?[eE][-+]?[0-9]+$"),
    list("-+0123456789"),
)


def _read(path: Path) -> tuple[str, dict[str, object]]:
    try:
        text = path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise OptionError(f"{path}: cannot be read: {error}") from error
    return str(path), parse(text, str(path))


def parse(text: str, name: str) -> dict[str, object]:
    """Return the mapping that a YAML text holds."""
    try:
        # The loader is a SafeLoader: it makes plain values and no objects.
        raw = yaml.load(text, Loader=_Loader)  # noqa: S506
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        where = f"{name}:{mark.line + 1}" if mark else name
        problem = getattr(error, "problem", None) or "not YAML"
        raise OptionError(f"{where}: {problem}") from error
    except OptionError as error:
        raise OptionError(f"{name}: {error}") from error
    if raw is None:
        return {}
    if not isinstance(raw, dict) or not all(isinstance(key, str) for key in raw):
        raise OptionError(f"{name}: a configuration is a mapping of keys, not {type(raw).__name__}")
    return cast("dict[str, object]", raw)


def _settings(raw: Mapping[str, object], source: str) -> Iterator[tuple[str, Setting]]:
    """Yield every key with its dotted name; raise for one that is unknown or written twice."""
    seen: dict[str, str] = {}
    for written, value in _flat(raw, source):
        check_known([written])
        name = aliases().get(written, written)
        if name in seen:
            raise OptionError(f"{source}: {written} and {seen[name]} are the same key; keep one")
        seen[name] = written
        yield name, Setting(value, f"key {written}")


def _flat(raw: Mapping[str, object], source: str) -> Iterator[tuple[str, object]]:
    for name, value in raw.items():
        if name not in section_names():
            yield name, value
            continue
        if value is None:
            continue
        if not isinstance(value, Mapping):
            raise OptionError(f"{source}: {name} is a section of keys, not {value!r}")
        for inner, inner_value in value.items():
            yield f"{name}.{inner}", inner_value


def _override(text: str, settings: Mapping[str, Setting]) -> dict[str, Setting]:
    """Return what `KEY=VALUE` sets; a dotted key may reach into a mapping or a list."""
    name, equals, value = text.partition("=")
    name = name.strip()
    if not equals or not name:
        raise OptionError(f"--set {text}: takes KEY=VALUE")
    parsed = parse(f"value: {value}", f"--set {name}")["value"] if value else None
    origin = f"--set {name}"
    if name in table() or name in aliases():
        return {aliases().get(name, name): Setting(parsed, origin)}
    whole, _, rest = name.partition(".")
    whole = aliases().get(whole, whole)
    if rest and whole in table() and whole not in section_names():
        before = settings[whole].value if whole in settings else None
        return {whole: Setting(_replaced(before, rest.split("."), parsed, origin), origin)}
    check_known([name])
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


def _check(nested: Mapping[str, object], source: str) -> None:
    """Raise OptionError for the first value that the schema does not take."""
    from jsonschema import Draft202012Validator

    _check_entries(nested)
    method = nested.get("rl")
    if isinstance(method, str) and method not in runner.names():
        error = runner.unknown(method)
        error.args = (f"{source}: rl: {error}",)
        raise error
    for error in Draft202012Validator(resources.schema("config")).iter_errors(nested):
        path = [str(part) for part in error.absolute_path]
        name = ".".join(path)
        raise OptionError(f"{source}: {name}: {error.instance!r} is not {_expected(path)}")


def _expected(path: Sequence[str]) -> str:
    entry_keys = {key.name: key for key in DATASET_KEYS}
    if path[0] in _WHOLE_NAMES and len(path) > 2:
        return schema.words(entry_keys[path[2]].kind) if path[2] in entry_keys else "what it takes"
    if path[0] in _WHOLE_NAMES and len(path) == 2:
        return "an entry, such as {path: FILE, type: TYPE}"
    for depth in (2, 1):
        name = ".".join(path[:depth])
        if name in table():
            return schema.words(table()[name].kind)
    return "a section of keys"


def _check_entries(nested: Mapping[str, object]) -> None:
    """Raise UnknownNameError for an unknown key of a dataset's entry."""
    known = {name for key in DATASET_KEYS for name in (key.name, *key.aliases)}
    for whole in _WHOLE_NAMES:
        for entry in _mappings(nested.get(whole)):
            for name in entry:
                if name not in known:
                    raise UnknownNameError(f"key of {whole}", str(name), known)


def _mappings(value: object) -> Iterable[Mapping[str, object]]:
    return [item for item in value if isinstance(item, Mapping)] if isinstance(value, list) else []


def _entries(settings: Mapping[str, Setting], whole: str, source: str) -> tuple[Entry, ...]:
    """Return the entries with their keys under their own names, unset ones left out."""
    names = {alias: key.name for key in DATASET_KEYS for alias in key.aliases}
    value = settings[whole].value if whole in settings else None
    entries = [
        {names.get(name, name): item for name, item in entry.items() if item is not None}
        for entry in _mappings(value)
    ]
    by_name = {key.name: key for key in DATASET_KEYS}
    for entry in entries:
        for name, item in entry.items():
            refuse(by_name[name], item)
    short = settings.get("dataset_name") if whole == "datasets" else None
    if short is not None and entries:
        raise OptionError(f"{source}: dataset_name and datasets are the same; keep one")
    if short is not None:
        return ({"path": str(short.value)},)
    return tuple(entries)
