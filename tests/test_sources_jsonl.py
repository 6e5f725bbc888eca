"""Blocks of JSON lines: cut at line feeds, nothing lost, long lines never held."""

import gzip
import hashlib
import io
import json
import os
import subprocess
import sys
import tempfile
import zlib
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import fmtkit
from fmtkit.core.codes import RAW_BYTES
from fmtkit.core.errors import FmtkitError, SourceError
from fmtkit.sources.blocks import BLOCK_BYTES, MAX_LINE_BYTES, JsonBlock
from fmtkit.sources.jsonl import blocks_of_lines, line_feeds
from fmtkit.sources.locations import local
from fmtkit.sources.opening import open_sources

BOM = b"\xef\xbb\xbf"


class Dribble(io.RawIOBase):
    """A pipe: hands out as little as one byte at a time."""

    def __init__(self, data: bytes, most: int) -> None:
        self._file, self._most = io.BytesIO(data), most

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview) -> int:
        return self._file.readinto(memoryview(buffer)[: self._most])


def cut(
    data: bytes, block_bytes: int, limit: int = 1 << 20, most: int = 1 << 20
) -> list[JsonBlock]:
    return list(blocks_of_lines(Dribble(data, most), block_bytes, limit))


def zstd(data: bytes) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.CompressedOutputStream(sink, "zstd") as stream:
        stream.write(data)
    return sink.getvalue().to_pybytes()


@given(
    st.lists(st.sampled_from([b"\n", b"\r\n", b"{}", b"a", b"\xe2\x80\xa8", b"\0"])).map(b"".join),
    st.integers(1, 9),
    st.integers(1, 5),
)
def test_blocks_joined_are_the_file_and_are_cut_at_line_feeds(
    data: bytes, block_bytes: int, most: int
) -> None:
    blocks = cut(data, block_bytes, most=most)
    assert b"".join(block.data for block in blocks) == data
    assert all(block.data.endswith(b"\n") for block in blocks[:-1])
    lines = [1]
    for block in blocks:
        assert block.first_line == lines[-1]
        lines.append(block.first_line + block.data.count(b"\n"))
    assert [block.bytes_read for block in blocks] == list(
        np.cumsum([len(block.data) for block in blocks])
    )


@given(
    st.lists(st.sampled_from([b"\n", b"\n\n", b"{}", b"abc", BOM])).map(b"".join),
    st.integers(1, 12),
    st.integers(1, 12),
    st.booleans(),
)
def test_files_are_cut_as_pipes_are(
    data: bytes, block_bytes: int, limit: int, hashed: bool
) -> None:
    with tempfile.NamedTemporaryFile() as file:
        file.write(data)
        file.flush()
        location = local(Path(file.name))
        with location.bytes(hashed=hashed) as raw:
            found = list(blocks_of_lines(raw, block_bytes, limit))
        assert found == cut(data, block_bytes, limit)
        assert location.sha256() == hashlib.sha256(data).hexdigest()


def test_a_file_of_many_blocks_is_cut_as_a_pipe_is(tmp_path: Path) -> None:
    lengths = [10, 70_000, 300_000, 5, 100_000] * 20
    data = b"".join(b"x" * length + b"\n" for length in lengths)
    (tmp_path / "a.jsonl").write_bytes(data)
    for block_bytes in (100_000, 400_000):
        with local(tmp_path / "a.jsonl").bytes() as raw:
            found = list(blocks_of_lines(raw, block_bytes))
        assert found == cut(data, block_bytes, 1 << 24)


@given(st.binary(max_size=60), st.integers(1, 20), st.integers(1, 20), st.integers(1, 7))
def test_each_line_is_in_a_block_or_a_reject_whatever_the_block_size(
    data: bytes, block_bytes: int, limit: int, most: int
) -> None:
    found: list[tuple[int, bytes, int]] = []
    for block in cut(data, block_bytes, limit, most):
        for reject in block.rejects:
            assert block.data == b""
            assert reject.row == 0
            assert reject.code == "line_too_long"
            found.append((reject.line or 0, reject.raw[:limit], reject.raw_bytes or 0))
        for offset, line in enumerate(lines_of(block.data)):
            found.append((block.first_line + offset, line[:limit], len(line)))
    text = data.removeprefix(BOM) if min(block_bytes, limit + 1) >= 3 else data
    expected = [(n, line[:limit], len(line)) for n, line in enumerate(lines_of(text), 1)]
    assert found == expected


def lines_of(data: bytes) -> list[bytes]:
    lines = data.split(b"\n")
    return lines if lines[-1] else lines[:-1]


