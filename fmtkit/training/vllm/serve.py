"""`fmtkit vllm-serve`: print or run the `vllm serve` command for a config.

The trainer needs vLLM's development endpoints, the log-probabilities of sampled tokens, and a way to
send weights: an NCCL group, or LoRA adapters that are loaded at run time. The flags are those that TRL's
deprecated `trl.scripts.vllm_serve` sets.
"""

import json
import os
import shlex
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import NoReturn

from fmtkit.core.data_classes import dataclass
from fmtkit.core.errors import OptionError
from fmtkit.training.config.config import Config, load
from fmtkit.training.config.keys import table
from fmtkit.training.config.trainer_source import installed
from fmtkit.training.planning import visible_gpus
from fmtkit.training.vllm.ready import HOST, check_memory, check_server, is_free, listener, port_of

LORA_RANKS = (1, 8, 16, 32, 64, 128, 256, 320, 512)
"""Values that vLLM accepts for --max-lora-rank; with others it does not start."""
_PEFT_RANK = 8

_FLAGS = {
    "tensor_parallel_size": "--tensor-parallel-size",
    "data_parallel_size": "--data-parallel-size",
    "gpu_memory_utilization": "--gpu-memory-utilization",
    "dtype": "--dtype",
    "max_model_len": "--max-model-len",
    "reasoning_parser": "--reasoning-parser",
}
_SWITCHES = {
    "enable_prefix_caching": ("--enable-prefix-caching", "--no-enable-prefix-caching"),
    "enforce_eager": ("--enforce-eager", None),
}
_OWN = frozenset({"host", "port"})


@dataclass(frozen=True)
class ServeCommand:
    """The server's command and the environment variables that it needs."""

    environment: Mapping[str, str]
    arguments: tuple[str, ...]
    """The arguments of `vllm serve`."""
    notes: tuple[str, ...] = ()

    @property
    def shell(self) -> str:
        """Return the command as one line for a shell."""
        variables = [f"{name}={shlex.quote(value)}" for name, value in self.environment.items()]
        return " ".join([*variables, shlex.join(["vllm", "serve", *self.arguments])])

    def dumps(self) -> str:
        """Return everything as JSON text."""
        record = {
            "environment": dict(self.environment),
            "command": ["vllm", "serve", *self.arguments],
            "shell": self.shell,
            "notes": list(self.notes),
        }
        return json.dumps(record, indent=1, ensure_ascii=False)


def plan(source: str, overrides: Sequence[str] = (), more: Sequence[str] = ()) -> ServeCommand:
    """Return the command for a config file; `more` are additional flags for vLLM."""
    return command(load(source, overrides), more)


def serve(
    source: str,
    overrides: Sequence[str] = (),
    more: Sequence[str] = (),
    *,
    say: Callable[[str], None],
) -> NoReturn:
    """Replace this process by the server for a config, so that signals and the exit code are vLLM's.

    Raises DependencyError and OptionError for errors that vLLM would report only after minutes of loading.
    """
    config = load(source, overrides)
    launched = command(config, more)
    check_server()
    check_memory(os.environ)
    check_port(config)
    check_gpus(config, os.environ)
    for note in launched.notes:
        say(f"note: {note}")
    say(launched.shell)
    # -P: a module in the working directory must not shadow one of vLLM's.
    run = [sys.executable, "-P", "-m", "vllm.entrypoints.cli.main", "serve", *launched.arguments]
    sys.stdout.flush()
    os.execve(sys.executable, run, {**os.environ, **launched.environment})  # noqa: S606 - our own command


def check_port(config: Config) -> None:
    """Raise OptionError if the port is in use."""
    host, port = str(config.get("vllm.host") or HOST), port_of(config)
    if is_free("127.0.0.1" if host == "localhost" else host, port):
        return
    owner = listener(port)
    who = f" by process {owner.pid} ({' '.join(owner.command)[:80]})" if owner else ""
    raise OptionError(
        f"vllm.port: {host}:{port} is in use{who}; stop that server, or set vllm.port, which the trainer "
        "uses too"
    )


def check_gpus(config: Config, environment: Mapping[str, str]) -> None:
    """Raise OptionError if the server needs more GPUs than it would see."""
    needed, seen = devices_needed(config), visible_gpus.visible(environment)
    if visible_gpus.is_known(environment) and len(seen) < needed:
        named = environment.get("CUDA_VISIBLE_DEVICES")
        shown = f"CUDA_VISIBLE_DEVICES={named}" if named is not None else "this machine"
        raise OptionError(
            f"the server needs {needed} GPUs (vllm.tensor_parallel_size times data_parallel_size), and "
            f"{shown} shows {len(seen)}"
        )


