"""Two processes train what one would: skipped batches, replay and re-rolling keep them in step."""

import json
import math
from pathlib import Path

import pytest
import yaml

pytest.importorskip("trl")

import runs
import tiny_training as tiny

pytestmark = pytest.mark.slow

REWARDS = '''
import os


def sometimes(completions, trainer_state, **kwargs):
    """Tell answers apart in every other step alone."""
    if trainer_state.global_step % 2:
        return [1.0] * len(completions)
    return [float(len(c[0]["content"]) % 7) for c in completions]


def broken(completions, **kwargs):
    raise KeyError("answer")


def on_one_process(completions, prompts, **kwargs):
    """Give a signal for some prompts only, so that the processes' batches differ."""
    if "apple" in prompts[0][0]["content"]:
        return [0.0] * len(completions)
    return [float(len(c[0]["content"]) % 7) for c in completions]


def constant(completions, **kwargs):
    return [1.0] * len(completions)


def away(completions, prompts, **kwargs):
    """Fail for prompts with a certain word."""
    if any("apple" in p[0]["content"] for p in prompts):
        raise ConnectionError("the judge is away")
    return [float(sum(map(ord, c[0]["content"]))) for c in completions]


def away_on_one(completions, prompts, **kwargs):
    """Fail for all that the second process asks for."""
    if os.environ["RANK"] == "1":
        raise ConnectionError("the judge is away")
    return [float(sum(map(ord, c[0]["content"]))) for c in completions]


calls = []


def breaks_on_one(completions, **kwargs):
    """Break for the second process in its third step."""
    calls.append(1)
    if os.environ["RANK"] == "1" and len(calls) == 3:
        raise ConnectionError("the judge is away")
    return [float(i) for i, _ in enumerate(completions)]


def killed_on_one(completions, **kwargs):
    """Be killed as the second process, in its third step."""
    calls.append(1)
    if os.environ["RANK"] == "1" and len(calls) == 3:
        os.kill(os.getpid(), 9)
    return [float(i) for i, _ in enumerate(completions)]


def play(prompts, trainer):
    """Answer with what is there; break for the second process in its third step."""
    breaks_on_one(prompts)
    answers = [[9 + i % 3, 5] for i, _ in enumerate(prompts)]
    return {"prompt_ids": [[1, 2]] * len(prompts), "completion_ids": answers, "logprobs": None}


def by_prompt(completions, prompts, **kwargs):
    """Give no signal for prompts with a certain word."""
    return [0.0 if "apple" in p[0]["content"] else float(i) for i, p in enumerate(prompts)]
'''


def test_a_failure_of_several_processes_is_a_line_and_their_exit_code(model, tmp_path, capfd):
    file = config_of(tmp_path, model, trl={"reward_funcs": ["rewards.broken"]})
    done = runs.fmtkit(capfd, "train", file)
    assert done.code == 1
    # torch warns once of DDP's own work: a failed reward ends the run after its batch went through the model.
    beside = ("note: ", "progress: ", "[rank")
    lines = [line for line in done.err.splitlines() if not line.startswith(beside)]
    assert lines
    assert all("error: reward rewards.broken raised KeyError" in line for line in lines), done.err


def test_a_process_that_was_killed_is_named_though_the_other_fails_for_it(model, tmp_path, capfd):
    file = config_of(tmp_path, model, trl={"reward_funcs": ["rewards.killed_on_one"]})
    done = runs.fmtkit(capfd, "train", file)
    assert done.code == 1
    assert "the system killed a training process" in done.err


@pytest.mark.parametrize("broken", ["reward_funcs", "rollout_func"])
def test_what_fails_on_one_process_alone_leaves_a_checkpoint_of_both(
    broken, model, tmp_path, capfd
):
    trl = {"reward_funcs": ["rewards.by_prompt"]}
    trl[broken] = {"reward_funcs": ["rewards.breaks_on_one"], "rollout_func": "rewards.play"}[
        broken
    ]
    done = runs.fmtkit(capfd, "train", config_of(tmp_path, model, trl=trl))
    assert done.code == 1
    assert "the judge is away" in done.err
    assert "the steps so far are saved in" in done.err
    assert (tmp_path / "run" / "checkpoints" / "checkpoint-2" / "model.safetensors").is_file()
    more = ["--set", "trl.reward_funcs=[rewards.by_prompt]", "--set", "trl.rollout_func=null"]
    again = runs.fmtkit(capfd, "train", tmp_path / "c.yaml", "--resume", *more)
    assert again.code == 0, again.err


def config_of(folder: Path, model: str, **keys) -> Path:
    """Write rewards, rows and the configuration of a run with two processes."""
    (folder / "rewards.py").write_text(REWARDS, encoding="utf-8")
    tiny.write_table("Prompt", folder / "rows.parquet")
    trl = {"num_generations": 2, "max_completion_length": 6, **keys.pop("trl")}
    whole = {
        **tiny.STEP,
        "rl": "grpo",
        "base_model": model,
        "output_dir": str(folder / "run"),
        "datasets": [{"path": str(folder / "rows.parquet")}],
        "max_steps": 4,
        "gradient_accumulation_steps": 2,
        "num_processes": 2,
        "trl": trl,
        **keys,
    }
    file = folder / "c.yaml"
    file.write_text(yaml.safe_dump(whole), encoding="utf-8")
    return file


