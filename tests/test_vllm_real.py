"""Online training that asks the real vLLM, on a CPU: what comes back, and what is lost with it.

Set FMTKIT_VLLM to an environment that has it, as `make test-vllm` does. The tests share a server, which those at
the end kill; a test that finds none starts one.
"""

import json
import os
import shutil
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("trl")

import torch
import vllm_cpu as real
from test_grpo_examples import EXAMPLES, TRL

from fmtkit.core.errors import OptionError
from fmtkit.training.config.config import load
from fmtkit.training.vllm import ready, serve
from fmtkit.training.vllm import server_state as servers

pytestmark = [
    pytest.mark.vllm,
    pytest.mark.skipif(not real.WHERE, reason="FMTKIT_VLLM names no environment with vLLM"),
]
EXACT = 1e-3
"""How far a ratio may be from 1 if the answers are those of the weights that train."""
SLOW = {"learning_rate": 2e-5}
"""Steps so small that answers that are one step old have ratios within BEHIND, whatever is drawn."""
BEHIND = 0.1


@pytest.fixture(scope="module")
def model(tmp_path_factory) -> str:
    folder = real.make_model(tmp_path_factory.mktemp("served") / "model")
    real.teach_calls(folder)
    return folder


@pytest.fixture(scope="module")
def holder(model, tmp_path_factory) -> Iterator[real.Served]:
    """Return the place of the server of adapters, which is stopped at the end."""
    folder, port = tmp_path_factory.mktemp("server"), real.free_port()
    served = real.Served(folder, real.write(folder, real.keys_of(model, port)), port)
    yield served
    if hasattr(served, "process"):
        served.stop()


@pytest.fixture(scope="module")
def plain(model, tmp_path_factory) -> Iterator[real.Served]:
    """Return a server without adapters, which takes all weights as files."""
    folder, port = tmp_path_factory.mktemp("plain"), real.free_port()
    served = real.Served(folder, real.write(folder, whole(model, port)), port).start()
    yield served
    served.stop()


def whole(model: str, port: int, **trl: Any) -> dict[str, Any]:
    """Return the configuration of a run that trains all weights."""
    keys = real.keys_of(model, port, vllm_sync="file", **trl)
    del keys["trl"]["vllm_lora_sync"], keys["adapter"], keys["lora_r"], keys["lora_target_linear"]
    return keys | {"learning_rate": 1e-3}


@pytest.fixture
def served(holder) -> real.Served:
    if not hasattr(holder, "process") or not holder.is_running:
        holder.start()
        real.say(f"the server was up after {holder.seconds:.0f} s")
    return holder


def rows_of(folder: Path) -> list[dict]:
    import pyarrow.parquet as pq

    return pq.read_table(folder / "run" / "completions.parquet").to_pylist()


def near(ratios: list[float], share: float = EXACT) -> bool:
    return all(abs(ratio - 1) < share for ratio in ratios)


def test_answers_are_those_of_the_weights_of_each_step(served, model, tmp_path):
    """Weights move much with each step; without a transfer the ratio would leave 1 at the second."""
    run = real.training(tmp_path, real.keys_of(model, served.port))
    run.ends()
    assert len(run.steps) == 4
    assert [log["vllm/adapter_version"] for log in run.steps] == [1, 2, 3, 4]
    assert near(run.ratios)
    assert not (tmp_path / "run" / "vllm-adapters").exists()
    moved, apart = compared(served, model, tmp_path / "run" / "model")
    assert apart < 1e-4 < 0.1 < moved
    real.say(
        f"ratios {min(run.ratios):.6f} to {max(run.ratios):.6f}; the adapter's log-probabilities differ "
        f"from peft's by at most {apart:.1e}, and it moves them by up to {moved:.2f}"
    )


