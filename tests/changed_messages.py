"""What follows from two more roles and two more keys of messages, as JSON: test_messages_follow runs this.

python tests/changed_messages.py      # in a folder of its own, with a copy of fmtkit that has them
"""

import json
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
from jsonschema import Draft202012Validator

import fmtkit
from fmtkit.core.tables import WIDE_MESSAGE, Conversation
from fmtkit.findings.findings import Findings
from fmtkit.formats import registry, source_schemas, table_schemas
from fmtkit.inspection.shown_rows import bare_sides
from fmtkit.reading import native
from fmtkit.reading.lost_turns import CarriedKind
from fmtkit.rendering.chat import ChatTemplate
from fmtkit.rendering.row_templates import RowTemplate
from fmtkit.rendering.text_origins import written_text
from fmtkit.sources.blocks import Records
from fmtkit.stages.fusing import Fused, Fusion

Row = dict[str, Any]
KEYED: Row = {
    "messages": [
        {"role": "user", "content": "q"},
        {"role": "robot", "content": "a", "tone": "glad"},
        {"role": "user", "content": "r"},
        {"role": "robot", "content": "", "thought": "b"},
    ]
}
BARE: Row = {"messages": [{"role": "user", "content": "q"}, {"role": "robot", "content": ""}]}
TEMPLATE = (
    "{% for m in messages %}{{ m.role }}:{{ m.content }}{{ m.mood }}{{ m.thought }};{% endfor %}"
)
MANY = 3_000
ROWS = np.arange(1)
MASKING = (
    "{% for m in messages %}{{ m.role }}:{% if m.role == 'assistant' %}{% generation %}"
    "{{ m.mood }}{{ m.thought }}{{ m.content }};{% endgeneration %}{% else %}{{ m.content }};"
    "{% endif %}{% endfor %}"
)
ASK: Row = {"role": "user", "content": "q"}
REPLY: Row = {"role": "robot", "content": "a", "tone": "glad", "thought": "b"}
WORSE: Row = {"role": "robot", "content": "c"}
OTHERS: dict[str, Row] = {
    "sharegpt": {
        "conversations": [
            {"from": "human", "value": "q"},
            {"from": "gpt", "value": "a", "tone": "glad", "thought": "b"},
        ]
    },
    "chat_template.default": {"messages": [ASK], "chosen": REPLY, "rejected": WORSE},
    "openai_preference": {
        "input": {"messages": [ASK]},
        "preferred_output": [REPLY],
        "non_preferred_output": [WORSE],
    },
    "ultra": {"prompt": "q", "chosen": [ASK, REPLY], "rejected": [ASK, WORSE]},
}
"""Rows of other formats that have the added keys; messages of the last cannot."""
NAMING = (
    *(("sharegpt", "sft"), ("sharegpt-preference", "dpo"), ("gemini", "sft"), ("gemini", "dpo")),
    ("hh-rlhf", "dpo"),
)
"""Targets with names of their own for roles."""


def held(message: Mapping[str, Any]) -> Row:
    return {key: value for key, value in message.items() if value}


def mixed(end: str) -> list[Row]:
    """Return rows of which every second has a key, the first one not; each is as long as `end`."""
    asked = ({"role": "user", "content": f"{i} {end}"} for i in range(MANY))
    return [
        {
            "messages": [
                ask,
                {"role": "robot", "content": "a"} | ({"mood": f"m{i}"} if i % 2 else {}),
            ]
        }
        for i, ask in enumerate(asked)
    ]


def said(rows: Iterable[Row]) -> list[str]:
    """Return what the template writes of rows."""
    return [
        "".join(
            f"{m['role'].replace('robot', 'assistant')}:{m['content']}{m.get('mood', '')};"
            for m in row["messages"]
        )
        for row in rows
    ]


def written(name: str, rows: Iterable[Row]) -> str:
    Path(name).write_text("".join(json.dumps(row) + "\n" for row in rows))
    return name


def read() -> Row:
    """Read rows as lines, from memory, and from Parquet that fmtkit wrote."""
    found: Row = {}
    for name, source in (("lines", written("rows.jsonl", [KEYED, BARE])), ("rows", [KEYED, BARE])):
        rejects: list[Any] = []
        table = fmtkit.table(source, "openai", rejects=rejects)
        found[name] = [*map(held, table["messages"][0].as_py())], [bad.code for bad in rejects]
    fmtkit.convert("rows.jsonl", "openai", "out.parquet")
    found["again"] = [*map(held, fmtkit.table("out.parquet", "openai")["messages"][0].as_py())]
    return found


def rendered() -> Row:
    """Render mixed rows by columns, and as they are read; tell how many became another text, and how."""
    Path("t.jinja").write_text(TEMPLATE)
    fused: list[int] = []
    fuse = Fusion.fuse

    def counted(self: Fusion, records: Records) -> Fused | None:
        made = fuse(self, records)
        fused.append(0 if made is None else len(made.rows))
        return made

    Fusion.fuse = counted  # type: ignore[method-assign]
    found: Row = {"kernel": native.kernel() is not None}
    # Lines are fused once a template was traced, which is at once where a block is long.
    for name, rows in (("columns", mixed("x")), ("lines", mixed("x" * 1_000))):
        source = rows if name == "columns" else written("many.jsonl", rows)
        # One worker: the end of the source would be read by another before the template is traced.
        report = fmtkit.convert(
            source, "./t.jinja.openai", "text.parquet", overwrite=True, workers=1
        )
        texts = fmtkit.table("text.parquet", "passthrough")["text"].to_pylist()
        wrong = sum(one != other for one, other in zip(texts, said(rows), strict=True))
        found[name] = {"wrong": wrong, "fused": sum(fused), **report.tiers}
    return found


