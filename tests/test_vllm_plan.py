"""Keys of vLLM and of prefetch in a plan: what cannot be, what is shared, and who has which GPU."""

import os
import subprocess
import sys

import pytest

pytest.importorskip("trl")

from test_vllm_serve import install

from fmtkit.core.errors import DependencyError, OptionError
from fmtkit.training.config.problems import RefusalError
from fmtkit.training.planning import device_checks
from fmtkit.training.planning import plan as planning
from fmtkit.training.planning.check import Run
from fmtkit.training.vllm import ready as vllm_ready

WHOLE = {
    "base_model": "a/m",
    "rl": "grpo",
    "micro_batch_size": 8,
    "datasets": [{"path": "a/b", "type": "gsm8k"}],
}
SERVED = {"use_vllm": True}
LORA = {"use_vllm": True, "vllm_lora_sync": True}
FILES = {"use_vllm": True, "vllm_sync": "file"}
ROLLED = {"rollout_func": "env.play"}


def planned(trl: dict, **keys) -> planning.Plan:
    return planning.plan({**WHOLE, **keys, "trl": {"reward_funcs": ["r.f"], **trl}})


COLOCATED = {"use_vllm": True, "vllm_mode": "colocate"}
SHARED = {"gpu_memory_utilization": 0.4, "max_model_len": 512, "tensor_parallel_size": 2}


def test_keys_of_the_server_reach_a_vllm_inside_the_trainer() -> None:
    plan = planned(COLOCATED, vllm=SHARED, num_processes=2)
    names = ("vllm_gpu_memory_utilization", "vllm_max_model_length", "vllm_tensor_parallel_size")
    assert [plan.arguments.trainer[name].value for name in names] == [0.4, 512, 2]
    assert not any("vllm" in note for note in plan.notes)
    served = planned(SERVED, vllm=SHARED).arguments.trainer
    assert not set(names) & set(served)


@pytest.mark.parametrize(
    ("method", "keys"),
    [("grpo", {"enforce_eager": True, "port": 8100}), ("online_dpo", {"max_model_len": 512})],
)
def test_a_key_that_a_vllm_inside_the_trainer_cannot_take_is_named(method, keys) -> None:
    plan = planned(COLOCATED, vllm=keys, rl=method)
    for name in keys:
        (note,) = [note for note in plan.notes if note.startswith(f"vllm.{name} ")]
        assert "changes nothing: trl.vllm_mode: colocate" in note
    assert "vllm_server_port" not in plan.arguments.trainer


@pytest.mark.parametrize("key", ["vllm.tensor_parallel_size", "trl.vllm_tensor_parallel_size"])
def test_a_model_over_more_processes_than_there_are_is_refused(key) -> None:
    trl, keys = dict(COLOCATED), {}
    if key.startswith("vllm"):
        keys["vllm"] = {"tensor_parallel_size": 2}
    else:
        trl["vllm_tensor_parallel_size"] = 2
    with pytest.raises(OptionError, match=rf"{key}: 2: .* there are 1; .*\[colocate\]"):
        planned(trl, **keys)
    assert planned(trl, **keys, num_processes=4).method == "grpo"


def test_two_sizes_of_a_vllm_inside_the_trainer_are_a_contradiction() -> None:
    with pytest.raises(OptionError, match="keep one"):
        planned({**COLOCATED, "vllm_max_model_length": 256}, vllm={"max_model_len": 512})


