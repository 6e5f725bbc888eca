"""`fmtkit convert -c CONFIG`: the datasets of a training config, converted and nothing else."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from fmtkit.core.errors import OptionError
from fmtkit.formats import registry
from fmtkit.options.convert_options import ConvertOptions
from fmtkit.reports.fail_on import check_codes
from fmtkit.running.conversions import (
    as_begun,
    convert_to,
    open_named,
    refuse_output,
    to_hub,
    with_split,
    write_jobs,
)
from fmtkit.running.preparation import prepare
from fmtkit.running.progress_bar import Watch
from fmtkit.running.run_report import Report
from fmtkit.training.config import config_words
from fmtkit.training.data.datasets import options_of, shared_splits, specs_of
from fmtkit.training.data.prerendered import settled
from fmtkit.training.planning.chat_templates import TOKENIZER_DEFAULT, template_source
from fmtkit.training.planning.plan import plan
from fmtkit.training.planning.run_plan import Plan
from fmtkit.training.planning.types import DatasetPlan
from fmtkit.work.engines import session
from fmtkit.writing.outputs import Destination, destination, hub_folder

_IN_THE_TRAINER = ("fraction", "mixture_share", "weight", "max_samples")
"""Keys of a dataset that `fmtkit train` honours while it mixes the converted rows."""


def convert_config(
    config: str | Path,
    sources: Sequence[object],
    out: str | Path,
    options: ConvertOptions,
    *,
    watch: Watch | None = None,
    fail_on: Sequence[str] = (),
    say: Callable[[str], None] | None = None,
) -> list[Report]:
    """Convert what a config's `datasets:` name to the rows that `fmtkit train` trains on.

    Flags that were given win over the config's keys. One entry, or several of one table, may go to a
    file; else OUT is a folder with a subfolder for each entry, named by its number: 00, 01, ...
    `say` receives notes on what in the config concerns only the trainer. `fail_on` are codes that the caller
    will look for in the reports.

    Raises what `convert_to` raises; what `check_codes` raises, before a row is read; OptionError if sources
    are given as well, or there is no dataset.
    """
    if sources:
        raise OptionError("-c names the sources; give either SOURCE or -c")
    run_plan = settled(plan(config, partial=True), with_hub=False)
    if not run_plan.datasets:
        raise OptionError(f"{config}: no datasets: to convert")
    # The plan has loaded the plugins of the datasets, which register codes of their own.
    check_codes(fail_on, plugins=options.plugins)
    place = hub_folder(out)
    if place is not None and len(run_plan.datasets) > 1:
        raise OptionError(
            f"OUT {place} holds one dataset, and {config} has {len(run_plan.datasets)}; write a folder"
        )
    # One cluster for all of the datasets.
    with config_words.advice(run_plan.config, options.chosen()), session():
        if place is None:
            return _converted(run_plan, destination(out), options, watch, say or _silent)
        return to_hub(
            place,
            options,
            lambda to, chosen: _converted(run_plan, destination(to), chosen, watch, say or _silent),
        )


def _converted(
    run_plan: Plan,
    target: Destination,
    options: ConvertOptions,
    watch: Watch | None,
    say: Callable[[str], None],
) -> list[Report]:
    is_file = target.format is not None
    folders = [target]
    if len(run_plan.datasets) > 1 and not is_file:
        folders = [
            Destination(target.path / f"{i:02}", None) for i in range(len(run_plan.datasets))
        ]
    options = as_begun(options, folders)
    entries = [_entry(run_plan, entry, options, is_file=is_file) for entry in run_plan.datasets]
    if is_file and any(entry.reading.is_text for entry in run_plan.datasets):
        entries = [
            (specs, chosen if entry.reading.is_text else _as_text(run_plan, chosen))
            for entry, (specs, chosen) in zip(run_plan.datasets, entries, strict=True)
        ]
    for plugin in dict.fromkeys(name for _, chosen in entries for name in chosen.plugins):
        registry.load_plugin(plugin)
    measured = any(chosen.max_length for _, chosen in entries)
    for note in _notes(run_plan, measured=measured):
        say(note)
    if is_file:
        return [_one_file(entries, target, watch)]
    splits = shared_splits([specs for specs, _ in entries], [chosen for _, chosen in entries])
    entries = [
        (specs, replace(chosen, split=split))
        for (specs, chosen), split in zip(entries, splits, strict=True)
    ]
    opened = [open_named(specs, chosen) for specs, chosen in entries]
    # All are checked before the first is written: the output of one entry may be the source of another.
    names = [source.name for sources in opened for source in sources]
    for folder in folders:
        refuse_output(folder, names, options)
    return [
        convert_to(specs, folder.path, chosen, watch=watch)
        for (specs, chosen), folder in zip(entries, folders, strict=True)
    ]


def _as_text(run_plan: Plan, options: ConvertOptions) -> ConvertOptions:
    """Return the options that render messages, since other rows of the file are text."""
    if options.as_ != "messages":
        return options
    tokenizer = options.tokenizer or _tokenizer(run_plan)
    name = template_source(run_plan.config, run_plan.template)
    if name == TOKENIZER_DEFAULT and tokenizer is None:
        raise OptionError(
            "some rows are text and some are messages, and the template of "
            f"{run_plan.model} is not on this machine: set chat_template, or give a folder as OUT"
        )
    return replace(
        options, as_="text", cut_in_training=False, tokenizer=tokenizer, chat_template=name
    )


def _silent(_: str) -> None:
    """Ignore a note: the default of `say`."""


def _one_file(
    entries: Sequence[tuple[list[object], ConvertOptions]],
    target: Destination,
    watch: Watch | None,
) -> Report:
    opened = [open_named(specs, chosen) for specs, chosen in entries]
    refuse_output(target, [source.name for sources in opened for source in sources], entries[0][1])
    jobs = [
        with_split(prepare(sources, chosen), chosen)
        for sources, (_, chosen) in zip(opened, entries, strict=True)
    ]
    return write_jobs(jobs, target, entries[0][1], watch)


def _entry(
    run_plan: Plan, entry: DatasetPlan, given: ConvertOptions, *, is_file: bool
) -> tuple[list[object], ConvertOptions]:
    """Return what an entry reads, and its options: the config's, then what was typed."""
    selection = run_plan.slice_of(entry)
    specs, local = specs_of(entry, selection)
    configured = options_of(run_plan, entry, selection, local=bool(local), split=not is_file)
    typed = given.chosen()
    columns, options = (
        {**getattr(configured, n), **typed.pop(n, {})} for n in ("columns", "options")
    )
    changed = {
        **_text(run_plan, entry, configured),
        **typed,
        "columns": columns,
        "options": options,
    }
    # One start time for all datasets of the config.
    changed["begun"] = given.begun
    return specs, replace(configured, **changed)


