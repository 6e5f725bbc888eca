"""Dynamic sampling: groups without a signal give their place to fresh ones, and nothing else changes."""

from itertools import islice

import online_runs as online
import pytest
import scripted_rollouts as scripted
import torch
import vllm_stub as vllm
from peft import LoraConfig
from test_grpo_trainer import GROUP, logs, make_trainer, rows
from trl.trainer.grpo_trainer import GRPOTrainer
from trl.trainer.rloo_trainer import RLOOTrainer

from fmtkit.core.errors import OptionError
from fmtkit.core.section import read
from fmtkit.runners.grpo_features.dynamic_sampling import NoSignalError, Tally, fresh_rows, key_of
from fmtkit.runners.grpo_features.settings import GrpoSettings
from fmtkit.runners.grpo_features.trainer import FmtkitGRPOTrainer
from fmtkit.training.building.callbacks import saving
from fmtkit.training.vllm.rollout_settings import RolloutSettings

HARD = {f"w{n}" for n in range(2, 40, 2)}
"""Prompts whose answers all get one reward: every second one."""


def half(completions, name, **_) -> list[float]:
    return [0.0 if n in HARD else float(i % GROUP) for i, n in enumerate(name)]


def never(completions, **_) -> list[float]:
    return [0.0] * len(completions)


def long(completion_ids, **_) -> list[float]:
    """Shape by the position in the group, so that every group differs in it."""
    return [i % GROUP / 100 for i, _ in enumerate(completion_ids)]


long.is_shaping = True


def on(**values) -> GrpoSettings:
    return GrpoSettings(dynamic_sampling=True, **values)


def generation_batches(trainer) -> list[tuple[list[str], dict]]:
    """Note the prompts and the tensors of every batch that is scored."""
    found = []
    scored = trainer._generate_and_score_completions

    def noting(inputs):
        output = scored(inputs)
        found.append(([row["name"] for row in trainer.rows], output))
        return output

    trainer._generate_and_score_completions = noting
    return found


def trained(tmp_path, reward, features=None, **values):
    data = values.pop("data", rows(20))
    trainer = make_trainer(tmp_path, reward, features or on(), data=data, **values)
    batches = generation_batches(trainer)
    trainer.train()
    return trainer, batches


WIDE = {"per_device_train_batch_size": GROUP * 2, "gradient_accumulation_steps": 2}


def test_every_group_of_a_batch_has_a_signal_and_its_own_prompt(tmp_path):
    trainer, batches = trained(tmp_path, half, **WIDE)
    for names, output in batches:
        assert not HARD & set(names)
        assert [names[i : i + GROUP] for i in range(0, len(names), GROUP)] == [
            [n] * GROUP for n in names[::GROUP]
        ]
        assert len(set(names)) == len(names) // GROUP
        assert (output["advantages"].view(-1, GROUP).abs().amax(1) > 0).all()
    for log in logs(trainer):
        assert log["frac_reward_zero_std"] == 0
        assert log["dynamic_sampling/unfilled_groups"] == 0
        assert 0 < log["dynamic_sampling/signal_share"] <= 1
    counted = [log["dynamic_sampling/dropped_groups"] for log in logs(trainer)]
    extra = [log["dynamic_sampling/extra_tokens"] for log in logs(trainer)]
    assert sum(counted) > 0
    assert [bool(groups) for groups in counted] == [bool(tokens) for tokens in extra]


def test_a_batch_is_as_trl_computes_it_for_the_rows_that_it_ends_with(tmp_path):
    """Advantages scaled over the batch, log-probabilities and masks follow from the final rows."""
    _, batches = trained(
        tmp_path, half, scale_rewards="batch", loss_type="dapo", num_iterations=2, **WIDE
    )
    for _, output in batches:
        assert output["num_items_in_batch"] == output["completion_mask"].sum()
        assert output["old_per_token_logps"].shape == output["completion_ids"].shape
        # Every group has the rewards 0 to 3, and so the batch.
        wanted = (torch.arange(GROUP) - 1.5).repeat(4)
        assert torch.allclose(output["advantages"], wanted / (wanted.std() + 1e-4), atol=1e-4)


@pytest.mark.parametrize("kind", ["sum_then_normalize", "normalize_then_sum"])
def test_the_raw_outcome_decides_and_not_what_shapes_it(tmp_path, kind):
    _, batches = trained(tmp_path, [half, long], multi_objective_aggregation=kind, **WIDE)
    assert all(not HARD & set(names) for names, _ in batches)
    plain, _ = trained(
        tmp_path, [half, long], on(dynamic_sampling_metric=("long",)), max_steps=1, **WIDE
    )
    assert logs(plain)[0]["dynamic_sampling/gen_batches"] == 1


def test_a_metric_that_is_no_reward_is_named(tmp_path):
    with pytest.raises(OptionError, match="no reward named 'halve'; did you mean 'half'"):
        make_trainer(tmp_path, half, on(dynamic_sampling_metric=("halve",)))


