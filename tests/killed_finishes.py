"""Kill an output at each rename and removal; a script for test_killed_finishes.py.

    killed_finishes.py FOLDER NAME [NAME ...]

For each NAME and n = 1, 2, ... until a run ends alive: the run to OUT NAME is killed before its n-th rename or removal, and
then, each over what that left, the same run, one of other rows, and one to a file of the same stem go to
their ends. Nothing is asked to be overwritten. Prints how many runs were killed.
"""

import os
import shutil
import sys
from pathlib import Path

import pyarrow as pa
from kills import Kills

from fmtkit.core.errors import FmtkitError
from fmtkit.writing import destinations, formats
from fmtkit.writing.outputs import Destination
from fmtkit.writing.sinks import Closing, RunState

KILLS = Kills(("os.rename", "os.remove", "os.rmdir"))
RUNS = {"same": (5, b"bad\n"), "corrected": (6, b"")}
"""How many rows each writes, and its quarantine."""


def write(out: Path, rows: int, bad: bytes, *, overwrite: bool) -> None:
    """Write an output as a command does."""
    suffix = out.suffix.removeprefix(".")
    place = Destination(out, suffix or None)
    destinations.refuse(place, (), overwrite=overwrite, resume=False)
    sink = destinations.open_sink(place, suffix or "parquet", {"rows": rows}, overwrite=overwrite)
    made = formats.find(suffix or "parquet")
    table = pa.table({"text": [f"row {number}" for number in range(rows)]})
    sink.write(formats.encode(table, made, made.compressions[0]))
    sink.quarantine(bad)
    sink.end_block(RunState((1, 0), dict, dict, ends_task=True))
    sink.finish(Closing(report=lambda _: {"fmtkit": "0"}))


def refusal(folder: Path, name: str, run: str, kill_at: int = 0, *, overwrite: bool = False) -> str:
    """Write; return the error, "killed", or nothing."""
    said = ""

    def work() -> None:
        nonlocal said
        try:
            write(folder / name, *RUNS[run], overwrite=overwrite)
        except FmtkitError as error:
            said = str(error)

    return "killed" if KILLS.killed_at(kill_at, work) else said


def contents(folder: Path) -> dict[str, bytes]:
    """Return path -> bytes of all that is there, hidden files too."""
    files = [path for path in sorted(folder.rglob("*")) if path.is_file()]
    return {str(path.relative_to(folder)): path.read_bytes() for path in files}


def main(root: Path, name: str) -> int:
    calm = {}
    for run in RUNS:
        folder = root / f"calm {run}"
        folder.mkdir()
        assert refusal(folder, name, run) == ""
        calm[run] = contents(folder)
    killed, again = root / "killed", root / "again"
    for event in range(1, 200):
        killed.mkdir()
        if refusal(killed, name, "same", event) == "":
            return event - 1
        is_finished = contents(killed).items() >= calm["same"].items()
        for run in RUNS:
            shutil.copytree(killed, again)
            said = refusal(again, name, run)
            if is_finished:  # as after a run that nobody killed
                assert said.endswith("exists already; --overwrite replaces it"), (event, said)
                said = refusal(again, name, run, overwrite=True)
            assert said == "", (event, run, said)
            assert contents(again) == calm[run], (event, run, [*contents(again)])
            shutil.rmtree(again)
        if "." in name:
            check_another(killed, name, event)
        check_foreign(killed, name, event)
        shutil.rmtree(killed)
    raise AssertionError("no run ended alive")


def check_another(killed: Path, name: str, event: int) -> None:
    """A file of the same stem has the same report: it is written, or refused as that of another OUT."""
    again = killed.with_name("again")
    shutil.copytree(killed, again)
    other = str(Path(name).with_suffix(".arrow"))
    said = refusal(again, other, "corrected")
    meant = f"is the report of {name}, and would be that of {other} too; give OUT another name"
    assert said == "" or said.endswith(meant), (event, said)
    kept = name if said else other
    assert {kept, f"{Path(name).stem}.report.json"} <= contents(again).keys(), event
    assert refusal(again, kept, "same", overwrite=True) == "", event
    shutil.rmtree(again)


def check_foreign(killed: Path, name: str, event: int) -> None:
    """What somebody else puts there stays."""
    place = killed / name
    if place.is_dir():
        place /= "mine"
    place.write_bytes(b"mine")
    for overwrite in (False, True):
        said = refusal(killed, name, "same", overwrite=overwrite)
        assert "exists already" in said or "is a file" in said, (event, said)
        assert place.read_bytes() == b"mine", event


if __name__ == "__main__":
    # A kill loses nothing that was written: only a power failure needs what is forced to the disk.
    os.fsync = lambda _: None
    for given in sys.argv[2:]:
        place = Path(sys.argv[1]) / given
        place.mkdir()
        print(main(place, given))
