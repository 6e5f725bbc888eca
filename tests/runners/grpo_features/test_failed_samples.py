"""Rewards, rollouts and environments that fail: tried again, masked within limits, never trained as 0."""

import asyncio
import json
import math
from pathlib import Path

import online_runs as online
import pyarrow.parquet as pq
import pytest
import tiny_training as tiny
import torch
import trl
import yaml
from test_grpo_trainer import GROUP, logs, make_trainer, rows

from fmtkit.core import foreign_calls
from fmtkit.core.errors import OptionError
from fmtkit.runners.grpo_features.settings import GrpoSettings
from fmtkit.runners.grpo_features.trainer import FmtkitGRPOTrainer
from fmtkit.training.online import failed_samples
from fmtkit.training.online.failed_samples import Timings
from fmtkit.training.online.rewards import RewardError, RewardOptions, load_rewards, read_options
from fmtkit.training.online.rollouts.guarded_environments import guarded
from fmtkit.training.run import process
from fmtkit.training.run import run as runs
from fmtkit.training.vllm.rollout_settings import RolloutSettings, read_settings

TOLERANT = RolloutSettings(max_failed_share=0.5)
BAD = "bad"


def length(completions, **_):
    if BAD in completions:
        raise RuntimeError("the judge is away")
    return [float(len(c)) for c in completions]


def short(completions, **_):
    return [1.0] * (len(completions) - (BAD in completions))


def not_a_number(completions, **_):
    return [math.nan if c == BAD else 1.0 for c in completions]


def endless(completions, **_):
    while BAD in completions:
        pass
    return [1.0] * len(completions)


async def awaited(completions, **_):
    return length(completions)


def scored(function, completions, **options):
    rewards = load_rewards([function], [], options=RewardOptions(masks=True, **options))
    values = rewards.score([""] * len(completions), completions)[0]
    return values, rewards.failures.take()


@pytest.mark.parametrize("function", [length, short, not_a_number, awaited])
def test_the_sample_that_fails_is_found_and_the_others_keep_their_rewards(function):
    values, failed = scored(function, ["a", "bb", BAD, "dd", "e"])
    assert [value is None for value in values] == [False, False, True, False, False]
    assert list(failed) == [2]
    assert function.__name__ in failed[2]


def test_a_reward_that_never_ends_costs_its_sample_and_bounded_time():
    values, failed = scored(endless, ["a", BAD], seconds=0.2)
    assert values == [1.0, None]
    assert "had not returned after" in failed[1]


def test_a_function_of_the_whole_batch_fails_for_all_of_it():
    def whole(completions, **_):
        return length(completions)

    whole.needs_full_batch = True
    values, failed = scored(whole, ["a", BAD])
    assert values == [None, None]
    assert set(failed) == {0, 1}


@pytest.mark.parametrize("function", [length, awaited])
def test_without_a_share_the_first_failure_ends_it_as_before(function):
    rewards = load_rewards([function], [])
    with pytest.raises(RewardError, match="the judge is away"):
        rewards.score(["", ""], ["a", BAD])


@pytest.mark.parametrize("is_awaited", [False, True])
def test_a_call_that_fails_for_a_moment_is_made_again(monkeypatch, is_awaited):
    monkeypatch.setattr(foreign_calls, "FIRST_PAUSE", 0.01)
    calls = []

    def flaky(completions, **_):
        calls.append(len(completions))
        if len(calls) <= 2:
            raise OSError("reset")
        return [1.0] * len(completions)

    async def flaky_coroutine(completions, **_):
        return flaky(completions)

    function = flaky_coroutine if is_awaited else flaky
    assert scored(function, ["a", "b"], retries=2) == ([1.0, 1.0], {})
    assert calls == [2, 2, 2]


