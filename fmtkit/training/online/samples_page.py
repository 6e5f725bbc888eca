"""Pages of a run's answers: a searchable page, and what the run's own page shows of them."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from fmtkit.core import atomic
from fmtkit.core.secret_keys import beginning, hidden
from fmtkit.reports import page
from fmtkit.training.online.samples import FILE, REWARD, Row

PAGE = "answers.html"
TEXT_SHOWN = 40_000
"""Characters of a message in the page; the table has all of them."""
_TITLE = 90
_SHOWN = 16
_LONGEST = 4000


def write(run: Path, rows: Sequence[Row], how: str) -> None:
    """Write the page of these rows of the table; `how` says which answers of the run they are.

    Raises WriteError where the page cannot be written.
    """
    atomic.write_bytes(run / PAGE, render(run.name, rows, how).encode())


def render(title: str, rows: Sequence[Row], how: str) -> str:
    """Return the page, in which all of the rows is escaped text."""
    names = list(dict.fromkeys(n for row in rows for n in row if n.startswith(REWARD)))
    counted = all(row.get("tokens") is not None for row in rows)
    data = {
        "title": title,
        "how": how,
        "unit": "tokens" if counted else "characters",
        "names": [name.removeprefix(REWARD) for name in names],
        "rows": _index(rows, names, counted=counted),
    }
    size = page.CHUNK_ROWS
    chunks = (
        page.packed([_packed(row) for row in rows[start : start + size]])
        for start in range(0, len(rows), size)
    )
    return page.render("answers", data, chunks)


def _index(rows: Sequence[Row], names: Sequence[str], *, counted: bool) -> list[list[Any]]:
    """Return the index that the page loads for each row; answers.js names its columns."""
    entries, group, last = [], -1, None
    for row in rows:
        if (row["step"], row["prompt"]) != last:
            group, last = group + 1, (row["step"], row["prompt"])
        messages = _said_of(row["completion"])
        entries.append(
            [
                row["step"],
                row["tokens"] if counted else sum(len(text) for _, text in messages),
                row.get("advantage"),
                row.get("reward"),
                [row.get(name) for name in names],
                bool(row.get("cut")),
                row.get("masked"),
                group,
                _titled(" ".join(text for _, text in messages)),
            ]
        )
    return entries


def _titled(text: str) -> str:
    return " ".join(beginning(text, 4 * _TITLE).split())[:_TITLE]


def _packed(row: Row) -> dict[str, Any]:
    extra = {n.removeprefix("extra/"): v for n, v in row.items() if n.startswith("extra/") and v}
    return {
        "prompt": [_cut(*message) for message in _said_of(row["prompt"])],
        "completion": [_cut(*message) for message in _said_of(row["completion"])],
        "extra": {name: beginning(value, _LONGEST) for name, value in extra.items()},
    }


def _cut(role: str, text: str) -> tuple[str, str, int]:
    """Return role and text, truncated, and how many characters were cut."""
    return role, beginning(text, TEXT_SHOWN), max(len(text) - TEXT_SHOWN, 0)


def summary(run: Path) -> dict[str, Any] | None:
    """Return what the run's page shows of its answers: those of the first and of the last log.

    Its keys are named by run.js; None stands for a run without any.
    """
    file = run / FILE
    if not file.is_file():
        return None
    import pyarrow.parquet as pq

    rows = pq.read_table(file).to_pylist()
    steps = sorted({row["step"] for row in rows})
    shown = list(dict.fromkeys([steps[0], steps[-1]])) if steps else []
    return {
        "text": f"{len(rows)} answers of {len(steps)} logs are in {FILE}.",
        "link": PAGE if (run / PAGE).is_file() else None,
        "steps": [of_step(step, [row for row in rows if row["step"] == step]) for step in shown],
    }


def of_step(step: int, rows: list[Row]) -> dict[str, Any]:
    """Return the answers of a step as the page holds them."""
    heads = [name for name in rows[0] if name != "step"]
    cells = [[_shown(row[name]) for name in heads] for row in rows[:_SHOWN]]
    return {"step": step, "heads": heads, "rows": cells}


def _shown(value: object) -> str:
    if isinstance(value, float):
        return f"{value:.3g}"
    if not isinstance(value, str):
        return "" if value is None else str(value)
    text = "\n".join(f"{role}: {content}" if role else content for role, content in _said_of(value))
    if len(text) <= _LONGEST:
        return hidden(text)
    return f"{beginning(text, _LONGEST)} … ({len(text)} characters)"


def _said_of(text: str) -> list[tuple[str, str]]:
    """Return the messages of a string that is a list of them, as role and content; else ("", text)."""
    try:
        messages = json.loads(text) if text.startswith("[") else None
    except ValueError:
        return [("", text)]
    if not isinstance(messages, list) or not all(isinstance(m, Mapping) for m in messages):
        return [("", text)]
    return [(str(message.get("role")), _said(message)) for message in messages]


def _said(message: Mapping[str, object]) -> str:
    content, calls = message.get("content"), message.get("tool_calls")
    text = content if isinstance(content, str) else json.dumps(content, ensure_ascii=False)
    return f"{text or ''} {json.dumps(calls, ensure_ascii=False)}" if calls else text
