"""Runs of a few steps: which rows `max_steps` can draw, and what need not be done for the others.

Nothing may change what a step trains on. A sampler that shuffles draws among all rows, so all of them are
converted, and only tokenizing can wait until a row is drawn. Where rows are taken in their order, the first
ones are enough. Each condition names what would otherwise read other rows, or drop some.
"""

from collections.abc import Iterator

from fmtkit.training.config.slices import slice_of
from fmtkit.training.config.trainer_source import find_class, installed
from fmtkit.training.planning.resolve import length_policy
from fmtkit.training.planning.run_plan import Plan
from fmtkit.training.planning.types import PREPARE, FewSteps

_DROPPING = frozenset({"drop", "fail"})
"""What becomes of longer rows by the conversion, so that the trainer finds none to drop or to cut."""
_MOST_BATCHES = 50
_OF_ALL_ROWS = (
    *("val_set_size", "dataset_exact_deduplication", "max_samples", "weight", "fraction"),
    "mixture_share",
    *("pairs", "on_error", "max_errors"),
)
"""Keys of a run or a dataset whose effect depends on how many rows there are in all."""


def few_steps(plan: Plan) -> FewSteps | None:
    """Return what `max_steps` of a plan limits; None where it is not set."""
    given = plan.arguments
    steps = given.value("max_steps")
    if not isinstance(steps, int) or steps <= 0:
        return None
    batch, accumulated = given.rows_of_batch, given.batches_of_step
    if batch is None or accumulated is None:
        return FewSteps(steps, 0, 0, "the size of a batch is not known", "")
    # The loader is one batch ahead.
    rows = (steps * accumulated + 1) * batch
    reasons = [*_all_tokenized(plan), *_many(steps * accumulated)]
    tokenized = next(iter(reasons), None)
    converted = tokenized or next(_all_converted(plan), None)
    return FewSteps(steps, steps * accumulated, rows, tokenized, converted)


def _all_tokenized(plan: Plan) -> Iterator[str]:
    """Yield each reason for which rows that no step draws are tokenized as well."""
    given = plan.arguments
    if not plan.runner.prepares_rows:
        yield f"the trainer of {plan.method} reads every row before its first step"
    trainer = find_class(plan.runner.trainer)
    if trainer is not None and trainer.method(PREPARE) is None:
        yield f"the trainer of trl {installed('trl')} has no {PREPARE}, which would prepare a part of them"
    if given.packs:
        yield "packing joins rows by the lengths of all of them"
    if plan.launch.processes != 1:
        yield "several processes prepare rows together"
    if given.sampling not in {"random", "sequential"}:
        yield "batches are made by the lengths of all rows"
    for name in ("shuffle_dataset", "precompute_ref_log_probs"):
        if given.value(name) is True:
            yield f"{name} reads every row"
    if given.value("dataloader_num_workers"):
        yield "dataloader_num_workers would each prepare rows"
    if given.max_length is not None and length_policy(plan.config) not in _DROPPING:
        yield "the trainer cuts or drops rows that are longer than sequence_len"


def _many(batches: int) -> list[str]:
    if batches <= _MOST_BATCHES:
        return []
    return [f"more than {_MOST_BATCHES} batches are tokenized faster all at once"]


def _all_converted(plan: Plan) -> Iterator[str]:
    """Yield each reason for which rows after the first ones are converted as well."""
    if plan.arguments.sampling != "sequential":
        yield "the sampler draws among all rows; curriculum_sampling takes them in their order"
    if len(plan.datasets) != 1:
        yield "rows of several datasets are mixed"
    for name in _OF_ALL_ROWS:
        if plan.config.get(name) or any(one.entry.get(name) for one in plan.datasets):
            yield f"{name} counts all rows"
    if any(plan.arguments.value(name) == "epoch" for name in ("eval_strategy", "save_strategy")):
        yield "evaluation or saving follows epochs"
    if any(not slice_of(one.entry, None).is_whole for one in plan.datasets):
        yield "split chooses rows"
    if any(one.reading.function for one in plan.datasets):
        yield "a function of yours makes the rows"
