import os
import select
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from fmtkit.core.worker import Limits, Overrun, Worker, WorkerError

TARGET = """
import os
from fmtkit.core.errors import OptionError

def serve(setup):
    if setup.get("fails"):
        raise OptionError("this cannot work")
    print("printed by user code")
    def answer(item):
        if item == b"loop":
            while True:
                pass
        if item == b"die":
            os._exit(3)
        if item == b"pid":
            return str(os.getpid()).encode()
        if item == b"big":
            return b"x" * (1 << 20)
        if item == b"memory":
            try:
                return str(len(bytearray(1 << 31))).encode()
            except MemoryError:
                return b"refused"
        return item.upper()
    return answer
"""


@pytest.fixture
def worker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    (tmp_path / "served_here.py").write_text(TARGET)
    monkeypatch.syspath_prepend(str(tmp_path))
    made = Worker("served_here:serve", {}, Limits(seconds=1, memory=1 << 28, answer=1 << 19))
    yield made
    made.close()


def test_items_are_answered_in_order_by_one_long_lived_process(worker):
    assert worker.answer([b"a", b"b"]) == [b"A", b"B"]
    assert worker.answer([b"pid"]) == worker.answer([b"pid"])


def test_an_item_that_takes_too_long_is_the_only_one_without_an_answer(worker):
    answers = worker.answer([b"a", b"loop", b"b"])
    assert answers == [b"A", Overrun("no answer within 1 seconds"), b"B"]


def test_a_process_that_dies_costs_one_item(worker):
    first, second, third = worker.answer([b"a", b"die", b"b"])
    assert (first, third) == (b"A", b"B")
    assert isinstance(second, Overrun)


@pytest.mark.slow
def test_a_frozen_process_that_takes_nothing_is_not_waited_for(worker):
    pid = int(worker.answer([b"pid"])[0])
    os.kill(pid, signal.SIGSTOP)
    first, second = worker.answer([b"a" * (1 << 22), b"b"])
    assert isinstance(first, Overrun)
    assert second == b"B"


def test_an_answer_that_is_too_long_is_refused(worker):
    first, second = worker.answer([b"big", b"b"])
    assert isinstance(first, Overrun)
    assert second == b"B"


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux limits address space")
def test_what_is_collected_with_its_connection_closes_it_once(worker):
    def served():
        try:
            yield worker.answer([b"a"])
        finally:
            worker.close()

    rows = served()
    assert next(rows) == [b"A"]
    connection, taken = worker.connection, worker.connection.fileno()
    # The collector's order is any: here the connection's finalizer comes before the generator's.
    connection.__del__()
    with open(os.devnull, "rb") as other:  # noqa: PTH123 - the same number once more
        assert other.fileno() == taken
        rows.close()
        assert other.read() == b""


def test_memory_is_limited(worker):
    assert worker.answer([b"memory"]) == [b"refused"]


def test_what_user_code_prints_is_no_output_of_ours(worker, capfd):
    worker.answer([b"a"])
    captured = capfd.readouterr()
    assert captured.out == ""
    assert "printed by user code" in captured.err


def test_a_target_that_cannot_begin_says_why(tmp_path, monkeypatch):
    (tmp_path / "served_there.py").write_text(TARGET)
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(WorkerError, match="this cannot work"):
        Worker("served_there:serve", {"fails": True}, Limits()).answer([b"a"])


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux watches a foreign process")
def test_a_worker_that_lost_its_parent_ends_by_itself(tmp_path):
    (tmp_path / "served_alone.py").write_text(TARGET)
    program = (
        "from fmtkit.core.worker import *\n"
        "w = Worker('served_alone:serve', {}, Limits(seconds=1))\n"
        "print(w.answer([b'pid'])[0].decode(), flush=True)\n"
        "w.answer([b'loop'])\n"
    )
    environment = os.environ | {"PYTHONPATH": str(tmp_path)}
    parent = subprocess.Popen(
        [sys.executable, "-c", program], env=environment, stdout=subprocess.PIPE, text=True
    )
    assert parent.stdout is not None
    orphan = os.pidfd_open(int(parent.stdout.readline()))
    parent.send_signal(signal.SIGKILL)
    parent.wait()
    assert select.select([orphan], [], [], 20)[0]
