import errno
import hashlib
import json
import os
import resource
import subprocess
from contextlib import contextmanager

import pytest

from fmtkit.core.atomic import PartialFile, partial_name, write_json, writing
from fmtkit.core.errors import OutputExistsError, WriteError


@contextmanager
def files_of_at_most(size):
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@pytest.fixture
def tiny_disk(tmp_path):
    folder = tmp_path / "disk"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", folder]
    if os.geteuid() or subprocess.run(mount, check=False, capture_output=True).returncode:
        pytest.skip("mounting a tmpfs needs root")
    yield folder
    subprocess.run(["umount", folder], check=True)


def test_a_file_has_its_name_only_when_it_is_whole(tmp_path):
    path = tmp_path / "a"
    file = PartialFile(path, hashed=True)
    file.write(b"one ")
    assert [p.name for p in tmp_path.iterdir()] == [".a.partial"]
    file.write(memoryview(b"two"))
    file.publish()
    assert [p.name for p in tmp_path.iterdir()] == ["a"]
    assert path.read_bytes() == b"one two"
    written = file.written(2)
    assert (written.rows, written.bytes) == (2, 7)
    assert written.sha256 == hashlib.sha256(b"one two").hexdigest()


def test_a_published_file_takes_the_place_of_the_one_before(tmp_path):
    path = tmp_path / "a"
    path.write_bytes(b"old")
    file = PartialFile(path)
    file.write(b"new")
    assert path.read_bytes() == b"old"
    file.publish()
    assert path.read_bytes() == b"new"


def test_a_discarded_file_leaves_nothing_and_what_was_published_stays(tmp_path):
    file = PartialFile(tmp_path / "a")
    file.discard()
    file.discard()
    assert not [*tmp_path.iterdir()]
    file = PartialFile(tmp_path / "a")
    file.publish()
    file.discard()
    assert [p.name for p in tmp_path.iterdir()] == ["a"]


def test_what_a_killed_run_left_is_replaced(tmp_path):
    partial_name(tmp_path / "a").write_bytes(b"left from a run that was killed")
    file = PartialFile(tmp_path / "a")
    file.write(b"x")
    file.publish()
    assert (tmp_path / "a").read_bytes() == b"x"


def test_a_resumed_file_keeps_its_beginning(tmp_path):
    file = PartialFile(tmp_path / "a")
    file.write(b"kept, lost")
    file.leave()
    file = PartialFile(tmp_path / "a", resume_at=4)
    file.write(b"!")
    file.publish()
    assert (tmp_path / "a").read_bytes() == b"kept!"


def test_of_two_runs_to_one_output_the_later_wins_and_the_earlier_says_so(tmp_path):
    first, second = PartialFile(tmp_path / "a"), PartialFile(tmp_path / "a")
    first.write(b"first")
    second.write(b"second")
    with pytest.raises(WriteError, match="being written by another run"):
        first.publish()
    first.discard()
    second.publish()
    assert (tmp_path / "a").read_bytes() == b"second"


def test_a_limit_of_file_sizes_is_one_clear_line(tmp_path):
    file = PartialFile(tmp_path / "a")
    with files_of_at_most(1000), pytest.raises(WriteError) as caught:
        file.write(b"x" * 5000)
    file.discard()
    assert str(caught.value) == (
        f"cannot write {tmp_path / 'a'}: File too large; "
        "raise the limit of file sizes (ulimit -f) or write a folder of shards"
    )
    assert isinstance(caught.value, OSError)
    assert caught.value.exit_code == 3
    assert not [*tmp_path.iterdir()]


def test_a_full_disk_is_one_clear_line_and_leaves_nothing(tiny_disk):
    file = PartialFile(tiny_disk / "a")
    with pytest.raises(WriteError, match="No space left on device; free some space and run again"):
        file.write(b"x" * 100_000)
    file.discard()
    assert not [*tiny_disk.iterdir()]


def test_a_read_only_folder_is_one_clear_line(tiny_disk):
    subprocess.run(["mount", "-o", "remount,ro", tiny_disk], check=True)
    with pytest.raises(
        WriteError, match="Read-only file system; choose a folder that you may write"
    ):
        PartialFile(tiny_disk / "a")


def test_a_folder_that_is_a_file_is_one_clear_line(tmp_path):
    (tmp_path / "a").touch()
    with pytest.raises(WriteError, match="a part of this path is a file"):
        PartialFile(tmp_path / "a" / "b")


def test_an_error_of_ours_passes_as_it_is(tmp_path):
    with pytest.raises(OutputExistsError, match=r"^there$"), writing(tmp_path):
        raise OutputExistsError("there")
    with pytest.raises(WriteError, match="nothing was left"), writing(tmp_path):
        raise OSError(errno.EIO, os.strerror(errno.EIO))


def test_json_is_written_for_people_too(tmp_path):
    write_json(tmp_path / "a.json", {"größe": [1], "b": None})
    text = (tmp_path / "a.json").read_text()
    assert json.loads(text) == {"größe": [1], "b": None}
    assert "größe" in text
    assert text.endswith("}\n")
    with pytest.raises(TypeError):
        write_json(tmp_path / "b.json", {"a": object()})
    assert [p.name for p in tmp_path.iterdir()] == ["a.json"]


MUCH = 3 << 20
"""Bytes of which writing and hashing are handed to threads."""


def test_much_and_little_is_written_in_the_order_of_the_calls(tmp_path):
    pieces = [b"a" * MUCH, b"b", b"c" * MUCH, b"d" * MUCH, b"e"]
    file = PartialFile(tmp_path / "a", hashed=True)
    for piece in pieces:
        file.write(piece)
    file.publish()
    whole = b"".join(pieces)
    assert (tmp_path / "a").read_bytes() == whole
    written = file.written(5)
    assert (written.bytes, written.sha256) == (len(whole), hashlib.sha256(whole).hexdigest())


def written_behind(file):
    file.write(b"b")
    file.sync()


@pytest.mark.parametrize("then", ["write", "sync", "publish", "leave"])
def test_what_cannot_be_written_on_a_thread_is_told_by_a_later_call(tmp_path, then):
    """What is written meanwhile waits behind it, so that the next write may not tell yet."""
    with files_of_at_most(MUCH // 2):
        file = PartialFile(tmp_path / "a", hashed=True)
        file.write(b"a" * MUCH)
        with pytest.raises(WriteError, match=r"cannot write .*/a: File too large; raise the limit"):
            written_behind(file) if then == "write" else getattr(file, then)()
        file.discard()
    assert list(tmp_path.iterdir()) == []


def test_a_file_is_discarded_while_its_bytes_cannot_be_written(tmp_path):
    with files_of_at_most(MUCH // 2):
        file = PartialFile(tmp_path / "a")
        file.write(b"a" * MUCH)
        file.discard()
    assert list(tmp_path.iterdir()) == []
