"""The first rows of each local dataset, converted as the run will convert them.

They go the way of all rows: the options of the run, its template and its tokenizer. A file whose first rows
are all bad is looked into further, so that only what leaves nothing to train on stops a run.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from fmtkit.core import hub_access
from fmtkit.core.errors import FmtkitError, TokenizerError
from fmtkit.core.escaping import one_line
from fmtkit.core.tables import final_rows
from fmtkit.options.convert_options import ConvertOptions
from fmtkit.rendering.content_parts import NO_IMAGES
from fmtkit.running.conversions import RowStream, open_named
from fmtkit.sources.picked import Picked
from fmtkit.training.config.slices import Slice
from fmtkit.training.data import datasets
from fmtkit.training.planning import chat_templates, dataset_entries
from fmtkit.training.planning.job import WITHOUT
from fmtkit.training.planning.run_plan import Plan
from fmtkit.training.planning.types import DatasetPlan, FirstRows

FIRST, FURTHER = 64, 4096
"""Rows that are converted, and rows that are where none of the first ones is good."""
FILES = 16
"""Files of a dataset whose first rows are converted; the columns of all files are checked."""
_UNLIMITED = 1 << 30
"""A length that no row has: rows are rendered to be measured, as the trainer will render them."""


def look(plan: Plan) -> dict[str, FirstRows]:
    """Return the first rows of each dataset whose files are on this machine, by its dotted name."""
    return {
        dataset.name: _look_at(plan, dataset)
        for dataset in plan.all_datasets
        if is_local(dataset)
        and not dataset_entries.absent_functions(plan.config, [dataset.reading])
    }


def is_local(dataset: DatasetPlan) -> bool:
    """Return whether the files of a dataset are on this machine."""
    names = _names(dataset)
    if any("://" in name for name in names):
        return False
    return any(
        any(c in name for c in "*?[") or Path(name).expanduser().exists() for name in names if name
    )


def _names(dataset: DatasetPlan) -> list[str]:
    listed = dataset.entry.get("data_files")
    files = listed if isinstance(listed, list) else [listed] if listed else []
    return [*map(str, files), str(dataset.entry.get("path", ""))]


def _look_at(plan: Plan, dataset: DatasetPlan) -> FirstRows:
    try:
        selection = plan.slice_of(dataset)
        files = _files(dataset, selection)
        options = datasets.options_of(plan, dataset, selection, local=True, split=False)
        options = replace(options, workers=1, engine="threads", **_certain(plan, options))
        if len(files) > 1:
            # The columns of every file are checked; rows of the first few are converted.
            RowStream(files, options)
        # Alone, a file may lack a column that `where` names and another file has.
        alone = options.where is None
        looked = [[name] for name in files[:FILES]] if alone else [files]
        parts = [_converted(each, options, FIRST) for each in looked]
        found = _joined(parts, may_be_all=len(files) <= FILES)
        if not (found.written or found.is_all):
            found = _converted(files, options, FURTHER)
        columns = _columns(found) if len(files) <= FILES else None
        at_most = _at_most(plan, files, found, options)
        return replace(found, source=dataset.source, columns=columns, at_most=at_most)
    except FmtkitError as error:
        return FirstRows(dataset.source, error=error)


def _files(dataset: DatasetPlan, selection: Slice) -> list[object]:
    specs, _ = datasets.specs_of(dataset, selection)
    # To choose rows by their position, all of them would have to be counted.
    return [
        name for spec in specs for name in (spec.places if isinstance(spec, Picked) else [spec])
    ]


def _certain(plan: Plan, options: ConvertOptions) -> dict[str, Any]:
    """Return the options by which the first rows fail only where all rows would.

    Rows of messages are rendered even if the run measures no lengths: the trainer will render them.
    """
    out: dict[str, Any] = {}
    if "%" in str(options.max_errors or ""):
        out["max_errors"] = None
    if options.as_ == "tokens":
        return out
    tokenizer = _tokenizer_here(plan)
    if tokenizer is None:
        without = {"tokenizer": None, "chat_template": None, "max_length": None, "min_length": None}
        return out | without | {"on_overlong": "keep", "cut_in_training": False}
    if options.max_length is None and options.min_length is None and plan.template[0] != WITHOUT:
        template = chat_templates.template_source(plan.config, plan.template)
        out |= {"tokenizer": tokenizer, "chat_template": template}
        out |= {"max_length": _UNLIMITED, "on_overlong": "drop"}
    return out


def _tokenizer_here(plan: Plan) -> str | None:
    """Return the tokenizer if it is on this machine and renders; what it lacks is a check of its own."""
    from fmtkit.tokenizers import tokens

    name = plan.tokenizer or ""
    if not Path(name).expanduser().is_dir() and hub_access.cached(name, "tokenizer.json") is None:
        return None
    try:
        loaded = tokens.load(name)
    except TokenizerError:
        return None
    is_its_own = plan.template[0] == chat_templates.TOKENIZER_DEFAULT
    return None if is_its_own and loaded.chat_template is None else name


def _converted(files: Sequence[object], options: ConvertOptions, most: int) -> FirstRows:
    limit = most if options.limit is None else min(most, options.limit)
    rows = RowStream(files, replace(options, limit=limit))
    tables, bad, unseen = [], "", 0
    for piece in rows:
        unseen += sum(NO_IMAGES in reject.message for reject in piece.rejects)
        tables += [final_rows(piece.table)] if piece.table.num_rows else []
        for reject in piece.rejects[: not bad]:
            place = f"row {reject.row}" if reject.line is None else reject.line
            source = rows.job.sources[piece.source].name
            bad = one_line(f"{source}:{place}: {reject.code}: {reject.message}")
    ledger = rows.ledger
    return FirstRows(
        tables=tuple(tables),
        read=ledger.rows_read,
        is_all=ledger.rows_read < limit or limit == options.limit,
        written=ledger.rows_written,
        too_long=ledger.overlong_dropped,
        unseen_images=unseen,
        reasons=dict(ledger.reasons),
        warnings=dict(ledger.warnings),
        bad=bad,
    )


def _columns(found: FirstRows) -> frozenset[str] | None:
    """Return the columns of the rows: those of a file are found in all of it, before any is converted."""
    return frozenset(name for table in found.tables for name in table.column_names) or None


def _joined(parts: Sequence[FirstRows], *, may_be_all: bool) -> FirstRows:
    return FirstRows(
        tables=tuple(table for part in parts for table in part.tables),
        read=sum(part.read for part in parts),
        is_all=may_be_all and all(part.is_all for part in parts),
        written=sum(part.written for part in parts),
        too_long=sum(part.too_long for part in parts),
        unseen_images=sum(part.unseen_images for part in parts),
        reasons=sum((Counter(part.reasons) for part in parts), Counter()),
        warnings=sum((Counter(part.warnings) for part in parts), Counter()),
        bad=next((part.bad for part in parts if part.bad), ""),
    )


def _at_most(
    plan: Plan, files: Sequence[object], found: FirstRows, options: ConvertOptions
) -> int | None:
    """Return how many rows a dataset makes, at most, as far as `val_set_size` needs to know."""
    if found.is_all:
        return found.written
    size = plan.config.held_out
    # Rows that are read show how many are made only where each makes one.
    if not isinstance(size, int) or size < 1 or found.written > found.read:
        return None
    count = 0
    for source in open_named(files, options, "never"):
        for block in source.blocks():
            count += len(block.records())
            if count > size:
                return None
    return count
