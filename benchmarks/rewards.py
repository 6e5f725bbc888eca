"""What reward workers save, and what checks and time limits cost.

A CPU-bound reward scores a batch in this process, on two workers, and, as the machine's own floor,
by halves in two plain processes that do nothing else; in turns, every second round in the other order.
A ratio is the median of the rounds' ratios. The target is 1.5 where two processes get two cores: the
floor tells. What a call of a function that does nothing costs with all that is around it is measured
beside it.

    python benchmarks/rewards.py [--rounds 9] [--workers 2] [--json FILE]
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from fmtkit.training.online.rewards import RewardOptions, load_rewards

MODULE = """
def busy(completions, **columns):
    # About 20 ms of arithmetic for each completion, as a verifier or a parser has it.
    out = []
    for completion in completions:
        total = len(completion)
        for step in range(200_000):
            total = (total * 31 + step) % 1_000_003
        out.append(total / 1_000_003)
    return out


def idle(completions, **columns):
    return [0.0] * len(completions)
"""
GROUPS, SIZE, TOKENS = 8, 8, 512


def batch() -> dict:
    rows = GROUPS * SIZE
    return {
        "prompts": [
            [{"role": "user", "content": f"question {row // SIZE}"}] for row in range(rows)
        ],
        "completions": [[{"role": "assistant", "content": "word " * TOKENS}] for _ in range(rows)],
        "completion_ids": [list(range(TOKENS)) for _ in range(rows)],
        "answer": [str(row) for row in range(rows)],
    }


def seconds(rewards, calls: int = 1) -> float:
    given = batch()
    started = time.perf_counter()
    for _ in range(calls):
        rewards.score(**given)
    return (time.perf_counter() - started) / calls


def halves(folder: Path, workers: int) -> float:
    """Return what the same work takes in plain processes, their starts apart."""
    code = (
        f"import sys; sys.path.insert(0, {str(folder)!r}); import scores; print(flush=True);"
        f"input(); scores.busy(['word ' * {TOKENS}] * {GROUPS * SIZE // workers})"
    )
    running = [
        subprocess.Popen(
            [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        for _ in range(workers)
    ]
    for process in running:
        process.stdout.readline()
    started = time.perf_counter()
    for process in running:
        process.stdin.write(b"\n")
        process.stdin.close()
    for process in running:
        process.wait()
    return time.perf_counter() - started


def speedup(folder: Path, rounds: int, workers: int) -> dict:
    one = load_rewards(["scores.busy"], [folder])
    several = load_rewards(["scores.busy"], [folder], options=RewardOptions(workers))
    assert one.score(**batch()) == several.score(**batch())
    ways = {
        "one": lambda: seconds(one),
        "several": lambda: seconds(several),
        "floor": lambda: halves(folder, workers),
    }
    took: dict[str, list[float]] = {name: [] for name in ways}
    for number in range(rounds):
        for name in list(ways) if number % 2 else reversed(ways):
            took[name].append(ways[name]())
    several.close()
    out: dict = {name: statistics.median(each) for name, each in took.items()}
    for name in ("several", "floor"):
        ratios = [a / b for a, b in zip(took["one"], took[name], strict=True)]
        out[f"{name}_ratio"] = statistics.median(ratios)
        out[f"{name}_ratios"] = [round(ratio, 2) for ratio in ratios]
    return out


def costs(folder: Path, workers: int) -> dict[str, float]:
    given = batch()
    here = load_rewards(["scores.idle"], [folder])
    there = load_rewards(["scores.idle"], [folder], options=RewardOptions(workers))
    plain = sys.modules["scores"].idle
    there.score(**given)
    started = time.perf_counter()
    for _ in range(200):
        plain(**given)
    out = {
        "plain": (time.perf_counter() - started) / 200,
        "checked": seconds(here, 200),
        "on workers": seconds(there, 50),
    }
    there.close()
    return out


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--json")
    asked = parser.parse_args()
    before = os.getloadavg()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "scores.py").write_text(MODULE, encoding="utf-8")
        found = speedup(folder, asked.rounds, asked.workers)
        cost = costs(folder, asked.workers)
    print(
        f"{GROUPS * SIZE} completions of {TOKENS} words, {os.cpu_count()} cores, load {before[0]:.1f}"
    )
    print(f"in one process      {found['one']:.3f} s")
    print(f"on {asked.workers} workers        {found['several']:.3f} s")
    print(f"in {asked.workers} plain processes {found['floor']:.3f} s")
    print(f"ratio               {found['several_ratio']:.2f} {found['several_ratios']}; target 1.5")
    print(f"ratio of the floor  {found['floor_ratio']:.2f} {found['floor_ratios']}")
    for what, each in cost.items():
        print(f"a call, {what:<12}{each * 1e3:.3f} ms")
    if asked.json:
        Path(asked.json).write_text(json.dumps({**found, "cost": cost, "load": before}) + "\n")
    return int(found["several_ratio"] < 1.5)


if __name__ == "__main__":
    sys.exit(main())
