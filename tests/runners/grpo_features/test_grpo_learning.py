"""GRPO teaches a tiny model to emit a token that is rewarded; a constant reward teaches it nothing."""

from pathlib import Path

import pytest
from datasets import Dataset
from ebft_toys import tiny_model, word_tokenizer
from trl import GRPOConfig

from fmtkit.runners.grpo_features.trainer import FmtkitGRPOTrainer

WANTED = 20
STEPS = 30
LEARNT, CHANCE = 0.5, 0.15


def share_of_wanted(completion_ids, **_) -> list[float]:
    return [ids.count(WANTED) / len(ids) for ids in completion_ids]


def constant(completion_ids, **_) -> list[float]:
    return [1.0] * len(completion_ids)


def share_at_the_end(folder: Path, reward, seed: int) -> float:
    """Train, and return the mean share of the wanted token in the last steps' answers."""
    shares: list[float] = []

    def watched(completion_ids, **more) -> list[float]:
        values = share_of_wanted(completion_ids)
        shares.append(sum(values) / len(values))
        return reward(completion_ids)

    rows = [{"prompt": [{"role": "user", "content": f"w{i} w{i + 1}"}]} for i in range(1, 17)]
    trainer = FmtkitGRPOTrainer(
        model=tiny_model(seed=seed),
        args=GRPOConfig(
            output_dir=str(folder),
            use_cpu=True,
            bf16=False,
            report_to=[],
            per_device_train_batch_size=16,
            num_generations=8,
            max_completion_length=6,
            learning_rate=3e-3,
            lr_scheduler_type="constant",
            max_steps=STEPS,
            save_strategy="no",
            disable_tqdm=True,
            gradient_checkpointing=False,
            seed=seed,
        ),
        train_dataset=Dataset.from_list(rows),
        processing_class=word_tokenizer(),
        reward_funcs=[watched],
    )
    trainer.train()
    return sum(shares[-5:]) / 5


@pytest.mark.slow
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_the_rewarded_token_is_trained_on_and_nothing_without_a_reward(tmp_path, seed) -> None:
    assert share_at_the_end(tmp_path, share_of_wanted, seed) > LEARNT
    assert share_at_the_end(tmp_path, constant, seed) < CHANCE