def compared(served: real.Served, model: str, adapter: Path) -> tuple[float, float]:
    """Return how far an adapter moves log-probabilities, and how far the server's are from peft's."""
    from peft import PeftModel
    from transformers import AutoModelForCausalLM

    ids = [7 + (5 * n) % 400 for n in range(24)]
    body = {"lora_name": "compared", "lora_path": str(adapter)}
    served.server.post("/v1/load_lora_adapter", body)
    try:
        theirs = _scored(served, "compared", ids)
    finally:
        served.server.post("/v1/unload_lora_adapter", {"lora_name": "compared"})
    base = AutoModelForCausalLM.from_pretrained(model)
    plain = _logps(base, ids)
    ours = _logps(PeftModel.from_pretrained(base, str(adapter)), ids)
    return (ours - plain).abs().max().item(), (ours - theirs).abs().max().item()


def _scored(served: real.Served, name: str, ids: list[int]) -> torch.Tensor:
    asked = {"model": name, "prompt": ids, "max_tokens": 1, "prompt_logprobs": 0}
    choice = json.loads(served.server.post("/v1/completions", asked))["choices"][0]
    told = choice["prompt_logprobs"]
    return torch.tensor([told[n][str(ids[n])]["logprob"] for n in range(1, len(ids))])


@torch.no_grad()
def _logps(model: Any, ids: list[int]) -> torch.Tensor:
    logits = model(torch.tensor([ids])).logits[0, :-1].log_softmax(-1)
    return logits.gather(-1, torch.tensor(ids[1:])[:, None])[:, 0]


def test_the_documents_example_with_every_feature(served, model, tmp_path):
    """Prefetched answers are of older weights: the first ones are exact, later ones near."""
    top, trl = EXAMPLES["everything"]
    keys = real.keys_of(model, served.port, **{**TRL, **trl})
    keys |= {**top, "micro_batch_size": 8, "max_steps": 10, **SLOW}
    keys["vllm"]["max_model_len"] = 1024
    run = real.training(tmp_path, keys)
    run.ends()
    assert len(run.steps) == 10
    assert near(run.ratios[:1])
    assert near(run.ratios, BEHIND)
    ages = [log["prefetch/age_in_steps"] for log in run.steps[1:] if "prefetch/age_in_steps" in log]
    assert max(ages) == 1
    real.say(f"prefetched: ratios {min(run.ratios):.4f} to {max(run.ratios):.4f}")


def test_the_ratios_of_a_long_run_with_prefetch_stay_near_one(served, model, tmp_path):
    """Its answers are one step old all along: what drifts, or is sent too late, shows in the ratios."""
    keys = real.keys_of(model, served.port, async_prefetch=True)
    keys |= {"max_steps": 200, **SLOW}
    run = real.training(tmp_path, keys)
    run.ends()
    assert [log["step"] for log in run.steps] == list(range(1, 201))
    assert near(run.ratios[:1])
    assert near(run.ratios, BEHIND)
    ages = [log["prefetch/age_in_steps"] for log in run.steps[1:] if "prefetch/age_in_steps" in log]
    assert set(ages) == {1}
    real.say(f"200 steps, prefetched: {min(run.ratios):.4f} to {max(run.ratios):.4f}")


def test_structured_ebft(served, model, tmp_path):
    keys = real.keys_of(model, served.port) | {"rl": "ebft", "ebft": {"ce_coef": 0.1}}
    del keys["trl"]["reward_funcs"]
    keys["datasets"] = [{"path": "rows.jsonl", "type": "ebft_opencode.transform"}]
    rows = [{"input": f"red apple {n}", "output": "blue river of stone"} for n in range(16)]
    run = real.training(tmp_path, keys, rows)
    run.ends()
    assert near(run.ratios)
    assert all("ebft/alignment" in log for log in run.steps)


@pytest.mark.parametrize("ahead", [False, True])
def test_several_turns_with_an_environment(served, model, tmp_path, ahead):
    more = {"environment_factory": "rewards.Counter", "async_prefetch": ahead}
    keys = real.keys_of(model, served.port, **more, max_completion_length=200, temperature=0.3)
    keys |= SLOW
    del keys["trl"]["reward_funcs"]
    rows = [{"question": real.ASKED, "answer": f"#### {n}"} for n in range(16)]
    run = real.training(tmp_path, keys, rows)
    run.ends()
    assert near(run.ratios[:1])
    assert near(run.ratios, BEHIND if ahead else EXACT)
    assert all(log["tools/call_frequency"] > 0 for log in run.steps)
    assert any("step 2" in row["completion"] for row in rows_of(tmp_path))


