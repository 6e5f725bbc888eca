"""The datasets of a run: converted once into the run folder, and reused while nothing changed.

The key of a converted dataset is a hash over what it is made of: the bytes of the source, the
type and its options, the template, the tokenizer, lengths, split and the version of fmtkit.
"""

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from functools import partial
from hashlib import sha256
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fmtkit.core import atomic, hub_access
from fmtkit.core.credentials import public
from fmtkit.core.data_classes import dataclass
from fmtkit.core.errors import NothingWrittenError, OptionError
from fmtkit.core.image_columns import IMAGES
from fmtkit.core.tables import TABLES
from fmtkit.formats import registry
from fmtkit.options.convert_options import ConvertOptions
from fmtkit.reading.bound_column import Row
from fmtkit.rows.user_functions import find_function
from fmtkit.running.progress_bar import Watch
from fmtkit.sources.paths import local_files
from fmtkit.sources.picked import Picked
from fmtkit.sources.splits import check_file
from fmtkit.tokenizers.turn_rule import USUAL_TURNS
from fmtkit.training.config import keys
from fmtkit.training.config.config import Config, Entry
from fmtkit.training.config.slices import Slice, choice
from fmtkit.training.config.user_objects import places_of
from fmtkit.training.data import data_report, mixture
from fmtkit.training.data.convert_first import convert_first
from fmtkit.training.planning.chat_templates import template_source
from fmtkit.training.planning.dataset_entries import SEED, turn_rule
from fmtkit.training.planning.image_facts import has_column
from fmtkit.training.planning.job import WITHOUT, Source
from fmtkit.training.planning.plugin_entries import plugin_files
from fmtkit.training.planning.resolve import length_policy
from fmtkit.training.planning.run_plan import Plan
from fmtkit.training.planning.types import DatasetPlan
from fmtkit.writing.journal import VERSION

if TYPE_CHECKING:
    from fmtkit.writing.splitting import Split

KEY_SUFFIX = ".key.json"
_DERIVED = frozenset(
    {
        "chat_template",
        "tokenizer",
        "max_length",
        "min_length",
        "on_overlong",
        "val_size",
    }
)
"""Options that depend on more than their own key."""


@dataclass(frozen=True)
class Converted:
    """The files of a dataset, and whether they existed already."""

    train: Source
    evaluation: Source | None
    reused: bool


Watching = Callable[[str], AbstractContextManager[Watch | None]]
"""Returns what follows the conversion of a dataset, given its name."""


def unwatched(_: str) -> AbstractContextManager[None]:
    """Follow no conversion."""
    return nullcontext()


def prepare(
    plan: Plan,
    template_text: str | None,
    *,
    rebuild: bool = False,
    watching: Watching = unwatched,
) -> tuple[tuple[Source, ...], tuple[Source, ...]]:
    """Convert every dataset of a plan and return the sources to train and to evaluate on.

    Where `max_steps` can draw only the first rows of a dataset, only these are converted.
    """
    limits = plan.limits
    first = None if limits is None else limits.first
    entries = [
        _entry(plan, dataset, plan.run / "data" / f"{index:02}", template_text, split=True)
        for index, dataset in enumerate(plan.datasets)
    ]
    if first is not None:
        entries = [replace(one, first=first, key={**one.key, "first": first}) for one in entries]
    done = [
        _one(plan, entry, rebuild=rebuild, watching=watching)
        for entry in _split(entries, rebuild=rebuild)
    ]
    shares = [dataset.entry.get("mixture_share") for dataset in plan.datasets]
    parts = mixture.in_shares(
        [(one.train, one.evaluation) for one in done], shares, plan.config.held_out
    )
    train = [one for one, _ in parts]
    evaluation = [one for _, one in parts if one is not None]
    for index, dataset in enumerate(plan.test_datasets):
        folder = plan.run / "data" / f"test-{index:02}"
        entry = _entry(plan, dataset, folder, template_text, split=False)
        evaluation.append(_one(plan, entry, rebuild=rebuild, watching=watching).train)
    return tuple(train), tuple(evaluation)


