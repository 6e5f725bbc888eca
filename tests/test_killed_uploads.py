"""What a run to an object store leaves that is killed between two requests never blocks the next one."""

from collections.abc import Iterator, Mapping

import pytest

fsspec = pytest.importorskip("fsspec")
import pyarrow as pa  # noqa: E402

from fmtkit.core.errors import OutputExistsError  # noqa: E402
from fmtkit.core.urls import ObjectPath  # noqa: E402
from fmtkit.writing import destinations, formats  # noqa: E402
from fmtkit.writing.outputs import Destination  # noqa: E402
from fmtkit.writing.sinks import Closing  # noqa: E402

Files = Mapping[str, bytes]
REPORT = {"fmtkit": "0", "fingerprint": {}}
FIRST, CORRECTED = (5, b"bad\n"), (6, b"")
"""How many rows a run writes, and its quarantine."""


class KilledError(BaseException):
    """The process ends here."""


class Bucket:
    """fsspec's memory, that kills at the n-th request which changes something."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.system, self.left = fsspec.filesystem("memory"), 0
        for name in ("pipe_file", "rm"):
            monkeypatch.setattr(type(self.system), name, self._counted(name))

    def _counted(self, name: str):
        whole = getattr(type(self.system), name)

        def request(system, *args, **kwargs):
            self.left -= 1
            if self.left == 0:
                raise KilledError
            return whole(system, *args, **kwargs)

        return request

    @property
    def files(self) -> Files:
        return {name: self.system.cat(name) for name in self.system.find("/")}

    @files.setter
    def files(self, files: Files) -> None:
        self.system.store.clear()
        self.system.pseudo_dirs[:] = [""]
        for name, data in files.items():
            self.system.pipe_file(name, data)

    def write(
        self, out: str, rows: int, bad: bytes, *, kill_at: int = 0, overwrite: bool = False
    ) -> None:
        """Write an output as a command does; without rows it ends as one that has only bad rows."""
        suffix = "parquet" if "." in out else None
        place = Destination(ObjectPath(f"memory://{out}"), suffix)
        destinations.refuse(place, (), overwrite=overwrite, resume=False)
        sink = destinations.open_sink(place, "parquet", {"rows": rows}, overwrite=overwrite)
        made = formats.find("parquet")
        sink.quarantine(bad)
        self.left = kill_at
        if not rows:
            sink.reject(REPORT)
        else:
            table = pa.table({"text": [f"row {number}" for number in range(rows)]})
            sink.write(formats.encode(table, made, made.compressions[0]))
            sink.finish(Closing(report=lambda _: REPORT))
        self.left = 0

    def left_behind(self, before: Files, out: str, rows: int, bad: bytes) -> Iterator[Files]:
        """Yield what a run leaves that is killed at its first request, its second, ... until it lives."""
        for event in range(1, 50):
            self.files = before
            try:
                self.write(out, rows, bad, kill_at=event, overwrite=True)
            except KilledError:
                yield self.files
            else:
                return
        raise AssertionError("no run ended alive")


@pytest.fixture
def bucket(monkeypatch):
    made = Bucket(monkeypatch)
    yield made
    made.files = {}


def calm(bucket: Bucket, out: str, run: tuple[int, bytes], before: Files) -> Files:
    bucket.files = before
    bucket.write(out, *run, overwrite=True)
    return bucket.files


@pytest.mark.parametrize("killed", [FIRST, (0, b"bad\n")])
def test_the_first_output_is_begun_again(bucket, killed):
    whole = calm(bucket, "x.parquet", killed, {})
    left = [*bucket.left_behind({}, "x.parquet", *killed)]
    assert len(left) > 3
    for files in left:
        for run in (FIRST, CORRECTED):
            expected = calm(bucket, "x.parquet", run, {})
            bucket.files = files
            if killed[0] and files.items() >= whole.items():
                with pytest.raises(OutputExistsError, match="--overwrite replaces it"):
                    bucket.write("x.parquet", *run)
            bucket.write("x.parquet", *run, overwrite=files.items() >= whole.items())
            assert bucket.files == expected


@pytest.mark.parametrize("out", ["x.parquet", "x"])
@pytest.mark.parametrize("killed", [FIRST, (0, b"bad\n")])
def test_rows_that_were_being_replaced_are_replaced_by_the_next_run(bucket, out, killed):
    before = calm(bucket, out, (3, b"old\n"), {})
    expected = calm(bucket, out, CORRECTED, {})
    for left in bucket.left_behind(before, out, *killed):
        for again in (left, *bucket.left_behind(left, out, *killed)):  # killed once more
            bucket.files = again
            with pytest.raises(OutputExistsError, match="--overwrite"):
                bucket.write(out, *CORRECTED)
            assert bucket.files == again
            bucket.write(out, *CORRECTED, overwrite=True)
            assert bucket.files == expected


def test_a_run_that_is_killed_again_and_again_ends_at_last(bucket):
    expected = calm(bucket, "x.parquet", FIRST, {})
    for left in bucket.left_behind({}, "x.parquet", *CORRECTED):
        for again in bucket.left_behind(left, "x.parquet", *FIRST):
            bucket.files = again
            try:
                bucket.write("x.parquet", *FIRST)
            except OutputExistsError:  # it was whole already
                bucket.write("x.parquet", *FIRST, overwrite=True)
            assert bucket.files == expected


def test_what_somebody_else_put_there_stays(bucket):
    for left in bucket.left_behind({}, "x.parquet", *FIRST):
        bucket.files = {**left, "/x.parquet": b"mine"}
        for overwrite in (False, True):
            with pytest.raises(OutputExistsError, match="exists already"):
                bucket.write("x.parquet", *FIRST, overwrite=overwrite)
        assert bucket.files["/x.parquet"] == b"mine"


@pytest.mark.parametrize(
    ("out", "name"),
    [
        ("x.parquet", "/x.report.json"),
        ("x.parquet", "/.x.report.json.partial"),
        ("x.parquet", "/x.failed.report.json"),
        ("x", "/x.failed/report.json"),
        ("x", "/x.failed/quarantine.jsonl"),
    ],
)
def test_a_report_of_somebody_else_stays(bucket, out, name):
    before = calm(bucket, out, FIRST, {}) if "failed" in name else {}
    bucket.files = {**before, name: b"mine"}
    for run in (CORRECTED, (0, b"bad\n")):
        with pytest.raises(OutputExistsError, match="fmtkit did not write it"):
            bucket.write(out, *run, overwrite=True)
    assert bucket.files == {**before, name: b"mine"}


def test_another_file_of_the_same_stem_is_written_or_refused_by_name(bucket):
    arrow = Destination(ObjectPath("memory://x.arrow"), "arrow")
    for left in bucket.left_behind({}, "x.parquet", *FIRST):
        bucket.files = left
        if "/x.parquet" in left:
            with pytest.raises(
                OutputExistsError, match=r"is the report of x\.parquet, and would be"
            ):
                destinations.refuse(arrow, (), overwrite=True, resume=False)
        else:
            destinations.refuse(arrow, (), overwrite=False, resume=False)


def test_a_killed_first_output_is_no_finished_one_to_resume(bucket):
    place = Destination(ObjectPath("memory://x.parquet"), "parquet")
    for left in bucket.left_behind({}, "x.parquet", *FIRST):
        bucket.files = left
        destinations.refuse(place, (), overwrite=False, resume=True)
        found = destinations.find(place, {})
        assert (found.report is not None) == ("/x.report.json" in left)
