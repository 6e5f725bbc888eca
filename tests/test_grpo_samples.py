"""Answers with their rewards: a Parquet table in the run folder, and a part of the run's page."""

import json
import math
from importlib.util import find_spec
from itertools import pairwise
from pathlib import Path

import pyarrow.parquet as pq
import pytest
import yaml

pytest.importorskip("trl")

import online_runs as online
import tiny_training as tiny

from fmtkit.core.errors import WriteError
from fmtkit.training import train
from fmtkit.training.online import samples, samples_page
from fmtkit.training.online.keep_samples import rows_of
from fmtkit.training.online.samples import FILE, SampleTable


def row(number: int = 0, **more) -> dict:
    return {"prompt": f"p{number}", "completion": "c", "reward/a": 0.5, "advantage": 0.0, **more}


def logs_of(count: int) -> dict:
    return {
        "prompt": [f"p{i // 4}" for i in range(count)],
        "completion": [[{"role": "assistant", "content": f"c{i}"}] for i in range(count)],
        "rewards": {"right": [0.0, math.nan] * (count // 2)},
        "advantages": [0.5] * count,
        "extra": {
            "note": ["x"],
            "tokens": [3, 8] * (count // 2),
            "cut": [False, True] * (count // 2),
        },
    }


@pytest.mark.parametrize(
    ("count", "group", "kept"), [(64, 4, 16), (64, 6, 12), (64, 32, 32), (8, 4, 8)]
)
def test_the_first_groups_are_kept_each_whole(count, group, kept) -> None:
    assert len(list(rows_of(logs_of(count), group))) == kept


def test_a_row_has_every_reward_and_none_where_it_does_not_apply() -> None:
    first, second, *_ = rows_of(logs_of(8), 4)
    assert first == {
        "prompt": "p0",
        "completion": '[{"role": "assistant", "content": "c0"}]',
        "reward": 0.0,
        "reward/right": 0.0,
        "advantage": 0.5,
        "tokens": 3,
        "cut": False,
        "masked": None,
        "extra/note": "x",
    }
    assert second["reward/right"] is None
    assert second["reward"] is None
    assert second["masked"] == "no reward"
    assert "extra/note" not in second


def test_an_answer_that_is_not_trained_on_says_why() -> None:
    logs = logs_of(4)
    logs["rewards"] = {"right": [1.0] * 4}
    assert [r["masked"] for r in rows_of(logs, 4)] == [None] * 4
    cut = [r["masked"] for r in rows_of(logs, 4, masks_cut=True)]
    assert cut == [None, "cut off", None, "cut off"]
    logs["extra"]["masked"] = ["the environment failed: TimeoutError", None, False, ""]
    first, *others = rows_of(logs, 4)
    assert first["masked"] == "the environment failed: TimeoutError"
    assert {r["masked"] for r in others} == {None}
    assert "extra/masked" not in first


def test_the_reward_is_the_weighted_sum_of_those_that_apply() -> None:
    logs = logs_of(4)
    logs["rewards"] = {"right": [1.0, math.nan, 0.0, 1.0], "form": [0.5, 0.5, 0.5, math.nan]}
    found = [r["reward"] for r in rows_of(logs, 4, weights=[1.0, 2.0])]
    assert found == [2.0, 1.0, 1.0, 1.0]


def test_a_table_is_whole_after_every_log(tmp_path) -> None:
    table = SampleTable(tmp_path / FILE)
    for step in (1, 2):
        table.add(step, [row(1), row(2, **{"extra/note": "x"})])
        found = pq.read_table(tmp_path / FILE).to_pylist()
        assert len(found) == 2 * step
        assert found[-1]["step"] == step
    assert found[0]["extra/note"] is None


def steps_of(file) -> list[int]:
    return sorted({r["step"] for r in pq.read_table(file).to_pylist()})


def test_a_long_run_keeps_its_newest_logs_and_earlier_ones_spread_over_it(
    tmp_path, monkeypatch
) -> None:
    monkeypatch.setattr(samples, "MOST", 80)
    table = SampleTable(tmp_path / FILE)
    for step in range(1, 201):
        table.add(step, [row(i) for i in range(4)])
    table.write()
    steps = steps_of(tmp_path / FILE)
    assert len(steps) == 20
    assert steps[-8:] == list(range(193, 201))
    gaps = [b - a for a, b in pairwise(steps[:-7])]
    assert steps[0] == 1
    assert max(gaps[:-1]) <= 2 * min(gaps[:-1])
    assert table.how == "of the 8 newest logs, and of 12 before them"


def test_long_answers_are_fewer(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(samples, "MOST_TEXT", 10_000)
    table = SampleTable(tmp_path / FILE)
    for step in range(1, 31):
        table.add(step, [row(step, completion="c" * 900)])
    table.write()
    steps = steps_of(tmp_path / FILE)
    assert steps[0] == 1
    assert steps[-8:] == list(range(23, 31))
    assert 9 <= len(steps) <= 12
    table.add(31, [row(31, completion="c" * 20_000)])
    table.write()
    assert steps_of(tmp_path / FILE) == [31]


def test_a_resumed_run_goes_on_with_the_rows_before_its_checkpoint(tmp_path) -> None:
    table = SampleTable(tmp_path / FILE)
    for step in (1, 2, 3):
        table.add(step, [row(step)])
    again = SampleTable(tmp_path / FILE, after=2)
    again.add(3, [row(33)])
    found = [(r["step"], r["prompt"]) for r in pq.read_table(tmp_path / FILE).to_pylist()]
    assert found == [(1, "p1"), (2, "p2"), (3, "p33")]


def test_a_table_that_a_crash_has_damaged_does_not_keep_a_run_from_going_on(
    tmp_path, capsys
) -> None:
    table = SampleTable(tmp_path / FILE)
    table.add(1, [row(1)])
    whole = (tmp_path / FILE).read_bytes()
    (tmp_path / FILE).write_bytes(whole[: len(whole) // 2])
    again = SampleTable(tmp_path / FILE, after=1)
    assert again.logs == {}
    assert (tmp_path / f"damaged-{FILE}").read_bytes() == whole[: len(whole) // 2]
    told = capsys.readouterr().err
    assert "completions.parquet cannot be read" in told
    assert "is damaged-completions.parquet now" in told
    again.add(2, [row(2)])
    assert steps_of(tmp_path / FILE) == [2]


def test_a_folder_that_may_not_be_written_is_named(tmp_path) -> None:
    table = SampleTable(tmp_path / "gone" / FILE)
    with pytest.raises(WriteError, match=r"completions\.parquet"):
        table.add(1, [row(1)])


def test_the_page_of_a_run_has_the_answers_of_the_first_and_the_last_log(tmp_path) -> None:
    table = SampleTable(tmp_path / FILE)
    conversation = json.dumps([{"role": "user", "content": "<script>alert(1)</script> & more"}])
    for step in (1, 5, 9):
        table.add(step, [row(step, prompt=conversation, completion="[not json")])
    found = samples_page.summary(tmp_path)
    assert found["text"] == "3 answers of 3 logs are in completions.parquet."
    assert [one["step"] for one in found["steps"]] == [1, 9]
    assert found["steps"][0]["rows"][0][0] == "user: <script>alert(1)</script> & more"
    assert found["link"] is None
    samples_page.write(tmp_path, table.rows, table.how)
    assert samples_page.summary(tmp_path)["link"] == "answers.html"


def test_a_run_without_answers_has_no_such_part(tmp_path) -> None:
    assert samples_page.summary(tmp_path) is None


@pytest.mark.parametrize("method", ["grpo", "rloo"])
def test_a_run_leaves_a_table_metrics_and_a_page(method, model, tmp_path) -> None:
    funcs = ["rewards.length", "rewards.vowels"]
    steps = online.steps(online.make_job(tmp_path, model, method, reward_funcs=funcs))
    for name in ("length", "vowels"):
        assert f"rewards/{name}/mean" in steps[0]
        assert f"rewards/{name}/std" in steps[0]
    wanted = {
        "frac_reward_zero_std",
        "entropy",
        "clip_ratio/region_mean",
        "completions/mean_length",
    }
    assert wanted <= set(steps[0])
    found = pq.read_table(tmp_path / FILE).to_pylist()
    assert [r["step"] for r in found] == [1, 1, 2, 2, 3, 3]
    first = found[:2]
    assert sum(r["reward/length"] for r in first) / 2 == pytest.approx(
        steps[0]["rewards/length/mean"], abs=1e-6
    )
    assert {json.loads(r["prompt"])[0]["role"] for r in found} == {"user"}
    for one in found:
        assert one["reward"] == pytest.approx(one["reward/length"] + one["reward/vowels"])
    if method == "grpo":
        assert {r["tokens"] for r in found} <= set(range(1, 9))
        assert all(r["cut"] == (r["tokens"] == 8) for r in found if r["tokens"] < 8 or r["cut"])
    assert '"reward/vowels"' in (tmp_path / "report.html").read_text(encoding="utf-8")
    shown = samples_page.summary(tmp_path)
    assert [one["step"] for one in shown["steps"]] == [1, 3]
    assert shown["link"] == "answers.html"
    assert (tmp_path / "answers.html").is_file()


SLEEPER = '''

class Bed:
    """An environment that never answers."""

    def reset(self, **row):
        import time

        time.sleep(30)

    def get_reward(self):
        return 1.0

    def nap(self) -> str:
        """Sleep a little.

        Returns:
            A dream.
        """
        return ""


def own_tokens(completions, log_extra, **kwargs):
    log_extra("tokens", [-1] * len(completions))
    return [float(row) for row, _ in enumerate(completions)]
'''


@pytest.mark.parametrize("method", ["gdpo", "grpo", "rloo"])
def test_without_a_key_of_a_feature_the_trainer_is_trls_own_class(method, model, tmp_path) -> None:
    trainer = online.trainer_of(online.make_job(tmp_path, model, method))
    assert type(trainer).__module__.startswith("trl.trainer.")
    assert vars(trainer).keys() >= {"_logs", "_metrics"}


def test_a_function_that_logs_a_column_of_the_lengths_keeps_it(model, tmp_path) -> None:
    work = online.make_job(tmp_path, model, reward_funcs=["rewards.length", "rewards.own_tokens"])
    file = tmp_path / "rewards.py"
    file.write_text(file.read_text(encoding="utf-8") + SLEEPER, encoding="utf-8")
    steps = online.steps(work)
    told = pq.read_table(tmp_path / FILE).to_pylist()
    assert {row["tokens"] for row in told} == {-1}
    assert {row["cut"] for row in told} <= {True, False}
    for name in ("rewards.length", "rewards.own_tokens"):
        assert all(f"seconds/reward {name}/max" in log for log in steps)


@pytest.mark.slow
def test_an_environment_that_fails_ends_the_run_before_a_step_of_trls_own(tmp_path, capfd) -> None:
    template = Path(find_spec("trl").origin).parent / "chat_templates" / "qwen3.jinja"
    text = template.read_text(encoding="utf-8")
    caller = tiny.make_model(tmp_path / "caller", template=text)
    (tmp_path / "beds.py").write_text(SLEEPER, encoding="utf-8")
    tiny.write_table("Prompt", tmp_path / "rows.parquet")
    keys = {
        **tiny.STEP,
        "rl": "grpo",
        "base_model": caller,
        "output_dir": str(tmp_path / "run"),
        "datasets": [{"path": str(tmp_path / "rows.parquet")}],
        "max_steps": 2,
        "trl": {
            "environment_factory": "beds.Bed",
            "environment_timeout": 0.2,
            "num_generations": 2,
            "max_completion_length": 8,
        },
    }
    (tmp_path / "run.yaml").write_text(yaml.safe_dump(keys), encoding="utf-8")
    assert train(tmp_path / "run.yaml").exit_code == 1
    said = " ".join(capfd.readouterr().err.split())
    assert (
        "2 of 2 samples failed, 2 of them with: environment Bed.reset took more than 0.2 s" in said
    )
    assert "no step was finished" in said


def test_failed_samples_and_those_that_a_reward_calls_masked_say_why(model, tmp_path) -> None:
    work = online.make_job(tmp_path, model, max_failed_share=0.5)
    trainer = online.trainer_of(work)
    trainer.failed.reasons = ["the reward raised TimeoutError", None]
    trainer._log_completion_extra("masked", [None, "masked by the environment"])
    trainer.failed.log_reasons()
    assert trainer._pending_extra_logs["masked"] == [
        "the reward raised TimeoutError",
        "masked by the environment",
    ]
    trainer._pending_extra_logs.clear()
    trainer.failed.reasons = [None, None]
    trainer.failed.log_reasons()
    assert "masked" not in trainer._pending_extra_logs


def test_online_dpo_leaves_its_pairs_with_every_reward(model, tmp_path) -> None:
    funcs = ["rewards.length", "rewards.slow_length"]
    keys = {"gradient_accumulation_steps": 2}
    steps = online.steps(online.make_job(tmp_path, model, "online_dpo", keys, reward_funcs=funcs))
    found = pq.read_table(tmp_path / FILE).to_pylist()
    assert [r["step"] for r in found] == [1] * 4 + [2] * 4 + [3] * 4
    assert all(r["prompt"] == s["prompt"] for r, s in zip(found[::2], found[1::2], strict=True))
    assert found[0]["prompt"] != found[2]["prompt"]
    for one in found:
        said = json.loads(one["completion"])[-1]["content"]
        assert one["reward/length"] == pytest.approx(len(said) / 100)
        assert one["reward/slow_length"] == pytest.approx(len(said) / 50)
    assert "advantage" not in found[0]
    assert math.isfinite(steps[0]["objective/scores"])
    assert "12 answers of 3 logs" in (tmp_path / "report.html").read_text(encoding="utf-8")


def test_online_dpo_keeps_what_a_reward_model_said(model, tmp_path) -> None:
    judge = tmp_path / "judge"
    transformers = pytest.importorskip("transformers")
    transformers.AutoModelForSequenceClassification.from_pretrained(
        model, num_labels=1
    ).save_pretrained(judge)
    transformers.AutoTokenizer.from_pretrained(model).save_pretrained(judge)
    steps = online.steps(
        online.make_job(
            tmp_path / "run", model, "online_dpo", {"max_steps": 1}, reward_funcs=[str(judge)]
        )
    )
    found = [r["reward/judge"] for r in pq.read_table(tmp_path / "run" / FILE).to_pylist()]
    assert sum(found) / len(found) == pytest.approx(steps[0]["objective/scores"], abs=1e-5)
    assert len(set(found)) > 1
