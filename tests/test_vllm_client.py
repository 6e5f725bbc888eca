"""A whole run with TRL's own client of vLLM, against the stub: `fmtkit train` from YAML to the saved model.

TRL imports `vllm` and `requests`. A package of the names that it imports stands in for the first, as
none of them computes anything here; without the second the tests are skipped.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("trl")
pytest.importorskip("requests", reason="TRL's client of vLLM needs requests")

import online_runs as online
import tiny_training as tiny
import vllm_stub as vllm
from test_vllm_serve import install

NAMES = {
    "vllm/__init__.py": "__version__ = '0.31.0'\nclass LLM: pass\nclass RequestOutput: pass\nclass SamplingParams: pass\n",
    "vllm/sampling_params.py": "class StructuredOutputsParams: pass\n",
    "vllm/utils/network_utils.py": "def get_ip(): return '127.0.0.1'\ndef get_open_port(): return 0\n",
    "vllm/distributed/weight_transfer/nccl_common.py": "def trainer_init(info): raise SystemError\n",
    "vllm/distributed/weight_transfer/packed_tensor.py": (
        "def packed_nccl_broadcast_producer(**_): raise SystemError\n"
    ),
}


@pytest.fixture
def packages(tmp_path) -> Path:
    """Return a folder with the names of vLLM that TRL imports."""
    folder = tmp_path / "packages"
    install(folder, "vllm", "0.31.0")
    for name, text in NAMES.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    return folder


def configured(folder: Path, port: int, **trl) -> Path:
    """Write a run of three steps whose answers are a server's; return its configuration."""
    model = tiny.make_model(folder / "model", template=tiny.TEMPLATE)
    (folder / "rewards.py").write_text(online.REWARDS)
    rows = [{"question": f"{n} red apple?", "answer": f"so #### {n}"} for n in range(32)]
    (folder / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    keys = {
        "base_model": model,
        "chat_template": "tokenizer_default",
        "rl": "grpo",
        "adapter": "lora",
        "lora_r": 4,
        "lora_target_modules": ["q_proj", "v_proj"],
        "datasets": [{"path": str(folder / "rows.jsonl"), "type": "gsm8k"}],
        "output_dir": str(folder / "run"),
        "max_steps": 3,
        "micro_batch_size": 4,
        "logging_steps": 1,
        "use_cpu": True,
        "bf16": False,
        "trl": {
            "num_generations": 2,
            "max_completion_length": 8,
            "reward_funcs": ["rewards.length"],
            "use_vllm": True,
            "vllm_server_host": "127.0.0.1",
            "vllm_server_port": port,
            "vllm_server_timeout": 5,
            "vllm_lora_sync": True,
            **trl,
        },
    }
    (folder / "run.yaml").write_text(json.dumps(keys))
    return folder / "run.yaml"


def run(folder: Path, packages: Path, port: int, **trl) -> subprocess.CompletedProcess[str]:
    config = configured(folder, port, **trl)
    path = os.pathsep.join([str(packages), os.environ.get("PYTHONPATH", "")])
    return subprocess.run(
        [sys.executable, "-m", "fmtkit", "train", str(config)],
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.slow
@pytest.mark.parametrize("ahead", [False, True])
def test_a_run_sends_its_adapter_and_asks_for_it(tmp_path, packages, ahead):
    stub = vllm.Stub(str(tmp_path / "model"))
    with vllm.serving(stub) as port:
        done = run(tmp_path, packages, port, async_prefetch=ahead)
    assert done.returncode == 0, done.stderr
    posts = [post.partition(" ")[0] for post in stub.posts()]
    assert posts.count("load_lora_adapter") == posts.count("completions") == 3
    # Each version is unloaded, the last one at the end: vllm reads the files of one that it evicted again.
    assert posts.count("unload_lora_adapter") == 3
    assert posts[-1] == "unload_lora_adapter"
    assert (tmp_path / "run" / "model" / "adapter_model.safetensors").is_file()
    asked = next(body for path, body in stub.calls if path == "/v1/completions")
    assert {"max_tokens": 8, "n": 2, "logprobs": 0}.items() <= asked.items()
    lines = (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()
    assert "sampling/importance_sampling_ratio/mean" in lines[0]


@pytest.mark.slow
def test_a_server_of_another_model_ends_the_run_before_it_loads_its_own(tmp_path, packages):
    with vllm.serving(vllm.Stub("a/other")) as port:
        done = run(tmp_path, packages, port)
    assert done.returncode == 2
    assert "serves a/other, and base_model is" in done.stderr
