"""Does the page of a run say rightly whether it learned? One run that does, and five that cannot, each of 200 steps.

    python benchmarks/verdicts.py [FOLDER] [--steps N] [--only NAME]

Trains a tiny model from nothing on a CPU by `fmtkit train`, about a minute for each run. The pages stay in FOLDER
(build/verdicts). Exits 1 if a verdict is not what it must be.
"""

import argparse
import json
import random
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

COLOURS = ("red", "blue", "green", "white", "black", "brown", "grey", "pink")
THINGS = ("apple", "river", "stone", "house", "cloud", "horse", "table", "train", "bread", "glass")


@dataclass(frozen=True)
class Case:
    """A run, and what must be said of it."""

    name: str
    rows: Callable[[random.Random, int], dict[str, Any]]
    states: tuple[str, ...]
    says: str
    """What its verdict must hold."""
    keys: dict[str, Any] = field(default_factory=dict)


def pair(generator: random.Random, number: int) -> dict[str, Any]:
    """Return a pair whose better answer names a colour."""
    thing, colour = generator.choice(THINGS), generator.choice(COLOURS)
    return {
        "question": f"What is the {thing} {number}?",
        "chosen": f"The {thing} is {colour}.",
        "rejected": "I do not know it.",
    }


def coin(generator: random.Random, number: int) -> dict[str, Any]:
    """Return a pair of two answers alike, of which a coin has chosen one."""
    thing = generator.choice(THINGS)
    chosen, rejected = generator.sample(COLOURS, 2)
    return {
        "question": f"What is the {thing} {number}?",
        "chosen": f"The {thing} is {chosen}.",
        "rejected": f"The {thing} is {rejected}.",
    }


def equal(generator: random.Random, number: int) -> dict[str, Any]:
    """Return a pair whose answers differ only by a blank that the template of Llama 3 trims."""
    row = pair(generator, number)
    return {**row, "rejected": row["chosen"] + " "}


def conversation(generator: random.Random, number: int) -> dict[str, Any]:
    """Return a question and its answer."""
    row = pair(generator, number)
    return {
        "messages": [
            {"role": "user", "content": row["question"]},
            {"role": "assistant", "content": row["chosen"]},
        ]
    }


CASES = (
    Case("learns", pair, ("learned",), "It learned: rewards/margins"),
    Case("no-signal", coin, ("not_learned", "unclear"), "No learning is seen"),
    Case(
        "exploding",
        pair,
        ("diverged",),
        "It diverged",
        {"learning_rate": 10.0, "max_grad_norm": 1e9, "lr_scheduler": "constant"},
    ),
    Case(
        "exploding-sft",
        conversation,
        ("diverged",),
        "It diverged",
        {
            "rl": None,
            "datasets": {"type": "chatml.openai"},
            "learning_rate": 10.0,
            "max_grad_norm": 1e9,
            "lr_scheduler": "constant",
        },
    ),
    Case(
        "all-masked",
        conversation,
        # The run ends before its first step, in one line.
        ("failed",),
        "no token of any row is trained on: all labels are masked",
        {"rl": None, "datasets": {"type": "chatml.openai", "roles_to_train": ["tool"]}},
    ),
    Case(
        "equal-pairs",
        equal,
        # Nothing is trained: the conversion takes no such pair.
        ("failed",),
        "no_preference: chosen equals rejected once they are rendered",
        {"datasets": {"type": "llama3.intel"}},
    ),
    Case("rate-zero", pair, ("not_learned",), "learning_rate is 0", {"learning_rate": 0.0}),
)


def config_of(case: Case, folder: Path, data: Path, steps: int) -> dict[str, Any]:
    """Return the config of a case's run."""
    keys = dict(case.keys)
    entry = {"path": str(data), "type": "chatml.intel", **keys.pop("datasets", {})}
    config = {
        "base_model": str(folder / "tiny"),
        "rl": "dpo",
        "datasets": [entry],
        "sequence_len": 256,
        "micro_batch_size": 4,
        "max_steps": steps,
        "learning_rate": 1e-3,
        "logging_steps": 1,
        "save_strategy": "no",
        "use_cpu": True,
        "output_dir": str(folder / case.name),
        **keys,
    }
    return {key: value for key, value in config.items() if value is not None}


def trained(case: Case, folder: Path, steps: int) -> tuple[dict[str, Any], float]:
    """Train, and return what the run's report says of it, and its seconds."""
    generator = random.Random(7)
    data, config = folder / f"{case.name}.jsonl", folder / f"{case.name}.yaml"
    rows = (case.rows(generator, number) for number in range(5 * steps))
    data.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    config.write_text(json.dumps(config_of(case, folder, data, steps), indent=1), encoding="utf-8")
    begun = time.monotonic()
    shutil.rmtree(folder / case.name, ignore_errors=True)
    command = [sys.executable, "-m", "fmtkit", "train", str(config)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    (folder / f"{case.name}.log").write_text(done.stdout + done.stderr, encoding="utf-8")
    report = folder / case.name / "report.json"
    if not report.is_file():
        return {"state": "failed", "text": done.stderr.strip()}, time.monotonic() - begun
    verdict: dict[str, Any] = json.loads(report.read_text(encoding="utf-8"))["verdict"]
    return verdict, time.monotonic() - begun


def main() -> int:
    """Train all cases and compare their verdicts with what must be said."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", nargs="?", type=Path, default=Path("build/verdicts"))
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--only", action="append", choices=[case.name for case in CASES])
    given = parser.parse_args()
    folder = given.folder.absolute()
    folder.mkdir(parents=True, exist_ok=True)
    sample = folder / "words.jsonl"
    generator = random.Random(1)
    words = (make(generator, number) for number in range(100) for make in (pair, coin))
    sample.write_text("".join(json.dumps(row) + "\n" for row in words), encoding="utf-8")
    demo = [sys.executable, "-m", "fmtkit.training.demo", str(folder / "tiny"), str(sample)]
    subprocess.run(demo, check=True, stdout=subprocess.DEVNULL)
    wrong = 0
    for case in CASES:
        if given.only and case.name not in given.only:
            continue
        verdict, seconds = trained(case, folder, given.steps)
        is_right = verdict["state"] in case.states and case.says in verdict["text"]
        wrong += not is_right
        mark = "right" if is_right else "WRONG"
        sys.stdout.write(
            f"{mark}  {case.name:12} {seconds:5.0f} s  {verdict['state']}: {verdict['text'][:200]}\n"
        )
        sys.stdout.flush()
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
