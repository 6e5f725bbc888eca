"""What rows of a dataset say that its entry does not: media, and the type or the method that fits them."""

from collections.abc import Mapping, Sequence

from fmtkit.core import runner
from fmtkit.core.errors import FmtkitError, OptionError
from fmtkit.core.message_keys import ROLES
from fmtkit.core.tables import table_for
from fmtkit.detection import detection
from fmtkit.detection.certainty import SURE, certainty
from fmtkit.detection.fits import Fit
from fmtkit.detection.suggestions import methods_for
from fmtkit.formats import registry
from fmtkit.formats.registry import Converter
from fmtkit.reading.bound_column import MEDIA, Row
from fmtkit.training.planning import dataset_entries
from fmtkit.training.planning.run_plan import Plan
from fmtkit.training.planning.types import DatasetPlan

_TAKEN = "image"
"""The kind of media that some methods take; `planning.images` refuses it for the others."""
_KINDS = (_TAKEN, "audio", "video")
_FEW = 3


def implied(plan: Plan, dataset: DatasetPlan, sample: Sequence[Row]) -> str | None:
    """Return the type by which rows of a dataset are read that names none; None for canonical rows.

    Raises OptionError where these first rows cannot be trained on as the config says, with what to write.
    """
    if not sample:
        return None
    media = [_media(row) - {_TAKEN} for row in sample]
    if all(media):
        kinds = ", ".join(sorted({kind for found in media for kind in found}))
        raise _fault(
            dataset, f"the rows hold media ({kinds}), and fmtkit trains on text and images only"
        )
    if "type" in dataset.entry or dataset.entry.get("columns"):
        return None
    read, whole = (_choose(sample, method, dataset) for method in (plan.method, None))
    if read is not None and (plan.config.get("rl") is not None or not _leaves(read, whole, sample)):
        return None
    fits = detection.detect(sample)
    if name := _sure_type(plan, dataset, fits, sample, whole):
        return name
    if fault := _unnamed(plan, fits, read, whole):
        raise _fault(dataset, fault)
    return None


def _fault(dataset: DatasetPlan, reason: str) -> OptionError:
    return OptionError(f"datasets: {dataset.source}: {reason}")


def _sure_type(
    plan: Plan,
    dataset: DatasetPlan,
    fits: Sequence[Fit],
    sample: Sequence[Row],
    whole: Converter | None,
) -> str | None:
    """Return the type that `inspect` is sure of, if the method takes what it makes."""
    if not fits or certainty(fits, sample) != SURE or fits[0].options:
        return None
    converter = _of_trl(fits).converter
    if whole is not None and whole.required >= converter.required:
        return None
    if not _takes(plan, converter):
        return None
    entry = {**dataset.entry, "type": converter.name}
    reading = dataset_entries.read(entry, plan.config, plan.runner)
    # A name of axolotl may mean another type in a config than it does elsewhere.
    is_meant = converter in registry.converters_named(reading.source or reading.type)
    return converter.name if is_meant else None


def _of_trl(fits: Sequence[Fit]) -> Fit:
    """Return the fit of TRL's own dataset type, where the best one reads only some rows of that type."""
    best = fits[0]
    same = (f for f in fits if f.converter.name in dataset_entries.OF_TRL and f.sound >= best.sound)
    made = (best.converter.table, best.converter.text)
    return next((f for f in same if (f.converter.table, f.converter.text) == made), best)


def _unnamed(
    plan: Plan, fits: Sequence[Fit], read: Converter | None, whole: Converter | None
) -> str | None:
    """Return which type, or which method, reads rows of a dataset that names no type."""
    best = next(iter(fits), None)
    # Canonical rows need no type, unless the method takes only what the type makes of them.
    is_canonical = whole is not None and (read is None or whole.required > read.required)
    if whole is not None and best is not None and not _takes(plan, whole):
        is_canonical = is_canonical and not _takes(plan, best.converter)
    converter = whole if is_canonical else None if best is None else best.converter
    if converter is None or (
        not is_canonical and best is not None and (best.mapping or best.options)
    ):
        return None
    name = converter.name
    if _takes(plan, converter):
        if read is not None or is_canonical:
            return None
        return f"the rows name no type, and look like {name}: set type: {name}"
    methods = _methods(converter.table)
    if not methods:
        return None
    unset = "" if plan.config.get("rl") is not None else " (no rl is set)"
    return (
        f"the rows are of table {converter.table}, which {plan.method}{unset} does not take: set rl: "
        f"{' or '.join(methods)}" + ("" if is_canonical else f", and type: {name}")
    )


def _takes(plan: Plan, converter: Converter) -> bool:
    return table_for(converter.table, plan.runner.tables) is not None


def _leaves(read: Converter, whole: Converter | None, sample: Sequence[Row]) -> bool:
    """Return whether a method would leave what makes the rows those of another: a label, or two replies."""
    if whole is not None and whole.required > read.required:
        return True
    return all(row.get("chosen") and row.get("rejected") for row in sample) and not (
        {"chosen", "rejected"} & read.required
    )


def _methods(table: str) -> list[str]:
    """Return the first methods to name for a table: the default one, then those with most of a config."""

    def order(method: str) -> tuple[bool, int]:
        return method != runner.DEFAULT, -len(runner.find(method).sections)

    return sorted(methods_for(table), key=order)[:_FEW]


def _choose(sample: Sequence[Row], method: str | None, dataset: DatasetPlan) -> Converter | None:
    try:
        return detection.choose(
            "passthrough", sample, method=method, mapping={}, source=dataset.source
        )
    except FmtkitError:
        return None


def _media(row: Row) -> set[str]:
    """Return the kinds of media that a row holds, in columns and in parts of messages."""
    found = {name for name in MEDIA if row.get(name)}
    for value in row.values():
        found |= _parts(value)
    return {kind for kind in _KINDS for name in found if name.startswith(kind)}


def _parts(value: object) -> set[str]:
    messages = value if isinstance(value, list) else []
    contents = [m.get("content") for m in messages if isinstance(m, Mapping) and _has_role(m)]
    parts = [p for c in contents if isinstance(c, list) for p in c if isinstance(p, Mapping)]
    return {str(part.get("type")) for part in parts if str(part.get("type")).startswith(_KINDS)}


def _has_role(message: Mapping[str, object]) -> bool:
    return message.get("role") in ROLES
