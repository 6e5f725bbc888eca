"""What fmtkit adds to a GRPO step of TRL's, and what answers made ahead take off it.

step: `fmtkit train` without features and the script that a user would write train the same model, rows
and seed in turns, each under a wrapper around transformers' `Trainer.train` that tells the CPU seconds
of the training; every second pair runs in the other order. It also tells whether the losses are equal.

prefetch: fmtkit's trainer with a rollout function that waits as long as a training step takes (measured
first), with and without `async_prefetch`, in turns; wall seconds, since waiting takes no CPU.

    python benchmarks/grpo.py [--pairs 9] [--steps 40] [--json FILE] [--only step|prefetch]
"""

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from train import OURS, PREPARE, output, spread

ROOT = Path(__file__).parent.parent
ROWS = 64
TIMED = """
import json, sys, time
import transformers
plain = transformers.Trainer.train
def timed(self, *given, **named):
    begin = time.process_time()
    out = plain(self, *given, **named)
    print(json.dumps({"cpu seconds": time.process_time() - begin}))
    return out
transformers.Trainer.train = timed
"""
REWARDS = """
def length(completions, **kwargs):
    return [len(c[0]["content"]) / 100 for c in completions]
"""

BY_HAND = """
import os, sys
os.environ["TRL_EXPERIMENTAL_SILENCE"] = os.environ["HF_HUB_DISABLE_TELEMETRY"] = "1"
import json
from datasets import Dataset
from transformers import AutoTokenizer
from trl import GRPOConfig, GRPOTrainer
folder, steps, template = sys.argv[1], int(sys.argv[2]), sys.argv[3]
sys.path.insert(0, folder)
from rewards import length
rows = [json.loads(line) for line in open(folder + "/prompts.jsonl", encoding="utf-8")]
tokenizer = AutoTokenizer.from_pretrained(folder + "/model")
tokenizer.chat_template = open(template, encoding="utf-8").read()
args = GRPOConfig(output_dir=folder + "/by_hand", max_steps=steps, per_device_train_batch_size=8,
    num_generations=4, max_completion_length=16, learning_rate=1e-3, logging_steps=1, use_cpu=True,
    bf16=False, save_strategy="no", activation_checkpointing=False, report_to="none",
    disable_tqdm=True, model_init_kwargs={"dtype": "float32"})
trainer = GRPOTrainer(model=folder + "/model", args=args, train_dataset=Dataset.from_list(rows),
    processing_class=tokenizer, reward_funcs=[length])
trainer.train()
print("losses", json.dumps([log["loss"] for log in trainer.state.log_history if "loss" in log]))
"""

AHEAD = """
import json, sys, time
from pathlib import Path
sys.path[:0] = [sys.argv[1]]
from datasets import Dataset
from transformers import AutoModelForCausalLM, AutoTokenizer
from trl import GRPOConfig
from fmtkit.training.run import process
process.quiet()
from fmtkit.runners.grpo_features.trainer import FmtkitGRPOTrainer
from fmtkit.training.vllm.rollout_settings import RolloutSettings
from rewards import length
folder, steps, wait, ahead = sys.argv[1], int(sys.argv[2]), float(sys.argv[3]), sys.argv[4] == "ahead"
rows = [json.loads(line) for line in open(folder + "/prompts.jsonl", encoding="utf-8")]
tokenizer = AutoTokenizer.from_pretrained(folder + "/model")
tokenizer.chat_template = open(sys.argv[5], encoding="utf-8").read()
def scripted(prompts, trainer):
    time.sleep(wait)
    ids = [[11 + i % 7, 12, 13, 14] * 32 for i, _ in enumerate(prompts)]
    return {"prompt_ids": [[5, 6, 7, 8] * 8] * len(prompts), "completion_ids": ids, "logprobs": None}
args = GRPOConfig(output_dir=folder + "/ahead", max_steps=steps, per_device_train_batch_size=32,
    num_generations=4, learning_rate=1e-3, logging_steps=1, use_cpu=True, bf16=False,
    save_strategy="no", activation_checkpointing=False, report_to="none", disable_tqdm=True)
trainer = FmtkitGRPOTrainer(model=AutoModelForCausalLM.from_pretrained(folder + "/model"), args=args,
    train_dataset=Dataset.from_list(rows), processing_class=tokenizer, reward_funcs=[length],
    rollout_func=scripted, rollouts=RolloutSettings(async_prefetch=ahead, folder=Path(folder)))
ends = []
inner = trainer.training_step
def timed(*given, **named):
    out = inner(*given, **named)
    ends.append(time.perf_counter())
    return out
trainer.training_step = timed
trainer.train()
losses = [log["loss"] for log in trainer.state.log_history if "loss" in log]
print(json.dumps({"seconds": (ends[-1] - ends[1]) / (len(ends) - 2), "losses": losses}))
"""


