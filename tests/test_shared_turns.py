from typing import Any

import polars as pl
from hypothesis import given, settings
from hypothesis import strategies as st

from fmtkit.message_kinds import WIDE
from fmtkit.shared_turns import ASKING, shared_turns

MESSAGE = st.fixed_dictionaries(
    {
        "role": st.sampled_from(["system", "user", "assistant", "tool"]),
        "content": st.sampled_from([None, "", "a"]),
        "tool_calls": st.sampled_from([None, "[]"]),
        "train": st.sampled_from([None, True]),
    }
)
DIALOG = st.none() | st.lists(MESSAGE, max_size=5)


def counted(one: list[dict[str, Any]] | None, other: list[dict[str, Any]] | None) -> int:
    count = 0
    for place, (ours, theirs) in enumerate(zip(one or [], other or [], strict=False), 1):
        if {**ours, "train": None} != {**theirs, "train": None}:
            break
        count = place if ours["role"] in ASKING else count
    return count


@settings(max_examples=150, deadline=None)
@given(st.lists(st.tuples(DIALOG, DIALOG, st.booleans()), min_size=1, max_size=6))
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
