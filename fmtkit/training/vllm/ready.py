"""What would stop vLLM, found before anything loads: its version, a port that is taken, shared GPUs."""

import errno
import os
import socket
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING

from fmtkit.core import distributions
from fmtkit.core.data_classes import dataclass
from fmtkit.core.errors import DependencyError, OptionError
from fmtkit.training.config.config import Config
from fmtkit.training.config.trainer_source import installed
from fmtkit.training.planning import visible_gpus

if TYPE_CHECKING:
    from fmtkit.training.planning.run_plan import Plan

RANGE = ">=0.22.0,<=0.31.0"
"""What TRL 1.16 works with (its extra `vllm`)."""
_DOCS = "docs/vllm.md"
HOST, PORT = "0.0.0.0", 8000  # noqa: S104 - vLLM's and TRL's own defaults
_HERE = frozenset({"0.0.0.0", "127.0.0.1", "::1", "localhost"})  # noqa: S104 - addresses to compare


@dataclass(frozen=True)
class Listener:
    """A local process that listens on a port."""

    pid: int
    command: tuple[str, ...]
    environment: Mapping[str, str]


def check(plan: "Plan", environment: Mapping[str, str]) -> list[str]:
    """Return what the user should know of the server.

    Raises DependencyError for packages that TRL's client lacks, and OptionError for a server that was
    started on a GPU that trains: their transfer of weights needs one GPU on each side.
    """
    if not plan.arguments.uses_vllm:
        return []
    check_trainer()
    if plan.arguments.value("vllm_mode") == "colocate" or not _is_here(plan):
        return []
    server = listener(port_of(plan.config))
    if server is None:
        return []
    shared = sorted(set(_of_server(server)) & set(_of_trainer(plan, environment)))
    if not shared:
        return []
    named = f"GPU {', '.join(shared)}"
    if plan.config.is_true("trl.vllm_lora_sync") or plan.config.text("trl.vllm_sync") == "file":
        return [f"the vLLM server (process {server.pid}) and the training share {named}"]
    raise OptionError(
        f"the vLLM server (process {server.pid}) runs on {named}, where the training would run too; give "
        "each its own: CUDA_VISIBLE_DEVICES=0 fmtkit vllm-serve …, CUDA_VISIBLE_DEVICES=1 fmtkit train …"
    )


def port_of(config: Config) -> int:
    """Return the port that the server listens on, which is the one that the trainer asks."""
    of_server, asked = config.get("vllm.port"), config.get("trl.vllm_server_port")
    if of_server is not None and asked is not None and of_server != asked:
        raise OptionError(
            f"vllm.port is {of_server} and trl.vllm_server_port is {asked}; the trainer asks where the "
            "server listens: leave one of them out"
        )
    port = of_server if of_server is not None else asked
    return port if isinstance(port, int) else PORT


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
    return visible_gpus.visible(server.environment)[:count]


def _number_after(command: tuple[str, ...], flag: str) -> int:
    for part, following in zip(command, (*command[1:], ""), strict=True):
        text = part.partition("=")[2] if part.startswith(f"{flag}=") else following
        if part.partition("=")[0] == flag and text.isdigit():
            return int(text)
    return 1


def _of_trainer(plan: "Plan", environment: Mapping[str, str]) -> list[str]:
    return [] if plan.uses_cpu else visible_gpus.visible(environment)[: plan.launch.processes]


def check_server() -> None:
    """Raise DependencyError unless this environment can serve."""
    _check_packages(
        f"vllm is not installed in {sys.prefix}; give it its own environment, in a clone of "
        f"fmtkit: python -m venv vllm-env && vllm-env/bin/pip install . 'vllm{RANGE}'"
    )


def check_trainer() -> None:
    """Raise DependencyError unless TRL's client of vLLM can be imported in this environment."""
    _check_packages(
        f"trl.use_vllm: TRL's trainer imports vllm, also as a client, and {sys.prefix} has none; "
        "pip install 'trl[vllm]' here, or leave out use_vllm"
    )
    if installed("requests") is None:
        raise DependencyError("trl.use_vllm: TRL's client needs requests: pip install requests")


def _check_packages(absent: str) -> None:
    """Raise DependencyError for a vLLM, or a transformers beside it, that does not fit; `absent` for none."""
    version = installed("vllm")
    if version is None:
        raise DependencyError(f"{absent} ({_DOCS})")
    _check_range(version)
    _check_transformers(version)


def is_in_range(version: str) -> bool:
    """Return whether TRL works with a version of vLLM; a build of its own counts as its base version."""
    from packaging.specifiers import SpecifierSet
    from packaging.version import InvalidVersion, Version

    try:
        return SpecifierSet(RANGE).contains(Version(version).base_version)
    except InvalidVersion:
        return False


def check_memory(environment: Mapping[str, str]) -> None:
    """Raise OptionError where a CPU's cache is to be larger than the memory of the machine.

    vLLM reads VLLM_CPU_KVCACHE_SPACE (GiB), and says so after minutes, in a traceback of 200 lines.
    """
    asked = environment.get("VLLM_CPU_KVCACHE_SPACE", "")
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    if asked.isdigit() and int(asked) >= memory:
        raise OptionError(
            f"VLLM_CPU_KVCACHE_SPACE={asked}: this machine has {memory:.0f} GiB of memory; give fewer GiB"
        )


def _check_range(version: str) -> None:
    if not is_in_range(version):
        raise DependencyError(
            f"vllm {version} is here, and TRL works with {RANGE}: pip install 'vllm{RANGE}' ({_DOCS})"
        )


def _check_transformers(vllm: str) -> None:
    """Compare the installed transformers with what the installed vLLM requires."""
    from packaging.requirements import Requirement

    version = installed("transformers")
    for line in distributions.requirements_of("vllm"):
        asked = Requirement(line)
        if asked.name != "transformers" or (asked.marker and not asked.marker.evaluate()):
            continue
        if version is None or not asked.specifier.contains(version, prereleases=True):
            raise DependencyError(
                f"vllm {vllm} works with transformers {asked.specifier}, and {version or 'none'} is here: "
                f"pip install 'transformers{asked.specifier}' ({_DOCS})"
            )


def is_free(host: str, port: int) -> bool:
    """Return whether a server could listen there; an address that is not of this machine is not free."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError as error:
            if error.errno in {errno.EADDRINUSE, errno.EACCES, errno.EADDRNOTAVAIL}:
                return False
            raise
    return True


def listener(port: int) -> Listener | None:
    """Return the process that listens on a port; None if there is none that may be inspected."""
    # vLLM and accelerate depend on it; a plan is made without them too.
    import psutil

    try:
        listening = (c for c in psutil.net_connections("tcp") if c.status == psutil.CONN_LISTEN)
        owner = next((c.pid for c in listening if c.laddr.port == port and c.pid), None)
        if owner is None:
            return None
        process = psutil.Process(owner)
        return Listener(owner, tuple(process.cmdline()), process.environ())
    except psutil.Error:
        # Another user's process, or one that has ended meanwhile.
        return None
