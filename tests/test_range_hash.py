"""Hashes of sources: the same by whoever makes them, and as the documentation says."""

import gzip
import hashlib
import json
import random
import re
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from runs import INTEL, lines
from test_engines import Pickling

import fmtkit
from fmtkit.core.errors import ResumeError, SourceError
from fmtkit.running import task_work
from fmtkit.sources import jsonl, raw
from fmtkit.sources.opening import open_sources
from fmtkit.sources.raw import RangeHash, digest_of_range, folded, ranges_of
from fmtkit.work import ray_engine

PAGE = Path(__file__).parents[1] / "docs" / "scale.md"
RANGE = raw.RANGE_BYTES


@pytest.mark.parametrize("size", [0, 1, RANGE - 1, RANGE, RANGE + 1, 2 * RANGE, 2 * RANGE + 5])
def test_a_hash_is_what_the_documentation_computes(tmp_path, monkeypatch, capsys, size):
    # Holes, but for an end that differs.
    path = tmp_path / "pairs.jsonl"
    with path.open("wb") as file:
        file.truncate(size)
        file.seek(max(size - 1, 0))
        file.write(b"\n" if size else b"")
    [source] = open_sources(str(path))
    if size <= RANGE:
        wanted = hashlib.sha256(path.read_bytes()).hexdigest()
    else:
        [code] = re.findall(r"```python\n(import hashlib\n.*?)```", PAGE.read_text(), re.DOTALL)
        monkeypatch.chdir(tmp_path)
        exec(code, {})
        wanted = capsys.readouterr().out.strip()
        assert wanted.endswith(f"-{-(-size // RANGE)}")
    assert source.sha256() == wanted
    location = source.reader.location
    assert folded([digest_of_range(location, *one) for one in ranges_of(size)]) == wanted


def test_bytes_that_pass_in_any_pieces_have_one_hash(monkeypatch):
    monkeypatch.setattr(raw, "RANGE_BYTES", 100)
    random.seed(7)
    for size in (0, 99, 100, 101, 200, 201, 1234):
        data, hashes = random.randbytes(size), set()
        for _ in range(20):
            passing, at = RangeHash(), 0
            while at < size:
                step = random.randint(1, 350)
                passing.update(memoryview(data)[at : at + step])
                at += step
            hashes.add(passing.hexdigest())
        digests = [hashlib.sha256(data[start:end]).digest() for start, end in ranges_of(size)]
        assert hashes == {folded(digests)}


@pytest.fixture
def sources(tmp_path, monkeypatch):
    """Give files of several kinds, and ranges that are smaller than some of them."""
    for module in (raw, task_work):
        monkeypatch.setattr(module, "RANGE_BYTES", 1000)
    rows = [INTEL | {"question": f"q{i}"} for i in range(100)]
    folder = tmp_path / "files"
    folder.mkdir()
    (folder / "a.jsonl").write_bytes(lines(rows))
    (folder / "b.jsonl").write_bytes(lines(rows[:1]))
    (folder / "c.jsonl").write_bytes(lines(rows[1:2]))
    (folder / "d.jsonl.gz").write_bytes(gzip.compress(random.Random(1).randbytes(10) + b"\n"))
    (folder / "d.jsonl.gz").write_bytes(gzip.compress(lines(rows)))
    (folder / "e.json").write_text(json.dumps(rows))
    pq.write_table(pa.Table.from_pylist(rows), folder / "f.parquet")
    return folder


def test_hashes_are_the_same_on_both_engines_and_for_one_file(sources, tmp_path, monkeypatch):
    asked = []

    class Noting(Pickling):
        def map(self, work, tasks):
            tasks = list(tasks)
            asked.append((type(work).__name__, len(tasks)))
            return super().map(work, iter(tasks))

    monkeypatch.setattr(ray_engine, "Ray", lambda *arguments: Noting())
    # What the first block does not reach is not hashed yet when a run begins.
    monkeypatch.setattr(jsonl, "BLOCK_BYTES", 500)
    here = []
    monkeypatch.setattr(
        "fmtkit.sources.raw.Location.sha256",
        lambda self: self.digest or here.append(self.name) or "",
    )
    told = {
        engine: fmtkit.convert(sources, "intel", tmp_path / engine, engine=engine, hash="always")
        for engine in ("threads", "ray")
    }
    # No source was read by the process that wanted its hash.
    assert not here
    monkeypatch.undo()
    for module in (raw, task_work):
        monkeypatch.setattr(module, "RANGE_BYTES", 1000)
    one = fmtkit.convert(sources, "intel", tmp_path / "one.jsonl", hash="always")
    assert told["threads"].sources == told["ray"].sources == one.sources
    [hashing] = [count for name, count in asked if name == "RangeDigests"]
    assert hashing > 3
    hashes = {Path(s["path"]).name: s["sha256"] for s in one.sources}
    small = (sources / "b.jsonl").read_bytes()
    assert hashes["b.jsonl"] == hashlib.sha256(small).hexdigest()
    assert hashes["a.jsonl"].endswith(f"-{-(-(sources / 'a.jsonl').stat().st_size // 1000)}")


def test_a_run_over_a_source_of_another_hash_is_not_resumed(sources, tmp_path):
    out = tmp_path / "out"
    fmtkit.convert(sources, "intel", out, hash="always")
    fmtkit.convert(sources, "intel", out, hash="always", resume=True)
    data = (sources / "a.jsonl").read_bytes()
    (sources / "a.jsonl").write_bytes(data.replace(b"q77", b"q78"))
    with pytest.raises(ResumeError, match="sources"):
        fmtkit.convert(sources, "intel", out, hash="always", resume=True)


def test_a_file_that_shrinks_or_grows_before_it_is_hashed_is_named(tmp_path):
    path = tmp_path / "a.jsonl"
    path.write_bytes(lines([INTEL]))
    [source] = open_sources(str(path))
    path.write_bytes(lines([INTEL, INTEL]))
    with pytest.raises(SourceError, match=r"a\.jsonl: it changed since it was listed"):
        digest_of_range(source.reader.location, 0, 10)
