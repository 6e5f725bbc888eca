"""What of the datasets' entries can be known before a row is read."""

import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from fmtkit.columns.text_formats import PLACEHOLDERS, parse_format
from fmtkit.converting import type_options
from fmtkit.converting.user_functions import find_function
from fmtkit.core.errors import FmtkitError, OptionError
from fmtkit.formats import registry
from fmtkit.rendering import template_sources
from fmtkit.training.config.config import Config, Entry
from fmtkit.training.config.problem import Problem
from fmtkit.training.config.slices import parse_slice
from fmtkit.training.planning import datatypes
from fmtkit.training.planning.check import Subject
from fmtkit.training.planning.datatypes import Reading, plugin_files
from fmtkit.training.rl.imports import places_of

_FILE_TYPES = frozenset({"json", "csv", "parquet", "arrow", "text"})
_SUFFIXES = frozenset(
    {".json", ".jsonl", ".parquet", ".csv", ".arrow", ".gz", ".zst", ".txt", ".tsv", ".ndjson"}
)


def entries(config: Config) -> Iterator[tuple[str, Entry]]:
    """Yield every dataset's entry with its dotted name."""
    for number, entry in enumerate(config.datasets):
        yield f"datasets.{number}", entry
    for number, entry in enumerate(config.test_datasets):
        yield f"test_datasets.{number}", entry


def check_slices(subject: Subject) -> Iterator[Problem]:
    """Yield what is wrong with splits, shards and shares."""
    config = subject.config
    for name, entry in entries(config):
        try:
            parse_slice(str(entry.get("split", "train")))
        except OptionError as error:
            yield Problem("", str(error), f"{name}.split")
        shards, index = entry.get("shards"), entry.get("shards_idx")
        if isinstance(index, int) and not isinstance(shards, int):
            yield Problem(
                "", "shards_idx: says which of the shards; set shards", f"{name}.shards_idx"
            )
        elif isinstance(index, int) and isinstance(shards, int) and index >= shards:
            yield Problem(
                "", f"shards_idx: {index}: {shards} shards are counted from 0", f"{name}.shards_idx"
            )
        if entry.get("fraction") == 0:
            yield Problem(
                "", "fraction: 0: no row is left; leave the entry out", f"{name}.fraction"
            )
    share = config.get("val_set_size")
    if isinstance(share, float) and share > 1 and share != int(share):
        yield Problem(
            "",
            f"val_set_size: {share}: takes a share below 1, or a number of rows",
            "val_set_size",
        )


def check_sources(subject: Subject) -> Iterator[Problem]:
    """Yield entries whose files are not here, as far as their names say that they are files."""
    config = subject.config
    own = config.is_true("nemo_gym_enabled") or config.get("verifiers.environment")
    if config.text("base_model") is None or own:
        return
    for name, entry in entries(config):
        path = str(entry.get("path", ""))
        listed = entry.get("data_files")
        files = (
            [str(f) for f in listed]
            if isinstance(listed, list)
            else [str(listed)]
            if listed
            else []
        )
        if not path and not files:
            yield Problem("", f"{name}: names no source; set path", name)
        folder = Path(path).expanduser()
        if path in _FILE_TYPES or not path:
            if path and not files:
                yield Problem("", f"{path}: names no file; set data_files", f"{name}.path")
            yield from (_absent(f, f"{name}.data_files") for f in files if not _is_here(f))
        elif not _is_here(path) and _is_file_name(path):
            yield _absent(path, f"{name}.path")
        elif folder.is_dir():
            missing = [f for f in files if not _is_here(str(folder / f))]
            yield from (_absent(str(folder / f), f"{name}.data_files") for f in missing)


def _absent(path: str, key: str) -> Problem:
    return Problem("", f"datasets: {path}: no such file or folder", key)


def _is_here(path: str) -> bool:
    # A variable that is not set is told by the key that names it.
    return "://" in path or any(c in path for c in "*?[$") or Path(path).expanduser().exists()


