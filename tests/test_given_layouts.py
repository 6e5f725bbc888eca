"""The given layouts of public projects: no guess is sure or likely and wrong, and most right ones say so."""

import importlib.util
import re
import sys
from collections import Counter
from pathlib import Path

import pytest

import fmtkit
from fmtkit.core.errors import FmtkitError

GIVEN = Path(__file__).parents[2] / "shared" / "data" / "layouts"
RIGHT = 114
"""Layouts that are right today, of 115: fewer is a step back."""
TRUSTED = 0.60
"""Share of the layouts converted right whose guess says so: below it the words mean nothing."""


@pytest.fixture
def check(monkeypatch):
    """Return the module that checks a layout; it reads its options where it is imported."""
    if not (GIVEN / "check.py").is_file():
        pytest.skip("needs ../shared/data/layouts")
    monkeypatch.syspath_prepend(str(GIVEN))
    monkeypatch.setattr(sys, "argv", ["check.py", "fmtkit"])
    spec = importlib.util.spec_from_file_location("given_layouts_check", GIVEN / "check.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


# Each layout is inspected and converted twice: 45 s.
@pytest.mark.slow
def test_no_guess_of_the_given_layouts_is_wrong_while_sure_and_most_right_ones_say_so(
    check, record_property
):
    results = [check.run(case) for case in check.cases]
    verdicts = Counter(result["verdict"] for result in results)
    converted = [
        result
        for result in results
        if result["verdict"] == "right"
        and result["kind"] == "convert"
        and not result.get("refused")
    ]
    trusted = sum(result["certainty"] in ("sure", "likely") for result in converted)
    numbers = f"{dict(verdicts)}; sure or likely: {trusted} of {len(converted)} converted right"
    record_property("layouts", numbers)
    print(numbers)
    never = ("made_up_pairs", "wrong_sure", "not_refused", "traceback")
    wrong = [(r["file"], r["verdict"], r.get("why")) for r in results if r["verdict"] in never]
    assert wrong == []
    assert verdicts["right"] >= RIGHT, numbers
    assert trusted >= TRUSTED * len(converted), numbers


# Each of 115 layouts is looked at twice: 15 s.
@pytest.mark.slow
def test_convert_and_inspect_say_the_same_of_each_given_layout():
    if not (GIVEN / "check.py").is_file():
        pytest.skip("needs ../shared/data/layouts")
    files = [path for path in sorted(GIVEN.iterdir()) if path.suffix in (".jsonl", ".json", ".csv")]
    for path in files:
        try:
            fmtkit.convert(str(path), None)
        except FmtkitError as error:
            told = re.search(r"looks like (\S+) -> \S+ \((\w+):", str(error))
        survey = fmtkit.inspect(str(path))
        said = (told[1], told[2]) if told else (None, None)
        assert said == (survey.best_guess, survey.certainty), path.name