def test_a_line_of_20_mb_is_a_reject_with_its_beginning_and_its_length() -> None:
    data = b'{"a": 1}\n\n' + b"x" * (20 << 20) + b'\n{"b": 2}'
    blocks = cut(data, BLOCK_BYTES, MAX_LINE_BYTES)
    assert [block.data for block in blocks] == [b'{"a": 1}\n\n', b"", b'{"b": 2}']
    assert [block.first_line for block in blocks] == [1, 3, 4]
    (reject,) = blocks[1].rejects
    assert (reject.line, reject.row, reject.code) == (3, 0, "line_too_long")
    assert reject.raw == b"x" * RAW_BYTES
    assert reject.raw_bytes == 20 << 20


def test_a_line_longer_than_a_block_but_within_the_limit_is_kept_whole() -> None:
    line = b'{"a": "' + b"x" * (10 << 20) + b'"}\n'
    blocks = cut(line + b"{}\n" + line, BLOCK_BYTES, MAX_LINE_BYTES)
    assert b"".join(block.data for block in blocks) == line + b"{}\n" + line
    assert not any(block.rejects for block in blocks)


def test_the_limit_counts_the_line_without_its_line_feed() -> None:
    at, beyond = cut(b"12345\n123456\n", 100, 5)
    assert at.data == b"12345\n"
    assert beyond.rejects[0].raw_bytes == 6


def test_a_long_last_line_without_line_feed_has_its_true_length() -> None:
    (block,) = cut(b"123456", 100, 5)
    assert block.rejects[0].raw_bytes == 6


def test_a_byte_order_mark_is_no_part_of_the_first_line() -> None:
    (block,) = cut(BOM + b"{}\r\n", 100)
    assert block.data == b"{}\r\n"
    assert block.bytes_read == 7
    assert cut(BOM, 100) == []


