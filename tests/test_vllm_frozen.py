"""A vLLM server that is frozen, completely or in a worker: nothing waits for it for good, and what was
trained is kept."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from threading import Event

import pytest

pytest.importorskip("trl")
pytest.importorskip("requests", reason="TRL's client of vLLM needs requests")

import vllm_stub as vllm
from test_vllm_client import configured, packages  # noqa: F401 - a fixture

from fmtkit.core.errors import OptionError
from fmtkit.training.vllm import lifeline
from fmtkit.training.vllm.lifeline import Lifeline, ServerLostError, StoppedError
from fmtkit.training.vllm.rollout_settings import read_settings
from fmtkit.training.vllm.server_state import VllmServer

SERVER = """
import os, signal, sys, time
sys.path.insert(0, {tests!r})
import vllm_stub as vllm

class Freezing(vllm.Stub):
    def answer(self, path, body):
        if path == {path!r} and [p for p, _ in self.calls].count(path) >= {after}:
            if {only_worker}:
                time.sleep(600)
            os.kill(os.getpid(), signal.SIGSTOP)
            time.sleep(1)  # other threads may run on for a moment
        return super().answer(path, body)

with vllm.serving(Freezing({model!r})) as port:
    print(port, flush=True)
    time.sleep(600)
"""


class Served:
    """A stand-in server in a process of its own, which freezes at a request after so many like it.

    If only its worker freezes, it still answers all other requests.
    """

    def __init__(
        self,
        model: str,
        path: str = "/v1/completions",
        after: int = 2,
        *,
        only_worker: bool = False,
    ) -> None:
        tests = str(Path(__file__).parent)
        code = SERVER.format(
            tests=tests, path=path, after=after, model=model, only_worker=only_worker
        )
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
    ("path", "ahead", "only_worker"),
    [
        ("/v1/completions", False, False),
        ("/v1/completions", True, False),
        ("/v1/load_lora_adapter", False, False),
        ("/v1/completions", False, True),
    ],
)
def test_a_frozen_server_ends_the_run_with_a_checkpoint(
    tmp_path,
    packages,  # noqa: F811
    path,
    ahead,
    only_worker,
):
    with Served(str(tmp_path / "model"), path, only_worker=only_worker) as server:
        child = started(
            tmp_path, packages, server.port, vllm_server_timeout=3, async_prefetch=ahead
        )
        _, said = child.communicate(timeout=300)
        assert server.is_frozen != only_worker
    assert child.returncode == 1, said
    assert "has been frozen for" in said
    assert ("computes no token" in said) == only_worker
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
    monkeypatch.setattr(lifeline, "LOOK_SECONDS", 0.01)
    with vllm.serving(vllm.Stub("a/m")) as port:
        line = Lifeline(VllmServer(f"http://127.0.0.1:{port}"), 60, request_seconds=0.05)
        told = r"took more than 0\.05 s for a request; .* raise trl\.vllm_request_timeout"
        with pytest.raises(ServerLostError, match=told):
            line.run(lambda: time.sleep(30))


class Stalled(vllm.Stub):
    """A server that answers no request for a token, unless `answers`; `seen` is set at the third one.

    With `moves`, every second look at the metrics finds that it has generated a token for others.
    """

    def __init__(self, *, answers: bool = False, moves: bool = False) -> None:
        super().__init__("a/m")
        self.answers, self.moves = answers, moves
        self.looks, self.tokens = 0, 1
        self.seen, self.over = Event(), Event()

    def get(self, path):
        if path == "/metrics" and self.moves:
            self.looks += 1
            self.tokens = 1 + self.looks // 2
        return super().get(path)

    def complete(self, body):
        if [path for path, _ in self.calls].count("/v1/completions") == 3:
            self.seen.set()
        if not self.answers:
            self.over.wait(60)
        return 200, {"choices": []}


def waited(stub: Stalled, patch: pytest.MonkeyPatch, **limits: float) -> bool:
    """Wait for an answer that comes once the server was asked for a token three times."""
    for name, seconds in (("LOOK_SECONDS", 0.01), ("PROBE_SECONDS", 0.01)):
        patch.setattr(lifeline, name, seconds)
    patch.setattr(lifeline, "TOKEN_ANSWER", 60 if stub.answers else 0.05)
    with vllm.serving(stub) as port:
        line = Lifeline(VllmServer(f"http://127.0.0.1:{port}"), 0, **limits)
        try:
            return line.run(lambda: stub.seen.wait(60))
        finally:
            stub.over.set()


def test_a_server_whose_worker_is_frozen_is_lost(monkeypatch):
    told = r"has been frozen for .* \(it answers /health, but computes no token\)"
    with pytest.raises(ServerLostError, match=told):
        waited(Stalled(), monkeypatch)


def test_a_server_that_computes_for_others_is_waited_for(monkeypatch):
    assert waited(Stalled(moves=True), monkeypatch)


def test_a_server_that_answers_a_request_for_one_token_is_waited_for(monkeypatch):
    stub = Stalled(answers=True)
    assert waited(stub, monkeypatch)
    assert stub.calls[0] == ("/v1/completions", {"model": "a/m", "prompt": [0], "max_tokens": 1})


@pytest.mark.parametrize("tokens", [None, 0], ids=["no metrics", "compiles at its first request"])
def test_only_the_time_limit_of_a_request_ends_the_wait_for(monkeypatch, tokens):
    stub = Stalled()
    stub.tokens = tokens
    with pytest.raises(ServerLostError, match=r"took more than 0\.3 s for a request"):
        waited(stub, monkeypatch, request_seconds=0.3)
    assert stub.calls == []


def test_a_signal_ends_the_waiting_for_an_answer_and_for_a_server_that_is_gone(monkeypatch):
    monkeypatch.setattr(lifeline, "LOOK_SECONDS", 0.01)
    with vllm.serving(vllm.Stub("a/m")) as port:
        line = Lifeline(VllmServer(f"http://127.0.0.1:{port}"), 600, is_stopped=lambda: True)
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
        "from fmtkit.training.vllm.lifeline import Lifeline\n"
        "from fmtkit.training.vllm.server_state import VllmServer\n"
        "line = Lifeline(VllmServer('http://127.0.0.1:1'), 1, request_seconds=0.3)\n"
        "with line.watching('a transfer of weights'):\n    time.sleep(600)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "did not end a transfer of weights after 0.3 s" in done.stderr


@pytest.mark.slow
def test_every_request_of_trls_client_has_a_limit_and_is_not_repeated():
    import requests

    from fmtkit.training.vllm.request_limits import limit, limited_requests
    from fmtkit.training.vllm.server_state import ServerError

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
