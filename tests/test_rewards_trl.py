"""Rewards inside TRL's trainers: names, metrics and losses are those of TRL, errors end the run."""

from pathlib import Path

import pytest

pytest.importorskip("trl")

import online_runs as online

from fmtkit.training.online.rewards import RewardError
from fmtkit.training.run import process

REWARDS = """

def logged(completions, log_extra, log_metric, **kwargs):
    log_extra("characters", [len(text(c)) for c in completions])
    log_metric("rows", float(len(completions)))
    return [len(text(c)) / 10 for c in completions]


def raising(completions, **kwargs):
    return [1 / 0 for _ in completions]


def forms(prompts, completions, **kwargs):
    print(type(prompts[0]).__name__, type(completions[0]).__name__, flush=True)
    return [float(len(text(c))) for c in completions]
"""


@pytest.fixture(autouse=True)
def quiet(monkeypatch):
    process.quiet()
    monkeypatch.setattr(online, "REWARDS", online.REWARDS + REWARDS)


def told(logs: list[dict]) -> list[dict]:
    """Return what a run logged, but for its speed."""
    slow = ("time", "seconds", "per_second", "epoch", "tokens_per")
    return [{k: v for k, v in log.items() if not any(word in k for word in slow)} for log in logs]


@pytest.mark.slow
@pytest.mark.parametrize("method", ["grpo", "rloo"])
def test_streaming_and_workers_change_no_number_of_a_run(method, model, tmp_path):
    keys = {"reward_funcs": ["rewards.length", "rewards.vowels", "rewards.slow_length"]}
    more = {"micro_batch_size": 8}
    ways = {
        "plain": {},
        "streamed": {"streaming_partial_batch": True},
        "spread": {"streaming_partial_batch": True, "reward_num_workers": 2},
    }
    runs = {
        name: told(
            online.steps(online.make_job(tmp_path / name, model, method, more, **keys, **way))
        )
        for name, way in ways.items()
    }
    assert runs["plain"] == runs["streamed"] == runs["spread"]
    assert "rewards/vowels/mean" in runs["plain"][0]


@pytest.mark.slow
def test_ours_are_named_in_the_metrics_and_take_options(model, tmp_path):
    named = ["rewards.length", {"fmtkit.rewards.length_cap": {"cap": 1}}]
    work = online.make_job(tmp_path, model, reward_funcs=named, reward_weights=[1.0, 2.0])
    log = online.steps(work)[0]
    assert log["rewards/length_cap/mean"] == -1.0
    assert log["reward"] == pytest.approx(log["rewards/length/mean"] - 2.0)


@pytest.mark.slow
def test_online_dpo_waits_for_coroutines(model, tmp_path):
    work = online.make_job(tmp_path, model, "online_dpo", reward_funcs=["rewards.slow_length"])
    assert len(online.steps(work)) == 3


@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("raising", "reward rewards.raising raised ZeroDivisionError"),
        ("nothing", "no batch of this run had a reward"),
    ],
)
def test_an_error_of_a_reward_ends_the_run_with_one_line(
    name, words, workers, model, tmp_path, capfd
):
    work = online.make_job(
        tmp_path, model, reward_funcs=[f"rewards.{name}"], reward_num_workers=workers
    )
    work.write()
    assert process.main([str(tmp_path)]) == RewardError.exit_code == 1
    (line,) = [one for one in capfd.readouterr().err.splitlines() if one.startswith("error: ")]
    assert words in line


@pytest.mark.slow
def test_prompts_of_text_give_completions_of_text(model, tmp_path, capfd):
    import pyarrow as pa
    import pyarrow.parquet as pq

    work = online.make_job(tmp_path, model, reward_funcs=["rewards.forms"])
    pq.write_table(pa.table({"prompt": ["the red"] * 8}), Path(tmp_path) / "rows.parquet")
    online.steps(work)
    assert "str str" in capfd.readouterr().out
