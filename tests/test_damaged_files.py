"""Damaged files, columnar and compressed ones most of all: one line and exit code 3, whatever they would do to the process that reads them."""

import json
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pyarrow as pa
import pytest
from damaged_files import mutant, outcomes, sound

from fmtkit.core.errors import SourceError
from fmtkit.sources import arrow_trial
from fmtkit.sources.columnar import checked
from fmtkit.sources.opening import open_sources

FEW, MANY = 480, 12_000


def judged(folder, first, last):
    """Convert mutants; return how often each outcome came, and those that none may be."""
    found = list(outcomes(folder, first, last))
    wrong = [one for one in found if one.kind in ("died", "traceback") or "\n" in one.message]
    return Counter(one.kind for one in found), wrong


def test_a_damaged_file_is_read_or_refused_in_one_line(tmp_path):
    counts, wrong = judged(tmp_path, 0, FEW)
    assert wrong == []
    assert sum(counts.values()) == FEW
    assert min(counts["refused"], counts["read"]) > FEW / 40


@pytest.mark.slow
def test_thousands_of_damaged_files_are_read_or_refused_in_one_line(tmp_path):
    _, wrong = judged(tmp_path, FEW, FEW + MANY)
    assert wrong == []


def test_what_kills_the_process_that_reads_it_is_one_line_and_exit_code_3(tmp_path, monkeypatch):
    path = tmp_path / "deadly.arrow"
    path.write_bytes(sound("file"))
    monkeypatch.setattr(arrow_trial, "SERVED", "test_damaged_files:dying")
    (source,) = open_sources(str(path))
    for look in (lambda: source.schema, lambda: list(source.blocks())):
        with pytest.raises(
            SourceError, match=r"deadly\.arrow cannot be read: it is damaged"
        ) as caught:
            look()
        assert "\n" not in str(caught.value)
        assert caught.value.exit_code == 3


def dying(setup):
    import os
    import signal

    return lambda _: os.kill(os.getpid(), signal.SIGSEGV)


def test_an_offset_beyond_the_buffer_is_found_where_a_text_before_it_is_not_utf_8():
    offsets = pa.py_buffer(b"\0\0\0\0\x02\0\0\0")
    text = pa.Array.from_buffers(pa.string(), 1, [None, offsets, pa.py_buffer(b"\xff\xff")])
    assert checked(pa.RecordBatch.from_arrays([text], ["a"])).num_rows == 1
    lists = pa.ListArray.from_arrays(pa.array([0, 1], pa.int32()), text)
    records = pa.StructArray.from_arrays([lists], ["b"])
    words = pa.DictionaryArray.from_arrays(pa.array([0]), text)
    assert checked(pa.RecordBatch.from_arrays([records, words], ["a", "b"])).num_rows == 1
    beyond = pa.py_buffer(b"\0\0\0\0\x7f\0\0\0\x02\0\0\0")
    wrong = pa.Array.from_buffers(pa.string(), 2, [None, beyond, pa.py_buffer(b"ab")])
    bad = pa.Array.from_buffers(pa.string(), 2, [None, pa.py_buffer(b"\0" * 12), pa.py_buffer(b"")])
    bad = pa.concat_arrays([text, bad.slice(1)])
    with pytest.raises(pa.ArrowInvalid, match="offset"):
        checked(pa.RecordBatch.from_arrays([bad, wrong], ["a", "b"]))


def test_a_dataset_saved_to_disk_with_a_damaged_shard_ends_in_one_line(tmp_path):
    datasets = pytest.importorskip("datasets")
    rows = [{"prompt": f"p{i}", "completion": "c"} for i in range(40)]
    saved = tmp_path / "saved"
    datasets.Dataset.from_list(rows).save_to_disk(saved, num_shards=2)
    shard = sorted(saved.glob("*.arrow"))[1]
    shard.write_bytes(mutant(shard.read_bytes()[:-200], 3))
    done = subprocess.run(
        [sys.executable, "-m", "fmtkit", "convert", saved, "--type", "completion", "-o", "o.jsonl"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 3, done.stderr
    assert len(done.stderr.strip().splitlines()) == 1, done.stderr
    assert shard.name in done.stderr


def test_batches_are_validated_a_piece_ahead_of_those_that_are_read(tmp_path, monkeypatch):
    path = tmp_path / "many.arrow"
    batch = pa.RecordBatch.from_pylist([{"prompt": "p", "completion": "c"}] * 10)
    with pa.ipc.new_stream(str(path), batch.schema) as writer:
        for _ in range(20):
            writer.write_batch(batch)
    monkeypatch.setattr(arrow_trial, "PIECE_BYTES", 5 * batch.nbytes)
    answer = arrow_trial.serve({})
    found = [
        json.loads(answer(json.dumps({"path": str(path), "start": start}).encode()))
        # Also once more from where another reader is, and from the start.
        for start in (0, 5, 5, 10, 15, 20, 0)
    ]
    assert [one["sound"] for one in found] == [5, 10, 10, 15, 20, 20, 5]
    assert [one["ended"] for one in found] == [False] * 5 + [True, False]


def test_a_relative_path_is_of_the_directory_that_one_is_in_now(tmp_path, monkeypatch):
    for name in ("first", "second"):
        folder = tmp_path / name
        folder.mkdir()
        monkeypatch.chdir(folder)
        Path("rows.arrow").write_bytes(sound("arrow"))
        trial = arrow_trial.Trial("rows.arrow", "rows.arrow")
        with trial.opened():
            assert trial.begun
