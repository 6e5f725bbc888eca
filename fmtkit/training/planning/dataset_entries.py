"""The entries of `datasets` before a row is read: type, table, template and options of each, and its faults.

This is the one place where training meets the names of formats.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from fmtkit.columns.documents import Continuation
from fmtkit.columns.text_formats import PLACEHOLDERS, parse_format
from fmtkit.core.errors import FmtkitError, OptionError
from fmtkit.core.message_keys import FLAGS, ROLES, SHAREGPT_ROLES
from fmtkit.core.runner import Runner
from fmtkit.core.tables import Stepwise, Tokens, table_for
from fmtkit.formats import registry, type_options, typenames
from fmtkit.rendering import template_sources
from fmtkit.rows.user_functions import find_function
from fmtkit.sources.paths import local_files
from fmtkit.tokenizers.turn_rule import TurnRule
from fmtkit.training.config.config import Config, Entry
from fmtkit.training.config.keys import find_key
from fmtkit.training.config.problems import NEEDED, Problem
from fmtkit.training.config.slices import parse_slice
from fmtkit.training.config.user_objects import places_of
from fmtkit.training.planning import chat_templates, hooks
from fmtkit.training.planning.check import check_config
from fmtkit.training.planning.plugin_entries import plugin_files
from fmtkit.training.planning.run_plan import Plan
from fmtkit.training.planning.types import Reading

_OPTION_KEYS = [
    "field_messages",
    "field_chosen",
    "field_rejected",
    "field_tools",
    "field_system",
    "field_thinking",
    "message_property_mappings",
    "roles",
    "drop_system_message",
    "step_separator",
    "max_completion_length",
    "train_on_last_step_only",
    "pairs",
    "split_thinking",
]
OF_TRL = frozenset({"implicit_prompt"})
"""Types that are TRL's own dataset types; canonical rows need none."""
SEED = 42
"""The seed of transformers, if a config sets none."""
_FILE_TYPES = frozenset({"json", "csv", "parquet", "arrow", "text"})
_SUFFIXES = frozenset(
    {".json", ".jsonl", ".parquet", ".csv", ".arrow", ".gz", ".zst", ".txt", ".tsv", ".ndjson"}
)


def read(entry: Entry, config: Config, runner: Runner) -> Reading:
    """Read the type of a dataset's entry and its options.

    Raises UnknownNameError for an unknown type, OptionError for one that the method cannot take.
    """
    options = _options(entry)
    type_ = entry.get("type")
    if str(type_).partition(".")[0] == "chat_template":
        options["roles"] = _with_usual_names(options.get("roles"))
    if isinstance(type_, Mapping):
        tables = _tables("user_defined.default", runner)
        segments = tables == ("Segments",)
        fields = {str(key): value for key, value in type_.items() if value is not None}
        return Reading(
            "user_defined.default",
            tables,
            is_text=not segments,
            is_segments=segments,
            options=options | fields,
        )
    name = _own_name(str(type_ or "passthrough"), config, runner)
    read_name = typenames.read(name, functions=True)
    if read_name.function:
        return Reading(name, runner.tables, options=options, function=True)
    options = {**read_name.options, **options}
    tables = _tables(read_name.source, runner)
    options = {
        name: config.get(key)
        for key, name in _options_by_keys(config)
        if _takes(read_name.source, name)
    } | options
    return Reading(
        name,
        tables,
        template=read_name.template,
        is_text=all(c.text for c in registry.converters_named(read_name.source))
        and tables != ("Segments",),
        is_segments=tables == ("Segments",),
        is_plain=all(map(is_plain, _fitting(read_name.source, runner))),
        options=options,
        source=read_name.source,
    )


def is_plain(converter: registry.Converter) -> bool:
    """Return whether a converter makes rows that are not conversations, so that no template renders them."""
    return converter.makes in (Stepwise, Tokens, Continuation)


def _fitting(source: str, runner: Runner) -> list[registry.Converter]:
    return [c for c in registry.converters_named(source) if table_for(c.table, runner.tables)]


