"""Verdicts: of all that is wrong with a row, the code that comes first in `fmtkit.core.codes`.

The strict judge looks at single values, the converter at how they go together. What one of them
finds must not hide what the other knows.
"""

from collections.abc import Sequence
from dataclasses import replace

from fmtkit.columns.problems import Problem
from fmtkit.converting.binding import Binding
from fmtkit.converting.conversion import convert_frame
from fmtkit.core.codes import PRECEDENCE, Reject
from fmtkit.sources.blocks import Rows
from fmtkit.sources.marks import Fault

_BESIDE = ("duplicate_key", "json_nonfinite", "number_overflow", "invalid_unicode", "unsupported")
"""Codes of faults that may stand beside columns with which nothing is wrong."""


def refused(records: Rows, binding: Binding, row: int, problem: Problem) -> Reject:
    """Make the reject of a row that the converter refused.

    Where a used value is at fault, what the converter says is only a consequence: an unknown role
    makes a reply without a question.
    """
    value, fault = records.value(row, written=True)
    found = [fault] if fault is not None else binding.judge(value)
    own = Fault(problem.code, problem.column, problem.message)
    if fault is None and binding.is_readable(value):
        found = sorted([*found, own], key=lambda entry: PRECEDENCE[entry.code])
    first = found[0] if found else own
    return records.reject(row, first.code, first.column, first.message)


def reconsidered(rejects: Sequence[Reject], records: Rows, binding: Binding) -> list[Reject]:
    """Show the converter the rows that were judged for something beside their used columns."""
    bare = replace(binding, kept=(), watched=(), carried={})
    values, numbers = [], []
    for reject in rejects:
        if reject.code in _BESIDE:
            value, _ = records.value(reject.row, written=True)
            if bare.is_readable(value):
                values.append(value)
                numbers.append(reject.row)
    if not values:
        return list(rejects)
    found = dict(convert_frame(bare.frame(values, numbers), bare).bad)
    return [_earlier(records, reject, found.get(reject.row)) for reject in rejects]


def _earlier(records: Rows, reject: Reject, problem: Problem | None) -> Reject:
    if problem is None or PRECEDENCE[problem.code] >= PRECEDENCE[reject.code]:
        return reject
    return records.reject(reject.row, problem.code, problem.column, problem.message)