@pytest.mark.parametrize(
    ("share", "samples", "may"), [(0, 16, 0), (0.05, 16, 1), (0.5, 16, 8), (0.25, 6, 1)]
)
def test_a_share_above_nothing_allows_one_at_least(share, samples, may):
    assert failed_samples.allowed(share, samples) == may


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"max_failed_share": 1.0}, "from 0 to below 1"),
        ({"max_failed_share": -0.1}, "from 0 to below 1"),
        ({"max_retries": -1}, "from 0"),
        ({"rollout_timeout": 0}, "above 0"),
        ({"environment_timeout": -5}, "above 0"),
    ],
)
def test_limits_that_cannot_be_are_refused(values, said):
    with pytest.raises(OptionError, match=said):
        read_settings(values, run="run")


def test_rewards_know_whether_samples_may_fail():
    assert not read_options({}).masks
    assert read_options({"max_failed_share": 0.1, "max_retries": 2}) == RewardOptions(
        retries=2, masks=True
    )


def test_the_slowest_call_is_named_where_it_comes_near_its_limit():
    timings = Timings()
    timings.add("reward judge", [1.0, 7.0], 10.0, ["'a'", "'b'"])
    assert dict(timings.metrics()) == {
        "seconds/reward judge/mean": 4.0,
        "seconds/reward judge/max": 7.0,
    }
    assert "reward judge took 7 of 10 s, for 'b'" in timings.finding()
    assert Timings().finding() is None


# --- in training ------------------------------------------------------------------------------


def rollout(failing=(), whole=()):
    """Return a rollout function: it says that some answers failed, and raises for some prompts."""

    def play(prompts, trainer):
        names = [prompt[-1]["content"].split()[0] for prompt in prompts]
        if set(names) & set(whole):
            raise ConnectionError("no server")
        lost = [i % GROUP == 1 and name in failing for i, name in enumerate(names)]
        return {
            "prompt_ids": [[1, 2, 3] for _ in prompts],
            "completion_ids": [[9 + i % 3, 5, 2] for i, _ in enumerate(names)],
            "logprobs": None,
            "rollout_error": ["it broke" if one else None for one in lost],
        }

    return play


def positions(completions, **_):
    return [float(i % GROUP) for i, _ in enumerate(completions)]


def constant(completions, **_):
    return [1.0] * len(completions)


def batches(trainer, names=None):
    found = []
    made = trainer._generate_and_score_completions

    def noting(inputs):
        found.append(made(inputs))
        if names is not None:
            names.append([row["name"] for row in trainer.rows])
        return found[-1]

    trainer._generate_and_score_completions = noting
    trainer.train()
    return found


WIDE = {"per_device_train_batch_size": GROUP * 2, "max_steps": 2}


@pytest.mark.parametrize("play", [rollout(failing=["w1", "w2", "w3", "w4"]), rollout(whole=["w1"])])
def test_a_failed_sample_has_no_advantage_no_token_and_no_part_in_its_group(tmp_path, play):
    trainer = make_trainer(
        tmp_path, [positions, constant], rollout_func=play, rollouts=TOLERANT, **WIDE
    )
    for batch in batches(trainer):
        lost = batch["completion_mask"].sum(1) == 0
        assert batch["advantages"][lost].eq(0).all()
        assert (
            batch["num_items_in_batch"]
            == (batch["completion_mask"] * batch.get("tool_mask", 1)).sum()
        )
        for group, gone in zip(
            batch["advantages"].view(-1, GROUP), lost.view(-1, GROUP), strict=True
        ):
            kept = torch.arange(4.0)[~gone]
            if len(kept):
                wanted = (kept - kept.mean()) / (kept.std() + 1e-4)
                assert torch.allclose(group[~gone], wanted, atol=1e-4)
    counted = [log["failed_samples"] for log in logs(trainer)]
    assert sum(counted) > 0


