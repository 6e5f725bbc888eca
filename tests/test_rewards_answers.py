"""What counts as the right answer: pairs of an answer and a reference, judged by hand beforehand."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from fmtkit.core.errors import DependencyError
from fmtkit.rewards import accuracy, math_verifier, numeric_match
from fmtkit.rewards.equality import is_same

PAIRS = Path(__file__).parents[1] / "fixtures" / "answers"


def pairs(name: str) -> list[dict]:
    return [json.loads(line) for line in (PAIRS / f"{name}.jsonl").open(encoding="utf-8")]


def judged(name: str, **options) -> tuple[list[dict], list[dict]]:
    """Return the pairs that are taken for right and are wrong, and those that are missed."""
    rows = pairs(name)
    answers = [row["answer"] for row in rows]
    found = accuracy(**options)(answers, answer=[row["reference"] for row in rows])
    both = list(zip(rows, found, strict=True))
    return (
        [row for row, reward in both if reward and not row["right"]],
        [row for row, reward in both if not reward and row["right"]],
    )


@pytest.mark.parametrize("name", ["tuned", "held_out"])
def test_no_wrong_answer_is_right_and_few_right_ones_are_missed(name):
    wrong, missed = judged(name)
    assert wrong == []
    assert len(missed) <= len(pairs(name)) // 20


@pytest.mark.parametrize("name", ["tuned", "held_out"])
def test_math_verify_misses_fewer_still(name):
    pytest.importorskip("math_verify")
    wrong, missed = judged(name, verifier="math_verify")
    assert (wrong, missed) == ([], [])


NOT_THE_SAME = [
    (r"2\sqrt{3}", "3"),
    (r"7\pi", "7"),
    ("3!", "3"),
    ("5-2", "-2"),
    ("1,2,3", "3"),
    ("12 noon", "12"),
    ("5 tens", "5"),
    ("x", "X"),
    ("A) 12 or B) 13", "A"),
    ("0.3...", "0.3"),
    (r"0.\overline{3}", "0.3"),
    ("$5$6", "56"),
    (r"\mathbf{5}6", "56"),
    (r"10\text{ mm}", r"10\text{ Mm}"),
    (r"\frac{1}{2}3", "1/23"),
    (r"2^\frac{1}{2}", "2^1/2"),
    (r"x=2,y=3", "x=3,y=2"),
    ("10,00", "1000"),
    ("½", "12"),
    ("10²", "102"),
    ("2^{99999999}", "2"),
    ("", ""),
]


@pytest.mark.parametrize(("one", "other"), NOT_THE_SAME)
def test_a_part_of_an_expression_is_never_its_value(one, other):
    assert not is_same(one, other)
    assert not is_same(other, one)
    assert accuracy()([f"so it is {one}"], answer=[other]) in ([0.0], [None])


@pytest.mark.parametrize(
    ("answer", "reference"),
    [
        (r"\sqrt{12}", r"2\sqrt{3}"),
        (r"\frac{\sqrt{3}}{3}", r"\frac{1}{\sqrt{3}}"),
        (r"(x+1)^2", r"x^2+2x+1"),
        (r"\log_2 8", "3"),
        (r"4i+3", "3+4i"),
    ],
)
def test_math_verify_knows_what_the_builtin_does_not(answer, reference):
    pytest.importorskip("math_verify")
    text = [rf"\boxed{{{answer}}}"]
    assert accuracy()(text, answer=[reference]) == [0.0]
    assert accuracy(verifier="math_verify")(text, answer=[reference]) == [1.0]


@pytest.mark.slow
def test_an_expression_that_never_ends_is_stopped_and_is_not_the_same(monkeypatch):
    pytest.importorskip("math_verify")
    monkeypatch.setattr(math_verifier, "SECONDS", 3.0)
    reward = accuracy(verifier="math_verify")
    endless = r"\boxed{9^{9^{9^{9^{9}}}}+x}"
    assert reward([endless, r"\boxed{\sqrt{4}}"], answer=["x+1", "2"]) == [0.0, 1.0]


def test_numbers_are_compared_within_the_tolerance_and_with_their_units():
    near = numeric_match(tolerance=0.01)
    texts = [r"\boxed{3.14\text{ cm}}", r"\boxed{3.14\text{ km}}", r"\boxed{\pi}"]
    assert near(texts, answer=["3.1416 cm"] * 3) == [1.0, 0.0, 0.0]
    assert near(["5", "5"], answer=["five", r"2\sqrt{3}"]) == [None, None]


def test_math_verify_computes_the_number_that_is_compared():
    pytest.importorskip("math_verify")
    near = numeric_match(tolerance=0.001, verifier="math_verify")
    texts = [r"\boxed{2\sqrt{3}}", r"\boxed{2\sqrt{x}}", r"\boxed{\sqrt{-3}}"]
    assert near(texts, answer=["3.464", "3.464", "3.464"]) == [1.0, 0.0, 0.0]


@pytest.mark.parametrize("reward", [accuracy, numeric_match])
def test_a_verifier_is_known_and_installed_or_an_error(reward, monkeypatch):
    with pytest.raises(ValueError, match=r"verifier: 'sympy': takes builtin or math_verify"):
        reward(verifier="sympy")
    monkeypatch.setattr(math_verifier, "find_spec", lambda _: None)
    with pytest.raises(DependencyError, match=r"pip install 'fmtkit\[math\]'"):
        reward(verifier="math_verify")


def test_what_the_builtin_says_does_not_depend_on_what_is_installed():
    code = (
        "import sys; sys.modules['math_verify'] = None; from fmtkit.rewards import accuracy\n"
        r"print(accuracy()([r'\boxed{\sqrt{4}}', r'\boxed{\frac12}'], answer=['2', '0.5']))"
        "\nprint(sorted({'sympy', 'math_verify'} & {n for n, m in sys.modules.items() if m}))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[0.0, 1.0]\n[]\n"


@pytest.mark.parametrize(
    "unit", ["1", r"\boxed{", r"\text{a}", "answer ", r"\(", "1,111,", r"\frac{1}", "^{", "five 5 "]
)
def test_a_long_answer_is_judged_all_the_same(unit):
    long = unit * 20000
    assert (
        accuracy()([long, rf"\boxed{{{long}}}", long], answer=["7", "7", long + "7"]) == [0.0] * 3
    )