def converted() -> Row:
    """Read the same keys by other formats: what each makes of the reply, or why it refuses the row."""
    found: Row = {}
    for name, row in OTHERS.items():
        for way, source in (("lines", written("other.jsonl", [row])), ("rows", [row])):
            rejects: list[Any] = []
            rows = fmtkit.table(source, name, rejects=rejects).to_pylist()
            replies = [held((made.get("messages") or made.get("chosen"))[-1]) for made in rows]
            found[f"{name} {way}"] = replies or [f"{bad.code}: {bad.message}" for bad in rejects]
    return found


def masked() -> list[str]:
    """Return what is trained on where a template has the added keys within its generation blocks."""
    template = RowTemplate(ChatTemplate("own", MASKING))
    turns = fmtkit.table([KEYED], "openai")["messages"][0].as_py()
    text, spans = template.render_spans(turns)
    return [text[begin:end] for begin, end in spans]


def targets() -> Row:
    """Write rows to a target that holds neither key; tell why rows are refused."""
    found: Row = {}
    for name, allowed in (("strict", ()), ("lossy", ("mood", "thought"))):
        rejects: list[Any] = []
        fmtkit.table([KEYED, BARE], "openai", to="openai", rejects=rejects, allow_loss=allowed)
        found[name] = [bad.message for bad in rejects if bad.code == "no_place"]
    found["roles"] = {f"{to} {method}": _judged(to, method) for to, method in NAMING}
    return found


def _judged(to: str, method: str) -> tuple[int, list[str]]:
    """Write a row of known roles and one of the added one; tell how many were, and why one was not."""
    reply = {"role": "assistant", "content": "a"}
    asked = [{"role": "user", "content": "q"}]
    judged = [*asked, {"role": "critic", "content": "no"}, {"role": "user", "content": "r"}]
    rows = [
        {"messages": [*turns, reply]}
        if method == "sft"
        else {"prompt": turns, "chosen": [reply], "rejected": [{**reply, "content": "b"}]}
        for turns in (asked, judged)
    ]
    rejects: list[Any] = []
    made = fmtkit.table(rows, "passthrough", method=method, to=to, rejects=rejects)
    return made.num_rows, [f"{bad.code}: {bad.message}" for bad in rejects]


def spoken() -> Row:
    """Say a control token in the thought alone, and look at what becomes of it."""
    reply = {"role": "assistant", "thought": "<|end|> b"}
    row = {"messages": [{"role": "user", "content": "q"}, reply]}
    findings = Findings(control_tokens=("<|end|>",))
    findings.add(pa.table({"messages": pa.array([row["messages"]], pa.list_(WIDE_MESSAGE))}), ROWS)
    Path("lost.jinja").write_text("{% for m in messages %}{{ m.content }}{{ m.name }};{% endfor %}")
    lost = fmtkit.convert([row], "./lost.jinja.openai", "lost.parquet")
    unread = CarriedKind(nested=True).of(pl.Series([[reply | {"mood": "glad", "sender": "Bo"}]]))
    return {
        "findings": [finding.code for finding in findings.result()],
        "masks": wrote(row["messages"]),
        "pages": bare_sides(row)[0].text,
        "lost": dict(lost.warnings),
        "unread": unread.to_list()[0],
    }


def wrote(messages: list[Row]) -> list[list[str]]:
    """Return what wrote each text of a rendered conversation, and the text."""
    template = RowTemplate(
        ChatTemplate("said", "{% for m in messages %}{{ m.thought or m.content }};{% endfor %}")
    )
    text = template.render(messages)
    found = written_text(template, messages, None, text)
    return [[messages[p.message]["role"], p.wrote, text[p.start : p.end]] for p in found.pieces]


def schemas() -> Row:
    """Return schemas, and whether the row that `read` wrote is one of them; see the properties of a message."""
    canonical = table_schemas.row_schema(Conversation)
    rows = fmtkit.table("rows.jsonl", "openai", rejects=[]).to_pylist()
    lines = [{"messages": [*map(held, row["messages"])]} for row in rows]
    return {
        "source": json.dumps(source_schemas.source_schema(registry.converters_named("openai")[0])),
        "message": canonical["$defs"]["message"],
        "faults": [
            fault.message for fault in Draft202012Validator(canonical).iter_errors(lines[0])
        ],
    }


PARTS: dict[str, Callable[[], Any]] = {
    "read": read,
    "rendered": rendered,
    "converted": converted,
    "masked": masked,
    "targets": targets,
    "spoken": spoken,
    "schemas": schemas,
}

if __name__ == "__main__":
    print(json.dumps({name: part() for name, part in PARTS.items()}))
