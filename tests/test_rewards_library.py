"""The rewards of the library, on texts and on messages, and what they take for the answer."""

from dataclasses import fields
from fractions import Fraction
from pathlib import Path

import pytest

from fmtkit.core.errors import OptionError
from fmtkit.rewards import (
    LIBRARY,
    accuracy,
    exact_match,
    length_cap,
    length_target,
    numeric_match,
    pattern,
    repetition,
    tags,
)
from fmtkit.rewards.answers import final_answer, text_of
from fmtkit.rewards.correctness import final_quantity
from fmtkit.rewards.equality import number_of


def said(text):
    return [{"role": "assistant", "content": text}]


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        (r"so \boxed{1} and \boxed{\frac{1}{2}}", r"\frac{1}{2}"),
        (r"\fbox{3}", "3"),
        (r"\boxed{ {a} }", "{a}"),
        ("#### 5\n#### 72 dollars\nand more", "72 dollars"),
        ("<answer>no</answer><answer>\nParis\n</answer>", "Paris"),
        ("just 7", None),
        (r"\boxed{never closed", None),
        ("", None),
    ],
)
def test_a_marked_answer_is_found_and_the_last_one_counts(text, answer):
    assert final_answer(text) == answer


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("1,234.50", Fraction(2469, 2)),
        ("$3", 3),
        ("50%", 50),
        ("−2", -2),
        ("-2e3", -2000),
        ("1/2", Fraction(1, 2)),
        (r"\frac{1}{2}", Fraction(1, 2)),
        (r"-\dfrac{3}{4}", Fraction(-3, 4)),
        (".5", Fraction(1, 2)),
        ("72.", 72),
        ("0.1", Fraction(1, 10)),
        ("1/0", None),
        ("1,23", None),
        ("seven", None),
        ("9" * 5000, None),
        ("1e999999", None),
        ("", None),
    ],
)
def test_a_number_is_read_exactly_or_not_at_all(text, number):
    assert number_of(text) == number


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("10 - 3 = 7", 7),
        ("12 apples and 3 pears", 3),
        ("1, 2, 3", None),
        ("it costs 5-3", None),
        ("v2 of gpt4 has 8B", None),
        ("so it is 7\\pi", None),
        ("there are 5 million", None),
        ("they meet at 3:30", None),
        ("The answer is 42. I checked it 3 times.", 42),
        ("Thus $x = 5$.", 5),
        ("The answer is 1,000,000.", 1000000),
        ("#### 18 of 20 eggs: 18", None),
        ("#### 18 eggs", 18),
        (r"first 9, then \boxed{4}, 5 left", 4),
        ("none", None),
    ],
)
def test_the_final_number_is_the_marked_one_or_the_last(text, number):
    found = final_quantity(text)
    assert (found and found.value) == number


@pytest.mark.parametrize("completion_of", [str, said])
def test_accuracy_compares_numbers_as_numbers_and_words_as_words(completion_of):
    texts = ["so 72.0", "#### 71", r"\boxed{paris}", "London", "Paris.", ""]
    references = ["#### 72", "72", "Paris", "Paris", "Paris", "Paris"]
    found = accuracy()([completion_of(text) for text in texts], answer=references)
    assert found == [1.0, 0.0, 1.0, 0.0, 1.0, 0.0]


def test_accuracy_takes_a_number_for_a_reference():
    assert accuracy()(["it is 3", "it is 4"], answer=[3, 3.5]) == [1.0, 0.0]


def test_a_row_without_a_reference_has_no_reward():
    assert accuracy()(["3", "3"], answer=[None, ""]) == [None, None]


def test_the_reference_is_looked_for_in_the_usual_columns_or_the_named_one():
    rows = {"solution": ["1"], "mine": ["2"]}
    assert accuracy()(["2"], **rows) == [0.0]
    assert accuracy(column="mine")(["2"], **rows) == [1.0]
    with pytest.raises(OptionError, match=r"'other' is not among their columns \(mine, solution\)"):
        accuracy(column="other").check_columns(["solution", "mine"])
    with pytest.raises(OptionError, match="none of answer, solution"):
        accuracy().check_columns(["question"])


def test_exact_match_wants_the_reference_and_nothing_else():
    reward = exact_match()
    assert reward([" 72\n", "It is 72", said("72")], answer=["72"] * 3) == [1.0, 0.0, 1.0]
    assert reward(["paris"], answer=["Paris"]) == [0.0]
    assert exact_match(ignore_case=True)(["paris"], answer=["Paris"]) == [1.0]


def test_numeric_match_takes_what_is_near_where_it_may():
    texts, references = ["3.14", "about 3.1", "none", "-5"], ["3.14159"] * 3 + ["5"]
    assert numeric_match()(texts, answer=references) == [0.0, 0.0, 0.0, 0.0]
    assert numeric_match(tolerance=0.01)(texts, answer=references) == [1.0, 0.0, 0.0, 0.0]
    assert numeric_match()(["1e1"], answer=["10"]) == [1.0]


