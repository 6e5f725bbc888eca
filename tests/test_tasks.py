"""Tasks: however a source is cut, its rows, their numbers and lines, and its bad rows are the same."""

import io
import json
import re
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from mutated_rows import damaged, mutated
from runs import INTEL, line, lines

from fmtkit.core.errors import SourceError
from fmtkit.options.convert_options import RowOptions
from fmtkit.running.pipeline import Progress, stream
from fmtkit.running.preparation import Job, prepare
from fmtkit.sources import opening, parts
from fmtkit.sources.opening import open_sources
from fmtkit.sources.parts import blocks_of_part, parts_of
from fmtkit.work.engines import Threads
from fmtkit.work.tasks import tasks_of

FEW = settings(max_examples=60, deadline=None)
SOUND = line(INTEL) + b"\n"
LIMIT = 120
"""Bytes a line may have in the tests of lines, so that some are too long."""


def texts() -> st.SearchStrategy[bytes]:
    """Return lines of every kind: blank ones, long ones, with and without their ends."""
    sound = st.builds(lambda n: line(INTEL | {"extra": n}), st.integers(0, 3))
    odd = st.sampled_from([b"", b" ", b"\xef\xbb\xbf{}", b"{}\r", b"x" * 300, b"x" * 5000])
    one = st.one_of(sound, sound.flatmap(mutated), sound.flatmap(damaged), odd)
    end = st.sampled_from([b"", b"\n", b"\n\n"])
    return st.builds(lambda found, end: b"\n".join(found) + end, st.lists(one, max_size=9), end)


def table_rows(table: pa.Table, places: Any) -> list[str]:
    return [json.dumps(row) for row in table.to_pylist()]


def everything(job: Job, **options: Any) -> dict[str, Any]:
    """Return rows, rejects with their rows and lines, and counts, of a run task by task."""
    pieces = [*stream(job, engine=Threads(2), encode=table_rows, **options)]
    progress = Progress()
    for piece in pieces:
        progress.add(piece)
    return {
        "rows": [row for piece in pieces for row in piece.result],
        "bad": [
            (piece.source, r.row, r.line, r.code, r.raw) for piece in pieces for r in piece.rejects
        ],
        "blank": sum(piece.counts.blank_lines for piece in pieces),
        "read": dict(progress.rows),
    }


@pytest.fixture
def cut(monkeypatch):
    """Return what sets how large parts are."""
    return lambda size: monkeypatch.setattr(parts, "PART_BYTES", size)