def _with_usual_names(roles: object) -> dict[str, object]:
    """Add the role names that axolotl's `chat_template` knows by default."""
    given = {role: _listed(names) for role, names in _mapping(roles).items()}
    taken = [name for names in given.values() for name in names]
    for canonical, name in {"user": "human", "assistant": "gpt"}.items():
        if name not in taken:
            given[canonical] = [*given.get(canonical, ()), name]
    return dict(given)


def _listed(names: object) -> list[object]:
    return list(names) if isinstance(names, list) else [names]


def notes(config: Config, readings: tuple[Reading, ...]) -> list[str]:
    """Note which template is used, and which keys of the run no dataset's type reads."""
    lines = list(chat_templates.template_notes(config))
    for key, option in _options_by_keys(config):
        if not any(option in r.options for r in readings):
            able = sorted({one.name for one in registry.converters() if option in one.options})
            lines.append(f"{key} changes nothing: it is for datasets of type {', '.join(able)}")
    return lines


def _options_by_keys(config: Config) -> list[tuple[str, str]]:
    """Return the keys that set an option of the datasets' types, and the option of each."""
    keys = {name: find_key(name) for name in config.settings}
    return [
        (name, key.option)
        for name, key in keys.items()
        if key is not None and key.option and config.get(name) is not False
    ]


def tables_of(entry: Entry) -> tuple[str, ...]:
    """Return the tables that a dataset's type makes, where the type determines them."""
    type_ = entry.get("type")
    name = "user_defined.default" if isinstance(type_, Mapping) else str(type_)
    if type_ is None or name == "chat_template" or typenames.read(name, functions=True).function:
        return ()
    tables = tuple(c.table for c in registry.converters_named(typenames.read(name).source))
    if isinstance(type_, Mapping) and not {"field_instruction", "field_output", "format"} & {
        *type_
    }:
        # Prompts with chosen and rejected answers have their own fields.
        return tuple(table for table in tables if table != "Segments")
    return tables


def _own_name(name: str, config: Config, runner: Runner) -> str:
    """Return the name under which fmtkit has a type of axolotl, which may depend on the run."""
    meant: dict[str, str] = {}
    for types in runner.hooks(hooks.TYPES):
        meant |= types(config)
    if name in meant:
        return meant[name]
    # axolotl's `alpaca` is the prompt text of Stanford Alpaca; fmtkit's makes messages of such rows.
    return "alpaca:instruct" if name == "alpaca" and "Segments" in runner.tables else name


def _tables(source: str, runner: Runner) -> tuple[str, ...]:
    """Return the tables that a type makes for a method, or raise OptionError if it makes none."""
    tables = tuple(dict.fromkeys(c.table for c in registry.converters_named(source)))
    fitting = [table for name in tables if (table := table_for(name, runner.tables))]
    if not fitting:
        raise OptionError(
            f"type {source} makes {' or '.join(tables)}, but {runner.method} takes "
            f"{' or '.join(runner.tables)}; `fmtkit types` lists what fits"
        )
    return tuple(dict.fromkeys(fitting))


def _takes(source: str, option: str) -> bool:
    return any(option in converter.options for converter in registry.converters_named(source))


def _options(entry: Entry) -> dict[str, object]:
    options = {key: entry[key] for key in _OPTION_KEYS if entry.get(key) is not None}
    if entry.get("message_field_training") not in {None, *FLAGS}:
        options["message_field_training"] = entry["message_field_training"]
    detail = "message_field_training_detail"
    if entry.get(detail) not in {None, "train_detail"}:
        options[detail] = entry[detail]
    if entry.get("field") is not None:
        options["field_text"] = entry["field"]
    options |= _mapping(entry.get("options"))
    mappings = _mapping(options.get("message_property_mappings"))
    for short, key in (("message_field_role", "role"), ("message_field_content", "content")):
        if short in entry:
            mappings[key] = entry[short]
    return options | ({"message_property_mappings": mappings} if mappings else {})


def _mapping(value: object) -> dict[str, object]:
    return {str(key): item for key, item in value.items()} if isinstance(value, Mapping) else {}


def entries(config: Config) -> dict[str, Entry]:
    """Return the entries of all datasets by their dotted names."""
    named = {f"datasets.{number}": entry for number, entry in enumerate(config.datasets)}
    return named | {f"test_datasets.{n}": entry for n, entry in enumerate(config.test_datasets)}


