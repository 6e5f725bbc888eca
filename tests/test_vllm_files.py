"""`vllm_sync: file`: all weights as files, against a stub of vLLM."""

import contextlib
import shutil
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("trl")

import scripted_rollouts as scripted
import torch
import vllm_stub as vllm
from peft import LoraConfig
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM, TrainerCallback

from fmtkit.training.building.callbacks import TrainingError
from fmtkit.training.vllm import file_sync
from fmtkit.training.vllm.file_sync import FileClient, WeightFiles
from fmtkit.training.vllm.lifeline import Lifeline, ServerLostError
from fmtkit.training.vllm.rollout_settings import RolloutSettings, read_settings
from fmtkit.training.vllm.server_state import VllmServer


class Reloading(vllm.Stub):
    """Loads weights as vLLM does: all files of the folder, and none of another."""

    def __init__(self, model: str, **config: Any) -> None:
        super().__init__(model, **config)
        self.weights: list[dict[str, torch.Tensor]] = []
        self.files: list[int] = []

    def answer(self, path, body):
        status, value = super().answer(path, body)
        if path != "/collective_rpc" or path in self.failing:
            return status, value
        assert body["method"] == "reload_weights"
        files = sorted(Path(body["kwargs"]["weights_path"]).glob("*.safetensors"))
        self.files.append(len(files))
        self.weights.append({n: w for file in files for n, w in load_file(file).items()})
        return 200, {"results": [None]}


class Client(vllm.Client):
    """TRL's client with the cache that a transfer empties."""

    def reset_prefix_cache(self) -> None:
        VllmServer(self.url).post("/reset_prefix_cache", {})


class Seen(TrainerCallback):
    """Keeps the weights before each step, under the names of the base model."""

    def __init__(self) -> None:
        self.weights: list[dict[str, torch.Tensor]] = []

    def on_step_begin(self, args, state, control, model=None, **_):
        self.weights.append({n: p.detach().clone() for n, p in model.named_parameters()})


def trainer_of(model, folder, port, *, more=None, timeout=0, **arguments):
    trainer = scripted.make_trainer(
        model,
        folder,
        rollouts=RolloutSettings(vllm_sync="file", folder=folder / "weights"),
        more=more or {},
        vllm_server_host="127.0.0.1",
        vllm_server_port=port,
        vllm_server_timeout=timeout,
        learning_rate=1e-2,
        **arguments,
    )
    vllm.attach(trainer, Client(f"http://127.0.0.1:{port}", model))
    return trainer


def same(one: dict[str, torch.Tensor], other: dict[str, torch.Tensor]) -> bool:
    return one.keys() == other.keys() and all(torch.equal(one[n], other[n]) for n in one)


def test_the_server_loads_the_weights_of_each_step_before_its_answers(model, tmp_path):
    stub, seen = Reloading(model), Seen()
    with vllm.serving(stub) as port:
        trainer_of(model, tmp_path, port, more={"callbacks": [seen]}, max_steps=3).train()
    posts = [path for path, _ in stub.calls]
    assert posts == ["/collective_rpc", "/reset_prefix_cache", "/v1/completions"] * 3
    assert all(map(same, stub.weights, seen.weights))
    assert not same(stub.weights[0], stub.weights[1])
    assert not (tmp_path / "weights").exists()


def test_an_adapter_is_sent_merged_under_the_names_of_the_model(model, tmp_path):
    stub = Reloading(model)
    lora = LoraConfig(r=4, target_modules=["q_proj"])
    with vllm.serving(stub) as port:
        trainer = trainer_of(model, tmp_path, port, more={"peft_config": lora}, max_steps=2)
        trainer.train()
        trainer.vllm_generation.sync_weights()
    plain = dict(AutoModelForCausalLM.from_pretrained(model).named_parameters())
    merged = dict(trainer.model.merge_and_unload().named_parameters())
    assert all(weights.keys() == plain.keys() for weights in stub.weights)
    assert same(stub.weights[0], plain)
    assert same(stub.weights[-1], merged)


