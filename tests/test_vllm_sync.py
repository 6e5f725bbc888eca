"""How the weights come to the sampler: how often, and as an adapter alone; against a stub of vLLM."""

import threading
from pathlib import Path

import pytest

pytest.importorskip("trl")

import scripted_rollouts as scripted
import vllm_stub as vllm
from peft import LoraConfig
from transformers import TrainerCallback

from fmtkit.training.vllm.lifeline import ServerLostError
from fmtkit.training.vllm.rollout_settings import RolloutSettings


def with_interval(model, folder, interval, **arguments):
    """Train with a sampler of our own and note the steps at which it was sent the weights."""
    trainer = scripted.make_trainer(
        model, folder, rollouts=RolloutSettings(vllm_sync_interval=interval), **arguments
    )
    steps = []

    class Sampler:
        def sync_weights(self):
            steps.append(trainer.state.global_step)

        def generate(self, prompts, images, num_generations, profiler=None):
            ids = [[11 + n % 7, 12, 3] for n, _ in enumerate(prompts)]
            return None, ids, [[[-1.0]] * 3 for _ in ids], None

    trainer.use_vllm, trainer.vllm_mode = True, "colocate"
    trainer.vllm_generation, trainer._last_loaded_step = Sampler(), -1
    trainer.connect_rollouts()
    trainer.train()
    return steps


@pytest.mark.parametrize(
    ("interval", "steps"), [(1, [0, 1, 2, 3, 4, 5]), (2, [0, 2, 4]), (3, [0, 3])]
)
def test_weights_go_out_when_the_interval_has_passed(model, tmp_path, interval, steps):
    assert with_interval(model, tmp_path, interval, max_steps=6) == steps


def test_the_interval_counts_from_the_last_transfer(model, tmp_path):
    """Answers at steps 0, 2, 4, …: a rule by the step's own number would send at 0, 6, 12."""
    found = with_interval(model, tmp_path, 3, max_steps=10, num_iterations=2)
    assert found == [0, 4, 8]


def test_an_evaluation_is_of_the_weights_of_now(model, tmp_path):
    found = with_interval(
        model,
        tmp_path,
        4,
        max_steps=6,
        more={"eval_dataset": scripted.dataset(4)},
        eval_strategy="steps",
        eval_steps=3,
        per_device_eval_batch_size=4,
    )
    assert found == [0, 3, 6]


def with_adapter(model, folder, stub_port, served, rollouts=None, more=None, **arguments):
    trainer = scripted.make_trainer(
        model,
        folder,
        rollouts=rollouts or RolloutSettings(vllm_lora_sync=True, folder=folder / "adapters"),
        more={"peft_config": LoraConfig(r=4, target_modules=["q_proj", "v_proj"]), **(more or {})},
        vllm_server_port=stub_port,
        vllm_server_host="127.0.0.1",
        vllm_server_timeout=2,
        **arguments,
    )
    vllm.attach(trainer, vllm.Client(f"http://127.0.0.1:{stub_port}", served))
    return trainer


def test_each_version_is_loaded_asked_and_unloaded_before_its_files_go(model, tmp_path):
    stub = vllm.Stub(model)
    with vllm.serving(stub) as port:
        trainer = with_adapter(model, tmp_path, port, model, max_steps=3)
        trainer.train()
    run = trainer.lora_sync.run
    assert stub.posts() == [
        f"load_lora_adapter {run}-v1",
        f"completions {run}-v1",
        f"load_lora_adapter {run}-v2",
        f"unload_lora_adapter {run}-v1",
        f"completions {run}-v2",
        f"load_lora_adapter {run}-v3",
        f"unload_lora_adapter {run}-v2",
        f"completions {run}-v3",
        f"unload_lora_adapter {run}-v3",
    ]
    assert all(
        not body["load_inplace"] for path, body in stub.calls if path.endswith("/load_lora_adapter")
    )
    assert stub.adapters == {}
    assert not (tmp_path / "adapters").exists()


def test_two_runs_never_share_a_name(model, tmp_path):
    stub = vllm.Stub(model)
    with vllm.serving(stub) as port:
        for name in ("a", "b"):
            with_adapter(model, tmp_path / name, port, model, max_steps=1).train()
    names = [body["lora_name"] for path, body in stub.calls if path == "/v1/load_lora_adapter"]
    assert len(set(names)) == 2


def test_the_versions_differ_and_the_last_two_stay_on_disk(model, tmp_path):
    seen = []
    stub = vllm.Stub(model)
    plain = stub.load

    def load(body):
        folder = Path(body["lora_path"])
        seen.append((folder / "adapter_model.safetensors").read_bytes())
        assert len(list(folder.parent.iterdir())) <= 3
        return plain(body)

    stub.load = load
    with vllm.serving(stub) as port:
        with_adapter(model, tmp_path, port, model, max_steps=4).train()
    assert len(set(seen)) == 4