def test_more_failures_than_may_be_end_the_run_with_the_reason(tmp_path):
    few = RolloutSettings(max_failed_share=0.2)
    play = rollout(failing=["w1", "w2", "w3", "w4"])
    trainer = make_trainer(tmp_path, positions, rollout_func=play, rollouts=few, **WIDE)
    with pytest.raises(Exception, match=r"2 of 8 samples failed, 2 of them with: it broke; .* 1"):
        trainer.train()


def test_a_run_that_allows_none_ends_at_the_first(tmp_path):
    trainer = make_trainer(tmp_path, positions, rollout_func=rollout(failing=["w1"]))
    with pytest.raises(Exception, match=r"none may; trl\.max_retries tries again"):
        trainer.train()


def test_an_endless_rollout_ends_with_a_line(tmp_path):
    def never(prompts, trainer):
        while True:
            pass

    limit = RolloutSettings(rollout_timeout=0.3)
    trainer = make_trainer(tmp_path, positions, rollout_func=never, rollouts=limit)
    with pytest.raises(Exception, match=r"rollout_func had not returned after 0.3 seconds"):
        trainer.train()


def test_failed_samples_follow_their_rows_under_dynamic_sampling(tmp_path):
    play = rollout(failing=["w1", "w3"])

    def half(completions, name, **_):
        return [0.0 if n in {"w2", "w4"} else float(i % GROUP) for i, n in enumerate(name)]

    features = GrpoSettings(dynamic_sampling=True)
    trainer = make_trainer(
        tmp_path, half, features, rollout_func=play, rollouts=TOLERANT, data=rows(8), **WIDE
    )
    asked, kept = [], []
    trainer.rollout_func.function = lambda prompts, own: asked.append(prompts) or play(prompts, own)
    made = batches(trainer, kept)
    lost = [int((batch["completion_mask"].sum(1) == 0).sum()) for batch in made]
    assert not {"w2", "w4"} & {name for names in kept for name in names}
    assert sum(lost) > 0
    assert [log["failed_samples"] for log in logs(trainer)] == lost
    names = [prompt[-1]["content"].split()[0] for prompts in asked for prompt in prompts]
    every = sum(name in {"w1", "w3"} for name in names) // GROUP
    extra = sum(log["dynamic_sampling/extra_failed"] for log in logs(trainer))
    assert sum(lost) + extra == every


def test_a_reason_that_a_further_round_alone_has_is_kept_with_its_row(tmp_path):
    """The first round has no failure, so that neither a mask nor a reason stands in its answers."""
    rounds = []

    def play(prompts, trainer):
        rounds.append(len(prompts))
        failing = [] if len(rounds) == 1 else [f"w{n}" for n in range(1, 40)]
        made = rollout(failing)(prompts, trainer)
        if failing:
            made["env_mask"] = [[1, 1, 1] for _ in prompts]
        return made

    def later(completions, **_):
        return [float(i % GROUP) * (len(rounds) > 1) for i, _ in enumerate(completions)]

    trainer = make_trainer(
        tmp_path,
        later,
        GrpoSettings(dynamic_sampling=True),
        rollout_func=play,
        rollouts=TOLERANT,
        data=rows(20),
        **{**WIDE, "max_steps": 1},
    )
    kept = {}
    again = trainer.sampling.log_again
    trainer.sampling.log_again = lambda found: kept.update(found.logged) or again(found)
    (batch,) = batches(trainer)
    assert len(rounds) > 1
    lost = (batch["completion_mask"].sum(1) == 0).tolist()
    assert sum(lost) == 2
    assert [reason == "it broke" for reason in kept["masked"]] == lost