def prepare(folder: Path) -> None:
    """Make the model, the prompts and the reward."""
    words = ["red", "blue", "green", "apple", "river", "stone", "warm", "cold"]
    rows = [
        {"prompt": [{"role": "user", "content": " ".join(words[(i + k) % 8] for k in range(6))}]}
        for i in range(ROWS)
    ]
    text = "".join(json.dumps(row) + "\n" for row in rows)
    (folder / "prompts.jsonl").write_text(text, encoding="utf-8")
    (folder / "rewards.py").write_text(REWARDS, encoding="utf-8")
    data = ROOT / "docs" / "examples" / "colours.jsonl"
    model = [sys.executable, "-m", "fmtkit.training.demo", str(folder / "model"), str(data)]
    subprocess.run(model, check=True, capture_output=True)


def template() -> str:
    return str(ROOT / "templates" / "chatml.jinja")


def seconds_of(printed: str) -> float:
    """Return what the wrapper around the training printed."""
    line = next(line for line in printed.splitlines() if line.startswith('{"cpu seconds"'))
    return float(json.loads(line)["cpu seconds"])


def ours(folder: Path, steps: int) -> tuple[float, list[float]]:
    """Return the CPU seconds of the training, and the losses."""
    config = {
        "base_model": str(folder / "model"),
        "rl": "grpo",
        "chat_template": "chatml",
        "output_dir": str(folder / "run"),
        "datasets": [{"path": str(folder / "prompts.jsonl")}],
        "trl": {
            "num_generations": 4,
            "max_completion_length": 16,
            "reward_funcs": ["rewards.length"],
        },
        "max_steps": steps,
        "micro_batch_size": 8,
        "learning_rate": 1e-3,
        "logging_steps": 1,
        "use_cpu": True,
        "bf16": False,
        "save_strategy": "no",
    }
    file = folder / "config.yaml"
    file.write_text(json.dumps(config), encoding="utf-8")
    output(PREPARE, str(file))
    printed, _ = output(TIMED + OURS, str(folder / "run"))
    lines = (folder / "run" / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
    losses = [log["loss"] for line in lines if "loss" in (log := json.loads(line))]
    return seconds_of(printed), losses


def by_hand(folder: Path, steps: int) -> tuple[float, list[float]]:
    """Return the same for the script by hand."""
    printed, _ = output(TIMED + BY_HAND, str(folder), str(steps), template())
    losses = next(line for line in printed.splitlines() if line.startswith("losses"))
    return seconds_of(printed), json.loads(losses.partition(" ")[2])


def measured_steps(folder: Path, pairs: int, steps: int) -> dict[str, object]:
    """Return the ratios of a step's CPU time to that by hand."""
    ratios, equal = [], True
    for run in (ours, by_hand):
        run(folder, 3)
    for index in range(pairs):
        order = (by_hand, ours) if index % 2 else (ours, by_hand)
        found = {run: run(folder, steps) for run in order}
        ratios.append(found[ours][0] / found[by_hand][0])
        equal = equal and found[ours][1] == found[by_hand][1]
        print(f"step, pair {index + 1}: {ratios[-1]:.3f}", file=sys.stderr)
    return {"step by hand = 1": spread(ratios), "equal losses": equal}


def rolled(folder: Path, steps: int, wait: float, how: str) -> dict[str, object]:
    """Train with the scripted rollout; return the wall seconds of a step, and the losses."""
    printed, _ = output(AHEAD, str(folder), str(steps), str(wait), how, template())
    found = next(line for line in printed.splitlines() if line.startswith('{"seconds"'))
    return dict(json.loads(found))


def measured_prefetch(folder: Path, pairs: int, steps: int) -> dict[str, object]:
    """Return the ratios of a step with answers made ahead to one that waits for them."""
    rolled(folder, 4, 0.0, "in step")
    waits = [float(str(rolled(folder, steps, 0.0, "in step")["seconds"])) for _ in range(3)]
    wait = statistics.median(waits)
    ratios, equal = [], True
    for index in range(pairs):
        order = ("ahead", "in step") if index % 2 else ("in step", "ahead")
        found = {how: rolled(folder, steps, wait, how) for how in order}
        ratios.append(found["ahead"]["seconds"] / found["in step"]["seconds"])  # type: ignore[operator]
        equal = equal and found["ahead"]["losses"] == found["in step"]["losses"]
        print(f"prefetch, pair {index + 1}: {ratios[-1]:.3f}", file=sys.stderr)
    return {
        "training seconds of a step": round(wait, 3),
        "ahead, in step = 1": spread(ratios),
        "equal losses": equal,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pairs", type=int, default=9)
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--only", choices=["step", "prefetch"])
    parser.add_argument("--json", type=Path, help="write the figures here as well")
    options = parser.parse_args()
    found: dict[str, object] = {}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        prepare(folder)
        if options.only != "prefetch":
            found["step"] = measured_steps(folder, options.pairs, options.steps)
        if options.only != "step":
            found["prefetch"] = measured_prefetch(folder, options.pairs, max(8, options.steps // 4))
    text = json.dumps(found, indent=1)
    print(text)
    if options.json is not None:
        options.json.write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
