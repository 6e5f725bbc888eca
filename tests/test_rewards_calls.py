"""What is wrong with a reward function is said in one line, and nothing of it becomes a reward."""

import asyncio
import time
import warnings
from types import SimpleNamespace

import pytest
import reward_modules as modules

from fmtkit.core.errors import OptionError
from fmtkit.core.foreign_calls import OverdueError, within
from fmtkit.training.online.rewards import RewardError, RewardOptions, load_rewards


@pytest.fixture(scope="module")
def places(tmp_path_factory):
    return [modules.write(tmp_path_factory.mktemp("user"))]


@pytest.fixture
def loaded(places):
    """Load functions of the module by their names."""
    made = []

    def load(*names, **options):
        rewards = load_rewards(
            [f"scores.{name}" for name in names], places, options=RewardOptions(**options)
        )
        made.append(rewards)
        return rewards

    yield load
    for rewards in made:
        rewards.close()


def complaint(rewards, **more) -> str:
    with pytest.raises(RewardError) as found:
        rewards.score(**modules.batch(), **more)
    assert "\n" not in str(found.value)
    return str(found.value)


def test_rewards_are_one_number_for_each_completion(loaded):
    (found,) = loaded("right").score(**modules.batch())
    assert found == [float(str(row % 3) == str(row % 2)) for row in range(12)]


def test_a_function_that_names_its_arguments_gets_no_others(loaded):
    state = SimpleNamespace(global_step=7)
    named, shaped = loaded("named_only", "shaped").score(**modules.batch(), trainer_state=state)
    assert set(named) == {10.0, 11.0}
    assert set(shaped) == {7.0}


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("short", "reward scores.short returned 1 rewards for 12 completions; return one for each"),
        ("one_number", r"returned 1.0 (float); it must return a list"),
        ("texts", "returned 'good' (str) for completion 0; return a number, or None"),
        ("not_a_number", "returned nan for completion 11; return a finite number, or None"),
    ],
)
def test_what_is_no_list_of_numbers_is_named(loaded, name, words):
    assert words in complaint(loaded(name))


def test_a_batch_without_a_reward_is_counted_and_said_once(loaded):
    rewards, logged = loaded("never"), []
    with pytest.warns(UserWarning, match=r"every reward of a batch is None \(scores.never, 12"):
        (found,) = rewards.score(**modules.batch(), log_metric=lambda *pair: logged.append(pair))
    assert found == [None] * 12
    with warnings.catch_warnings(action="error"):
        rewards.score(**modules.batch())
    assert logged == [("rewards/skipped_batches", 1.0)]
    assert (rewards.judge.skipped, rewards.judge.seen) == (2, 2)


def test_a_batch_with_a_reward_is_not_skipped(loaded):
    rewards, logged = loaded("never", "sometimes"), []
    found = rewards.score(**modules.batch(), log_metric=lambda *pair: logged.append(pair))
    assert found[1][:2] == [1.0, None]
    assert logged == []
    assert (rewards.judge.skipped, rewards.judge.seen) == (0, 1)


def test_a_trainer_that_cannot_skip_ends_with_an_error(loaded):
    rewards = loaded("never")
    rewards.judge.is_fatal = True
    words = "every reward of this batch is None (scores.never, 12 completions)"
    assert words in complaint(rewards)


def test_numbers_of_numpy_and_of_torch_are_numbers(places):
    np = pytest.importorskip("numpy")
    torch = pytest.importorskip("torch")
    functions = [
        lambda completions: np.arange(len(completions)),
        lambda completions: torch.arange(len(completions)),
        lambda completions: [np.float32(1.5), torch.tensor(2), True, *[None] * 9],
    ]
    found = load_rewards(functions, places).score(**modules.batch())
    assert found[0] == found[1] == [float(n) for n in range(12)]
    assert found[2][:4] == [1.5, 2.0, 1.0, None]