def test_a_group_whose_only_difference_is_a_failed_sample_has_no_signal(tmp_path):
    """Of w1 and w3 one answer fails, whose reward would be the only one that differs."""

    def told(completions, name, **_):
        alone = {"w1", "w3"}
        return [
            float(i % GROUP == 1) if n in alone else float(i % GROUP) for i, n in enumerate(name)
        ]

    features = GrpoSettings(dynamic_sampling=True)
    play = rollout(failing=["w1", "w3", "w4"])
    trainer = make_trainer(
        tmp_path, told, features, rollout_func=play, rollouts=TOLERANT, data=rows(8), **WIDE
    )
    names = []
    for batch in batches(trainer, names):
        lost = (batch["completion_mask"].sum(1) == 0).view(-1, GROUP)
        assert (lost.sum(1) <= 1).all()
        assert (batch["advantages"].view(-1, GROUP).abs().amax(1) > 0).all()
    trained = {name for batch in names for name in batch}
    assert trained
    assert trained.isdisjoint({"w1", "w3"})
    assert sum(log["dynamic_sampling/dropped_groups"] for log in logs(trainer)) > 0


# --- environments -----------------------------------------------------------------------------


class Stairs:
    """Breaks on its third step."""

    def reset(self, **row):
        self.steps = 0

    def step(self, up: int) -> str:
        """Take a step.

        Args:
            up: How far.
        """
        self.steps += 1
        if up < 0:
            raise ValueError("there is no way down")
        if self.steps == 3:
            raise ConnectionError("the stairs are gone")
        return "up"

    def get_reward(self):
        return 1.0


class Stuck(Stairs):
    def step(self, up: int) -> str:
        while True:
            pass


def climbed(kind, settings, steps=5):
    environment = guarded(kind, settings, Timings())()
    environment.reset()
    said = []
    for _ in range(steps):
        try:
            said.append(environment.step(1))
        except ValueError as error:
            said.append(str(error))
    return environment, said


def test_an_environment_that_raises_in_its_third_step_fails_and_is_not_asked_again():
    environment, said = climbed(Stairs, TOLERANT)
    assert said == ["up", "up", *["the environment has failed"] * 3]
    assert environment.steps == 3
    assert "Stairs.step raised ConnectionError: the stairs are gone" in environment.fmtkit_failure
    environment.reset()
    assert environment.fmtkit_failure is None


def test_where_none_may_fail_the_model_is_told_as_trl_does():
    environment = guarded(Stairs, RolloutSettings(), Timings())()
    environment.reset()
    for _ in range(2):
        environment.step(1)
    with pytest.raises(ConnectionError, match="the stairs are gone"):
        environment.step(1)
    assert environment.fmtkit_failure is None


def test_a_wrong_argument_is_the_models_to_hear():
    environment = guarded(Stairs, TOLERANT, Timings())()
    environment.reset()
    with pytest.raises(ValueError, match="no way down"):
        environment.step(-1)
    assert environment.fmtkit_failure is None


@pytest.mark.parametrize("share", [0.0, 0.5])
def test_an_environment_that_never_ends_fails_in_any_case(share):
    settings = RolloutSettings(environment_timeout=0.2, max_failed_share=share)
    environment, said = climbed(Stuck, settings, 2)
    assert said == ["the environment has failed"] * 2
    assert "took more than 0.2 s" in environment.fmtkit_failure


class Lift:
    """An environment whose methods are coroutines."""

    def __init__(self):
        self.asked = 0

    async def reset(self, **_):
        """Begin."""

    async def step(self, up: int):
        """Go up, or stay between two floors.

        Args:
            up: How many floors.
        """
        self.asked += 1
        if up < 0:
            raise ValueError("no way down")
        if up > 9:
            await asyncio.sleep(60)
        if self.asked <= 2:
            raise ConnectionError("the lift is busy")
        return "up"


def stepped(up, **settings):
    """Return a lift after one step, and what was said of it."""
    timings = Timings()
    lift = guarded(Lift, RolloutSettings(max_failed_share=0.5, **settings), timings)()

    async def ride():
        await lift.reset()
        try:
            return await lift.step(up)
        except ValueError as error:
            return str(error)

    said = asyncio.run(ride())
    assert {name.split("/")[1] for name, _ in timings.metrics()} == {"Lift.reset", "Lift.step"}
    return lift, said


