"""A problem, the steps of a solution, and a label for each step."""

import polars as pl

from fmtkit.columns import Labels, Text, Texts
from fmtkit.columns.problems import uneven
from fmtkit.core.tables import Stepwise
from fmtkit.formats.registry import converter


@converter(differs="lengths must match, and soft labels are kept")
def steps(
    prompt: Text,
    completions: Texts,
    labels: Labels,
    *,
    soft: bool | None = None,
    step_separator: str = "\n",  # noqa: ARG001
    max_completion_length: int | None = None,  # noqa: ARG001
    train_on_last_step_only: bool = False,  # noqa: ARG001
) -> Stepwise:
    """https://huggingface.co/datasets/trl-lib/math_shepherd.

    `soft` is found in the file; the other options go to the trainer, which joins the steps.
    """
    ragged = uneven(completions, labels, ("completions", "labels"))
    hard = labels.value.list.eval(pl.element() == 1)
    return Stepwise(prompt, completions, labels.with_value(labels.value if soft else hard, ragged))
