"""Canonical rows of any content for property tests of targets: their own marks, blanks, tool calls."""

import json
from functools import cache
from typing import Any

from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

MARKS = [
    "\n\nHuman:",
    "\n\nAssistant:",
    "Human: ",
    "function_call",
    '{"name":"f","arguments":{}}',
    "[]",
    "<|im_start|>",
    "<image>",
    "### Response:\n",
    '"arguments":{',
    "\u2028",
    "\ufeff",
    "é😀",
    "\x00",
    "null",
    "\\",
    '"',
]
texts = st.lists(st.sampled_from(MARKS) | st.text(max_size=4), min_size=1, max_size=4).map("".join)
texts = texts.filter(lambda text: text.strip() != "")
anything = texts | st.sampled_from(["", " ", "\n", "\t x "])
arguments = st.sampled_from(
    ['{"a":1}', "", "no JSON", {"a": "02139"}, {"b": [1.5, None], "é": {"function": 1}}, {}]
)
functions = st.fixed_dictionaries(
    {"name": st.sampled_from(["f", "g"]), "arguments": arguments},
    optional={"description": st.just('"}},{"'), "function": st.just({})},
)
bare = functions.map(lambda function: {"type": "function", "function": function})
with_ids = functions.map(lambda function: {"id": "c1", "type": "function", "function": function})
odd = st.sampled_from([{"type": "custom", "custom": {"name": "x"}}, {"function": {"name": "h"}}])
calls = st.lists(bare, min_size=1, max_size=2) | st.lists(
    bare | with_ids | odd, min_size=1, max_size=2
)
TOOLS = [{"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}]
plain_users = texts.map(lambda text: {"role": "user", "content": text})
plain_replies = texts.map(lambda text: {"role": "assistant", "content": text})
systems = anything.map(lambda text: {"role": "system", "content": text})
odd_turns = st.one_of(
    systems,
    anything.map(lambda text: {"role": "developer", "content": text}),
    st.builds(
        lambda c, i: {"role": "tool", "content": c} | i,
        anything,
        st.sampled_from([{}, {"tool_call_id": "c1"}]),
    ),
    st.builds(
        lambda made, text: {"role": "assistant", "content": text, "tool_calls": made},
        calls,
        st.sampled_from(["", None]) | texts,
    ),
    texts.map(lambda text: {"role": "assistant", "content": text, "reasoning_content": "hm"}),
    texts.map(
        lambda text: {
            "role": "assistant",
            "content": text,
            "train_detail": [{"begin_offset": 0, "end_offset": 0, "train": False}],
        }
    ),
    st.builds(
        lambda text, train: {"role": "assistant", "content": text, "train": train},
        texts,
        st.booleans(),
    ),
    texts.map(lambda text: {"role": "user", "content": text, "name": "ann"}),
    texts.map(lambda text: {"role": "user", "content": text, "train": False}),
)


def exchanges(most: int) -> st.SearchStrategy[list[dict[str, Any]]]:
    """Return conversations of questions and replies by turns."""
    pairs = st.lists(st.tuples(plain_users, plain_replies), min_size=1, max_size=most)
    return pairs.map(lambda found: [turn for pair in found for turn in pair])


simple = st.sampled_from([("Sea or hills?", "The sea."), ("q", "Human: no"), ("é\n\nb", "c")]).map(
    lambda pair: [
        {"role": "user", "content": pair[0]},
        {"role": "assistant", "content": pair[1]},
    ]
)
led = simple | st.builds(
    lambda first, rest: first + rest, st.lists(systems, max_size=1), exchanges(3)
)
wild = st.lists(plain_users | plain_replies | odd_turns, min_size=1, max_size=5)
worked = st.builds(
    lambda asked, made, said, end: [
        asked,
        {"role": "assistant", "content": "", "tool_calls": made},
        {"role": "tool", "content": said},
        end,
    ],
    plain_users,
    calls,
    anything,
    plain_replies,
)
conversations = led | worked | wild
prompts = led.map(lambda turns: turns[:-1]) | worked.map(lambda turns: turns[:-1]) | wild
replies = (
    simple.map(lambda turns: turns[1:])
    | plain_replies.map(lambda turn: [turn])
    | worked.map(lambda turns: turns[1:])
    | wild
)
tools = st.sampled_from([{}, {"tools": TOOLS}, {"tools": None}])


def _row(columns: dict[str, st.SearchStrategy[Any]]) -> st.SearchStrategy[dict[str, Any]]:
    return st.builds(lambda row, more: row | more, st.fixed_dictionaries(columns), tools)


ROWS = {
    "Conversation": _row({"messages": conversations}),
    "Completion": _row({"prompt": prompts, "completion": replies}),
    "Preference": _row({"prompt": prompts, "chosen": replies, "rejected": replies}),
    "Unpaired": _row({"prompt": prompts, "completion": replies, "label": st.booleans()}),
    "Prompt": _row({"prompt": prompts}),
}


def said(row: dict[str, Any]) -> dict[str, Any]:
    """Return a canonical row without its nulls, tool calls as values."""
    out = {}
    for name, value in row.items():
        if isinstance(value, list):
            out[name] = [_said(turn) if isinstance(turn, dict) else turn for turn in value]
        elif value is not None:
            out[name] = value
    return out


def _said(turn: dict[str, Any]) -> dict[str, Any]:
    return {k: json.loads(v) if k == "tool_calls" else v for k, v in turn.items() if v is not None}


def as_conversation(row: dict[str, Any]) -> dict[str, Any]:
    """Return a completion as the conversation whose earlier replies are not trained on."""
    if "completion" not in row or "label" in row:
        return row
    earlier = [
        {"train": False} | turn if turn["role"] == "assistant" else turn for turn in row["prompt"]
    ]
    rest = {k: v for k, v in row.items() if k not in ("prompt", "completion")}
    return {"messages": earlier + row["completion"]} | rest


@cache
def sample(table: str, count: int = 200) -> list[dict[str, Any]]:
    """Draw rows of a table, always the same: one conversion of many costs as much as one of a few."""
    rows: list[dict[str, Any]] = []

    @settings(
        max_examples=count,
        derandomize=True,
        database=None,
        deadline=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(ROWS[table])
    def draw(row: dict[str, Any]) -> None:
        rows.append(row)

    draw()
    return rows
