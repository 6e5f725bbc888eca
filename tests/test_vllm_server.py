"""The trainer and its server: waiting for it, whether it fits, and what happens when it goes away."""

import contextlib
import socket
import threading
from dataclasses import replace
from types import SimpleNamespace
from urllib.parse import urlsplit

import pytest

pytest.importorskip("trl")

import online_runs as online
import scripted_rollouts as scripted
import vllm_stub as vllm
from peft import LoraConfig
from transformers import TrainerCallback

from fmtkit.core.errors import OptionError
from fmtkit.runners.grpo_features.trainer import FmtkitGRPOTrainer
from fmtkit.training.building.callbacks import TrainingError, saving
from fmtkit.training.run import process
from fmtkit.training.vllm import server_state as server
from fmtkit.training.vllm.guarded_client import GuardedClient
from fmtkit.training.vllm.lifeline import Lifeline, ServerLostError
from fmtkit.training.vllm.rollout_settings import RolloutSettings
from fmtkit.training.vllm.server_state import ServerError, VllmServer

START = "fmtkit vllm-serve run.yaml"
NCCL = {"weight_transfer_config": {"backend": "nccl"}}


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        return probe.getsockname()[1]


def url(port: int) -> VllmServer:
    return VllmServer(f"http://127.0.0.1:{port}")


def test_a_server_that_is_up_is_not_waited_for():
    with vllm.serving(vllm.Stub("a/m")) as port:
        server.wait(url(port), 5, say=pytest.fail, start=START, pause=pytest.fail)


def test_a_server_that_comes_up_ends_the_waiting():
    port, said = free_port(), []
    with contextlib.ExitStack() as stack:

        def pause(_: float) -> None:
            stack.enter_context(vllm.serving(vllm.Stub("a/m"), port))

        server.wait(url(port), 60, say=said.append, start=START, pause=pause)
    assert said[0] == f"waiting up to 60 s for the vLLM server at http://127.0.0.1:{port}: {START}"
    assert said[1].startswith("the vLLM server is up after")


def test_the_waiting_has_an_end_that_says_how_to_start_the_server():
    pauses: list[float] = []
    with pytest.raises(ServerError, match=r"no vLLM server .* after 20 s .*fmtkit vllm-serve"):
        server.wait(url(free_port()), 20, say=lambda _: None, start=START, pause=pauses.append)
    assert pauses == [1, 2, 4, 8, 5]


@pytest.mark.parametrize(
    ("config", "rank", "words"),
    [
        ({"lora_config": None}, 8, "runs without --enable-lora"),
        (
            {"lora_config": {"max_lora_rank": 8, "max_loras": 2}},
            16,
            "up to rank 8, and lora_r is 16",
        ),
        ({"lora_config": {"max_lora_rank": 8, "max_loras": 1}}, 8, "one adapter at a time"),
        ({"parallel_config": {"data_parallel_size": 2}}, 8, "several copies of the model"),
        ({"weight_transfer_config": None}, None, "takes no weights"),
    ],
)
def test_a_server_that_cannot_take_the_weights_is_told(config, rank, words):
    with vllm.serving(vllm.Stub("a/m", **config)) as port, pytest.raises(OptionError, match=words):
        server.check(url(port), "a/m", rank=rank, start=START)


@pytest.mark.parametrize(
    ("version", "is_noted"), [("0.31.0+cpu", False), ("0.19.0", True), ("nightly", True)]
)
def test_a_server_of_another_version_is_noted(version, is_noted):
    stub = vllm.Stub("a/m")
    stub.version = version
    with vllm.serving(stub) as port:
        notes = server.check(url(port), "a/m", rank=8, start=START)
    assert (
        any(f"is vllm {version}, and TRL works with vllm>=" in note for note in notes) == is_noted
    )


def test_a_server_of_another_model_is_told_with_both_names():
    with (
        vllm.serving(vllm.Stub("a/other")) as port,
        pytest.raises(OptionError, match="serves a/other, and base_model is a/m; start it with"),
    ):
        server.check(url(port), "a/m", rank=8, start=START)


def test_a_server_without_development_endpoints_is_told():
    stub = vllm.Stub("a/m")
    stub.config = {}
    with (
        vllm.serving(stub) as port,
        pytest.raises(OptionError, match="without VLLM_SERVER_DEV_MODE=1"),
    ):
        server.check(url(port), "a/m", rank=8, start=START)