@FEW
@given(text=texts(), size=st.integers(1, 400), limit=st.sampled_from([LIMIT, 1 << 20]))
def test_any_ranges_of_a_file_hold_its_lines_once_each_in_order(
    tmp_path_factory, text, size, limit
):
    path = tmp_path_factory.mktemp("lines") / "a.jsonl"
    text = SOUND + text
    path.write_bytes(text)
    [source] = open_sources(str(path), max_line_bytes=limit)
    whole = _lines(source.blocks())
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(parts, "PART_BYTES", size)
        cut = parts_of(source)
        first, found = 1, []
        for part in cut:
            blocks = [*blocks_of_part(source, part, first)]
            found += _lines(blocks)
            first = blocks[-1].next_line if blocks else first
        assert found == whole
        assert len(cut) == max(-(-len(text) // size), 1)


def _lines(blocks: Any) -> list[Any]:
    """Return every line with its number, and every one that is too long."""
    found = []
    for block in blocks:
        found += [(r.line, r.code, r.raw, r.raw_bytes) for r in block.rejects]
        found += [
            (block.first_line + i, x)
            for i, x in enumerate(re.findall(rb"[^\n]*\n|[^\n]+", block.data))
        ]
    return found


@settings(max_examples=25, deadline=None)
@given(files=st.lists(texts(), min_size=1, max_size=3), size=st.integers(1, 600))
def test_rows_lines_and_bad_rows_do_not_depend_on_where_tasks_are_cut(
    tmp_path_factory, files, size
):
    folder = tmp_path_factory.mktemp("files")
    for number, text in enumerate([lines([INTEL]), *files]):
        (folder / f"{number}.jsonl").write_bytes(SOUND + text)
    job = prepare(open_sources(str(folder)), RowOptions(type="chatml.intel"))
    whole = everything(job)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(parts, "PART_BYTES", size)
        assert everything(job) == whole
        limited = prepare(open_sources(str(folder)), RowOptions(type="chatml.intel", limit=3))
        read = everything(limited)
        assert read["rows"] == whole["rows"][: len(read["rows"])]
        assert sum(read["read"].values()) == min(3, sum(whole["read"].values()))


def many(tmp_path: Path) -> Path:
    """Write a file whose rows differ in length, bad ones among them."""
    rows = [line(INTEL | {"question": f"q{i}", "chosen": "c" * (i * 37 % 500)}) for i in range(200)]
    rows[50:50] = [b"{bad", b"", b'{"question": 1}']
    path = tmp_path / "a.jsonl"
    path.write_bytes(b"".join(row + b"\n" for row in rows))
    return path


def test_a_run_goes_on_from_any_block(tmp_path, cut):
    job = prepare(open_sources(str(many(tmp_path))), RowOptions(type="intel"))
    cut(9_000)
    pieces = [*stream(job, engine=Threads(1), encode=table_rows)]
    assert len(pieces) > 5
    for stop in range(len(pieces)):
        progress = Progress()
        for piece in pieces[:stop]:
            progress.add(piece)
        progress = Progress.from_dict(json.loads(json.dumps(progress.as_dict())))
        rest = [*stream(job, engine=Threads(3), encode=table_rows, progress=progress)]
        assert [p.result for p in rest] == [p.result for p in pieces[stop:]]
        assert [p.rejects for p in rest] == [p.rejects for p in pieces[stop:]]


def test_the_last_piece_of_each_task_says_so(tmp_path, cut):
    many(tmp_path)
    for name in "bcd":
        (tmp_path / f"{name}.jsonl").write_bytes(lines([INTEL]))
    job = prepare(open_sources(str(tmp_path)), RowOptions(type="intel"))
    cut(9_000)
    tasks = tasks_of(job.sources)
    assert [len(task.parts) for task in tasks[:-1]] == [1] * (len(tasks) - 1)
    assert len(tasks[-1].parts) == 4  # the end of the first file and all small ones
    ends = [p.task for p in stream(job, encode=table_rows) if p.ends_task]
    assert ends == [task.number for task in tasks]
    alone = [p.result for t in tasks for p in stream(job, encode=table_rows, tasks=[t])]
    assert alone == [p.result for p in stream(job, encode=table_rows)]


@pytest.mark.parametrize("name", ["a.parquet", "a.arrow"])
def test_columnar_files_are_cut_between_row_groups_and_batches(tmp_path, cut, name):
    table = pa.Table.from_pylist([INTEL | {"question": f"q{i}"} for i in range(1000)])
    path = tmp_path / name
    if name == "a.parquet":
        pq.write_table(table, path, row_group_size=100)
    else:
        with pa.ipc.new_file(str(path), table.schema) as writer:
            writer.write_table(table, max_chunksize=100)
    job = prepare(open_sources(str(path)), RowOptions(type="intel"))
    whole = everything(job)
    cut(path.stat().st_size // 4)
    assert 4 <= len(tasks_of(job.sources)) <= 6
    assert everything(job) == whole
    assert whole["read"] == {0: 1000}


@pytest.mark.parametrize("name", ["a.jsonl.gz", "a.jsonl.zst", "a.json", "a.csv", "-"])
def test_what_cannot_be_cut_is_one_task(tmp_path, cut, name):
    import gzip

    text = many(tmp_path).read_bytes()
    path = tmp_path / name
    if name.endswith("gz"):
        path.write_bytes(gzip.compress(text))
    elif name.endswith("zst"):
        path.write_bytes(pa.compress(text, "zstd", asbytes=True))
    elif name == "a.json":
        path.write_bytes(json.dumps([INTEL] * 100).encode())
    else:
        path.write_text("question,chosen,rejected\n" + 'q,"a\nb",c\n' * 100)
    source = io.BytesIO(text) if name == "-" else str(path)
    cut(500)
    job = prepare(open_sources(source), RowOptions(type="intel"))
    [task] = tasks_of(job.sources)
    assert [part.end for _, part in task.parts] == [None]
    found = everything(job)
    assert len(found["rows"]) >= 100


def test_a_file_that_changed_or_was_cut_short_since_it_was_listed_is_named(tmp_path, cut):
    path = many(tmp_path)
    job = prepare(open_sources(str(path)), RowOptions(type="intel"))
    cut(9_000)
    with path.open("ab") as file:
        file.write(b"{}\n")
    with pytest.raises(SourceError, match=r"a\.jsonl: it changed since it was listed"):
        everything(job)


def test_a_file_of_one_giant_line_is_looked_at_once(tmp_path, cut, monkeypatch):
    (tmp_path / "a.jsonl").write_bytes(line(INTEL) + b"\n" + b"x" * 3_000_000 + b"\n{}\n")
    [source] = open_sources(str(tmp_path / "a.jsonl"), max_line_bytes=1 << 20)
    cut(10_000)
    read = 0

    class Counted(io.FileIO):
        def read(self, size=-1):
            nonlocal read
            data = super().read(size)
            read += len(data)
            return data

        def readinto(self, buffer):
            nonlocal read
            size = super().readinto(buffer)
            read += size
            return size

    monkeypatch.setattr(opening.Location, "open", lambda self: Counted(self.name))
    found = [block for part in parts_of(source) for block in blocks_of_part(source, part)]
    assert sum(len(block.rejects) for block in found) == 1
    # Once to find where the line ends, once to find that no part begins in it, once to read it.
    assert read < 10_000_000
