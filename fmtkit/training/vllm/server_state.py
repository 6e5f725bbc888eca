"""A vLLM server, seen from the trainer: whether it is up, what it serves, and whether that fits the run.

Asked before TRL's client and the model are loaded; the endpoints are vLLM's own (`/health`, `/v1/models`,
`/server_info` in development mode).
"""

import json
import os
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from fmtkit.core import http_client
from fmtkit.core.data_classes import dataclass
from fmtkit.core.errors import OptionError
from fmtkit.training.building.callbacks import TrainingError
from fmtkit.training.planning.job import Job
from fmtkit.training.vllm.ready import RANGE, is_in_range
from fmtkit.training.vllm.rollout_settings import read_settings

HOST, PORT, TIMEOUT = "0.0.0.0", 8000, 240.0  # noqa: S104 - TRL's own defaults
_ANSWER_SECONDS = 10.0
_INFO_SECONDS = 120.0
"""vLLM answers the first `/server_info` with what a dozen programs say about the machine: 3 s on an idle one,
more than 10 s on a busy one."""
_PROGRESS = (
    "vllm:generation_tokens_total",
    "vllm:prompt_tokens_total",
    # The two counters stand still while the chunks of a long prompt are read; the cache fills up.
    "vllm:kv_cache_usage_perc",
)
"""The samples of `/metrics` that only change when the model computes."""
_LONGEST_PAUSE = 10.0
_PEFT_RANK = 8


class ServerError(TrainingError):
    """A server answered with an error, or not at all."""

    def __init__(self, message: str, status: int | None = None) -> None:
        super().__init__(message)
        self.status = status
        """The HTTP status; None without an answer."""


@dataclass(frozen=True)
class VllmServer:
    """The address of a server."""

    url: str

    def get(self, path: str, seconds: float = _ANSWER_SECONDS) -> Mapping[str, Any]:
        """Return the JSON object at a path; raises ServerError, also if the answer is something else."""
        text = self._ask(path, None, seconds)
        try:
            answer = json.loads(text)
        except ValueError:
            answer = None
        if not isinstance(answer, dict):
            raise ServerError(
                f"{self.url}{path} answered {text[:80]!r}, which is no JSON object: is it a vLLM server?"
            )
        return answer

    def post(self, path: str, body: Mapping[str, object], seconds: float = TIMEOUT) -> str:
        """Send JSON and return the text of the answer; raises ServerError unless the status is 200."""
        return self._ask(path, json.dumps(body).encode(), seconds)

    def is_up(self, seconds: float = _ANSWER_SECONDS) -> bool:
        """Return whether the server answers a health check within this number of seconds."""
        try:
            self._ask("/health", None, seconds)
        except ServerError:
            return False
        return True

    def progress(self, seconds: float = _ANSWER_SECONDS) -> tuple[str, ...] | None:
        """Return what the server has computed so far, to be compared; None where it does not say.

        `/health` does not ask the workers: it succeeds while they are frozen. A server that has generated
        no token yet does not say: on a busy machine it compiled for more than a minute at its first request.
        """
        try:
            text = self._ask("/metrics", None, seconds)
        except ServerError:
            return None
        lines = (line for line in text.splitlines() if line.startswith(_PROGRESS))
        samples = tuple(sorted(lines))
        has_generated = any(
            line.startswith(_PROGRESS[0]) and float(line.rpartition(" ")[2]) > 0 for line in samples
        )
        return samples if has_generated else None

    def generates(self, seconds: float) -> bool:
        """Return whether the server answers a request for one token; any status is an answer."""
        try:
            base = self.get("/v1/models")["data"][0]["id"]
            self.post("/v1/completions", {"model": base, "prompt": [0], "max_tokens": 1}, seconds)
        except ServerError as error:
            return error.status is not None
        return True

    def instance(self) -> str | None:
        """Return an identifier of this start of the server; None outside development mode."""
        try:
            instance_id = self.info().get("instance_id")
        except ServerError:
            return None
        return None if instance_id is None else str(instance_id)

    def info(self) -> Mapping[str, Any]:
        """Return the server's configuration as it resolved it; raises ServerError (404: not offered)."""
        answer = self.get("/server_info?config_format=json", _INFO_SECONDS)
        config = answer.get("vllm_config")
        if not isinstance(config, dict):
            raise ServerError(f"{self.url}/server_info holds no vllm_config: is it a vLLM server?")
        return config

    def _ask(self, path: str, body: bytes | None, seconds: float) -> str:
        method = "GET" if body is None else "POST"
        try:
            answer = http_client.request(method, self.url + path, body, seconds)
        except http_client.CallError as error:
            raise ServerError(str(error), error.status) from error
        return answer.content.decode("utf-8", "replace")