@pytest.mark.parametrize(
    ("models", "info", "words"),
    [
        ("<html>", "{}", r"/v1/models answered '<html>', which is no JSON object"),
        ("[]", "{}", r"answered '\[\]', which is no JSON object"),
        ("{}", "{}", "/v1/models lists no models"),
        ('{"data": ["a/m"]}', "{}", "/v1/models lists no models"),
        ('{"data": [{"id": "a/m"}]}', "", "which is no JSON object"),
        ('{"data": [{"id": "a/m"}]}', '{"vllm_config": "text"}', "holds no vllm_config"),
    ],
)
def test_a_server_that_is_not_vllm_is_one_line(monkeypatch, models, info, words):
    answers = {"/v1/models": models, "/server_info": info}

    def answer(method, url, *_):
        return SimpleNamespace(content=answers[urlsplit(url).path].encode())

    monkeypatch.setattr(server.http_client, "request", answer)
    with pytest.raises(ServerError, match=words):
        server.check(VllmServer("http://host:1"), "a/m", rank=8, start=START)
    assert VllmServer("http://host:1").instance() is None


def test_a_server_that_fits_has_at_most_a_note():
    stub = vllm.Stub("a/m", **NCCL)
    with vllm.serving(stub) as port:
        assert server.check(url(port), "a/m", rank=None, start=START) == []
        stub.config["weight_transfer_config"] = None
        assert server.check(url(port), "a/m", rank=None, start=START, by_files=True) == []
        stub.config["model_config"] = {"logprobs_mode": "raw_logprobs"}
        assert "reports raw_logprobs" in server.check(url(port), "a/m", rank=8, start=START)[0]


@pytest.mark.parametrize(
    ("served", "wanted", "same"),
    [
        ("a/m", "a/m", True),
        ("/hub/models--a--m/snapshots/0f", "a/m", True),
        ("a/m", "a/m2", False),
        ("{folder}", "{folder}/../{name}", True),
    ],
)
def test_two_names_of_one_model_are_the_same(tmp_path, served, wanted, same):
    named = {"folder": tmp_path, "name": tmp_path.name}
    assert server.same_model(served.format(**named), wanted.format(**named)) is same


class Collecting(vllm.Stub):
    """A server that runs programs before it says what it is, as vLLM does on a busy machine."""

    def get(self, path):
        if path == "/server_info":
            threading.Event().wait(11)
        return super().get(path)


@pytest.mark.slow
def test_a_server_may_take_long_to_say_what_it_is():
    stub = Collecting("a/m", **NCCL)
    with vllm.serving(stub) as port:
        assert server.check(url(port), "a/m", rank=None, start=START) == []


def test_a_server_that_answers_late_is_asked_again():
    """The first try fails, the server is up: nothing was started anew, so the call is repeated."""
    tries = []

    def call():
        tries.append(1)
        if len(tries) == 1:
            raise ConnectionResetError("reset by peer")
        return "answer"

    with vllm.serving(vllm.Stub("a/m")) as port:
        line = Lifeline(url(port), 5, pause=pytest.fail)
        assert line.run(call) == "answer"


def test_a_server_that_refuses_is_not_asked_again():
    client = vllm.Client("http://127.0.0.1:1", "a/unknown")
    with vllm.serving(vllm.Stub("a/m")) as port:
        client.url = f"http://127.0.0.1:{port}"
        line = Lifeline(url(port), 5, pause=pytest.fail)
        with pytest.raises(TrainingError, match=r"refused: Request failed: 404, .*a/unknown"):
            line.run(lambda: client.generate([[1, 2]]))


def test_a_mistake_of_ours_is_not_taken_for_the_servers():
    with vllm.serving(vllm.Stub("a/m")) as port, pytest.raises(ZeroDivisionError):
        Lifeline(url(port), 5).run(lambda: 1 / 0)


def restarted(model: str, restore):
    """Call a server that is started anew, on the same port, while it is waited for."""
    client, port = vllm.Client("", model), free_port()
    with contextlib.ExitStack() as stack:
        with vllm.serving(vllm.Stub(model), port):
            client.url = f"http://127.0.0.1:{port}"
            line = Lifeline(url(port), 60, restore, pause=lambda _: stack.enter_context(second))
        second = vllm.serving(vllm.Stub(model), port)
        return line.run(lambda: client.generate([[1, 2]]))


def test_a_server_that_was_started_anew_gets_the_adapter_again():
    restores = []
    assert restarted("a/m", lambda: restores.append(1))["completion_ids"]
    assert restores == [1]


class Dying(vllm.Stub):
    """A server whose worker is dead: it answers 500 until it ends."""

    def answer(self, path, body):
        if path == "/v1/completions":
            self.calls.append((path, body))
            return 500, {"error": {"message": "Call to add_lora method failed: cancelled"}}
        return super().answer(path, body)