@dataclass(frozen=True)
class _Entry:
    """A dataset that is to be converted into a folder, and the key of the result."""

    dataset: DatasetPlan
    folder: Path
    specs: list[object]
    options: ConvertOptions
    key: dict[str, object]
    first: int | None = None
    """How many rows are enough; None for all."""

    def is_there(self, *, rebuild: bool) -> bool:
        """Return whether the folder already holds the result."""
        return not rebuild and _stored(self.folder) == self.key


def _entry(
    plan: Plan, dataset: DatasetPlan, folder: Path, template_text: str | None, *, split: bool
) -> _Entry:
    selection = plan.slice_of(dataset)
    specs, identity = specs_of(dataset, selection)
    options = options_of(plan, dataset, selection, local=bool(identity), split=split)
    key = _key(identity or [dataset.source], options, template_text, plan)
    key["rows"] = [
        selection.text,
        None if selection.shard is None else list(vars(selection.shard).values()),
    ]
    return _Entry(dataset, folder, specs, options, key)


def _split(entries: Sequence[_Entry], *, rebuild: bool) -> list[_Entry]:
    """Choose the rows of all datasets together to evaluate on."""
    options = [entry.options for entry in entries]
    if not any(one.val_size is not None for one in options):
        return list(entries)
    together = [entry.key for entry in entries]
    keyed = [replace(entry, key={**entry.key, "split_with": together}) for entry in entries]
    if all(entry.is_there(rebuild=rebuild) for entry in keyed):
        return keyed
    splits = shared_splits([entry.specs for entry in entries], options)
    return [
        replace(entry, options=replace(entry.options, split=split))
        for entry, split in zip(keyed, splits, strict=True)
    ]


def shared_splits(
    specs: Sequence[list[object]], options: Sequence[ConvertOptions]
) -> "list[Split | None]":
    """Return the split of each dataset, drawn from all datasets that have one together.

    Raises OptionError where no row would be left to train on.
    """
    from fmtkit.running import preparation
    from fmtkit.running.conversions import open_named, splits_of

    splits: list[Split | None] = [None] * len(specs)
    split = [i for i, one in enumerate(options) if one.val_size is not None]
    if not split:
        return splits
    for plugin in dict.fromkeys(name for one in options for name in one.plugins):
        registry.load_plugin(plugin)
    jobs = [
        preparation.prepare(open_named(specs[i], options[i], "never"), options[i]) for i in split
    ]
    first = options[split[0]]
    assert first.val_size is not None
    made = splits_of(jobs, first.val_size, first.seed, first.split_by)
    for i, one in zip(split, made, strict=True):
        splits[i] = one
    return splits


def _one(plan: Plan, entry: _Entry, *, rebuild: bool, watching: Watching) -> Converted:
    dataset, folder, options = entry.dataset, entry.folder, entry.options
    reused = entry.is_there(rebuild=rebuild)
    if not reused:
        key_file = _key_file(folder)
        key_file.unlink(missing_ok=True)
        try:
            _convert(entry, watching)
        except NothingWrittenError as error:
            reason = data_report.why_empty(error, options.max_length, plan.runner.cuts)
            raise OptionError(f"datasets: {dataset.source}: {reason}") from error
        atomic.write_json(key_file, entry.key)
    weight = mixture.weight_of(dataset.entry, _files(folder, "train"))
    turns = turns_of(plan.config, dataset)
    held_out = tuple(_files(folder, "validation"))
    files = tuple(_files(folder, "train"))
    columns = _trained_columns(plan, dataset, files) if options.keep else ()
    return Converted(
        Source(files, weight, columns, turns),
        Source(held_out, columns=columns, turns=turns) if held_out else None,
        reused,
    )


def _convert(entry: _Entry, watching: Watching) -> None:
    from fmtkit.running.conversions import convert_to

    options = replace(entry.options, overwrite=True)
    with watching(f"converting {entry.dataset.source}") as watch:
        convert = partial(convert_to, entry.specs, entry.folder, watch=watch)
        if entry.first is None:
            convert(options=options)
        else:
            convert_first(entry.first, options, lambda limited: convert(options=limited))