def address(trainer: Mapping[str, object]) -> VllmServer:
    """Return the server that the trainer's arguments name."""
    base = trainer.get("vllm_server_base_url")
    host, port = trainer.get("vllm_server_host") or HOST, trainer.get("vllm_server_port") or PORT
    url = str(base) if base else f"http://{host}:{port}"
    if not url.startswith(("http://", "https://")):
        raise OptionError(f"trl.vllm_server_base_url: {url} must begin with http:// or https://")
    return VllmServer(url.rstrip("/"))


def asks_server(trainer: Mapping[str, object]) -> bool:
    """Return whether the trainer's arguments let a server make the answers."""
    return trainer.get("use_vllm") is True and trainer.get("vllm_mode") == "server"


def start_timeout(trainer: Mapping[str, object]) -> float:
    """Return for how many seconds a server that does not answer yet is waited for."""
    seconds = trainer.get("vllm_server_timeout")
    return float(seconds) if isinstance(seconds, (int, float)) else TIMEOUT


def wait(
    server: VllmServer,
    seconds: float,
    *,
    say: Callable[[str], None],
    start: str,
    pause: Callable[[float], None] = time.sleep,
) -> None:
    """Wait until the server is up; raises ServerError after the time. `start` is how to start it."""
    begun, paused, step = time.monotonic(), 0.0, 1.0
    while not server.is_up():
        waited = max(paused, time.monotonic() - begun)
        if waited >= seconds:
            raise ServerError(
                f"no vLLM server at {server.url} after {waited:.0f} s (trl.vllm_server_timeout); start "
                f"it with: {start}"
            )
        if paused == 0:
            say(f"waiting up to {seconds:.0f} s for the vLLM server at {server.url}: {start}")
        step = min(step, seconds - waited)
        pause(step)
        paused += step
        step = min(step * 2, _LONGEST_PAUSE)
    if paused:
        say(f"the vLLM server is up after {max(paused, time.monotonic() - begun):.0f} s")


def check(
    server: VllmServer, model: str, *, rank: int | None, start: str, by_files: bool = False
) -> list[str]:
    """Raise OptionError for a server that cannot make this run's answers; return notes on it.

    `rank` is that of the adapter if only it is sent, None if all weights are sent: by NCCL, or by files.
    """
    served = server.get("/v1/models").get("data")
    if not isinstance(served, list) or not all(isinstance(entry, dict) for entry in served):
        raise ServerError(f"{server.url}/v1/models lists no models: is it a vLLM server?")
    names = {str(entry[key]) for entry in served for key in ("id", "root") if entry.get(key)}
    if not any(same_model(name, model) for name in names):
        raise OptionError(
            f"the vLLM server at {server.url} serves {', '.join(sorted(names))}, and base_model is "
            f"{model}; start it with: {start}"
        )
    try:
        info = server.info()
    except ServerError as error:
        if error.status != 404:
            raise
        raise OptionError(
            f"the vLLM server at {server.url} runs without VLLM_SERVER_DEV_MODE=1, which the transfer "
            f"of weights needs; start it with: {start}"
        ) from error
    if not by_files:
        _check_transfer(info, server, rank, start)
    notes = _version_notes(server)
    mode = _part(info, "model_config").get("logprobs_mode")
    if mode not in {None, "processed_logprobs"}:
        notes.append(
            f"the vLLM server reports {mode}: the importance ratio is off by the sampling temperature; "
            f"start it with: {start}"
        )
    return notes


