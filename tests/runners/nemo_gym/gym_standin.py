"""A stand-in for a NeMo Gym: its head, its resources servers and its agents, over real HTTP.

It answers as nemo-gym 0.4.0 does, whose answers were recorded: 422 for a request that lacks a field or
has one too many, the request echoed with its unset fields as null, a session cookie that a stateful
server demands, and token ids on the last item of each call of the model alone. As a program it takes
the arguments of `ng_run` and runs until SIGINT.
"""

import json
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import yaml

HOST = "127.0.0.1"
PARAMS = ("background", "include", "input", "instructions", "max_output_tokens")
PARAMS += ("max_tool_calls", "metadata", "model", "parallel_tool_calls", "previous_response_id")
PARAMS += ("prompt", "reasoning", "service_tier", "store", "temperature", "text", "tool_choice")
PARAMS += ("tools", "top_logprobs", "top_p", "truncation", "user", "stream")
RESPONSE = {"id", "created_at", "model", "object", "output", "parallel_tool_calls", "tool_choice"}
RESPONSE |= {"tools"}
ITEMS = {
    "message": {"id", "content", "role", "status"},
    "function_call": {"arguments", "call_id", "name"},
    "function_call_output": {"call_id", "output"},
    "reasoning": {"id", "summary"},
}

Played = list[tuple[list[int], list[int], list[float]]]
"""The calls of the model in a conversation: what it read, what it wrote, and the log-probabilities."""


class Refused(Exception):
    def __init__(self, status: int, detail: str) -> None:
        super().__init__(detail)
        self.status = status


def text_of(request: dict[str, Any]) -> str:
    """Return what the model said last."""
    said = [item for item in request["response"]["output"] if item["type"] == "message"]
    return "".join(part["text"] for part in said[-1]["content"]) if said else ""


def equals_answer(request: dict[str, Any]) -> float:
    return float(text_of(request).strip() == str(request["answer"]))


def weather_conversation(row: dict[str, Any], number: int) -> Played:
    """The conversation of `example_single_tool_call` that was recorded: a call, its result, a message."""
    del row, number
    return [([1, 2, 3], [4, 5], [-0.1, -0.2]), ([1, 2, 3, 4, 5, 9, 9], [6], [-0.3])]


@dataclass
class Gym:
    """What runs, what it was asked, and what it answers."""

    judge: Callable[[dict[str, Any]], float] = equals_answer
    play: Callable[[dict[str, Any], int], Played] = weather_conversation
    needs: tuple[str, ...] = ("answer",)
    lists_instances: bool = True
    asked: list[tuple[str, dict[str, Any], str]] = field(default_factory=list)
    seeded: dict[str, dict[str, Any]] = field(default_factory=dict)
    ports: dict[str, int] = field(default_factory=dict)
    closing: threading.Event = field(default_factory=threading.Event)
    lock: threading.Lock = field(default_factory=threading.Lock)

    @property
    def head_port(self) -> int:
        return self.ports["head"]

    def posts(self, path: str) -> list[dict[str, Any]]:
        return [body for asked, body, _ in self.asked if asked.endswith(path)]


SERVERS = {
    "arithmetic": ("resources_servers", "reasoning_gym"),
    "memory": ("resources_servers", "session_state"),
    "arithmetic_agent": ("responses_api_agents", "simple_agent"),
    "lonely": ("responses_api_agents", "simple_agent"),
    "policy_model": ("responses_api_models", "vllm_model"),
}
PLAYS_WITH = {"arithmetic_agent": "arithmetic"}
STATEFUL = frozenset({"memory"})


def config_of(gym: Gym) -> dict[str, Any]:
    out: dict[str, Any] = {"config_paths": ["arithmetic.yaml"], "head_server": {"host": HOST}}
    for name, (kind, inner) in SERVERS.items():
        entry: dict[str, Any] = {"entrypoint": "app.py", "host": HOST, "port": gym.ports[name]}
        if name in PLAYS_WITH:
            entry["resources_server"] = {"type": "resources_servers", "name": PLAYS_WITH[name]}
        out[name] = {kind: {inner: entry}}
    return out


def instances_of(gym: Gym) -> list[dict[str, Any]]:
    return [
        {
            "process_name": name,
            "config_path": name,
            "name": inner,
            "server_type": kind,
            "host": HOST,
            "port": gym.ports[name],
            "url": f"http://{HOST}:{gym.ports[name]}",
            "status": None,
        }
        for name, (kind, inner) in SERVERS.items()
    ]


def check_request(body: dict[str, Any]) -> None:
    params = body.get("responses_create_params")
    if not isinstance(params, dict) or "input" not in params:
        raise Refused(422, "responses_create_params.input: Field required")
    extra = sorted(set(params) - set(PARAMS))
    if extra:
        raise Refused(422, f"responses_create_params.{extra[0]}: Extra inputs are not permitted")
    items = params["input"]
    if not isinstance(items, (str, list)):
        raise Refused(422, "responses_create_params.input: Input should be a valid string or list")
    for item in items if isinstance(items, list) else ():
        if item.get("type", "message") == "message" and not {"role", "content"} <= set(item):
            raise Refused(422, "responses_create_params.input.0.content: Field required")


def check_response(response: Any) -> None:
    missing = sorted(RESPONSE - set(response or ()))
    if missing:
        raise Refused(422, f"response.{missing[0]}: Field required")
    for item in response["output"]:
        needed = ITEMS.get(item.get("type"))
        if needed is None or not needed <= set(item):
            raise Refused(422, f"response.output.0: {sorted((needed or set()) - set(item))}")
        for part in item["content"] if item["type"] == "message" else ():
            if not {"type", "text", "annotations"} <= set(part):
                raise Refused(422, "response.output.0.content.0.annotations: Field required")