def _is_file_name(path: str) -> bool:
    """Tell whether a path can be no dataset of the hub."""
    return path.startswith((".", "/", "~")) or path.count("/") > 1 or Path(path).suffix in _SUFFIXES


def check_types(subject: Subject) -> Iterator[Problem]:
    """Yield what is wrong with the options of types: their names, their values, their formats."""
    for name, entry, reading in subject.readings:
        if reading.function:
            continue
        try:
            _check_options(entry, reading)
        except FmtkitError as error:
            place = "options" if "options" in entry else "type"
            yield Problem("", str(error), f"{name}.{place}")


def absent_functions(config: Config, readings: Iterable[Reading]) -> list[str]:
    """Return what keeps types that are functions of the user's from being found here."""
    places = (*map(Path, plugin_files(config)), *places_of(config.source))
    return [
        f"{reason} (needed to train)"
        for reading in readings
        if reading.function and (reason := _absent_function(reading.type, places))
    ]


def _absent_function(name: str, places: tuple[Path, ...]) -> str | None:
    try:
        function = find_function(name, places)
    except OptionError as error:
        return str(error)
    text = function.file.read_text(encoding="utf-8", errors="replace")
    if re.search(rf"^\s*(?:def {function.name}\b|{function.name}\s*=)", text, re.MULTILINE):
        return None
    return f"type {name}: {function.file} defines no {function.name}"


def _check_options(entry: Entry, reading: Reading) -> None:
    """Raise what the first converter raises, if there is none that takes the options."""
    columns = entry.get("columns")
    mapping = {str(k): str(v) for k, v in columns.items()} if isinstance(columns, Mapping) else {}
    source = reading.source or reading.type
    errors = []
    for converter in registry.named(source):
        if converter.makes.name() not in reading.tables and converter.makes.name() != "Ranking":
            continue
        try:
            made = type_options.resolve(converter, mapping, reading.options)
            known = [n for n in PLACEHOLDERS if n in converter.columns]
            for option, value in made.values.items():
                if option.endswith("_format") and isinstance(value, str):
                    parse_format(option, value, dict.fromkeys(known))
        except FmtkitError as error:
            errors.append(error)
            continue
        return
    if errors:
        raise errors[0]


def check_template(subject: Subject) -> Iterator[Problem]:
    """Yield templates that are not there, or that do not compile."""
    config = subject.config
    named = [("chat_template", config.text("chat_template"))]
    named += [
        (f"{name}.chat_template", str(entry["chat_template"]))
        for name, entry in entries(config)
        if "chat_template" in entry
    ]
    for key, name in named:
        if name == "jinja" and not _has_text(config, key):
            yield Problem(
                "", f"{key}: jinja: the template's text is missing; set chat_template_jinja", key
            )
        elif name not in {
            None,
            "jinja",
            "identity",
            template_sources.TOKENIZER_DEFAULT,
            *template_sources.OF_THE_TOKENIZER,
        }:
            yield from _template(str(name), key)
    text = config.text("chat_template_jinja")
    if text is not None:
        yield from _compiled(text)


def _has_text(config: Config, key: str) -> bool:
    own = key.rpartition(".")[0]
    entry = dict(entries(config)).get(own, {})
    return bool(config.get("chat_template_jinja") or entry.get("chat_template_jinja"))


def _template(name: str, key: str) -> Iterator[Problem]:
    name = name.removeprefix(datatypes.FALLBACK)
    try:
        template_sources.find_model_template(name)
    except FmtkitError as error:
        yield Problem("", f"{key}: {error}", key)


def _compiled(text: str) -> Iterator[Problem]:
    from jinja2 import TemplateSyntaxError
    from jinja2.sandbox import ImmutableSandboxedEnvironment

    if "\n" not in text and Path(text).expanduser().is_file():
        text = Path(text).expanduser().read_text(encoding="utf-8")
    try:
        ImmutableSandboxedEnvironment(extensions=["jinja2.ext.loopcontrols"]).parse(text)
    except TemplateSyntaxError as error:
        yield Problem(
            "", f"chat_template_jinja: line {error.lineno}: {error.message}", "chat_template_jinja"
        )