def test_a_rollout_function_that_asks_twice(served, model, tmp_path):
    run = real.training(tmp_path, real.keys_of(model, served.port, rollout_func="rewards.play"))
    run.ends()
    assert near(run.ratios)
    assert all("warm" in row["completion"] for row in rows_of(tmp_path))


def test_what_does_not_fit_the_server_is_refused_by_it(served, model, tmp_path):
    start = "fmtkit vllm-serve run.yaml"
    assert servers.check(served.server, model, rank=8, start=start) == []
    with pytest.raises(OptionError, match="up to rank 8, and lora_r is 16; start it with"):
        servers.check(served.server, model, rank=16, start=start)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(ready, "RANGE", "<0.22")
        (note,) = servers.check(served.server, model, rank=8, start=start)
    assert f"is vllm {served.server.get('/version')['version']}, and TRL works with" in note
    with pytest.raises(OptionError, match="takes no weights"):
        servers.check(served.server, model, rank=None, start=start)
    other = real.make_model(tmp_path / "other", seed=1)
    with pytest.raises(OptionError, match=f"serves .*, and base_model is {other}"):
        servers.check(served.server, other, rank=8, start=start)
    with pytest.raises(OptionError, match=rf"in use by process {served.process.pid}"):
        serve.check_port(load(real.keys_of(model, served.port)))


def test_memory_that_is_not_there_is_told_before_anything_loads(served):
    asked = {**real.ENVIRONMENT, "VLLM_CPU_KVCACHE_SPACE": "4000"}
    command = [f"{real.WHERE}/bin/python", "-m", "fmtkit", "vllm-serve", str(served.config)]
    done = subprocess.run(command, env=asked, check=False, capture_output=True, text=True)
    assert done.returncode == 2
    assert "VLLM_CPU_KVCACHE_SPACE=4000: this machine has" in " ".join(done.stderr.split())


def test_the_adapter_of_a_killed_run_disturbs_no_other(served, model, tmp_path):
    keys = real.keys_of(model, served.port, reward_funcs=["rewards.gated"]) | {"save_steps": 1}
    keys["save_strategy"] = "steps"
    run = real.training(tmp_path, keys).start()
    run.at_the_gate()
    run.kill()
    stale = [one for one in names(served) if one.startswith("fmtkit-")]
    assert len(stale) == 1
    shutil.rmtree(tmp_path / "run" / "vllm-adapters")
    run.go_on()
    said = run.ends("--resume")
    assert [log["step"] for log in run.steps] == [1, 2, 3, 4]
    assert near(run.ratios)
    assert served.server.generates(60), said
    assert [one for one in names(served) if one.startswith("fmtkit-")] == stale


def names(served: real.Served) -> list[str]:
    return [one["id"] for one in served.server.get("/v1/models")["data"]]


@pytest.mark.parametrize("part", ["Worker", ""])
def test_a_frozen_server_ends_the_run_with_a_checkpoint(served, model, tmp_path, part):
    more = {"reward_funcs": ["rewards.gated"], "vllm_server_timeout": 3}
    run = real.training(tmp_path, real.keys_of(model, served.port, **more)).start()
    run.at_the_gate()
    frozen = served.part(part).pid if part else served.process.pid
    os.kill(frozen, signal.SIGSTOP)
    try:
        run.go_on()
        said = run.wait()
    finally:
        os.kill(frozen, signal.SIGCONT)
    assert run.process.returncode == 1, said
    assert one_error(said)
    assert "has been frozen for" in said
    assert ("computes no token" in said) == bool(part)
    assert run.checkpoints == ["checkpoint-3"]
    assert served.server.generates(60)


def one_error(said: str) -> bool:
    return "Traceback" not in said and [x[:6] for x in said.splitlines()].count("error:") == 1


