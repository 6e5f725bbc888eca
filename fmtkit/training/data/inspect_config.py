"""`fmtkit inspect -c CONFIG`: the datasets of a training config as its run reads and trains on them."""

from collections.abc import Sequence
from dataclasses import asdict, fields, replace
from pathlib import Path
from typing import Any

from fmtkit.core.errors import OptionError
from fmtkit.counting.anchors import AnchorRule
from fmtkit.inspection.inspection import Inspection, run
from fmtkit.inspection.row_observer import RowObserver
from fmtkit.masks.masking import Masking
from fmtkit.options.inspect_options import InspectOptions
from fmtkit.running.progress_bar import Watch
from fmtkit.training.config import config_words
from fmtkit.training.data.datasets import options_of, specs_of
from fmtkit.training.data.loss_rules import LossRule
from fmtkit.training.data.prerendered import settled
from fmtkit.training.planning.chat_templates import template_source
from fmtkit.training.planning.dataset_entries import turn_rule
from fmtkit.training.planning.job import WITHOUT
from fmtkit.training.planning.plan import plan
from fmtkit.training.planning.run_plan import Plan
from fmtkit.training.planning.types import DatasetPlan


def inspect_config(
    config: str | Path,
    sources: Sequence[object],
    options: InspectOptions,
    watch: Watch | None = None,
    observer: RowObserver | None = None,
) -> list[tuple[str, Inspection]]:
    """Return the source of each dataset of a config, and what an inspection by its keys finds there.

    Flags that were given win over the config's keys. Raises what `inspection.run` raises; OptionError
    if sources are given as well, or there is no dataset.
    """
    if sources:
        raise OptionError("-c names the sources; give either SOURCE or -c")
    run_plan = settled(plan(config, partial=True), with_hub=False)
    if not run_plan.datasets:
        raise OptionError(f"{config}: no datasets: to inspect")
    datasets = (*run_plan.datasets, *run_plan.test_datasets)
    with config_words.advice(run_plan.config, options.chosen()):
        return [
            (dataset.source, _inspected(run_plan, dataset, options, watch, observer))
            for dataset in datasets
        ]


def _inspected(
    run_plan: Plan,
    dataset: DatasetPlan,
    given: InspectOptions,
    watch: Watch | None,
    observer: RowObserver | None,
) -> Inspection:
    selection = run_plan.slice_of(dataset)
    specs, local = specs_of(dataset, selection)
    configured = options_of(run_plan, dataset, selection, local=bool(local), split=False)
    typed = given.chosen()
    typed.pop("config", None)
    limit = configured.max_length or run_plan.arguments.max_length
    loss = LossRule.of_plan(run_plan)
    values: dict[str, Any] = configured.of_sources() | {
        "columns": {**configured.columns, **typed.pop("columns", {})},
        "options": {**configured.options, **typed.pop("options", {})},
        "tokenizer": configured.tokenizer or _tokenizer(run_plan),
        "chat_template": _template(run_plan, dataset),
        "train_on_inputs": loss.train_on_inputs,
        "assistant_only": loss.assistant_only,
        **asdict(loss.by_origin),
        "max_length": () if limit is None else (limit,),
    }
    # A keyword argument: only a runner's module may name a section in a string.
    options = replace(replace(given, ebft=_anchors(run_plan)), **{**values, **typed})
    # Every row is inspected, even one that is too long: what a length cuts is reported.
    uncut: dict[str, Any] = {"max_length": None, "on_overlong": "keep"}
    reading = options.of_sources()
    # The tokenizer, the template and the plugins stay those of the dataset.
    for name in ("tokenizer", "chat_template", "plugins"):
        del reading[name]
    rows = replace(
        configured,
        **reading,
        **({} if dataset.table == "Tokens" else uncut),
        cut_in_training=False,
    )

    def masks(usual: Masking) -> Masking:
        # Flags that were typed win over the config's keys.
        all_of = frozenset() if {"train_on_inputs", "assistant_only"} & {*typed} else loss.all_of
        rule = turn_rule(run_plan.config, dataset.entry)
        return replace(usual, turns=rule, max_length=limit, all_of=all_of)

    return run(specs, options, rows, masks, watch, observer)


def _template(run_plan: Plan, dataset: DatasetPlan) -> str | None:
    named_by_type = run_plan.template[1].startswith("type ")
    if run_plan.template[0] == WITHOUT or dataset.reading.is_segments or named_by_type:
        return None
    if run_plan.template[1] == "default" and _tokenizer(run_plan) is None:
        return None
    return template_source(run_plan.config, run_plan.template)


def _tokenizer(run_plan: Plan) -> str | None:
    """Return the model's tokenizer where it is on this machine: an inspection needs no network."""
    name = run_plan.tokenizer
    return name if name is not None and Path(name).expanduser().is_dir() else None


def _anchors(run_plan: Plan) -> dict[str, object]:
    known = {entry.name for entry in fields(AnchorRule)}
    sections = run_plan.arguments.sections.values()
    return {a.name: a.value for section in sections for a in section.values() if a.name in known}
