"""Sessions of agents: a file is a conversation with tools, or one for each branch, whatever its name."""

import json
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from fixture_cases import FIXTURES, read_lines

import fmtkit
from fmtkit.inspection.inspection import run
from fmtkit.options.inspect_options import InspectOptions
from fmtkit.reports import html
from fmtkit.rows import joined_rows
from fmtkit.sources.blocks import MAX_LINE_BYTES

FORMATS = ["claude_code", "codex", "sts"]
TOKENIZER = FIXTURES / "tokenizer"


def raw(kind: str) -> list[bytes]:
    """Return the lines of a session as an agent writes them."""
    return read_lines(FIXTURES / kind / "lines.source.jsonl")[1:]


def written(path: Path, lines: list[bytes]) -> str:
    path.write_bytes(b"".join(line + b"\n" for line in lines))
    return str(path)


def asked(number: int, above: int | None, **more: object) -> bytes:
    message = {"role": "user", "content": f"question {number}"}
    parent = None if above is None else f"n{above}"
    event = {"type": "user", "uuid": f"n{number}", "parentUuid": parent, "message": message}
    return json.dumps(event | more).encode()


def replied(number: int, above: int, *parts: object, **more: object) -> bytes:
    content = [*parts] or [{"type": "text", "text": f"reply {number}"}]
    message = {"id": f"m{number}", "role": "assistant", "content": content}
    event = {"type": "assistant", "uuid": f"n{number}", "parentUuid": f"n{above}"}
    return json.dumps({**event, "message": message} | more).encode()


@pytest.mark.parametrize("kind", FORMATS)
def test_a_session_is_found_without_its_type_under_any_name(tmp_path, kind):
    survey = fmtkit.inspect(written(tmp_path / "7f3a.jsonl", raw(kind)))
    assert (survey.best_guess, survey.certainty, survey.table) == (kind, "sure", "Conversation")
    assert survey.ledger["joined"] == len(raw(kind)) - 1


@pytest.mark.parametrize("kind", FORMATS)
def test_no_other_session_is_taken_for_it(tmp_path, kind):
    for other in set(FORMATS) - {kind}:
        with pytest.raises(fmtkit.FmtkitError):
            fmtkit.convert(written(tmp_path / f"{other}.jsonl", raw(other)), kind)


@pytest.mark.parametrize("kind", FORMATS)
def test_bytes_are_the_same_with_and_without_the_kernel_and_by_any_number_of_workers(
    tmp_path, monkeypatch, kind
):
    source = str(FIXTURES / kind / "source.jsonl")
    lines = str(FIXTURES / kind / "lines.source.jsonl")
    made = []
    for workers in (1, 2):
        for kernel in ("", "0"):
            monkeypatch.setenv("FMTKIT_KERNEL", kernel)
            out = tmp_path / f"{workers}{kernel}.jsonl"
            report = fmtkit.convert([source, lines], kind, out, workers=workers)
            made.append((out.read_bytes(), dict(report.reasons), dict(report.warnings)))
    assert all(one == made[0] for one in made)


@pytest.mark.parametrize("kind", FORMATS)
def test_a_line_that_is_no_json_is_quarantined_and_leaves_a_mark(tmp_path, kind):
    lines = raw(kind)
    cut = [*lines[:-1], b"{nonsense", lines[-1][:-9]]
    source = written(tmp_path / "cut.jsonl", cut)
    report = fmtkit.convert(source, kind, tmp_path / "out.jsonl")
    assert dict(report.reasons) == {"json_syntax": 2}
    assert report.warnings["unread_events"] == 1
    assert report.rows_read == report.converted + report.joined + 2
    bad = (tmp_path / "out.quarantine.jsonl").read_text().splitlines()
    where = [(json.loads(row)["line"], json.loads(row)["code"]) for row in bad]
    assert where == [(len(lines), "json_syntax"), (len(lines) + 1, "json_syntax")]


