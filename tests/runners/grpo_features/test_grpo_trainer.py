"""What the GRPO trainer adds to TRL's: skipped batches, replayed groups, prompts that come again."""

import math
from pathlib import Path

import pytest
import torch
from datasets import Dataset
from ebft_toys import lora, tiny_model, word_tokenizer
from trl import GRPOConfig
from trl.trainer.grpo_trainer import GRPOTrainer

from fmtkit.core.errors import OptionError
from fmtkit.runners.grpo_features.replay import importance_ratio
from fmtkit.runners.grpo_features.settings import GrpoSettings
from fmtkit.runners.grpo_features.trainer import FmtkitGRPOTrainer
from fmtkit.training.vllm.rollout_settings import RolloutSettings

GROUP = 4


def rows(count: int = 4) -> list[dict]:
    return [
        {"prompt": [{"role": "user", "content": f"w{i + 1} w{i + 2}"}], "name": f"w{i + 1}"}
        for i in range(count)
    ]


def distinct(completions, **_) -> list[float]:
    """Reward every answer differently, so that each batch has a signal."""
    return [float(i % GROUP) for i, _ in enumerate(completions)]


def constant(completions, **_) -> list[float]:
    return [1.0] * len(completions)


OWN = ("rollout_func", "rollouts")


def make_trainer(path: Path, reward, features=None, *, model=None, data=None, kind=None, **values):
    arguments = {
        "output_dir": str(path),
        "use_cpu": True,
        "bf16": False,
        "report_to": [],
        "per_device_train_batch_size": GROUP,
        "per_device_eval_batch_size": GROUP,
        "num_generations": GROUP,
        "max_completion_length": 5,
        "learning_rate": 1e-2,
        "logging_steps": 1,
        "max_steps": 4,
        "save_strategy": "no",
        "disable_tqdm": True,
        "gradient_checkpointing": False,
    }
    more = {} if kind is GRPOTrainer else {"features": features}
    more |= {name: values.pop(name) for name in OWN if name in values}
    return (kind or FmtkitGRPOTrainer)(
        model=model or tiny_model(),
        args=GRPOConfig(**(arguments | values)),
        train_dataset=Dataset.from_list(rows() if data is None else data),
        processing_class=word_tokenizer(),
        reward_funcs=reward if isinstance(reward, list) else [reward],
        **more,
    )


def logs(trainer) -> list[dict]:
    return [log for log in trainer.state.log_history if "loss" in log]


def weights(trainer) -> dict:
    return {name: p.detach().clone() for name, p in trainer.model.named_parameters()}


def unchanged(trainer, before) -> bool:
    return all(torch.equal(p, before[n]) for n, p in trainer.model.named_parameters())


# --- batches without a signal -------------------------------------------------------------------


@pytest.mark.parametrize("adapter", [False, True])
def test_a_batch_without_a_signal_is_skipped_and_moves_nothing(tmp_path, adapter) -> None:
    model = lora(tiny_model()) if adapter else tiny_model()
    trainer = make_trainer(tmp_path, constant, model=model, optim="sgd")
    before = weights(trainer)
    trainer.train()
    assert [log["skipped_zero_adv_batches"] for log in logs(trainer)] == [1.0] * 4
    assert all(log["loss"] == log["grad_norm"] == 0.0 for log in logs(trainer))
    assert unchanged(trainer, before)


def test_a_batch_with_a_signal_is_not_skipped(tmp_path) -> None:
    trainer = make_trainer(tmp_path, distinct)
    trainer.train()
    assert all("skipped_zero_adv_batches" not in log for log in logs(trainer))


@pytest.mark.parametrize(
    "values", [{"beta": 0.1}, {"entropy_coef": 0.01}], ids=["kl", "entropy bonus"]
)
def test_a_loss_of_another_kind_is_never_skipped(tmp_path, values) -> None:
    model = tiny_model()
    model.save_pretrained(tmp_path / "model")
    model.config._name_or_path = str(tmp_path / "model")
    trainer = make_trainer(tmp_path, constant, model=model, num_iterations=2, **values)
    before = weights(trainer)
    trainer.train()
    assert all("skipped_zero_adv_batches" not in log for log in logs(trainer))
    assert not unchanged(trainer, before) or "beta" in values


def test_skipping_can_be_turned_off(tmp_path) -> None:
    off = GrpoSettings(skip_zero_advantage_batches=False)
    trainer = make_trainer(tmp_path, constant, off, max_steps=1)
    trainer.train()
    assert "skipped_zero_adv_batches" not in logs(trainer)[0]
    assert "entropy" in logs(trainer)[0]


def test_an_evaluation_is_never_skipped(tmp_path) -> None:
    trainer = make_trainer(tmp_path, constant)
    found = trainer.evaluate(Dataset.from_list(rows(1)))
    assert "eval_entropy" in found
    assert not any("skipped" in name for name in found)


