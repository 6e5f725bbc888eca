from typing import Any

import polars as pl
from hypothesis import given, settings
from hypothesis import strategies as st

from fmtkit.columns.message_rules import WIDE
from fmtkit.columns.shared_turns import (
    PROMPT_END_ROLES,
    begins_with,
    joined,
    same_conversation,
    shared_turns,
)

MESSAGE = st.fixed_dictionaries(
    {
        "role": st.sampled_from(["system", "user", "assistant", "tool"]),
        "content": st.sampled_from([None, "", "a"]),
        "tool_calls": st.sampled_from([None, "[]"]),
        "train": st.sampled_from([None, True]),
    }
)
CONVERSATION = st.none() | st.lists(MESSAGE, max_size=5)


def counted(one: list[dict[str, Any]] | None, other: list[dict[str, Any]] | None) -> int:
    count = 0
    for place, (ours, theirs) in enumerate(zip(one or [], other or [], strict=False), 1):
        if {**ours, "train": None} != {**theirs, "train": None}:
            break
        count = place if ours["role"] in PROMPT_END_ROLES else count
    return count


@settings(max_examples=150, deadline=None)
@given(st.lists(st.tuples(CONVERSATION, CONVERSATION, st.booleans()), min_size=1, max_size=6))
def test_shared_turns_are_those_of_a_loop(rows: list[tuple[Any, Any, bool]]) -> None:
    pairs = [
        (one, [*one[:2], *(other or [])] if same and one else other) for one, other, same in rows
    ]
    frame = pl.DataFrame(
        {"one": [one for one, _ in pairs], "other": [other for _, other in pairs]},
        schema={"one": pl.List(WIDE), "other": pl.List(WIDE)},
    )
    made = frame.select(shared_turns(pl.col("one"), pl.col("other"))).to_series().to_list()
    assert made == [counted(one, other) for one, other in pairs]


def frame_of(rows: list[tuple[Any, Any, bool]]) -> pl.DataFrame:
    schema = {"one": pl.List(WIDE), "other": pl.List(WIDE), "where": pl.Boolean}
    columns = zip(*rows, strict=True)
    return pl.DataFrame(dict(zip(schema, map(list, columns), strict=True)), schema=schema)


def said(conversation: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{**message, "train": None} for message in conversation]


ROWS = st.lists(
    st.tuples(CONVERSATION, CONVERSATION, st.booleans(), st.booleans()).map(
        lambda row: (row[0], row[0] + (row[1] or [])[:1] if row[2] and row[0] else row[1], row[3])
    ),
    min_size=1,
    max_size=6,
)


@settings(max_examples=150, deadline=None)
@given(ROWS, st.integers(0, 2))
def test_comparing_and_joining_conversations_is_what_lists_do(rows, skipped: int) -> None:
    frame = frame_of(rows).slice(min(skipped, len(rows) - 1))
    one, other, where = pl.col("one"), pl.col("other"), pl.col("where")
    made = frame.select(
        same=same_conversation(one, other),
        begins=begins_with(other, one, where),
        joined=joined(one, other, where),
    )
    assert made.schema["joined"] == pl.List(WIDE)
    for (first, second, asked), row in zip(frame.rows(), made.rows(named=True), strict=True):
        both = first is not None and second is not None
        assert row["same"] == (said(first) == said(second) if both else None)
        start = said(second)[: len(first)] == said(first) if both else None
        assert row["begins"] == (start if asked else True)
        if second is None or (asked and first is None):
            assert row["joined"] is None
        else:
            assert row["joined"] == ([*first, *second] if asked else second)
