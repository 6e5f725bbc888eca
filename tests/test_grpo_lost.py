"""A run that a server or a reward ends: what was trained is saved, and the error says how to go on."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

pytest.importorskip("trl")

import online_runs as online

from fmtkit.training.building.callbacks import TrainingError, saving
from fmtkit.training.run import process
from fmtkit.training.vllm.lifeline import ServerLostError

BROKEN = """

calls = []


def breaks_later(completions, **kwargs):
    calls.append(1)
    if len(calls) == 3:
        raise KeyError("answer")
    return [len(text(c)) / 100 for c in completions]
"""


def steps_saved(folder: Path) -> int:
    (checkpoint,) = (folder / "checkpoints").glob("checkpoint-*")
    return json.loads((checkpoint / "trainer_state.json").read_text())["global_step"]


@pytest.mark.parametrize("method", ["grpo", "rloo", "online_dpo"])
def test_a_reward_that_breaks_leaves_a_checkpoint_to_go_on_from(method, model, tmp_path) -> None:
    work = online.make_job(tmp_path, model, method, reward_funcs=["rewards.breaks_later"])
    with (tmp_path / "rewards.py").open("a", encoding="utf-8") as file:
        file.write(BROKEN)
    with pytest.raises(TrainingError) as error:
        process.train(work)
    assert "reward rewards.breaks_later raised KeyError" in str(error.value)
    assert "the steps so far are saved in" in str(error.value)
    assert "--resume continues from there" in str(error.value)
    assert error.value.exit_code == 1
    assert "\n" not in str(error.value)
    assert steps_saved(tmp_path) == 2
    checkpoint = str(tmp_path / "checkpoints" / "checkpoint-2")
    again = online.make_job(tmp_path, model, method)
    assert process.train(replace(again, resume=checkpoint)) == 0
    assert json.loads((tmp_path / "report.json").read_text())["steps"] == 3


def test_a_lost_server_leaves_a_checkpoint_of_the_last_whole_step(model, tmp_path) -> None:
    trainer = online.trainer_of(online.make_job(tmp_path, model))
    inner, calls = trainer._generate, []

    def generate(prompts):
        calls.append(1)
        if len(calls) == 3:
            raise ServerLostError("the vLLM server at http://x has been gone for 1 s")
        return inner(prompts)

    trainer._generate = generate
    with (
        pytest.raises(TrainingError, match="has been gone for 1 s; the steps so far are saved in"),
        saving(trainer),
    ):
        trainer.train()
    assert steps_saved(tmp_path) == 2


def test_a_run_that_is_lost_before_its_first_step_saves_nothing(model, tmp_path) -> None:
    trainer = online.trainer_of(online.make_job(tmp_path, model))

    def generate(prompts):
        raise ServerLostError("the vLLM server at http://x has been gone for 1 s")

    trainer._generate = generate
    with (
        pytest.raises(TrainingError, match="no step was finished, so nothing was saved"),
        saving(trainer),
    ):
        trainer.train()
    assert not list((tmp_path / "checkpoints").glob("checkpoint-*"))


SOMETIMES = """

batches = []


def sometimes(completions, **kwargs):
    batches.append(1)
    return [None if len(batches) % 2 else len(text(c)) / 100 for c in completions]
"""


def test_a_batch_without_a_reward_is_skipped_counted_and_passed(model, tmp_path, capsys) -> None:
    work = online.make_job(tmp_path, model, reward_funcs=["rewards.sometimes"])
    with (tmp_path / "rewards.py").open("a", encoding="utf-8") as file:
        file.write(SOMETIMES)
    with pytest.warns(UserWarning, match="every reward of a batch is None"):
        logs = online.steps(work)
    assert [log["rewards/skipped_batches"] for log in logs] == [1.0, 1.0, 2.0]
    assert "warning: 2 of 3 batches had no reward and were skipped" in capsys.readouterr().err
    report = json.loads((tmp_path / "report.json").read_text())
    assert "2 of 3 batches had no reward and were skipped" in report["findings"]


def test_a_run_without_any_reward_ends_with_an_error(model, tmp_path) -> None:
    work = online.make_job(tmp_path, model, reward_funcs=["rewards.nothing"])
    with (
        pytest.warns(UserWarning, match="every reward of a batch is None"),
        pytest.raises(TrainingError, match=r"no batch of this run had a reward: .* for all 3"),
    ):
        process.train(work)
