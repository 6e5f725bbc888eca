"""`fmtkit inspect -c CONFIG`: the datasets of a training config as its run reads and trains on them."""

from collections.abc import Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

from fmtkit.converting.progress_bar import Watch
from fmtkit.core.errors import OptionError
from fmtkit.counting.anchors import AnchorRule
from fmtkit.inspection.inspect_options import InspectOptions
from fmtkit.inspection.inspection import Inspection, run
from fmtkit.inspection.masks import Masking
from fmtkit.training.config import config_words
from fmtkit.training.config.slices import wish_of
from fmtkit.training.data.datasets import options_of, specs_of, turn_rule
from fmtkit.training.planning.dataset_entries import template_source
from fmtkit.training.planning.plan import DatasetPlan, Plan, plan
from fmtkit.training.planning.prerendered import settled
from fmtkit.training.run.job import WITHOUT


def inspect_config(
    config: str | Path,
    sources: Sequence[object],
    options: InspectOptions,
    watch: Watch | None = None,
) -> list[tuple[str, Inspection]]:
    """Return the source of each dataset of a config, and what an inspection by its keys finds there.

    Flags that were given win over the config's keys. Raises what `inspection.run` raises; OptionError
    if sources are given as well, or there is no dataset.
    """
    if sources:
        raise OptionError("-c names the sources; give either SOURCE or -c")
    made = settled(plan(config, partial=True), with_hub=False)
    if not made.datasets:
        raise OptionError(f"{config}: no datasets: to inspect")
    datasets = (*made.datasets, *made.test_datasets)
    with config_words.advice(made.config, options.chosen()):
        return [(dataset.source, _inspected(made, dataset, options, watch)) for dataset in datasets]


def _inspected(
    made: Plan, dataset: DatasetPlan, given: InspectOptions, watch: Watch | None
) -> Inspection:
    wish = wish_of(dataset.entry, made.config.get("seed"))
    specs, local = specs_of(dataset, wish)
    own = options_of(made, dataset, wish, local=bool(local), split=False)
    typed = given.chosen()
    typed.pop("config", None)
    limit = own.max_length or _max_length(made)
    values: dict[str, Any] = own.of_sources() | {
        "columns": {**own.columns, **typed.pop("columns", {})},
        "options": {**own.options, **typed.pop("options", {})},
        "tokenizer": own.tokenizer or _tokenizer(made),
        "chat_template": _template(made, dataset),
        "train_on_inputs": made.config.is_true("train_on_inputs"),
        "assistant_only": made.config.get("assistant_only_loss") is True,
        "max_length": () if limit is None else (limit,),
    }
    # A keyword, as no module but a runner's names a section as text.
    options = replace(replace(given, ebft=_anchors(made)), **{**values, **typed})
    # Every row is looked at, those too long as well: what a length cuts is reported.
    uncut: dict[str, Any] = {"max_length": None, "on_overlong": "keep"}
    reading = options.of_sources()
    # By what a model's text is made, and where the config's functions are, is the dataset's own.
    for name in ("tokenizer", "chat_template", "plugins"):
        del reading[name]
    rows = replace(
        own,
        **reading,
        **({} if dataset.table == "Tokens" else uncut),
        cut_in_training=False,
    )

    def masks(usual: Masking) -> Masking:
        return replace(usual, turns=turn_rule(made.config, dataset.entry), max_length=limit)

    return run(specs, options, rows, masks, watch)


def _template(made: Plan, dataset: DatasetPlan) -> str | None:
    named_by_type = made.template[1].startswith(("type ", "prerendered text"))
    if made.template[0] == WITHOUT or dataset.reading.is_segments or named_by_type:
        return None
    if made.template[1] == "default" and _tokenizer(made) is None:
        return None
    return template_source(made.config, made.template)


def _tokenizer(made: Plan) -> str | None:
    """Return the model's tokenizer where it is on this machine: an inspection needs no network."""
    name = made.config.text("tokenizer_config") or made.model
    return name if name is not None and Path(name).expanduser().is_dir() else None


def _max_length(made: Plan) -> int | None:
    limit = made.resolution.trainer.get("max_length") or made.resolution.own.get("max_length")
    return limit.value if limit is not None and isinstance(limit.value, int) else None


def _anchors(made: Plan) -> dict[str, object]:
    known = {entry.name for entry in fields(AnchorRule)}
    sections = made.resolution.sections.values()
    return {a.name: a.value for section in sections for a in section.values() if a.name in known}