def command(config: Config, more: Sequence[str] = ()) -> ServeCommand:
    """Return the command that serves the model of a config; `more` are additional flags for vLLM.

    Raises OptionError if the keys contradict each other.
    """
    model = config.model
    if model is None:
        raise OptionError(f"{config.source}: base_model is missing; it names the model to serve")
    if is_inside(config):
        raise OptionError(
            "trl.vllm_mode: colocate runs vLLM inside the trainer; there is nothing to serve"
        )
    environment = {"VLLM_SERVER_DEV_MODE": "1"}
    adapters = _adapters(config)
    if adapters:
        environment = {"VLLM_ALLOW_RUNTIME_LORA_UPDATING": "1", **environment}
    transfer = (
        ()
        if adapters or sends_files(config)
        else ("--weight-transfer-config", '{"backend": "nccl"}')
    )
    arguments = (
        str(Path(model).expanduser()) if model.startswith("~") else model,
        *("--host", str(config.get("vllm.host") or HOST), "--port", str(port_of(config))),
        *_given(config),
        *_of_model(config),
        *adapters,
        *transfer,
        *("--logprobs-mode", "processed_logprobs", "--max-logprobs", "-1"),
        *_scale_out(),
        *more,
    )
    return ServeCommand(environment, arguments, tuple(_notes(config)))


def is_asked(config: Config) -> bool:
    """Return whether vLLM samples the answers, in a server or inside the trainer."""
    return config.is_true("trl.use_vllm")


def is_inside(config: Config) -> bool:
    """Return whether vLLM is to run inside the trainer, if it runs."""
    return config.text("trl.vllm_mode") == "colocate"


def sends_adapter(config: Config) -> bool:
    """Return whether only the adapter is sent."""
    return config.is_true("trl.vllm_lora_sync")


def sends_files(config: Config) -> bool:
    """Return whether all weights are sent as files."""
    return config.text("trl.vllm_sync") == "file"


def lora_rank(config: Config) -> int | None:
    """Return the rank of the adapter if only the adapter is sent; None if all weights are sent."""
    if not sends_adapter(config):
        return None
    rank = config.get("lora_r")
    return rank if isinstance(rank, int) else _PEFT_RANK


def round_lora_rank(rank: int) -> int:
    """Return the smallest rank that vLLM accepts and that is at least this one."""
    for accepted in LORA_RANKS:
        if accepted >= rank:
            return accepted
    raise OptionError(
        f"lora_r: {rank}: vLLM serves adapters up to rank {LORA_RANKS[-1]}; lower it, or leave out "
        "trl.vllm_lora_sync"
    )


def devices_needed(config: Config) -> int:
    """Return how many GPUs the server needs."""
    sizes = (config.get(f"vllm.{kind}_parallel_size") for kind in ("tensor", "data"))
    tensor, data = (size if isinstance(size, int) else 1 for size in sizes)
    return tensor * data


def _given(config: Config) -> list[str]:
    """Return the flags of the keys of `vllm` that are set."""
    out: list[str] = []
    for key in (key for key in table().values() if key.to == "vllm"):
        name, value = key.target, config.get(key.name)
        if value is None or name in _OWN:
            continue
        if name in _SWITCHES:
            flag = _SWITCHES[name][0 if value else 1]
            out += [flag] if flag else []
        else:
            out += [_FLAGS[name], str(value)]
    return out


def _of_model(config: Config) -> list[str]:
    revision = config.text("revision_of_model")
    trusted = ["--trust-remote-code"] if config.is_true("trust_remote_code") else []
    return [*(["--revision", revision] if revision else []), *trusted]


def _adapters(config: Config) -> tuple[str, ...]:
    rank = lora_rank(config)
    if rank is None:
        return ()
    # Two adapters: the new version is loaded before the old one is unloaded.
    return ("--enable-lora", "--max-lora-rank", str(round_lora_rank(rank)), "--max-loras", "2")


def _scale_out() -> tuple[str, ...]:
    """Enable the endpoints for prompts with images, which are off by default since vLLM 0.30, as TRL does."""
    version = installed("vllm")
    if version is None:
        return ()
    from packaging.version import Version

    return ("--enable-scale-out",) if Version(version) >= Version("0.30.0") else ()


def _notes(config: Config) -> list[str]:
    notes = []
    if not is_asked(config):
        notes.append("the trainer will not use this server: trl.use_vllm is not true")
    if config.text("trl.vllm_server_base_url"):
        notes.append(
            f"the trainer sends its requests to {config.text('trl.vllm_server_base_url')}, not to this "
            "server unless it is at that address"
        )
    notes += too_long(config)
    return notes


def too_long(config: Config) -> list[str]:
    """Return a note if the longest prompt and the longest answer together exceed the server's context."""
    limit, prompt = config.get("vllm.max_model_len"), config.get("sequence_len")
    answer = config.get("trl.max_completion_length")
    if not (isinstance(limit, int) and isinstance(prompt, int) and isinstance(answer, int)):
        return []
    if prompt + answer <= limit:
        return []
    return [
        f"vllm.max_model_len is {limit}: a prompt of sequence_len ({prompt}) and an answer of "
        f"max_completion_length ({answer}) do not fit; the server refuses what is longer"
    ]
