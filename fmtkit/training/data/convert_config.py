"""`fmtkit convert -c CONFIG`: the datasets of a training config, converted and nothing else."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from fmtkit.converting.conversions import (
    as_begun,
    convert_to,
    open_named,
    refuse_output,
    to_hub,
    with_split,
    write_jobs,
)
from fmtkit.converting.convert_options import ConvertOptions
from fmtkit.converting.engines import session
from fmtkit.converting.preparation import prepare
from fmtkit.converting.progress_bar import Watch
from fmtkit.converting.run_report import Report
from fmtkit.core.errors import OptionError
from fmtkit.formats import registry
from fmtkit.training.config import config_words
from fmtkit.training.config.slices import wish_of
from fmtkit.training.data.datasets import options_of, shared_splits, specs_of
from fmtkit.training.planning.dataset_entries import template_source
from fmtkit.training.planning.plan import DatasetPlan, Plan, plan
from fmtkit.training.planning.prerendered import settled
from fmtkit.writing.outputs import Destination, destination, hub_folder

_IN_THE_TRAINER = ("fraction", "weight", "max_samples")
"""Keys of a dataset that `fmtkit train` honours while it mixes the converted rows."""


def convert_config(
    config: str | Path,
    sources: Sequence[object],
    out: str | Path,
    options: ConvertOptions,
    *,
    watch: Watch | None = None,
    say: Callable[[str], None] | None = None,
) -> list[Report]:
    """Convert what a config's `datasets:` name to the rows that `fmtkit train` trains on.

    Flags that were given win over the config's keys. One entry, or several of one table, may go to a
    file; else OUT is a folder with a subfolder for each entry, named as they are counted: 00, 01, ...
    `say` receives what of the config concerns only the trainer.

    Raises what `convert_to` raises; OptionError if sources are given as well, or there is no dataset.
    """
    if sources:
        raise OptionError("-c names the sources; give either SOURCE or -c")
    made = settled(plan(config, partial=True), with_hub=False)
    if not made.datasets:
        raise OptionError(f"{config}: no datasets: to convert")
    place = hub_folder(out)
    if place is not None and len(made.datasets) > 1:
        raise OptionError(
            f"OUT {place} holds one dataset, and {config} has {len(made.datasets)}; write a folder"
        )
    # One cluster for all of the datasets.
    with config_words.advice(made.config, options.chosen()), session():
        if place is None:
            return _converted(made, destination(out), options, watch, say or _silent)
        return to_hub(
            place,
            options,
            lambda to, own: _converted(made, destination(to), own, watch, say or _silent),
        )


def _converted(
    made: Plan,
    target: Destination,
    options: ConvertOptions,
    watch: Watch | None,
    say: Callable[[str], None],
) -> list[Report]:
    is_file = target.format is not None
    folders = [target]
    if len(made.datasets) > 1 and not is_file:
        folders = [Destination(target.path / f"{i:02}", None) for i in range(len(made.datasets))]
    options = as_begun(options, folders)
    entries = [_entry(made, entry, options, is_file=is_file) for entry in made.datasets]
    for plugin in dict.fromkeys(name for _, chosen in entries for name in chosen.plugins):
        registry.load_plugin(plugin)
    measured = any(chosen.max_length for _, chosen in entries)
    for note in _notes(made, measured=measured):
        say(note)
    if is_file:
        return [_one_file(entries, target, watch)]
    splits = shared_splits([specs for specs, _ in entries], [chosen for _, chosen in entries])
    entries = [
        (specs, replace(chosen, split=split))
        for (specs, chosen), split in zip(entries, splits, strict=True)
    ]
    opened = [open_named(specs, chosen.hash, chosen.delimiter) for specs, chosen in entries]
    # Of all before the first is written: the output of one entry may be the source of another.
    names = [source.name for sources in opened for source in sources]
    for folder in folders:
        refuse_output(folder, names, options)
    return [
        convert_to(specs, folder.path, chosen, watch=watch)
        for (specs, chosen), folder in zip(entries, folders, strict=True)
    ]


def _silent(_: str) -> None:
    """Ignore a note: the default of `say`."""


def _one_file(
    entries: Sequence[tuple[list[object], ConvertOptions]],
    target: Destination,
    watch: Watch | None,
) -> Report:
    opened = [open_named(specs, chosen.hash, chosen.delimiter) for specs, chosen in entries]
    refuse_output(target, [source.name for sources in opened for source in sources], entries[0][1])
    jobs = [
        with_split(prepare(sources, chosen), chosen)
        for sources, (_, chosen) in zip(opened, entries, strict=True)
    ]
    return write_jobs(jobs, target, entries[0][1], watch)


def _entry(
    made: Plan, entry: DatasetPlan, given: ConvertOptions, *, is_file: bool
) -> tuple[list[object], ConvertOptions]:
    """Return what an entry reads, and its options: the config's, then what was typed."""
    wish = wish_of(entry.entry, made.config.get("seed"))
    specs, local = specs_of(entry, wish)
    own = options_of(made, entry, wish, local=bool(local), split=not is_file)
    typed = given.chosen()
    columns, options = ({**getattr(own, n), **typed.pop(n, {})} for n in ("columns", "options"))
    changed = {**_text(made, entry, own), **typed, "columns": columns, "options": options}
    # One time for all datasets of the config.
    changed["begun"] = given.begun
    return specs, replace(own, **changed)


def _text(made: Plan, entry: DatasetPlan, own: ConvertOptions) -> dict[str, Any]:
    """Return the options that make text where the config or the type names a template."""
    if entry.reading.is_segments:
        return {}
    if entry.table == "Tokens" or entry.reading.is_text:
        # Text of a file is cut where it is written: who knows what trains on it?
        return {"cut_in_training": False}
    if made.template[1] == "default":
        return {"as_": "messages", "as_made": False}
    name = template_source(made.config, made.template)
    chosen = {} if entry.reading.template else {"chat_template": name}
    return {
        "as_": "text",
        "as_made": False,
        "cut_in_training": False,
        "tokenizer": own.tokenizer or _tokenizer(made),
        **chosen,
    }


def _tokenizer(made: Plan) -> str | None:
    """Return the model's tokenizer where it is available, for its special tokens."""
    name = made.config.text("tokenizer_config") or made.model
    return name if name is not None and Path(name).is_dir() else None


def _notes(made: Plan, *, measured: bool) -> list[str]:
    """Note which length is the trainer's default, and which keys have no effect on a conversion."""
    notes = [note for note in made.notes if measured and "sequence_len" in note]
    for entry in made.datasets:
        keys = [key for key in _IN_THE_TRAINER if key in entry.entry]
        if keys:
            named = ", ".join(keys)
            notes.append(f"{entry.source}: all rows are written; {named} acts in `fmtkit train`")
    if made.config.is_true("dataset_exact_deduplication"):
        notes.append("dataset_exact_deduplication acts in `fmtkit train`; equal rows are written")
    return notes
