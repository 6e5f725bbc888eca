"""Two training processes and one server: the first asks for both, ahead of time or not."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("trl")

import vllm_stub as vllm

pytestmark = pytest.mark.slow


def trained(model: str, folder: Path, stub: vllm.Stub, *, ahead: bool) -> list[dict]:
    folder.mkdir()
    script = Path(__file__).parent / "served_processes.py"
    with vllm.serving(stub) as port:
        command = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
        command += ["--nproc_per_node=2", str(script), model, str(folder), str(port)]
        done = subprocess.run(
            [*command, str(int(ahead))], capture_output=True, text=True, check=False, timeout=300
        )
    assert done.returncode == 0, done.stderr
    return [json.loads((folder / f"found-{rank}.json").read_text()) for rank in range(2)]


def test_both_processes_get_their_own_answers_as_without_prefetch(model, tmp_path):
    plain = trained(model, tmp_path / "a", vllm.Stub(model), ahead=False)
    stub = vllm.Stub(model)
    ahead = trained(model, tmp_path / "b", stub, ahead=True)
    assert ahead == plain
    assert len(ahead[0]["losses"]) == 4
    assert [found["told"] for found in ahead] == ["", ""]
    first, second = ({text for text, _ in found["seen"]} for found in ahead)
    assert first.isdisjoint(second)
    assert [len(body["prompt"]) for path, body in stub.calls if path == "/v1/completions"] == [
        2
    ] * 4


class Full(vllm.Stub):
    """Takes two versions of the adapter."""

    def answer(self, path, body):
        if [p for p, _ in self.calls].count("/v1/load_lora_adapter") >= 2:
            self.failing = {"/v1/load_lora_adapter": 400}
        return super().answer(path, body)


@pytest.mark.parametrize("ahead", [False, True])
def test_both_processes_end_together_and_save_together(model, tmp_path, ahead):
    found = trained(model, tmp_path / "run", Full(model), ahead=ahead)
    assert found[0]["told"] == found[1]["told"]
    assert "answered 400" in found[0]["told"]
    assert "checkpoint-2" in found[0]["told"]
    assert (tmp_path / "run" / "checkpoint-2" / "adapter_model.safetensors").is_file()


class Choking(vllm.Stub):
    """Takes adapters, and answers no third batch."""

    def answer(self, path, body):
        if [p for p, _ in self.calls].count("/v1/completions") >= 2:
            self.failing = {"/v1/completions": 400}
        return super().answer(path, body)


@pytest.mark.parametrize("ahead", [False, True])
def test_a_failed_generation_reaches_both_through_the_broadcast(model, tmp_path, ahead):
    found = trained(model, tmp_path / "run", Choking(model), ahead=ahead)
    assert found[0]["told"] == found[1]["told"]
    assert "refused: Request failed: 400" in found[0]["told"]
