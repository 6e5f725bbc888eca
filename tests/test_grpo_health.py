"""Warnings about an online run: each range of the documents, said once, with the next step to try."""

import pytest

from fmtkit.core.runner import HealthLimits, find
from fmtkit.training.building.callbacks import RunLog, TokenCounter
from fmtkit.training.building.interrupts import Stop
from fmtkit.training.building.loss_checks import findings
from fmtkit.training.building.online_health import OnlineHealth

SOUND = {
    "loss": 0.0,
    "reward": 0.5,
    "reward_std": 0.3,
    "frac_reward_zero_std": 0.1,
    "rewards/right/mean": 0.5,
    "entropy": 0.3,
    "grad_norm": 0.2,
    "completions/clipped_ratio": 0.1,
    "clip_ratio/region_mean": 0.01,
}


def said(steps: int, **changed: float) -> list[str]:
    health = OnlineHealth(HealthLimits())
    first = list(health.see(SOUND, 1))
    return first + [
        text for step in range(2, steps + 1) for text in health.see({**SOUND, **changed}, step)
    ]


def test_a_sound_run_has_no_warning() -> None:
    assert said(60) == []


CASES = {
    "collapse": ({"entropy": 0.005}, 8, "below 0.01: the model gives one answer only"),
    "low entropy": ({"entropy": 0.03}, 8, "below 0.05, and answers become similar"),
    "high entropy": ({"entropy": 0.9}, 8, "entropy rose from 0.3 to 0.9"),
    "large gradient": ({"grad_norm": 20.0}, 8, "above 10 for 5 logs"),
    "small gradient": ({"grad_norm": 1e-4}, 8, "below 0.001"),
    "cut": ({"completions/clipped_ratio": 0.95}, 12, "95% of the answers are cut"),
    "clipped": ({"clip_ratio/region_mean": 0.5}, 8, "50% of the tokens have a clipped ratio"),
    "silent": ({"frac_reward_zero_std": 1.0, "reward_std": 0.0}, 20, "had one reward"),
    "off policy": (
        {"sampling/importance_sampling_ratio/mean": 0.2},
        8,
        "lower trl.vllm_sync_interval",
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_a_metric_out_of_its_range_is_one_warning(case) -> None:
    changed, steps, words = CASES[case]
    (text,) = said(3 * steps, **changed)
    assert words in text


@pytest.mark.parametrize("case", CASES)
def test_one_bad_log_is_no_warning(case) -> None:
    changed, _, _ = CASES[case]
    health = OnlineHealth(HealthLimits())
    logs = [SOUND] * 10 + [{**SOUND, **changed}] + [SOUND] * 10
    assert [text for step, log in enumerate(logs) for text in health.see(log, step)] == []


def test_a_reward_that_stays_low_for_twenty_steps_is_named() -> None:
    health = OnlineHealth(HealthLimits())
    log = {**SOUND, "rewards/right/mean": 0.04, "rewards/format/mean": 0.9}
    found = [(step, text) for step in range(1, 40) for text in health.see(log, step)]
    ((step, text),) = found
    assert step == 20
    assert "rewards/right/mean was never above 0.15 in 20 steps (best 0.04)" in text
    assert "fmtkit rewards test CONFIG" in text


def test_steps_that_use_answers_again_count_for_no_rule_of_rewards() -> None:
    health = OnlineHealth(HealthLimits())
    silent = {**SOUND, "frac_reward_zero_std": 1.0}
    again = {"loss": 0.0, "entropy": 0.3, "grad_norm": 0.2}
    logs = [silent, again] * 8
    assert [text for step, log in enumerate(logs) for text in health.see(log, step)] == []


def test_a_loss_of_zero_says_nothing_of_an_online_run() -> None:
    assert list(findings([{"loss": 0.0, "grad_norm": 0.3}] * 5, find("grpo"))) == []
    assert len(list(findings([{"loss": 0.0, "grad_norm": 0.3}] * 5, find("dpo")))) == 1


def test_a_warning_is_printed_when_it_is_found_and_once(tmp_path, capsys) -> None:
    from types import SimpleNamespace

    log = RunLog(tmp_path, Stop(), TokenCounter(), find("grpo"))
    state = SimpleNamespace(is_world_process_zero=True, global_step=0)
    args = SimpleNamespace(world_size=1, device="cpu")
    for step in range(12):
        state.global_step = step
        log.on_log(args, state, None, {**SOUND, "entropy": 0.001})
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 1
    assert lines[0].startswith("warning: step 4: entropy is 0.001")
    assert log.findings == [lines[0].removeprefix("warning: step 4: ")]
