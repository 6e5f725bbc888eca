"""What fmtkit adds to a TRL script: CPU seconds until the first step, and of a step.

Runs `fmtkit train` and the script that a user would write, on the same rows and seed, in turns. Both
train under one wrapper around transformers' `Trainer`, which tells the CPU seconds of its process at
the first step and at the end; what lies between is divided by the steps, logging and callbacks
included. fmtkit's parent process, which plans and converts anew each time, is added to the start. Every
second pair runs in the other order, and one run of each before them warms the disk.

    python benchmarks/train.py [--pairs 9] [--steps 200] [--json FILE]
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
TIMED = """
import json, sys, time
import transformers
from trl import DPOTrainer
train, step, begun = transformers.Trainer.train, DPOTrainer.training_step, []
def first_timed(self, *given, **named):
    begun.append(time.process_time())
    DPOTrainer.training_step = step
    return step(self, *given, **named)
def timed(self, *given, **named):
    out = train(self, *given, **named)
    spent = time.process_time() - begun[0]
    print(json.dumps({"start": begun[0], "step": spent / self.state.global_step}))
    return out
transformers.Trainer.train, DPOTrainer.training_step = timed, first_timed
"""

PREPARE = """
import sys
from fmtkit import cli
from fmtkit.training.run import run
run.launch = lambda plan: 0
sys.argv = ["fmtkit", "train", sys.argv[1], "--rebuild"]
cli.main()
"""

OURS = """
from fmtkit.training.run import process
sys.exit(process.main([sys.argv[1]]))
"""

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


def output(code: str, *arguments: str) -> tuple[str, float]:
    """Run Python code; return what it printed, and the CPU seconds of its process."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}
    command = [sys.executable, "-c", code, *arguments]
    done = subprocess.run(command, check=True, capture_output=True, text=True, env=environment)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return done.stdout, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def figures(printed: str) -> dict[str, float]:
    """Return the line of figures that the wrapper printed."""
    return next(json.loads(line) for line in printed.splitlines() if line.startswith('{"start"'))


def ours(folder: Path, steps: int) -> tuple[float, float]:
    """Return CPU seconds until the first step, and of a step."""
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
    _, parent = output(PREPARE, str(file))
    printed, _ = output(TIMED + OURS, str(folder / "run"))
    found = figures(printed)
    return parent + found["start"], found["step"]


def by_hand(folder: Path, steps: int) -> tuple[float, float]:
    """Return the same for the script by hand."""
    template = ROOT / "templates" / "chatml.jinja"
    printed, _ = output(
        TIMED + BY_HAND, str(folder / "model"), str(steps), str(DATA), str(template)
    )
    found = figures(printed)
    return found["start"], found["step"]


def pair(folder: Path, steps: int, *, swapped: bool) -> tuple[float, float]:
    """Return the seconds that fmtkit needs more to start, and its time of a step to that by hand."""
    found = {run: run(folder, steps) for run in ((by_hand, ours) if swapped else (ours, by_hand))}
    return found[ours][0] - found[by_hand][0], found[ours][1] / found[by_hand][1]


def spread(values: list[float]) -> dict[str, float]:
    """Return the median, and the quartiles beside it."""
    cuts = statistics.quantiles(values, n=4) if len(values) > 1 else values * 3
    return dict(zip(("low", "median", "high"), (round(cut, 3) for cut in cuts), strict=True))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pairs", type=int, default=9)
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--json", type=Path, help="write the figures here as well")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        model = [sys.executable, "-m", "fmtkit.training.demo", str(folder / "model"), str(DATA)]
        subprocess.run(model, check=True, capture_output=True)
        for run in (ours, by_hand):
            run(folder, 10)
        pairs = []
        for index in range(options.pairs):
            pairs.append(pair(folder, options.steps, swapped=bool(index % 2)))
            print(f"pair {index + 1}: {pairs[-1][0]:+.2f} s, {pairs[-1][1]:.3f}", flush=True)
    start, step = spread([p[0] for p in pairs]), spread([p[1] for p in pairs])
    print(
        f"until the first step fmtkit needs {start['median']:+.2f} s of CPU more than by hand "
        f"({start['low']:+.2f} to {start['high']:+.2f}; target at most 3)"
    )
    print(
        f"a step takes {step['median']:.3f} of that by hand ({step['low']:.3f} to "
        f"{step['high']:.3f}; target at most 1.05)"
    )
    print(f"medians and quartiles of {options.pairs} interleaved pairs of {options.steps} steps")
    if options.json is not None:
        told = {"pairs": options.pairs, "steps": options.steps, "start": start, "step": step}
        options.json.write_text(json.dumps(told, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
