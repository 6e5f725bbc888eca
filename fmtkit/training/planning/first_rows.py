"""What the first rows of local datasets show before a run: the checks and the notes of a plan.

`fmtkit.training.data.dataset_samples` reads them.
"""

from collections.abc import Iterator

from fmtkit.core.errors import OptionError, TokenizerError
from fmtkit.training.config import config_words
from fmtkit.training.config.problems import Problem
from fmtkit.training.planning import checks
from fmtkit.training.planning.check import Run, check_run
from fmtkit.training.planning.types import FirstRows

_LEFT_OUT = {
    "content_dropped": "text or tools of {}: the model will not see them",
    "reasoning_dropped": "the reasoning of replies in {}: it will not be trained on",
}
"""Code of a warning -> what the template leaves out."""


@check_run(
    "first_rows",
    "files",
    "local datasets that lack a column of their type, or whose first rows all fail",
)
def find_unreadable(run: Run) -> Iterator[Problem]:
    """Yield datasets that cannot be read as their type says, or leave no row to train on.

    What the tokenizer lacks is one fault however many datasets meet it: its own check reports it.
    """
    for name, rows in run.first_rows.items():
        if isinstance(rows.error, TokenizerError) and any(checks.find_tokenizer(run)):
            continue
        if rows.error is not None:
            message = str(rows.error)
            key = config_words.key_meant(run.plan.config, message, dataset=name) or name
            yield Problem("", config_words.spoken(message), key, type(rows.error))
        elif not rows.written and (rows.is_all or sum(rows.reasons.values()) == rows.read):
            yield Problem("", f"datasets: {rows.source}: {_why_none(rows)}", name, OptionError)


def _why_none(rows: FirstRows) -> str:
    if not rows.read:
        return "it holds no rows"
    which = f"{'' if rows.is_all else 'the first '}{rows.read:,} row{'s' * (rows.read > 1)}"
    if not rows.reasons:
        why = " (all are longer than sequence_len)" if rows.too_long == rows.read else ""
        return f"none of {which} is left to train on{why}"
    codes = ", ".join(f"{code} {count:,}" for code, count in rows.reasons.items())
    return f"none of {which} can be converted ({codes}); {rows.bad}"


def notes(run: Run, *, is_partial: bool = False) -> list[str]:
    """Return what the plan says of first rows that are bad, too long, or lose something.

    With `is_partial` only of datasets that have further rows: a run says of small ones what became of all.
    """
    looked = [rows for rows in run.first_rows.values() if not (is_partial and rows.is_all)]
    lines = [f"datasets: {rows.source}: {line}" for rows in looked for line in _notes(rows)]
    tables = (table for rows in looked for table in rows.tables)
    return [*lines, *checks.end_remark(run.plan, tables)]


def _notes(rows: FirstRows) -> Iterator[str]:
    which = f"of {'' if rows.is_all else 'the first '}{rows.read:,} rows"
    if rows.reasons:
        bad = sum(rows.reasons.values())
        yield f"{bad:,} {which} will not be trained on; the first: {rows.bad}"
    if rows.too_long:
        yield f"{rows.too_long:,} {which} are longer than sequence_len and will not be trained on"
    for code, what in _LEFT_OUT.items():
        if rows.warnings.get(code):
            yield f"the template leaves out {what.format(f'{rows.warnings[code]:,} {which}')}"
