"""Whether rows leave something to learn from, where the plan has read all rows of a dataset."""

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from fmtkit.core.errors import OptionError
from fmtkit.tokenizers.turn_rule import TurnRule
from fmtkit.training.config import config_words
from fmtkit.training.config.problems import Problem
from fmtkit.training.planning import checks, images
from fmtkit.training.planning.check import Run, check_run
from fmtkit.training.planning.dataset_entries import SEED, turn_rule
from fmtkit.training.planning.types import TEST
from fmtkit.writing import splitting

if TYPE_CHECKING:
    from fmtkit.training.planning.run_plan import Plan

_ROWS = 64
"""Rows that are turned into Python values at a time: usually the first one has something to learn."""


@check_run("held_out", "files", "a `val_set_size` that leaves no row to train on")
def find_held_out(run: Run) -> Problem | None:
    """Return the problem of a `val_set_size` that leaves no row to train on."""
    size, rows = run.plan.config.held_out, rows_at_most(run)
    if rows is None or not size:
        return None
    if _held_out(run, rows) < rows:
        return _too_few_prompts(run, _held_out(run, rows))
    text = (
        f"val_set_size: {size}: there {'is' if rows == 1 else 'are'} {rows:,} row{'s' * (rows != 1)}, and "
        "some must be left to train on; write a smaller number, or a share below 1"
    )
    return Problem("", text, "val_set_size")


def _too_few_prompts(run: Run, held_out: int) -> Problem | None:
    """Return the problem of prompts that are too few to hold some out whole, where all rows are known."""
    if (run.plan.config.text("split_by") or "prompts") != "prompts" or not _all_rows_are_known(run):
        return None
    if images.has_images(run):
        # The contents of such rows are in parts here, and texts where the conversion holds prompts out.
        return None
    given = run.plan.config.get("seed")
    seed = given if isinstance(given, int) else SEED
    hashes = (splitting.prompt_hashes(splitting.frame_of(t), seed) for t in _tables(run))
    counts = Counter(value for some in hashes for value in some.tolist())
    try:
        splitting.by_rows(counts, held_out, seed)
    except OptionError as error:
        # It speaks of flags; here they are keys.
        return Problem("", config_words.spoken(str(error)), "val_set_size", OptionError)
    return None


def _held_out(run: Run, rows: int) -> int:
    size = run.plan.config.held_out
    return math.ceil(size * rows) if size < 1 else int(size)


def rows_at_most(run: Run) -> int | None:
    """Return how many rows the datasets make, at most; None where that is unknown."""
    counts = [rows.at_most for name, rows in run.first_rows.items() if _is_trained(name)]
    known = [count for count in counts if count is not None]
    return sum(known) if known and len(known) == len(run.plan.datasets) else None


def _is_trained(name: str) -> bool:
    return not name.startswith(TEST)


@check_run("full_batch", "files", "fewer rows than one batch, where only full ones are trained on")
def find_no_batch(run: Run) -> Problem | None:
    """Return the problem of fewer rows than one batch, where incomplete batches are not trained on."""
    rows, batch = rows_at_most(run), _full_batch(run.plan)
    if rows is None or batch is None:
        return None
    left = rows - _held_out(run, rows)
    if not 0 < left < batch:
        return None
    runner = run.plan.runner
    why = (
        f"{runner.method} trains on full batches only"
        if runner.whole_batch or runner.group
        else "dataloader_drop_last leaves an incomplete one out"
    )
    what = "prompt" if runner.group else "row"
    are = f"{what} is" if left == 1 else f"{what}s are"
    text = f"micro_batch_size: {left:,} {are} fewer than one batch of {batch:,}, and {why}"
    return Problem("", text, "micro_batch_size", OptionError)


