"""Dynamic sampling beside plain GRPO at equal numbers of generated tokens, on a toy task.

A small model made from a config answers a prompt of two words with six tokens; the reward is 1 where the
answer holds the token that belongs to the prompt, else 0, so that a group of answers has a signal only
where some hold it and some do not. Each training ends after the step in which so many tokens have been
generated, those of dropped answers among them. Then the model answers every prompt 64 times.

    python benchmarks/dynamic_sampling.py [--tokens 9000] [--seeds 3] [--json FILE]
"""

import argparse
import json
import sys
import tempfile
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))

import torch
from datasets import Dataset
from ebft_toys import tiny_model, word_tokenizer
from transformers import PrinterCallback, TrainerCallback
from trl import GRPOConfig

from fmtkit.runners.grpo_features.settings import GrpoSettings
from fmtkit.runners.grpo_features.trainer import FmtkitGRPOTrainer

torch.set_num_threads(1)

GROUP, ROWS, LENGTH = 4, 16, 6
PROMPTS, CLASSES, FIRST = 32, 8, 20


def wanted(number: int) -> int:
    """Return the token that answers to this prompt should hold."""
    return FIRST + number % CLASSES


def rows() -> list[dict[str, Any]]:
    """Return the prompts, each with its number."""
    return [
        {"prompt": [{"role": "user", "content": f"w{i % CLASSES + 1} w{i + 1}"}], "number": i}
        for i in range(PROMPTS)
    ]


class Budget(TrainerCallback):
    """Scores answers, counts their tokens, and ends the training when there are so many."""

    def __init__(self, tokens: int) -> None:
        self.most = tokens
        self.tokens = 0
        self.__name__ = "holds"

    def __call__(self, completion_ids: Any, number: Any, **_: Any) -> list[float]:
        self.tokens += sum(map(len, completion_ids))
        pairs = zip(completion_ids, number, strict=True)
        return [float(wanted(n) in ids) for ids, n in pairs]

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        del args, state
        if self.tokens >= self.most:
            control.should_training_stop = True


def trained(folder: Path, seed: int, tokens: int, features: GrpoSettings) -> dict[str, float]:
    """Train once; return the reward at the end, the share of groups with a signal, and the steps."""
    budget = Budget(tokens)
    trainer = FmtkitGRPOTrainer(
        model=tiny_model(seed=seed),
        args=GRPOConfig(
            output_dir=str(folder),
            use_cpu=True,
            bf16=False,
            report_to=[],
            per_device_train_batch_size=ROWS,
            num_generations=GROUP,
            max_completion_length=LENGTH,
            learning_rate=2e-3,
            lr_scheduler_type="constant",
            max_steps=10_000,
            logging_steps=1,
            save_strategy="no",
            disable_tqdm=True,
            gradient_checkpointing=False,
            seed=seed,
        ),
        train_dataset=Dataset.from_list(rows()),
        processing_class=word_tokenizer(),
        reward_funcs=[budget],
        callbacks=[budget],
        features=features,
    )
    trainer.remove_callback(PrinterCallback)
    trainer.train()
    logs = [log for log in trainer.state.log_history if "loss" in log]
    shares = [1 - log["frac_reward_zero_std"] for log in logs]
    answered = [
        log.get("dynamic_sampling/signal_share", s) for log, s in zip(logs, shares, strict=True)
    ]
    return {
        "reward": reward_of(trainer),
        "trained groups with a signal": sum(shares) / len(shares),
        "answered groups with a signal": sum(answered) / len(answered),
        "steps": len(logs),
        "tokens": budget.tokens,
    }


def reward_of(trainer: Any) -> float:
    """Return the mean reward of 64 answers to each prompt."""
    torch.manual_seed(0)
    model = trainer.model.eval()
    found = []
    for row in rows():
        ids = trainer._tokenize_prompts([row["prompt"]])[0][0]
        made = model.generate(
            torch.tensor([ids] * 64), generation_config=trainer.generation_config
        )[:, len(ids) :]
        found.append(float((made == wanted(row["number"])).any(1).float().mean()))
    return sum(found) / len(found)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tokens", type=int, default=9_000)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--json", type=Path, help="write the figures here as well")
    options = parser.parse_args()
    kinds = {"plain": GrpoSettings(), "dynamic": GrpoSettings(dynamic_sampling=True)}
    found: list[dict[str, object]] = []
    with tempfile.TemporaryDirectory() as name:
        for seed in range(options.seeds):
            for kind, features in kinds.items():
                figures = trained(Path(name), seed, options.tokens, features)
                found.append({"seed": seed, "kind": kind, **figures})
                print(json.dumps(found[-1]), file=sys.stderr, flush=True)
    text = json.dumps(found, indent=1)
    print(text)
    if options.json is not None:
        options.json.write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