def echoed(body: dict[str, Any]) -> dict[str, Any]:
    """Return the request as a pydantic model dumps it: what was not set is null."""
    params = dict.fromkeys(PARAMS) | body["responses_create_params"]
    return body | {"responses_create_params": params}


def verify(gym: Gym, name: str, body: dict[str, Any], session: str) -> dict[str, Any]:
    check_request(body)
    check_response(body.get("response"))
    for needed in gym.needs:
        if needed not in body:
            raise Refused(422, f"{needed}: Field required")
    if name in STATEFUL and session not in gym.seeded:
        raise Refused(500, "Internal Server Error: KeyError")
    misbehave(gym, body)
    return echoed(body) | {"reward": gym.judge(body), "task_name": name}


def misbehave(gym: Gym, body: dict[str, Any]) -> None:
    if body.get("fault") == "500":
        raise Refused(500, "Internal Server Error")
    if body.get("fault") == "slow":
        gym.closing.wait(30)


def run(gym: Gym, name: str, body: dict[str, Any], number: int) -> dict[str, Any]:
    check_request(body)
    misbehave(gym, body)
    output: list[dict[str, Any]] = []
    calls = gym.play(body, number)
    for turn, (read, written, logprobs) in enumerate(calls):
        told = {"prompt_token_ids": read, "generation_token_ids": written}
        told["generation_log_probs"] = logprobs
        output.append({"type": "reasoning", "id": f"rs_{turn}", "summary": []})
        if turn < len(calls) - 1:
            call = {"name": "get_weather", "arguments": "{}", "call_id": f"call_{turn}"}
            output.append({"type": "function_call", **call, **told})
            output.append(
                {"type": "function_call_output", "call_id": f"call_{turn}", "output": "cold"}
            )
        else:
            part = {"type": "output_text", "text": f"tokens {written}", "annotations": []}
            message = {"id": f"msg_{turn}", "role": "assistant", "status": "completed"}
            output.append({"type": "message", **message, "content": [part], **told})
    response = {"id": "resp", "created_at": 1, "model": "policy", "object": "response"}
    response |= {"output": output, "parallel_tool_calls": True, "tool_choice": "auto", "tools": []}
    return verify(gym, PLAYS_WITH.get(name, ""), body | {"response": response}, "")


class Handler(BaseHTTPRequestHandler):
    """Answers for one of the servers; `gym` and `name` are set by a subclass."""

    protocol_version = "HTTP/1.1"
    gym: Gym
    name: str

    def do_GET(self) -> None:
        if self.path == "/":
            self.answer(200, {"status": "ok"})
        elif self.name == "head" and self.path == "/global_config_dict_yaml":
            self.answer(200, yaml.safe_dump(config_of(self.gym)))
        elif self.name == "head" and self.path == "/server_instances" and self.gym.lists_instances:
            self.answer(200, instances_of(self.gym))
        else:
            self.answer(404, {"detail": "Not Found"})

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        session = (self.headers.get("Cookie") or "").partition("session=")[2]
        with self.gym.lock:
            number = len(self.gym.asked)
            self.gym.asked.append((f"{self.name}{self.path}", body, session))
        try:
            self.answer(200, *self.answered(body, session, number))
        except Refused as error:
            self.answer(error.status, {"detail": str(error)})

    def answered(self, body: Any, session: str, number: int) -> tuple[Any, str]:
        """Return the answer to a post, and the cookie that it sets."""
        kind = SERVERS.get(self.name, ("head",))[0]
        if kind == "resources_servers" and self.path == "/seed_session":
            self.gym.seeded[f"s{number}"] = body
            return {}, f"session=s{number}; path=/; httponly; samesite=lax"
        if kind == "resources_servers" and self.path == "/verify":
            return verify(self.gym, self.name, body, session), ""
        if kind == "responses_api_agents" and self.path == "/run":
            return run(self.gym, self.name, body, number), ""
        raise Refused(404, "Not Found")

    def answer(self, status: int, value: Any, cookie: str = "") -> None:
        data = json.dumps(value).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        if cookie:
            self.send_header("Set-Cookie", cookie)
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_: object) -> None:
        """Say nothing."""


class Server(ThreadingHTTPServer):
    daemon_threads = True
    # As many callers may wait as uvicorn lets.
    request_queue_size = 2048


@contextmanager
def running(head_port: int = 0, **options: Any) -> Iterator[Gym]:
    """Run a stand-in on free ports."""
    gym = Gym(**options)
    servers = {}
    for name in ("head", *SERVERS):
        port = head_port if name == "head" else 0
        handler = type("Named", (Handler,), {"gym": gym, "name": name})
        servers[name] = Server((HOST, port), handler)
        gym.ports[name] = servers[name].server_port
    for server in servers.values():
        threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
    try:
        yield gym
    finally:
        gym.closing.set()
        for server in servers.values():
            server.shutdown()
            server.server_close()


def main(arguments: list[str]) -> None:
    """Run as `ng_run` does, until SIGINT."""
    given = dict(argument.lstrip("+").split("=", 1) for argument in arguments)
    print("arguments", json.dumps(given), flush=True)
    try:
        with running(int(given["head_server.port"])):
            threading.Event().wait()
    except KeyboardInterrupt:
        print("stopped by SIGINT", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
