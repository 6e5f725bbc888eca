"""Run a folder sink over fixed blocks, and kill it; a script for test_folder_sink.py.

    killed_runs.py OUT
        one run, resumed if there is something to resume
    killed_runs.py FOLDER STEP AGAIN
        for every STEP-th event of a run, one that is killed there, then resumed (and killed at the
        event AGAIN of that, and resumed), compared with an undisturbed one; prints how many events
    killed_runs.py FOLDER STEP AGAIN overwrite
        the same where each run overwrites another output
    killed_runs.py FOLDER STEP AGAIN file|reject BEFORE
        the same for an output that is one file, or for a run that ends without rows; BEFORE says
        what was there: nothing, rows, or rows and bad (with a quarantine)

An event is what Python reports to audit hooks (open, rename, remove, mkdir, rmdir), and each write.
"""

import hashlib
import json
import os
import shutil
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
from kills import Kills

from fmtkit.core.atomic import PartialFile
from fmtkit.core.codes import Reject
from fmtkit.core.errors import ResumeError
from fmtkit.writing import formats, quarantine
from fmtkit.writing.folder_sink import FolderSink, ResumePoint, find_resume
from fmtkit.writing.formats import encode
from fmtkit.writing.sinks import Closing, FileSink, RunState

FINGERPRINT = {"sources": [{"path": "a", "sha256": "0"}], "options": {}}
BLOCKS = [(source, block) for source in range(2) for block in range(5)]
KILLS = Kills(("open", "os.rename", "os.remove", "os.mkdir", "os.rmdir", "os.truncate"))
WHOLE_WRITE = PartialFile.write


def rows(place: tuple[int, int], split: str, count: int) -> pa.Table:
    return pa.table({"text": [f"{place} {split} {i}" * 20 for i in range(count)]})


def blocks() -> dict:
    """Return what each block becomes; some have no row for validation, some no bad row."""
    out = {}
    for number, place in enumerate(BLOCKS):
        train = encode(rows(place, "train", 20), formats.find("parquet"), "none")
        validation = encode(rows(place, "validation", number % 3), formats.find("parquet"), "none")
        bad = [Reject(number, 1, "json_syntax", None, "no JSON", b"{" * number)] * (number % 2)
        out[place] = (train, validation, quarantine.encode("a", bad))
    return out


def find(out: Path) -> ResumePoint | None:
    """Find where to go on; what another run has left is overwritten."""
    try:
        return find_resume(out, FINGERPRINT)
    except ResumeError:
        return None


def run(out: Path, data: dict, pause: float = 0.0) -> None:
    """Run to the end from wherever the last one stopped."""
    resume = find(out)
    if resume is not None and resume.is_complete:
        return
    sink = FolderSink(
        out, "parquet", FINGERPRINT, resume=resume, shard_bytes=20_000, overwrite=resume is None
    )
    done = resume.state.get("done", 0) if resume else 0
    start = BLOCKS.index(resume.next_block) if done and done < len(BLOCKS) else done
    assert start == done
    for number, place in enumerate(BLOCKS[start:], start=start + 1):
        train, validation, bad = data[place]
        sink.quarantine(bad)
        sink.write(train)
        sink.write(validation, "validation")
        following = BLOCKS[number] if number < len(BLOCKS) else (2, 0)
        state = {"done": number}
        sink.end_block(RunState(following, lambda s=state: s, lambda: {"k": "v"}))
        time.sleep(pause)
    sink.finish(
        Closing(report=lambda files: {"fmtkit": "0", "files": len(files)}, metadata={"k": "v"})
    )


