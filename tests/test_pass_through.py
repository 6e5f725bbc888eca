"""Passing canonical tables through: rows, columns, and the width of messages stay what they are."""

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from fixture_cases import Case, cases, job_of
from runs import INTEL, convert, convert_file, lines

import fmtkit
from fmtkit.core.tables import final_rows, has_images
from fmtkit.reading import native
from fmtkit.running.pipeline import stream

CALLS = [{"type": "function", "function": {"name": "f", "arguments": {"x": 1}}}]
ASKED = {"role": "user", "content": "Call it."}


@pytest.mark.parametrize("case", [pytest.param(case, id=str(case)) for case in cases()])
def test_what_a_type_makes_passes_through_as_it_is(case: Case, tmp_path: Path) -> None:
    job = job_of(case, case.source)
    made = pa.Table.from_batches(
        [batch for piece in stream(job) for batch in final_rows(piece.table).to_batches()],
        job.schema,
    )
    stored = made.cast(job.stored_schema)
    pq.write_table(stored, tmp_path / "made.parquet")
    options = {"method": case.settings["method"]} if "method" in case.settings else {}
    source, out = str(tmp_path / "made.parquet"), tmp_path / "out.parquet"
    if has_images(job.schema):
        # Its paths are those of the fixture's files.
        options["image_folder"] = str(case.source.parent)
    outcome = convert_file(source, out, "passthrough", **options)
    assert (outcome.error, outcome.verdicts) == (None, [])
    passed = pq.read_table(out)
    # What a prompt keeps comes behind its images, wherever it was.
    order = pq.read_schema(source).names if has_images(job.schema) else passed.schema.names
    passed = passed.select(order)
    assert passed.schema.equals(pq.read_schema(source))
    assert passed.to_pylist() == made.to_pylist()
    if stored.schema != made.schema:
        # As 0.2 wrote them: calls and tools as text.
        pq.write_table(made, tmp_path / "text.parquet")
        again = fmtkit.convert(
            tmp_path / "text.parquet", "passthrough", tmp_path / "again.parquet", **options
        )
        assert again.rows_written == len(made)
        assert pq.read_table(tmp_path / "again.parquet").select(order).equals(passed)


def test_tool_calls_written_as_text_are_read_as_what_they_say(tmp_path: Path) -> None:
    texts = [json.dumps(CALLS), "[]", "", "null", "call it", '[{"a": 1, "a": 2}]', "[NaN]", '"[]"']
    called = [{"role": "assistant", "content": "so", "tool_calls": text} for text in texts]
    outcome = convert(tmp_path, [{"messages": [ASKED, reply]} for reply in called], "openai")
    calls = [row["messages"][1]["tool_calls"] for row in outcome.rows]
    assert calls == [json.dumps(CALLS, separators=(",", ":")), None, None, None]
    place = "messages[1].tool_calls"
    assert outcome.verdicts == [
        (5, "value_error", place),
        (6, "duplicate_key", place + "[0].a"),
        (7, "json_nonfinite", place + "[0]"),
        (8, "value_error", place),
    ]


def made(folder: Path, name: str, type: str, row: dict[str, Any]) -> str:
    source = folder / "source.jsonl"
    source.write_bytes(lines([row]))
    assert convert_file(str(source), folder / name, type).error is None
    return str(folder / name)


def test_narrow_and_wide_tables_pass_through_as_wide_ones(tmp_path: Path) -> None:
    answers = [[{"role": "assistant", "content": text}] for text in "ab"]
    row = {"input": {"messages": [ASKED]}} | dict(
        zip(("preferred_output", "non_preferred_output"), answers, strict=True)
    )
    narrow = made(tmp_path, "narrow.parquet", "intel", INTEL)
    wide = made(tmp_path, "wide.parquet", "openai_preference", row)
    both = tmp_path / "both.parquet"
    assert len(convert_file([narrow, wide], both, "passthrough").rows) == 2
    for name in ("prompt", "chosen", "rejected"):
        assert pq.read_schema(both).field(name).type == pq.read_schema(wide).field(name).type


def test_rows_of_json_have_room_for_all_that_later_rows_may_bring(tmp_path: Path) -> None:
    said = {"messages": [ASKED, {"role": "assistant", "content": "No."}]}
    reply = {"role": "assistant", "content": "", "tool_calls": CALLS}
    rows = [said] * 300 + [{"messages": [ASKED, reply], "tools": []}]
    outcome = convert(tmp_path, rows, "passthrough")
    assert outcome.quarantine == []
    assert json.loads(outcome.rows[300]["messages"][1]["tool_calls"]) == CALLS


def test_what_was_written_is_read_together_and_calls_by_the_kernel(tmp_path):
    plain = [
        {"messages": [{"role": "user", "content": f"q{n}"}, {"role": "assistant", "content": "a"}]}
        for n in range(40)
    ]
    called = {"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    calling = [*plain[0]["messages"], {"role": "assistant", "content": "", "tool_calls": [called]}]
    calls = 41 if native.kernel() else 0
    for rows, fast in ((plain, 40), ([*plain, {"messages": calling}], calls)):
        for suffix in ("parquet", "arrow"):
            source, out = (tmp_path / f"{n}{fast}{suffix}.{suffix}" for n in ("in", "out"))
            fmtkit.convert(rows, "openai", source)
            report = fmtkit.convert(source, "passthrough", out)
            assert report.tiers["fast_rows"] == fast
            assert report.rows_written == len(rows)
            found = fmtkit.table(out, "passthrough")
            assert found.equals(fmtkit.table(rows, "openai"))