@pytest.mark.parametrize(
    ("trl", "keys", "name", "words"),
    [
        ({"async_prefetch": True}, {}, "prefetch", "cannot train and sample in one process"),
        (
            {**SERVED, "async_prefetch": True, "vllm_mode": "colocate"},
            {},
            "prefetch",
            "cannot train and sample",
        ),
        (
            {**SERVED, "async_prefetch": True, "environment_factory": "game.Board"},
            {"num_processes": 2},
            "prefetch",
            "environments are prefetched only with one training process",
        ),
        (
            {"async_prefetch": True, "environment_factory": "game.Board"},
            {},
            "prefetch",
            "cannot train and sample in one process",
        ),
        (
            {**ROLLED, "async_prefetch": True},
            {"num_processes": 2},
            "prefetch",
            "only with one training process",
        ),
        (
            {**ROLLED, "async_prefetch": True},
            {"accelerate_config": "multi_gpu"},
            "prefetch",
            "only with one training process",
        ),
        ({**SERVED, "prefetch_depth": 2}, {}, "prefetch", "nothing is prefetched without"),
        ({"vllm_sync_interval": 2}, {}, "sync_interval", "there is no vLLM"),
        (
            {
                **SERVED,
                "vllm_mode": "colocate",
                "vllm_sync_interval": 2,
                "vllm_enable_sleep_mode": True,
            },
            {},
            "sync_interval",
            "throws the weights away",
        ),
        ({"vllm_lora_sync": True}, {"adapter": "lora"}, "lora_sync", "adapters go to a server"),
        (
            {**LORA, "vllm_mode": "colocate"},
            {"adapter": "lora"},
            "lora_sync",
            "adapters go to a server",
        ),
        (LORA, {}, "lora_sync", "no adapter to send"),
        (LORA, {"adapter": "dora"}, "lora_sync", "serves only plain LoRA, and adapter is dora"),
        (
            LORA,
            {"adapter": "lora", "lora_modules_to_save": ["embed_tokens"]},
            "lora_sync",
            "lora_modules_to_save is",
        ),
        (LORA, {"adapter": "lora", "lora_bias": "all"}, "lora_sync", "lora_bias is all"),
        (
            LORA,
            {"adapter": "lora", "vllm": {"data_parallel_size": 2}},
            "lora_sync",
            "one of the 2 copies",
        ),
        ({"vllm_sync": "file"}, {}, "file_sync", "files go to a server"),
        ({**FILES, "vllm_mode": "colocate"}, {}, "file_sync", "files go to a server"),
        ({**LORA, **FILES}, {"adapter": "lora"}, "file_sync", "leave one of the two out"),
        (FILES, {"vllm": {"data_parallel_size": 2}}, "file_sync", "not tried with the 2 copies"),
    ],
    ids=str,
)
def test_what_no_run_can_do_is_refused_by_name(trl, keys, name, words):
    with pytest.raises(RefusalError, match=words) as told:
        planned(trl, **keys)
    assert told.value.name == name


@pytest.mark.parametrize(
    ("trl", "keys"),
    [
        ({**SERVED, "async_prefetch": True, "prefetch_depth": 2}, {"num_processes": 2}),
        ({**ROLLED, "async_prefetch": True}, {}),
        ({**SERVED, "vllm_sync_interval": 3}, {}),
        (LORA, {"adapter": "lora", "lora_r": 32}),
        (LORA, {"adapter": "qlora"}),
        ({**FILES, "vllm_sync_interval": 2}, {"use_cpu": True}),
        (FILES, {"rl": "rloo", "use_cpu": True}),
        (FILES, {"rl": "online_dpo", "use_cpu": True}),
        ({"use_data_producer": True}, {}),
    ],
    ids=str,
)
def test_what_a_run_can_do_is_planned(trl, keys):
    assert planned(trl, **keys).method == keys.get("rl", "grpo")


def test_a_fragment_may_leave_the_server_to_the_rest():
    fragment = {"rl": "grpo", "trl": {"vllm_lora_sync": True, "async_prefetch": True}}
    assert planning.plan(fragment, partial=True).missing


def test_the_trainer_asks_the_port_that_the_server_listens_on():
    argument = planned(SERVED, vllm={"port": 8123}).arguments.trainer["vllm_server_port"]
    assert (argument.value, argument.origin) == (8123, "key vllm.port")
    with pytest.raises(OptionError, match=r"vllm.port is 8123 and trl.vllm_server_port is 8000"):
        planned({**SERVED, "vllm_server_port": 8000}, vllm={"port": 8123})


def test_a_server_that_nobody_asks_is_noted():
    assert "no trainer uses this server" in " ".join(planned({}, vllm={"port": 8000}).notes)
    assert "fmtkit vllm-serve" in " ".join(planned(SERVED).notes)


@pytest.fixture
def packages(tmp_path, monkeypatch):
    for name, version in (("vllm", "0.31.0"), ("requests", "2.32.0")):
        install(tmp_path, name, version)
    monkeypatch.syspath_prepend(tmp_path)


def test_packages_that_the_trainer_needs_are_looked_for_before_anything_is_converted(
    tmp_path, monkeypatch
):
    with pytest.raises(DependencyError, match="also as a client"):
        vllm_ready.check(planned(SERVED), {})
    install(tmp_path, "vllm", "0.31.0")
    asked = planned(SERVED)
    with monkeypatch.context() as alone:
        # An environment in which nothing else is installed.
        alone.setattr(sys, "path", [str(tmp_path)])
        with pytest.raises(DependencyError, match="needs requests"):
            vllm_ready.check(asked, {})
    assert vllm_ready.check(planned({}), {}) == []


SERVER = """
import socket, sys
with socket.create_server(("127.0.0.1", 0)) as server:
    print(server.getsockname()[1], flush=True)
    sys.stdin.read()
"""