def test_an_empty_file_has_no_blocks(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_bytes(b"")
    (source,) = open_sources(tmp_path / "a.jsonl")
    assert list(source.blocks()) == []
    assert source.first_block() is None
    assert source.sha256() == hashlib.sha256().hexdigest()


def test_line_feeds_are_counted_over_pieces() -> None:
    data = os.urandom(1 << 20)
    assert line_feeds(data) == data.count(b"\n")


ROWS = b"".join(b'{"a": %d}\n' % i for i in range(3000))


# By name, since gzip's header holds the time: pytest's workers would collect tests of different names.
PACKED = {
    "a.jsonl": ROWS,
    "a.jsonl.gz": gzip.compress(ROWS),
    "members.jsonl.gz": gzip.compress(ROWS[:999]) + gzip.compress(ROWS[999:]),
    "padded.jsonl.gz": gzip.compress(ROWS) + b"\0" * 512,
    "a.jsonl.zst": zstd(ROWS),
    "frames.jsonl.zst": zstd(ROWS[:999]) + zstd(ROWS[999:]),
    "skippable.jsonl.zst": b"\x50\x2a\x4d\x18\x04\0\0\0skip" + zstd(ROWS),
    "gzip_without_suffix.jsonl": gzip.compress(ROWS),
    "plain_with_suffix.jsonl.gz": ROWS,
}


@pytest.mark.parametrize("name", PACKED)
def test_compression_is_told_by_the_bytes(tmp_path: Path, name: str) -> None:
    packed = PACKED[name]
    (tmp_path / name).write_bytes(packed)
    (source,) = open_sources(tmp_path / name)
    blocks = list(source.blocks())
    assert b"".join(block.data for block in blocks) == ROWS
    assert blocks[-1].bytes_read == source.size == len(packed)
    assert source.sha256() == hashlib.sha256(packed).hexdigest()


DAMAGED = {
    "cut.jsonl.gz": gzip.compress(ROWS)[:-9],
    "no_trailer.jsonl.gz": gzip.compress(ROWS)[:-3],
    "second_member_cut.jsonl.gz": gzip.compress(ROWS) + gzip.compress(ROWS)[:40],
    "garbage_after.jsonl.gz": gzip.compress(ROWS) + b"garbage",
    "cut.jsonl.zst": zstd(ROWS)[:-2],
    "garbage_after.jsonl.zst": zstd(ROWS) + b"garbage",
}


@pytest.mark.parametrize("name", DAMAGED)
def test_a_damaged_compressed_file_is_never_silently_short(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_bytes(DAMAGED[name])
    (source,) = open_sources(tmp_path / name)
    with pytest.raises(SourceError, match=name) as caught:
        list(source.blocks())
    assert caught.value.exit_code == 3


def test_a_flipped_bit_in_gzip_is_found(tmp_path: Path) -> None:
    packed = bytearray(gzip.compress(ROWS, compresslevel=0))
    packed[len(packed) // 2] ^= 1
    (tmp_path / "a.jsonl.gz").write_bytes(packed)
    with pytest.raises(SourceError, match="damaged"):
        list(open_sources(tmp_path / "a.jsonl.gz")[0].blocks())


def test_resuming_gives_the_blocks_from_an_index_on(tmp_path: Path) -> None:
    row = b'{"a": "' + b"x" * 1000 + b'"}\n'
    (tmp_path / "a.jsonl").write_bytes(row * 20_000)
    (source,) = open_sources(tmp_path / "a.jsonl")
    blocks = list(source.blocks())
    assert len(blocks) > 1
    assert list(source.blocks(start=1)) == blocks[1:]
    assert list(source.blocks(start=len(blocks))) == []
    assert source.first_block() == blocks[0]


def test_the_hash_is_that_of_the_file_however_far_it_was_read(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_bytes(ROWS)
    expected = hashlib.sha256(ROWS).hexdigest()
    for hashed in (True, False):
        (source,) = open_sources(tmp_path / "a.jsonl", hashed=hashed)
        assert source.sha256() == expected
        (source,) = open_sources(tmp_path / "a.jsonl", hashed=hashed)
        next(source.blocks())
        assert source.sha256() == expected


READ_STDIN = """
import sys
from fmtkit.sources.opening import open_sources
(source,) = open_sources("-")
first = source.first_block()
blocks = list(source.blocks())
assert blocks[0] is first
sys.stdout.buffer.write(b"".join(block.data for block in blocks))
print(source.name, source.kind, source.size, source.sha256(), file=sys.stderr)
"""


@pytest.mark.parametrize("pack", [bytes, gzip.compress, zstd])
def test_stdin_is_read_after_a_look_at_its_first_block(pack: type[bytes]) -> None:
    packed = pack(ROWS)
    done = subprocess.run(
        [sys.executable, "-c", READ_STDIN], input=packed, capture_output=True, check=True
    )
    assert done.stdout == ROWS
    assert done.stderr.decode().split() == ["-", "json", "None", hashlib.sha256(packed).hexdigest()]


def test_importing_sources_loads_no_heavy_package() -> None:
    code = (
        "import sys, fmtkit.sources.opening; "
        "print(sorted({'datasets', 'pandas', 'fsspec', 'torch'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_zlib_streams_are_not_taken_for_gzip(tmp_path: Path) -> None:
    (tmp_path / "a.dat").write_bytes(zlib.compress(ROWS))
    with pytest.raises(SourceError, match="not a supported kind of data"):
        open_sources(tmp_path / "a.dat")


LISTED = [
    [{"role": "user", "content": f"Hi [{i}]\n"}, {"role": "assistant", "content": "Ho"}]
    for i in range(3)
]


@pytest.mark.parametrize("end", ["\n", "\r\n", " \n\n"])
@pytest.mark.parametrize("name", ["rows.jsonl", "rows.json", "rows.jsonl.gz"])
def test_lines_that_are_lists_of_messages_are_rows(tmp_path, end, name):
    text = end.join(map(json.dumps, LISTED)).encode()
    path = tmp_path / name
    path.write_bytes(gzip.compress(text) if name.endswith("gz") else text)
    [source] = open_sources(str(path))
    records = source.first_block().records()
    found = [records.value(number) for number in range(len(records))]
    assert found == [({"messages": messages}, None) for messages in LISTED]


@pytest.mark.parametrize(
    ("column", "type"), [(("role", "content"), "openai"), (("from", "value"), "sharegpt")]
)
def test_lists_of_messages_are_found_whatever_their_keys_are_called(tmp_path, column, type):
    names = {"role": column[0], "content": column[1]}
    rows = [[{names[key]: value for key, value in m.items()} for m in row] for row in LISTED]
    path = tmp_path / "rows.jsonl"
    path.write_text("\n".join(map(json.dumps, rows)))
    assert fmtkit.inspect(str(path)).best_guess == type


@pytest.mark.parametrize("line", ["[1, 2]", '["a", "b"]', '[{"text": "a"}]', "[]"])
def test_lines_that_are_other_lists_are_no_rows(tmp_path, line):
    path = tmp_path / "rows.jsonl"
    path.write_text(f"{line}\n" * 3)
    with pytest.raises(FmtkitError, match="a row is a JSON object, not a list"):
        fmtkit.convert(str(path), None)


def test_a_line_that_is_cut_among_lists_of_messages_is_the_only_bad_row(tmp_path):
    lines = [json.dumps(row) for row in LISTED]
    path = tmp_path / "rows.jsonl"
    path.write_text("\n".join([lines[0], lines[1][:-1], lines[2], '{"messages": []}']))
    report = fmtkit.convert(str(path), "openai", out=tmp_path / "out.jsonl")
    assert (report.converted, report.reasons) == (2, {"json_syntax": 1, "empty_field": 1})
    rejects = [
        json.loads(line) for line in (tmp_path / "out.quarantine.jsonl").read_text().splitlines()
    ]
    assert [(reject["line"], reject["raw"]) for reject in rejects] == [
        (2, lines[1][:-1]),
        (4, '{"messages": []}'),
    ]