def _text(run_plan: Plan, entry: DatasetPlan, configured: ConvertOptions) -> dict[str, Any]:
    """Return the options that make text where the config or the type names a template."""
    if entry.reading.is_segments:
        return {}
    if entry.table == "Tokens" or not entry.reading.needs_template:
        # Text in a file is cut when it is written, since any trainer may read it.
        return {"cut_in_training": False}
    if run_plan.template[1] == "default":
        return {"as_": "messages", "as_made": False}
    name = template_source(run_plan.config, run_plan.template)
    chosen = {} if entry.reading.template else {"chat_template": name}
    return {
        "as_": "text",
        "as_made": False,
        "cut_in_training": False,
        "tokenizer": configured.tokenizer or _tokenizer(run_plan),
        **chosen,
    }


def _tokenizer(run_plan: Plan) -> str | None:
    """Return the model's tokenizer where it is available, for its special tokens."""
    name = run_plan.tokenizer
    return name if name is not None and Path(name).is_dir() else None


def _notes(run_plan: Plan, *, measured: bool) -> list[str]:
    """Note which length is the trainer's default, and which keys have no effect on a conversion."""
    notes = [note for note in run_plan.notes if measured and "sequence_len" in note]
    for entry in run_plan.datasets:
        keys = [key for key in _IN_THE_TRAINER if key in entry.entry]
        if keys:
            named = ", ".join(keys)
            notes.append(f"{entry.source}: all rows are written; {named} acts in `fmtkit train`")
    if run_plan.config.is_true("dataset_exact_deduplication"):
        notes.append("dataset_exact_deduplication acts in `fmtkit train`; equal rows are written")
    return notes