def _trained_columns(plan: Plan, dataset: DatasetPlan, files: Sequence[str]) -> tuple[str, ...]:
    """Return the columns that the trainer gets of rows that carry others; () for all.

    Reward functions read what is carried through. TRL's other trainers would take `images` for a vision
    dataset and `input_ids` for rows that are tokenized already.
    """
    if "rl" in plan.runner.sections or "rewards" in plan.runner.needs:
        return ()
    import pyarrow.parquet as pq

    columns = {
        name for table in dataset.table.split(" or ") for name in TABLES[table].column_names()
    }
    schemas = [pq.read_schema(file) for file in files]
    if all(map(has_column, schemas)):
        columns |= {IMAGES}
    names = dict.fromkeys(name for schema in schemas for name in schema.names)
    return tuple(name for name in names if name in {*columns, "text"})


def turns_of(config: Config, dataset: DatasetPlan) -> dict[str, object] | None:
    """Return which turns of a dataset are trained on; None for every reply with its end."""
    rule = turn_rule(config, dataset.entry)
    return None if rule == USUAL_TURNS else rule.as_dict()


def _files(folder: Path, split: str) -> list[str]:
    return sorted(str(path) for path in (folder / "data").glob(f"{split}-*.parquet"))


def specs_of(dataset: DatasetPlan, selection: Slice) -> tuple[list[object], list[str]]:
    """Return what the pipeline reads, and its local files; hub datasets have none."""
    entry = dataset.entry
    listed = entry.get("data_files")
    named = (
        [str(f) for f in listed] if isinstance(listed, list) else [str(listed)] if listed else []
    )
    path = str(entry["path"]) if "path" in entry else ""
    local = Path(path).expanduser() if path else None
    if local is not None and local.is_dir() and named:
        named = [str(local / name) for name in named]
    elif local is not None and not named and (local.exists() or any(c in path for c in "*?[")):
        named = [str(local)]
    elif path in {"json", "csv", "parquet", "arrow", "text"} or not path:
        if not named:
            raise OptionError(
                f"datasets: {dataset.source}: no file is named; set path or data_files"
            )
    elif not _is_hub(path):
        raise OptionError(f"datasets: {path}: no such file or folder")
    else:
        return [_hub(entry, path, selection)], []
    return _wanted(dataset, named, selection), named


def first_rows(plan: Plan, dataset: DatasetPlan, *, with_hub: bool = False) -> list[Row]:
    """Return the first valid rows of a dataset's split that `where` takes, before its type reads them.

    Rows of files that are not on this machine are none; those of the hub are loaded if `with_hub`.
    Raises OptionError where a local source has no such split, or `where` is none of its rows; SourceError
    where it cannot be read.
    """
    from fmtkit.reading.where_filter import keep_where
    from fmtkit.running.preparation import sample_of
    from fmtkit.sources.opening import open_sources

    selection = plan.slice_of(dataset)
    specs: list[object] = list(_files_here(dataset, selection.name))
    # A local file that is not there may be one that the run writes before it converts.
    if not specs and with_hub and _is_hub(str(dataset.entry.get("path", ""))):
        specs, _ = specs_of(dataset, selection)
    opened = open_sources(specs, hashed=False) if specs else []
    selected = said_options(plan.config, dataset.entry).get("select")
    for source in keep_where(opened, where_of(plan.config, dataset)):
        if sample := sample_of(source):
            if not selected:
                return sample
            return [{name: row[name] for name in row if name in selected} for row in sample]
    return []


def _files_here(dataset: DatasetPlan, split: str) -> list[str]:
    """Return the files of a dataset's split that are on this machine."""
    entry = dataset.entry
    listed = entry.get("data_files")
    named = listed if isinstance(listed, list) else [listed] if listed else []
    folder = Path(str(entry.get("path", ""))).expanduser()
    if named and folder.is_dir():
        return [str(path) for name in named if (path := folder / str(name)).exists()]
    candidates = [Path(str(name)).expanduser() for name in named] or [folder]
    there = [path for path in candidates if "path" in entry or named if path.exists()]
    asked = split if "split" in entry else None
    return [file for path in there for file in _of_split(str(path), asked)]