@check_config(
    "split",
    "config",
    "invalid or empty slices, and shards that do not exist",
    keys=(
        *("datasets.split", "datasets.shards", "datasets.shards_idx", "datasets.fraction"),
        "val_set_size",
    ),
)
def check_slices(plan: Plan) -> Iterator[Problem]:
    """Yield what is wrong with splits, shards and shares."""
    config = plan.config
    for name, entry in entries(config).items():
        try:
            if "split" in entry:
                parse_slice(str(entry["split"]))
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


@check_config(
    "mixture",
    "config",
    "shares of a mixture that not every dataset has",
    keys=("datasets.mixture_share",),
)
def check_mixture(plan: Plan) -> Iterator[Problem]:
    """Yield datasets without a share of the mixture that others have, or with a size beside it."""
    shares = {one.name: one.entry.get("mixture_share") for one in plan.datasets}
    if all(share is None for share in shares.values()):
        return
    for one in plan.datasets:
        if shares[one.name] is None:
            yield Problem("", "mixture_share: all entries of datasets have one, or none", one.name)
        for name in ("fraction", "weight", "max_samples"):
            if one.entry.get(name) is not None:
                text = f"{name}: the size of a mixture is that of its shares; leave it out"
                yield Problem("", text, f"{one.name}.{name}")
    if not any(shares.values()):
        yield Problem("", "mixture_share: 0 of every entry leaves no row", "datasets")


@check_config("source", "files", "datasets whose files do not exist")
def check_sources(plan: Plan) -> Iterator[Problem]:
    """Yield entries whose local files do not exist, as far as their names show that they are files."""
    config = plan.config
    if config.is_fragment or "datasets" in plan.runner.provided(config):
        return
    for name, entry in entries(config).items():
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
            yield Problem("", f"{name}: there is no source; set path", name)
        folder = Path(path).expanduser()
        if path in _FILE_TYPES or not path:
            if path and not files:
                yield Problem("", f"{path}: no file is named; set data_files", f"{name}.path")
            yield from (_absent(f, f"{name}.data_files") for f in files if not _is_here(f))
        elif not _is_here(path) and _is_file_name(path):
            yield _absent(path, f"{name}.path")
        elif folder.is_dir() and files:
            missing = [f for f in files if not _is_here(str(folder / f))]
            yield from (_absent(str(folder / f), f"{name}.data_files") for f in missing)
        elif path and "split" in entry and folder.exists():
            yield from _absent_splits(name, path, str(entry["split"]))


def _absent_splits(name: str, path: str, text: str) -> Iterator[Problem]:
    """Yield the splits that a file or folder does not have."""
    try:
        for part in parse_slice(text).parts:
            local_files(path, part.name)
    except FmtkitError as error:
        yield Problem("", f"datasets: {error}", f"{name}.split", type(error))


def _absent(path: str, key: str) -> Problem:
    return Problem("", f"datasets: {path}: no such file or folder", key)


def _is_here(path: str) -> bool:
    # A variable that is not set is reported with the key that names it.
    return "://" in path or any(c in path for c in "*?[$") or Path(path).expanduser().exists()


def _is_file_name(path: str) -> bool:
    """Return whether a path cannot be a dataset of the hub."""
    is_beside = "/" in path and Path(path).parent.is_dir()
    return (
        is_beside
        or path.startswith((".", "/", "~"))
        or path.count("/") > 1
        or Path(path).suffix in _SUFFIXES
    )


@check_config(
    "type_options", "config", "options, columns and formats that a dataset's type does not have"
)
def check_types(plan: Plan) -> Iterator[Problem]:
    """Yield what is wrong with the options of types: names, values, formats."""
    for dataset in plan.all_datasets:
        entry, reading = dataset.entry, dataset.reading
        if reading.function:
            continue
        try:
            _check_options(entry, reading)
        except FmtkitError as error:
            place = "options" if "options" in entry else "type"
            yield Problem("", str(error), f"{dataset.name}.{place}")


