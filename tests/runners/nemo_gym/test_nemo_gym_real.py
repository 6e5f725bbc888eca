"""The same client against the real nemo-gym 0.4.0 or 0.7.0, whose servers run in an environment of their own.

Set FMTKIT_NEMO_GYM to an environment with `nemo-gym` and `reasoning-gym`. The
model that the agent plays with is scripted: a server with the three endpoints of vLLM that nemo-gym
asks. Everything else is nemo-gym's: head server, resources servers, agent and model server.
"""

import json
import os
import re
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from test_nemo_gym_launching import free_port

from fmtkit.core import http_client
from fmtkit.runners.nemo_gym import head, launching
from fmtkit.runners.nemo_gym.rollout import GymRollout
from fmtkit.runners.nemo_gym.settings import GymSettings
from fmtkit.runners.nemo_gym.verify import Verify

WHERE = os.environ.get("FMTKIT_NEMO_GYM", "")
pytestmark = [
    pytest.mark.nemo_gym,
    pytest.mark.skipif(not WHERE, reason="FMTKIT_NEMO_GYM names no environment with nemo-gym"),
]
CONFIGS = (
    "resources_servers/reasoning_gym/configs/resources_only.yaml",
    "resources_servers/example_single_tool_call/configs/example_single_tool_call.yaml",
    "responses_api_models/vllm_model/configs/vllm_model_for_training.yaml",
)
PARTS = (
    "resources_servers/reasoning_gym",
    "resources_servers/example_single_tool_call",
    "responses_api_agents/simple_agent",
    "responses_api_models/vllm_model",
    # Of 0.7 on: the server of an environment stands before its agent.
    "environment_servers/legacy_agent",
)


class ScriptedModel(BaseHTTPRequestHandler):
    """Calls the tool, then says what it heard; tokens are those of the recorded conversation."""

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        roles = [message["role"] for message in body["messages"]]
        self.server.asked.append((self.path, body))  # type: ignore[attr-defined]
        if self.path == "/tokenize":
            ids = [1, 2, 3] + [4, 5] * ("assistant" in roles) + [9, 9] * ("tool" in roles)
            return self.answer({"tokens": ids, "count": len(ids)})
        if "tool" in roles:
            heard = next(m["content"] for m in body["messages"] if m["role"] == "tool")
            message = {"role": "assistant", "content": heard}
            return self.answer(completion(message, "stop", [(6, -0.3)]))
        called = {"name": "get_weather", "arguments": '{"city": "Oslo"}'}
        call = {"id": "call_1", "type": "function", "function": called}
        message = {"role": "assistant", "content": None, "tool_calls": [call]}
        return self.answer(completion(message, "tool_calls", [(4, -0.1), (5, -0.2)]))

    def answer(self, value: Any) -> None:
        data = json.dumps(value).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_: object) -> None:
        """Say nothing."""


def completion(message: Any, reason: str, tokens: list[tuple[int, float]]) -> dict[str, Any]:
    told = [
        {"token": f"token_id:{token}", "logprob": logprob, "bytes": None, "top_logprobs": []}
        for token, logprob in tokens
    ]
    choice = {"index": 0, "message": message, "finish_reason": reason}
    choice["logprobs"] = {"content": told}
    return {
        "id": "chatcmpl-1",
        "object": "chat.completion",
        "created": 1,
        "model": "policy",
        "choices": [choice],
        "usage": {"prompt_tokens": 3, "completion_tokens": 2, "total_tokens": 5},
    }


@pytest.fixture(scope="module")
def model() -> Iterator[Any]:
    server: Any = ThreadingHTTPServer(("127.0.0.1", 0), ScriptedModel)
    server.asked = []
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield server
    server.shutdown()


@pytest.fixture(scope="module")
def gym(tmp_path_factory, model) -> Iterator[SimpleNamespace]:
    """Start the real servers as a run does, from a folder whose `.venv` is the environment."""
    folder = tmp_path_factory.mktemp("gym")
    environment = Path(WHERE).resolve()
    (folder / ".venv").symlink_to(environment)
    for part in PARTS:
        # Where `uv` would make an environment for each server; ours has all that they need.
        (folder / part).mkdir(parents=True)
        (folder / part / ".venv").symlink_to(environment)
    settings = GymSettings(
        enabled=True,
        dir=str(folder),
        config_paths=CONFIGS,
        head_port=free_port(),
        server_timeout=300,
        multi_turn=True,
        max_turns=5,
        model_name="policy",
    )
    url = f"http://127.0.0.1:{model.server_port}/v1"
    policy = {"policy_base_url": url, "policy_api_key": "EMPTY", "policy_model_name": "policy"}
    log = folder / "gym.log"
    with launching.servers_of(settings, log, policy):
        directory = head.read(settings.head_url)
        yield SimpleNamespace(settings=settings, directory=directory, log=log)


def example(server: str, number: int = 0) -> dict[str, Any]:
    found = next(
        Path(WHERE).glob(f"lib/*/site-packages/resources_servers/{server}/data/example.jsonl")
    )
    return json.loads(found.read_text(encoding="utf-8").split("\n")[number])


