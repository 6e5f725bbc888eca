"""A stand-in for `vllm serve` as far as a trainer asks it: standard library, one process, a log of calls.

It answers as vLLM 0.31 does: adapters are loaded from their folder, an unknown model is 404, a second
load of a name is 400. Started anew it has another `instance_id` and has forgotten its adapters.
"""

import json
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any
from urllib.parse import urlsplit

from trl.generation.vllm_generation import DistributedBackend, VLLMGeneration


class Stub:
    """What the server knows, and what it was asked: (path, body) in order."""

    def __init__(self, model: str, **config: Any) -> None:
        self.model = model
        self.config: dict[str, Any] = {
            "instance_id": uuid.uuid4().hex[:5],
            "model_config": {"model": model, "logprobs_mode": "processed_logprobs"},
            "lora_config": {"max_lora_rank": 8, "max_loras": 2},
            "parallel_config": {"data_parallel_size": 1},
            "weight_transfer_config": None,
            **config,
        }
        self.adapters: dict[str, dict[str, Any]] = {}
        self.calls: list[tuple[str, dict[str, Any]]] = []
        self.tokens: int | None = 0
        """The tokens that it has generated, as `/metrics` says; None for a server without metrics."""
        self.version = "0.31.0"
        self.failing: dict[str, int] = {}
        """Path -> the status that it answers from now on."""

    def posts(self) -> list[str]:
        """Return what was posted, each with the adapter that it names."""
        return [
            f"{path.rpartition('/')[2]} {body.get('lora_name') or body.get('model')}"
            for path, body in self.calls
        ]

    def answer(self, path: str, body: dict[str, Any] | None) -> tuple[int, Any]:
        if path in self.failing:
            return self.failing[path], {"error": {"message": "no"}}
        if body is None:
            return self.get(path)
        self.calls.append((path, body))
        if path == "/v1/load_lora_adapter":
            return self.load(body)
        if path == "/v1/unload_lora_adapter":
            known = self.adapters.pop(body["lora_name"], None)
            return (200, "Success") if known else (404, {"error": {"message": "not found"}})
        if path == "/v1/completions":
            return self.complete(body)
        if path == "/reset_prefix_cache":
            return 200, ""
        return 404, {"detail": "Not Found"}

    def get(self, path: str) -> tuple[int, Any]:
        if path == "/health":
            return 200, ""
        if path == "/metrics" and self.tokens is not None:
            labels = f'{{engine="0",model_name="{self.model}"}}'
            return 200, f"vllm:generation_tokens_total{labels} {float(self.tokens)}\n"
        if path == "/version":
            return 200, {"version": self.version}
        if path == "/v1/models":
            names = [self.model, *self.adapters]
            return 200, {"data": [{"id": name, "root": self.model} for name in names]}
        if path == "/server_info" and self.config:
            return 200, {"vllm_config": self.config}
        return 404, {"detail": "Not Found"}

    def load(self, body: dict[str, Any]) -> tuple[int, Any]:
        file = Path(body["lora_path"]) / "adapter_config.json"
        if not file.is_file():
            return 404, {"error": {"message": f"No adapter found for {body['lora_path']}"}}
        if body["lora_name"] in self.adapters and not body["load_inplace"]:
            return 400, {"error": {"message": "has already been loaded"}}
        self.adapters[body["lora_name"]] = json.loads(file.read_text())
        return 200, f"Success: LoRA adapter '{body['lora_name']}' added successfully."

    def complete(self, body: dict[str, Any]) -> tuple[int, Any]:
        if body["model"] not in {self.model, *self.adapters}:
            return 404, {"error": {"message": f"The model `{body['model']}` does not exist."}}
        choices = []
        for prompt in body["prompt"]:
            for copy in range(body.get("n", 1)):
                ids = [10 + (sum(prompt) + copy * step) % 90 for step in range(1, 4)]
                logprobs = {
                    "tokens": [f"token_id:{token}" for token in ids],
                    "token_logprobs": [-1.0] * len(ids),
                    "top_logprobs": [{f"token_id:{token}": -1.0} for token in ids],
                }
                choices.append({"prompt_token_ids": prompt, "token_ids": ids, "logprobs": logprobs})
        if self.tokens is not None:
            self.tokens += sum(len(choice["token_ids"]) for choice in choices)
        return 200, {"choices": choices}


@contextmanager
def serving(stub: Stub, port: int = 0) -> Iterator[int]:
    """Serve a stub, on a free port unless one is given; the port is closed at the end."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self._send(*stub.answer(urlsplit(self.path).path, None))

        def do_POST(self) -> None:
            length = int(self.headers.get("Content-Length") or 0)
            body = json.loads(self.rfile.read(length) or "{}")
            self._send(*stub.answer(urlsplit(self.path).path, body))

        def _send(self, status: int, value: Any) -> None:
            data = (value if isinstance(value, str) else json.dumps(value)).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", port), Handler)
    server.daemon_threads = True
    thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    try:
        yield server.server_address[1]
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


class Client:
    """TRL's VLLMClient as far as a trainer uses it, without `requests`, which TRL's own needs.

    Sends what TRL 1.16 sends to /v1/completions, and fails as it does.
    """

    def __init__(self, url: str, model: str) -> None:
        self.url = url
        self.model = model

    def generate(self, prompts: list[list[int]], n: int = 1, **_: Any) -> dict[str, Any]:
        import urllib.error
        import urllib.request

        body = {"model": self.model, "prompt": prompts, "n": n, "return_token_ids": True}
        request = urllib.request.Request(
            f"{self.url}/v1/completions",
            json.dumps(body).encode(),
            {"Content-Type": "application/json"},
        )
        try:
            with urllib.request.urlopen(request, timeout=10) as answer:
                choices = json.loads(answer.read())["choices"]
        except urllib.error.HTTPError as error:
            raise Exception(f"Request failed: {error.code}, {error.read().decode()}") from error  # noqa: TRY002
        return {
            "prompt_ids": [choice["prompt_token_ids"] for choice in choices[::n]],
            "completion_ids": [choice["token_ids"] for choice in choices],
            "logprobs": [[[p] for p in c["logprobs"]["token_logprobs"]] for c in choices],
        }


class Generation(VLLMGeneration):
    """TRL's own generation in server mode, made without a server to connect to: it needs CUDA for that."""

    def __init__(self, trainer: Any, client: Any) -> None:
        self.model, self.accelerator = trainer.model, trainer.accelerator
        self.processing_class = trainer.processing_class
        self.mode, self.enable_sleep_mode, self.structured_outputs_regex = "server", False, None
        for name in ("repetition_penalty", "temperature", "top_p", "top_k", "min_p"):
            setattr(self, name, getattr(trainer, name))
        self.max_completion_length = trainer.max_completion_length
        self.logprobs, self.generation_kwargs = 0, {}
        self._weight_metadata, self._dist = None, DistributedBackend(trainer.accelerator)
        if trainer.accelerator.is_main_process:
            self.vllm_client = client


def attach(trainer: Any, client: Any) -> None:
    """Give a trainer that was made without vLLM a server, as its own construction would."""
    trainer.use_vllm, trainer.vllm_mode = True, "server"
    trainer.vllm_generation = Generation(trainer, client)
    trainer._last_loaded_step = -1
    trainer.connect_rollouts()