def test_a_server_that_comes_back_gets_the_adapter_again(served, model, tmp_path):
    more = {"reward_funcs": ["rewards.gated"], "vllm_server_timeout": 300}
    run = real.training(tmp_path, real.keys_of(model, served.port, **more)).start()
    run.at_the_gate()
    served.part("Worker").kill()
    run.go_on()
    served.process.wait(real.SECONDS)
    served.start()
    said = run.wait()
    assert run.process.returncode == 0, said
    assert [log["step"] for log in run.steps] == [1, 2, 3, 4]
    assert near(run.ratios)


def test_a_killed_server_ends_the_run_and_another_port_resumes_it(served, model, tmp_path):
    more = {"reward_funcs": ["rewards.gated"], "vllm_server_timeout": 5}
    keys = real.keys_of(model, served.port, **more)
    run = real.training(tmp_path, keys).start()
    run.at_the_gate()
    served.stop(signal.SIGKILL)
    run.go_on()
    said = run.wait()
    assert run.process.returncode == 1, said
    assert one_error(said)
    assert "has been gone for" in said
    assert run.checkpoints == ["checkpoint-3"]
    served.port = real.free_port()
    keys["vllm"]["port"] = served.port
    served.config = real.write(served.folder, real.keys_of(model, served.port))
    real.write(tmp_path, keys)
    served.start()
    run.ends("--resume")
    assert [log["step"] for log in run.steps] == [1, 2, 3, 4]
    assert near(run.ratios)


def test_all_weights_as_files(plain, model, tmp_path):
    """With an interval of two, the answers of every second step are of the weights before."""
    run = real.training(tmp_path, whole(model, plain.port, vllm_sync_interval=2))
    run.ends()
    first, stale, again, last = run.ratios
    assert near([first, again])
    assert not near([stale])
    assert not near([last])
    assert not (tmp_path / "run" / "vllm-weights").exists()
    real.say(f"files, every second step: ratios {', '.join(f'{one:.4f}' for one in run.ratios)}")


@pytest.mark.parametrize("method", ["rloo", "online_dpo", "distillation"])
def test_methods_of_trl_send_files_too(plain, model, tmp_path, method):
    """After the run the server has the weights with which the last batch was answered."""
    keys = whole(model, plain.port) | {"rl": method, "save_strategy": "steps", "save_steps": 1}
    if method != "rloo":
        del keys["trl"]["num_generations"]
    if method == "online_dpo":
        keys |= {"max_new_tokens": keys["trl"].pop("max_completion_length")}
    if method == "distillation":
        del keys["trl"]["reward_funcs"]
        keys |= {"teacher_model": real.make_model(tmp_path / "teacher", seed=1)}
    run = real.training(tmp_path, keys)
    run.ends()
    assert len(run.steps) == 4
    from transformers import AutoModelForCausalLM

    ids = [7 + (5 * n) % 400 for n in range(24)]
    before, after = (
        AutoModelForCausalLM.from_pretrained(
            tmp_path / "run" / "checkpoints" / f"checkpoint-{step}"
        )
        for step in (3, 4)
    )
    theirs = _scored(plain, model, ids)
    assert (_logps(before, ids) - theirs).abs().max() < 1e-4
    assert (_logps(after, ids) - theirs).abs().max() > 1e-3


def test_a_server_without_adapters_is_told(plain, model):
    start = "fmtkit vllm-serve run.yaml"
    assert servers.check(plain.server, model, rank=None, start=start, by_files=True) == []
    with pytest.raises(OptionError, match=r"runs without --enable-lora.* start it with"):
        servers.check(plain.server, model, rank=4, start=start)


def test_a_server_of_all_weights_that_comes_back_gets_them_again(plain, model, tmp_path):
    more = {"reward_funcs": ["rewards.gated"], "vllm_server_timeout": 300}
    run = real.training(tmp_path, whole(model, plain.port, **more)).start()
    run.at_the_gate()
    plain.stop(signal.SIGKILL)
    plain.start()
    run.go_on()
    said = run.wait()
    assert run.process.returncode == 0, said
    assert [log["step"] for log in run.steps] == [1, 2, 3, 4]
    assert near(run.ratios)