def test_the_head_server_tells_the_names_that_rows_use(gym):
    found = gym.directory
    assert found.of_kind(head.RESOURCES) == ["example_single_tool_call", "reasoning_gym"]
    assert found.of_kind(head.AGENTS) == ["example_single_tool_call_simple_agent"]
    assert found.resources_of["example_single_tool_call_simple_agent"] == "example_single_tool_call"
    assert head.agent_server(found, "example_single_tool_call", None).kind == head.AGENTS
    entries = http_client.get(f"{gym.settings.head_url}/server_instances", 5)
    assert {entry["name"] for entry in entries} >= {"simple_agent", "vllm_model"}


def test_the_configuration_says_the_same_as_the_list_of_instances(gym):
    config = head.read_config(
        http_client.get(f"{gym.settings.head_url}/global_config_dict_yaml", 5), ""
    )
    assert head.configured_servers(config) == gym.directory.servers


def test_reasoning_gym_judges_answers(gym):
    row = example("reasoning_gym")
    texts = [f"<answer>{row['answer']}</answer>", "no idea"]
    reward = Verify(gym.settings, lambda s, a: head.verifier(gym.directory, s, a).url)
    logged: dict[str, float] = {}
    found = reward(
        completions=[*texts, texts[0]],
        nemo_gym_row=[json.dumps(row)] * 2 + ['{"responses_create_params":{"input":"q"}}'],
        nemo_gym_server=["reasoning_gym"] * 3,
        nemo_gym_agent=[None] * 3,
        log_metric=logged.__setitem__,
    )
    assert found[0] == 1.0
    assert found[1] is not None
    assert found[1] < 0.5
    assert found[2] is None
    assert logged == {"nemo_gym/verify_errors": 1.0, "nemo_gym/masked": 0.0}


def test_what_a_row_lacks_is_a_422_as_of_the_stand_in(gym):
    url = gym.directory.servers["reasoning_gym"].url
    with pytest.raises(http_client.CallError, match="answered 422") as caught:
        http_client.post(f"{url}/verify", b'{"responses_create_params":{"input":"q"}}', 5)
    assert caught.value.status == 422
    assert re.search("Field required|missing", str(caught.value))


def test_an_agent_plays_a_conversation_and_tells_its_tokens(gym, model):
    row = example("example_single_tool_call")
    play = GymRollout(gym.settings, lambda s, a: head.agent_server(gym.directory, s, a).url, None)
    trainer = SimpleNamespace(
        temperature=0.7, top_p=0.9, max_completion_length=64, chat_template_kwargs={}
    )
    made = {
        "prompt": [],
        "nemo_gym_row": json.dumps(row),
        "nemo_gym_server": "example_single_tool_call",
        "nemo_gym_agent": None,
    }
    output = play([[]] * 2, trainer, [made] * 2)
    assert output == {
        "prompt_ids": [[1, 2, 3]] * 2,
        "completion_ids": [[4, 5, 9, 9, 6]] * 2,
        "env_mask": [[1, 1, 0, 0, 1]] * 2,
        "logprobs": [[-0.1, -0.2, 0.0, 0.0, -0.3]] * 2,
        "env_reward": [1.0] * 2,
        "num_turns": [2] * 2,
        "nemo_gym_outcome": ["completed"] * 2,
    }
    asked = [body for path, body in model.asked if path == "/v1/chat/completions"]
    assert {body["temperature"] for body in asked} == {0.7}
    assert {body["max_tokens"] for body in asked} == {64}
    heard = [m for body in asked for m in body["messages"] if m["role"] == "tool"]
    assert "The weather in Oslo is cold." in str(heard[0])


def test_our_limit_of_turns_is_in_the_agents_configuration(gym):
    config = head.read_config(
        http_client.get(f"{gym.settings.head_url}/global_config_dict_yaml", 5), ""
    )
    agent = config["example_single_tool_call_simple_agent"]["responses_api_agents"]["simple_agent"]
    assert agent["max_steps"] == 5


def test_a_run_trains_on_the_data_and_the_rewards_of_the_real_servers(gym, tmp_path, monkeypatch):
    pytest.importorskip("trl")
    import tiny_training as tiny

    from fmtkit.training.run import process
    from fmtkit.training.run import run as runs

    process.quiet()
    monkeypatch.setattr(runs, "launch", lambda planned: process.main([str(planned.run)]))
    keys = {
        **tiny.STEP,
        "base_model": tiny.make_model(tmp_path / "model", template=tiny.TEMPLATE),
        "rl": "grpo",
        "sequence_len": 2048,
        "output_dir": str(tmp_path / "run"),
        "nemo_gym_enabled": True,
        "nemo_gym_auto_start": False,
        "nemo_gym_dir": gym.settings.dir,
        "nemo_gym_head_port": gym.settings.head_port,
        "nemo_gym_datasets": [
            {
                "path": "resources_servers/reasoning_gym/data/example.jsonl",
                "server_name": "reasoning_gym",
            }
        ],
        "trl": {"num_generations": 2, "max_completion_length": 8},
    }
    assert runs.train(keys).exit_code == 0
    lines = (tmp_path / "run" / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
    logs = [log for log in map(json.loads, lines) if "loss" in log]
    assert len(logs) == 3
    assert {log["nemo_gym/verify_errors"] for log in logs} == {0.0}
    assert all("rewards/nemo_gym_verify/mean" in log for log in logs)
