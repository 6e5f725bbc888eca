"""What would stop a run with vLLM, found before its data is converted: packages, and shared GPUs."""

import socket
from collections.abc import Mapping
from typing import TYPE_CHECKING

from fmtkit.core.errors import OptionError
from fmtkit.training.vllm import command as vllm_command
from fmtkit.training.vllm import gpus, listening
from fmtkit.training.vllm import versions as vllm_versions
from fmtkit.training.vllm.listening import Listener

if TYPE_CHECKING:
    from fmtkit.training.planning.plan import Plan

_HERE = frozenset({"0.0.0.0", "127.0.0.1", "::1", "localhost"})  # noqa: S104 - addresses to compare


def check(plan: "Plan", environment: Mapping[str, str]) -> list[str]:
    """Return what the user should know of the server.

    Raises DependencyError for packages that TRL's client lacks, and OptionError for a server that was
    started on a GPU that trains: their transfer of weights needs one GPU on each side.
    """
    trainer = {argument.name: argument.value for argument in plan.resolution.trainer.values()}
    if not is_used(plan):
        return []
    vllm_versions.check_trainer()
    if trainer.get("vllm_mode") == "colocate" or not _is_here(plan):
        return []
    server = listening.listener(vllm_command.port_of(plan.config))
    if server is None:
        return []
    shared = sorted(set(_of_server(server)) & set(_of_trainer(plan, environment)))
    if not shared:
        return []
    named = f"GPU {', '.join(shared)}"
    if plan.config.is_true("trl.vllm_lora_sync"):
        return [f"the vLLM server (process {server.pid}) and the training share {named}"]
    raise OptionError(
        f"the vLLM server (process {server.pid}) runs on {named}, where the training would run too; give "
        "each its own: CUDA_VISIBLE_DEVICES=0 fmtkit vllm-serve …, CUDA_VISIBLE_DEVICES=1 fmtkit train …"
    )


def is_used(plan: "Plan") -> bool:
    """Tell whether vLLM samples the answers."""
    used = plan.resolution.trainer.get("use_vllm")
    return used is not None and used.value is True


def _is_here(plan: "Plan") -> bool:
    base = plan.config.text("trl.vllm_server_base_url")
    if base is not None:
        return any(f"//{host}:" in base for host in _HERE)
    host = plan.config.text("trl.vllm_server_host") or "0.0.0.0"  # noqa: S104
    return host in _HERE | {socket.gethostname()}


def _of_server(server: Listener) -> list[str]:
    """Return the GPUs of a server: the first ones that it sees, as many as its sizes say."""
    count = 1
    for flag in ("--tensor-parallel-size", "-tp", "--data-parallel-size", "-dp"):
        count *= _number_after(server.command, flag)
    return gpus.visible(server.environment)[:count]


def _number_after(command: tuple[str, ...], flag: str) -> int:
    for part, following in zip(command, (*command[1:], ""), strict=True):
        text = part.partition("=")[2] if part.startswith(f"{flag}=") else following
        if part.partition("=")[0] == flag and text.isdigit():
            return int(text)
    return 1


def _of_trainer(plan: "Plan", environment: Mapping[str, str]) -> list[str]:
    count = plan.config.get("num_processes")
    if not isinstance(count, int):
        count = None if plan.launch.needs_cuda else 1
    if plan.resolution.trainer.get("use_cpu") is not None:
        return []
    return gpus.visible(environment)[:count]
