"""Progress in logs: few lines, of one form, that never come sooner than they are due."""

from types import SimpleNamespace

import pytest

from fmtkit.core.progress_lines import ProgressLines, of_total
from fmtkit.running.ledger import Ledger
from fmtkit.running.progress_bar import LinesOfRows


class Clock:
    """A clock that a test sets."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def printed():
    return []


@pytest.fixture
def lines(printed, clock):
    return ProgressLines(printed.append, clock)


def test_short_work_prints_nothing(lines, printed, clock):
    for clock.now in (100.0, 104.0, 109.9):
        lines("half")
    assert printed == []


def test_a_line_comes_every_ten_seconds(lines, printed, clock):
    for second in range(100):
        clock.now = 100.0 + second
        lines(f"{second} of 100")
    assert printed == [f"{ten}0 of 100" for ten in range(1, 10)]


def test_a_day_prints_some_hundreds_of_lines(lines, printed, clock):
    for second in range(0, 86_400, 5):
        clock.now = 100.0 + second
        lines("step")
    assert 100 < len(printed) < 400


def test_text_is_made_only_for_a_line_that_is_printed(lines, printed, clock):
    lines(lambda: pytest.fail("not due"))
    clock.now += 11
    lines(lambda: of_total(1000, 20507))
    assert printed == ["1,000 of 20,507"]


def test_a_conversion_says_what_is_read(lines, printed, clock):
    clock.now += 11
    LinesOfRows("converting a.jsonl", lines)(31_500_000, 300_000_000, Ledger(rows_read=33_230))
    assert printed == ["converting a.jsonl: 31.5 MB of 300.0 MB, 33,230 rows"]


def test_steps_say_how_far_they_are_and_the_last_metrics(lines, printed, clock, capfd):
    pytest.importorskip("trl")
    from fmtkit.training.run.progress import ProgressBar

    state = SimpleNamespace(is_world_process_zero=True, global_step=3, max_steps=100)
    bar = ProgressBar(lambda: 120.0, lines)
    bar.on_train_begin(None, state, None)
    clock.now += 11
    bar.on_step_end(None, state, None)
    bar.on_log(None, state, None, logs={"loss": 2.5})
    state.global_step, clock.now = 4, clock.now + 11
    bar.on_step_end(None, state, None)
    assert printed == ["step 3 of 100", "step 4 of 100  loss 2.5  tokens/s 120"]


def test_preparing_rows_says_how_many_are_done(lines, printed, clock):
    datasets = pytest.importorskip("datasets")
    from fmtkit.training.run.progress import preparing

    def slow(row):
        clock.now += 11
        return row

    before = datasets.arrow_dataset.hf_tqdm
    with preparing(lines):
        datasets.Dataset.from_dict({"a": [1, 2]}).map(slow, desc="Tokenizing train dataset")
    assert printed[-1] == "Tokenizing train dataset: 2 of 2 rows"
    assert datasets.arrow_dataset.hf_tqdm is before
