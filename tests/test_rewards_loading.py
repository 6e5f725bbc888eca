"""What `trl.reward_funcs` names, where it is looked for, and what is said when it is not there."""

import sys

import pytest
import reward_modules as modules

from fmtkit.core.errors import FmtkitError, OptionError
from fmtkit.training.online.rewards import (
    RewardOptions,
    Rewards,
    entries,
    load_rewards,
    read_options,
)


@pytest.fixture(autouse=True)
def _own_modules(monkeypatch):
    """Leave sys.path and sys.modules as they were."""
    monkeypatch.setattr(sys, "path", list(sys.path))
    before = set(sys.modules)
    yield
    for name in {"scores", "reward_neighbour"} & (set(sys.modules) - before):
        del sys.modules[name]


@pytest.fixture
def places(tmp_path):
    return [modules.write(tmp_path / "config"), tmp_path]


def test_functions_files_and_ours_keep_their_order_and_trl_names(places, tmp_path):
    modules.write(tmp_path / "elsewhere")
    rewards = load_rewards(
        ["scores.right", "elsewhere/scores.py:later", "fmtkit.rewards.accuracy"], places
    )
    assert rewards.names == ["right", "later", "accuracy"]
    assert [callable(function) for function in rewards.functions] == [True] * 3


def test_one_name_need_not_be_a_list(places):
    assert load_rewards("scores.right", places).names == ["right"]


def test_names_of_trl_are_those_that_trl_finds(places):
    utils = pytest.importorskip("trl.trainer.utils")
    names = ["scores.right", "scores.Judge", {"scores.Weighted": {"weight": 2}}, "scores.later"]
    rewards = load_rewards(names, places)
    assert [utils.get_callable_name(f) for f in rewards.functions] == rewards.names
    assert [utils.is_async_callable(f) for f in rewards.functions] == [False, True, False, True]


def test_functions_of_one_name_are_told_apart(places):
    named = ["scores.right", {"scores.Weighted": {"weight": 1}}, {"scores.Weighted": {"weight": 2}}]
    rewards = load_rewards([*named, "fmtkit.rewards.accuracy"], places)
    assert rewards.names == ["right", "scores.Weighted", "scores.Weighted_2", "accuracy"]


def test_a_class_is_made_with_its_options_and_a_function_is_called_with_them(places):
    (places[0] / "mine.py").write_text(
        "def scaled(completions, factor, **kwargs):\n    return [factor] * len(completions)\n"
    )
    rewards = load_rewards(
        [{"scores.Weighted": {"weight": 2.5}}, {"mine.scaled": {"factor": 3.0}}], places
    )
    found = rewards.score(**modules.batch())
    assert [set(values) for values in found] == [{2.5}, {3.0}]


def test_options_win_over_columns_of_their_name(places):
    (places[0] / "mine.py").write_text(
        "def scaled(completions, factor, **kwargs):\n    return [factor] * len(completions)\n"
    )
    rewards = load_rewards([{"mine.scaled": {"factor": 3.0}}], places)
    assert set(rewards.score(**modules.batch(), factor=[9.0] * 12)[0]) == {3.0}


@pytest.mark.parametrize(
    ("named", "words"),
    [
        ("scores.rihgt", r"scores.py has no 'rihgt'; did you mean 'right'\?"),
        ("nowhere.score", "no nowhere.py in"),
        ("scores.number", "is of type int; it must be a function"),
        (
            "accuracy",
            r"'accuracy' is neither module.function.*did you mean fmtkit.rewards.accuracy\?",
        ),
        ("acuracy", r"did you mean fmtkit.rewards.accuracy\?"),
        ("fmtkit.rewards.acuracy", r"did you mean 'accuracy'\?"),
        ("missing.py:score", "no missing.py in"),
        ("./missing", "is neither module.function"),
        (
            {"fmtkit.rewards.accuracy": {"colum": "a"}},
            r"no option named 'colum'; did you mean 'column'\?",
        ),
        ({"fmtkit.rewards.length_cap": {}}, "needs the option cap"),
        ({"fmtkit.rewards.length_cap": {"cap": 0}}, "cap: 0: takes a whole number from 1"),
        ({"scores.named_only": {"bonus": 1}}, "no option named 'bonus'"),
        ({"scores.right": 3}, r"write NAME, or NAME: \{option: value\}"),
        (3, r"write NAME, or NAME: \{option: value\}"),
    ],
)
def test_what_cannot_be_loaded_is_told(places, named, words):
    with pytest.raises(FmtkitError, match=words) as found:
        load_rewards([named], places)
    assert found.value.exit_code == 2


def test_a_folder_with_a_model_or_a_hub_id_is_a_reward_model(places, tmp_path):
    model = tmp_path / "models" / "judge.v1"
    model.mkdir(parents=True)
    (model / "config.json").write_text("{}")
    rewards = load_rewards([str(model), "models/judge.v1", "org/judge"], places)
    assert rewards.functions == [str(model), str(model), "org/judge"]
    assert rewards.names == ["judge.v1", "judge.v1", "judge"]
    (model / "config.json").unlink()
    with pytest.raises(OptionError, match=r"has no config\.json, so it is not a reward model"):
        load_rewards([str(model)], places)
    with pytest.raises(OptionError, match="is a reward model, which takes no options"):
        load_rewards([{"org/judge": {"a": 1}}], places)


def test_weights_are_as_many_as_functions(places):
    names = ["scores.right", "scores.later"]
    load_rewards(names, places, weights=[1.0, 0.5])
    with pytest.raises(OptionError, match="has 1 numbers for 2 reward_funcs; write one for each"):
        load_rewards(names, places, weights=[1.0])


def test_names_are_checked_without_running_anything(places):
    (places[0] / "loud.py").write_text("raise SystemExit\ndef score(): pass\n")
    entries.check(entries.read(["loud.score", "fmtkit.rewards.tags", "org/model"], places))
    with pytest.raises(OptionError, match="has no 'scor'"):
        entries.check(entries.read("loud.scor", places))


def test_options_of_the_run_are_read_strictly():
    assert read_options({}) == RewardOptions(workers=1, seconds=600.0, groups=0)
    section = {"streaming_partial_batch": True, "reward_num_workers": 2, "reward_timeout": 5}
    assert read_options(section) == RewardOptions(workers=2, seconds=5.0, groups=1)
    for key in ("reward_num_workers", "reward_timeout", "streaming_min_groups"):
        with pytest.raises(OptionError, match=key):
            read_options({key: 0})


def test_a_misspelt_argument_of_trls_is_answered_with_the_argument():
    def reward(completions, completions_ids, **_):
        return [0.0] * len(completions)

    with pytest.raises(OptionError, match="did you mean 'completion_ids'"):
        Rewards([reward], RewardOptions()).check_columns(["prompt", "answer"])