def absent_functions(config: Config, readings: Iterable[Reading]) -> list[str]:
    """Return why types that are user functions cannot be found on this machine."""
    of_user = [reading.type for reading in readings if reading.function]
    if not of_user:
        return []
    places = (*map(Path, plugin_files(config)), *places_of(config.source))
    reasons = (_absent_function(name, places) for name in of_user)
    return [f"{reason}{NEEDED}" for reason in reasons if reason]


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
    """Raise the first converter's error, if no converter takes the options."""
    columns = entry.get("columns")
    mapping = {str(k): str(v) for k, v in columns.items()} if isinstance(columns, Mapping) else {}
    source = reading.source or reading.type
    errors = []
    for converter in registry.converters_named(source):
        if converter.table not in reading.tables and converter.table != "Ranking":
            continue
        try:
            values = converter.options
            if mapping or reading.options:
                values = type_options.resolve(converter, mapping, reading.options).values
            known = [n for n in PLACEHOLDERS if n in converter.columns]
            for option, value in values.items():
                if option.endswith("_format") and isinstance(value, str):
                    parse_format(option, value, dict.fromkeys(known))
        except FmtkitError as error:
            errors.append(error)
            continue
        return
    if errors:
        raise errors[0]


@check_config(
    "template",
    "files",
    "chat templates that are unknown, do not exist or do not compile",
    keys=("chat_template", "chat_template_jinja", "datasets.chat_template"),
)
def check_template(plan: Plan) -> Iterator[Problem]:
    """Yield templates that do not exist or do not compile."""
    config = plan.config
    named = [("chat_template", config.text("chat_template"))]
    named += [
        (f"{name}.chat_template", str(entry["chat_template"]))
        for name, entry in entries(config).items()
        if "chat_template" in entry
    ]
    for key, name in named:
        if name == "jinja" and not _has_text(config, key):
            yield Problem(
                "", f"{key}: jinja: the template's text is missing; set chat_template_jinja", key
            )
        elif name not in {None, "jinja", "identity"} and not template_sources.is_of_tokenizer(name):
            yield from _missing_template(str(name), key)
    text = config.text("chat_template_jinja")
    if text is not None:
        yield from _compiled(text)


def _has_text(config: Config, key: str) -> bool:
    entry_key = key.rpartition(".")[0]
    entry = dict(entries(config)).get(entry_key, {})
    return bool(config.get("chat_template_jinja") or entry.get("chat_template_jinja"))


def _missing_template(name: str, key: str) -> Iterator[Problem]:
    name = name.removeprefix(chat_templates.FALLBACK)
    try:
        template_sources.find_model_template(name)
    except FmtkitError as error:
        yield Problem("", f"{key}: {error}", key)


def _compiled(text: str) -> Iterator[Problem]:
    from jinja2 import TemplateSyntaxError
    from jinja2.sandbox import ImmutableSandboxedEnvironment

    from fmtkit.rendering.jinja_environment import environment

    if "\n" not in text and Path(text).expanduser().is_file():
        text = Path(text).expanduser().read_text(encoding="utf-8")
    try:
        environment(ImmutableSandboxedEnvironment).parse(text)
    except TemplateSyntaxError as error:
        yield Problem(
            "", f"chat_template_jinja: line {error.lineno}: {error.message}", "chat_template_jinja"
        )


def turn_rule(config: Config, entry: Mapping[str, object]) -> TurnRule:
    """Read `roles_to_train` and `train_on_eos` of a dataset's entry, or of the run.

    Roles may be the source's own names: `roles` of the entry maps them, and ShareGPT's are known.
    """
    roles, ends = (
        entry[name] if name in entry else config.get(name)
        for name in ("roles_to_train", "train_on_eos")
    )
    ends = entry.get("train_on_eot", ends)
    mapping = entry.get("roles")
    names = dict(SHAREGPT_ROLES | ROLES)
    for canonical, aliases in mapping.items() if isinstance(mapping, Mapping) else ():
        names |= dict.fromkeys([aliases] if isinstance(aliases, str) else aliases, str(canonical))
    known = ["assistant"] if roles is None else roles if isinstance(roles, list) else [roles]
    chosen = tuple(dict.fromkeys(names.get(str(role), str(role)) for role in known))
    return TurnRule(chosen, "turn" if ends is None else str(ends))  # type: ignore[arg-type]