def _wanted(dataset: DatasetPlan, named: Sequence[str], selection: Slice) -> list[object]:
    """Return what is read of local files: all files of the split, or a choice of their rows."""
    splits = dict.fromkeys(part.name for part in selection.parts)
    by_split = "data_files" not in dataset.entry
    # Without a split in the entry, files of others are noted.
    asked = "split" in dataset.entry
    files = {
        split: tuple(file for name in named for file in _of_split(name, split if asked else None))
        if by_split
        else tuple(named)
        for split in splits
    }
    for split in () if by_split else splits:
        check_file(f"datasets: {dataset.source}", split)
    if selection.is_whole or selection.limit is not None:
        return list(files[selection.name])
    places = tuple(file for part in selection.parts for file in files[part.name])
    parts = tuple((part, len(_expanded_all(files[part.name]))) for part in selection.parts)
    return [Picked(places, choice(parts, selection.shard))]


def _of_split(name: str, split: str | None) -> tuple[str, ...]:
    """Return the files of a split; raise OptionError where there are none."""
    return tuple(str(file) for file in local_files(name, split))


def _expanded_all(names: Iterable[str]) -> list[str]:
    return [str(file) for name in names for file in local_files(name)]


def _is_hub(path: str) -> bool:
    """Return whether a path that does not exist may be a dataset of the hub."""
    if Path(path).suffix in {
        ".json",
        ".jsonl",
        ".parquet",
        ".csv",
        ".arrow",
        ".gz",
        ".zst",
        ".txt",
    }:
        return False
    return not path.startswith((".", "/", "~")) and path.count("/") <= 1


def _hub(entry: Mapping[str, object], path: str, selection: Slice) -> object:
    """Load a dataset of the hub, or from its cache where there is no network."""
    from datasets import concatenate_datasets, load_dataset

    names = entry.get("name")
    trouble: str | None = None
    try:
        with hub_access.bounded() as trouble:
            parts = [
                load_dataset(
                    path,
                    name,
                    split=selection.text,
                    data_files=entry.get("data_files"),
                    data_dir=entry.get("data_dir"),
                    revision=entry.get("revision"),
                )
                for name in (names if isinstance(names, list) else [names])
            ]
    except (OSError, ValueError) as error:
        reason = str(error).partition("\n")[0]
        cut_off = f"; the hub cannot be reached ({trouble})" if trouble else ""
        raise OptionError(f"datasets: {path}: {reason}{cut_off}") from error
    rows = parts[0] if len(parts) == 1 else concatenate_datasets(parts)
    return rows if selection.shard is None else rows.select(sorted(selection.shard.of(len(rows))))


def options_of(
    plan: Plan, dataset: DatasetPlan, selection: Slice, *, local: bool, split: bool
) -> ConvertOptions:
    """Return the options of a dataset's conversion, as its config sets them.

    `fmtkit train` and `fmtkit convert -c` both use these, so that both make the same rows.
    """
    config = plan.config
    given = said_options(config, dataset.entry)
    length = plan.arguments.max_length
    policy = length_policy(config)
    if policy.startswith("truncate") and plan.trains_on_inputs:
        # Prompts are trained on as well: something is left of every row that is cut.
        policy = "keep"
    limits = [n for n in (given.get("limit"), selection.limit if local else None) if n is not None]
    out: dict[str, Any] = {
        "seed": SEED,
        **{name: value for name, value in given.items() if name not in _DERIVED},
        "type": dataset.reading.type,
        "method": plan.method,
        "options": dict(dataset.reading.options),
        "limit": min(limits, default=None),
        "plugins": plugin_files(config),
        "config": config.source,
        **_form(plan, dataset),
        "rendered_later": plan.template[0] != WITHOUT
        and not (dataset.reading.is_plain or dataset.reading.is_text),
    }
    if dataset.reading.function:
        out |= {"folders": places_of(config.source), "function_config": config.nested()}
    if split and given.get("val_size"):
        out["val_size"] = given["val_size"]
    measures = length is not None and policy != "keep"
    fewest = given.get("min_length")
    if plan.model and (measures or fewest or dataset.table == "Tokens"):
        out["tokenizer"] = plan.tokenizer
        if plan.template[0] != WITHOUT:
            out["chat_template"] = template_source(config, plan.template)
    if plan.model and measures:
        out |= {"max_length": length, "on_overlong": policy}
        out["cut_in_training"] = policy.startswith("truncate")
    if plan.model and fewest:
        out["min_length"] = fewest
    return ConvertOptions(**out)