def test_runs_with_a_signal_now_and_then_end_with_the_weights_of_trl(tmp_path) -> None:
    def sometimes(completions, trainer_state, **_):
        return distinct(completions) if trainer_state.global_step % 2 else constant(completions)

    ends = []
    for kind in (FmtkitGRPOTrainer, GRPOTrainer):
        trainer = make_trainer(tmp_path, sometimes, kind=kind)
        trainer.train()
        ends.append(weights(trainer))
        skipped = [log.get("skipped_zero_adv_batches") for log in logs(trainer)]
        assert skipped == ([1.0, None, 1.0, None] if kind is FmtkitGRPOTrainer else [None] * 4)
    for name, value in ends[0].items():
        torch.testing.assert_close(value, ends[1][name], atol=0, rtol=0, msg=name)


# --- replay -------------------------------------------------------------------------------------


def only_at_first(completions, trainer_state, **_) -> list[float]:
    if trainer_state.global_step < 2:
        return distinct(completions)
    return constant(completions)


def seen_batches(trainer) -> list[dict]:
    """Collect the scored batches of a trainer."""
    found, inner = [], trainer._generate_and_score_completions

    def spied(inputs):
        output = inner(inputs)
        found.append(output)
        return output

    trainer._generate_and_score_completions = spied
    return found


def rows_in(batch: dict) -> list[tuple]:
    """Return prompt and completion of each row without padding, in order."""
    out = []
    for i in range(len(batch["advantages"])):
        prompt = batch["prompt_ids"][i][batch["prompt_mask"][i].bool()].tolist()
        ids = batch["completion_ids"][i][batch["completion_mask"][i].bool()].tolist()
        out.append((tuple(prompt), tuple(ids), float(batch["advantages"][i])))
    return out


def gapless(batch: dict) -> bool:
    """Return whether every row is padding, tokens, padding, with no hole between them."""
    mask = torch.cat([batch["prompt_mask"], batch["completion_mask"]], dim=1)
    return all(str(row.tolist()).count("0, 1") <= 1 for row in mask)


@pytest.mark.parametrize("iterations", [1, 2])
@pytest.mark.parametrize("recompute", [True, False])
def test_groups_without_a_signal_are_replaced_by_stored_ones(tmp_path, iterations, recompute):
    features = GrpoSettings(replay_buffer_size=2, replay_recompute_logps=recompute)
    trainer = make_trainer(
        tmp_path,
        only_at_first,
        features,
        max_steps=6,
        num_iterations=iterations,
        learning_rate=1e-4,
    )
    batches = seen_batches(trainer)
    trainer.train()
    rewarded = 2 if iterations == 1 else 1
    stored = [row for batch in batches[:rewarded] for row in rows_in(batch)]
    for batch in batches[rewarded:]:
        assert set(rows_in(batch)) <= set(stored)
        assert batch["num_items_in_batch"] == batch["completion_mask"].sum()
    assert all(gapless(batch) for batch in batches)
    replaced = [log["replay/replaced"] for log in logs(trainer) if "replay/replaced" in log]
    assert replaced == [0.0] * rewarded + [1.0] * (len(batches) - rewarded)
    assert max(log.get("replay/size", 0) for log in logs(trainer)) <= 2
    assert all(math.isfinite(log["grad_norm"]) and log["grad_norm"] > 0 for log in logs(trainer))


def test_an_evaluation_neither_fills_nor_uses_the_buffer(tmp_path) -> None:
    trainer = make_trainer(tmp_path, distinct, GrpoSettings(replay_buffer_size=2))
    found = trainer.evaluate(Dataset.from_list(rows(1)))
    assert len(trainer.replay.buffer) == 0
    assert not any("replay" in name for name in found)


def test_replay_leaves_a_run_with_signals_as_it_is(tmp_path) -> None:
    ends = []
    for features in (GrpoSettings(), GrpoSettings(replay_buffer_size=4)):
        trainer = make_trainer(tmp_path, distinct, features)
        trainer.train()
        ends.append([log["loss"] for log in logs(trainer)])
    assert ends[0] == ends[1]


def test_replay_needs_whole_groups_on_each_device(tmp_path) -> None:
    trainer = make_trainer(tmp_path, distinct, GrpoSettings(replay_buffer_size=2))
    trainer.args.per_device_train_batch_size = 2
    with pytest.raises(OptionError, match="is 2, which is not a multiple"):
        trainer.set_up()


# --- re-rolling ---------------------------------------------------------------------------------


def names_of_steps(trainer) -> list[list[str]]:
    """Collect the names of the rows that each generation is for."""
    found, inner = [], trainer._calculate_rewards

    def spied(inputs, *rest):
        found.append([row["name"] for row in inputs])
        return inner(inputs, *rest)

    trainer._calculate_rewards = spied
    return found


def fails_on_w1(completions, name, trainer_state, **_) -> list[float]:
    passed = distinct(completions)
    return [0.0 if n == "w1" else value for n, value in zip(name, passed, strict=True)]


