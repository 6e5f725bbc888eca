"""The real vLLM on a CPU: an environment of its own, a model that calls tools, servers and runs that ask them.

FMTKIT_VLLM names the environment, which `make test-vllm` makes.
"""

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil
import tiny_training as tiny
import torch
import trl

from fmtkit.training import demo
from fmtkit.training.vllm.server_state import VllmServer

WHERE = os.environ.get("FMTKIT_VLLM", "")
SECONDS = 300
"""The longest that a server may take to start, and a run to end: loaded machines are slow."""
ENVIRONMENT = {
    **os.environ,
    # GiB: without it vLLM asks for 92 % of the memory.
    "VLLM_CPU_KVCACHE_SPACE": "1",
    "VLLM_NO_USAGE_STATS": "1",
    "HF_HUB_OFFLINE": "1",
    "TOKENIZERS_PARALLELISM": "false",
    "OMP_NUM_THREADS": "1",
}
CODE = '''
"""Rewards, an environment and a rollout as a user writes them."""

import os
import random
import time
from pathlib import Path

HERE = Path(__file__).parent
calls = [0]


def text(completion):
    return completion if isinstance(completion, str) else completion[-1].get("content") or ""


def letters(completions, **_):
    return [sum(letter in "aeiou" for letter in text(c)) / 10 for c in completions]


def gated(completions, **_):
    """Let the third batch wait until the test has done to the server what it does."""
    calls[0] += 1
    if calls[0] == 3 and not (HERE / "go").exists():
        (HERE / "reached").touch()
        end = time.monotonic() + 300
        while not (HERE / "go").exists() and time.monotonic() < end:
            time.sleep(0.05)
    return letters(completions)


def rand_reward_func(completions, **kwargs) -> list[float]:
    return [random.uniform(0, 1) for _ in completions]


def oai_gsm8k_transform(cfg, *args, **kwargs):
    def transform_fn(example, tokenizer=None):
        label = example["answer"].split("####")[-1].strip().replace(",", "")
        return {"prompt": [{"role": "user", "content": example["question"]}], "answer": label}

    return transform_fn, {"remove_columns": ["question"]}


class Counter:
    """Counts what it is told, and says how often it was asked."""

    def reset(self, **row):
        self.total = self.steps = 0
        return None

    def add(self, number: int) -> str:
        """Add a number.

        Args:
            number: What to add.
        """
        self.steps += 1
        self.total += number
        return f"step {self.steps}"

    def get_reward(self) -> float:
        return self.total / 10 + random.random()


def play(prompts, trainer):
    """Ask the server twice, and put a hint between its answers."""
    tokenizer, client = trainer.processing_class, trainer.vllm_generation.vllm_client
    ids = [
        tokenizer.apply_chat_template(p, add_generation_prompt=True, return_dict=False)
        for p in prompts
    ]
    first = client.generate(ids, n=1, max_tokens=4)
    hint = tokenizer("\\nwarm", add_special_tokens=False)["input_ids"]
    before = [a + b + hint for a, b in zip(ids, first["completion_ids"], strict=True)]
    second = client.generate(before, n=1, max_tokens=4)
    parts = list(zip(first["completion_ids"], second["completion_ids"], strict=True))
    told = zip(first["logprobs"], second["logprobs"], strict=True)
    return {
        "prompt_ids": ids,
        "completion_ids": [a + hint + b for a, b in parts],
        "logprobs": [
            [p[0] for p in a] + [0.0] * len(hint) + [p[0] for p in b] for a, b in told
        ],
        "env_mask": [[1] * len(a) + [0] * len(hint) + [1] * len(b) for a, b in parts],
    }
'''
CALL = '<tool_call>\n{"name": "add", "arguments": {"number": 3}}\n</tool_call>'
ASKED = "red apple"
TOOL = {
    "type": "function",
    "function": {
        "name": "add",
        "description": "Add a number.",
        "parameters": {
            "type": "object",
            "properties": {"number": {"type": "integer", "description": "What to add."}},
            "required": ["number"],
        },
        "return": {"type": "string"},
    },
}


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        return probe.getsockname()[1]