def test_a_server_that_refuses_an_adapter_ends_the_run(model, tmp_path):
    stub = vllm.Stub(model)
    stub.failing["/v1/load_lora_adapter"] = 400
    with vllm.serving(stub) as port:
        trainer = with_adapter(model, tmp_path, port, model)
        with pytest.raises(ServerLostError, match=r"refused: .*/v1/load_lora_adapter answered 400"):
            trainer.train()
    assert stub.posts() == []
    assert trainer.state.global_step == 0


def test_a_server_that_may_not_load_adapters_is_told_what_it_needs(model, tmp_path):
    stub = vllm.Stub(model)
    stub.failing["/v1/load_lora_adapter"] = 404
    with vllm.serving(stub) as port:
        trainer = with_adapter(model, tmp_path, port, model)
        with pytest.raises(
            ServerLostError, match=r"VLLM_ALLOW_RUNTIME_LORA_UPDATING=1.* must see /"
        ):
            trainer.train()


class Noting(vllm.Stub):
    """Notes when a request begins and ends, so that what runs beside it can be told."""

    def __init__(self, model: str) -> None:
        super().__init__(model)
        self.under_way = 0
        self.beside: list[tuple[str, int]] = []

    def answer(self, path, body):
        if path == "/v1/completions":
            self.under_way += 1
        self.beside.append((path, self.under_way))
        try:
            return super().answer(path, body)
        finally:
            if path == "/v1/completions":
                self.under_way -= 1


@pytest.mark.slow
@pytest.mark.parametrize("depth", [1, 2])
def test_answers_of_a_server_are_those_without_prefetch(model, tmp_path, depth):
    """The stub answers by the prompt alone; weights still go out between the requests, never beside them."""

    def run(folder, rollouts):
        stub = Noting(model)
        with vllm.serving(stub) as port:
            trainer = with_adapter(model, folder, port, model, rollouts, max_steps=5)
            trainer.train()
        prompts = [body["prompt"] for path, body in stub.calls if path == "/v1/completions"]
        return stub, prompts, scripted.losses(trainer)

    folder = tmp_path / "adapters"
    _, prompts, losses = run(tmp_path / "a", RolloutSettings(vllm_lora_sync=True, folder=folder))
    settings = RolloutSettings(
        async_prefetch=True, prefetch_depth=depth, vllm_lora_sync=True, folder=folder
    )
    ahead, prompts_ahead, losses_ahead = run(tmp_path / "b", settings)
    assert prompts_ahead == prompts
    # The ratio to the sampler is the stub's constant, so the losses do not depend on whose weights answered.
    assert losses_ahead == losses
    assert all(count == 0 for path, count in ahead.beside if path.endswith("lora_adapter"))
    versions = [
        int(body["model"].rpartition("-v")[2])
        for path, body in ahead.calls
        if "completions" in path
    ]
    oldest, newest = [1, 1, *range(1, 4)], [1, 1, *range(2, 5)]
    wanted = newest if depth == 1 else oldest
    assert all(
        low <= found <= high for low, found, high in zip(wanted, versions, newest, strict=True)
    )


def test_a_transfer_waits_for_the_answers_that_are_under_way(model, tmp_path):
    """Two ahead: as the answers to batch 1 are taken, those to batch 2 are under way, and stay so."""
    taken, loaded = threading.Event(), threading.Event()
    beside = []

    class Slow(vllm.Stub):
        def complete(self, body):
            if self.posts().count(f"completions {body['model']}") == 3:
                assert taken.wait(30)
                beside.append(loaded.wait(0.3))
            return super().complete(body)

        def load(self, body):
            if body["lora_name"].endswith("-v2"):
                loaded.set()
            return super().load(body)

    settings = RolloutSettings(
        async_prefetch=True, prefetch_depth=2, vllm_lora_sync=True, folder=tmp_path / "adapters"
    )
    with vllm.serving(Slow(model)) as port:
        trainer = with_adapter(
            model, tmp_path, port, model, settings, max_steps=4, more={"callbacks": [Taking(taken)]}
        )
        trainer.train()
    assert beside == [False]
    assert loaded.is_set()


class Taking(TrainerCallback):
    """Says that a step is over, so that the next answers are taken."""

    def __init__(self, event: threading.Event) -> None:
        self.event = event

    def on_step_end(self, args, state, control, **_):
        self.event.set()