@pytest.mark.parametrize("name", ["raising", "yielding"])
def test_an_exception_is_told_with_its_function_line_and_row(loaded, name):
    rewards = loaded(name)
    with pytest.raises(RewardError) as found:
        rewards.score(**{**modules.batch(), "answer": list("124513245678")})
    said = str(found.value)
    assert f"reward scores.{name} raised ZeroDivisionError: float division by zero" in said
    assert "scores.py:" in said
    assert "1.0 / (int(a) - 3)" in said
    assert "for completion 5 ('2')" in said
    assert "`fmtkit rewards test`" in said
    assert f"in {name}" in found.value.trace
    assert "fmtkit" not in found.value.trace


def test_a_row_is_looked_for_by_the_error_that_the_whole_batch_raised(loaded):
    rewards = loaded("comparing")
    with pytest.raises(RewardError, match=r"raised ValueError: could not convert .*'x'") as found:
        rewards.score(**{**modules.batch(), "answer": list("1245132456x8")})
    # One row alone ends in a ZeroDivisionError, which no batch of the run does.
    assert "for one of 12 completions" in str(found.value)


@pytest.mark.parametrize("name", ["sleeping", "backtracking"])
def test_a_function_that_hangs_is_interrupted_at_its_line(loaded, name):
    started = time.monotonic()
    said = complaint(loaded(name, seconds=0.3))
    assert time.monotonic() - started < 5
    assert f"reward scores.{name} had not returned after 0.3 seconds for 12 completions" in said
    assert "scores.py:" in said
    assert "trl.reward_timeout" in said


def test_a_limit_of_the_functions_own_works_within_ours(loaded):
    assert loaded("alarmed", seconds=5.0).score(**modules.batch())[0] == [0.5] * 12


def test_a_call_on_another_thread_is_abandoned():
    async def there():
        return await asyncio.to_thread(within, 0.2, lambda: time.sleep(3))

    started = time.monotonic()
    loop = asyncio.new_event_loop()
    with pytest.raises(OverdueError):
        loop.run_until_complete(there())
    assert time.monotonic() - started < 2
    assert loop.run_until_complete(asyncio.to_thread(within, 2, lambda: 5)) == 5
    loop.close()


def test_what_a_call_within_a_limit_raises_is_raised():
    with pytest.raises(KeyError):
        within(1, lambda: {}["a"])


def test_coroutines_are_awaited_checked_and_limited(loaded):
    later, right = loaded("later", "right").score(**modules.batch())
    assert later == right
    assert "raised ConnectionError: the judge is gone" in complaint(loaded("failing"))
    started = time.monotonic()
    assert "had not returned after 0.3 seconds" in complaint(loaded("blocking", seconds=0.3))
    assert time.monotonic() - started < 5
    # It still blocks its loop; the next one has another.
    (again,) = loaded("later", seconds=30).score(**modules.batch())
    assert again == right


def test_an_argument_that_no_column_gives_is_told_before_training(loaded):
    with pytest.raises(
        OptionError, match="takes 'answers', which the rows do not have; did you mean 'answer'"
    ):
        loaded("plural").check_columns(["prompt", "answer"])
    with pytest.raises(OptionError, match="they have prompt"):
        loaded("named_only").check_columns(["prompt"])
    loaded("right", "logging", "shaped").check_columns(["prompt", "answer"])


def test_a_column_with_the_name_of_an_argument_is_refused(loaded):
    with pytest.raises(OptionError, match="column 'completions' has the name of an argument"):
        loaded("right").check_columns(["prompt", "answer", "completions"])


def test_logs_of_a_function_reach_the_trainer(loaded):
    seen = []
    loaded("logging").score(
        **modules.batch(),
        log_extra=lambda column, values: seen.append((column, values)),
        log_metric=lambda name, value: seen.append((name, value)),
    )
    assert seen == [("seen", modules.batch()["completions"]), ("rows", 12.0)]