def contents(folder: Path) -> dict[str, str]:
    """Return path -> hash of all that lies beside and below OUT."""
    return {
        str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def killed_at(event: int, work: Callable[[], None]) -> bool:
    """Work until its `event`-th event; say whether it came to that."""
    return KILLS.killed_at(event, work)


def half_written(file: PartialFile, chunk: bytes) -> None:
    """Write so that a kill may come in the middle."""
    KILLS.happens("write")
    view = memoryview(chunk)
    WHOLE_WRITE(file, view[: len(view) // 2])
    KILLS.happens("open")
    WHOLE_WRITE(file, view[len(view) // 2 :])


def write_other(out: Path) -> None:
    """Write an output of another fingerprint."""
    sink = FolderSink(out, "parquet", {"sources": []})
    sink.write(encode(rows((7, 7), "other", 3), formats.find("parquet"), "none"))
    sink.finish(Closing(report=lambda files: {"fmtkit": "0", "files": len(files)}))


def kill_everywhere(folder: Path, step: int, again: int, *, overwrites: bool) -> int:
    data = blocks()
    run(folder / "calm" / "out", data)
    expected = contents(folder / "calm")
    event, out = 1, folder / "killed" / "out"
    while True:
        if overwrites:
            write_other(out)
        if not killed_at(event, lambda: run(out, data)):
            return event
        # What has its final name is whole at any moment.
        assert not out.exists() or (out / "report.json").exists()
        if again:
            killed_at(again, lambda: run(out, data))
        run(out, data)
        assert contents(folder / "killed") == expected, event
        shutil.rmtree(folder / "killed")
        event += step


def write_file(out: Path, size: int, *, bad: bytes, rejected: bool = False) -> None:
    """Write an output that is one file, over whatever is there."""
    sink = FileSink(out, "parquet", overwrite=True)
    sink.write(encode(rows((0, 0), "train", size), formats.find("parquet"), "none"))
    sink.quarantine(bad)
    report = {"fmtkit": "0", "size": size}
    if rejected:
        sink.reject(report)
        return
    sink.finish(Closing(report=lambda _: report))


def check_true(folder: Path) -> None:
    """Assert that a report that is there is of whole files that are there."""
    for path in folder.glob("[!.]*report.json"):
        for file in json.loads(path.read_text())["files"]:
            data = (folder / file["path"]).read_bytes()
            assert hashlib.sha256(data).hexdigest() == file["sha256"], (path, file)


def prepare(folder: Path, before: str) -> Path:
    """Write what was there before."""
    folder.mkdir(parents=True)
    out = folder / "out.parquet"
    if before != "nothing":
        write_file(out, 3, bad=b"old" if "bad" in before else b"")
    return out


def kill_files_everywhere(
    folder: Path, step: int, again: int, before: str, *, rejected: bool
) -> int:
    """Return the number of events of a run that is killed at each of them and repeated."""

    def write(out: Path, bad: bytes) -> None:
        write_file(out, 5, bad=bad, rejected=rejected)

    event = 0
    for bad in (b"new", b""):
        write(prepare(folder / "calm", before), bad)
        expected = contents(folder / "calm")
        for event in range(1, 1000, step):
            out = prepare(folder / "killed", before)
            whole = {out.read_bytes()} if out.exists() else set()
            if not rejected:
                whole.add((folder / "calm" / out.name).read_bytes())
            was_killed = killed_at(event, lambda: write(out, bad))  # noqa: B023 - called at once
            check_true(folder / "killed")
            assert not out.exists() or out.read_bytes() in whole, event
            assert out.exists() or before == "nothing", event
            if again and was_killed:
                killed_at(again, lambda: write(out, bad))  # noqa: B023
                check_true(folder / "killed")
            write(out, bad)
            assert contents(folder / "killed") == expected, event
            shutil.rmtree(folder / "killed")
            if not was_killed:
                break
        shutil.rmtree(folder / "calm")
    return event


if __name__ == "__main__":
    # A kill loses nothing that was written: only a power failure needs what is forced to the disk.
    os.fsync = lambda _: None
    if len(sys.argv) > 2:
        PartialFile.write = half_written
    if len(sys.argv) == 6:
        name, step, again, kind, before = sys.argv[1:]
        print(
            kill_files_everywhere(
                Path(name), int(step), int(again), before, rejected=kind == "reject"
            )
        )
    elif len(sys.argv) == 2:
        run(Path(sys.argv[1]), blocks(), pause=0.02)
    else:
        folder, step, again, *rest = sys.argv[1:]
        print(kill_everywhere(Path(folder), int(step), int(again), overwrites=bool(rest)))