def _version_notes(server: VllmServer) -> list[str]:
    """Return a note on a server of a version that the trainer's side was not made for."""
    try:
        version = str(server.get("/version").get("version"))
    except ServerError as error:
        if error.status != 404:
            raise
        return []
    if is_in_range(version):
        return []
    return [
        f"the vLLM server at {server.url} is vllm {version}, and TRL works with vllm{RANGE}: what it "
        "answers may be read wrongly"
    ]


def _check_transfer(
    info: Mapping[str, Any], server: VllmServer, rank: int | None, start: str
) -> None:
    if rank is None:
        if "weight_transfer_config" in info and info["weight_transfer_config"] is None:
            raise OptionError(
                f"the vLLM server at {server.url} takes no weights (--weight-transfer-config); start it "
                f"with: {start}"
            )
        return
    lora = info.get("lora_config")
    if not isinstance(lora, Mapping):
        raise OptionError(
            f"the vLLM server at {server.url} runs without --enable-lora, which trl.vllm_lora_sync "
            f"needs; start it with: {start}"
        )
    if lora.get("max_lora_rank", rank) < rank:
        raise OptionError(
            f"the vLLM server at {server.url} takes adapters up to rank {lora['max_lora_rank']}, and "
            f"lora_r is {rank}; start it with: {start}"
        )
    if lora.get("max_loras", 2) < 2:
        raise OptionError(
            f"the vLLM server at {server.url} holds one adapter at a time (--max-loras 1); two versions "
            f"meet at every transfer; start it with: {start}"
        )
    if _part(info, "parallel_config").get("data_parallel_size", 1) > 1:
        raise OptionError(
            f"the vLLM server at {server.url} has several copies of the model (--data-parallel-size), "
            "and an adapter reaches only one of them; use tensor_parallel_size, or leave out "
            "trl.vllm_lora_sync"
        )


def _part(info: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    part = info.get(name)
    return part if isinstance(part, Mapping) else {}


def same_model(served: str, wanted: str) -> bool:
    """Return whether two names mean one model: equal, one folder, or a hub id and its place in the cache."""
    if served == wanted:
        return True
    one, other = Path(served).expanduser(), Path(wanted).expanduser()
    if one.exists() and other.exists():
        return one.samefile(other)
    cached = {f"models--{name.replace('/', '--')}" for name in (served, wanted)}
    return bool(cached & {*one.parts, *other.parts})


def wait_for(job: Job) -> None:
    """Wait for the server of a job and check that it fits; do nothing if the job uses no server.

    Raises ServerError if it does not come up in time, OptionError if it serves something else.
    """
    if not asks_server(job.trainer):
        return
    there = address(job.trainer)
    start = f"fmtkit vllm-serve {job.run}/config.yaml"
    wait(there, start_timeout(job.trainer), say=_say, start=start)
    settings = read_settings(job.of_rollouts(), run=job.run)
    rank = _rank(job) if settings.vllm_lora_sync else None
    by_files = settings.vllm_sync == "file"
    for note in check(there, job.model, rank=rank, start=start, by_files=by_files):
        _say(f"note: {note}")


def _rank(job: Job) -> int:
    """Return the rank of the job's adapter."""
    rank = (job.peft or {}).get("r", _PEFT_RANK)
    return rank if isinstance(rank, int) else _PEFT_RANK


def _say(line: str) -> None:
    if os.environ.get("RANK", "0") == "0":
        print(line, file=sys.stderr)  # noqa: T201
