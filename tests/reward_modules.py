"""A user's module of reward functions, with all that can be wrong with one, and batches to call it with."""

from pathlib import Path

MODULE = '''
import asyncio
import os
import re
import signal
import time

from reward_neighbour import BONUS


def text(completion):
    return completion if isinstance(completion, str) else completion[-1]["content"]


def right(completions, answer, **kwargs):
    return [float(text(c) == a) for c, a in zip(completions, answer)]


def named_only(completions, answer):
    return [BONUS + (text(c) == a) for c, a in zip(completions, answer)]


def plural(prompts, completions, answers, **kwargs):
    return [0.0] * len(completions)


def logging(completions, log_extra, log_metric, **kwargs):
    log_extra("seen", [text(c) for c in completions])
    log_metric(name="rows", value=float(len(completions)))
    return [1.0] * len(completions)


def shaped(completions, trainer_state, **kwargs):
    return [float(trainer_state.global_step)] * len(completions)


def group_mean(prompts, completions, answer, **kwargs):
    """A reward that depends on its group, and on nothing beyond."""
    scores = [float(text(c) == a) for c, a in zip(completions, answer)]
    out = []
    for prompt, score in zip(prompts, scores):
        own = [s for p, s in zip(prompts, scores) if p == prompt]
        out.append(score - sum(own) / len(own))
    return out


def batch_size(completions, **kwargs):
    return [float(len(completions))] * len(completions)


def whole_batch(completions, **kwargs):
    return [float(len(completions))] * len(completions)


whole_batch.needs_full_batch = True


def process_id(completions, **kwargs):
    return [float(os.getpid())] * len(completions)


def alarmed(completions, **kwargs):
    """A function with a time limit of its own, as math verifiers have."""

    def late(number, frame):
        raise TimeoutError

    signal.signal(signal.SIGALRM, late)
    signal.setitimer(signal.ITIMER_REAL, 0.05)
    try:
        while True:
            pass
    except TimeoutError:
        return [0.5] * len(completions)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)


def raising(completions, answer, **kwargs):
    return [1.0 / (int(a) - 3) for a in answer]


def comparing(completions, answer, **kwargs):
    share = 1.0 / (len(answer) - 1)
    return [share * float(a) for a in answer]


def yielding(completions, answer, **kwargs):
    for a in answer:
        yield 1.0 / (int(a) - 3)


def never(completions, **kwargs):
    return [None] * len(completions)


def sometimes(completions, **kwargs):
    return [None if row % 2 else 1.0 for row in range(len(completions))]


def short(completions, **kwargs):
    return [1.0]


def one_number(completions, **kwargs):
    return 1.0


def texts(completions, **kwargs):
    return ["good"] * len(completions)


def not_a_number(completions, **kwargs):
    return [1.0] * (len(completions) - 1) + [float("nan")]


def sleeping(completions, **kwargs):
    while True:
        try:
            time.sleep(60)
        except Exception:
            pass


def backtracking(completions, **kwargs):
    return [float(bool(re.match(r"(a+)+$", "a" * 60 + "b")))] * len(completions)


def dying(completions, **kwargs):
    os._exit(3)


async def later(completions, answer, **kwargs):
    await asyncio.sleep(0.01)
    return [float(text(c) == a) for c, a in zip(completions, answer)]


async def blocking(completions, **kwargs):
    time.sleep(60)
    return [0.0] * len(completions)


async def failing(completions, **kwargs):
    raise ConnectionError("the judge is gone")


class Weighted:
    def __init__(self, weight=1.0):
        self.weight = weight

    def __call__(self, completions, **kwargs):
        return [self.weight] * len(completions)


class Judge:
    def __init__(self, mark="x"):
        self.mark = mark

    async def __call__(self, completions, **kwargs):
        return [float(self.mark in text(c)) for c in completions]


number = 3
'''

GROUPS = 3
SIZE = 4


def write(folder: Path) -> Path:
    """Write the module as FOLDER/scores.py, with a neighbour that it imports."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "scores.py").write_text(MODULE, encoding="utf-8")
    (folder / "reward_neighbour.py").write_text("BONUS = 10\n", encoding="utf-8")
    return folder


def batch(groups: int = GROUPS, size: int = SIZE) -> dict:
    """Return the arguments of a call: groups of one prompt, answers of which some are right."""
    rows = range(groups * size)
    return {
        "prompts": [f"prompt {row // size}" for row in rows],
        "completions": [str(row % 3) for row in rows],
        "completion_ids": [[row, row] for row in rows],
        "answer": [str(row % 2) for row in rows],
    }