def test_a_session_may_be_in_many_blocks(tmp_path):
    """Of 6 MiB: one without a line that can be read would part it, since nothing is read ahead of it."""
    said = "x" * (MAX_LINE_BYTES // 4)
    lines = [asked(0, None), replied(1, 0)]
    for n in range(2, 8, 2):
        lines += [
            asked(n, n - 1, message={"role": "user", "content": said}),
            b"{",
            replied(n + 1, n),
        ]
    report = fmtkit.convert(written(tmp_path / "a.jsonl", lines), "claude_code")
    assert (report.converted, report.rows_written, report.joined) == (1, 1, 7)
    assert (dict(report.reasons), dict(report.warnings)) == (
        {"json_syntax": 3},
        {"unread_events": 1},
    )


def test_each_file_is_a_session_of_its_own(tmp_path):
    paths = [written(tmp_path / f"{name}.jsonl", raw("codex")) for name in "ab"]
    report = fmtkit.convert(paths, "codex", tmp_path / "out.parquet")
    assert (report.converted, report.rows_written) == (2, 2)
    rows = pq.read_table(tmp_path / "out.parquet").to_pylist()
    assert rows[0] == rows[1]


def test_a_session_with_no_end_is_cut_and_the_rest_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(joined_rows, "MOST_OF_FILE", 4)
    lines = [asked(0, None), replied(1, 0), asked(2, 1), replied(3, 2), asked(4, 3), replied(5, 4)]
    report = fmtkit.convert(written(tmp_path / "a.jsonl", lines), "claude_code")
    assert (report.converted, report.joined, dict(report.reasons)) == (1, 3, {"value_error": 2})


def test_only_what_the_model_says_thinks_and_calls_is_trained_on(tmp_path):
    lines = [
        asked(0, None),
        replied(1, 0, {"type": "thinking", "thinking": "thought"}),
        replied(2, 1, {"type": "tool_use", "id": "t", "name": "Read", "input": {"p": "a"}}),
        asked(
            3, 2, message={"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t"}]}
        ),
        replied(4, 3),
    ]
    survey = fmtkit.inspect(
        written(tmp_path / "a.jsonl", lines),
        "claude_code",
        tokenizer=str(TOKENIZER),
        chat_template="qwen3_training",
        rows=[len(lines) - 1],
    )
    (row,) = survey.shown
    (side,) = row.sides
    spans = [side.text[side.offsets[a][0] : side.offsets[b - 1][1]] for a, b in side.trained]
    assert len(spans) == 2
    assert "thought" in spans[0]
    assert "Read" in spans[0]
    assert "reply 4" in spans[1]
    assert not any("question" in span or "tool_response" in span for span in spans)


def test_results_of_parallel_calls_are_found_beside_the_path_and_make_no_branch(tmp_path):
    use = [{"type": "tool_use", "id": f"t{n}", "name": "f", "input": {}} for n in range(3)]
    result = [
        {
            "role": "user",
            "content": [{"type": "tool_result", "tool_use_id": f"t{n}", "content": str(n)}],
        }
        for n in range(3)
    ]
    same = {"id": "m1", "role": "assistant"}
    lines = [
        asked(0, None),
        replied(1, 0, message={**same, "content": [use[0]]}),
        asked(2, 1, message=result[0]),
        replied(3, 2, message={**same, "content": [use[1]]}),
        replied(4, 3, message={**same, "content": [use[2]]}),
        asked(5, 3, message=result[1]),
        asked(6, 4, message=result[2]),
        replied(7, 6),
    ]
    (row,) = fmtkit.table(written(tmp_path / "a.jsonl", lines), "claude_code").to_pylist()
    said = [(turn["role"], turn["content"]) for turn in row["messages"]]
    assert said[2:] == [("tool", "0"), ("tool", "1"), ("tool", "2"), ("assistant", "reply 7")]
    assert len(json.loads(row["messages"][1]["tool_calls"])) == 3


def test_a_long_session_and_one_of_many_branches_take_linear_time(tmp_path):
    count = 5_000
    pairs = [
        (asked(2 * n, 2 * n - 1 if n else None), replied(2 * n + 1, 2 * n)) for n in range(count)
    ]
    report = fmtkit.convert(
        written(tmp_path / "long.jsonl", [line for pair in pairs for line in pair]), "claude_code"
    )
    assert (report.converted, report.rows_written, dict(report.warnings)) == (1, 1, {})
    chain = [asked(n, n - 1 if n else None, message={"role": "user"}) for n in range(count)]
    comb = [replied(count + n, count - 1) for n in range(count)]
    report = fmtkit.convert(written(tmp_path / "comb.jsonl", [*chain, *comb]), "claude_code")
    assert dict(report.reasons) == {"value_error": 1}
    circle = [asked(n, (n + 1) % count) for n in range(count)]
    report = fmtkit.convert(
        written(tmp_path / "circle.jsonl", [*circle, replied(count, 5)]), "claude_code"
    )
    assert report.warnings["broken_chain"] == 1


def test_rows_that_are_shown_are_sessions_and_bad_lines_and_not_the_lines_of_sessions(tmp_path):
    lines = raw("sts")
    paths = [written(tmp_path / f"{name}.jsonl", [*lines, b"{"]) for name in "abc"]
    options = InspectOptions(
        type="sts", tokenizer=str(TOKENIZER), chat_template="chatml", show_mask=5
    )
    inspection = run(paths, options)
    shown = inspection.survey.shown
    size = len(lines) + 1
    assert [row.place.row for row in shown] == [
        size - 2,
        size - 1,
        2 * size - 2,
        2 * size - 1,
        3 * size - 2,
    ]
    assert [bool(row.sides) for row in shown] == [True, False, True, False, True]
    assert inspection.survey.masks.rows == 3
    assert len(html.page_rows(inspection).index) == 6