@pytest.mark.parametrize(
    ("text", "reward"),
    [
        ("<think>a</think><answer>b</answer>", 1.0),
        ("\n<think>\na < b\n</think>\n\n<answer>b</answer>\n", 1.0),
        ("<think>a</think> so <answer>b</answer>", 0.0),
        ("<answer>b</answer><think>a</think>", 0.0),
        ("<think>a</think><answer> </answer>", 0.0),
        ("<think>a<think>b</think></think><answer>c</answer>", 0.0),
        ("</think>a<think><answer>c</answer>", 0.0),
        ("<think>a</think>", 0.0),
        ("", 0.0),
    ],
)
def test_tags_stand_each_once_in_order_and_filled(text, reward):
    assert tags()([text, said(text)]) == [reward, reward]


def test_thinking_that_was_parsed_out_of_a_message_counts_for_its_form():
    message = {"role": "assistant", "content": "<answer>b</answer>", "reasoning_content": "a"}
    assert tags()([[message]]) == [1.0]
    assert text_of([message]) == "<answer>b</answer>"


def test_a_pattern_matches_the_whole_unless_it_searches():
    assert pattern(r"yes|no")(["yes", " no\n", "yes it is"]) == [1.0, 1.0, 0.0]
    assert pattern(r"yes", search=True)(["oh yes\nyes", "no"]) == [1.0, 0.0]
    with pytest.raises(ValueError, match=r"pattern: '\(': missing \)"):
        pattern("(")


def test_length_is_counted_in_tokens_words_or_characters():
    ids = [[1], [1] * 10, [1] * 20, [1] * 40, []]
    texts = ["w"] * 5
    found = length_target(20)(texts, completion_ids=ids)
    assert found == pytest.approx([0.05, 0.5, 1.0, 0.0, 0.0])
    assert length_target(2, unit="words")(["a b", said("a")]) == [1.0, 0.5]
    assert length_target(2, unit="characters")(["ab", "äb c"]) == [1.0, 0.0]
    with pytest.raises(OptionError, match="passes no completion_ids; use words"):
        length_target(2)(["a"])


def test_the_cap_is_soft_within_its_buffer():
    ids = [[1] * count for count in (10, 80, 90, 100, 101)]
    assert length_cap(100)(ids, completion_ids=ids) == [0.0, 0.0, 0.0, 0.0, -1.0]
    assert length_cap(100, buffer=20)(ids, completion_ids=ids) == [0.0, 0.0, -0.5, -1.0, -1.0]


def test_repetition_is_the_share_of_n_grams_that_came_before():
    texts = ["a b c d", "a b a b a b", "A b a B", "a", ""]
    assert repetition(n=2)(texts) == pytest.approx([0.0, -(1 - 2 / 5), -(1 - 2 / 3), 0.0, 0.0])
    assert repetition(n=1, penalty=0.5)([said("a a")]) == [-0.25]


@pytest.mark.parametrize(
    ("made", "words"),
    [
        (lambda: length_target(0), "target: 0"),
        (lambda: length_target(1, unit="lines"), "unit: 'lines': takes tokens, words, characters"),
        (lambda: length_cap(5, buffer=6), "buffer: 6: takes a number from 0 to cap"),
        (lambda: repetition(n=0), "n: 0"),
        (lambda: repetition(penalty=-1), "penalty: -1"),
    ],
)
def test_options_that_make_no_sense_are_refused(made, words):
    with pytest.raises(ValueError, match=words.replace("(", r"\(")):
        made()


def test_messages_of_a_conversation_with_tools_end_in_the_last_answer():
    conversation = [
        {"role": "assistant", "content": None, "tool_calls": [{}]},
        {"role": "tool", "content": "99"},
        {"role": "assistant", "content": [{"type": "text", "text": "It is 7"}]},
    ]
    assert text_of(conversation) == "It is 7"
    assert text_of(conversation[:2]) == ""
    assert text_of([]) == ""
    assert accuracy()([conversation, conversation[:2]], answer=["7", "7"]) == [1.0, 0.0]


def test_every_reward_of_the_library_says_what_it_is():
    assert list(LIBRARY) == sorted(LIBRARY)
    for name, made in LIBRARY.items():
        assert made.__name__ == name
        assert made.__doc__


def test_every_reward_of_the_library_is_in_the_page_with_its_options():
    page = (Path(__file__).parents[1] / "docs/rewards.md").read_text(encoding="utf-8")
    for name, made in LIBRARY.items():
        (row,) = [
            line for line in page.splitlines() if line.startswith(f"| `fmtkit.rewards.{name}`")
        ]
        for option in fields(made):
            assert f"`{option.name}" in row, (name, option.name)


def test_long_hostile_texts_take_no_time_to_speak_of():
    for text in (
        "1," * 100_000,
        "<answer>" * 50_000,
        "\\boxed{" * 20_000,
        "9" * 200_000,
        "- " * 100_000,
    ):
        assert accuracy()([text], answer=["72"]) == [0.0]
