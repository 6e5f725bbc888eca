"""The answers of a run as a part of its page: those of the first and of the last log."""

import html
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fmtkit.training.rl.grpo.samples import FILE

_SHOWN = 16
_LONGEST = 4000


def section(run: Path) -> str:
    """Return the part of the page, escaped; an empty text where the run kept no answers."""
    file = run / FILE
    if not file.is_file():
        return ""
    import pyarrow.parquet as pq

    rows = pq.read_table(file).to_pylist()
    steps = sorted({row["step"] for row in rows})
    shown = list(dict.fromkeys([steps[0], steps[-1]]))
    tables = "".join(_table([row for row in rows if row["step"] == step]) for step in shown)
    return f"<h2>Answers</h2><p>{len(rows)} answers of {len(steps)} logs are in {FILE}.</p>{tables}"


def _table(rows: list[dict[str, Any]]) -> str:
    names = [name for name in rows[0] if name != "step"]
    head = "".join(f"<th>{html.escape(name)}</th>" for name in names)
    body = "".join(
        "<tr>" + "".join(f"<td>{html.escape(_shown(row[name]))}</td>" for name in names) + "</tr>"
        for row in rows[:_SHOWN]
    )
    return f"<h3>Step {rows[0]['step']}</h3><table class=answers><tr>{head}</tr>{body}</table>"


def _shown(value: object) -> str:
    if isinstance(value, float):
        return f"{value:.3g}"
    if not isinstance(value, str):
        return "" if value is None else str(value)
    text = "\n".join(_lines(value))
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]} … ({len(text)} characters)"


def _lines(text: str) -> list[str]:
    """Return messages as a line for each turn; other text as it is."""
    try:
        messages = json.loads(text) if text.startswith("[") else None
    except ValueError:
        return [text]
    if not isinstance(messages, list) or not all(isinstance(m, Mapping) for m in messages):
        return [text]
    return [f"{m.get('role')}: {_said(m)}" for m in messages]


def _said(message: Mapping[str, object]) -> str:
    content, calls = message.get("content"), message.get("tool_calls")
    text = content if isinstance(content, str) else json.dumps(content, ensure_ascii=False)
    return f"{text or ''} {json.dumps(calls, ensure_ascii=False)}" if calls else text
