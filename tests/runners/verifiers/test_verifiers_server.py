"""Environments of `verifiers` whose turns a vLLM server samples: alone, ahead of time, in several processes."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("trl")
pytest.importorskip("requests", reason="TRL's client of vLLM needs requests")

import vllm_stub as vllm
from test_verifiers import home, write  # noqa: F401
from test_vllm_client import packages  # noqa: F401

from fmtkit.core.errors import FmtkitError
from fmtkit.training.online.conversations.naming import POLICY
from fmtkit.training.planning import plan as planning

SERVED = {
    "use_vllm": True,
    "vllm_server_host": "127.0.0.1",
    "vllm_server_timeout": 5,
    "vllm_lora_sync": True,
    "generation_kwargs": None,
}
ADAPTER = {"adapter": "lora", "lora_r": 4, "lora_target_modules": ["q_proj", "v_proj"]}


def trained(folder: Path, model: str, place: str, libraries: Path, stub: vllm.Stub, trl, **more):
    """Train by `fmtkit train` against a stand-in of vLLM; return what it said and its steps."""
    with vllm.serving(stub) as port:
        keys = {**SERVED, "vllm_server_port": port, **trl}
        file = write(folder, model, place, trl=keys, more={**ADAPTER, "max_steps": 3, **more})
        path = os.pathsep.join([str(libraries), os.environ.get("PYTHONPATH", "")])
        done = subprocess.run(
            [sys.executable, "-m", "fmtkit", "train", str(file)],
            env={**os.environ, "PYTHONPATH": path},
            capture_output=True,
            text=True,
            check=False,
            timeout=300,
        )
    metrics = folder / "run" / "metrics.jsonl"
    lines = metrics.read_text(encoding="utf-8").splitlines() if metrics.is_file() else []
    return done, [log for log in map(json.loads, lines) if "loss" in log]


@pytest.mark.slow
@pytest.mark.parametrize(("ahead", "processes"), [(False, 1), (True, 1), (False, 2)])
def test_a_server_samples_the_turns_of_episodes(
    ahead,
    processes,
    model,
    home,  # noqa: F811
    packages,  # noqa: F811
    tmp_path,
):
    stub = vllm.Stub(model)
    trl = {"async_prefetch": ahead}
    more = {"num_processes": processes}
    done, logs = trained(tmp_path / "a", model, home, packages, stub, trl, **more)
    assert done.returncode == 0, done.stderr
    assert len(logs) == 3
    for log in logs:
        assert log["verifiers/num_turns"] == 3.0
        assert log["verifiers/rollout_errors"] == 0.0
        assert log["failed_samples"] == 0.0
        assert "sampling/importance_sampling_ratio/mean" in log
    if ahead:
        assert [log.get("prefetch/age_in_steps") for log in logs] == [None, 1.0, 1.0]
    asked = [body for path, body in stub.calls if path == "/v1/completions"]
    assert {body["model"] for body in asked} == {POLICY}
    # Three steps of four answers of three turns each for every process.
    assert len(asked) == 3 * 4 * 3 * processes
    loads = [body for path, body in stub.calls if path == "/v1/load_lora_adapter"]
    assert [body["lora_name"] for body in loads] == [POLICY] * 3


class Lost(vllm.Stub):
    """Takes no further request for answers after so many."""

    def answer(self, path, body):
        if [p for p, _ in self.calls].count("/v1/completions") >= 20:
            self.failing = {"/v1/completions": 500}
        return super().answer(path, body)


@pytest.mark.slow
@pytest.mark.parametrize("ahead", [False, True])
def test_a_server_that_answers_no_more_ends_the_run_with_a_checkpoint(
    ahead,
    model,
    home,  # noqa: F811
    packages,  # noqa: F811
    tmp_path,
):
    trl = {"async_prefetch": ahead}
    done, _ = trained(tmp_path / "a", model, home, packages, Lost(model), trl)
    assert done.returncode == 1
    assert "verifiers: all 4 conversations by /run failed" in done.stderr
    assert "the steps so far are saved in" in done.stderr
    # Which of the second batch still had its three turns is a matter of chance.
    (checkpoint,) = (tmp_path / "a" / "run" / "checkpoints").glob("checkpoint-*")
    assert (checkpoint / "adapter_model.safetensors").is_file()


@pytest.mark.parametrize("more", [{"num_processes": 2}, {"trl": {"async_prefetch": True}}], ids=str)
def test_without_a_server_they_are_refused_before_the_run(more, tmp_path):
    colocated = {"use_vllm": True, "vllm_mode": "colocate"}
    trl = {**colocated, **more.pop("trl", {})}
    with pytest.raises(FmtkitError, match=r"trl\.use_vllm: true with a server"):
        planning.plan(write(tmp_path, "m", "somewhere", trl=trl, more=more))


def test_episodes_of_several_processes_are_not_played_ahead(tmp_path):
    trl = {**SERVED, "async_prefetch": True}
    file = write(tmp_path, "m", "somewhere", trl=trl, more={**ADAPTER, "num_processes": 2})
    with pytest.raises(FmtkitError, match="episodes are prefetched only with one training process"):
        planning.plan(file)