def test_a_coroutine_of_an_environment_is_guarded_as_any_other_method(monkeypatch):
    monkeypatch.setattr(foreign_calls, "FIRST_PAUSE", 0.01)
    lift, said = stepped(1, max_retries=2)
    assert (said, lift.asked, lift.fmtkit_failure) == ("up", 3, None)
    lift, said = stepped(1, max_retries=1)
    assert (said, lift.asked) == ("the environment has failed", 2)
    assert "Lift.step raised ConnectionError: the lift is busy" in lift.fmtkit_failure
    lift, said = stepped(-1, max_retries=2)
    assert (said, lift.asked, lift.fmtkit_failure) == ("no way down", 1, None)
    lift, said = stepped(10, environment_timeout=0.1)
    assert said == "the environment has failed"
    assert "took more than 0.1 s" in lift.fmtkit_failure


def test_a_guarded_environment_looks_as_it_did():
    import inspect

    kind = type(guarded(Stairs, TOLERANT, Timings())())
    assert kind.__name__ == "Stairs"
    assert inspect.signature(kind.step) == inspect.signature(Stairs.step)
    assert kind.step.__doc__ == Stairs.step.__doc__

    def factory():
        return Stairs()

    made = guarded(factory, TOLERANT, Timings())()
    assert isinstance(made, Stairs)
    assert type(made) is not Stairs


# --- from a configuration ---------------------------------------------------------------------

FLAKY = """

def flaky(completions, prompts, **kwargs):
    if any("apple" in p[-1]["content"] for p in prompts):
        raise ConnectionError("no judge")
    return [float(i) for i, _ in enumerate(completions)]
"""


ONE_OF_TWO = """

def one_of_two(completions, **kwargs):
    return [3.0 if i < len(completions) // 2 else None for i, _ in enumerate(completions)]
"""


STAIRS = '''
class Stairs:
    """Every second one breaks in its third step, by an error or by never ending."""

    made = 0
    endless = ENDLESS

    def __init__(self):
        Stairs.made += 1
        self.breaks = Stairs.made % 2 == 0

    def reset(self, **row):
        self.steps = 0

    def step(self, up: int) -> str:
        """Take a step.

        Args:
            up: How far.
        """
        self.steps += 1
        while self.breaks and self.steps == 3:
            if not self.endless:
                raise ConnectionError("the stairs are gone")
        return "up"

    def get_reward(self):
        return float(self.steps)
'''


def climbing(trainer, prompts, *_, **__):
    """Answer in the place of the model: call the tool five times, then end."""
    tokenizer = trainer.processing_class
    step = '<tool_call>\n{"name": "step", "arguments": {"up": 1}}\n</tool_call><|im_end|>'
    answers = []
    for ids in prompts:
        climbed = tokenizer.decode(ids).count("<tool_response>")
        said = step if climbed < 5 else "good<|im_end|>"
        answers.append(tokenizer(said, add_special_tokens=False)["input_ids"])
    return answers, None


