"""What fmtkit adds to a TRL script: CPU seconds until the first step, and of a step.

Runs `fmtkit train` and the script that a user would write, on the same rows and seed, in turns; each
once with few steps and once with more, so that the difference is the steps alone. Medians of CPU seconds
of the whole process tree: `python benchmarks/train.py [--pairs 9] [--steps 100]`.
"""

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parent.parent
DATA = ROOT / "docs" / "examples" / "colours.jsonl"
SHORT = 20
"""Enough for two lines of metrics, so that the curves are drawn in the short run as in the long one."""

BY_HAND = """
import os, sys
os.environ["TRL_EXPERIMENTAL_SILENCE"] = os.environ["HF_HUB_DISABLE_TELEMETRY"] = "1"
import json
from datasets import Dataset
from transformers import AutoTokenizer
from trl import DPOConfig, DPOTrainer
folder, steps, data, template = sys.argv[1], int(sys.argv[2]), sys.argv[3], sys.argv[4]
rows = []
for line in open(data, encoding="utf-8"):
    row = json.loads(line)
    turns = [("system", row["system"]), ("user", row["question"])]
    rows.append({"prompt": [{"role": r, "content": c} for r, c in turns],
                 "chosen": [{"role": "assistant", "content": row["chosen"]}],
                 "rejected": [{"role": "assistant", "content": row["rejected"]}]})
tokenizer = AutoTokenizer.from_pretrained(folder)
tokenizer.chat_template = open(template, encoding="utf-8").read()
args = DPOConfig(output_dir=folder + "/by_hand", max_steps=steps, per_device_train_batch_size=4,
    learning_rate=1e-3, logging_steps=10, use_cpu=True, bf16=False, save_strategy="no",
    activation_checkpointing=False, max_length=256, report_to="none", disable_tqdm=True)
trainer = DPOTrainer(model=folder, args=args, train_dataset=Dataset.from_list(rows),
    processing_class=tokenizer)
trainer.train()
trainer.save_model(folder + "/by_hand/model")
"""

OURS = """
import sys
from fmtkit.training import train
sys.exit(train(sys.argv[1]).exit_code)
"""


def seconds(command: list[str]) -> float:
    """Run a command and return the CPU seconds of it and of its children."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(
        command, check=True, capture_output=True, env={**os.environ, "OMP_NUM_THREADS": "1"}
    )
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def ours(folder: Path, steps: int) -> float:
    config = {
        "base_model": str(folder / "model"),
        "rl": "dpo",
        "output_dir": str(folder / "run"),
        "datasets": [{"path": str(DATA), "type": "chatml.intel"}],
        "max_steps": steps,
        "micro_batch_size": 4,
        "learning_rate": 1e-3,
        "logging_steps": 10,
        "use_cpu": True,
        "bf16": False,
        "save_strategy": "no",
        "sequence_len": 256,
    }
    file = folder / "config.yaml"
    file.write_text(json.dumps(config), encoding="utf-8")
    return seconds([sys.executable, "-c", OURS, str(file)])


def by_hand(folder: Path, steps: int) -> float:
    template = ROOT / "templates" / "chatml.jinja"
    arguments = [str(folder / "model"), str(steps), str(DATA), str(template)]
    return seconds([sys.executable, "-c", BY_HAND, *arguments])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pairs", type=int, default=9)
    parser.add_argument("--steps", type=int, default=100)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        model = [sys.executable, "-m", "fmtkit.training.demo", str(folder / "model"), str(DATA)]
        subprocess.run(model, check=True, capture_output=True)
        starts, steps = [], []
        for _ in range(options.pairs):
            found = {}
            for run in (ours, by_hand):
                short, long = run(folder, SHORT), run(folder, SHORT + options.steps)
                found[run] = (short, (long - short) / options.steps)
            starts.append(found[ours][0] - found[by_hand][0])
            steps.append(found[ours][1] / found[by_hand][1])
    print(
        f"until the first steps, fmtkit more than by hand: {statistics.median(starts):.2f} s of CPU"
    )
    print(f"a step, fmtkit to by hand: {statistics.median(steps):.3f}")
    print(f"medians of {options.pairs} interleaved pairs, {options.steps} steps")


if __name__ == "__main__":
    main()