def where_of(config: Config, dataset: DatasetPlan) -> str | None:
    """Return the condition that chooses the rows of a dataset; None for all of them."""
    where: str | None = said_options(config, dataset.entry).get("where")
    return where


def said_options(config: Config, entry: Entry) -> dict[str, Any]:
    """Return the options of a conversion that a config sets by their keys; those of the entry win."""
    out: dict[str, Any] = {}
    for name, declared in ConvertOptions.declared().items():
        for key in declared.keys:
            bare = key.removeprefix(keys.OF_DATASET)
            value = config.get(key) if bare == key else entry.get(bare)
            if value is not None:
                row = (keys.table() if bare == key else keys.dataset_table())[bare]
                out.setdefault(name, row.translate(value))
    return out


def _form(plan: Plan, dataset: DatasetPlan) -> dict[str, object]:
    """Return the options that say what the columns hold: messages, except for text and tokens."""
    if dataset.table == "Tokens":
        return {"as_": "tokens"}
    # Prompts to sample from may be strings as well: the rows decide.
    open_ended = dataset.reading.function or dataset.reading.type == "passthrough"
    if "rewards" in plan.runner.needs and dataset.reading.template is None and open_ended:
        return {"as_made": True}
    is_text = dataset.reading.is_text or dataset.reading.is_segments
    return {"as_": None if is_text else "messages"}


def _key(
    files: Iterable[str], options: ConvertOptions, template: str | None, plan: Plan
) -> dict[str, object]:
    ignored = options.with_same_rows() | options.beside_options()
    ignored |= {"config", "hash", "split"}
    kept = {name: value for name, value in vars(options).items() if name not in ignored}
    return {
        "fmtkit": version("fmtkit"),
        "version": VERSION,
        "sources": [[public(name), _digest(name)] for file in files for name in _expanded(file)],
        "options": json.loads(public(json.dumps(kept, sort_keys=True, default=str))),
        "template": sha256((template or "").encode()).hexdigest(),
        "tokenizer": _digest(str(Path(plan.tokenizer or "") / "tokenizer.json")),
        "plugins": [_digest(file) for file in options.plugins],
        "function": _function_digest(options),
    }


def _expanded(name: str) -> list[str]:
    path = Path(name)
    if path.is_dir():
        return sorted(str(file) for file in path.rglob("*") if file.is_file())
    if any(c in name for c in "*?["):
        return sorted(
            str(file) for file in Path(path.anchor or ".").glob(str(path.relative_to(path.anchor)))
        )
    return [name]


def _digest(name: str) -> str | None:
    """Return the hash of a file's bytes, or None if it is not a local file."""
    path = Path(name)
    if not path.is_file():
        return None
    digest = sha256()
    with path.open("rb") as file:
        while chunk := file.read(1 << 20):
            digest.update(chunk)
    return digest.hexdigest()


def _function_digest(options: ConvertOptions) -> str | None:
    """Return the hash of the user's file that a type names, or None for a built-in type."""
    if not options.folders:
        return None
    return _digest(str(find_function(options.chosen_type, options.places).file))


def _key_file(folder: Path) -> Path:
    """Return where the key is stored: next to the folder, which holds only the conversion's files."""
    return folder.with_name(folder.name + KEY_SUFFIX)


def _stored(folder: Path) -> object:
    """Return the key of what a folder holds; None if it has none, or an incomplete one."""
    try:
        return json.loads(_key_file(folder).read_text(encoding="utf-8"))
    except (FileNotFoundError, ValueError):
        return None