def trained(capfd, folder: Path, model: str, **keys) -> tuple[dict, list[dict]]:
    """Train with two processes; return the weights and the steps."""
    from safetensors.torch import load_file

    folder.mkdir()
    file = config_of(folder, model, **keys)
    done = runs.fmtkit(capfd, "train", file)
    assert done.code == 0, done.err
    lines = (folder / "run" / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
    steps = [log for line in lines if "loss" in (log := json.loads(line))]
    return load_file(folder / "run" / "model" / "model.safetensors"), steps


def test_skipping_changes_no_weight(model, tmp_path, capfd) -> None:
    rewards = {"reward_funcs": ["rewards.sometimes"]}
    on = {**rewards, "skip_zero_advantage_batches": True}
    skipped, steps = trained(capfd, tmp_path / "on", model, trl=on)
    whole, _ = trained(capfd, tmp_path / "off", model, trl=rewards)
    assert [log.get("skipped_zero_adv_batches") for log in steps] == [None, 1.0, None, 1.0]
    assert all(value.equal(whole[name]) for name, value in skipped.items())


def test_replay_and_rerolling_keep_the_processes_in_step(model, tmp_path, capfd) -> None:
    trl = {
        "reward_funcs": ["rewards.on_one_process"],
        "replay_buffer_size": 4,
        "replay_recompute_logps": True,
        "num_iterations": 2,
        "reroll_start_fraction": 0.0,
    }
    _, steps = trained(capfd, tmp_path / "run", model, trl=trl, max_steps=8)
    assert len(steps) == 8
    assert any(log.get("replay/size") for log in steps)


@pytest.mark.parametrize("sampling", [False, True])
def test_failed_samples_of_one_process_are_counted_and_masked_on_both(
    model, tmp_path, capfd, sampling
):
    trl = {"reward_funcs": ["rewards.away"], "max_failed_share": 0.9}
    trl["dynamic_sampling"] = sampling
    _, steps = trained(capfd, tmp_path / "run", model, trl=trl, max_steps=6)
    assert len(steps) == 6
    assert all(math.isfinite(log["loss"]) for log in steps)
    # A prompt with the word fails with both of its answers: groups are lost whole, and given up.
    name = "dynamic_sampling/extra_failed" if sampling else "failed_samples"
    assert sum(log[name] for log in steps) > 0
    if not sampling:
        assert {log["failed_samples"] % 2 for log in steps} == {0}
        return
    assert sum(log["dynamic_sampling/dropped_groups"] for log in steps) > 0
    for log in steps:
        unfilled = log["dynamic_sampling/unfilled_groups"] / 4
        assert log["frac_reward_zero_std"] == pytest.approx(unfilled)


def test_more_failures_on_one_process_than_may_be_on_both_end_both_with_one_line(
    model, tmp_path, capfd
):
    trl = {"reward_funcs": ["rewards.away_on_one"], "max_failed_share": 0.2}
    (tmp_path / "run").mkdir()
    done = runs.fmtkit(capfd, "train", config_of(tmp_path / "run", model, trl=trl))
    assert done.code == 1
    assert "samples failed" in done.err
    assert "the judge is away" in done.err
    assert "max_failed_share: 0.2 allows 1" in done.err
    assert "Traceback" not in done.err


@pytest.mark.parametrize("group", [2, 4], ids=["whole groups", "groups over both"])
def test_dynamic_sampling_makes_the_same_rounds_on_all_processes(model, tmp_path, capfd, group):
    trl = {
        "reward_funcs": ["rewards.by_prompt"],
        "dynamic_sampling": True,
        "num_generations": group,
    }
    keys = {"trl": trl, "gradient_accumulation_steps": 4 // group, "max_steps": 6}
    _, steps = trained(capfd, tmp_path / "run", model, **keys)
    assert len(steps) == 6
    assert {log["dynamic_sampling/unfilled_groups"] for log in steps} == {0}
    assert sum(log["dynamic_sampling/dropped_groups"] for log in steps) > 0
    assert {log["frac_reward_zero_std"] for log in steps} == {0}


def test_without_any_signal_all_processes_end_with_one_advice(model, tmp_path, capfd):
    trl = {"reward_funcs": ["rewards.constant"], "dynamic_sampling": True}
    trl["dynamic_sampling_max_gen_batches"] = 2
    (tmp_path / "run").mkdir()
    done = runs.fmtkit(capfd, "train", config_of(tmp_path / "run", model, trl=trl))
    assert done.code == 1
    assert "all answers to each prompt had one reward, in all 8 groups of 2 rounds" in done.err
    assert "Traceback" not in done.err
