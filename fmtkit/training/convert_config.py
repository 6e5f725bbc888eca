"""`fmtkit convert -c CONFIG`: the datasets of a training config, converted and nothing else."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from fmtkit import registry
from fmtkit.converting.conversion_run import Watcher
from fmtkit.converting.conversions import (
    convert_to,
    open_named,
    refuse_output,
    with_split,
    write_jobs,
)
from fmtkit.converting.convert_options import ConvertOptions, check_options
from fmtkit.converting.preparation import prepare
from fmtkit.converting.run_report import Report
from fmtkit.errors import OptionError
from fmtkit.training.datasets import parse_slice, specs_of
from fmtkit.training.planning import DatasetPlan, Plan, plan
from fmtkit.writing.outputs import Destination, destination


def convert_config(
    config: str | Path,
    sources: Sequence[object],
    out: str | Path,
    options: ConvertOptions,
    *,
    watch: Watcher | None = None,
) -> list[Report]:
    """Convert what a config's `datasets:` name; flags that were given win over the config's keys.

    One entry, or several of one table, may go to a file; else OUT is a folder with a subfolder for
    each entry, named as they are counted: 00, 01, ...

    Raises what `convert_to` raises; OptionError if sources are given as well, or there is no dataset.
    """
    if sources:
        raise OptionError("-c names the sources; give either SOURCE or -c")
    check_options(options)
    made = plan(config, partial=True)
    if not made.datasets:
        raise OptionError(f"{config}: no datasets: to convert")
    for plugin in options.plugins:
        registry.load_plugin(plugin)
    entries = [
        (_sources(entry), _options(made, entry, options, Path(config))) for entry in made.datasets
    ]
    target = destination(out)
    if target.format is not None:
        return [_one_file(entries, target, options, watch)]
    folders = [target]
    if len(entries) > 1:
        folders = [Destination(target.path / f"{i:02}", None) for i in range(len(entries))]
    opened = [open_named(specs, chosen.hash) for specs, chosen in entries]
    # Of all before the first is written: the output of one entry may be the source of another.
    names = [source.name for sources in opened for source in sources]
    for folder in folders:
        refuse_output(folder, names, options)
    return [
        convert_to(specs, folder.path, chosen, watch=watch)
        for (specs, chosen), folder in zip(entries, folders, strict=True)
    ]


def _one_file(
    entries: Sequence[tuple[list[object], ConvertOptions]],
    target: Destination,
    options: ConvertOptions,
    watch: Watcher | None,
) -> Report:
    opened = [open_named(specs, chosen.hash) for specs, chosen in entries]
    refuse_output(target, [source.name for sources in opened for source in sources], options)
    jobs = [
        with_split(prepare(sources, chosen.request()), chosen)
        for sources, (_, chosen) in zip(opened, entries, strict=True)
    ]
    return write_jobs(jobs, target, options, watch)


def _sources(entry: DatasetPlan) -> list[object]:
    specs, _ = specs_of(entry, parse_slice(str(entry.entry.get("split", "train"))))
    return specs


def _options(made: Plan, entry: DatasetPlan, given: ConvertOptions, config: Path) -> ConvertOptions:
    """Return the options of an entry: the config's, then what was given on the command line."""
    wish = parse_slice(str(entry.entry.get("split", "train")))
    columns = entry.entry.get("columns")
    named, where = made.template
    template = None if entry.reading.is_text or where == "default" else named
    own = None if entry.reading.template is not None else template
    return replace(
        given,
        type=given.type or entry.reading.type,
        method=given.method or made.method,
        columns={**(columns if isinstance(columns, Mapping) else {}), **given.columns},
        options={**entry.reading.options, **given.options},
        chat_template=given.chat_template or own,
        tokenizer=given.tokenizer or _tokenizer(made),
        limit=given.limit or wish.limit,
        config=str(config),
        folders=(config.resolve().parent,),
        function_config=made.config.nested(),
    )


def _tokenizer(made: Plan) -> str | None:
    """Return the model's tokenizer where it is at hand; a conversion to text needs none."""
    name = made.config.text("tokenizer_config") or made.model
    return name if name is not None and Path(name).is_dir() else None
