"""Seeded data for the benchmarks: flat pairs, message lists, ranked answers, bad rows at a given rate."""

import json
import random
from pathlib import Path

WORDS = """
the of model a to and training reward policy in that is gradient loss token prompt answer with for as batch
we preference chosen rejected step on rate schedule it was checkpoint at by this from optimizer which sample
or be are have not memory kernel cache layer attention head
""".split()  # noqa: SIM905
SELDOM = """
über naïve 学習 данные — – … “so” 🙂 `code` {x} [1] "quoted" (see) 3.14 e.g. \\n http://example.org/a?b=c&d=e
""".split()  # noqa: SIM905
SELDOM_RATE = 0.01
"""With it, and a paragraph every fifty words, 0.7 % of a file's bytes are backslashes and 0.4 % are not ASCII;
of the preference pairs that LLaMA-Factory ships 0.9 % and 0.1 to 0.4 % are."""


def text(rng: random.Random, size: int) -> str:
    """Return words of about `size` characters, in lines and paragraphs."""
    out: list[str] = []
    length = 0
    while length < size:
        word = rng.choice(SELDOM if rng.random() < SELDOM_RATE else WORDS)
        out.append(word)
        length += len(word) + 1
        if rng.random() < 0.02:
            out.append("\n\n")
    return " ".join(out)


def _pool(rng: random.Random, size: int) -> list[str]:
    return [text(rng, rng.randint(size // 2, size * 3 // 2)) for _ in range(2000)]


def write(
    path: Path, shape: str, rows: int, row_bytes: int, *, bad_every: int = 0, seed: int = 0
) -> Path:
    """Write `rows` rows of about `row_bytes` bytes; every `bad_every`-th has a number for an answer."""
    rng = random.Random(seed)
    pool = _pool(rng, row_bytes // (7 if shape == "ranked" else 4 if shape == "messages" else 3))
    make = {"flat": _flat, "messages": _messages, "ranked": _ranked}[shape]
    with path.open("w", encoding="utf-8") as file:
        for i in range(rows):
            row = make(rng, pool, i)
            if bad_every and i % bad_every == bad_every // 2:
                row["chosen"] = 7
            file.write(json.dumps(row, ensure_ascii=False) + "\n")
    return path


def _flat(rng: random.Random, pool: list[str], i: int) -> dict[str, object]:
    return {
        "system": "You are a careful assistant." if i % 2 else "",
        "question": f"{i} {rng.choice(pool)}",
        "chosen": f"{i % 97} {rng.choice(pool)}",
        "rejected": rng.choice(pool),
    }


def _messages(rng: random.Random, pool: list[str], i: int) -> dict[str, object]:
    messages = [{"role": "user", "content": f"{i} {rng.choice(pool)}"}]
    if i % 3 == 0:
        messages.insert(0, {"role": "system", "content": "Be brief."})
    if i % 2 == 0:
        messages += [
            {"role": "assistant", "content": rng.choice(pool)[:400]},
            {"role": "user", "content": f"And {i}?"},
        ]
    return {
        "messages": messages,
        "chosen": {"role": "assistant", "content": f"{i % 97} {rng.choice(pool)}"},
        "rejected": {"role": "assistant", "content": rng.choice(pool)},
    }


def _ranked(rng: random.Random, pool: list[str], i: int) -> dict[str, object]:
    answers = [{"answer": f"{k} {rng.choice(pool)}", "rank": float(k + 1)} for k in range(7)]
    rng.shuffle(answers)
    return {"prompt": f"{i} {rng.choice(pool)}", "answers": answers}
