"""Pairs whose prompt is in both replies alone, cut as TRL's `extract_prompt` cuts them."""

import json
from pathlib import Path

import polars as pl
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from trl.data_utils import extract_prompt

import fmtkit
from fmtkit.converters import implicit_prompt
from fmtkit.detection import detection

texts = st.text(st.sampled_from("ab \nйé€🇩🇪"), min_size=1, max_size=12)
pairs = st.tuples(texts, texts, texts).map(lambda t: (t[0] + t[1], t[0] + t[2]))


def write(path: Path, rows: list[dict[str, object]]) -> str:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return str(path)


@settings(max_examples=100, deadline=None)
@given(st.lists(pairs, min_size=1, max_size=6), st.sampled_from([1, 2, 5, 4096]))
@example([("a b", "a")], 4096)
@example([("é", "è"), ("xé", "xè")], 1)
def test_a_text_is_cut_where_trl_cuts_it(found: list[tuple[str, str]], window: int) -> None:
    whole, implicit_prompt.WINDOW = implicit_prompt.WINDOW, window
    try:
        rows = [{"chosen": chosen, "rejected": rejected} for chosen, rejected in found]
        made = fmtkit.table(pl.DataFrame(rows), "implicit_prompt").to_pylist()
    finally:
        implicit_prompt.WINDOW = whole
    assert made == [extract_prompt(row) for row in rows if is_a_pair(row)]


def is_a_pair(row: dict[str, str]) -> bool:
    """Return whether a row is converted: TRL trains without a prompt and on blank replies, too."""
    if row["chosen"][0] != row["rejected"][0] or row["chosen"] == row["rejected"]:
        return False
    cut = extract_prompt(row)
    return bool(cut["prompt"] and cut["chosen"].strip() and cut["rejected"].strip())


turns = st.lists(st.sampled_from(["x", "y", "z"]), min_size=0, max_size=2)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(turns, st.sampled_from("cd")), min_size=1, max_size=4))
def test_a_conversation_is_cut_where_trl_cuts_it(found: list[tuple[list[str], str]]) -> None:
    rows = [conversation_pair(exchanges, chosen) for exchanges, chosen in found]
    made = fmtkit.table(pl.DataFrame(rows), "implicit_prompt").to_pylist()
    narrow = [
        {
            name: [{"role": m["role"], "content": m["content"]} for m in row[name]]
            for name in ("prompt", "chosen", "rejected")
        }
        for row in made
    ]
    assert narrow == [extract_prompt(row) for row in rows]


def conversation_pair(exchanges: list[str], chosen: str) -> dict[str, list[dict[str, str]]]:
    context = [
        {"role": role, "content": f"{text} of the {role}"}
        for text in exchanges
        for role in ("user", "assistant")
    ]
    context.append({"role": "user", "content": "?"})
    sides = {"chosen": chosen, "rejected": f"not {chosen}"}
    return {
        side: [*context, {"role": "assistant", "content": text}] for side, text in sides.items()
    }


@pytest.mark.parametrize(
    ("row", "best"),
    [
        ({"chosen": "The sky is blue.", "rejected": "The sky is green."}, "implicit_prompt"),
        (
            {
                "chosen": "\n\nHuman: Q\n\nAssistant: c",
                "rejected": "\n\nHuman: Q\n\nAssistant: r",
            },
            "hh_rlhf",
        ),
        ({"prompt": "p", "chosen": "c", "rejected": "r"}, "prompt_pairs"),
        (conversation_pair(["x"], "c"), "argilla_chat"),
    ],
)
def test_a_file_of_pairs_is_told_by_what_it_holds(row, best):
    assert detection.detect([row] * 3)[0].converter.name == best


def test_long_shared_prompts_are_found_in_bounded_pieces(tmp_path):
    rows = [
        {"chosen": "é" * n + " yes", "rejected": "é" * n + " no"} for n in (1, 2047, 2048, 9000)
    ]
    made = fmtkit.table(write(tmp_path / "long.jsonl", rows), "implicit_prompt").to_pylist()
    assert [len(row["prompt"]) for row in made] == [1, 2047, 2048, 9000]
    assert {(row["chosen"], row["rejected"]) for row in made} == {(" yes", " no")}