def test_large_models_are_written_in_parts_and_one_version_stays(model, tmp_path, monkeypatch):
    monkeypatch.setattr(file_sync, "SHARD_BYTES", 1 << 16)
    stub = Reloading(model)
    with vllm.serving(stub) as port:
        files = WeightFiles(VllmServer(f"http://127.0.0.1:{port}"), tmp_path / "weights", 60)
        weights = {f"w{n}": torch.full((128, 128), float(n)) for n in range(3)}
        for _ in range(2):
            files.begin()
            for name, weight in weights.items():
                files.add(name, weight)
            files.end()
            files.publish()
            assert [p.name for p in (tmp_path / "weights").iterdir()] == [f"v{files.version}"]
    assert stub.files == [3, 3]
    assert same(stub.weights[0], weights)


def test_a_server_that_was_restarted_loads_the_last_files_again(model, tmp_path):
    first, second = Reloading(model), Reloading(model)
    with contextlib.ExitStack() as stack:
        begun = contextlib.ExitStack()
        port = begun.enter_context(vllm.serving(first))

        def restart(_: float) -> None:
            stack.enter_context(vllm.serving(second, port))

        files = WeightFiles(VllmServer(f"http://127.0.0.1:{port}"), tmp_path / "weights", 60)
        line = Lifeline(files.server, 60, files.restore, pause=restart)
        client = FileClient(Client(files.server.url, model), line, files)
        client.update_named_params([], iter([("w", torch.ones(2))]))
        begun.close()
        assert client.generate([[1, 2]])["completion_ids"]
    assert same(second.weights[0], first.weights[0])


def test_a_refusal_is_reported_by_the_answers_and_all_parameters_are_walked(model, tmp_path):
    stub = Reloading(model)
    stub.failing["/collective_rpc"] = 400
    with vllm.serving(stub) as port:
        files = WeightFiles(VllmServer(f"http://127.0.0.1:{port}"), tmp_path / "weights", 60)
        line = Lifeline(files.server, 0, files.restore, pause=pytest.fail)
        client = FileClient(Client(files.server.url, model), line, files)
        walked = iter([("w", torch.ones(2)), ("v", torch.ones(2))])
        client.update_named_params([], walked)
        assert list(walked) == []
        with pytest.raises(
            ServerLostError, match=r"refused: .*answered 400.* must see .*weights/v1"
        ):
            list(client.generate([[1]])["completion_ids"])


def test_files_that_cannot_be_written_end_the_run(model, tmp_path):
    with vllm.serving(Reloading(model)) as port:
        trainer = trainer_of(model, tmp_path, port, max_steps=2)
        (tmp_path / "weights").write_text("a file where the folder would be")
        with pytest.raises(TrainingError, match=r"trl.vllm_sync: file: .* cannot be written to"):
            trainer.train()


def test_a_killed_runs_files_are_not_loaded_with_the_new_ones(model, tmp_path):
    stub = Reloading(model)
    stale = tmp_path / "weights" / "v1"
    with vllm.serving(stub) as port:
        files = WeightFiles(VllmServer(f"http://127.0.0.1:{port}"), tmp_path / "weights", 60)
        files.begin()
        files.add("w", torch.zeros(2))
        files.end()
        shutil.copy(stale / "model-00001.safetensors", stale / "model-00002.safetensors")
        again = WeightFiles(files.server, tmp_path / "weights", 60)
        again.begin()
        again.add("w", torch.ones(2))
        again.end()
        again.publish()
    assert stub.files == [1]


def test_the_folder_of_the_files_is_in_the_run(tmp_path):
    assert read_settings({"vllm_sync": "file"}, run=tmp_path).folder == tmp_path / "vllm-weights"
    assert read_settings({}, run=tmp_path).folder == tmp_path / "vllm-adapters"
