"""Detection of prerendered text, from the first rows, for types that take text or messages (`passthrough`).

Prerendered text is trained on unchanged; the template renders only the messages beside it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from fmtkit.core.errors import ColumnMismatchError
from fmtkit.core.tables import Segments
from fmtkit.detection import detection
from fmtkit.formats import registry, typenames
from fmtkit.formats.registry import Converter
from fmtkit.reading.bound_column import Row
from fmtkit.training.data import datasets
from fmtkit.training.planning import chat_templates, dataset_entries, implied_types
from fmtkit.training.planning.job import WITHOUT
from fmtkit.training.planning.run_plan import Plan
from fmtkit.training.planning.types import DatasetPlan


def settled(plan: Plan, *, with_hub: bool) -> Plan:
    """Return the plan with each dataset marked that holds prerendered text.

    Local datasets are read, and those of the hub too if `with_hub`.

    Raises OptionError if a dataset of the hub cannot be loaded, or if rows of a dataset that names no type
    are for another type or method.
    """
    train, test = (
        tuple(_with_reading(plan, dataset, with_hub=with_hub) for dataset in listed)
        for listed in (plan.datasets, plan.test_datasets)
    )
    made = plan
    if (train, test) != (plan.datasets, plan.test_datasets):
        readings = tuple(dataset.reading for dataset in (*train, *test))
        template = chat_templates.template_of(plan.config, readings)
        made = replace(plan, datasets=train, test_datasets=test, template=template)
    notes = [*_implied_types(plan, made), *_idle_template(made)]
    return replace(made, notes=(*made.notes, *notes)) if notes else made


def _implied_types(plan: Plan, made: Plan) -> list[str]:
    """Return a note on each dataset that names no type, and whose rows say which it is."""
    pairs = zip(plan.all_datasets, made.all_datasets, strict=True)
    return [
        f"{after.source}: names no type, and the rows are {after.reading.type} ({after.table})"
        for before, after in pairs
        if "type" in after.entry and "type" not in before.entry
    ]


def _idle_template(plan: Plan) -> list[str]:
    """Return a note on a template that renders no row, since all are text; a reward may ask for it."""
    readings = tuple(dataset.reading for dataset in plan.all_datasets)
    name, origin = plan.template
    if name == WITHOUT or not chat_templates.is_plain(readings) or "rewards" in plan.runner.needs:
        return []
    return [
        f"{origin.removeprefix('key ')}: {name} renders no row, since all are text; the tokenizer is saved "
        "with it, as by TRL. Leave it out, or give rows of messages"
    ]


def _with_reading(plan: Plan, dataset: DatasetPlan, *, with_hub: bool) -> DatasetPlan:
    source = None if dataset.reading.function else typenames.read(dataset.reading.type).source
    if source is None or not _depends_on_rows(source):
        return dataset
    sample = datasets.first_rows(plan, dataset, with_hub=with_hub)
    if name := implied_types.implied(plan, dataset, sample):
        dataset = _of_type(plan, dataset, name)
        source = dataset.reading.source or name
        if not _depends_on_rows(source):
            return dataset
    chosen = _chosen_converter(plan, dataset, source, sample)
    if chosen is None or not (chosen.text or dataset_entries.is_plain(chosen)):
        return dataset
    if not chosen.text:
        return replace(dataset, reading=replace(dataset.reading, is_plain=True))
    is_segments = chosen.makes is Segments
    reading = replace(dataset.reading, is_text=not is_segments, is_segments=is_segments)
    if is_segments:
        reading = replace(reading, tables=(chosen.table,))
    return replace(dataset, reading=reading)


def _of_type(plan: Plan, dataset: DatasetPlan, name: str) -> DatasetPlan:
    """Return a dataset that names no type as if it had named this one."""
    entry = {**dataset.entry, "type": name}
    reading = dataset_entries.read(entry, plan.config, plan.runner)
    return replace(dataset, entry=entry, reading=reading)


def _depends_on_rows(source: str) -> bool:
    """Return whether only the rows say if a type's converter makes text, messages or neither."""
    converters = registry.converters_named(source)
    return len({(c.text, dataset_entries.is_plain(c)) for c in converters}) > 1


def _chosen_converter(
    plan: Plan, dataset: DatasetPlan, name: str, sample: Sequence[Row]
) -> Converter | None:
    """Return the converter that fits the first rows of a dataset; None without rows or a fit."""
    columns = dataset.entry.get("columns")
    mapping = {str(k): str(v) for k, v in columns.items()} if isinstance(columns, Mapping) else {}
    fields = dataset.reading.options.items()
    mapping |= {k.removeprefix("field_"): str(v) for k, v in fields if k.startswith("field_")}
    if not sample:
        return None
    try:
        return detection.choose(
            name, sample, method=plan.method, mapping=mapping, source=dataset.source
        )
    except ColumnMismatchError:
        # The conversion will report the missing columns.
        return None