def test_a_run_without_any_difference_ends_with_advice_after_the_bound(tmp_path):
    trainer = make_trainer(
        tmp_path, never, on(dynamic_sampling_max_gen_batches=3), data=rows(4), **WIDE
    )
    with (
        pytest.raises(Exception, match=r"all 12 groups of 3 rounds .* too hard") as found,
        saving(trainer),
    ):
        trainer.train()
    assert isinstance(found.value.__cause__, NoSignalError)
    assert trainer.state.global_step == 0


def test_solved_prompts_get_another_advice(tmp_path):
    solved = [lambda completions, **_: [1.0] * len(completions)]
    trainer = make_trainer(tmp_path, solved, on(dynamic_sampling_max_gen_batches=1))
    with pytest.raises(Exception, match="the prompts are solved"):
        trainer.train()


def test_what_the_bound_leaves_unfilled_trains_nothing_and_is_counted(tmp_path):
    one = {"w1"}

    def rare(completions, name, **_):
        return [float(i % GROUP) if n in one else 1.0 for i, n in enumerate(name)]

    trainer, _ = trained(
        tmp_path, rare, on(dynamic_sampling_max_gen_batches=2), data=rows(4), max_steps=1, **WIDE
    )
    log = logs(trainer)[0]
    # The dataset has four prompts: the one with a signal came in both rounds.
    assert log["dynamic_sampling/unfilled_groups"] == 2
    assert log["frac_reward_zero_std"] == 0.5
    assert log["dynamic_sampling/gen_batches"] == 2


def test_none_beside_one_reward_is_no_difference(tmp_path):
    def partly(completions, name, **_):
        return [
            (None if i % 2 else 1.0) if n in HARD else float(i % GROUP) for i, n in enumerate(name)
        ]

    _, batches = trained(tmp_path, partly, **WIDE)
    assert all(not HARD & set(names) for names, _ in batches)


@pytest.mark.parametrize("features", [None, GrpoSettings(dynamic_sampling=False)])
def test_switched_off_the_losses_are_those_of_trl(tmp_path, features):
    torch.manual_seed(0)
    plain = make_trainer(tmp_path, half, kind=GRPOTrainer, data=rows(20), **WIDE)
    plain.train()
    torch.manual_seed(0)
    ours = make_trainer(tmp_path, half, features, data=rows(20), **WIDE)
    ours.features = GrpoSettings(skip_zero_advantage_batches=False)
    ours.train()
    for name in ("loss", "grad_norm", "reward"):
        assert [log[name] for log in logs(ours)] == [log[name] for log in logs(plain)]


def test_switched_on_nothing_changes_while_every_group_has_a_signal(tmp_path):
    def distinct(completions, **_):
        return [float(i % GROUP) for i, _ in enumerate(completions)]

    runs = []
    for kind, features in ((GRPOTrainer, None), (FmtkitGRPOTrainer, on())):
        torch.manual_seed(0)
        trainer = make_trainer(tmp_path, distinct, features, kind=kind, data=rows(20), **WIDE)
        trainer.train()
        runs.append([(log["loss"], log["grad_norm"]) for log in logs(trainer)])
    assert runs[0] == runs[1]


def test_fresh_prompts_follow_from_the_seed_and_come_once_before_they_come_again():
    def drawn(seed, count, seen=()):
        found = fresh_rows(rows(6), seed, {key_of(rows(6)[n]) for n in seen})
        return [row["name"] for row in islice(found, count)]

    assert drawn([0, 3, 0], 6) == drawn([0, 3, 0], 6) != drawn([0, 4, 0], 6)
    assert sorted(drawn([0, 3, 0], 6)) == [row["name"] for row in rows(6)]
    assert sorted(drawn([0, 3, 0], 4, (0, 5))) == ["w2", "w3", "w4", "w5"]
    assert sorted(drawn([0, 3, 0], 10, (0, 5))[4:]) == [row["name"] for row in rows(6)]


def test_the_columns_of_a_rollout_function_follow_their_rows(tmp_path):
    asked = []

    def rollout(prompts, trainer):
        texts = [prompt[-1]["content"].split()[0] for prompt in prompts]
        asked.append(len(prompts))
        return {
            "prompt_ids": [[1, 2, 3] for _ in prompts],
            "completion_ids": [[4 + int(t[1:]) % 5, 5][: 1 + i % 2] for i, t in enumerate(texts)],
            "logprobs": [[-1.0] * (1 + i % 2) for i, _ in enumerate(texts)],
            "told": texts,
        }

    def judged(completions, name, told, **_):
        assert told == name
        return [0.0 if n in HARD else float(i % GROUP) for i, n in enumerate(told)]

    trainer, batches = trained(tmp_path, judged, rollout_func=rollout, **WIDE)
    assert len(asked) > len(batches)
    for names, _ in batches:
        assert not HARD & set(names)
        assert [row["told"] for row in trainer.rows] == [row["name"] for row in trainer.rows]


def test_what_rewards_log_for_each_answer_follows_it(tmp_path):
    def logging(completions, name, log_extra, **_):
        log_extra("asked", name)
        return half(completions, name)

    trainer, batches = trained(tmp_path, logging, max_steps=1, **WIDE)
    assert list(trainer._logs["extra"]["asked"]) == batches[0][0]


