"""Functions give the same rewards in one piece, group by group, and on workers; a worker's end is told."""

import os
import subprocess
import sys
import time
from types import SimpleNamespace

import pytest
import reward_modules as modules

from fmtkit.rewards import length_cap
from fmtkit.training.online.rewards import RewardError, RewardOptions, load_rewards
from fmtkit.training.online.rewards.batch import batch_of, group_starts, groups_each, parts

WAYS = [
    RewardOptions(2),
    RewardOptions(groups=1),
    RewardOptions(2, groups=1),
    RewardOptions(3, groups=2),
]
EQUAL = ["right", "named_only", "group_mean", "sometimes", "shaped", "later", "whole_batch"]


@pytest.fixture(scope="module")
def places(tmp_path_factory):
    return [modules.write(tmp_path_factory.mktemp("user"))]


@pytest.fixture
def load(places):
    made = []

    def loaded(names, *way, **options):
        chosen = way[0] if way else RewardOptions(**options)
        named = [f"scores.{name}" if isinstance(name, str) else name for name in names]
        made.append(load_rewards(named, places, options=chosen))
        return made[-1]

    yield loaded
    for rewards in made:
        rewards.close()


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("size", [None, modules.SIZE])
def test_rewards_do_not_depend_on_how_they_are_computed(load, way, size):
    state = SimpleNamespace(global_step=7, not_to_be_sent=time.sleep)
    batch = modules.batch(groups=5)
    serial = load(EQUAL).score(**batch, trainer_state=state)
    rewards = load(EQUAL, way)
    rewards.group_size = size
    assert rewards.score(**batch, trainer_state=state) == serial
    assert rewards.score(**batch, trainer_state=state) == serial


def test_streaming_calls_whole_groups_unless_a_function_needs_the_batch(load):
    rewards = load(["batch_size", "whole_batch"], groups=2)
    rewards.group_size = lambda: 4
    sizes, whole = rewards.score(**modules.batch(groups=5))
    assert sizes == [8.0] * 16 + [4.0] * 4
    assert set(whole) == {20.0}


def test_groups_are_told_by_their_size_or_by_their_prompts():
    assert group_starts(["a", "a", "b", "b"], 2) == [0, 2]
    assert group_starts(["a", "a", "b"], None) == [0, 2]
    assert group_starts(["a", "b", "a", "b"], 4) == [0]
    assert group_starts(["a", "a", "b"], 2) == [0]
    assert [groups_each(count, 2) for count in (1, 2, 5)] == [1, 1, 3]
    batch = batch_of(list("aabbcc"), list("123456"), None, {"x": list("uvwxyz"), "log_extra": 1})
    cut = list(parts(batch, [0, 2, 4], 2))
    assert [(part.first, part.columns["x"], part.context) for part in cut] == [
        (0, list("uvwx"), {"log_extra": 1}),
        (4, list("yz"), {"log_extra": 1}),
    ]


def test_the_workers_are_other_processes_and_stay(load):
    rewards = load(["process_id"], workers=2)
    (first,) = rewards.score(**modules.batch(groups=4))
    (again,) = rewards.score(**modules.batch(groups=4))
    assert float(os.getpid()) not in first
    assert set(again) <= set(first)


def test_functions_on_workers_may_use_alarms(load):
    assert load(["alarmed"], workers=2).score(**modules.batch())[0] == [0.5] * 12


def test_what_a_worker_logs_reaches_the_trainer_in_order(load):
    seen = []
    load(["logging"], workers=2, groups=1).score(
        **modules.batch(),
        log_extra=lambda column, values: seen.extend(values),
        log_metric=lambda name, value: seen.append(value),
    )
    logged = modules.batch()["completions"]
    assert seen == [*logged[:4], 4.0, *logged[4:8], 4.0, *logged[8:], 4.0]


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("raising", "raised ZeroDivisionError: float division by zero (scores.py:"),
        ("short", "returned 1 rewards for"),
        ("not_a_number", "returned nan for completion 7"),
        ("sleeping", "had not returned after 0.5 seconds"),
        ("backtracking", "had not returned after 0.5 seconds"),
        ("dying", "the process that ran it died"),
    ],
)
def test_what_goes_wrong_in_a_worker_is_told_as_in_one_process(load, name, words):
    rewards = load([name], workers=2, seconds=0.5)
    batch = {**modules.batch(), "answer": list("123456781234")}
    with pytest.raises(RewardError) as found:
        rewards.score(**batch)
    assert words in str(found.value)
    if name == "raising":
        assert "for completion 2 ('2')" in str(found.value)
        assert 'scores.py", line' in found.value.trace


def test_after_an_error_the_workers_answer_again(load):
    rewards = load(["raising"], workers=2)
    with pytest.raises(RewardError):
        rewards.score(**{**modules.batch(), "answer": ["3"] * 12})
    assert rewards.score(**{**modules.batch(), "answer": ["4"] * 12})[0] == [1.0] * 12


def test_objects_that_can_be_pickled_run_there_and_others_here_with_a_warning(load):
    here = lambda completions, **_: [float(os.getpid())] * len(completions)  # noqa: E731
    with pytest.warns(UserWarning, match="cannot be pickled: it runs in the training process"):
        rewards = load([length_cap(1), here, "process_id"], workers=2)
    capped, own, other = rewards.score(**modules.batch())
    assert capped == [-1.0] * 12
    assert set(own) == {float(os.getpid())}
    assert float(os.getpid()) not in other


def test_a_batch_that_cannot_be_pickled_is_scored_here_with_a_warning(load):
    rewards = load(["process_id"], workers=2)
    with pytest.warns(UserWarning, match="the batch cannot be sent to reward_num_workers"):
        (found,) = rewards.score(**modules.batch(), tool=[lambda: 0] * 12)
    assert set(found) == {float(os.getpid())}


def test_environments_are_scored_where_they_live(load):
    (found,) = load(["process_id"], workers=2).score(
        **modules.batch(), environments=[object()] * 12
    )
    assert set(found) == {float(os.getpid())}


def test_a_worker_loads_neither_torch_nor_trl():
    code = (
        "import sys, fmtkit.training.online.rewards.serving, fmtkit.core.worker;"
        "print(*{m.partition('.')[0] for m in sys.modules})"
    )
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert not {"torch", "trl", "transformers", "datasets", "numpy", "polars"} & set(
        shown.stdout.split()
    )


def test_a_program_with_workers_ends_by_itself(places):
    code = (
        "from pathlib import Path\n"
        "from fmtkit.training.online.rewards import RewardOptions, load_rewards\n"
        f"r = load_rewards(['scores.right', 'scores.sleeping'], [Path({str(places[0])!r})],"
        " options=RewardOptions(2, seconds=0.3))\n"
        "try: r.score(['a', 'b'], ['1', '2'], None, answer=['1', '2'])\n"
        "except Exception as error: print(error)\n"
    )
    started = time.monotonic()
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, check=True, text=True, timeout=60
    )
    assert "had not returned after 0.3 seconds" in done.stdout
    assert time.monotonic() - started < 30
