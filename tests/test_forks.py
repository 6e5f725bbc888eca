"""In a forked process fmtkit reads, or says at once how to start the process instead."""

import os
import re
import select
import signal
import subprocess
import sys
from collections.abc import Callable

import polars as pl
import pyarrow as pa
import pytest
from runs import INTEL, lines

import fmtkit
from fmtkit.core import forks
from fmtkit.core.errors import ForkedError

ROWS = [INTEL] * 3
CANONICAL = pa.table({"messages": [[{"role": "user", "content": "Hi"}]]})
SPAWN = re.compile(r'multiprocessing_context="spawn"')


def in_a_fork(work: Callable[[], object], seconds: float = 60.0) -> str:
    """Return the result of something in a forked child, or its error; it is killed where it hangs."""
    here, there = os.pipe()
    child = os.fork()
    if not child:
        try:
            said = repr(work())
        except BaseException as error:  # noqa: BLE001 - the parent looks at it
            said = f"{type(error).__name__}: {error}"
        os.write(there, said.encode())
        os._exit(0)
    os.close(there)
    is_ready = select.select([here], [], [], seconds)[0]
    said = os.read(here, 100_000).decode() if is_ready else "it hangs"
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    os.close(here)
    return said


@pytest.fixture
def threads():
    """Let polars have its threads, as after any larger call."""
    pl.select(pl.arange(0, 100_000).shuffle(1).sort())
    frame = pl.DataFrame({"a": range(1000), "b": range(1000)})
    frame.group_by("a").agg(pl.col("b").sum())
    assert forks.has_pool()


@pytest.mark.parametrize(
    "call",
    [
        lambda: list(fmtkit.read(ROWS, "chatml.intel")),
        lambda: fmtkit.table(ROWS, "intel"),
        lambda: fmtkit.convert(ROWS, "intel"),
        lambda: fmtkit.validate(ROWS, "intel"),
        lambda: fmtkit.inspect(ROWS),
        lambda: fmtkit.render(CANONICAL, "chatml"),
    ],
)
@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_a_call_after_a_fork_says_how_to_start_the_process(threads, call):
    said = in_a_fork(call)
    assert said.startswith("ForkedError: this process was forked after polars had started")
    assert SPAWN.search(said)


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_an_iterator_of_the_parent_is_not_gone_on_with(monkeypatch):
    monkeypatch.setattr(forks, "has_pool", lambda: False)
    rows = fmtkit.read(iter([*ROWS]), "intel")
    assert next(rows).num_rows == 3
    said = in_a_fork(lambda: next(rows))
    assert said.startswith("ForkedError: this process was forked from the one that began to read")


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_a_fork_of_a_fork_has_no_threads_either(threads):
    said = in_a_fork(lambda: in_a_fork(lambda: fmtkit.table(ROWS, "intel")))
    assert "ForkedError" in said


def test_the_parent_reads_on_after_a_fork(threads):
    assert in_a_fork(lambda: 1) == "1"
    assert fmtkit.table(ROWS, "intel").num_rows == 3


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_a_data_loader_that_forks_shows_the_error(threads):
    torch = pytest.importorskip("torch.utils.data")

    class Rows(torch.IterableDataset):
        def __iter__(self):
            yield from (batch.num_rows for batch in fmtkit.read(ROWS, "intel"))

    with pytest.raises(ForkedError, match=SPAWN.pattern):
        list(torch.DataLoader(Rows(), num_workers=1, multiprocessing_context="fork"))


SPAWNED = """
import sys
import torch.utils.data
import fmtkit

class Rows(torch.utils.data.IterableDataset):
    def __iter__(self):
        yield from (batch.num_rows for batch in fmtkit.read(sys.argv[1], "chatml.intel"))

if __name__ == "__main__":
    alone = list(Rows())
    loader = torch.utils.data.DataLoader(
        Rows(), batch_size=None, num_workers=1, multiprocessing_context="spawn"
    )
    assert list(loader) == alone == [3]
"""


@pytest.mark.slow
def test_a_data_loader_that_spawns_reads(tmp_path):
    pytest.importorskip("torch.utils.data")
    script, source = tmp_path / "script.py", tmp_path / "rows.jsonl"
    script.write_text(SPAWNED)
    source.write_bytes(lines(ROWS))
    subprocess.run([sys.executable, script, source], check=True, timeout=120)