def make_model(folder: Path, *, seed: int = 0) -> str:
    """Make a model with heads of the size that vLLM has kernels for, and random weights."""
    words = " ".join(tiny.WORDS) * 40 + " good bad user assistant system step"
    template = Path(trl.__file__).parent / "chat_templates" / "qwen3.jinja"
    source = template.read_text(encoding="utf-8")
    texts = [words, *([source, CALL] * 2)]
    return str(demo.make(folder, texts, hidden=256, template=source, seed=seed))


def teach_calls(folder: str) -> None:
    """Train the model until it calls the tool `add`, again after the first result, and then ends."""
    from transformers import AutoModelForCausalLM, AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(folder)
    model = AutoModelForCausalLM.from_pretrained(folder)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    rows = _lessons(tokenizer)
    longest = max(len(ids) for ids, _ in rows)
    ids = torch.full((len(rows), longest), tokenizer.pad_token_id)
    labels = torch.full_like(ids, -100)
    for n, (known, answer) in enumerate(rows):
        ids[n, : len(known)] = torch.tensor(known)
        labels[n, len(known) - answer : len(known)] = torch.tensor(known[-answer:])
    for _ in range(200):
        loss = model(input_ids=ids, labels=labels).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        if loss.item() < 0.05:
            break
    assert loss.item() < 0.05
    model.save_pretrained(folder)


def _lessons(tokenizer: Any) -> list[tuple[list[int], int]]:
    """Return what to write after each turn of a conversation: ids, and how many of them are the answer."""
    called = {"function": {"name": "add", "arguments": {"number": 3}}, "type": "function"}
    messages: list[dict[str, Any]] = [{"role": "user", "content": ASKED}]
    out = []
    for step, answer in enumerate((CALL, CALL, "good")):
        known = tokenizer.apply_chat_template(
            messages, tools=[TOOL], add_generation_prompt=True, return_dict=False
        )
        made = tokenizer(answer + "<|im_end|>", add_special_tokens=False)["input_ids"]
        out.append((known + made, len(made)))
        messages += [
            {"role": "assistant", "content": "", "tool_calls": [called]},
            {"role": "tool", "name": "add", "content": f"step {step + 1}"},
        ]
    return out


@dataclass
class Served:
    """A server that `fmtkit vllm-serve` started."""

    folder: Path
    config: Path
    port: int
    process: subprocess.Popen[bytes] = field(init=False)
    seconds: float = 0.0

    def start(self) -> "Served":
        command = [f"{WHERE}/bin/python", "-m", "fmtkit", "vllm-serve", str(self.config)]
        begun = time.monotonic()
        with (self.folder / f"serve-{self.port}.log").open("ab") as log:
            self.process = subprocess.Popen(
                command, env=ENVIRONMENT, stdout=log, stderr=log, start_new_session=True
            )
        while not self.server.is_up(1):
            assert self.process.poll() is None, self.said()
            assert time.monotonic() - begun < SECONDS, self.said()
            time.sleep(0.2)
        self.seconds = time.monotonic() - begun
        return self

    @property
    def server(self) -> VllmServer:
        return VllmServer(f"http://127.0.0.1:{self.port}")

    @property
    def is_running(self) -> bool:
        return self.process.poll() is None

    def said(self) -> str:
        return (self.folder / f"serve-{self.port}.log").read_text(errors="replace")[-3000:]

    def part(self, name: str) -> psutil.Process:
        """Return the process of a part (`Worker`): vLLM names them."""
        family = psutil.Process(self.process.pid).children(recursive=True)
        return next(one for one in family if name in "".join(one.cmdline()))

    def stop(self, how: signal.Signals = signal.SIGTERM) -> None:
        """End it and all its parts."""
        family = (
            psutil.Process(self.process.pid).children(recursive=True) if self.is_running else []
        )
        if self.is_running:
            self.process.send_signal(signal.SIGCONT)
            self.process.send_signal(how)
        try:
            self.process.wait(60)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        for one in family:
            if one.is_running():
                one.kill()
        psutil.wait_procs(family, 30)


