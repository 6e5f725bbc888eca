"""Conversion: a frame of bound columns becomes a canonical table, and each bad row gets one code.

The strict parser checks single values, the converter checks how they fit together. If they find several
problems in a row, the code that comes first in `fmtkit.core.codes` is reported.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import polars as pl

from fmtkit.columns.expansion import expand
from fmtkit.columns.problems import Problem
from fmtkit.core import user_modules
from fmtkit.core.codes import PRECEDENCE, Reject
from fmtkit.core.data_classes import dataclass
from fmtkit.core.errors import OptionError
from fmtkit.reading import lost_turns
from fmtkit.reading.binding import Binding
from fmtkit.reading.lost_turns import code_of
from fmtkit.reading.table_program import PROBLEM, WARNING
from fmtkit.sources.blocks import Rows
from fmtkit.sources.marks import Fault


@dataclass(frozen=True)
class Converted:
    """The canonical rows with `__row`, each bad row's problem, and the count of each warning."""

    frame: pl.DataFrame
    bad: list[tuple[int, Problem]]
    warnings: Counter[str]
    unread: Counter[str]
    """Column -> rows in which it carries turns that were not read."""


def convert_frame(frame: pl.DataFrame, binding: Binding) -> Converted:
    """Run a converter over the frame that its parameters were bound to.

    If a plugin's expressions raise for a row, that row is bad.
    """
    if binding.converter.is_ours:
        return _convert(frame, binding)
    try:
        return _convert(frame, binding)
    except (Exception, pl.exceptions.PanicException) as error:
        # Any exception: a plugin's expressions may call user functions.
        if frame.height > 1:
            half = frame.height // 2
            parts = [convert_frame(part, binding) for part in (frame[:half], frame[half:])]
            return Converted(
                pl.concat([part.frame for part in parts]),
                [entry for part in parts for entry in part.bad],
                sum((part.warnings for part in parts), Counter()),
                sum((part.unread for part in parts), Counter()),
            )
        if not frame.height:
            raise OptionError(
                f"type {binding.converter.name}: {_raised(error, binding)}"
            ) from error
        problem = Problem("value_error", None, pl.lit(value=True), _raised(error, binding))
        empty = _convert(frame.clear(), binding)
        return Converted(empty.frame, [(frame["__row"][0], problem)], Counter(), Counter())


def _raised(error: BaseException, binding: Binding) -> str:
    code = binding.converter.function.__code__
    reason = user_modules.describe(error, code.co_filename)
    place = f"{Path(code.co_filename).name}:"
    where = "" if place in reason else f" ({place}{code.co_firstlineno})"
    return f"{code.co_name} raised {reason}{where}"


def _convert(frame: pl.DataFrame, binding: Binding) -> Converted:
    program = binding.program
    computed = frame
    for columns in program.passes:
        computed = computed.with_columns(**columns)
    out = computed.select("__row", *program.expressions)
    bad: list[tuple[int, Problem]] = []
    if program.problems:
        if out.get_column(PROBLEM).null_count() < out.height:
            faulty = out.filter(pl.col(PROBLEM).is_not_null())
            pairs = zip(faulty["__row"].to_list(), faulty[PROBLEM].to_list(), strict=True)
            bad = [(row, program.problems[index]) for row, index in pairs]
            out = out.filter(pl.col(PROBLEM).is_null())
        out = out.drop(PROBLEM)
    counts: Counter[str] = Counter()
    within: Counter[str] = Counter()
    for i, code in enumerate(program.warnings):
        name, _, column = code.partition(" ")
        count = int(out.get_column(f"{WARNING}{i}").sum())
        counts[name] += count
        within[column] += count if column else 0
    out = out.drop([f"{WARNING}{i}" for i in range(len(program.warnings))])
    unread, codes = _unread(frame, out, binding)
    counts += codes
    unread += within
    return Converted(expand(out, program.columns), bad, +counts, unread)


def _unread(
    frame: pl.DataFrame, out: pl.DataFrame, binding: Binding
) -> tuple[Counter[str], Counter[str]]:
    """Count by column and by code the rows in which a watched column carries what was not read."""
    carried = {column.label: frame.get_column(column.name) for column in binding.watched}
    carried |= {
        column.label: binding.carried[column.label].of(frame.get_column(column.name))
        for column in binding.kept
        if column.label in binding.carried
    }
    if not carried or not out.height:
        return Counter(), Counter()
    numbered = pl.DataFrame([column.alias(str(i)) for i, column in enumerate(carried.values())])
    most = numbered.select(pl.all().list.len().max()).row(0)
    carried = {name: carried[name] for name, size in zip(carried, most, strict=True) if size}
    if not carried:
        return Counter(), Counter()
    codes = {column.label: code_of(column.kind) for column in binding.watched}
    codes |= {name: code_of(kind) for name, kind in binding.carried.items()}
    if out.height < frame.height:
        sound = frame.get_column("__row").is_in(out.get_column("__row").implode())
        frame = frame.filter(sound)
        carried = {name: column.filter(sound) for name, column in carried.items()}
    read = [frame.get_column(column.name) for column in binding.columns]
    made = [out.get_column(name) for name in out.columns if not name.startswith("__")]
    return lost_turns.unread(carried, [*read, *made], codes)


_BESIDE = ("duplicate_key", "json_nonfinite", "number_overflow", "invalid_unicode", "unsupported")
"""Codes of faults that a row may have besides sound columns."""


def refused(records: Rows, binding: Binding, row: int, problem: Problem) -> Reject:
    """Make the reject of a row that the converter refused.

    If a used value is at fault, the converter's problem is only a consequence: an unknown role makes a reply
    without a question.
    """
    value, fault = records.value(row, written=True)
    found = [fault] if fault is not None else binding.judge(value)
    own = Fault(problem.code, problem.column, problem.message)
    if fault is None and binding.is_readable(value):
        found = sorted([*found, own], key=lambda entry: PRECEDENCE[entry.code])
    first = found[0] if found else own
    return records.reject(row, first.code, first.column, first.message)


def reconsidered(rejects: Sequence[Reject], records: Rows, binding: Binding) -> list[Reject]:
    """Run the converter on rows that were refused for a fault outside their used columns."""
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
