"""GDPO by worked numbers: what TRL's trainer makes of several rewards, each scaled by itself or together.

Two claims that are made of it elsewhere do not hold, and stand here as they are: answers whose two
rewards run against each other get no advantage with equal weights either, and with one reward GDPO is
GRPO up to the scale of the batch.
"""

from pathlib import Path

import pytest
import torch
from datasets import Dataset
from ebft_toys import tiny_model, word_tokenizer
from trl import GRPOConfig

from fmtkit.runners.grpo_features.trainer import FmtkitGRPOTrainer

FIRST = [0.0, 1.0, 2.0, 3.0, 1.0, 0.0, 0.0, 1.0]
SECOND = [3.0, 2.0, 1.0, 0.0, 0.0, 0.0, 0.0, 1.0]
PROMPTS = ["w1 w2", "w3 w4"]


def advantages(folder: Path, rewards: list[list[float]], aggregation: str, weights=None):
    """Return the advantages of two groups of four answers with these rewards."""
    functions = [lambda completions, values=values, **_: values for values in rewards]
    for index, function in enumerate(functions):
        function.__name__ = f"reward_{index}"
    rows = [{"prompt": [{"role": "user", "content": text}]} for text in PROMPTS]
    trainer = FmtkitGRPOTrainer(
        model=tiny_model(),
        args=GRPOConfig(
            output_dir=str(folder),
            use_cpu=True,
            bf16=False,
            report_to=[],
            per_device_train_batch_size=8,
            num_generations=4,
            max_completion_length=3,
            multi_objective_aggregation=aggregation,
            reward_weights=weights,
            disable_tqdm=True,
        ),
        train_dataset=Dataset.from_list(rows),
        processing_class=word_tokenizer(),
        reward_funcs=functions,
    )
    trainer.model.train()
    batch = [dict(row) for row in rows for _ in range(4)]
    return trainer._generate_and_score_completions(batch)["advantages"]


SUMMED = [0.0, 0.0, 0.0, 0.0, 0.261089, -0.783268, -0.783268, 1.305446]
EACH = [0.0, 0.0, 0.0, 0.0, 0.314778, -1.174714, -1.174714, 2.034650]
WEIGHED = [0.615731, 0.205244, -0.205244, -0.615731, -0.070977, -0.988767, -0.988767, 2.048512]


@pytest.mark.parametrize(
    ("aggregation", "weights", "expected"),
    [
        ("sum_then_normalize", None, SUMMED),
        ("normalize_then_sum", None, EACH),
        ("normalize_then_sum", [1.0, 2.0], WEIGHED),
    ],
)
def test_the_worked_advantages(tmp_path, aggregation, weights, expected) -> None:
    found = advantages(tmp_path, [FIRST, SECOND], aggregation, weights)
    torch.testing.assert_close(found, torch.tensor(expected), atol=1e-5, rtol=0)


def test_one_reward_is_scaled_over_the_batch_after_its_group(tmp_path) -> None:
    alone = advantages(tmp_path, [FIRST], "sum_then_normalize")[:4]
    decoupled = advantages(tmp_path, [FIRST], "normalize_then_sum")[:4]
    expected = torch.tensor([-1.1618, -0.3873, 0.3873, 1.1618])
    torch.testing.assert_close(alone, expected, atol=1e-4, rtol=0)
    scaled = torch.tensor([-1.2549, -0.4183, 0.4183, 1.2549])
    torch.testing.assert_close(decoupled, scaled, atol=1e-4, rtol=0)