@dataclass
class Training:
    """A run of `fmtkit train` that asks a server."""

    folder: Path
    command: list[str]

    def start(self, *more: str) -> "Training":
        self.process = subprocess.Popen(
            [*self.command, *more],
            cwd=self.folder,
            env=ENVIRONMENT,
            stdout=subprocess.DEVNULL,
            stderr=(self.folder / "err").open("wb"),
        )
        return self

    def wait(self) -> str:
        """Wait for its end; return what it said."""
        try:
            self.process.wait(SECONDS)
        finally:
            if self.process.poll() is None:
                self.process.kill()
        return (self.folder / "err").read_text(errors="replace")

    def kill(self) -> None:
        """Kill the process that trains; the one that started it ends by itself."""
        for one in psutil.Process(self.process.pid).children():
            one.kill()
        self.wait()

    def ends(self, *more: str) -> str:
        """Run it to its end, which must be a good one."""
        said = self.start(*more).wait()
        assert self.process.returncode == 0, said[-4000:]
        return said

    def at_the_gate(self) -> None:
        """Wait until the third batch is scored, and the run stands still."""
        end = time.monotonic() + SECONDS
        while not (self.folder / "reached").exists():
            assert self.process.poll() is None, (self.folder / "err").read_text()[-4000:]
            assert time.monotonic() < end
            time.sleep(0.05)

    def go_on(self) -> None:
        (self.folder / "go").touch()

    @property
    def steps(self) -> list[dict[str, Any]]:
        """Return the metrics of its steps."""
        lines = (self.folder / "run" / "metrics.jsonl").read_text().splitlines()
        return [log for log in map(json.loads, lines) if "loss" in log]

    @property
    def ratios(self) -> list[float]:
        return [log["sampling/importance_sampling_ratio/mean"] for log in self.steps]

    @property
    def checkpoints(self) -> list[str]:
        return sorted(path.name for path in (self.folder / "run/checkpoints").glob("checkpoint-*"))


def keys_of(model: str, port: int, **trl_keys: Any) -> dict[str, Any]:
    """Return the configuration of server and trainer."""
    return {
        "base_model": model,
        "chat_template": "tokenizer_default",
        "rl": "grpo",
        "adapter": "lora",
        "lora_r": 4,
        "lora_target_linear": True,
        "datasets": [{"path": "rows.jsonl", "type": "rewards.oai_gsm8k_transform"}],
        "output_dir": "run",
        "max_steps": 4,
        "micro_batch_size": 4,
        "logging_steps": 1,
        "learning_rate": 1e-2,
        "lr_scheduler": "constant",
        "use_cpu": True,
        "bf16": False,
        "save_strategy": "no",
        "trl": {
            "num_generations": 4,
            "max_completion_length": 12,
            "reward_funcs": ["rewards.letters"],
            "use_vllm": True,
            "vllm_server_host": "127.0.0.1",
            "vllm_lora_sync": True,
            **trl_keys,
        },
        "vllm": {"host": "127.0.0.1", "port": port, "dtype": "float32", "max_model_len": 1024},
    }


def write(folder: Path, keys: Mapping[str, Any], rows: list[dict] | None = None) -> Path:
    """Write a configuration, its code and its rows; return its file."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "rewards.py").write_text(CODE, encoding="utf-8")
    asked = [
        {"question": f"{tiny.WORDS[n % 12]} apple {n}?", "answer": f"so #### {n}"}
        for n in range(32)
    ]
    lines = (json.dumps(row) + "\n" for row in (rows or asked))
    (folder / "rows.jsonl").write_text("".join(lines), encoding="utf-8")
    file = folder / "run.yaml"
    file.write_text(json.dumps(keys), encoding="utf-8")
    return file


def training(folder: Path, keys: Mapping[str, Any], rows: list[dict] | None = None) -> Training:
    file = write(folder, keys, rows)
    return Training(folder, [f"{WHERE}/bin/python", "-m", "fmtkit", "train", str(file)])


def say(line: str) -> None:
    """Print a figure past pytest's capture: the documents have it from there."""
    sys.__stderr__.write(f"\n{line}\n")
