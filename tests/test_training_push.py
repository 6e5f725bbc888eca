"""`hub_model_id` alone pushes the model, as in axolotl; a hub on loopback stands in for the real one."""

import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
import yaml

pytest.importorskip("trl")

import tiny_training as tiny

from fmtkit.training.planning import plan as planning


def test_the_plan_says_that_it_pushes_and_who_said_so():
    plan = planning.plan({"base_model": "m", "rl": "dpo", "hub_model_id": "me/mine"}, partial=True)
    said = {name: (a.value, a.origin) for name, a in plan.arguments.trainer.items()}
    assert said["push_to_hub"] == (True, "key hub_model_id")
    assert said["hub_private_repo"][0] is True
    quiet = {"hub_model_id": "me/mine", "push_to_hub": False}
    plan = planning.plan({"base_model": "m", "rl": "dpo", **quiet}, partial=True)
    assert plan.arguments.trainer["push_to_hub"].value is False
    plan = planning.plan({"base_model": "m", "rl": "dpo"}, partial=True)
    assert "push_to_hub" not in plan.arguments.trainer


class Hub(BaseHTTPRequestHandler):
    """Answers what huggingface_hub asks to make a repository and to commit to it."""

    asked: list[tuple[str, bytes]]

    def do_GET(self) -> None:
        self.asked.append((self.path, b""))
        self.answer({"name": "me", "id": "me/mine", "sha": "0" * 40, "siblings": []})

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        self.asked.append((self.path, body))
        if self.path.endswith("/preupload/main"):
            files = json.loads(body)["files"]
            modes = [
                {"path": f["path"], "uploadMode": "regular", "shouldIgnore": False} for f in files
            ]
            self.answer({"files": modes})
            return
        url = f"http://{self.headers['Host']}/me/mine"
        answer = {"url": url, "commitOid": "a" * 40, "commitUrl": f"{url}/commit/{'a' * 40}"}
        self.answer({**answer, "errors": [], "warnings": []})

    def answer(self, value: object) -> None:
        data = json.dumps(value).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_: object) -> None:
        """Say nothing."""


@pytest.fixture
def hub() -> Iterator[tuple[str, list[tuple[str, bytes]]]]:
    asked: list[tuple[str, bytes]] = []
    server = ThreadingHTTPServer(("127.0.0.1", 0), type("OneHub", (Hub,), {"asked": asked}))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}", asked
    server.shutdown()
    server.server_close()


@pytest.mark.slow
def test_a_named_repository_is_made_and_given_the_model(hub, model, tmp_path):
    url, asked = hub
    tiny.write_table("Preference", tmp_path / "rows.parquet")
    keys = {
        **tiny.STEP,
        "base_model": model,
        "rl": "dpo",
        "output_dir": str(tmp_path / "run"),
        "datasets": [{"path": str(tmp_path / "rows.parquet")}],
        "max_steps": 1,
        "hub_model_id": "me/mine",
    }
    (tmp_path / "c.yaml").write_text(yaml.safe_dump(keys))
    environment = {k: v for k, v in os.environ.items() if not k.startswith("HF_")}
    environment |= {"HF_ENDPOINT": url, "HF_TOKEN": "hf_x", "HF_HOME": str(tmp_path / "hf")}
    done = subprocess.run(
        [sys.executable, "-P", "-m", "fmtkit", "train", str(tmp_path / "c.yaml")],
        env=environment | {"HF_HUB_DISABLE_XET": "1", "NO_PROXY": "127.0.0.1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, (done.stderr, [path for path, _ in asked])
    made = [json.loads(body) for path, body in asked if path == "/api/repos/create"]
    assert made
    assert made[0]["name"] == "mine"
    # Newer hubs say the same by `visibility`.
    assert made[0].get("private") is True or made[0].get("visibility") == "private"
    commits = [body for path, body in asked if path.startswith("/api/models/me/mine/commit/main")]
    assert any(b'"model.safetensors"' in body for body in commits)
    assert any(b'"tokenizer.json"' in body for body in commits)
