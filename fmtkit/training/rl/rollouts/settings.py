"""How answers are made, as the keys of `trl` ask for it."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from fmtkit.errors import OptionError
from fmtkit.training.rl.rollouts.server import REQUEST_SECONDS


@dataclass(frozen=True)
class RolloutSettings:
    """Prefetch and the transfer of weights; all of it is off by default.

    `folder` is where versions of the adapter are written for the server to read. With `lora_name` they
    all have that name, for askers other than the trainer; else each has a name of its own.
    """

    async_prefetch: bool = False
    prefetch_depth: int = 1
    vllm_sync_interval: int = 1
    vllm_lora_sync: bool = False
    vllm_request_timeout: float = REQUEST_SECONDS
    folder: Path = Path("vllm-adapters")
    lora_name: str = ""

    def __post_init__(self) -> None:
        for name in ("prefetch_depth", "vllm_sync_interval"):
            if getattr(self, name) < 1:
                raise OptionError(f"trl.{name}: {getattr(self, name)}: takes a number from 1")
        if self.vllm_request_timeout <= 0:
            seconds = self.vllm_request_timeout
            raise OptionError(f"trl.vllm_request_timeout: {seconds:g}: takes seconds above 0")


def read_settings(section: Mapping[str, object] | None, *, run: str | Path) -> RolloutSettings:
    """Read the keys of the section `rl` that concern rollouts; other keys are another's."""
    names = set(RolloutSettings.__dataclass_fields__) - {"folder", "lora_name"}
    given = {n: v for n, v in (section or {}).items() if n in names and v is not None}
    folder = Path(run).resolve() / "vllm-adapters"
    return RolloutSettings(**given, folder=folder)  # type: ignore[arg-type]
