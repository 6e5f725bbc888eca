"""Whether a run learned, by its curves: those of runs that did, and of runs that did not in several ways."""

import json
import math
import random
from pathlib import Path

import pytest

from fmtkit.training.run import curves
from fmtkit.training.run.verdict import FEWEST, Method, verdict_of

PAIRS, ONLINE, PLAIN = Method(has_pairs=True), Method(is_online=True), Method()
STEPS = 200


def curve(of, *, noise=0.0, steps=STEPS, seed=0):
    """Return the values of a function of the part of the run that is over, with noise."""
    draw = random.Random(seed)
    return [(float(i + 1), of(i / steps) + draw.gauss(0, noise)) for i in range(steps)]


def constant(value, steps=STEPS):
    return [(float(i + 1), value) for i in range(steps)]


def test_a_loss_that_falls_through_its_noise_is_learning():
    found = verdict_of({"loss": curve(lambda t: 2 - t, noise=0.3)}, PLAIN)
    assert found.state == "learned"
    assert found.text.startswith("It learned: loss ")


@pytest.mark.parametrize("seed", range(20))
def test_noise_alone_is_no_learning(seed):
    found = verdict_of({"loss": curve(lambda _: 2.0, noise=0.2, seed=seed)}, PLAIN)
    assert found.state == "not_learned"
    assert "within its noise" in found.text


def test_a_rate_of_zero_is_named():
    logs = {
        "loss": curve(lambda _: 2.0, noise=0.1),
        "learning_rate": constant(0.0),
        "grad_norm": curve(lambda _: 1.0),
    }
    found = verdict_of(logs, PLAIN)
    assert found.state == "not_learned"
    assert "learning_rate is 0" in found.text


def test_rows_that_are_masked_whole_have_no_gradient():
    logs = {"loss": constant(0.0), "grad_norm": constant(0.0), "learning_rate": constant(1e-4)}
    found = verdict_of(logs, PLAIN)
    assert found.state == "not_learned"
    assert "no token is trained on" in found.text
    assert "--show-mask" in found.advice[0]


def test_a_loss_that_is_no_number_from_the_start_may_be_a_mask():
    found = verdict_of({"loss": [(1.0, None)], "grad_norm": [(1.0, None)]}, PLAIN)
    assert found.state == "diverged"
    assert "from the first log on" in found.text
    assert any("--show-mask" in one for one in found.advice)


def test_equal_pairs_have_no_gradient():
    logs = {
        "loss": constant(math.log(2)),
        "grad_norm": constant(0.0),
        "rewards/margins": constant(0.0),
    }
    found = verdict_of(logs, PAIRS)
    assert found.state == "not_learned"
    assert "chosen and rejected have the same log-probability" in found.text


def test_rewards_without_a_spread_teach_nothing():
    logs = {
        "loss": curve(lambda _: 0.0, noise=0.01),
        "reward": curve(lambda _: 0.0, noise=0.01),
        "frac_reward_zero_std": constant(1.0),
        "grad_norm": curve(lambda _: 0.01),
    }
    found = verdict_of(logs, ONLINE)
    assert found.state == "not_learned"
    assert "one reward" in found.text


def test_a_loss_that_explodes_has_diverged():
    found = verdict_of({"loss": curve(lambda t: 2 + 40 * t * t, noise=0.1)}, PLAIN)
    assert found.state == "diverged"
    lost = [*curve(lambda t: 2 - t, steps=20), (21.0, None)]
    found = verdict_of({"loss": lost}, PLAIN)
    assert found.state == "diverged"
    assert "step 21" in found.text


def test_a_run_that_was_ruined_in_its_first_steps_has_diverged_though_its_loss_falls_again():
    ruined = [(1.0, 6.2), *curve(lambda t: 90 - 60 * t, noise=2.0)[1:]]
    found = verdict_of({"loss": ruined}, PLAIN)
    assert found.state == "diverged"
    assert found.text.startswith("It diverged: loss 6.2 at its first log, 3")
    noisy = [(1.0, 6.2), *curve(lambda t: 3400 - 2200 * t, noise=900.0)[1:]]
    assert verdict_of({"loss": noisy}, PLAIN).state == "diverged"
    # A first log that is low by chance is none.
    lucky = [(1.0, 1.2), *curve(lambda _: 2.0, noise=0.4)[1:]]
    assert verdict_of({"loss": lucky}, PLAIN).state == "not_learned"