def test_an_error_inside_the_server_may_be_its_end_and_is_waited_for():
    """Its health check succeeds at first: the server ends while the second try is waited for."""
    restores, client, port = [], vllm.Client("", "a/m"), free_port()
    client.url = f"http://127.0.0.1:{port}"
    with contextlib.ExitStack() as stack:
        begun = contextlib.ExitStack()
        begun.enter_context(vllm.serving(Dying("a/m"), port))

        def pause(_: float) -> None:
            begun.close()
            stack.enter_context(vllm.serving(vllm.Stub("a/m"), port))

        line = Lifeline(url(port), 60, lambda: restores.append(1), pause=pause)
        assert line.run(lambda: client.generate([[1, 2]]))["completion_ids"]
    assert restores == [1]


def test_an_error_inside_the_server_that_stays_is_told_after_some_tries():
    stub, pauses = Dying("a/m"), []
    with vllm.serving(stub) as port:
        client = vllm.Client(f"http://127.0.0.1:{port}", "a/m")
        line = Lifeline(url(port), 60, pause=pauses.append)
        with pytest.raises(TrainingError, match=r"refused: Request failed: 500.*cancelled"):
            line.run(lambda: client.generate([[1, 2]]))
    assert [path for path, _ in stub.calls] == ["/v1/completions"] * 3
    assert pauses == [2, 10]


def test_whole_weights_do_not_come_back_with_the_server():
    with pytest.raises(ServerLostError, match=r"was restarted and lacks the trained weights"):
        restarted("a/m", None)


def test_a_server_that_stays_away_is_lost_after_the_time(tmp_path):
    pauses: list[float] = []
    client = vllm.Client(f"http://127.0.0.1:{free_port()}", "a/m")
    line = Lifeline(VllmServer(client.url), 100, pause=pauses.append)
    with pytest.raises(ServerLostError, match=r"has been gone for 100 s"):
        line.run(lambda: client.generate([[1]]))
    assert pauses[:5] == [1, 2, 4, 8, 16]


def test_a_lost_server_raises_where_its_answers_are_taken_and_walks_the_weights_to_their_end():
    """TRL sends what the main process got to the others, so that all of them end at the same place."""
    client = vllm.Client(f"http://127.0.0.1:{free_port()}", "a/m")
    client.update_named_params = lambda metadata, params: client.generate([[next(params)]])
    guarded = GuardedClient(client, Lifeline(VllmServer(client.url), 0, pause=pytest.fail))
    walked = iter([1, 2, 3])
    guarded.update_named_params([], walked)
    assert list(walked) == []
    guarded.reset_prefix_cache()
    answer = guarded.generate([[1]], n=2)
    with pytest.raises(ServerLostError, match="did not answer"):
        list(answer["prompt_ids"])
    with pytest.raises(ServerLostError):
        answer["logprobs"][0:2]


class Closing(TrainerCallback):
    """Ends a server after a step."""

    def __init__(self, after: int, close) -> None:
        self.after = after
        self.close = close

    def on_step_end(self, args, state, control, **_):
        if state.global_step == self.after:
            self.close()


def served_run(model, folder, port, callbacks=(), **arguments):
    trainer = scripted.make_trainer(
        model,
        folder,
        rollouts=RolloutSettings(vllm_lora_sync=True, folder=folder / "adapters"),
        kind=FmtkitGRPOTrainer,
        more={
            "peft_config": LoraConfig(r=4, target_modules=["q_proj"]),
            "callbacks": list(callbacks),
        },
        vllm_server_host="127.0.0.1",
        vllm_server_port=port,
        vllm_server_timeout=0,
        max_steps=4,
        **arguments,
    )
    vllm.attach(trainer, vllm.Client(f"http://127.0.0.1:{port}", model))
    return trainer


@pytest.mark.parametrize("ahead", [False, True])
def test_a_server_that_dies_leaves_a_checkpoint_to_go_on_from(model, tmp_path, ahead):
    port = free_port()
    with contextlib.ExitStack() as stack:
        stack.enter_context(vllm.serving(vllm.Stub(model), port))
        trainer = served_run(model, tmp_path, port, [Closing(2, stack.close)])
        trainer.rollouts = RolloutSettings(
            vllm_lora_sync=True, async_prefetch=ahead, folder=tmp_path / "adapters"
        )
        with (
            pytest.raises(TrainingError, match=r"has been gone .* saved in .*checkpoint-2") as told,
            saving(trainer),
        ):
            trainer.train()
    assert told.value.exit_code == 1
    stub = vllm.Stub(model)
    with vllm.serving(stub, port):
        again = served_run(model, tmp_path, port)
        again.train(resume_from_checkpoint=str(tmp_path / "checkpoint-2"))
    assert again.state.global_step == 4
    assert [log["step"] for log in again.state.log_history if "loss" in log] == [1, 2, 3, 4]