@pytest.mark.parametrize(("fraction", "again"), [(0.5, [3]), (0.0, [1]), (1.0, [])])
def test_a_failed_prompt_comes_again_after_the_start(tmp_path, fraction, again) -> None:
    features = GrpoSettings(reroll_start_fraction=fraction)
    trainer = make_trainer(
        tmp_path, fails_on_w1, features, max_steps=6, shuffle_dataset=False, data=rows(6)
    )
    names = names_of_steps(trainer)
    trainer.train()
    assert set(names[0]) == {"w1"}
    assert [i for i, step in enumerate(names) if i and set(step) == {"w1"}] == again
    injected = [i for i, log in enumerate(logs(trainer)) if log.get("reroll/injected")]
    assert injected == again
    if fraction < 1:
        assert logs(trainer)[0]["reroll/queue"] == 1.0


def test_only_the_last_group_of_a_batch_gives_its_place(tmp_path) -> None:
    features = GrpoSettings(reroll_start_fraction=0.0)
    trainer = make_trainer(
        tmp_path,
        fails_on_w1,
        features,
        max_steps=2,
        shuffle_dataset=False,
        per_device_train_batch_size=2 * GROUP,
    )
    names = names_of_steps(trainer)
    trainer.train()
    assert names == [["w1"] * GROUP + ["w2"] * GROUP, ["w3"] * GROUP + ["w1"] * GROUP]


# --- beside a sampler, and ahead of time --------------------------------------------------------


class Sampler:
    """Answers as vLLM gives them: fixed tokens, whose probabilities differ from the model's."""

    def sync_weights(self) -> None:
        pass

    def generate(self, prompts, images, num_generations, profiler=None):
        ids = [[10 + i % 7, 11, 12 + i % 3][: 1 + i % 3] for i, _ in enumerate(prompts)]
        return None, ids, [[[-2.0 - 0.1 * n] for n, _ in enumerate(one)] for one in ids], None


def sampled(trainer):
    """Let a sampler make the answers of a trainer that was built without one."""
    trainer.use_vllm, trainer.vllm_mode, trainer._last_loaded_step = True, "colocate", -1
    trainer.vllm_generation = Sampler()
    trainer.connect_rollouts()
    return trainer


MODES = ["token_truncate", "token_mask", "sequence_truncate", "sequence_mask"]


@pytest.mark.parametrize("mode", MODES)
def test_the_ratio_is_that_of_trl_and_follows_rows_that_come_again(tmp_path, mode) -> None:
    trainer = sampled(
        make_trainer(
            tmp_path,
            only_at_first,
            GrpoSettings(replay_buffer_size=2),
            vllm_importance_sampling_mode=mode,
            vllm_importance_sampling_clip_max=1.5,
            learning_rate=1e-3,
        )
    )
    batches = seen_batches(trainer)
    trainer.train()
    assert [log["replay/replaced"] for log in logs(trainer)] == [0.0, 0.0, 1.0, 1.0]
    for batch in batches:
        expected = importance_ratio(
            batch["old_per_token_logps"],
            batch["sampling_per_token_logps"],
            batch["completion_mask"],
            mode=mode,
            clip_min=None,
            clip_max=1.5,
        )
        torch.testing.assert_close(batch["importance_sampling_ratio"], expected)
    assert all(math.isfinite(log["loss"]) for log in logs(trainer))


def test_an_answer_is_dropped_if_it_did_badly_and_is_far_off() -> None:
    model = torch.tensor([[-1.0, -1.0, -1.0], [-3.0, -3.0, 0.0]])
    sampler = torch.tensor([[-1.0, -1.2, -1.0], [-1.0, -2.0, 0.0]])
    mask = torch.tensor([[1, 1, 1], [1, 1, 0]])
    for advantage, kept in ((-1.0, [1, 0]), (1.0, [1, 1])):
        advantages = torch.full((2, 1), advantage)
        found = GRPOTrainer.get_off_policy_mask(advantages, model, sampler, mask, 0.5)
        assert found.squeeze(1).tolist() == kept


def scripted(prompts, trainer) -> dict:
    ids = [[10 + len(str(p)) % 7, 11 + i % 4, 2] for i, p in enumerate(prompts)]
    return {"prompt_ids": [[8, 9]] * len(prompts), "completion_ids": ids, "logprobs": None}


@pytest.mark.parametrize("ahead", [False, True])
def test_failed_prompts_come_again_also_where_answers_are_made_ahead(tmp_path, ahead) -> None:
    features = GrpoSettings(reroll_start_fraction=0.5)
    trainer = make_trainer(
        tmp_path,
        fails_on_w1,
        features,
        max_steps=8,
        shuffle_dataset=False,
        data=rows(8),
        rollout_func=scripted,
        rollouts=RolloutSettings(async_prefetch=ahead, folder=tmp_path),
    )
    names = names_of_steps(trainer)
    trainer.train()
    # Ahead of time, step 4 decides on the rows of step 5.
    assert [i for i, step in enumerate(names) if set(step) == {"w1"}] == [0, 5 if ahead else 4]
    waited = [log for log in logs(trainer) if "prefetch/waited_seconds" in log]
    assert len(waited) == (7 if ahead else 0)
