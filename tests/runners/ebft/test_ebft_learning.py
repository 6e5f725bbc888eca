"""EBFT learns: on a toy language alignment rises in both modes, and not with the reward off."""

from pathlib import Path

import pytest
import torch
from datasets import Dataset
from ebft_toys import tiny_model, word_tokenizer
from transformers import TrainingArguments
from trl import GRPOConfig

from fmtkit.runners.ebft.feature_network import copied_network
from fmtkit.runners.ebft.settings import read_settings
from fmtkit.runners.ebft.strided import StridedTrainer
from fmtkit.runners.ebft.structured import EBFTTrainer

pytestmark = pytest.mark.slow

WORDS = 12
COMMON = {
    "use_cpu": True,
    "report_to": [],
    "max_steps": 30,
    "logging_steps": 1,
    "disable_tqdm": True,
    "save_strategy": "no",
    "learning_rate": 1e-2,
    "lr_scheduler_type": "constant",
}


def sentences(seed: int) -> list[list[int]]:
    """Count round and round from a random word: the next word follows from the last."""
    generator = torch.Generator().manual_seed(seed)
    starts = torch.randint(WORDS, (64,), generator=generator).tolist()
    return [[(start + i) % WORDS + 1 for i in range(24)] for start in starts]


def words(numbers: list[int]) -> str:
    return " ".join(f"w{n}" for n in numbers)


def structured(path: Path, seed: int, reward: float, **ebft: object) -> list[dict[str, float]]:
    rows = [{"prompt": words(s[:3]), "ground_truth": words(s[3:7])} for s in sentences(seed)]
    model = tiny_model(20, seed=seed)
    trainer = EBFTTrainer(
        model=model,
        args=GRPOConfig(
            output_dir=str(path),
            seed=seed,
            bf16=False,
            per_device_train_batch_size=64,
            num_generations=8,
            max_completion_length=4,
            gradient_checkpointing=False,
            loss_type="grpo",
            scale_rewards="none",
            generation_kwargs={"eos_token_id": None},
            **COMMON,
        ),
        train_dataset=Dataset.from_list(rows),
        processing_class=word_tokenizer(WORDS),
        settings=read_settings(
            {
                "alignment_coef": reward,
                "diversity_coef": 0.5 * reward,
                "embed_method": "completion_mean",
                **ebft,
            }
        ),
        network=copied_network(model),
    )
    trainer.train()
    return [log for log in trainer.state.log_history if "loss" in log]


def strided(path: Path, seed: int, reward: float, **ebft: object) -> list[dict[str, float]]:
    rows = [{"input_ids": [7 + n for n in s], "prompt_length": 0} for s in sentences(seed)]
    model = tiny_model(20, seed=seed)
    trainer = StridedTrainer(
        model=model,
        args=TrainingArguments(
            output_dir=str(path),
            seed=seed,
            per_device_train_batch_size=8,
            remove_unused_columns=False,
            **COMMON,
        ),
        train_dataset=Dataset.from_list(rows),
        settings=read_settings(
            {
                "mode": "strided",
                "rl_coef": reward,
                "stride": 4,
                "context_length": 4,
                "generate_max_len": 3,
                "n_samples_per_prompt": 8,
                "temperature": 1.0,
                "diversity_coef": 0.5,
                "embed_method": "mean_pooling",
                **ebft,
            }
        ),
        network=copied_network(model),
    )
    trainer.train()
    return [log for log in trainer.state.log_history if "loss" in log]


def gain(logs: list[dict[str, float]], metric: str = "ebft/alignment") -> float:
    """Return by how much the last five steps are above the first five."""
    values = [log[metric] for log in logs]
    return (sum(values[-5:]) - sum(values[:5])) / 5


@pytest.mark.parametrize("seed", [0, 1, 2])
@pytest.mark.parametrize("mode", [structured, strided])
def test_alignment_rises_and_not_without_the_reward(tmp_path: Path, mode, seed: int) -> None:
    learnt = gain(mode(tmp_path / "on", seed, 1.0))
    control = gain(mode(tmp_path / "off", seed, 0.0))
    assert learnt > 0.25
    assert abs(control) < 0.12
    assert learnt > control + 0.25


@pytest.mark.parametrize("mode", [structured, strided])
def test_a_whitened_run_shows_what_it_learns_unwhitened(tmp_path: Path, mode) -> None:
    logs = mode(tmp_path, 0, 1.0, use_whitening=True)
    assert gain(logs, "ebft/alignment_unwhitened") > 0.25
    assert all(-2 <= log["ebft/alignment_unwhitened"] <= 2 for log in logs)
