"""Export beside the conversion that it undoes: a layout to canonical rows, and those back to the layout.

Both are JSON lines to JSON lines on one thread, each layout in turn, `--rounds` times; the figures are the least
CPU seconds of each. Export should take at most twice as long.

    .venv/bin/python benchmarks/export.py --rows 20000 --rounds 5
"""

import argparse
import json
import random
import sys
import time
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import fmtkit

WORDS = [f"wörd{n}" if n % 50 == 0 else f"word{n}" for n in range(3000)]


def text(count: int) -> str:
    return " ".join(random.choices(WORDS, k=count))


def chat(role: str, content: str, names: tuple[str, str]) -> list[dict[str, str]]:
    return [{role: names[n % 2], content: text(60)} for n in range(6)]


def pair() -> dict[str, str]:
    return {"instruction": text(60), "input": "", "chosen": text(100), "rejected": text(100)}


def transcripts() -> dict[str, str]:
    prompt = f"\n\nHuman: {text(60)}\n\nAssistant: "
    return {"chosen": prompt + text(100), "rejected": prompt + text(100)}


CALL = {"type": "function", "function": {"name": "find", "arguments": '{"zip":"02139"}'}}


def calling() -> dict[str, Any]:
    messages = chat("role", "content", ("user", "assistant"))
    called = {"role": "assistant", "content": "", "tool_calls": [CALL]}
    answered = [{"role": "tool", "content": text(60)}, {"role": "assistant", "content": text(60)}]
    return {"messages": [*messages[:5], called, *answered], "tools": [CALL]}


LAYOUTS: dict[str, tuple[str, str, Callable[[], Any]]] = {
    "alpaca": ("alpaca", "alpaca", lambda: {"instruction": text(60), "output": text(200)}),
    "alpaca pairs": ("alpaca", "alpaca", pair),
    "hh-rlhf": ("hh_rlhf", "hh-rlhf", transcripts),
    "sharegpt": (
        "sharegpt",
        "sharegpt",
        lambda: {"conversations": chat("from", "value", ("human", "gpt"))},
    ),
    "openai": (
        "openai",
        "openai",
        lambda: {"messages": chat("role", "content", ("user", "assistant"))},
    ),
    "openai, calls": ("openai", "openai", calling),
}


def seconds(source: Path, kind: str, out: Path, to: str | None) -> float:
    """Return the CPU seconds of a conversion, all of whose rows must have been written."""
    begun = time.process_time()
    report = fmtkit.convert(source, kind, out, to=to, overwrite=True, workers=1)
    spent = time.process_time() - begun
    assert report.rows_written == report.rows_read
    return spent


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=20000)
    parser.add_argument("--rounds", type=int, default=5)
    given = parser.parse_args()
    random.seed(1)
    sys.stdout.write(
        "| layout | MB | conversion, CPU s | export, CPU s | ratio |\n|---|---|---|---|---|\n"
    )
    with TemporaryDirectory() as folder:
        for name, (kind, to, make) in LAYOUTS.items():
            source, canonical, out = (Path(folder) / f"{n}.jsonl" for n in ("in", "canon", "out"))
            lines = (json.dumps(make(), ensure_ascii=False) + "\n" for _ in range(given.rows))
            source.write_text("".join(lines), encoding="utf-8")
            times = [
                (seconds(source, kind, canonical, None), seconds(canonical, "passthrough", out, to))
                for _ in range(given.rounds)
            ]
            there, back = (min(column) for column in zip(*times, strict=True))
            size = source.stat().st_size / 1e6
            row = f"| {name} | {size:.0f} | {there:.2f} | {back:.2f} | {back / there:.2f} |\n"
            sys.stdout.write(row)
            sys.stdout.flush()


if __name__ == "__main__":
    main()
