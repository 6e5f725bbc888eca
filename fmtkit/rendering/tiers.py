"""Render a batch: rows that can be traced by columns, the others row by row, a sample both ways.

The first row of each path and one row in a thousand are rendered row by row too: at the first
difference the template is no longer traced, and the batch is done again.
"""

from collections.abc import Iterable, Sequence

import numpy as np
import pyarrow as pa

from fmtkit.core.buffers import Bools, Int64s, sample_of, validity
from fmtkit.core.data_classes import dataclass
from fmtkit.rendering.content_parts import NO_IMAGES
from fmtkit.rendering.conversation_columns import Batch, ConversationColumn
from fmtkit.rendering.plain_rows import PlainRow, PlainRows
from fmtkit.rendering.render_plan import Outcome, Plan
from fmtkit.rendering.reply_cut import Problem
from fmtkit.rendering.traced_rows import Compiled, TracedRows

SAMPLE = 1_000
"""Every n-th row, on average, is rendered both ways."""

NO_MESSAGE = Problem("template_error", "there is no message to render")
NO_TOOL_CALLS = Problem("unsupported", "the template has no place for tool calls")
UNSEEN = Problem("template_error", NO_IMAGES)


@dataclass
class Rendered:
    """The columns of a batch, null where a row has no text, with the problems and warnings of its rows."""

    columns: list[pa.Array]
    problems: dict[int, Problem]
    warnings: dict[str, list[int]]
    traced: int
    plain: int
    unthought: list[tuple[int, bool]]
    """The rows of replies whose reasoning is left out, and whether each is the last of its row."""


def render_batch(
    compiled: Compiled,
    plan: Plan,
    conversations: Sequence[ConversationColumn],
    tools: pa.Array | None = None,
    training: Compiled | None = None,
) -> Rendered:
    """Render a row of each conversation column; a row with a null conversation has no text and no problem."""
    batch = Batch(conversations, tools)
    traced = TracedRows(plan, batch, training)
    single = PlainRows(compiled.engine, plan, batch, training.engine if training else None)
    rows, refused = _candidates(compiled, conversations)
    by_columns = _traceable(compiled, conversations)[rows]
    left = traced.render(compiled, rows[by_columns])
    others = np.sort(np.concatenate([left, rows[~by_columns]]))
    _add(traced, list(single.render(others)))
    columns = [traced.assembly.text(column) for column in range(plan.columns)]
    # By Python's sets: numpy's import numpy.ma, which takes 20 ms.
    sample = {*traced.fresh, *sample_of(columns[0], one_in=SAMPLE).tolist()}.difference(
        others.tolist()
    )
    again = single.render(np.array(sorted(sample), np.int64))
    difference = _difference(traced, columns, again)
    if difference:
        compiled.difference = difference
        return render_batch(compiled, plan, conversations, tools, training)
    if tools is not None and "tools" not in compiled.source:
        traced.warnings["content_dropped"] += rows[validity(tools)[rows]].tolist()
    traced_count = len(rows) - len(others)
    problems = refused | traced.problems
    if traced.unthought:
        traced.warnings["reasoning_dropped"] += dict.fromkeys(row for row, _ in traced.unthought)
    return Rendered(
        columns, problems, dict(traced.warnings), traced_count, len(others), traced.unthought
    )


def _candidates(
    compiled: Compiled, conversations: Sequence[ConversationColumn]
) -> tuple[Int64s, dict[int, Problem]]:
    """Return the rows to render, and those that are refused whatever the template renders."""
    valid = np.ones(len(conversations[0]), np.bool_)
    empty, calling, unseen = ~valid, ~valid, ~valid
    for conversation in conversations:
        valid &= conversation.valid
        empty = empty | (conversation.ends == conversation.starts)
        if "tool_calls" not in compiled.source:
            calling = calling | conversation.with_tool_calls()
        if conversation.images:
            unseen = unseen | conversation.with_images(unseen=bool(compiled.image))
    refused = dict.fromkeys(np.flatnonzero(valid & calling).tolist(), NO_TOOL_CALLS)
    refused.update(dict.fromkeys(np.flatnonzero(valid & unseen).tolist(), UNSEEN))
    refused.update(dict.fromkeys(np.flatnonzero(valid & empty).tolist(), NO_MESSAGE))
    return np.flatnonzero(valid & ~empty & ~calling & ~unseen), refused


def _traceable(compiled: Compiled, conversations: Sequence[ConversationColumn]) -> Bools:
    """Return which rows may be rendered by columns: those without parts or odd tool calls."""
    refused = np.zeros(len(conversations[0]), np.bool_)
    if compiled.difference or not compiled.engine.traceable:
        return refused
    for conversation in conversations:
        refused = refused | conversation.with_odd_calls() | conversation.with_parts()
    return ~refused


def _add(traced: TracedRows, rows: list[PlainRow]) -> None:
    """Insert rows that were rendered row by row."""
    good = {row.row: row.outcome.texts for row in rows if isinstance(row.outcome, Outcome)}
    numbers = np.array(list(good), np.int64)
    for column in range(traced.plan.columns):
        traced.assembly.add_texts(column, numbers, [texts[column] for texts in good.values()])
    for row in rows:
        if isinstance(row.outcome, Problem):
            traced.problems[row.row] = row.outcome
        for warning in row.warnings:
            traced.warnings[warning].append(row.row)
        traced.unthought += [(row.row, is_last) for is_last in row.unthought]


def _difference(
    traced: TracedRows, columns: Sequence[pa.Array], rows: Iterable[PlainRow]
) -> str | None:
    """Return where rendering by columns differed from rendering row by row."""
    for plain in rows:
        texts = tuple(column[plain.row].as_py() for column in columns)
        expected = plain.outcome.texts if isinstance(plain.outcome, Outcome) else None
        problem = traced.problems.get(plain.row)
        found = texts if problem is None else None
        if found != expected:
            return f"row {plain.row} rendered differently by columns and row by row"
    return None