class Halving(vllm.Stub):
    """Answers some requests for half of their prompts."""

    def __init__(self, model: str, times: float) -> None:
        super().__init__(model)
        self.times = times

    def answer(self, path, body):
        status, value = super().answer(path, body)
        if path == "/v1/completions" and self.times > 0:
            self.times -= 1
            value = {"choices": value["choices"][: len(value["choices"]) // 2]}
        return status, value


@pytest.mark.parametrize("ahead", [False, True])
def test_a_server_that_answers_half_a_batch_is_asked_again(model, tmp_path, ahead):
    stub = Halving(model, 1)
    with vllm.serving(stub) as port:
        trainer = served_run(model, tmp_path, port)
        trainer.rollouts = replace(trainer.rollouts, async_prefetch=ahead)
        trainer.train()
    plain = vllm.Stub(model)
    with vllm.serving(plain) as port:
        whole = served_run(model, tmp_path / "whole", port)
        whole.train()
    asked = [[p for p, _ in one.calls].count("/v1/completions") for one in (stub, plain)]
    assert asked == [5, 4]
    assert scripted.losses(trainer) == scripted.losses(whole)


@pytest.mark.parametrize("ahead", [False, True])
def test_a_server_that_answers_half_of_every_batch_is_lost(model, tmp_path, ahead):
    stub = Halving(model, float("inf"))
    with vllm.serving(stub) as port:
        trainer = served_run(model, tmp_path, port)
        trainer.rollouts = replace(trainer.rollouts, async_prefetch=ahead)
        with pytest.raises(TrainingError, match="it gave 2 of 4 answers"):
            trainer.train()
    assert [p for p, _ in stub.calls].count("/v1/completions") > 1


def test_the_training_process_waits_before_it_loads_a_model(model, tmp_path, capsys):
    """The base model does not even exist; what is told is that the server is not there."""
    work = online.make_job(tmp_path, model)
    port = free_port()
    served = {"use_vllm": True, "vllm_mode": "server"}
    trainer = {**served, "vllm_server_port": port, "vllm_server_timeout": 0}
    gone = replace(work, model="no/such", trainer={**work.trainer, **trainer})
    gone.write()
    assert process.main([gone.run]) == 1
    assert f"no vLLM server at http://0.0.0.0:{port} after 0 s" in capsys.readouterr().err


def test_the_rank_that_the_server_must_take_is_the_adapters(model, tmp_path):
    work = online.make_job(tmp_path, model)
    with vllm.serving(vllm.Stub(model)) as port:
        trainer = {"use_vllm": True, "vllm_mode": "server", "vllm_server_port": port}
        trainer["vllm_server_host"] = "127.0.0.1"
        served = replace(
            work,
            trainer={**work.trainer, **trainer},
            sections={"rl": {"vllm_lora_sync": True}},
            peft={"r": 16},
        )
        with pytest.raises(OptionError, match="up to rank 8, and lora_r is 16"):
            server.wait_for(served)


class Transferring:
    """TRL's client as far as online DPO sends weights one by one; the server goes at the second."""

    def __init__(self) -> None:
        self.sent: list[str] = []

    @contextlib.contextmanager
    def weight_update(self):
        self.sent.append("start")
        yield
        self.sent.append("finish")

    def update_named_param(self, name: str, weights: object) -> None:
        self.sent.append(name)
        if len(self.sent) == 3:
            raise ConnectionError("Connection refused")


def test_a_server_lost_in_a_transfer_of_single_parameters_is_reported_by_the_next_answers(model):
    client = Transferring()
    with vllm.serving(vllm.Stub(model)) as port:
        guarded = GuardedClient(client, Lifeline(url(port), 0, pause=pytest.fail))
        with guarded.weight_update():
            for name in ("a", "b", "c"):
                guarded.update_named_param(name, None)
        guarded.reset_prefix_cache()
    assert client.sent == ["start", "a", "b"]
    with pytest.raises(ServerLostError, match=r"Connection refused.*fmtkit vllm-serve"):
        list(guarded.generate(["x"])["completion_ids"])
    with pytest.raises(ServerLostError, match="Connection refused"):
        guarded.chat([[]])


def test_a_transfer_of_single_parameters_to_a_server_that_stays_is_ended_once(model):
    client = Transferring()
    with vllm.serving(vllm.Stub(model)) as port:
        guarded = GuardedClient(client, Lifeline(url(port), 0, pause=pytest.fail))
        with guarded.weight_update():
            guarded.update_named_param("a", None)
    assert client.sent == ["start", "a", "finish"]