def _full_batch(plan: "Plan") -> int | None:
    """Return how many rows a batch of all processes takes, if only full ones are trained on."""
    given, runner = plan.arguments, plan.runner
    needs_all = runner.whole_batch or given.value("dataloader_drop_last") is True
    # Packing makes other rows of them; of the asynchronous trainer's answers there is no batch.
    size = None if given.packs or runner.needs_cuda else given.rows_of_batch
    if size is None:
        return None
    if runner.group:
        return _full_groups(plan, size)
    return size * (plan.launch.processes or 1) if needs_all else None


def _full_groups(plan: "Plan", size: int) -> int | None:
    """Return to how many prompts answers are generated at a time: TRL's sampler drops what is left over."""
    values = plan.arguments.values("trainer")
    steps = values.get("steps_per_generation") or values.get("gradient_accumulation_steps") or 1
    together = size * (plan.launch.processes or 1)
    answers = values.get("generation_batch_size") or (
        together * steps if isinstance(steps, int) else None
    )
    group = values.get("num_generations", plan.runner.group)
    is_known = isinstance(answers, int) and isinstance(group, int) and group > 0
    return answers // group if is_known else None


@check_run("one_label", "files", "labels that are all the same, in the rows of small datasets")
def find_one_label(run: Run) -> str | None:
    """Report labels that are all the same, for a method that learns from their difference."""
    if not run.plan.runner.both_labels or not _all_rows_are_known(run):
        return None
    columns = [table.column("label") for table in _tables(run) if "label" in table.column_names]
    labels = {value.as_py() for column in columns for value in pc.unique(column)}
    return None if len(labels) != 1 else checks.one_label(run.plan.method, is_true=labels == {True})


def _all_rows_are_known(run: Run) -> bool:
    known = [rows for name, rows in run.first_rows.items() if _is_trained(name)]
    return len(known) == len(run.plan.datasets) and all(r.is_all and r.error is None for r in known)


def _tables(run: Run) -> Iterator[pa.Table]:
    for name, rows in run.first_rows.items():
        yield from rows.tables if _is_trained(name) else ()


@check_run("untrained", "files", "small datasets of which no message is trained on")
def find_untrained(run: Run) -> Problem | None:
    """Return the problem of rows none of which has a message, or a part, that is trained on."""
    if run.plan.runner.mask != "completion" or not _all_rows_are_known(run):
        return None
    everything = run.plan.trains_on_inputs
    for dataset in run.plan.datasets:
        rule = turn_rule(run.plan.config, dataset.entry)
        rows = _python_rows(run.first_rows[dataset.name].tables)
        if rule.ends in ("all", "last") or any(
            _trains(row, rule, everything=everything) for row in rows
        ):
            return None
    if not any(table.num_rows for table in _tables(run)):
        return None
    text = (
        "no message of any row is trained on: see roles_to_train and the messages' own flags; "
        "`fmtkit inspect -c CONFIG --show-mask 3` shows what is"
    )
    return Problem("", text, "roles_to_train", OptionError)


def _python_rows(tables: Iterable[pa.Table]) -> Iterator[Mapping[str, Any]]:
    for table in tables:
        for batch in table.to_batches(max_chunksize=_ROWS):
            yield from batch.to_pylist()


def _trains(row: Mapping[str, Any], rule: TurnRule, *, everything: bool) -> bool:
    if row.get("segments") is not None:
        return any(part["text"] and (part["label"] or everything) for part in row["segments"])
    if row.get("messages") is None:
        return True
    return any(rule.trains_on(message, everything=everything) for message in row["messages"])


@check_run("turnless", "files", "`assistant_only_loss` for rows of text")
def find_turnless(run: Run) -> Problem | None:
    """Return the problem of a loss on the assistant's turns only, for rows that have no turns."""
    config = run.plan.config
    if run.plan.runner.mask != "completion" or not config.is_true("assistant_only_loss"):
        return None
    for dataset in (*run.plan.datasets, *run.plan.test_datasets):
        if dataset.reading.is_text or dataset.reading.is_segments:
            text = (
                f"assistant_only_loss: the rows of {dataset.source} are text, which has no turns: their "
                "replies are trained on without it; leave it out"
            )
            return Problem("", text, "assistant_only_loss", OptionError)
    return None