def test_pairs_whose_replies_became_impossible_are_not_learned_whatever_their_margins():
    """The curves of a run with a rate of 10: loss 0, margins of fifty thousand, and no language left."""
    logs = {
        "loss": [(1.0, 0.69), (2.0, 0.0), (3.0, 77.0), *constant(0.0)[3:]],
        "rewards/margins": [(1.0, 0.0), *curve(lambda t: 5e4 + 1e4 * t, noise=500.0)[1:]],
        "logps/chosen": [(1.0, -36.5), *curve(lambda t: -3e5 - 1e4 * t, noise=900.0)[1:]],
    }
    found = verdict_of(logs, PAIRS)
    assert found.state == "diverged"
    assert "no longer knows the chosen replies, logps/chosen -36.5 at its first log" in found.text
    # Less likely than before is usual: what matters is which of the two is likelier.
    usual = logs | {
        "loss": curve(lambda t: 0.7 - 0.4 * t, noise=0.02),
        "logps/chosen": curve(lambda t: -36 - 60 * t, noise=3.0),
    }
    assert verdict_of(usual, PAIRS).state == "learned"


def test_margins_decide_for_pairs_and_rewards_online():
    falling, rising = curve(lambda t: 0.7 - t / 10), curve(lambda t: t, noise=0.2)
    found = verdict_of({"loss": falling, "rewards/margins": rising}, PAIRS)
    assert found.state == "learned"
    assert "rewards/margins" in found.text
    assert "loss" in found.text
    falls = curve(lambda t: -t, noise=0.1)
    assert "became worse" in verdict_of({"rewards/margins": falls}, PAIRS).text
    # The loss of an online method says nothing.
    logs = {"loss": curve(lambda t: t), "reward": rising}
    assert verdict_of(logs, ONLINE).state == "learned"


def test_rewards_decide_under_the_name_that_a_trainer_gives_them():
    # TRL's online DPO, XPO, Nash-MD and PPO log no `reward`, and their loss falls or not.
    logs = {"loss": curve(lambda t: 1 - t), "objective/scores": curve(lambda _: 0.2, noise=0.1)}
    assert verdict_of(logs, PLAIN).state == "not_learned"
    logs["objective/scores"] = curve(lambda t: t, noise=0.1)
    found = verdict_of(logs, PLAIN)
    assert found.state == "learned"
    assert "objective/scores" in found.text


def test_a_loss_that_says_nothing_is_not_judged():
    found = verdict_of({"loss": curve(lambda t: 1 - t)}, ONLINE)
    assert found.state == "unclear"
    assert "no reward was logged" in found.text


def test_a_run_that_ended_before_its_first_log_is_not_called_early():
    found = verdict_of({}, PAIRS, planned=200)
    assert found.state == "unclear"
    assert found.text.startswith("Nothing was logged: the run ended before its first log")
    assert "--show-mask" in " ".join(found.advice)


def test_few_logs_are_too_few():
    short = curve(lambda t: 2 - t, steps=FEWEST - 1)
    found = verdict_of({"loss": short}, PLAIN)
    assert found.state == "unclear"
    assert f"{FEWEST - 1} logs" in found.text
    each = verdict_of({"loss": [(1.0, 2.0), (2.0, 1.9), (3.0, 1.8)]}, PLAIN)
    assert each.advice == ("train for more steps",)
    seldom = verdict_of({"loss": [(10.0, 2.0), (20.0, 1.9), (30.0, 1.8)]}, PLAIN)
    assert seldom.advice == ("train for more steps, or set logging_steps: 1",)
    assert verdict_of({}, PLAIN).state == "unclear"


def test_an_evaluation_that_rises_again_and_an_unfinished_run_are_told_beside_it():
    logs = {
        "loss": curve(lambda t: 2 - t),
        "eval_loss": [(50.0, 1.5), (100.0, 1.2), (150.0, 1.3), (200.0, 1.6)],
    }
    found = verdict_of(logs, PLAIN, planned=400)
    assert found.state == "learned"
    assert "best at step 100" in found.advice[0]
    assert "step 200 of 400" in found.advice[1]
    assert verdict_of(logs, PLAIN, planned=200).advice == found.advice[:1]


def test_a_thinned_curve_keeps_ends_spikes_and_gaps(tmp_path: Path):
    lines = [{"step": i, "loss": 1.0} for i in range(1, 100_001)]
    lines[5000]["loss"], lines[70_000]["loss"] = 99.0, None
    text = "".join(json.dumps(line) + "\n" for line in lines) + '{"step": 100001, "lo'
    (tmp_path / "metrics.jsonl").write_text(text)
    whole = curves.read(tmp_path)["loss"]
    assert len(whole) == 100_000
    thin = curves.thinned(whole, 1000)
    assert len(thin) <= 1003
    assert thin[0] == whole[0]
    assert thin[-1] == whole[-1]
    assert (5001, 99.0) in thin
    assert (70_001, None) in thin
    assert curves.thinned(thin, 2000) == thin
