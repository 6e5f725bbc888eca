"""A vLLM server that is frozen by SIGSTOP: nothing waits for it for good, and what was trained is kept."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

pytest.importorskip("trl")
pytest.importorskip("requests", reason="TRL's client of vLLM needs requests")

import vllm_stub as vllm
from test_vllm_client import configured, packages  # noqa: F401 - a fixture

from fmtkit.core.errors import OptionError
from fmtkit.training.rl.rollouts import lifeline
from fmtkit.training.rl.rollouts.lifeline import Lifeline, ServerLostError, StoppedError
from fmtkit.training.rl.rollouts.server import Server
from fmtkit.training.rl.rollouts.settings import read_settings

SERVER = """
import os, signal, sys, time
sys.path.insert(0, {tests!r})
import vllm_stub as vllm

class Freezing(vllm.Stub):
    def answer(self, path, body):
        if path == {path!r} and [p for p, _ in self.calls].count(path) >= {after}:
            os.kill(os.getpid(), signal.SIGSTOP)
            time.sleep(1)  # other threads may run on for a moment
        return super().answer(path, body)

with vllm.serving(Freezing({model!r})) as port:
    print(port, flush=True)
    time.sleep(600)
"""


class Served:
    """A stand-in server in a process of its own, which freezes at a request after so many like it."""

    def __init__(self, model: str, path: str = "/v1/completions", after: int = 2) -> None:
        tests = str(Path(__file__).parent)
        code = SERVER.format(tests=tests, path=path, after=after, model=model)
        self.process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE)

    def __enter__(self) -> "Served":
        assert self.process.stdout is not None
        self.port = int(self.process.stdout.readline())
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.wait()

    @property
    def is_frozen(self) -> bool:
        stat = Path(f"/proc/{self.process.pid}/stat").read_text()
        return stat.rpartition(")")[2].split()[0] == "T"


def started(folder: Path, packages: Path, port: int, **trl) -> subprocess.Popen[str]:  # noqa: F811
    path = os.pathsep.join([str(packages), os.environ.get("PYTHONPATH", "")])
    return subprocess.Popen(
        [sys.executable, "-m", "fmtkit", "train", str(configured(folder, port, **trl))],
        env={**os.environ, "PYTHONPATH": path},
        stderr=subprocess.PIPE,
        text=True,
    )


def checkpoints(folder: Path) -> list[str]:
    return sorted(path.name for path in (folder / "run" / "checkpoints").glob("checkpoint-*"))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("path", "ahead"),
    [("/v1/completions", False), ("/v1/completions", True), ("/v1/load_lora_adapter", False)],
)
def test_a_frozen_server_ends_the_run_with_a_checkpoint(tmp_path, packages, path, ahead):  # noqa: F811
    with Served(str(tmp_path / "model"), path) as server:
        child = started(
            tmp_path, packages, server.port, vllm_server_timeout=3, async_prefetch=ahead
        )
        _, said = child.communicate(timeout=300)
        assert server.is_frozen
    assert child.returncode == 1, said
    assert "has been frozen for" in said
    assert "--resume continues from there" in said
    assert "Traceback" not in said
    assert checkpoints(tmp_path)[-1] in {"checkpoint-1", "checkpoint-2"}


@pytest.mark.slow
@pytest.mark.parametrize("ahead", [False, True])
def test_one_sigterm_ends_a_run_that_waits_for_a_frozen_server(tmp_path, packages, ahead):  # noqa: F811
    with Served(str(tmp_path / "model")) as server:
        child = started(
            tmp_path, packages, server.port, vllm_server_timeout=600, async_prefetch=ahead
        )
        while child.poll() is None and not (server.is_frozen and checkpoints(tmp_path) == []):
            time.sleep(0.1)
        if ahead:
            time.sleep(3)
        child.send_signal(signal.SIGTERM)
        _, said = child.communicate(timeout=300)
    assert child.returncode == 130, said
    assert "stopped while the vLLM server at" in said
    assert "Traceback" not in said
    assert len(checkpoints(tmp_path)) == 1


def test_a_request_has_a_time_limit_though_the_server_is_well(monkeypatch):
    monkeypatch.setattr(lifeline, "_LOOK", 0.01)
    with vllm.serving(vllm.Stub("a/m")) as port:
        line = Lifeline(Server(f"http://127.0.0.1:{port}"), 60, request_seconds=0.05)
        told = r"took more than 0\.05 s for a request; .* raise trl\.vllm_request_timeout"
        with pytest.raises(ServerLostError, match=told):
            line.run(lambda: time.sleep(30))


def test_a_signal_ends_the_waiting_for_an_answer_and_for_a_server_that_is_gone(monkeypatch):
    monkeypatch.setattr(lifeline, "_LOOK", 0.01)
    with vllm.serving(vllm.Stub("a/m")) as port:
        line = Lifeline(Server(f"http://127.0.0.1:{port}"), 600, is_stopped=lambda: True)
        with pytest.raises(StoppedError):
            line.run(lambda: time.sleep(30))

    def gone() -> None:
        raise ConnectionResetError

    with pytest.raises(StoppedError):
        line.run(gone)


def test_the_time_limit_is_above_nothing(tmp_path):
    assert read_settings({"vllm_request_timeout": 5}, run=tmp_path).vllm_request_timeout == 5
    with pytest.raises(
        OptionError, match=r"trl\.vllm_request_timeout: 0: give a number of seconds above 0"
    ):
        read_settings({"vllm_request_timeout": 0}, run=tmp_path)


def test_a_transfer_of_weights_that_never_ends_ends_the_process(tmp_path):
    code = (
        "import time\n"
        "from fmtkit.training.rl.rollouts.lifeline import Lifeline\n"
        "from fmtkit.training.rl.rollouts.server import Server\n"
        "line = Lifeline(Server('http://127.0.0.1:1'), 1, request_seconds=0.3)\n"
        "with line.watching('a transfer of weights'):\n    time.sleep(600)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "did not end a transfer of weights after 0.3 s" in done.stderr


@pytest.mark.slow
def test_every_request_of_trls_client_has_a_limit_and_is_not_repeated():
    import requests

    from fmtkit.training.rl.rollouts.lifeline import limit, limited_requests
    from fmtkit.training.rl.rollouts.server import ServerError

    with Served("a/m", "/health", 0) as server:
        url = f"http://127.0.0.1:{server.port}/health"
        session = requests.Session()
        limit(session, 0.5)
        with pytest.raises(requests.RequestException, match="Read timed out"):
            session.get(url)
        started_at = time.monotonic()
        with pytest.raises(ServerError, match="did not answer"), limited_requests(1):
            requests.get(url)
        assert time.monotonic() - started_at < 60
        assert server.is_frozen
