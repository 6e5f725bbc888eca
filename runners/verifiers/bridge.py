"""A `verifiers` environment behind two HTTP calls; run by the interpreter that has verifiers.

    python bridge.py NAME --arguments JSON --rows FILE --count N      # write its dataset and exit
    python bridge.py NAME --arguments JSON --address FILE             # serve it; write the address to FILE

`--place FOLDER`, which may be repeated, adds a folder to the module search path. `GET /` answers
{"status": "ok"}. `POST /run` takes {"task", "base_url", "model", "sampling"}, lets the environment run one
episode with the model at `base_url`, an OpenAI-compatible address, and answers {"reward", "metrics", "error",
"stop"}. Nothing of fmtkit is imported: this runs where fmtkit is not installed.

The package has two programming interfaces: `verifiers.load_environment` (releases from 0.1.14 to 0.3,
`vf.Environment` with a rubric) and `verifiers.v1` (tasksets, harnesses and agents; the only one since 0.4).
The first is used if the package has it, unless the arguments have a `taskset`, which only the second takes.
https://github.com/PrimeIntellect-ai/verifiers.
"""

import argparse
import asyncio
import contextlib
import importlib.util
import itertools
import json
import os
import sys
import threading
import traceback
from collections.abc import AsyncIterator, Iterator, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

KEY = "FMTKIT_POLICY_KEY"
Row = tuple[list[Any], Any]
"""The messages of a prompt, and the task that `run` of the environment takes."""


class LegacyEnvironment:
    """An environment of `verifiers.load_environment(NAME, **arguments)`."""

    def __init__(self, name: str, arguments: Mapping[str, Any]) -> None:
        import verifiers  # type: ignore[import-not-found, unused-ignore]

        self.env = verifiers.load_environment(name, **arguments)

    def rows(self) -> Iterator[Row]:
        for row in self.env.get_dataset():
            prompt = row["prompt"]
            yield [{"role": "user", "content": prompt}] if isinstance(prompt, str) else prompt, row

    @contextlib.asynccontextmanager
    async def serving(self) -> AsyncIterator[None]:
        yield

    async def run(self, task: Any, policy: Mapping[str, Any]) -> dict[str, Any]:
        from verifiers.types import ClientConfig  # type: ignore[import-not-found, unused-ignore]

        client = ClientConfig(
            api_base_url=policy["base_url"], api_key_var=KEY, max_retries=0, timeout=86400.0
        )
        output = await self.env.run_rollout(task, client, policy["model"], policy["sampling"])
        error = output.get("error")
        return {
            "reward": output.get("reward"),
            "metrics": output.get("metrics") or {},
            "error": None if not error else _in_one_line(error),
            "stop": output.get("stop_condition"),
        }


class V1Environment:
    """A taskset of `verifiers.v1` with its harness; `arguments` are the rest of its EnvConfig."""

    def __init__(self, name: str, arguments: Mapping[str, Any]) -> None:
        from verifiers import v1  # type: ignore[import-not-found, unused-ignore]

        self.v1 = v1
        taskset = {**arguments.get("taskset", {}), "id": name}
        self.env = v1.load_environment(v1.resolve_env_config({**arguments, "taskset": taskset}))
        self.task_class = type(self.env.taskset).task_type()

    def rows(self) -> Iterator[Row]:
        for task in self.env.taskset:
            data = task.data.model_dump(mode="json")
            prompt = data.get("prompt") or ""
            messages = [{"role": "user", "content": prompt}] if isinstance(prompt, str) else prompt
            system = data.get("system_prompt")
            yield ([{"role": "system", "content": system}] if system else []) + messages, data

    @contextlib.asynccontextmanager
    async def serving(self) -> AsyncIterator[None]:
        async with self.env.serving():
            yield

    async def run(self, task: Any, policy: Mapping[str, Any]) -> dict[str, Any]:
        v1 = self.v1
        data = self.task_class.data_type().model_validate(task)
        client = v1.EvalClientConfig(base_url=policy["base_url"], api_key_var=KEY)
        context = v1.ModelContext(
            client=client, model=policy["model"], sampling=v1.SamplingConfig(**policy["sampling"])
        )
        (slot,) = self.env.slots(self.task_class(data, self.env.config.taskset.task))
        episode = await self.env.run_slot(slot, context)
        trained = [trace for trace in episode.traces if trace.agent.trainable]
        errors = [*episode.errors, *(error for trace in episode.traces for error in trace.errors)]
        if episode.ok and len(trained) != 1:
            return {"error": f"the episode has {len(trained)} trained agents; one can be trained"}
        if not episode.ok:
            return {
                "error": _in_one_line(errors[-1])
                if errors
                else "the episode failed without a reason"
            }
        (trace,) = trained
        return {
            "reward": trace.reward,
            "metrics": {name: value for name, value in trace.metrics.items() if value is not None},
            "error": None,
            "stop": trace.stop_condition,
        }


