"""Which prompts are for validation: by their text and the seed, and by nothing else."""

import re
from collections import Counter

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fmtkit.columns.message_rules import NARROW, WIDE
from fmtkit.core.errors import OptionError
from fmtkit.options.convert_options import ConvertOptions
from fmtkit.writing.splitting import LowestHashes, by_fraction, by_rows, prompt_hashes


def conversations(texts: list[str], dtype: pl.DataType = NARROW) -> pl.Series:
    return pl.Series(
        "prompt", [[{"role": "user", "content": t}] for t in texts], dtype=pl.List(dtype)
    )


@given(
    st.lists(st.text(st.characters(exclude_categories=["Cs"])), min_size=1, max_size=6),
    st.integers(-3, 3),
)
def test_equal_prompts_hash_alike_wherever_they_stand(texts, seed):
    frame = pl.DataFrame({"prompt": texts + texts})
    hashes = prompt_hashes(frame, seed).tolist()
    assert hashes[: len(texts)] == hashes[len(texts) :]
    assert len(set(hashes)) == len(set(texts))


def test_hashes_are_the_same_tomorrow_and_elsewhere():
    assert prompt_hashes(pl.DataFrame({"prompt": ["a", "é"]}), 0).tolist() == [
        1476484591048093314,
        1071567909604719763,
    ]


def test_another_seed_makes_another_split():
    frame = pl.DataFrame({"prompt": [str(i) for i in range(100)]})
    assert (
        by_fraction(0.5, 0).is_validation(frame).tolist()
        != by_fraction(0.5, 1).is_validation(frame).tolist()
    )


def test_roles_and_turns_are_part_of_a_prompt():
    turns = [
        [{"role": "user", "content": "ab"}],
        [{"role": "system", "content": "ab"}],
        [{"role": "user", "content": "a"}, {"role": "user", "content": "b"}],
        [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}],
    ]
    frame = pl.DataFrame({"prompt": pl.Series(turns, dtype=pl.List(NARROW))})
    assert len(set(prompt_hashes(frame, 0).tolist())) == 4


def test_narrow_and_wide_messages_of_one_text_hash_alike():
    narrow = prompt_hashes(pl.DataFrame({"prompt": conversations(["q"])}), 0)
    wide = prompt_hashes(pl.DataFrame({"prompt": conversations(["q"], WIDE)}), 0)
    assert narrow.tolist() == wide.tolist()


def test_a_conversation_is_split_by_what_comes_before_its_first_answer():
    def chat(*texts):
        roles = ("user", "assistant") * 2
        return [{"role": role, "content": text} for role, text in zip(roles, texts, strict=False)]

    rows = [chat("q", "a"), chat("q", "b", "c", "d"), chat("z", "a"), chat("q")]
    frame = pl.DataFrame({"messages": pl.Series(rows, dtype=pl.List(NARROW))})
    first, second, other, unanswered = prompt_hashes(frame, 0).tolist()
    assert first == second == unanswered != other


def test_tokens_are_split_by_the_ids_of_the_prompt():
    frame = pl.DataFrame(
        {"input_ids": [[1, 2, 3], [1, 2, 4], [12, 3, 4]], "prompt_length": [2, 2, 2]}
    )
    first, second, other = prompt_hashes(frame, 0).tolist()
    assert first == second != other


@given(st.floats(0.01, 0.99))
def test_a_fraction_is_about_that_share_of_prompts(fraction):
    frame = pl.DataFrame({"prompt": [str(i) for i in range(2000)]})
    share = by_fraction(fraction, 0).is_validation(frame).mean()
    assert abs(share - fraction) < 0.05


@given(
    st.dictionaries(st.integers(0, 2**64 - 1), st.integers(1, 5), min_size=1), st.integers(1, 30)
)
def test_whole_groups_are_taken_until_there_are_enough_rows(counts, rows):
    total = sum(counts.values())
    largest = max(counts.values())
    try:
        split = by_rows(Counter(counts), rows, 0)
    except OptionError:
        assert total < rows + largest
        return
    taken = sum(count for value, count in counts.items() if value < split.threshold)
    assert rows <= taken < min(rows + largest, total)


@pytest.mark.parametrize(
    ("text", "size"), [("0.1", 0.1), (0.25, 0.25), ("5", 5), (5, 5), ("1", 1), ("1e2", 100)]
)
def test_a_size_is_a_fraction_or_a_number_of_rows(text, size):
    found = ConvertOptions(val_size=text).val_size
    assert found == size
    assert type(found) is type(size)


@pytest.mark.parametrize("text", ["", "a", "0", "-0.5", "1.5", "nan", "inf", "-inf"])
def test_another_size_is_an_error(text):
    with pytest.raises(OptionError, match="--val-size"):
        ConvertOptions(val_size=text)


@settings(max_examples=100, deadline=None)
@given(
    parts=st.lists(st.lists(st.integers(0, 12), max_size=8), max_size=6), rows=st.integers(1, 30)
)
def test_the_lowest_hashes_split_as_all_hashes_do(parts, rows):
    held = LowestHashes(rows)
    for part in parts:
        held.add(np.array(part, np.uint64))
    everything = Counter(number for part in parts for number in part)
    assert held.counts.total() <= everything.total()
    try:
        expected = by_rows(everything, rows, 0)
    except OptionError as error:
        with pytest.raises(OptionError, match=re.escape(str(error))):
            by_rows(held.counts, rows, 0)
        return
    assert by_rows(held.counts, rows, 0) == expected


def test_of_many_hashes_few_are_kept():
    held = LowestHashes(100)
    for start in range(0, 100_000, 1000):
        held.add(np.arange(start, start + 1000, dtype=np.uint64)[::-1])
    assert held.counts == Counter(range(101))