@pytest.mark.parametrize("ahead", [False, True])
def test_a_vllm_server_answers_the_further_rounds_whether_or_not_answers_are_made_ahead(
    model, tmp_path, ahead
):
    seen = []

    def odd(prompts, **_):
        first = [int(prompt[-1]["content"].split()[0]) for prompt in prompts]
        return [float(i % 2) if number % 2 else 0.0 for i, number in enumerate(first)]

    stub = vllm.Stub(model)
    with vllm.serving(stub) as port:
        trainer = scripted.make_trainer(
            model,
            tmp_path,
            rollouts=RolloutSettings(
                vllm_lora_sync=True, async_prefetch=ahead, folder=tmp_path / "adapters"
            ),
            kind=FmtkitGRPOTrainer,
            more={
                "features": on(),
                "peft_config": LoraConfig(r=4, target_modules=["q_proj"]),
            },
            vllm_server_host="127.0.0.1",
            vllm_server_port=port,
            vllm_server_timeout=0,
            gradient_accumulation_steps=2,
        )
        trainer.reward_funcs = [odd]
        vllm.attach(trainer, vllm.Client(f"http://127.0.0.1:{port}", model))
        made = trainer._generate_and_score_completions

        def noting(inputs):
            output = made(inputs)
            texts = [row["prompt"][-1]["content"] for row in trainer.rows]
            seen.append([int(text.split()[0]) for text in texts])
            return output

        trainer._generate_and_score_completions = noting
        trainer.train()
    found = [log for log in logs(trainer) if "loss" in log]
    assert len(seen) == len(found) == 4
    assert all(number % 2 for batch in seen for number in batch)
    assert {log["dynamic_sampling/unfilled_groups"] for log in found} == {0}
    assert {log["frac_reward_zero_std"] for log in found} == {0}
    assert sum(log["dynamic_sampling/dropped_groups"] for log in found) > 0
    assert all(("prefetch/waited_seconds" in log) == ahead for log in found[1:])


def test_replay_fills_what_is_left(tmp_path):
    calls = iter(range(1000))

    def at_first(completions, name, **_):
        return [float(i % GROUP) if next(calls) < 2 * GROUP else 1.0 for i, _ in enumerate(name)]

    features = on(dynamic_sampling_max_gen_batches=1, replay_buffer_size=4)
    trainer = make_trainer(tmp_path, at_first, features, data=rows(20), **WIDE)
    with pytest.raises(Exception, match="the prompts are solved"):
        trainer.train()
    assert len(trainer.replay.buffer) == 2


def test_rounds_ask_for_as_many_prompts_as_the_share_so_far_suggests(tmp_path):
    sampling = make_trainer(tmp_path, half, on(), **WIDE).sampling
    assert sampling.rows_wanted(2, Tally(8, 4), 8 * GROUP) == 4 * GROUP
    assert sampling.rows_wanted(1, Tally(8, 7), 8 * GROUP) == 2 * GROUP
    assert sampling.rows_wanted(6, Tally(8, 2), 8 * GROUP) == 8 * GROUP
    assert sampling.rows_wanted(8, Tally(8, 0), 8 * GROUP) == 8 * GROUP


@pytest.mark.parametrize(
    ("values", "said"),
    [({"dynamic_sampling_max_gen_batches": 0}, "from 1"), ({}, None)],
)
def test_the_keys_are_read(values, said):
    if said:
        with pytest.raises(OptionError, match=said):
            read(GrpoSettings, values)
        return
    found = read(GrpoSettings, {"dynamic_sampling": True, "dynamic_sampling_metric": "accuracy"})
    assert found.dynamic_sampling_metric == ("accuracy",)
    assert found.dynamic_sampling_max_gen_batches == 10


@pytest.mark.parametrize("method", ["grpo", "gdpo", "rloo"])
@pytest.mark.slow
def test_a_method_trains_so_from_a_configuration(method, model, tmp_path):
    trl = {"reward_funcs": ["rewards.vowels"], "dynamic_sampling": True}
    work = online.make_job(tmp_path, model, method, {"gradient_accumulation_steps": 2}, **trl)
    found = online.steps(work)
    assert len(found) == 3
    assert all(log["dynamic_sampling/gen_batches"] >= 1 for log in found)
    filled = [log for log in found if not log["dynamic_sampling/unfilled_groups"]]
    assert filled
    assert all(log["frac_reward_zero_std"] == 0 for log in filled)


def test_rloo_without_it_is_trls(model, tmp_path):
    runs = {}
    for name in ("trl", "ours"):
        work = online.make_job(tmp_path / name, model, "rloo")
        if name == "ours":
            runs[name] = online.steps(work)
            continue
        trainer = online.trainer_of(work)
        trainer.__class__ = RLOOTrainer
        torch.manual_seed(trainer.args.seed)
        trainer.train()
        runs[name] = [log for log in trainer.state.log_history if "loss" in log]
    assert [log["loss"] for log in runs["ours"]] == [log["loss"] for log in runs["trl"]]
    assert [log["reward"] for log in runs["ours"]] == [log["reward"] for log in runs["trl"]]