def _in_one_line(error: Any) -> str:
    """Return an error in one line: an exception, its record, or a string."""
    for kind, message in (("type", "message"), ("error", "error_chain_repr")):
        found = error.get(kind) if isinstance(error, dict) else getattr(error, kind, None)
        more = error.get(message) if isinstance(error, dict) else getattr(error, message, "")
        if isinstance(found, str):
            return " ".join(f"{found}: {more}".split())
    text = repr(error) if isinstance(error, BaseException) else str(error)
    return " ".join(text.split())


def opened(name: str, arguments: Mapping[str, Any]) -> "LegacyEnvironment | V1Environment":
    """Load an environment by the programming interface that the installed verifiers has for it."""
    has_legacy = any(
        importlib.util.find_spec(module) is not None
        for module in ("verifiers.legacy", "verifiers.envs")
    )
    if has_legacy and "taskset" not in arguments:
        return LegacyEnvironment(name, arguments)
    return V1Environment(name, arguments)


def write_rows(
    environment: "LegacyEnvironment | V1Environment", path: Path, count: int | None
) -> None:
    """Write the first `count` rows (None: all) as JSON lines; the file appears once it is complete."""
    rows, part = environment.rows(), path.with_suffix(".part")
    with part.open("w", encoding="utf-8") as out:
        for number, (prompt, task) in enumerate(itertools.islice(rows, count)):
            line = {
                "prompt": [message(one, number) for one in prompt],
                "verifiers_task": json.dumps(task, ensure_ascii=False, default=str),
            }
            out.write(json.dumps(line, ensure_ascii=False) + "\n")
    part.replace(path)


def message(one: Any, row: int) -> dict[str, str]:
    """Return a message as {role, content}; exit if it has an image or another part that is not text.

    Tool calls are left out: the prompt is shown beside its completions, and the environment itself sends
    the model the messages of its task.
    """
    given = one if isinstance(one, dict) else one.model_dump(mode="json")
    content = given.get("content") or ""
    if not isinstance(content, str):
        for part in content:
            if part.get("text") is None:
                raise SystemExit(
                    f"row {row} of its dataset: the prompt has a part of type {part.get('type')!r}; "
                    "only text can be trained on"
                )
        content = "".join(part["text"] for part in content)
    return {"role": given["role"], "content": content}


class Handler(BaseHTTPRequestHandler):
    """Passes requests to the environment's event loop; `serve` sets `environment` and `loop`."""

    protocol_version = "HTTP/1.1"
    environment: "LegacyEnvironment | V1Environment"
    loop: asyncio.AbstractEventLoop

    def do_GET(self) -> None:
        self.answer(200, {"status": "ok"})

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        future = asyncio.run_coroutine_threadsafe(
            self.environment.run(json.loads(body["task"]), body), self.loop
        )
        try:
            self.answer(200, future.result())
        except Exception as error:  # noqa: BLE001 - whatever an environment raises ends one episode
            traceback.print_exc()
            self.answer(200, {"error": f"{type(error).__name__}: {' '.join(str(error).split())}"})

    def answer(self, status: int, value: Any) -> None:
        data = json.dumps(value, default=float).encode()
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

    def log_message(self, *_: object) -> None:
        pass


class BridgeServer(ThreadingHTTPServer):
    """A server with a queue long enough for the episodes of a batch."""

    daemon_threads = True
    request_queue_size = 2048


async def serve(environment: "LegacyEnvironment | V1Environment", address: Path) -> None:
    """Serve until the process is interrupted; write the URL to `address` once it is ready."""
    async with environment.serving():
        loop = asyncio.get_running_loop()
        bound = type("Bound", (Handler,), {"environment": environment, "loop": loop})
        server = BridgeServer(("127.0.0.1", 0), bound)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        part = address.with_suffix(".part")
        part.write_text(f"http://127.0.0.1:{server.server_port}", encoding="utf-8")
        part.replace(address)
        try:
            await asyncio.Event().wait()
        finally:
            server.shutdown()


def main() -> None:
    """Write the dataset, serve the environment, or both."""
    parser = argparse.ArgumentParser()
    parser.add_argument("name")
    parser.add_argument("--arguments", type=json.loads, default={})
    parser.add_argument("--place", action="append", default=[])
    parser.add_argument("--rows", type=Path)
    parser.add_argument("--count", type=int)
    parser.add_argument("--address", type=Path)
    given = parser.parse_args()
    sys.path += given.place
    os.environ.setdefault(KEY, "EMPTY")
    environment = opened(given.name, given.arguments)
    if given.rows:
        write_rows(environment, given.rows, given.count)
    if given.address:
        with contextlib.suppress(KeyboardInterrupt):
            asyncio.run(serve(environment, given.address))


if __name__ == "__main__":
    main()