@pytest.fixture
def served():
    """Return a function that starts a process which listens, on given GPUs, and gives its port."""
    started = []

    def start(devices: str, *flags: str) -> int:
        child = subprocess.Popen(
            [sys.executable, "-c", SERVER, *flags],
            env={**os.environ, "CUDA_VISIBLE_DEVICES": devices},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        started.append(child)
        return int(child.stdout.readline())

    yield start
    for child in started:
        child.communicate("")


@pytest.mark.parametrize(
    ("server", "flags", "trainer", "processes", "shared"),
    [
        ("0", (), "0,1", None, "0"),
        ("0", (), "1", None, None),
        ("2,3", ("--tensor-parallel-size", "2"), "0,1,2,3", 2, None),
        ("2,3", ("--tensor-parallel-size", "2"), "0,1,2,3", 3, "2"),
        ("1,2", ("--tensor-parallel-size=2",), "2,3", 2, "2"),
        ("1,2", (), "2,3", 2, None),
        ("0", (), "", None, None),
    ],
)
def test_a_server_on_a_gpu_that_trains_is_told(
    packages, served, server, flags, trainer, processes, shared
):
    keys = {"vllm": {"port": served(server, *flags)}}
    keys |= {"num_processes": processes} if processes else {}
    environment = {"CUDA_VISIBLE_DEVICES": trainer}
    if shared is None:
        assert vllm_ready.check(planned(SERVED, **keys), environment) == []
        return
    with pytest.raises(OptionError, match=rf"runs on GPU {shared}, where the training would run"):
        vllm_ready.check(planned(SERVED, **keys), environment)
    for sending in (planned(LORA, adapter="lora", **keys), planned(FILES, **keys)):
        assert f"share GPU {shared}" in vllm_ready.check(sending, environment)[0]


@pytest.mark.parametrize(("uses_cpu", "shares"), [(True, False), (False, True)])
def test_only_a_training_that_leaves_the_gpus_alone_may_share_theirs(
    packages, served, uses_cpu, shares
):
    plan = planned(LORA, adapter="lora", use_cpu=uses_cpu, vllm={"port": served("0")})
    assert bool(vllm_ready.check(plan, {"CUDA_VISIBLE_DEVICES": "0"})) == shares


def test_a_server_elsewhere_is_not_looked_for(packages, served):
    port = served("0")
    plan = planned({**SERVED, "vllm_server_host": "10.0.0.7", "vllm_server_port": port})
    assert vllm_ready.listener(port) is not None
    assert vllm_ready.check(plan, {"CUDA_VISIBLE_DEVICES": "0"}) == []


def test_all_weights_cannot_go_to_a_server_from_a_cpu(monkeypatch):
    keys = {
        "base_model": "a/m",
        "rl": "grpo",
        "datasets": [{"path": "a/b", "type": "gsm8k"}],
        "trl": {"use_vllm": True, "reward_funcs": ["r.one"]},
    }
    sending = {"adapter": "lora", "trl": {**keys["trl"], "vllm_lora_sync": True}}
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    files = {"trl": {**keys["trl"], "vllm_sync": "file"}}
    told = str(device_checks.find_device(Run(planning.plan(keys))))
    assert "trl.vllm_lora_sync: true" in told
    assert "trl.vllm_sync: file" in told
    assert device_checks.find_device(Run(planning.plan({**keys, **sending}))) is None
    assert device_checks.find_device(Run(planning.plan({**keys, **files}))) is None
    # No machine can do it where the training may use no GPU: then the plan says so.
    with pytest.raises(OptionError, match=r"use_cpu: true trains without one.*\[transfer\]"):
        planning.plan({**keys, "use_cpu": True})
    assert planning.plan({**keys, **sending, "use_cpu": True})
    assert planning.plan({**keys, **files, "use_cpu": True})


def test_distillation_sends_its_weights_as_files_or_by_nccl(monkeypatch):
    """TRL's own trainer has no adapters to send; what it would not do is not taken for done."""
    keys = {**WHOLE, "rl": "distillation", "teacher_model": "a/t", "use_cpu": True}
    files = planning.plan({**keys, "trl": FILES})
    assert files.arguments.own["vllm_sync"].value == "file"
    assert files.arguments.trainer["vllm_mode"].value == "server"
    for trl in (SERVED, LORA):
        with pytest.raises(OptionError, match=r"vllm_sync: file sends them as files \[transfer\]"):
            planning.plan({**keys, "adapter": "lora", "trl": trl})
    with pytest.raises(
        OptionError, match=r"files go to a server; set use_vllm: true.*\[file_sync\]"
    ):
        planning.plan({**keys, "trl": {"vllm_sync": "file"}})
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    anywhere = {**keys, "use_cpu": None}
    told = device_checks.find_device(Run(planning.plan({**anywhere, "trl": SERVED})))
    assert "none is visible; trl.vllm_sync: file sends them as files" in str(told)
    assert device_checks.find_device(Run(planning.plan({**anywhere, "trl": FILES}))) is None
    idle = planning.plan({**keys, "trl": {"vllm_request_timeout": 60}})
    assert "trl.vllm_request_timeout changes nothing without trl.use_vllm" in idle.notes