@pytest.fixture(scope="module")
def caller(tmp_path_factory):
    """A tiny model whose template can write tool calls."""
    template = Path(trl.__file__).parent / "chat_templates" / "qwen3.jinja"
    text = template.read_text(encoding="utf-8")
    return tiny.make_model(tmp_path_factory.mktemp("caller"), template=text)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("endless", "reason"),
    [
        (False, "environment Stairs.step raised ConnectionError: the stairs are gone"),
        (True, "environment Stairs.step took more than 0.3 s"),
    ],
)
@pytest.mark.parametrize("share", [0.5, 0.3])
def test_an_environment_that_breaks_in_step_3_of_5_fails_its_samples_in_a_run_from_yaml(
    endless, reason, share, caller, tmp_path, monkeypatch, capsys
):
    monkeypatch.setattr(FmtkitGRPOTrainer, "_generate_single_turn", climbing)
    monkeypatch.setattr(runs, "launch", lambda planned: process.main([str(planned.run)]))
    name = f"stairs_{endless}_{share * 10:.0f}".lower()
    (tmp_path / f"{name}.py").write_text(STAIRS.replace("ENDLESS", str(endless)), encoding="utf-8")
    tiny.write_table("Prompt", tmp_path / "rows.parquet")
    trl = {
        "environment_factory": f"{name}.Stairs",
        "environment_timeout": 0.3 if endless else 60,
        "max_failed_share": share,
        "num_generations": 4,
        "max_completion_length": 2000,
    }
    whole = {
        **tiny.STEP,
        "rl": "grpo",
        "base_model": caller,
        "output_dir": str(tmp_path / "run"),
        "datasets": [{"path": str(tmp_path / "rows.parquet")}],
        "max_steps": 2,
        "micro_batch_size": 4,
        "trl": trl,
    }
    config = tmp_path / "run.yaml"
    config.write_text(yaml.safe_dump(whole), encoding="utf-8")
    code = runs.train(config).exit_code
    said = " ".join(capsys.readouterr().err.split())
    if share < 0.5:
        assert code == 1
        assert f"2 of 4 samples failed, 2 of them with: {reason}" in said
        assert "0.3 allows 1" in said
        return
    assert code == 0
    lines = (tmp_path / "run" / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
    found = [log for log in map(json.loads, lines) if "loss" in log]
    assert [log["failed_samples"] for log in found] == [2.0, 2.0]
    assert all(math.isfinite(log["loss"]) for log in found)
    assert all("seconds/Stairs.step/max" in log for log in found)
    told = pq.read_table(tmp_path / "run" / "completions.parquet").to_pylist()
    broken = [one for one in told if one["masked"] and reason in one["masked"]]
    assert len(broken) == 4
    assert all(one["reward"] == 5.0 for one in told if one not in broken)


@pytest.mark.slow
@pytest.mark.parametrize("method", ["grpo", "rloo", "online_dpo"])
@pytest.mark.parametrize("workers", [1, 2])
def test_a_run_with_failing_samples_trains_from_a_configuration(method, workers, model, tmp_path):
    trl = {"reward_funcs": ["rewards.flaky"], "max_failed_share": 0.9}
    more = {"micro_batch_size": 8}
    work = online.make_job(tmp_path, model, method, more, reward_num_workers=workers, **trl)
    file = Path(tmp_path / "rewards.py")
    file.write_text(file.read_text() + FLAKY)
    found = online.steps(work)
    assert len(found) == 3
    assert sum(log["failed_samples"] for log in found) > 0
    assert all(math.isfinite(log["loss"]) for log in found)
    assert all("seconds/reward rewards.flaky/max" in log for log in found)
    told = pq.read_table(tmp_path / "completions.parquet").to_pylist()
    lost = ["apple" in one["prompt"] for one in told]
    assert [bool(one["masked"]) for one in told] == lost
    assert {one["masked"].partition(" (")[0] for one in told if one["masked"]} == {
        "reward rewards.flaky raised ConnectionError: no judge"
    }
    if len(told) == 3 * 8:
        assert sum(log["failed_samples"] for log in found) == sum(lost)


def test_online_dpo_learns_nothing_from_a_pair_with_an_answer_that_has_no_reward(model, tmp_path):
    work = online.make_job(tmp_path, model, "online_dpo", reward_funcs=["rewards.one_of_two"])
    file = Path(tmp_path / "rewards.py")
    file.write_text(file.read_text() + ONE_OF_TWO)
    for log in online.steps(work):
        assert log["grad_norm"] == 0.0
        assert log["loss"] == pytest.approx(math.log(2), abs=1e-4)
        # TRL would have made it a reward of 0; the other answer's stands for both.
        assert log["objective/scores"] == 3.0
        assert log["objective/scores_margin"] == 0.0
