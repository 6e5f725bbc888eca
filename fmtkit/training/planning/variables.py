"""The variables that `env` sets for the training processes: which of them a file may set."""

import re
from collections.abc import Iterator, Mapping

from fmtkit.core.credentials import public
from fmtkit.core.parent_death import STARTED_BY
from fmtkit.training.config.config import Config

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_SECRETS = frozenset(
    {"AUTH", "CREDENTIAL", "CREDENTIALS", "KEY", "PASSWD", "PASSWORD", "SECRET", "TOKEN"}
)
"""Parts of a name, of which the last says that the value is secret."""
_OURS = frozenset({STARTED_BY, "PYTHONPATH"})
_LAUNCHERS = frozenset(
    {"GROUP_RANK", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT", "RANK"}
    | {"WORLD_SIZE"}
)
_LAUNCHERS_BEGIN = ("ACCELERATE_", "FSDP_", "PARALLELISM_CONFIG_", "TORCHELASTIC_")


def faults(config: Config) -> Iterator[str]:
    """Yield why variables cannot be set; no value is shown that may be secret."""
    given = config.get("env")
    for name, value in given.items() if isinstance(given, Mapping) else ():
        fault = _fault(str(name), value)
        if fault is not None:
            yield f"env.{name} {fault}"


def _fault(name: str, value: object) -> str | None:
    if not _NAME.fullmatch(name):
        return "is no name of a variable"
    if name.upper().rpartition("_")[2] in _SECRETS or public(str(value)) != str(value):
        return (
            "looks like a secret, which the run folder would keep; set it in the shell, before "
            "fmtkit train FILE"
        )
    if not isinstance(value, str | int | float) or "\0" in str(value):
        return "takes a string, a number, true or false"
    if name in _OURS:
        return "is set by fmtkit for the processes that it starts; leave it out"
    if name in _LAUNCHERS or name.startswith(_LAUNCHERS_BEGIN):
        return (
            "is set by torchrun and accelerate; write accelerate_config, num_processes or "
            "main_process_port"
        )
    return None
