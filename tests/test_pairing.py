import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fmtkit.errors import OptionError, UnknownNameError
from fmtkit.pairing import check_policy, pair_up

RANKED = [("a", 1.0), ("b", 4.0), ("c", 2.0), ("d", 4.0), ("e", 3.0)]
"""Replies and scores: b and d are tied on the best place."""


def frame(*rows: list[tuple[str, float]]) -> pl.DataFrame:
    return pl.DataFrame(
        {
            "__row": range(len(rows)),
            "prompt": [[{"role": "user", "content": f"Q{i}"}] for i in range(len(rows))],
            "replies": [[[{"role": "assistant", "content": t}] for t, _ in row] for row in rows],
            "scores": [[score for _, score in row] for row in rows],
        }
    )


def pairs(policy: str, *rows: list[tuple[str, float]], seed: int = 0) -> list[tuple[int, str, str]]:
    made = pair_up(frame(*rows), policy, seed).frame
    return [
        (row["__row"], row["chosen"][0]["content"], row["rejected"][0]["content"])
        for row in made.to_dicts()
    ]


@pytest.mark.parametrize(
    ("policy", "wanted"),
    [
        ("best-worst", ["ba"]),
        ("best-next", ["be"]),
        ("adjacent", ["be", "ec", "ca"]),
        ("all", ["be", "bc", "ba", "de", "dc", "da", "ec", "ea", "ca"]),
        ("margin:2", ["bc", "ba", "dc", "da", "ea"]),
        ("margin:3.5", []),
    ],
)
def test_a_policy_makes_these_pairs(policy: str, wanted: list[str]) -> None:
    assert [better + worse for _, better, worse in pairs(policy, RANKED)] == wanted


def test_equal_scores_and_equal_texts_make_no_pair_and_are_counted() -> None:
    made = pair_up(frame([("a", 1.0), ("b", 1.0)], [("a", 1.0), ("a", 2.0)], RANKED), "all")
    assert made.without_pair.to_list() == [0, 1]
    assert made.tied == 2
    assert set(made.frame["__row"]) == {2}


def test_a_random_pair_depends_on_the_row_and_the_seed_alone() -> None:
    others = [[("x", 1.0), ("y", 2.0)], [("p", 0.0), ("q", 5.0), ("r", 1.0)]]
    alone = pairs("best-random", RANKED)
    assert [p[1:] for p in pairs("best-random", *others, RANKED)][-1:] == [p[1:] for p in alone]
    drawn = {pairs("best-random", RANKED, seed=seed)[0] for seed in range(30)}
    assert {worse for _, _, worse in drawn} == {"a", "c", "e"}
    assert {better for _, better, _ in drawn} == {"b"}


@settings(max_examples=60, deadline=None)
@given(st.lists(st.lists(st.integers(0, 4), min_size=1, max_size=6), min_size=1, max_size=4))
def test_all_pairs_are_those_of_a_double_loop(scores: list[list[int]]) -> None:
    rows = [[(f"{i}.{j}", float(s)) for j, s in enumerate(row)] for i, row in enumerate(scores)]
    wanted = {
        (i, better, worse)
        for i, row in enumerate(rows)
        for better, high in row
        for worse, low in row
        if high > low
    }
    made = pairs("all", *rows)
    assert set(made) == wanted
    assert len(made) == len(wanted)


def test_a_policy_that_is_none_is_refused() -> None:
    with pytest.raises(UnknownNameError, match="best-worst"):
        check_policy("best-wurst")
    with pytest.raises(OptionError, match="number"):
        check_policy("margin:M")
