"""Seeded data for the benchmarks: flat pairs, message lists, tool calls, ranked answers, bad rows."""

import json
import random
from collections.abc import Callable
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


TEXTS = {"flat": 3, "escaped": 3, "messages": 4, "openai": 3, "sharegpt": 3, "ranked": 7}
"""Long texts in a row of each shape."""


def write(
    path: Path,
    shape: str,
    rows: int,
    row_bytes: int,
    *,
    bad: Callable[[int], bool] | None = None,
    seed: int = 0,
) -> Path:
    """Write `rows` rows of about `row_bytes` bytes; a row that is `bad` has a number for an answer."""
    rng = random.Random(seed)
    pool = _pool(rng, row_bytes // TEXTS[shape])
    makers = {"flat": _flat, "escaped": _escaped, "messages": _messages, "ranked": _ranked}
    make = (makers | {"openai": _openai, "sharegpt": _sharegpt})[shape]
    with path.open("w", encoding="utf-8") as file:
        for i in range(rows):
            row = make(rng, pool, i)
            if bad is not None and bad(i):
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


def _escaped(rng: random.Random, pool: list[str], i: int) -> dict[str, object]:
    """Return a flat pair of which every value has line feeds and quotes, some every few words."""
    row = _flat(rng, pool, i)
    system = 'Say "I do not know"\nwhere you do not.'
    return {key: _with_escapes(str(value) or system) for key, value in row.items()}


def _with_escapes(value: str) -> str:
    return value.replace(" the ", ' "the" ').replace(" of ", "\n")


def _openai(rng: random.Random, pool: list[str], i: int) -> dict[str, object]:
    call = {"name": "search", "arguments": json.dumps({"query": pool[i % 2000][:60], "page": i})}
    return {
        "messages": [
            {"role": "user", "content": f"{i} {rng.choice(pool)}"},
            {
                "role": "assistant",
                "content": None,
                "tool_calls": [{"id": f"c{i}", "type": "function", "function": call}],
            },
            {"role": "tool", "content": rng.choice(pool), "tool_call_id": f"c{i}"},
            {"role": "assistant", "content": rng.choice(pool)},
        ],
        "tools": [{"type": "function", "function": SEARCH}],
    }


def _sharegpt(rng: random.Random, pool: list[str], i: int) -> dict[str, object]:
    call = {"name": "search", "arguments": {"query": pool[i % 2000][:60], "page": i}}
    return {
        "conversations": [
            {"from": "human", "value": f"{i} {rng.choice(pool)}"},
            {"from": "function_call", "value": json.dumps(call)},
            {"from": "observation", "value": rng.choice(pool)},
            {"from": "gpt", "value": rng.choice(pool)},
        ],
        "tools": json.dumps([SEARCH]),
    }


SEARCH: dict[str, object] = {
    "name": "search",
    "description": "Search the archive.",
    "parameters": {
        "type": "object",
        "properties": {"query": {"type": "string"}, "page": {"type": "integer", "minimum": 0}},
        "required": ["query"],
    },
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
